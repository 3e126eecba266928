/* Threads that execute flattened plans.
 *
 * Used in two places: linked into the runner that judges candidates, and as a shared library in a user's process.
 * A program is text (written by `program_text.py`); where its regions lie is given anew at every execution.
 */
#ifndef MODELBLASTER_POOL_H
#define MODELBLASTER_POOL_H

#include <stddef.h>
#include <stdint.h>

#define MB_PUBLIC __attribute__((visibility("default")))

typedef void (*mb_entry)(void *const *buffers, const int64_t *sizes, int64_t begin, int64_t end, void *scratch);

/* One part [begin, end) of a job. */
typedef void (*mb_part)(const void *context, int64_t begin, int64_t end, void *scratch);

/* The signature of GOMP_parallel: runs `body(data)` on `threads` threads of an OpenMP runtime and waits. */
typedef void (*mb_parallel)(void (*body)(void *), void *data, unsigned threads, unsigned flags);

typedef struct mb_pool mb_pool;
typedef struct mb_program mb_program;

/* `cpus` has one entry for each thread, or is NULL: nothing is pinned. Entry 0 pins the calling thread. With
 * `parallel` the pool has no threads of its own and borrows those of that runtime. `started` (may be NULL) runs
 * first on every thread of the pool, the calling one included. NULL when a thread cannot be made. */
MB_PUBLIC mb_pool *mb_pool_create(int threads, const int *cpus, mb_parallel parallel, void (*started)(int index));
MB_PUBLIC void mb_pool_destroy(mb_pool *pool);

/* Runs a job in parts of `grain` units, handed out one by one, and waits for its end. Thread i gets
 * `scratch + i * scratch_stride`. One caller at a time. */
void mb_pool_run(mb_pool *pool, mb_part part, const void *context, int64_t range, int64_t grain, char *scratch,
                 int64_t scratch_stride);

/* Parses a program and opens its objects. NULL on failure, with the reason in `error`. */
MB_PUBLIC mb_program *mb_program_load(const char *text, char *error, size_t capacity);
MB_PUBLIC void mb_program_free(mb_program *program);

/* Runs all steps in order, with a barrier after each. `bases` holds the address of every region. Callers in several
 * threads take turns. */
MB_PUBLIC void mb_execute(mb_pool *pool, const mb_program *program, char *const *bases, char *scratch,
                          int64_t scratch_stride);

void mb_program_run(mb_pool *pool, const mb_program *program, char *const *bases, char *scratch, int64_t scratch_stride);

int64_t mb_now_ns(void);

#endif
