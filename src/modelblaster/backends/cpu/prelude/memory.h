//@ first : i32
/* The lanes below n. */
INLINE mask first(int64_t n) { return CONVERT(IOTA < (int32_t)n, mask); }

//@ load_$D for float32 float64 int32 int64
INLINE $V load_$D(const $E *p, int64_t n) {
    typedef $V stored __attribute__((aligned(sizeof($E)), may_alias));
    if (n == LANES) return *(const stored *)p;
    $V v = {0};
    LOADED_TAIL_$D
    for (int k = 0; k < n; k++) { v[k] = p[k]; NOT_A_COPY; }
    return v;
}

//@ store_$D for float32 float64 int32 int64
INLINE void store_$D($E *p, $V v, int64_t n) {
    typedef $V stored __attribute__((aligned(sizeof($E)), may_alias));
    if (n == LANES) { *(stored *)p = v; return; }
    if (n == 1) { *p = v[0]; return; }
    STORED_TAIL_$D
    for (int k = 0; k < n; k++) { p[k] = v[k]; NOT_A_COPY; }
}

//@ stream_$D for float32 float64 int32 int64 : store_$D
/* Past the caches where the address is aligned to a vector. */
INLINE void stream_$D($E *p, $V v, int64_t n) {
    if (n == LANES && ((uintptr_t)p & (sizeof(v) - 1)) == 0) STREAM(p, v);
    else store_$D(p, v, n);
}

//@ load_$D for int16 int8 uint8
INLINE i32 load_$D(const $E *p, int64_t n) {
    typedef $E narrow __attribute__((vector_size(sizeof($E) * LANES), aligned(sizeof($E)), may_alias));
    if (n == LANES) return WIDEN_$D(*(const narrow *)p);
    i32 v = {0};
    for (int k = 0; k < n; k++) { v[k] = p[k]; NOT_A_COPY; }
    return v;
}

//@ store_$D for int16 int8 uint8
INLINE void store_$D($E *p, i32 v, int64_t n) {
    typedef $E narrow __attribute__((vector_size(sizeof($E) * LANES), aligned(sizeof($E)), may_alias));
    if (n == LANES) { *(narrow *)p = NARROW(v, narrow, $E); return; }
    for (int k = 0; k < n; k++) { p[k] = ($E)v[k]; NOT_A_COPY; }
}

//@ load_bool : load_uint8
INLINE mask load_bool(const uint8_t *p, int64_t n) { return CONVERT(load_uint8(p, n) != 0, mask); }

//@ store_bool : store_uint8
INLINE void store_bool(uint8_t *p, mask v, int64_t n) { store_uint8(p, CONVERT(v & 1, i32), n); }

//@ load_uint16
INLINE i32 load_uint16(const uint16_t *p, int64_t n) {
    typedef uint16_t narrow __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
    if (n == LANES) return WIDEN_uint16(*(const narrow *)p);
    i32 v = {0};
    for (int k = 0; k < n; k++) { v[k] = p[k]; NOT_A_COPY; }
    return v;
}

//@ store_uint16
INLINE void store_uint16(uint16_t *p, i32 v, int64_t n) {
    typedef uint16_t narrow __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
    if (n == LANES) { *(narrow *)p = NARROW(v, narrow, uint16_t); return; }
    for (int k = 0; k < n; k++) { p[k] = (uint16_t)v[k]; NOT_A_COPY; }
}

//@ f32_of_bfloat16
INLINE f32 f32_of_bfloat16(i32 h) { return (f32)(h << 16); }

//@ bfloat16_of_f32 : select_i32
/* Round to nearest even; NaN stays a quiet NaN. */
INLINE i32 bfloat16_of_f32(f32 v) {
    i32 b = (i32)v;
    i32 rounded = ((b + 0x7fff + ((b >> 16) & 1)) >> 16) & 0xffff;
    return select_i32(CONVERT(v != v, mask), I32(0x7fc0), rounded);
}

//@ f32_of_float16 : select_f32
/* Shift exponent and mantissa into place, then scale by 2^112; infinities and NaN get the top exponent. */
INLINE f32 f32_of_float16(i32 h) {
    i32 sign = (h & 0x8000) << 16;
    i32 rest = (h & 0x7fff) << 13;
    f32 scaled = (f32)rest * 0x1p112f;
    f32 special = (f32)(rest | 0x7f800000);
    return (f32)(sign | (i32)select_f32(CONVERT((h & 0x7c00) == 0x7c00, mask), special, scaled));
}

