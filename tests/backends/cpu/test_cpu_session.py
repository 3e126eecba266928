"""Kernels that do what they should, and what a session promises about memory and time."""

from __future__ import annotations

import pytest
import torch
from cpu_kernels import DOUBLE, F32, kernel, map_plan, source

from modelblaster.backends.cpu import CpuBackend
from modelblaster.backends.cpu.session import NativeSession
from modelblaster.backends.flat import Address, FlatCopy, FlatFill, Placed
from modelblaster.backends.interface import RunFailure
from modelblaster.records.candidate import Source
from modelblaster.records.plan import Buffer, Copy, Fill, Launch, Plan, Ref, Role
from modelblaster.records.tensor import DType
from modelblaster.records.verdict import Cause

COUNT = 10_000


@pytest.fixture
def doubling(any_backend):
    with any_backend.open(map_plan(COUNT), any_backend.build((DOUBLE,)), sets=3) as session:
        yield session


def test_every_set_has_inputs_and_outputs_of_its_own(doubling):
    inputs = [torch.randn(COUNT) for _ in range(3)]
    for index, tensor in enumerate(inputs):
        doubling.load(index, {"x": tensor})
    doubling.setup()
    for index in range(3):
        doubling.run(index)
    for index, tensor in enumerate(inputs):
        assert torch.equal(doubling.outputs(index)["y"], 2 * tensor)
    doubling.load(1, {"x": inputs[0]})
    doubling.run(1)
    assert torch.equal(doubling.outputs(1)["y"], 2 * inputs[0])


def test_the_locks_are_on(doubling, any_backend):
    assert doubling.locks == ("landlock", "seccomp")
    assert "landlock" in any_backend.isolation()


def test_outputs_are_poisoned_before_a_run(any_backend):
    half = kernel("for (int64_t i = begin; i < end; i++) if (i % 2) y[i] = x[i];")
    with any_backend.open(map_plan(COUNT), any_backend.build((half,)), sets=1) as session:
        session.load(0, {"x": torch.ones(COUNT)})
        session.run(0)
        y = session.outputs(0)["y"]
        assert y[::2].isnan().all()
        assert (y[1::2] == 1).all()


def test_reading_past_an_input_gives_nan(any_backend):
    past = kernel("for (int64_t i = begin; i < end; i++) y[i] = x[i + 1];")
    with any_backend.open(map_plan(COUNT), any_backend.build((past,)), sets=1) as session:
        session.load(0, {"x": torch.ones(COUNT)})
        session.run(0)
        assert session.outputs(0)["y"].isnan().nonzero().flatten().tolist() == [COUNT - 1]


@pytest.mark.parametrize(("name", "tensor"), [("z", torch.ones(COUNT)), ("y", torch.ones(COUNT)), ("x", torch.ones(3))])
def test_only_what_the_plan_has_can_be_loaded(doubling, name, tensor):
    with pytest.raises(ValueError, match=name):
        doubling.load(0, {name: tensor})


def test_times_walk_around_the_ring(doubling):
    for index in range(3):
        doubling.load(index, {"x": torch.full((COUNT,), float(index))})
    times = doubling.time(5, calls=4)
    assert len(times) == 5
    assert all(0 < sample < 1e9 for sample in times)
    for index in range(3):
        assert torch.equal(doubling.outputs(index)["y"], torch.full((COUNT,), 2.0 * index))
    assert len(doubling.time(2, flush=True)) == 2


def test_work_takes_longer_than_less_work(backend):
    body = """for (int64_t i = begin; i < end; i++)
    {{ volatile float v = x[i]; for (int k = 0; k < {}; k++) v += 1; y[i] = v; }}"""
    medians = []
    for rounds in (10, 300):
        with backend.open(map_plan(COUNT), backend.build((kernel(body.format(rounds)),)), sets=1) as session:
            session.load(0, {"x": torch.zeros(COUNT)})
            medians.append(sorted(session.time(15))[7])
    assert medians[1] > 5 * medians[0]


