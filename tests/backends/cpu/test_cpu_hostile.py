"""Whatever a kernel does ends as a RunFailure with its cause, and the next session works."""

from __future__ import annotations

import os
import time

import pytest
import torch
from cpu_kernels import DOUBLE, kernel, map_plan, source

from modelblaster.backends.interface import RunFailure
from modelblaster.records.plan import Buffer, Launch, Plan, Ref, Role
from modelblaster.records.tensor import DType
from modelblaster.records.verdict import Cause

COUNT = 4096

FORBIDDEN = {
    "fork": "raw_call(57, 0, 0, 0);",
    "clone": "raw_call(56, 17, 0, 0);",
    "exec": 'char *path = "/bin/true"; raw_call(59, (long)path, 0, 0);',
    "socket": "raw_call(41, 2, 1, 0);",
    "open": 'raw_call(2, (long)"/etc/passwd", 0, 0);',
    "mmap": "raw_call(9, 0, 1L << 33, 3);",
    "protect": "raw_call(10, (long)x & ~4095L, 4096, 3);",
    "kill": "raw_call(62, 1, 9, 0);",
    "forged reply": 'raw_call(1, 1, (long)"\\4\\0\\0\\0ok 1", 8);',
    "read of our messages": "raw_call(0, 0, (long)y, 8);",
}
FAULTS = {
    "null": ("*(volatile int *)0 = 1;", Cause.CRASHED, "wild pointer"),
    "illegal": ("__builtin_trap();", Cause.CRASHED, "SIGILL"),
    "division": ("volatile int zero = 0; y[0] = (int)sizes[0] / zero;", Cause.CRASHED, "division by zero"),
    "input": ("if (begin == 0) ((volatile float *)x)[3] = 1;", Cause.INPUT_WRITTEN, "wrote to an input"),
    "after": ("if (begin == 0) y[sizes[0]] = 1;", Cause.OUT_OF_BOUNDS, "beside the buffer 'y'"),
    "before": ("if (begin == 0) y[-1] = 1;", Cause.OUT_OF_BOUNDS, "beside the buffer 'y'"),
    "far after": ("y[1 << 20] = 1;", Cause.OUT_OF_BOUNDS, "outside all buffers"),
    "exit": ("raw_call(231, 0, 0, 0);", Cause.CRASHED, "in the middle of a run"),
    "stack": ("volatile char big[64 << 20]; big[0] = 1; y[0] = big[0];", Cause.CRASHED, "stack"),
}


def run(backend, source, *, count=COUNT, deadline=20.0):
    with backend.open(map_plan(count), backend.build((source,)), sets=1, deadline_seconds=deadline) as session:
        session.load(0, {"x": torch.arange(count, dtype=torch.float32)})
        session.run(0)
        return session.outputs(0)["y"].clone()


@pytest.fixture(autouse=True)
def next_session_works(any_backend):
    yield
    assert torch.equal(run(any_backend, DOUBLE), 2 * torch.arange(COUNT, dtype=torch.float32))


@pytest.mark.parametrize("body", FORBIDDEN.values(), ids=FORBIDDEN)
def test_system_calls_are_forbidden(any_backend, body):
    with pytest.raises(RunFailure) as failure:
        run(any_backend, kernel(body))
    assert failure.value.cause is Cause.FORBIDDEN


@pytest.mark.parametrize(("body", "cause", "message"), FAULTS.values(), ids=FAULTS)
def test_faults_have_a_cause(any_backend, body, cause, message):
    with pytest.raises(RunFailure, match=message) as failure:
        run(any_backend, kernel(body))
    assert failure.value.cause is cause


def test_a_recursion_without_end(any_backend):
    text = """
    static __attribute__((noinline)) int deeper(volatile int *above) {
        volatile int here = *above + 1;
        return deeper(&here) + here;
    }
    KERNEL(k) { int start = 0; ((float *)buffers[1])[0] = deeper(&start); }
    """
    with pytest.raises(RunFailure, match="stack overflowed") as failure:
        run(any_backend, source(text))
    assert failure.value.cause is Cause.CRASHED


def test_a_hang_ends_at_the_deadline(any_backend):
    begin = time.monotonic()
    with pytest.raises(RunFailure, match="no answer within") as failure:
        run(any_backend, kernel("for (volatile int go = 1; go;);"), deadline=0.5)
    assert failure.value.cause is Cause.TIMEOUT
    assert time.monotonic() - begin < 5


def test_nothing_stays_behind(any_backend):
    def children():
        return {name for name in os.listdir("/proc") if name.isdigit() and _parent(name) == os.getpid()}

    before = children()
    with pytest.raises(RunFailure):
        run(any_backend, kernel("for (volatile int go = 1; go;);"), deadline=0.3)
    assert children() == before


def test_memory_that_the_machine_does_not_have(any_backend):
    with pytest.raises(RunFailure, match="GB are free") as failure:
        any_backend.open(map_plan(1 << 42), any_backend.build((DOUBLE,)), sets=1)
    assert failure.value.cause is Cause.OUT_OF_MEMORY


def test_derived_memory_is_closed_to_the_steps(any_backend):
    buffers = (
        Buffer("x", Role.INPUT, DType.FLOAT32, (COUNT,)),
        Buffer("d", Role.DERIVED, DType.FLOAT32, (COUNT,)),
        Buffer("y", Role.OUTPUT, DType.FLOAT32, (COUNT,)),
    )
    plan = Plan(buffers, (Launch("k", (Ref("x"), Ref("d")), (COUNT,), COUNT, 256, ("x", "d"), ("y",)),))
    with any_backend.open(plan, any_backend.build((DOUBLE,)), sets=1) as session:
        session.setup()
        with pytest.raises(RunFailure, match="derived memory") as failure:
            session.run(0)
    assert failure.value.cause is Cause.INPUT_WRITTEN


def test_a_wrong_setup_is_found_by_the_setup(any_backend):
    buffers = (
        Buffer("w", Role.PARAMETER, DType.FLOAT32, (COUNT,)),
        Buffer("d", Role.DERIVED, DType.FLOAT32, (COUNT,)),
        Buffer("y", Role.OUTPUT, DType.FLOAT32, (COUNT,)),
    )
    step = Launch("k", (Ref("w"), Ref("d")), (COUNT,), COUNT, 256, ("w",), ("d",))
    with (
        any_backend.open(
            Plan(buffers, (), setup=(step,)), any_backend.build((kernel("y[sizes[0]] = 0;"),)), sets=1
        ) as session,
        pytest.raises(RunFailure, match="beside the buffer 'd'"),
    ):
        session.setup()


def test_a_closed_session_refuses(any_backend):
    session = any_backend.open(map_plan(COUNT), any_backend.build((kernel("raw_call(57, 0, 0, 0);"),)), sets=1)
    with pytest.raises(RunFailure):
        session.run(0)
    session.close()
    session.close()
    with pytest.raises((RunFailure, ValueError), match="closed"):
        session.run(0)


def test_an_entry_that_no_object_has(any_backend):
    with pytest.raises(RunFailure, match="no object has the entry 'other'") as failure:
        any_backend.open(map_plan(COUNT, entry="other"), any_backend.build((DOUBLE,)), sets=1)
    assert failure.value.cause is Cause.BUILD_FAILED


def _parent(process: str) -> int | None:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as stream:
            return int(stream.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None
