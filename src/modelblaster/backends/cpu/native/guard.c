#define _GNU_SOURCE
#include "guard.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define STACK_POINTER(context) ((uintptr_t)(context)->uc_mcontext.gregs[REG_RSP])
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#define STACK_POINTER(context) ((uintptr_t)(context)->uc_mcontext.sp)
#else
#error "the runner knows x86-64 and aarch64"
#endif

/* Numbers are equal on all architectures; older headers lack them. */
enum { LANDLOCK_CREATE = 444, LANDLOCK_ADD = 445, LANDLOCK_RESTRICT = 446, CLONE3 = 435, IO_URING_SETUP = 425 };
enum { MOST_RANGES = 16, MOST_THREADS = 512, SIGNAL_STACK = 16384, SYSCALL_BYTES = 64, X32_CALLS = 0x40000000 };
enum { SPAN_OF_STACK_FAULTS = 64 << 20, RED_ZONE = 4096 };

static guard_range fault_ranges[MOST_RANGES];
static int fault_range_count;

long guard_read(int descriptor, void *memory, size_t count) { return syscall(SYS_read, descriptor, memory, count); }

long guard_write(int descriptor, const void *memory, size_t count) {
    return syscall(SYS_write, descriptor, memory, count);
}

static int limit(int resource, uint64_t value) {
    struct rlimit wanted = {value, value};
    return setrlimit(resource, &wanted);
}

int guard_limits(uint64_t address_bytes, uint64_t cpu_seconds) {
    return limit(RLIMIT_AS, address_bytes) | limit(RLIMIT_CPU, cpu_seconds) | limit(RLIMIT_FSIZE, 0) |
           limit(RLIMIT_CORE, 0) | prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) | prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) |
           prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
}

/* Access rights by landlock version: 1 knows the first 13 of files, 2 moves, 3 truncation, 4 the network, 5 devices,
 * 6 abstract sockets and signals (linux/landlock.h). */
static uint64_t file_rights(long version) {
    int bits = version >= 5 ? 16 : version >= 3 ? 15 : version >= 2 ? 14 : 13;
    return ((uint64_t)1 << bits) - 1;
}

int guard_files(char *const *readable, int count) {
    enum { VERSION_FLAG = 1, PATH_BENEATH = 1, EXECUTE = 1, READ_FILE = 4, READ_FOLDER = 8 };
    enum { ALL_NETWORK = 3, ALL_SCOPES = 3 };
    long version = syscall(LANDLOCK_CREATE, NULL, 0, VERSION_FLAG);
    if (version < 1)
        return 0;
    struct {
        uint64_t files, network, scopes;
    } attributes = {file_rights(version), version >= 4 ? ALL_NETWORK : 0, version >= 6 ? ALL_SCOPES : 0};
    size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
    int rules = (int)syscall(LANDLOCK_CREATE, &attributes, size, 0);
    if (rules < 0)
        return 0;
    for (int index = 0; index < count; index++) {
        struct {
            uint64_t rights;
            int32_t parent;
        } __attribute__((packed)) rule = {EXECUTE | READ_FILE | READ_FOLDER,
                                          open(readable[index], O_PATH | O_CLOEXEC | O_DIRECTORY)};
        if (rule.parent < 0) {
            rule.rights = EXECUTE | READ_FILE;
            rule.parent = open(readable[index], O_PATH | O_CLOEXEC);
        }
        if (rule.parent >= 0) {
            syscall(LANDLOCK_ADD, rules, PATH_BENEATH, &rule, 0);
            close(rule.parent);
        }
    }
    long failed = syscall(LANDLOCK_RESTRICT, rules, 0);
    close(rules);
    return failed ? 0 : (int)version;
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOAD_HIGH(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field) + 4)
#define ANSWER(action) BPF_STMT(BPF_RET | BPF_K, action)
#define IF_EQUAL(value, then, other) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), then, other)
#define IF_AT_LEAST(value, then, other) BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)(value), then, other)
#define REFUSE(number) IF_EQUAL(number, 0, 1), ANSWER(SECCOMP_RET_KILL_PROCESS)
#define PERMIT(number) IF_EQUAL(number, 0, 1), ANSWER(SECCOMP_RET_ALLOW)
#define ONLY_THIS_ARCHITECTURE                                                                                         \
    LOAD(arch), IF_EQUAL(ARCHITECTURE, 1, 0), ANSWER(SECCOMP_RET_KILL_PROCESS), LOAD(nr),                              \
        IF_AT_LEAST(X32_CALLS, 0, 1), ANSWER(SECCOMP_RET_KILL_PROCESS)

