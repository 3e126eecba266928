#define _GNU_SOURCE
#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("yield")
#else
#define RELAX() ((void)0)
#endif

enum { SPIN_NS = 50000, SPINS_A_CLOCK = 32, STACK_BYTES = 1 << 20, LINE = 64 };

typedef struct {
    mb_part part;
    const void *context;
    int64_t range, grain;
    char *scratch;
    int64_t scratch_stride;
} job_t;

typedef struct {
    mb_pool *pool;
    int index;
    pthread_t handle;
} worker_t;

/* A job is open while `generation` is odd. A worker announces itself in `inside` before it looks whether the job is
 * still open, and the caller closes the job before it looks whether anybody is inside: so the caller waits for those
 * that entered and never for one that is still asleep. */
struct mb_pool {
    _Alignas(LINE) atomic_uint generation;
    _Alignas(LINE) atomic_uint inside;
    _Alignas(LINE) atomic_llong next;
    _Alignas(LINE) atomic_int sleepers;
    atomic_int caller_sleeps;
    atomic_int stop;
    atomic_int ready;
    atomic_int ticket;
    int threads, started;
    mb_parallel parallel;
    void (*on_start)(int);
    worker_t *workers;
    pthread_mutex_t turn;
    job_t job;
};

int64_t mb_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void futex_wait(atomic_uint *word, unsigned expected) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int count) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void take_parts(mb_pool *pool, int index) {
    const job_t job = pool->job;
    char *scratch = job.scratch ? job.scratch + index * job.scratch_stride : NULL;
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&pool->next, job.grain, memory_order_relaxed);
        if (begin >= job.range)
            return;
        int64_t left = job.range - begin;
        job.part(job.context, begin, begin + (left < job.grain ? left : job.grain), scratch);
    }
}

static int is_new_job(unsigned generation, unsigned last) { return (generation & 1) && generation != last; }

/* Spins for SPIN_NS, then sleeps, until a job opens that this worker has not done. 0: the pool ends. */
static unsigned await_job(mb_pool *pool, unsigned last) {
    int64_t until = mb_now_ns() + SPIN_NS;
    for (int spin = 1;; spin++) {
        unsigned generation = atomic_load(&pool->generation);
        if (atomic_load(&pool->stop))
            return 0;
        if (is_new_job(generation, last))
            return generation;
        RELAX();
        if (spin % SPINS_A_CLOCK == 0 && mb_now_ns() > until) {
            atomic_fetch_add(&pool->sleepers, 1);
            futex_wait(&pool->generation, generation);
            atomic_fetch_sub(&pool->sleepers, 1);
            until = mb_now_ns() + SPIN_NS;
        }
    }
}

static void *work(void *argument) {
    worker_t *self = argument;
    mb_pool *pool = self->pool;
    if (pool->on_start)
        pool->on_start(self->index);
    atomic_fetch_add(&pool->ready, 1);
    unsigned last = 0;
    while ((last = await_job(pool, last)) != 0) {
        atomic_fetch_add(&pool->inside, 1);
        if (atomic_load(&pool->generation) == last)
            take_parts(pool, self->index);
        if (atomic_fetch_sub(&pool->inside, 1) == 1 && atomic_load(&pool->caller_sleeps))
            futex_wake(&pool->inside, 1);
    }
    return NULL;
}

static void await_workers(mb_pool *pool) {
    int64_t until = mb_now_ns() + SPIN_NS;
    for (int spin = 1; atomic_load(&pool->inside) != 0; spin++) {
        RELAX();
        if (spin % SPINS_A_CLOCK == 0 && mb_now_ns() > until)
            break;
    }
    atomic_store(&pool->caller_sleeps, 1);
    for (unsigned inside; (inside = atomic_load(&pool->inside)) != 0;)
        futex_wait(&pool->inside, inside);
    atomic_store(&pool->caller_sleeps, 0);
}

static void borrowed(void *argument) {
    mb_pool *pool = argument;
    int index = atomic_fetch_add(&pool->ticket, 1);
    if (index < pool->threads)
        take_parts(pool, index);
}

void mb_pool_run(mb_pool *pool, mb_part part, const void *context, int64_t range, int64_t grain, char *scratch,
                 int64_t scratch_stride) {
    if (range <= 0)
        return;
    pool->job = (job_t){part, context, range, grain, scratch, scratch_stride};
    atomic_store(&pool->next, 0);
    int64_t parts = (range - 1) / grain + 1;
    if (pool->threads == 1 || parts == 1) {
        take_parts(pool, 0);
        return;
    }
    if (pool->parallel) {
        atomic_store(&pool->ticket, 0);
        pool->parallel(borrowed, pool, (unsigned)(parts < pool->threads ? parts : pool->threads), 0);
        return;
    }
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->sleepers))
        futex_wake(&pool->generation, (int)(parts - 1 < pool->threads ? parts - 1 : pool->threads));
    take_parts(pool, 0);
    atomic_fetch_add(&pool->generation, 1);
    await_workers(pool);
}

void mb_execute(mb_pool *pool, const mb_program *program, char *const *bases, char *scratch, int64_t scratch_stride) {
    pthread_mutex_lock(&pool->turn);
    mb_program_run(pool, program, bases, scratch, scratch_stride);
    pthread_mutex_unlock(&pool->turn);
}

static void pin(pthread_t thread, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    /* Refused where the machine's owner has narrowed the set: then the scheduler decides. */
    pthread_setaffinity_np(thread, sizeof set, &set);
}

static int start_workers(mb_pool *pool, const int *cpus) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int failed = 0;
    for (int index = 1; index < pool->threads && !failed; index++) {
        worker_t *worker = &pool->workers[index];
        *worker = (worker_t){.pool = pool, .index = index};
        failed = pthread_create(&worker->handle, &attributes, work, worker);
        if (failed)
            break;
        pool->started = index + 1;
        if (cpus)
            pin(worker->handle, cpus[index]);
    }
    pthread_attr_destroy(&attributes);
    /* A thread makes system calls of its own at its start; they must be over before the runner forbids them. */
    while (atomic_load(&pool->ready) < pool->started - 1)
        sched_yield();
    return failed;
}

mb_pool *mb_pool_create(int threads, const int *cpus, mb_parallel parallel, void (*started)(int index)) {
    mb_pool *pool = aligned_alloc(LINE, sizeof *pool);
    if (!pool)
        return NULL;
    *pool = (mb_pool){.threads = threads, .started = 1, .parallel = parallel, .on_start = started};
    pthread_mutex_init(&pool->turn, NULL);
    pool->workers = calloc((size_t)threads, sizeof *pool->workers);
    if (!pool->workers || (!parallel && start_workers(pool, cpus))) {
        mb_pool_destroy(pool);
        return NULL;
    }
    if (cpus)
        pin(pthread_self(), cpus[0]);
    if (started)
        started(0);
    return pool;
}

void mb_pool_destroy(mb_pool *pool) {
    atomic_store(&pool->stop, 1);
    atomic_fetch_add(&pool->generation, 2);
    futex_wake(&pool->generation, pool->threads);
    for (int index = 1; index < pool->started; index++)
        pthread_join(pool->workers[index].handle, NULL);
    pthread_mutex_destroy(&pool->turn);
    free(pool->workers);
    free(pool);
}