def test_results_that_a_kernel_finds_done_are_not_whole(backend):
    lazy = kernel("if (y[begin] == 2 * x[begin]) return; for (int64_t i = begin; i < end; i++) y[i] = 2 * x[i];")
    with backend.open(map_plan(COUNT, grain=COUNT), backend.build((lazy,)), sets=1) as session:
        session.load(0, {"x": torch.ones(COUNT)})
        session.run(0)
        session.time(3)
        assert session.outputs(0)["y"].isnan().any()


def test_a_clock_that_does_not_fit_ours_is_suspect(backend, monkeypatch):
    session = backend.open(map_plan(COUNT), backend.build((DOUBLE,)), sets=1)
    for answer in ("ok 9000000000000 9000000000000 1", "ok 100 80 80"):
        monkeypatch.setattr(session._worker, "ask", lambda *_, answer=answer: answer)
        with pytest.raises(RunFailure) as failure:
            session.time(2)
        assert failure.value.cause is Cause.SUSPECT
    monkeypatch.setattr(session._worker, "ask", lambda *_: "ok a lot")
    with pytest.raises(RunFailure, match="not one of ours"):
        session.time(2)


def test_setup_derives_from_parameters_and_runs_again(any_backend):
    transpose = source(
        """KERNEL(transpose) { const float *w = buffers[0]; float *d = buffers[1];
        for (int64_t i = begin; i < end; i++) for (int64_t j = 0; j < sizes[1]; j++)
        d[j * sizes[0] + i] = w[i * sizes[1] + j]; }
        KERNEL(add) { const float *x = buffers[0], *d = buffers[1]; float *y = buffers[2];
        for (int64_t i = begin; i < end; i++) y[i] = x[i] + d[i]; }"""
    )
    buffers = (
        Buffer("x", Role.INPUT, F32, (5, 3)),
        Buffer("layer.weight", Role.PARAMETER, F32, (3, 5)),
        Buffer("d", Role.DERIVED, F32, (5, 3)),
        Buffer("y", Role.OUTPUT, F32, (5, 3)),
    )
    setup = (Launch("transpose", (Ref("layer.weight"), Ref("d")), (3, 5), 3, 1, ("layer.weight",), ("d",)),)
    steps = (Launch("add", (Ref("x"), Ref("d"), Ref("y")), (), 15, 4, ("x", "d"), ("y",)),)
    with any_backend.open(Plan(buffers, steps, setup=setup), any_backend.build((transpose,)), sets=2) as session:
        x = torch.randn(5, 3)
        session.load(1, {"x": x})
        for _ in range(2):
            w = torch.randn(3, 5)
            session.load(0, {"layer.weight": w})
            assert session.setup() > 0
            session.run(1)
            assert torch.equal(session.outputs(1)["y"], x + w.T)


def test_copies_and_fills_follow_strides(backend):
    shape, strides = (6, 5, 4), (1, 24, 6)
    buffers = (
        Buffer("x", Role.INPUT, F32, shape),
        Buffer("y", Role.OUTPUT, F32, shape, strides),
        Buffer("z", Role.OUTPUT, DType.BFLOAT16, (3, 4), (8, 1)),
        Buffer("n", Role.OUTPUT, DType.INT64, (7,)),
        Buffer("b", Role.OUTPUT, DType.BOOL, (7,)),
        Buffer("e", Role.OUTPUT, F32, (0, 7)),
    )
    steps = (Copy("x", "y"), Fill("z", 1 / 3), Fill("n", -3), Fill("b", 1), Fill("e", 0.0))
    with backend.open(Plan(buffers, steps), backend.build(()), sets=1) as session:
        x = torch.randn(shape)
        session.load(0, {"x": x})
        session.run(0)
        outputs = session.outputs(0)
        assert outputs["y"].stride() == strides
        assert torch.equal(outputs["y"], x)
        assert torch.equal(outputs["z"], torch.full((3, 4), 1 / 3, dtype=torch.bfloat16))
        assert outputs["n"].tolist() == [-3] * 7
        assert outputs["b"].all()
        assert outputs["e"].shape == (0, 7)


