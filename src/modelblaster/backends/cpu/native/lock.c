/* Locks that a process with a language runtime puts on itself, in two steps (`torch_start.py`). */
#include <sys/prctl.h>

#include "guard.h"
#include "pool.h"

/* Files, before anything that starts threads is loaded. Returns the kernel's landlock version, 0 without one. */
MB_PUBLIC int mb_lock_files(char *const *readable, int count) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return 0;
    return guard_files(readable, count);
}

/* System calls, once every thread is there: no more threads or processes, no sockets. Returns 1, or 0 without. */
MB_PUBLIC int mb_lock_calls(void) { return guard_calls_before_load(); }
