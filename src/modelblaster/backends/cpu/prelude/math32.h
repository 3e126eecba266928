//@ power_of_two_f32
/* 2^n from t = n + 1.5 * 2^23, whose low bits are n; -126 <= n <= 127. */
INLINE f32 power_of_two_f32(f32 t) { return (f32)(((i32)t + 127) << 23); }

//@ exp_reduced_f32
/* (exp(r) - 1 - r) / r^2 for |r| <= ln(2)/2: tests/kernels/fit_polynomials.py. */
INLINE f32 exp_reduced_f32(f32 r) {
    f32 p = 0.001392692661f * r + 0.008363773874f;
    p = p * r + 0.04166655011f;
    p = p * r + 0.1666657338f;
    return p * r + 0.5f;
}

//@ exp_f32 : max_number_f32 min_number_f32 exp_reduced_f32 power_of_two_f32
/* exp(x) = 2^n exp(r), n = round(x / ln 2), ln 2 in two parts (Cody and Waite); 2^n in two factors for denormals. */
INLINE f32 exp_f32(f32 x) {
    const float magic = 12582912.0f;
    x = max_number_f32(F32(-104.0f), min_number_f32(F32(89.0f), x));
    f32 n = (x * 1.44269504f + magic) - magic;
    f32 r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    f32 half = (n * 0.5f + magic) - magic;
    f32 y = (exp_reduced_f32(r) * (r * r) + r) + 1.0f;
    return y * power_of_two_f32(half + magic) * power_of_two_f32(n - half + magic);
}

//@ exp2_f32 : max_number_f32 min_number_f32 exp_reduced_f32 power_of_two_f32
INLINE f32 exp2_f32(f32 x) {
    const float magic = 12582912.0f;
    x = max_number_f32(F32(-151.0f), min_number_f32(F32(129.0f), x));
    f32 n = (x + magic) - magic;
    f32 r = (x - n) * 0.693147181f;
    f32 half = (n * 0.5f + magic) - magic;
    f32 y = (exp_reduced_f32(r) * (r * r) + r) + 1.0f;
    return y * power_of_two_f32(half + magic) * power_of_two_f32(n - half + magic);
}

//@ expm1_f32 : max_number_f32 min_number_f32 exp_reduced_f32 power_of_two_f32
/* 2^n expm1(r) + 2^n - 1, halved so that 2^128 does not overflow. */
INLINE f32 expm1_f32(f32 x) {
    const float magic = 12582912.0f;
    x = max_number_f32(F32(-20.0f), min_number_f32(F32(89.0f), x));
    f32 n = (x * 1.44269504f + magic) - magic;
    f32 r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    f32 s = power_of_two_f32((n - 1.0f) + magic);
    f32 p = exp_reduced_f32(r) * (r * r) + r;
    return 2.0f * (s * p + (s - 0.5f));
}

//@ log_f32 : select_f32
/* x = 2^e m with m in [sqrt(1/2), sqrt(2)); log(m) = f - f^2/2 + f^3 P(f), f = m - 1: fit_polynomials.py. */
INLINE f32 log_f32(f32 x) {
    mask tiny = CONVERT(x < 0x1p-126f, mask);
    f32 y = select_f32(tiny, x * 0x1p23f, x);
    i32 e = ((i32)y - 0x3f3504f3) >> 23;
    f32 f = (f32)((i32)y - (e << 23)) - 1.0f;
    f32 n = CONVERT(e, f32) - select_f32(tiny, F32(23.0f), F32(0.0f));
    f32 p = 0.06971611471f * f - 0.1147973385f;
    p = p * f + 0.1168541992f;
    p = p * f - 0.1242568733f;
    p = p * f + 0.1424905765f;
    p = p * f - 0.1666780232f;
    p = p * f + 0.2000071575f;
    p = p * f - 0.2499999696f;
    p = p * f + 0.3333333118f;
    f32 z = f * f;
    f32 r = n * 1.42860677e-6f + p * z * f;
    r = (r - 0.5f * z) + f + n * 0.693145752f;
    r = select_f32(CONVERT(x == 0.0f, mask), F32(-__builtin_inff()), r);
    r = select_f32(CONVERT(x < 0.0f, mask), F32(__builtin_nanf("")), r);
    return select_f32(CONVERT(x < __builtin_inff(), mask), r, x);
}

