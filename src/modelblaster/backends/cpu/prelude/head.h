/* Vectors of $LANES lanes in compiler vector types; a mask's lane is 0 or all ones. */
#define LANES $LANES
#define INLINE static inline __attribute__((always_inline, unused))
typedef __INT64_TYPE__ int64_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT8_TYPE__ int8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef float f32 __attribute__((vector_size(4 * LANES)));
typedef double f64 __attribute__((vector_size(8 * LANES)));
typedef int32_t i32 __attribute__((vector_size(4 * LANES)));
typedef int64_t i64 __attribute__((vector_size(8 * LANES)));
typedef $MASK mask;
#define CONVERT(v, type) __builtin_convertvector(v, type)
#define F32(x) ((x) - (f32){0})
#define F64(x) ((x) - (f64){0})
#define I32(x) ((int32_t)(x) - (i32){0})
#define I64(x) ((int64_t)(x) - (i64){0})
#define MASK(x) ((x) - (mask){0})
#define IOTA ((i32){$IOTA})
#define SWAPPED(v, s) __builtin_shufflevector(v, v, $SWAPPED)
#define BUTTERFLY(step) $BUTTERFLY
#define UNROLLED _Pragma("GCC unroll 16")
/* Stops the compiler from turning a loop over a few elements into a call. */
#define NOT_A_COPY __asm__ volatile("" ::: "memory")
#define LOADED_TAIL_float32
#define LOADED_TAIL_float64
#define LOADED_TAIL_int32
#define LOADED_TAIL_int64
#define STORED_TAIL_float32
#define STORED_TAIL_float64
#define STORED_TAIL_int32
#define STORED_TAIL_int64
#define MAX_NUMBER_f32
#define MIN_NUMBER_f32
#define MAX_NUMBER_f64
#define MIN_NUMBER_f64
#define SQRT_f32
#define SQRT_f64
#define WIDEN_int16(v) CONVERT(v, i32)
#define WIDEN_uint16(v) CONVERT(v, i32)
#define WIDEN_int8(v) CONVERT(v, i32)
#define WIDEN_uint8(v) CONVERT(v, i32)
#define NARROW(v, type, element) CONVERT(v, type)
#define FENCE __sync_synchronize()
#ifdef __clang__
#define STREAM(p, v) __builtin_nontemporal_store(v, (__typeof__(v) *)(p))
#else
#define STREAM(p, v) (*(__typeof__(v) *)(p) = (v))
#endif
#if defined(__SSE2__)
#undef FENCE
#define FENCE __builtin_ia32_sfence()
#endif
#if defined(__AVX2__) && LANES == 8
#undef LOADED_TAIL_float32
#undef LOADED_TAIL_int32
#undef STORED_TAIL_float32
#undef STORED_TAIL_int32
#undef MAX_NUMBER_f32
#undef MIN_NUMBER_f32
#undef SQRT_f32
#define LOADED_TAIL_float32 return __builtin_ia32_maskloadps256((const f32 *)p, IOTA < (int32_t)n);
#define LOADED_TAIL_int32 return __builtin_ia32_maskloadd256((const i32 *)p, IOTA < (int32_t)n);
#define STORED_TAIL_float32 __builtin_ia32_maskstoreps256((f32 *)p, IOTA < (int32_t)n, v); return;
#define STORED_TAIL_int32 __builtin_ia32_maskstored256((i32 *)p, IOTA < (int32_t)n, v); return;
#define MAX_NUMBER_f32 return __builtin_ia32_maxps256(a, b);
#define MIN_NUMBER_f32 return __builtin_ia32_minps256(a, b);
#define SQRT_f32 return SQRT_PS256(a);
#ifdef __clang__
#define SQRT_PS256(a) __builtin_elementwise_sqrt(a)
#else
#define SQRT_PS256(a) __builtin_ia32_sqrtps256(a)
#undef STREAM
#define STREAM(p, v) __builtin_ia32_movntps256((float *)(p), (f32)(v))
/* gcc widens and narrows lane by lane unless told the instruction. */
typedef char bytes16 __attribute__((vector_size(16)));
typedef short shorts8 __attribute__((vector_size(16)));
typedef int64_t longs2 __attribute__((vector_size(16)));
typedef int64_t longs4 __attribute__((vector_size(32)));
#undef WIDEN_int16
#undef WIDEN_uint16
#undef WIDEN_int8
#undef WIDEN_uint8
#undef NARROW
#define WIDEN_int16(v) ((i32)__builtin_ia32_pmovsxwd256((shorts8)(v)))
#define WIDEN_uint16(v) ((i32)__builtin_ia32_pmovzxwd256((shorts8)(v)))
#define WIDEN_int8(v) ((i32)__builtin_ia32_pmovsxbd256((bytes16)(longs2){(int64_t)(v), 0}))
#define WIDEN_uint8(v) ((i32)__builtin_ia32_pmovzxbd256((bytes16)(longs2){(int64_t)(v), 0}))
INLINE shorts8 narrow_to_shorts(i32 v) {
    longs4 pairs = (longs4)__builtin_ia32_packusdw256(v, v);
    return (shorts8)__builtin_shufflevector(pairs, pairs, 0, 2);
}
#define NARROW(v, type, element) NARROW_##element(v, type)
#define NARROW_uint16_t(v, type) ((type)narrow_to_shorts((v) & 0xffff))
#define NARROW_int16_t(v, type) ((type)narrow_to_shorts((v) & 0xffff))
#define NARROW_BYTES(v) ((longs2)__builtin_ia32_packuswb128(narrow_to_shorts((v) & 0xff), (shorts8){0}))[0]
#define NARROW_uint8_t(v, type) ((type)NARROW_BYTES(v))
#define NARROW_int8_t(v, type) ((type)NARROW_BYTES(v))
#endif
#endif
#if defined(__AVX2__) && LANES == 4
typedef long long quads __attribute__((vector_size(32)));
#define QUAD_TAIL ((quads)CONVERT(IOTA < (int32_t)n, i64))
#undef LOADED_TAIL_float64
#undef LOADED_TAIL_int64
#undef STORED_TAIL_float64
#undef STORED_TAIL_int64
#undef MAX_NUMBER_f64
#undef MIN_NUMBER_f64
#undef SQRT_f64
#define LOADED_TAIL_float64 return __builtin_ia32_maskloadpd256((const f64 *)p, QUAD_TAIL);
#define LOADED_TAIL_int64 return (i64)__builtin_ia32_maskloadq256((const quads *)p, QUAD_TAIL);
#define STORED_TAIL_float64 __builtin_ia32_maskstorepd256((f64 *)p, QUAD_TAIL, v); return;
#define STORED_TAIL_int64 __builtin_ia32_maskstoreq256((quads *)p, QUAD_TAIL, (quads)v); return;
#define MAX_NUMBER_f64 return __builtin_ia32_maxpd256(a, b);
#define MIN_NUMBER_f64 return __builtin_ia32_minpd256(a, b);
#ifdef __clang__
#define SQRT_f64 return __builtin_elementwise_sqrt(a);
#else
#define SQRT_f64 return __builtin_ia32_sqrtpd256(a);
#endif
#endif
