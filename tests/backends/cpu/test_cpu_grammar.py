"""Conformance of the plan grammar: what any backend must be able to run (DESIGN section 4)."""

from __future__ import annotations

import torch
from cpu_kernels import F32, source

from modelblaster.records.plan import Buffer, Copy, Fill, Launch, Plan, Ref, Repeat, Role, View
from modelblaster.records.tensor import DType


def run(backend, plan, text, tensors, *, calls=1):
    with backend.open(plan, backend.build((source(text),)), sets=1) as session:
        session.load(0, tensors)
        session.setup()
        for _ in range(calls):
            session.run(0)
        return {name: tensor.clone() for name, tensor in session.outputs(0).items()}


def test_persistent_range(backend):
    """One unit for each thread; each walks over the rows with a stride of `threads`."""
    text = """KERNEL(rows) { const float *x = buffers[0]; float *y = buffers[1];
    for (int64_t unit = begin; unit < end; unit++) for (int64_t r = unit; r < sizes[0]; r += sizes[2])
    { float sum = 0; for (int64_t c = 0; c < sizes[1]; c++) sum += x[r * sizes[1] + c]; y[r] = sum; } }"""
    buffers = (Buffer("x", Role.INPUT, F32, ("rows", "columns")), Buffer("y", Role.OUTPUT, F32, ("rows",)))
    step = Launch("rows", (Ref("x"), Ref("y")), ("rows", "columns", "threads"), "threads", 1, ("x",), ("y",))
    plan = Plan(buffers, (step,), symbols=(("rows", 37), ("columns", 64)))
    x = torch.randn(37, 64)
    torch.testing.assert_close(run(backend, plan, text, {"x": x})["y"], x.sum(1))


def test_split_reduction_with_a_zeroed_accumulator(backend):
    """Many grains add into few accumulators, which a Fill has zeroed: right in every call, not only the first."""
    text = """KERNEL(split) { const int *x = buffers[0]; int *total = buffers[1]; int sum = 0;
    for (int64_t i = begin; i < end; i++) sum += x[i];
    __atomic_fetch_add(total + begin / sizes[0] % 4, sum, __ATOMIC_RELAXED); }
    KERNEL(join) { const int *t = buffers[0]; int *y = buffers[1]; y[0] = t[0] + t[1] + t[2] + t[3]; }"""
    buffers = (
        Buffer("x", Role.INPUT, DType.INT32, (100_003,)),
        Buffer("total", Role.SCRATCH, DType.INT32, (4,)),
        Buffer("y", Role.OUTPUT, DType.INT32, (1,)),
    )
    steps = (
        Fill("total", 0),
        Launch("split", (Ref("x"), Ref("total")), (1000,), 100_003, 1000, ("x", "total"), ("total",)),
        Launch("join", (Ref("total"), Ref("y")), (), 1, 1, ("total",), ("y",)),
    )
    x = torch.randint(-1000, 1000, (100_003,), dtype=torch.int32)
    assert run(backend, Plan(buffers, steps), text, {"x": x}, calls=3)["y"].item() == x.sum().item()


def test_running_statistics(backend):
    """A mutated buffer changes with every call and is an output."""
    text = """KERNEL(norm) { const float *x = buffers[0]; float *mean = buffers[1], *y = buffers[2];
    for (int64_t c = begin; c < end; c++) { float sum = 0;
    for (int64_t r = 0; r < sizes[0]; r++) sum += x[r * sizes[1] + c];
    mean[c] = 0.9f * mean[c] + 0.1f * sum / sizes[0];
    for (int64_t r = 0; r < sizes[0]; r++) y[r * sizes[1] + c] = x[r * sizes[1] + c] - sum / sizes[0]; } }"""
    buffers = (
        Buffer("x", Role.INPUT, F32, (32, 10)),
        Buffer("bn.running_mean", Role.MUTATED, F32, (10,)),
        Buffer("y", Role.OUTPUT, F32, (32, 10)),
    )
    names = ("x", "bn.running_mean", "y")
    step = Launch("norm", tuple(Ref(name) for name in names), (32, 10), 10, 3, names[:2], names[1:])
    x, mean = torch.randn(32, 10), torch.randn(10)
    outputs = run(backend, Plan(buffers, (step,)), text, {"x": x, "bn.running_mean": mean}, calls=2)
    for _ in range(2):
        mean = 0.9 * mean + 0.1 * x.mean(0)
    torch.testing.assert_close(outputs["bn.running_mean"], mean)
    torch.testing.assert_close(outputs["y"], x - x.mean(0))


def test_several_outputs_and_concatenation_by_views(backend):
    """`cat` is no copy: producers write into views of the result."""
    text = """KERNEL(two) { const float *x = buffers[0]; float *a = buffers[1], *b = buffers[2];
    for (int64_t i = begin; i < end; i++) { a[i] = x[i] + 1; b[i] = x[i] * 2; } }"""
    buffers = (
        Buffer("x", Role.INPUT, F32, (500,)),
        Buffer("all", Role.OUTPUT, F32, (1000,)),
        Buffer("other", Role.OUTPUT, F32, (500,)),
        Buffer("low", Role.SCRATCH, F32, (500,)),
        Buffer("high", Role.SCRATCH, F32, (500,)),
    )
    steps = (
        View("low", "all"),
        View("high", "all", 500),
        Launch("two", (Ref("x"), Ref("low"), Ref("high")), (), 500, 64, ("x",), ("low", "high")),
        Copy("high", "other"),
    )
    x = torch.randn(500)
    outputs = run(backend, Plan(buffers, steps), text, {"x": x})
    assert torch.equal(outputs["all"], torch.cat([x + 1, x * 2]))
    assert torch.equal(outputs["other"], x * 2)


def test_a_recurrence_of_512_steps(backend):
    """h[i + 1] = 0.5 h[i] + x[i]: offsets and views that move with `i`, two buffers taking turns."""
    text = """KERNEL(step) { const float *x = buffers[0], *old = buffers[1]; float *now = buffers[2], *y = buffers[3];
    for (int64_t i = begin; i < end; i++) y[i] = now[i] = 0.5f * old[i] + x[i]; }"""
    buffers = (
        Buffer("x", Role.INPUT, F32, ("time", "width")),
        Buffer("y", Role.OUTPUT, F32, ("time", "width")),
        Buffer("last", Role.OUTPUT, F32, ("width",)),
        Buffer("h", Role.SCRATCH, F32, (2, "width")),
        Buffer("final", Role.SCRATCH, F32, ("width",)),
    )
    arguments = (
        Ref("x", "i * width"),
        Ref("h", "i % 2 * width"),
        Ref("h", "(i + 1) % 2 * width"),
        Ref("y", "i * width"),
    )
    step = Launch("step", arguments, (), "width", "ceildiv(width, threads)", ("x", "h"), ("h", "y"))
    moving = View("final", "h", "(i + 1) % 2 * width")
    steps = (Fill("h", 0.0), Repeat("i", "time", (step, moving)), Copy("final", "last"))
    plan = Plan(buffers, steps, symbols=(("time", 512), ("width", 96)))
    x = torch.randn(512, 96)
    outputs = run(backend, plan, text, {"x": x}, calls=2)
    h, wanted = torch.zeros(96), []
    for row in x:
        h = 0.5 * h + row
        wanted.append(h)
    torch.testing.assert_close(outputs["y"], torch.stack(wanted))
    torch.testing.assert_close(outputs["last"], h)
