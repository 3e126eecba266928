"""The reference process: what it computes, what it puts back, and how it ends."""

from __future__ import annotations

import os
import signal
import textwrap
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from modelblaster.judge.reference import ReferenceFailure, ReferenceProcess
from modelblaster.judge.subject import Subject
from modelblaster.records.plan import Buffer, Library, Plan, Ref, Role
from modelblaster.records.task import Mode
from modelblaster.records.tensor import DType, TensorSpec, contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Iterator


def spec(name: str, shape: tuple[int, ...], dtype: DType = DType.FLOAT32) -> TensorSpec:
    return TensorSpec(name, dtype, shape, contiguous_strides(shape))


def module_subject(key: str, module: nn.Module, shape: tuple[int, ...], **more: object) -> Subject:
    options: dict[str, object] = {"outputs": (spec("out", shape),), "parameters": (), **more}
    return Subject(key=key, inputs=(spec("x", shape),), shipped=lambda seed: {}, module=module, **options)  # type: ignore[arg-type]


def softmax_plan(shape: tuple[int, ...]) -> Plan:
    buffers = (
        Buffer("x", Role.INPUT, DType.FLOAT32, shape),
        Buffer("y", Role.OUTPUT, DType.FLOAT32, shape),
    )
    return Plan(buffers, (Library("aten._softmax.default", (Ref("x"), -1, False), (), ("y",)),))


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceProcess]:
    with ReferenceProcess(threads=1, deadline_seconds=60.0) as process:
        yield process