//@ float16_of_f32 : select_i32
/* Normal results: round to nearest even on the bits. Small ones: adding 0.5 lines the mantissa up and rounds. */
INLINE i32 float16_of_f32(f32 v) {
    i32 b = (i32)v, sign = (b >> 16) & 0x8000;
    i32 a = b & 0x7fffffff;
    i32 normal = (a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13;
    i32 small = (i32)((f32)a + 0.5f) - 0x3f000000;
    i32 result = select_i32(CONVERT(a < 0x38800000, mask), small, normal);
    result = select_i32(CONVERT(a >= 0x47800000, mask), I32(0x7c00), result);
    result = select_i32(CONVERT(a > 0x7f800000, mask), I32(0x7e00), result);
    return (sign | result) & 0xffff;
}

//@ load_$D for float16 bfloat16 : load_uint16 f32_of_$D
INLINE f32 load_$D(const uint16_t *p, int64_t n) { return f32_of_$D(load_uint16(p, n)); }

//@ store_$D for float16 bfloat16 : store_uint16 ${D}_of_f32
INLINE void store_$D(uint16_t *p, f32 v, int64_t n) { store_uint16(p, ${D}_of_f32(v), n); }

//@ round_$D for float16 bfloat16 : f32_of_$D ${D}_of_f32
INLINE f32 round_$D(f32 v) { return f32_of_$D(${D}_of_f32(v)); }

//@ splat_$D for float32 float64 int32 int64
INLINE $V splat_$D(const $E *p) { return *p - ($V){0}; }

//@ splat_$D for int16 int8 uint8
INLINE i32 splat_$D(const $E *p) { return (int32_t)*p - (i32){0}; }

//@ splat_bool
INLINE mask splat_bool(const uint8_t *p) { return (*p ? -1 : 0) - (mask){0}; }

//@ splat_$D for float16 bfloat16 : f32_of_$D
INLINE f32 splat_$D(const uint16_t *p) { return f32_of_$D((int32_t)*p - (i32){0}); }

//@ gather_$D for float32 float64 int32 int64
INLINE $V gather_$D(const $E *p, int64_t stride, int64_t n) {
    $V v = {0};
    if (n == LANES) { UNROLLED for (int k = 0; k < LANES; k++) v[k] = p[k * stride]; return v; }
    for (int k = 0; k < n; k++) v[k] = p[k * stride];
    return v;
}

//@ gather_$D for int16 int8 uint8
INLINE i32 gather_$D(const $E *p, int64_t stride, int64_t n) {
    i32 v = {0};
    for (int k = 0; k < n; k++) v[k] = p[k * stride];
    return v;
}

//@ gather_bool : gather_uint8
INLINE mask gather_bool(const uint8_t *p, int64_t stride, int64_t n) {
    return CONVERT(gather_uint8(p, stride, n) != 0, mask);
}

//@ gather_$D for float16 bfloat16 : f32_of_$D
INLINE f32 gather_$D(const uint16_t *p, int64_t stride, int64_t n) {
    i32 v = {0};
    for (int k = 0; k < n; k++) v[k] = p[k * stride];
    return f32_of_$D(v);
}

//@ scatter_$D for float32 float64 int32 int64 int16 int8 uint8
INLINE void scatter_$D($E *p, int64_t stride, $V v, int64_t n) {
    for (int k = 0; k < n; k++) p[k * stride] = ($E)v[k];
}

//@ scatter_bool : scatter_uint8
INLINE void scatter_bool(uint8_t *p, int64_t stride, mask v, int64_t n) {
    scatter_uint8(p, stride, CONVERT(v & 1, i32), n);
}

//@ scatter_$D for float16 bfloat16 : ${D}_of_f32
INLINE void scatter_$D(uint16_t *p, int64_t stride, f32 v, int64_t n) {
    i32 h = ${D}_of_f32(v);
    for (int k = 0; k < n; k++) p[k * stride] = (uint16_t)h[k];
}
