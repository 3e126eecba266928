//@ select_$V for f32 f64
INLINE $V select_$V(mask m, $V a, $V b) {
    $I k = CONVERT(m, $I);
    return ($V)((k & ($I)a) | (~k & ($I)b));
}

//@ select_$V for i32 i64
INLINE $V select_$V(mask m, $V a, $V b) {
    $V k = CONVERT(m, $V);
    return (k & a) | (~k & b);
}

//@ select_mask
INLINE mask select_mask(mask m, mask a, mask b) { return (m & a) | (~m & b); }

//@ keep_$V for f32 f64 i32 i64 mask : first select_$V
/* The new value in the first n lanes, the old one in the others. */
INLINE $V keep_$V(int64_t n, $V new, $V old) { return n == LANES ? new : select_$V(first(n), new, old); }

//@ index_$V for i32 i64
INLINE $V index_$V(int64_t start, int64_t stride) {
    return ($S)start + CONVERT(IOTA, $V) * ($S)stride;
}

//@ abs_$V for f32 f64
INLINE $V abs_$V($V a) { return ($V)(($I)a & ~(($I)(-0.0$F - ($V){0}))); }

//@ abs_$V for i32 i64 : select_$V
INLINE $V abs_$V($V a) { return select_$V(CONVERT(a < 0, mask), -a, a); }

//@ copysign_$V for f32 f64
/* The size of a with the sign of b. */
INLINE $V copysign_$V($V a, $V b) {
    $I sign = ($I)(-0.0$F - ($V){0});
    return ($V)((($I)a & ~sign) | (($I)b & sign));
}

//@ max_number_$V for f32 f64 : select_$V
/* The greater; b if either is NaN (so a NaN in b is kept). */
INLINE $V max_number_$V($V a, $V b) { MAX_NUMBER_$V return select_$V(CONVERT(a > b, mask), a, b); }

//@ min_number_$V for f32 f64 : select_$V
INLINE $V min_number_$V($V a, $V b) { MIN_NUMBER_$V return select_$V(CONVERT(a < b, mask), a, b); }

//@ max_$V for f32 f64 : max_number_$V
/* The greater; NaN if either is NaN: all ones is one. */
INLINE $V max_$V($V a, $V b) { return ($V)(($I)max_number_$V(a, b) | ($I)(a != a)); }

//@ min_$V for f32 f64 : min_number_$V
INLINE $V min_$V($V a, $V b) { return ($V)(($I)min_number_$V(a, b) | ($I)(a != a)); }

//@ max_$V for i32 i64 : select_$V
INLINE $V max_$V($V a, $V b) { return select_$V(CONVERT(a > b, mask), a, b); }

//@ min_$V for i32 i64 : select_$V
INLINE $V min_$V($V a, $V b) { return select_$V(CONVERT(a < b, mask), a, b); }

//@ argmax_$V for f32 f64 i32 i64
/* Where (b, ib) beats (a, ia): greater, or the first NaN, or an equal one that lies before. */
INLINE mask argmax_$V($V a, mask ia, $V b, mask ib) {
    mask nan_a = CONVERT(a != a, mask), nan_b = CONVERT(b != b, mask);
    mask same = CONVERT(a == b, mask) | (nan_a & nan_b);
    return (CONVERT(b > a, mask) & ~nan_a) | (nan_b & ~nan_a) | (same & (ib < ia));
}

//@ argmin_$V for f32 f64 i32 i64
INLINE mask argmin_$V($V a, mask ia, $V b, mask ib) {
    mask nan_a = CONVERT(a != a, mask), nan_b = CONVERT(b != b, mask);
    mask same = CONVERT(a == b, mask) | (nan_a & nan_b);
    return (CONVERT(b < a, mask) & ~nan_a) | (nan_b & ~nan_a) | (same & (ib < ia));
}