class Talkative(nn.Module):
    """Prints, counts its calls in an attribute and keeps a running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.weight = nn.Parameter(torch.ones(4))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        print("noise on standard output", flush=True)
        self.calls += 1
        self.seen.add_(x.mean(0))
        return {"a": x * self.weight * self.calls, "b": [x.sum(), None]}


def test_nested_outputs_parameters_and_side_effects(reference: ReferenceProcess) -> None:
    subject = Subject(
        key="talkative", inputs=(spec("x", (3, 4)),), parameters=(spec("weight", (4,)),),
        mutated=(spec("seen", (4,)),), outputs=(spec("scaled", (3, 4)), spec("total", ())), shipped=lambda seed: {},
        module=Talkative(),
    )  # fmt: skip
    assert reference.subject(subject) == {"weight", "seen"}
    x, weight = torch.randn(3, 4), torch.randn(4)
    reference.load("talkative", 0, {"x": x, "weight": weight, "seen": torch.full((4,), 2.0)})
    for _ in range(2):
        result, _ = reference.eager("talkative", 0)
        assert torch.equal(result["scaled"], x * weight)
        torch.testing.assert_close(result["total"], x.sum())
        torch.testing.assert_close(result["seen"], x.mean(0) + 2.0)
    oracle = reference.oracle("talkative", 0)
    assert {value.dtype for value in oracle.values()} == {torch.float64}
    torch.testing.assert_close(oracle["scaled"], x.double() * weight.double())


def test_a_class_of_an_executed_problem_file(reference: ReferenceProcess) -> None:
    text = """
    import torch
    FACTOR = 3.0
    class Model(torch.nn.Module):
        def forward(self, x):
            return x * FACTOR
    """
    names: dict[str, object] = {"__name__": "problem"}
    exec(textwrap.dedent(text), names)
    module = names["Model"]()  # type: ignore[operator]
    reference.subject(module_subject("executed", module, (5,)))
    reference.load("executed", 0, {"x": torch.ones(5)})
    assert torch.equal(reference.eager("executed", 0)[0]["out"], torch.full((5,), 3.0))


def test_batch_norm_statistics_do_not_accumulate(reference: ReferenceProcess) -> None:
    norm = nn.BatchNorm1d(4)
    mutated = (spec("running_mean", (4,)), spec("running_var", (4,)), spec("num_batches_tracked", (), DType.INT64))
    reference.subject(module_subject("norm", norm, (32, 4), mutated=mutated, mode=Mode.TRAIN))
    x = torch.randn(32, 4) + 1.0
    state = {"running_mean": torch.zeros(4), "running_var": torch.ones(4), "num_batches_tracked": torch.tensor(5)}
    reference.load("norm", 0, {"x": x, **state})
    reference.time("norm", "eager", 3)
    for _ in range(2):
        result, _ = reference.eager("norm", 0)
        torch.testing.assert_close(result["running_mean"], 0.1 * x.mean(0))
        assert int(result["num_batches_tracked"]) == 6


def test_a_recurrent_module_uses_the_loaded_weights(reference: ReferenceProcess) -> None:
    lstm = nn.LSTM(3, 3, batch_first=True)
    names = (spec("out", (2, 5, 3)), spec("h", (1, 2, 3)), spec("c", (1, 2, 3)))
    reference.subject(module_subject("lstm", lstm, (2, 5, 3), outputs=names))
    other, x = nn.LSTM(3, 3, batch_first=True), torch.randn(2, 5, 3)
    reference.load("lstm", 0, {"x": x, **{name: value.detach() for name, value in other.named_parameters()}})
    wanted, _ = other(x)
    torch.testing.assert_close(reference.eager("lstm", 0)[0]["out"], wanted.detach())
    torch.testing.assert_close(reference.oracle("lstm", 0)["out"].float(), wanted.detach())


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = x + 1
        return y, x, y


def test_returned_tensors_may_repeat_and_be_inputs(reference: ReferenceProcess) -> None:
    reference.subject(module_subject("twice", Twice(), (3,), returns=("out", "x", "out")))
    reference.load("twice", 0, {"x": torch.zeros(3)})
    assert torch.equal(reference.eager("twice", 0)[0]["out"], torch.ones(3))


def test_a_plan_is_interpreted_and_timed_around_a_ring(reference: ReferenceProcess) -> None:
    subject = Subject(
        key="plan", inputs=(spec("x", (8, 300)),), parameters=(), outputs=(spec("y", (8, 300)),),
        shipped=lambda seed: {}, plan=softmax_plan((8, 300)),
    )  # fmt: skip
    reference.subject(subject)
    for index in range(3):
        reference.load("plan", index, {"x": torch.randn(8, 300) + index})
    x = torch.randn(300, 8).t()
    reference.load("plan", 1, {"x": x})
    torch.testing.assert_close(reference.eager("plan", 1)[0]["y"], torch.softmax(x, -1))
    oracle = reference.oracle("plan", 1)["y"]
    assert oracle.dtype == torch.float64
    torch.testing.assert_close(oracle, torch.softmax(x.double(), -1), rtol=1e-14, atol=0)
    timed = reference.time("plan", "eager", 4, sets=(0, 1, 2), calls=5, flush_bytes=1 << 20)
    assert len(timed.samples_ns) == 4
    assert min(timed.samples_ns) > 0


class SinglePrecision(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.float(), -1)


def test_the_captured_plan_helps_where_a_module_refuses_float64(reference: ReferenceProcess) -> None:
    plan = softmax_plan((4, 300))
    reference.subject(module_subject("single", SinglePrecision(), (4, 300), outputs=(spec("y", (4, 300)),), plan=plan))
    x = torch.randn(4, 300)
    reference.load("single", 0, {"x": x})
    torch.testing.assert_close(reference.oracle("single", 0)["y"], torch.softmax(x.double(), -1), rtol=1e-14, atol=0)


def test_eager_calls_on_large_tensors_fault_no_pages(reference: ReferenceProcess) -> None:
    """The trap of toolchains.md section 0: 64 MB are 16384 pages, mapped and zeroed anew for every output."""
    shape = (16384, 1024)
    reference.subject(module_subject("large", nn.GELU(), shape))
    reference.load("large", 0, {"x": torch.rand(shape)})
    # The best of three: a kernel that moves or reclaims pages for others causes faults as well.
    assert min(reference.time("large", "eager", 3).page_faults for _ in range(3)) < 1000
    reference.forget("large")


class Failing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if float(x[0]) > 0:
            raise RuntimeError("no positive numbers, please")
        if float(x[0]) < -1:
            os.kill(os.getpid(), signal.SIGSEGV)
        return x


def test_an_exception_is_told_apart_from_a_crash(reference: ReferenceProcess) -> None:
    reference.subject(module_subject("failing", Failing(), (2,)))
    reference.load("failing", 0, {"x": torch.ones(2)})
    with pytest.raises(ReferenceFailure, match="no positive numbers") as raised:
        reference.eager("failing", 0)
    assert raised.value.is_alive
    before = reference.generation
    reference.load("failing", 0, {"x": torch.full((2,), -5.0)})
    with pytest.raises(ReferenceFailure, match="died") as raised:
        reference.eager("failing", 0)
    assert not raised.value.is_alive
    reference.load("failing", 0, {"x": torch.zeros(2)})
    assert torch.equal(reference.eager("failing", 0)[0]["out"], torch.zeros(2))
    assert reference.generation == before + 1


class Sleeping(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import time

        time.sleep(600)
        return x


def test_a_hang_is_ended_at_the_deadline() -> None:
    with ReferenceProcess(threads=1, deadline_seconds=60.0) as process:
        process.subject(module_subject("sleeping", Sleeping(), (2,)))
        process.load("sleeping", 0, {"x": torch.ones(2)})
        process._deadline = 0.3
        with pytest.raises(ReferenceFailure, match="no answer"):
            process.eager("sleeping", 0)


def test_what_cannot_be_compiled_in_time_is_unavailable_and_no_exception(reference: ReferenceProcess) -> None:
    reference.subject(module_subject("gelu", nn.GELU(), (64, 64)))
    reference.load("gelu", 0, {"x": torch.rand(64, 64)})
    timed = reference.time("gelu", "compile", 3, compile_seconds=0.01)
    assert timed.samples_ns == ()
    assert "more than" in timed.unavailable
    assert len(reference.time("gelu", "eager", 3).samples_ns) == 3


@pytest.mark.slow
def test_torch_compile_is_timed(reference: ReferenceProcess) -> None:
    reference.subject(module_subject("compiled", nn.Sequential(nn.GELU(), nn.Softmax(-1)), (64, 300)))
    reference.load("compiled", 0, {"x": torch.rand(64, 300)})
    timed = reference.time("compiled", "compile", 3)
    assert timed.unavailable or len(timed.samples_ns) == 3
    assert timed.unavailable or timed.compile_seconds > 0