//@ log2_f32 : log_f32
INLINE f32 log2_f32(f32 x) { return log_f32(x) * 1.44269504f; }

//@ log10_f32 : log_f32
INLINE f32 log10_f32(f32 x) { return log_f32(x) * 0.434294482f; }

//@ log1p_f32 : log_f32 select_f32 abs_f32
/* log(u) plus the first-order effect of what 1 + x lost by rounding. */
INLINE f32 log1p_f32(f32 x) {
    f32 u = 1.0f + x;
    f32 l = log_f32(u);
    f32 lost = (x - (u - 1.0f)) / u;
    return select_f32(CONVERT(u == 0.0f, mask) | CONVERT(u == __builtin_inff(), mask), l, l + lost);
}

//@ tanh_f32 : expm1_f32 abs_f32 copysign_f32 min_number_f32
/* With e = expm1(2|x|), tanh(|x|) = e / (e + 2): exact for small x as expm1 is. */
INLINE f32 tanh_f32(f32 x) {
    f32 e = expm1_f32(min_number_f32(F32(20.0f), 2.0f * abs_f32(x)));
    return copysign_f32(e / (e + 2.0f), x);
}

//@ erf_f32 : exp_f32 abs_f32 copysign_f32 min_number_f32 select_f32
/* Below 0.92: x + x P(x^2). Above: 1 - exp(-t Q(t)), Q = -log(erfc(t)) / t: fit_polynomials.py. */
INLINE f32 erf_f32(f32 x) {
    f32 t = min_number_f32(F32(4.0f), abs_f32(x));
    f32 z = t * t;
    f32 p = 8.399777795e-5f * z - 0.0008150050488f;
    p = p * z + 0.005201714569f;
    p = p * z - 0.02685969065f;
    p = p * z + 0.1128370117f;
    p = p * z - 0.3761263414f;
    p = p * z + 0.1283791667f;
    f32 q = -1.01184519e-6f * t + 3.376522549e-5f;
    q = q * t - 0.0004940896085f;
    q = q * t + 0.004284392391f;
    q = q * t - 0.0250934346f;
    q = q * t + 0.1077922316f;
    q = q * t + 0.6341947419f;
    q = q * t + 1.128888767f;
    f32 large = 1.0f - exp_f32(-t * q);
    return copysign_f32(select_f32(CONVERT(t < 0.92f, mask), p * t + t, large), x);
}

//@ erf_absolute_f32 : abs_f32 copysign_f32 min_number_f32
/* erf to an absolute error of 1.2e-7, for sums with 1: 1 - 2^(-t Q(t)), Q = -log2(erfc(t)) / t: fit_polynomials.py. */
INLINE f32 erf_absolute_f32(f32 x) {
    const float magic = 12582912.0f;
    f32 t = min_number_f32(F32(4.0f), abs_f32(x));
    f32 q = 7.50208678e-7f * t - 1.632118402e-5f;
    q = q * t + 0.0001522630508f;
    q = q * t - 0.0007725274767f;
    q = q * t + 0.002025198403f;
    q = q * t + 0.0002810650462f;
    q = q * t - 0.02799206702f;
    q = q * t + 0.1483985695f;
    q = q * t + 0.9184322536f;
    q = q * t + 1.627907348f;
    f32 z = -(t * q);
    f32 whole = z + magic;
    f32 r = z - (whole - magic);
    f32 p = 0.0001545316295f * r + 0.001339086336f;
    p = p * r + 0.009618082557f;
    p = p * r + 0.05550357114f;
    p = p * r + 0.2402265076f;
    p = p * r + 0.693147188f;
    p = p * r + 1.0f;
    f32 power = (f32)((i32)p + ((i32)whole << 23));
    return copysign_f32(1.0f - power, x);
}