static int install(struct sock_filter *filter, size_t count) {
    struct sock_fprog program = {(unsigned short)count, filter};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

int guard_calls_before_load(void) {
    struct sock_filter filter[] = {
        ONLY_THIS_ARCHITECTURE,
        REFUSE(SYS_clone),
        REFUSE(CLONE3),
#ifdef SYS_fork
        REFUSE(SYS_fork),
        REFUSE(SYS_vfork),
#endif
        REFUSE(SYS_execve),
        REFUSE(SYS_execveat),
        REFUSE(SYS_socket),
        REFUSE(SYS_socketpair),
        REFUSE(SYS_ptrace),
        REFUSE(SYS_process_vm_readv),
        REFUSE(SYS_process_vm_writev),
        REFUSE(SYS_kill),
        REFUSE(SYS_tkill),
        REFUSE(SYS_bpf),
        REFUSE(SYS_perf_event_open),
        REFUSE(SYS_userfaultfd),
        REFUSE(SYS_keyctl),
        REFUSE(SYS_mount),
        REFUSE(SYS_unshare),
        REFUSE(SYS_setns),
        REFUSE(IO_URING_SETUP),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    limit(RLIMIT_NPROC, 0);
    return install(filter, sizeof filter / sizeof *filter);
}

/* A candidate's own code has no system call at all but the end of the process: the rest is allowed from the one
 * instruction inside the C library's `syscall` alone. */
int guard_calls_after_load(void) {
    uintptr_t begin = (uintptr_t)&syscall, end = begin + SYSCALL_BYTES;
    uint32_t high = (uint32_t)((uint64_t)begin >> 32);
    struct sock_filter filter[] = {
        ONLY_THIS_ARCHITECTURE,
        PERMIT(SYS_exit_group),
        PERMIT(SYS_rt_sigreturn),
        PERMIT(SYS_clock_gettime),
        PERMIT(SYS_restart_syscall),
        LOAD_HIGH(instruction_pointer),
        IF_EQUAL(high, 1, 0),
        ANSWER(SECCOMP_RET_KILL_PROCESS),
        LOAD(instruction_pointer),
        IF_AT_LEAST(begin, 1, 0),
        ANSWER(SECCOMP_RET_KILL_PROCESS),
        IF_AT_LEAST(end, 0, 1),
        ANSWER(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        PERMIT(SYS_read),
        PERMIT(SYS_write),
        PERMIT(SYS_futex),
        PERMIT(SYS_sched_yield),
        ANSWER(SECCOMP_RET_KILL_PROCESS),
    };
    return install(filter, sizeof filter / sizeof *filter);
}

static const char *place_of(uintptr_t address, uintptr_t stack_pointer) {
    for (int index = 0; index < fault_range_count; index++)
        if (address >= fault_ranges[index].begin && address < fault_ranges[index].end)
            return fault_ranges[index].name;
    int is_near_stack = address + RED_ZONE >= stack_pointer && address < stack_pointer + SPAN_OF_STACK_FAULTS;
    return is_near_stack ? "stack" : "elsewhere";
}

static void on_fault(int number, siginfo_t *info, void *context) {
    struct {
        uint32_t length;
        char text[128];
    } message;
    uintptr_t address = (uintptr_t)info->si_addr;
    const char *place = place_of(address, STACK_POINTER((ucontext_t *)context));
    int length = snprintf(message.text, sizeof message.text, "fault %d %s %#lx", number, place, (unsigned long)address);
    message.length = (uint32_t)length;
    guard_write(1, &message, sizeof message.length + (size_t)length);
    syscall(SYS_exit_group, 100 + number);
}

void guard_faults(const guard_range *ranges, int count) {
    fault_range_count = count < MOST_RANGES ? count : MOST_RANGES;
    memcpy(fault_ranges, ranges, (size_t)fault_range_count * sizeof *ranges);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
    for (size_t index = 0; index < sizeof numbers / sizeof *numbers; index++)
        sigaction(numbers[index], &action, NULL);
}

void guard_stack(int index) {
    static char stacks[MOST_THREADS][SIGNAL_STACK];
    if (index >= MOST_THREADS)
        return;
    stack_t stack = {.ss_sp = stacks[index], .ss_size = SIGNAL_STACK};
    sigaltstack(&stack, NULL);
}