def test_large_copies_are_split_among_threads(backend):
    x = torch.randn(300, 7, 501)
    moved = x.permute(2, 0, 1)
    buffers = (
        Buffer("x", Role.INPUT, F32, tuple(moved.shape), tuple(moved.stride())),
        Buffer("y", Role.OUTPUT, F32, tuple(moved.shape)),
    )
    with backend.open(Plan(buffers, (Copy("x", "y"),)), backend.build(()), sets=1) as session:
        session.load(0, {"x": moved})
        session.run(0)
        assert torch.equal(session.outputs(0)["y"], moved)


def test_each_thread_has_scratch_of_its_own(any_backend):
    text = """KERNEL(k) { const float *x = buffers[0]; float *y = buffers[1], *t = scratch;
    for (int64_t i = begin; i < end; i++) t[i - begin] = 3 * x[i];
    for (int64_t i = begin; i < end; i++) y[i] = t[i - begin]; }"""
    build = any_backend.build((source(text),))
    with any_backend.open(map_plan(COUNT, scratch_bytes=1000), build, sets=1) as session:
        x = torch.randn(COUNT)
        session.load(0, {"x": x})
        with pytest.raises(RunFailure, match="beside the buffer 'scratch'"):
            session.run(0)
    with any_backend.open(map_plan(COUNT, scratch_bytes=1024), build, sets=1) as session:
        session.load(0, {"x": x})
        session.run(0)
        assert torch.equal(session.outputs(0)["y"], 3 * x)


def test_more_threads_than_cores(cpu_home):
    backend = CpuBackend(home=cpu_home, threads=7)
    assert backend.symbols["threads"] == 7
    with backend.open(map_plan(COUNT, grain=16), backend.build((DOUBLE,)), sets=1) as session:
        session.load(0, {"x": torch.ones(COUNT)})
        for _ in range(50):
            session.run(0)
            assert (session.outputs(0)["y"] == 2).all()


def test_memory_is_handed_on_but_never_under_a_live_tensor(cpu_home):
    backend = CpuBackend(home=cpu_home)
    build = backend.build((DOUBLE,))

    def addresses(kept):
        with backend.open(map_plan(COUNT), build, sets=1) as session:
            before = session.outputs(0)["y"].clone()
            session.load(0, {"x": torch.ones(COUNT)})
            session.run(0)
            y = session.outputs(0)["y"]
            if kept is not None:
                kept.append(y)
            address = y.data_ptr()
            del y
            return address, before

    first, _ = addresses(None)
    again, before = addresses(None)
    assert again == first
    assert before.isnan().all()
    kept = []
    addresses(kept)
    other, _ = addresses(None)
    assert other != first
    assert (kept[0] == 2).all()


def test_two_sources_make_one_program(backend):
    first = kernel("for (int64_t i = begin; i < end; i++) y[i] = x[i] + 1;", "first")
    second = kernel("for (int64_t i = begin; i < end; i++) y[i] *= 2;", "second")
    build = backend.build((first, Source("second.c", "c", second.text)))
    assert len(build.objects) == 2
    buffers = (Buffer("x", Role.INPUT, F32, (COUNT,)), Buffer("y", Role.OUTPUT, F32, (COUNT,)))
    steps = tuple(Launch(name, (Ref("x"), Ref("y")), (), COUNT, 512, ("x",), ("y",)) for name in ("first", "second"))
    with backend.open(Plan(buffers, steps), build, sets=1) as session:
        assert isinstance(session, NativeSession)
        session.load(0, {"x": torch.ones(COUNT)})
        session.run(0)
        assert (session.outputs(0)["y"] == 4).all()


def test_a_malformed_plan_is_a_failure_of_the_build(backend):
    with pytest.raises(RunFailure, match="unknown symbol 'rows'") as failure:
        backend.open(map_plan(COUNT, scratch_bytes="rows"), backend.build((DOUBLE,)), sets=1)
    assert failure.value.cause is Cause.BUILD_FAILED


def test_flat_moves_of_one_element(backend):
    from modelblaster.backends.cpu.program_text import program_text

    one = Placed(Address(0, 4), F32, (1, 1), (0, 0))
    assert program_text([FlatFill(one, 1.0), FlatCopy(one, one)], ()).splitlines()[2:] == [
        "F 0 4 4 1065353216 1 1 1",
        "C 0 4 0 4 4 1 1 1 1",
    ]
