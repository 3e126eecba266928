"""Short kernels and plans for the tests of this backend."""

from __future__ import annotations

from modelblaster.records.candidate import Source
from modelblaster.records.plan import Buffer, Launch, Plan, Ref, Role
from modelblaster.records.tensor import DType

F32 = DType.FLOAT32
HEAD = """
typedef long long int64_t;
#define KERNEL(name) __attribute__((visibility("default"))) \\
void name(void *const *buffers, const int64_t *sizes, int64_t begin, int64_t end, void *scratch)
static inline long raw_call(long number, long a, long b, long c) {
    long result;
    register long r10 __asm__("r10") = 0;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}
"""


def source(body: str, name: str = "kernel.c") -> Source:
    return Source(name, "c", HEAD + body)


def kernel(body: str, name: str = "k") -> Source:
    """A kernel with `x` and `y` as its first two buffers."""
    return source(f"KERNEL({name}) {{ const float *x = buffers[0]; float *y = buffers[1]; (void)x; (void)y; {body} }}")


DOUBLE = kernel("for (int64_t i = begin; i < end; i++) y[i] = 2 * x[i];")


def map_plan(count: int, grain: int = 256, entry: str = "k", **changes: object) -> Plan:
    """One launch from `x` to `y`."""
    buffers = (Buffer("x", Role.INPUT, F32, (count,)), Buffer("y", Role.OUTPUT, F32, (count,)))
    launch = Launch(entry, (Ref("x"), Ref("y")), (count,), count, grain, ("x",), ("y",), **changes)
    return Plan(buffers, (launch,))
