/* Kernels that show what the machine can do at most; measured through the same runner as candidates.
 *
 * Buffers of the bandwidth kernels: source, target. A unit is one block of BLOCK bytes. */
typedef long long int64_t;
typedef float vector __attribute__((vector_size(VECTOR_BYTES)));

#define PUBLIC __attribute__((visibility("default")))
#define LANES (VECTOR_BYTES / 4)
#define BLOCK 4096
#define VECTORS (BLOCK / VECTOR_BYTES)

static const vector *from(void *const *buffers, int64_t block) {
    return (const vector *)((const char *)buffers[0] + block * BLOCK);
}

static vector *to(void *const *buffers, int64_t block) { return (vector *)((char *)buffers[1] + block * BLOCK); }

PUBLIC void ceiling_launch(void *const *buffers, const int64_t *sizes, int64_t begin, int64_t end, void *scratch) {
    (void)buffers, (void)sizes, (void)begin, (void)end, (void)scratch;
}

PUBLIC void ceiling_read(void *const *buffers, const int64_t *sizes, int64_t begin, int64_t end, void *scratch) {
    (void)sizes, (void)scratch;
    vector sums[8] = {0};
    for (int64_t block = begin; block < end; block++) {
        const vector *source = from(buffers, block);
        for (int64_t index = 0; index < VECTORS; index += 8)
            for (int part = 0; part < 8; part++)
                sums[part] += source[index + part];
    }
    for (int part = 1; part < 8; part++)
        sums[0] += sums[part];
    /* One vector of each part is kept, so that the sums are needed. */
    *to(buffers, begin) = sums[0];
}

PUBLIC void ceiling_copy(void *const *buffers, const int64_t *sizes, int64_t begin, int64_t end, void *scratch) {
    (void)sizes, (void)scratch;
    for (int64_t block = begin; block < end; block++) {
        const vector *source = from(buffers, block);
        vector *target = to(buffers, block);
        for (int64_t index = 0; index < VECTORS; index++)
            target[index] = source[index];
    }
}

static void stream(vector *target, vector value) {
#if defined(__clang__)
    __builtin_nontemporal_store(value, target);
#elif defined(__AVX512F__) && VECTOR_BYTES == 64
    __builtin_ia32_movntps512((float *)target, value);
#elif defined(__AVX__) && VECTOR_BYTES == 32
    __builtin_ia32_movntps256((float *)target, value);
#elif defined(__SSE__) && VECTOR_BYTES == 16
    __builtin_ia32_movntps((float *)target, value);
#else
    *target = value;
#endif
}

PUBLIC void ceiling_stream(void *const *buffers, const int64_t *sizes, int64_t begin, int64_t end, void *scratch) {
    (void)sizes, (void)scratch;
    for (int64_t block = begin; block < end; block++) {
        const vector *source = from(buffers, block);
        vector *target = to(buffers, block);
        for (int64_t index = 0; index < VECTORS; index++)
            stream(target + index, source[index]);
    }
}

/* sizes[0] rounds of 12 independent chains of multiply-add for each unit: enough to cover a latency of 6 cycles on two
 * pipes. Buffer 0 holds two vectors, buffer 1 takes one for each unit. */
PUBLIC void ceiling_flops(void *const *buffers, const int64_t *sizes, int64_t begin, int64_t end, void *scratch) {
    (void)scratch;
    const vector factor = ((const vector *)buffers[0])[0], addend = ((const vector *)buffers[0])[1];
    for (int64_t unit = begin; unit < end; unit++) {
        vector a = factor, b = a + 1, c = a + 2, d = a + 3, e = a + 4, f = a + 5;
        vector g = a + 6, h = a + 7, i = a + 8, j = a + 9, k = a + 10, l = a + 11;
        for (int64_t round = 0; round < sizes[0]; round++) {
            a = a * factor + addend, b = b * factor + addend, c = c * factor + addend, d = d * factor + addend;
            e = e * factor + addend, f = f * factor + addend, g = g * factor + addend, h = h * factor + addend;
            i = i * factor + addend, j = j * factor + addend, k = k * factor + addend, l = l * factor + addend;
        }
        ((vector *)buffers[1])[unit] = a + b + c + d + e + f + g + h + i + j + k + l;
    }
}
