/* What compilers call for assignments and initial values even in freestanding code (GCC manual, "Standards"). Linked
 * into every object and invisible from outside. */
typedef __SIZE_TYPE__ size_t;

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN void *memcpy(void *restrict target, const void *restrict source, size_t count) {
    char *to = target;
    for (const char *from = source; count--;)
        *to++ = *from++;
    return target;
}

HIDDEN void *memmove(void *target, const void *source, size_t count) {
    char *to = target;
    const char *from = source;
    if (to < from)
        return memcpy(target, source, count);
    while (count--)
        to[count] = from[count];
    return target;
}

HIDDEN void *memset(void *target, int value, size_t count) {
    for (char *to = target; count--;)
        *to++ = (char)value;
    return target;
}

HIDDEN int memcmp(const void *left, const void *right, size_t count) {
    const unsigned char *one = left, *other = right;
    for (; count--; one++, other++)
        if (*one != *other)
            return *one - *other;
    return 0;
}
