//@ power_of_two_f64
/* 2^n from t = n + 1.5 * 2^52, whose low bits are n; -1022 <= n <= 1023. */
INLINE f64 power_of_two_f64(f64 t) { return (f64)(((i64)t + 1023) << 52); }

//@ exp_reduced_f64
/* (exp(r) - 1 - r) / r^2 for |r| <= ln(2)/2: tests/kernels/fit_polynomials.py. */
INLINE f64 exp_reduced_f64(f64 r) {
    f64 p = 2.0909824221527578334e-9 * r + 2.5106274733573294688e-8;
    p = p * r + 2.7557290740367460991e-7;
    p = p * r + 2.7557252833516909748e-6;
    p = p * r + 0.0000248015873038125444;
    p = p * r + 0.00019841269876864354929;
    p = p * r + 0.0013888888888895760347;
    p = p * r + 0.0083333333333255446996;
    p = p * r + 0.04166666666666664287;
    p = p * r + 0.16666666666666671438;
    return p * r + 0.5;
}

//@ exp_f64 : max_number_f64 min_number_f64 exp_reduced_f64 power_of_two_f64
INLINE f64 exp_f64(f64 x) {
    const double magic = 6755399441055744.0;
    x = max_number_f64(F64(-746.0), min_number_f64(F64(710.0), x));
    f64 n = (x * 1.44269504088896338700 + magic) - magic;
    f64 r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    f64 half = (n * 0.5 + magic) - magic;
    f64 y = (exp_reduced_f64(r) * (r * r) + r) + 1.0;
    return y * power_of_two_f64(half + magic) * power_of_two_f64(n - half + magic);
}

//@ exp2_f64 : max_number_f64 min_number_f64 exp_reduced_f64 power_of_two_f64
INLINE f64 exp2_f64(f64 x) {
    const double magic = 6755399441055744.0;
    x = max_number_f64(F64(-1077.0), min_number_f64(F64(1025.0), x));
    f64 n = (x + magic) - magic;
    f64 r = (x - n) * 0.693147180559945309417;
    f64 half = (n * 0.5 + magic) - magic;
    f64 y = (exp_reduced_f64(r) * (r * r) + r) + 1.0;
    return y * power_of_two_f64(half + magic) * power_of_two_f64(n - half + magic);
}

//@ expm1_f64 : max_number_f64 min_number_f64 exp_reduced_f64 power_of_two_f64
INLINE f64 expm1_f64(f64 x) {
    const double magic = 6755399441055744.0;
    x = max_number_f64(F64(-40.0), min_number_f64(F64(710.0), x));
    f64 n = (x * 1.44269504088896338700 + magic) - magic;
    f64 r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    f64 s = power_of_two_f64((n - 1.0) + magic);
    f64 p = exp_reduced_f64(r) * (r * r) + r;
    return 2.0 * (s * p + (s - 0.5));
}

//@ log_f64 : select_f64
/* s = f / (2 + f), log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)), as in FreeBSD's e_log.c; R: fit_polynomials.py. */
INLINE f64 log_f64(f64 x) {
    mask tiny = CONVERT(x < 0x1p-1022, mask);
    f64 y = select_f64(tiny, x * 0x1p52, x);
    i64 shifted = (i64)y - 0x3fe6a09e667f3bcdLL;
    i32 e = CONVERT(shifted >> 32, i32) >> 20;
    f64 f = (f64)((i64)y - (CONVERT(e, i64) << 52)) - 1.0;
    f64 n = CONVERT(e, f64) - select_f64(tiny, F64(52.0), F64(0.0));
    f64 s = f / (2.0 + f);
    f64 w = s * s;
    f64 p = 0.13088714507747483791 * w + 0.13268573298949258619;
    p = p * w + 0.15386247170362732841;
    p = p * w + 0.18181795502739436403;
    p = p * w + 0.22222222393000648194;
    p = p * w + 0.28571428570797931882;
    p = p * w + 0.40000000000000886266;
    p = p * w + 0.66666666666666666462;
    f64 h = 0.5 * f * f;
    f64 r = n * 6.93147180369123816490e-01 - ((h - (s * (h + p * w) + n * 1.90821492927058770002e-10)) - f);
    r = select_f64(CONVERT(x == 0.0, mask), F64(-__builtin_inf()), r);
    r = select_f64(CONVERT(x < 0.0, mask), F64(__builtin_nan("")), r);
    return select_f64(CONVERT(x < __builtin_inf(), mask), r, x);
}

//@ log2_f64 : log_f64
INLINE f64 log2_f64(f64 x) { return log_f64(x) * 1.44269504088896338700; }

//@ log10_f64 : log_f64
INLINE f64 log10_f64(f64 x) { return log_f64(x) * 0.43429448190325182765; }

//@ log1p_f64 : log_f64 select_f64
INLINE f64 log1p_f64(f64 x) {
    f64 u = 1.0 + x;
    f64 l = log_f64(u);
    f64 lost = (x - (u - 1.0)) / u;
    return select_f64(CONVERT(u == 0.0, mask) | CONVERT(u == __builtin_inf(), mask), l, l + lost);
}

//@ tanh_f64 : expm1_f64 abs_f64 copysign_f64 min_number_f64
INLINE f64 tanh_f64(f64 x) {
    f64 e = expm1_f64(min_number_f64(F64(40.0), 2.0 * abs_f64(x)));
    return copysign_f64(e / (e + 2.0), x);
}

//@ pow_f64 : exp_f64 log_f64 abs_f64 select_f64 round_f64
/* exp(y log|x|) in plain double precision: its relative error grows with |y log x| (1e-14 at 100). */
INLINE f64 pow_f64(f64 x, f64 y) {
    f64 size = exp_f64(y * log_f64(abs_f64(x)));
    mask integer = CONVERT(round_f64(y) == y, mask);
    f64 halves = y * 0.5;
    mask odd = integer & CONVERT(round_f64(halves) != halves, mask);
    mask negative = CONVERT((i64)x < 0, mask);
    f64 result = select_f64(negative & odd, -size, size);
    f64 infinite = F64(__builtin_inf());
    mask bad = CONVERT(x < 0.0, mask) & ~integer & CONVERT(x != -infinite, mask) & CONVERT(abs_f64(y) != infinite, mask);
    result = select_f64(bad, F64(__builtin_nan("")), result);
    return select_f64(CONVERT(x == 1.0, mask) | CONVERT(y == 0.0, mask), F64(1.0), result);
}
