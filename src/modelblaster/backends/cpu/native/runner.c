/* The process in which candidates run: no Python, no torch, nothing to learn an answer from.
 *
 *   runner READONLY_DESCRIPTOR WRITABLE_DESCRIPTOR
 *
 * Messages on standard input and output are a length (uint32) and text. The first one describes memory, threads and
 * programs (`session_text.py` writes it); then `setup`, `run SET` and `time SAMPLES CALLS FLUSH SEED` are answered by
 * `ok NUMBERS`. Memory comes as two inherited memfds. The start of the writable one holds what only the setup may
 * write: it is mapped twice, and the steps get the addresses of the read-only mapping. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guard.h"
#include "pool.h"
#include "text.h"

enum { GUARD_BYTES = 64 << 20, MARGIN_BYTES = 512 << 20, THREAD_BYTES = 4 << 20, REPLY_BYTES = 1 << 20 };
enum { POISONED_LINES = 8, LINE = 64, FLUSH_GRAIN = 1 << 18, MOST_SAMPLES = 32768 };
enum { READ_ONLY = 0, WRITABLE = 1, DERIVED = 2, SEGMENTS = 3 };

typedef struct {
    int64_t segment, offset, set_stride, poisoned_bytes;
} region_t;

static struct {
    int64_t threads, sets, flush_bytes, region_count, readable_count, cursor;
    int64_t bytes[SEGMENTS];
    int64_t scratch_offset, scratch_stride;
    int *cpus;
    char **readable;
    char *setup_text, *steps_text;
    region_t *regions;
    char *segments[SEGMENTS];
    char *scratch, *flush;
    char **setup_bases, **bases;
    mb_pool *pool;
    mb_program *setup, *steps;
} runner;

static char reply[REPLY_BYTES];

static void send_text(const char *text, size_t length) {
    static char frame[REPLY_BYTES + 4];
    uint32_t header = (uint32_t)length;
    memcpy(frame, &header, sizeof header);
    memcpy(frame + sizeof header, text, length);
    for (size_t sent = 0, total = length + sizeof header; sent < total;) {
        long count = guard_write(1, frame + sent, total - sent);
        if (count <= 0)
            syscall(SYS_exit_group, 1);
        sent += (size_t)count;
    }
}

static void give_up(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(reply, sizeof reply, format, arguments);
    va_end(arguments);
    send_text(reply, (size_t)length);
    syscall(SYS_exit_group, 1);
}

static int read_fully(void *memory, size_t wanted) {
    for (size_t got = 0; got < wanted;) {
        long count = guard_read(0, (char *)memory + got, wanted - got);
        if (count <= 0)
            return 0;
        got += (size_t)count;
    }
    return 1;
}

static void read_description(mb_reader *reader) {
    mb_expect(reader, "threads");
    runner.threads = mb_read_number(reader);
    runner.cpus = mb_allocate(reader, runner.threads, sizeof(int));
    for (int64_t index = 0; index < runner.threads && !reader->failed; index++)
        runner.cpus[index] = (int)mb_read_number(reader);
    mb_expect(reader, "memory");
    for (int segment = 0; segment < SEGMENTS; segment++)
        runner.bytes[segment] = mb_read_number(reader);
    runner.flush_bytes = mb_read_number(reader);
    runner.scratch_offset = mb_read_number(reader);
    runner.scratch_stride = mb_read_number(reader);
    mb_expect(reader, "sets");
    runner.sets = mb_read_number(reader);
    mb_expect(reader, "regions");
    runner.region_count = mb_read_number(reader);
    runner.regions = mb_allocate(reader, runner.region_count, sizeof(region_t));
    for (int64_t index = 0; index < runner.region_count && !reader->failed; index++) {
        region_t *region = &runner.regions[index];
        region->segment = mb_read_number(reader);
        region->offset = mb_read_number(reader);
        region->set_stride = mb_read_number(reader);
        region->poisoned_bytes = mb_read_number(reader);
    }
    mb_expect(reader, "objects");
    runner.readable_count = mb_read_number(reader);
    runner.readable = mb_allocate(reader, runner.readable_count, sizeof(char *));
    for (int64_t index = 0; index < runner.readable_count && !reader->failed; index++)
        runner.readable[index] = mb_read_bytes(reader);
    runner.setup_text = mb_read_bytes(reader);
    runner.steps_text = mb_read_bytes(reader);
}

static void *map(void *place, int64_t bytes, int protection, int flags, int descriptor) {
    void *memory = mmap(place, (size_t)bytes, protection, flags, descriptor, 0);
    if (memory == MAP_FAILED)
        give_up("error memory: cannot map %lld bytes: %s", (long long)bytes, strerror(errno));
    return memory;
}

/* guard | read-only arena | guard | writable arena | guard | derived, read-only | guard */
static void map_memory(int read_only, int writable) {
    const int descriptors[SEGMENTS] = {read_only, writable, writable};
    const int protections[SEGMENTS] = {PROT_READ, PROT_READ | PROT_WRITE, PROT_READ};
    int64_t total = (SEGMENTS + 1) * (int64_t)GUARD_BYTES;
    for (int segment = 0; segment < SEGMENTS; segment++)
        total += runner.bytes[segment];
    char *start = map(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1), *place = start;
    guard_range ranges[SEGMENTS + 1];
    const char *names[SEGMENTS] = {"input", "memory", "derived"};
    for (int segment = 0; segment < SEGMENTS; segment++) {
        place += GUARD_BYTES;
        runner.segments[segment] = place;
        if (runner.bytes[segment])
            map(place, runner.bytes[segment], protections[segment], MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                descriptors[segment]);
        ranges[segment] = (guard_range){names[segment], (uintptr_t)place, (uintptr_t)place + (size_t)runner.bytes[segment]};
        place += runner.bytes[segment];
    }
    ranges[SEGMENTS] = (guard_range){"guard", (uintptr_t)start, (uintptr_t)start + (size_t)total};
    guard_faults(ranges, SEGMENTS + 1);
    runner.scratch = runner.segments[WRITABLE] + runner.scratch_offset;
    runner.flush = map(NULL, runner.flush_bytes + 1, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    close(read_only);
    close(writable);
}

static char *address_of(const region_t *region, int64_t set, int is_setup) {
    int64_t segment = is_setup && region->segment == DERIVED ? WRITABLE : region->segment;
    return runner.segments[segment] + region->offset + set * region->set_stride;
}

static void find_bases(mb_reader *reader) {
    runner.setup_bases = mb_allocate(reader, runner.region_count, sizeof(char *));
    runner.bases = mb_allocate(reader, runner.region_count * runner.sets, sizeof(char *));
    for (int64_t index = 0; index < runner.region_count && !reader->failed; index++) {
        runner.setup_bases[index] = address_of(&runner.regions[index], 0, 1);
        for (int64_t set = 0; set < runner.sets; set++)
            runner.bases[set * runner.region_count + index] = address_of(&runner.regions[index], set, 0);
    }
}

static void start(int read_only, int writable) {
    static char error[1024];
    uint32_t length;
    if (!read_fully(&length, sizeof length))
        exit(0);
    char *text = calloc((size_t)length + 1, 1);
    if (!text || !read_fully(text, length))
        give_up("error memory: no room for the description");
    mb_reader reader = {text, error, sizeof error, 0};
    read_description(&reader);
    if (reader.failed)
        give_up("error %s", error);
    int64_t bytes = runner.flush_bytes + (SEGMENTS + 1) * (int64_t)GUARD_BYTES + MARGIN_BYTES + runner.threads * THREAD_BYTES;
    for (int segment = 0; segment < SEGMENTS; segment++)
        bytes += runner.bytes[segment];
    if (guard_limits((uint64_t)bytes, 86400 * (uint64_t)runner.threads))
        give_up("error limits: %s", strerror(errno));
    map_memory(read_only, writable);
    find_bases(&reader);
    int files = guard_files(runner.readable, (int)runner.readable_count);
    runner.pool = mb_pool_create((int)runner.threads, runner.cpus[0] < 0 ? NULL : runner.cpus, NULL, guard_stack);
    if (!runner.pool || reader.failed)
        give_up("error memory: no room for %lld threads", (long long)runner.threads);
    int calls = guard_calls_before_load();
    runner.setup = mb_program_load(runner.setup_text, error, sizeof error);
    runner.steps = runner.setup ? mb_program_load(runner.steps_text, error, sizeof error) : NULL;
    if (!runner.steps)
        give_up("error %s", error);
    free(text);
    calls = guard_calls_after_load() && calls;
    int size = snprintf(reply, sizeof reply, "ok %d %d", files, calls);
    send_text(reply, (size_t)size);
}

static int64_t execute(const mb_program *program, char *const *bases) {
    int64_t begin = mb_now_ns();
    mb_execute(runner.pool, program, bases, runner.scratch, runner.scratch_stride);
    return mb_now_ns() - begin;
}

static char *const *bases_of(int64_t set) { return runner.bases + set * runner.region_count; }

static void flush_part(const void *context, int64_t begin, int64_t end, void *scratch) {
    (void)scratch;
    memset((char *)context + begin, (int)(end & 0x7f), (size_t)(end - begin));
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* A few lines of every output become NaN at places that a kernel cannot know, so that one that finds its results
 * already there and returns has wrong ones. */
static void poison(int64_t set, uint64_t *random) {
    for (int64_t index = 0; index < runner.region_count; index++) {
        const region_t *region = &runner.regions[index];
        for (int line = 0; line < POISONED_LINES && region->poisoned_bytes >= LINE; line++) {
            uint64_t place = next_random(random) % (uint64_t)(region->poisoned_bytes / LINE);
            memset(bases_of(set)[index] + place * LINE, 0xff, LINE);
        }
    }
}

static int64_t sample(int64_t calls, int flush, uint64_t *random) {
    for (int64_t call = 0; call < calls && call < runner.sets; call++)
        poison((runner.cursor + call) % runner.sets, random);
    if (flush)
        mb_pool_run(runner.pool, flush_part, runner.flush, runner.flush_bytes, FLUSH_GRAIN, NULL, 0);
    int64_t begin = mb_now_ns();
    for (int64_t call = 0; call < calls; call++, runner.cursor++)
        mb_execute(runner.pool, runner.steps, bases_of(runner.cursor % runner.sets), runner.scratch, runner.scratch_stride);
    return mb_now_ns() - begin;
}

static void time_samples(mb_reader *reader) {
    int64_t samples = mb_read_number(reader), calls = mb_read_number(reader);
    int flush = (int)mb_read_number(reader);
    uint64_t random = (uint64_t)mb_read_number(reader) | 1;
    if (reader->failed || samples > MOST_SAMPLES)
        give_up("error a message that asks for too much");
    static int64_t times[MOST_SAMPLES];
    int64_t begin = mb_now_ns();
    for (int64_t index = 0; index < samples; index++)
        times[index] = sample(calls, flush, &random);
    size_t length = (size_t)snprintf(reply, sizeof reply, "ok %lld", (long long)(mb_now_ns() - begin));
    for (int64_t index = 0; index < samples; index++)
        length += (size_t)snprintf(reply + length, sizeof reply - length, " %lld", (long long)times[index]);
    send_text(reply, length);
}

static void answer(mb_reader *reader) {
    char word[MB_MOST_WORD];
    mb_read_word(reader, word);
    int64_t elapsed = 0;
    if (strcmp(word, "time") == 0) {
        time_samples(reader);
        return;
    }
    if (strcmp(word, "setup") == 0)
        elapsed = execute(runner.setup, runner.setup_bases);
    else if (strcmp(word, "run") == 0)
        elapsed = execute(runner.steps, bases_of(mb_read_number(reader)));
    else
        give_up("error an unknown message");
    int length = snprintf(reply, sizeof reply, "ok %lld", (long long)elapsed);
    send_text(reply, (size_t)length);
}

int main(int count, char **arguments) {
    static char text[4096], error[256];
    if (count != 3)
        return 2;
    start(atoi(arguments[1]), atoi(arguments[2]));
    for (uint32_t length; read_fully(&length, sizeof length);) {
        if (length >= sizeof text || !read_fully(text, length))
            break;
        text[length] = 0;
        mb_reader reader = {text, error, sizeof error, 0};
        answer(&reader);
    }
    syscall(SYS_exit_group, 0);
}
