/* Locks that the runner puts on itself before it loads a candidate, and what it can say about a fault. */
#ifndef MODELBLASTER_GUARD_H
#define MODELBLASTER_GUARD_H

#include <stddef.h>
#include <stdint.h>

/* Address ranges that a fault is told apart by. */
typedef struct {
    const char *name;
    uintptr_t begin, end;
} guard_range;

/* Limits, no new privileges, no core, death with the parent. -1 on failure. */
int guard_limits(uint64_t address_bytes, uint64_t cpu_seconds);

/* Files: only these may be read, nothing written, no network. Must come before threads are made.
 * Returns the kernel's landlock version, 0 where there is none. */
int guard_files(char *const *readable, int count);

/* System calls, on all threads. The first lock refuses what starts or reaches other processes, the second all but
 * what the message loop needs. Returns 1, or 0 where the kernel has no filters. */
int guard_calls_before_load(void);
int guard_calls_after_load(void);

/* A fault is written to standard output as a framed message and ends the process. `guard_stack` gives the calling
 * thread a stack for it. */
void guard_faults(const guard_range *ranges, int count);
void guard_stack(int index);

/* read and write by the one system-call instruction that the filter lets through. */
long guard_read(int descriptor, void *memory, size_t count);
long guard_write(int descriptor, const void *memory, size_t count);

#endif