//@ across_sum_$V for f32 f64 i32 i64
INLINE $V across_sum_$V($V v) {
#define STEP(s) v = v + SWAPPED(v, s);
    BUTTERFLY(STEP)
#undef STEP
    return v;
}

//@ across_prod_$V for f32 f64 i32 i64
INLINE $V across_prod_$V($V v) {
#define STEP(s) v = v * SWAPPED(v, s);
    BUTTERFLY(STEP)
#undef STEP
    return v;
}

//@ across_max_$V for f32 f64 i32 i64 : max_$V
INLINE $V across_max_$V($V v) {
#define STEP(s) v = max_$V(v, SWAPPED(v, s));
    BUTTERFLY(STEP)
#undef STEP
    return v;
}

//@ across_min_$V for f32 f64 i32 i64 : min_$V
INLINE $V across_min_$V($V v) {
#define STEP(s) v = min_$V(v, SWAPPED(v, s));
    BUTTERFLY(STEP)
#undef STEP
    return v;
}

//@ across_any_mask
INLINE mask across_any_mask(mask v) {
#define STEP(s) v = v | SWAPPED(v, s);
    BUTTERFLY(STEP)
#undef STEP
    return v;
}

//@ across_all_mask
INLINE mask across_all_mask(mask v) {
#define STEP(s) v = v & SWAPPED(v, s);
    BUTTERFLY(STEP)
#undef STEP
    return v;
}

//@ across_argmax_$V for f32 f64 i32 i64 : argmax_$V select_mask
INLINE mask across_argmax_$V($V v, mask i) {
#define STEP(s) { $V w = SWAPPED(v, s); mask j = SWAPPED(i, s), m = argmax_$V(v, i, w, j); \
                  v = select_$V(m, w, v); i = select_mask(m, j, i); }
    BUTTERFLY(STEP)
#undef STEP
    return i;
}

//@ across_argmin_$V for f32 f64 i32 i64 : argmin_$V select_mask
INLINE mask across_argmin_$V($V v, mask i) {
#define STEP(s) { $V w = SWAPPED(v, s); mask j = SWAPPED(i, s), m = argmin_$V(v, i, w, j); \
                  v = select_$V(m, w, v); i = select_mask(m, j, i); }
    BUTTERFLY(STEP)
#undef STEP
    return i;
}

//@ round_$V for f32 f64 : copysign_$V abs_$V select_$V
/* To the nearest even: adding 2^mantissa bits leaves none below 1; larger numbers are integers already. */
INLINE $V round_$V($V a) {
    $V size = abs_$V(a);
    $V r = (size + $M) - $M;
    return select_$V(CONVERT(size < $M, mask), copysign_$V(r, a), a);
}

//@ floor_$V for f32 f64 : round_$V copysign_$V
INLINE $V floor_$V($V a) {
    $V r = round_$V(a);
    return copysign_$V(r - ($V)(($I)(r > a) & ($I)(1.0$F - ($V){0})), a);
}

//@ ceil_$V for f32 f64 : round_$V copysign_$V
INLINE $V ceil_$V($V a) {
    $V r = round_$V(a);
    return copysign_$V(r + ($V)(($I)(r < a) & ($I)(1.0$F - ($V){0})), a);
}

//@ trunc_$V for f32 f64 : floor_$V abs_$V copysign_$V
INLINE $V trunc_$V($V a) { return copysign_$V(floor_$V(abs_$V(a)), a); }

//@ wrap_int8
INLINE i32 wrap_int8(i32 a) { return (a << 24) >> 24; }

//@ wrap_int16
INLINE i32 wrap_int16(i32 a) { return (a << 16) >> 16; }

//@ wrap_uint8
INLINE i32 wrap_uint8(i32 a) { return a & 255; }

//@ sqrt_$V for f32 f64
INLINE $V sqrt_$V($V a) {
    SQRT_$V
    for (int k = 0; k < LANES; k++) a[k] = __builtin_sqrt$F(a[k]);
    return a;
}