//@ log2_wide_f32 : select_f32 select_f64
/* log2(a) of a >= 0 to 1e-11 of itself, in double precision: as log_f64 with a shorter R (fit_polynomials.py). */
INLINE f64 log2_wide_f32(f32 a) {
    mask tiny = CONVERT(a < 0x1p-126f, mask);
    f32 y = select_f32(tiny, a * 0x1p23f, a);
    i32 e = ((i32)y - 0x3f3504f3) >> 23;
    f64 f = CONVERT((f32)((i32)y - (e << 23)) - 1.0f, f64);
    f64 n = CONVERT(CONVERT(e, f32) - select_f32(tiny, F32(23.0f), F32(0.0f)), f64);
    f64 s = f / (2.0 + f);
    f64 w = s * s;
    f64 p = 0.19364479018873755153 * w + 0.22191306816763852329;
    p = p * w + 0.28571756017775239916;
    p = p * w + 0.3999999879007439753;
    p = p * w + 0.66666666667380425498;
    f64 l = s * (2.0 + p * w) * 1.44269504088896338700 + n;
    f32 edge = select_f32(CONVERT(a == 0.0f, mask), F32(-__builtin_inff()), a);
    return select_f64(CONVERT(a == 0.0f, mask) | ~CONVERT(a < __builtin_inff(), mask), CONVERT(edge, f64), l);
}

//@ pow_f32 : log2_wide_f32 exp_reduced_f32 power_of_two_f32 max_number_f64 min_number_f64 abs_f32 select_f32 round_f32
/* 2^(y log2|x|); a negative base needs an integer exponent, an odd one keeps the sign. */
INLINE f32 pow_f32(f32 x, f32 y) {
    const double wide_magic = 6755399441055744.0;
    const float magic = 12582912.0f;
    f64 t = CONVERT(y, f64) * log2_wide_f32(abs_f32(x));
    t = max_number_f64(F64(-151.0), min_number_f64(F64(129.0), t));
    f64 whole = (t + wide_magic) - wide_magic;
    f32 n = CONVERT(whole, f32), r = CONVERT(t - whole, f32) * 0.693147181f;
    f32 half = (n * 0.5f + magic) - magic;
    f32 size = (exp_reduced_f32(r) * (r * r) + r) + 1.0f;
    size = size * power_of_two_f32(half + magic) * power_of_two_f32(n - half + magic);
    mask integer = CONVERT(round_f32(y) == y, mask);
    f32 halves = y * 0.5f;
    mask odd = integer & CONVERT(round_f32(halves) != halves, mask);
    f32 result = select_f32(CONVERT((i32)x < 0, mask) & odd, -size, size);
    f32 infinite = F32(__builtin_inff());
    mask bad = CONVERT(x < 0.0f, mask) & ~integer & CONVERT(x != -infinite, mask) & CONVERT(abs_f32(y) != infinite, mask);
    result = select_f32(bad, F32(__builtin_nanf("")), result);
    return select_f32(CONVERT(x == 1.0f, mask) | CONVERT(y == 0.0f, mask), F32(1.0f), result);
}

//@ fmod_f32
/* The sign of a; exact by repeated scaled subtraction, one lane at a time. */
INLINE f32 fmod_f32(f32 a, f32 b) {
    for (int k = 0; k < LANES; k++) {
        float x = __builtin_fabsf(a[k]), y = __builtin_fabsf(b[k]);
        if (!(y > 0) || !(x < __builtin_inff())) { a[k] = __builtin_nanf(""); continue; }
        if (!(y < __builtin_inff())) continue;
        double rest = x, step = y;
        while (rest >= y) {
            while (step * 2 <= rest) step *= 2;
            while (step > rest) step *= 0.5;
            rest -= step;
        }
        a[k] = __builtin_copysignf((float)rest, a[k]);
    }
    return a;
}
