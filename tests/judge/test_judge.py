"""What the judge says about honest and dishonest candidates."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
import torch
from judge_fakes import FakeBackend, build, candidate, raising, spec, uniform
from torch import nn

from modelblaster.backends.interface import RunFailure
from modelblaster.judge.judge import Judge
from modelblaster.judge.reference import ReferenceFailure, ReferenceProcess
from modelblaster.judge.subject import Subject
from modelblaster.records.plan import Buffer, Library, Plan, Ref, Role
from modelblaster.records.profile import Work
from modelblaster.records.task import Mode, Precision
from modelblaster.records.tensor import DType
from modelblaster.records.timing import Comparison
from modelblaster.records.verdict import Cause, Stage, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

    Kernel = Callable[[dict[str, Tensor]], Mapping[str, Tensor]]

SHAPE = (48, 512)


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceProcess]:
    with ReferenceProcess(threads=1, deadline_seconds=60.0) as process:
        yield process


class Softmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x, -1)


def softmax_subject(work: Work | None = None) -> Subject:
    x = spec("x", SHAPE)
    return Subject("softmax", (x,), (), (spec("y", SHAPE),), uniform(x), module=Softmax(), work=work)


def judge_of(reference: ReferenceProcess, kernels: Mapping[str, Kernel], **more: float) -> Judge:
    return Judge(FakeBackend(kernels, **more), reference, Precision.FP32, 5, compile_seconds=0.01)  # type: ignore[arg-type]


def verdicts(reference: ReferenceProcess, subject: Subject, kernel: Kernel) -> tuple[Verdict, Verdict]:
    judge = judge_of(reference, {"k": kernel})
    made = candidate(subject, "k")
    return judge.screen(subject, made, build())[0], judge.verify(subject, made, build(), final=False)


def honest(t: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"y": torch.softmax(t["x"], -1)}


def test_an_honest_candidate_passes_every_stage(reference: ReferenceProcess) -> None:
    subject, judge = softmax_subject(), judge_of(reference, {"k": honest})
    made = candidate(subject, "k", claims=("wide_simd",))
    verdict, timing = judge.screen(subject, made, build("wide_simd"))
    assert verdict.passed
    assert verdict.stage is Stage.SCREEN
    assert timing is not None
    assert timing.protocol == "screen"
    full = judge.verify(subject, made, build("wide_simd"), final=False)
    assert full.passed, full.detail
    final = judge.verify(subject, made, build("wide_simd"), final=True)
    assert final.passed, final.detail
    assert len([case for case in final.cases if case.case.startswith("secret")]) > 3
    assert len({case.seed for case in final.cases}) == len(final.cases)
    assert all(case.checks or case.set_aside for case in final.cases)


class Remembering:
    """Computes once, then gives the same answer for ever."""

    def __init__(self) -> None:
        self._answer: Tensor | None = None

    def __call__(self, t: dict[str, Tensor]) -> dict[str, Tensor]:
        if self._answer is None:
            self._answer = torch.softmax(t["x"], -1)
        return {"y": self._answer}


class WearingOut:
    """Right for the first five calls of a process."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, t: dict[str, Tensor]) -> dict[str, Tensor]:
        self._calls += 1
        return {"y": torch.softmax(t["x"], -1) * (1.0 if self._calls <= 5 else 1.5)}


def low(t: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"y": torch.softmax(t["x"].bfloat16().float(), -1)}


def jitter(t: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"y": torch.softmax(t["x"], -1) * (1.0 + 1e-7 * torch.rand(SHAPE))}


def with_nan(t: dict[str, Tensor]) -> dict[str, Tensor]:
    y = torch.softmax(t["x"], -1)
    y[7, 7] = torch.nan
    return {"y": y}


WRONG: dict[str, tuple[Kernel, Cause]] = {
    "zeros": (lambda t: {"y": torch.zeros(SHAPE)}, Cause.WRONG),
    "uniform": (lambda t: {"y": torch.full(SHAPE, 1.0 / SHAPE[1])}, Cause.WRONG),
    "wrong row": (lambda t: {"y": torch.softmax(t["x"], -1).roll(1, 0)}, Cause.WRONG),
    "low precision": (low, Cause.WRONG),
    "nothing written": (lambda t: {}, Cause.NONFINITE),
    "one NaN": (with_nan, Cause.NONFINITE),
    "remembers": (Remembering(), Cause.WRONG),
    "wears out": (WearingOut(), Cause.WRONG),
    "jitter": (jitter, Cause.NONDETERMINISTIC),
    "wrong shape": (lambda t: {"y": torch.softmax(t["x"], -1)[:-1]}, Cause.WRONG),
    "wrong type": (lambda t: {"y": torch.softmax(t["x"], -1).double()}, Cause.WRONG),
    "hang": (raising(RunFailure(Cause.TIMEOUT, "no answer")), Cause.TIMEOUT),
    "tampering": (raising(RunFailure(Cause.INPUT_WRITTEN, "x was written")), Cause.INPUT_WRITTEN),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_candidate_becomes_a_verdict(reference: ReferenceProcess, name: str) -> None:
    kernel, cause = WRONG[name]
    subject = softmax_subject()
    judge = judge_of(reference, {"k": kernel})
    verdict = judge.verify(subject, candidate(subject, "k"), build(), final=False)
    assert verdict.cause is cause
    assert verdict.detail


@pytest.mark.parametrize("name", ["zeros", "low precision", "nothing written", "one NaN", "hang"])
def test_the_screen_sees_the_plain_ones_already(reference: ReferenceProcess, name: str) -> None:
    kernel, cause = WRONG[name]
    subject = softmax_subject()
    verdict, timing = judge_of(reference, {"k": kernel}).screen(subject, candidate(subject, "k"), build())
    assert verdict.cause is cause
    assert timing is None


def test_a_plan_that_says_so_may_be_nondeterministic(reference: ReferenceProcess) -> None:
    subject = softmax_subject()
    judge = judge_of(reference, {"k": jitter})
    made = candidate(subject, "k", deterministic=False)
    assert judge.verify(subject, made, build(), final=False).passed


def test_claims_and_borders_are_checked_before_anything_runs(reference: ReferenceProcess) -> None:
    subject = softmax_subject()
    backend = FakeBackend({"k": honest})
    judge = Judge(backend, reference, Precision.FP32, 5)  # type: ignore[arg-type]
    unmet = judge.screen(subject, candidate(subject, "k", claims=("wide_simd",)), build())[0]
    assert unmet.cause is Cause.CLAIM_UNMET
    other = Subject("other", (spec("x", (2, 2)),), (), (spec("y", (2, 2)),), lambda seed: {}, module=Softmax())
    assert judge.verify(subject, candidate(other, "k"), build(), final=True).cause is Cause.WRONG
    assert not backend.sessions


def test_sessions_are_closed(reference: ReferenceProcess) -> None:
    subject = softmax_subject()
    backend = FakeBackend({"k": honest, "bad": raising(RunFailure(Cause.CRASHED, "signal 11"))})
    judge = Judge(backend, reference, Precision.FP32, 5)  # type: ignore[arg-type]
    for entry in ("k", "bad"):
        judge.screen(subject, candidate(subject, entry), build())
        judge.verify(subject, candidate(subject, entry), build(), final=False)
    assert len(backend.sessions) == 4
    assert all(session.is_closed for session in backend.sessions)


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x)
        return y


def norm_subject() -> Subject:
    x, y = spec("x", (128, 64)), spec("y", (128, 64))
    weights = (spec("norm.weight", (64,)), spec("norm.bias", (64,)))
    mutated = (
        spec("norm.running_mean", (64,)),
        spec("norm.running_var", (64,)),
        spec("norm.num_batches_tracked", (), DType.INT64),
    )
    module = Norm()

    def shipped(seed: int) -> dict[str, Tensor]:
        state = {name: value.detach().clone() for name, value in module.state_dict().items()}
        return {**uniform(x)(seed), **state}

    return Subject("norm", (x,), weights, (y,), shipped, mutated=mutated, module=module, mode=Mode.TRAIN)


def batch_norm(t: dict[str, Tensor], *, updates: bool = True, uses_affine: bool = True) -> dict[str, Tensor]:
    mean, variance = t["x"].mean(0), t["x"].var(0, correction=0)
    y = (t["x"] - mean) / torch.sqrt(variance + 1e-5)
    if uses_affine:
        y = y * t["norm.weight"] + t["norm.bias"]
    if not updates:
        return {"y": y}
    return {
        "y": y,
        "norm.running_mean": 0.9 * t["norm.running_mean"] + 0.1 * mean,
        "norm.running_var": 0.9 * t["norm.running_var"] + 0.1 * variance * (128 / 127),
        "norm.num_batches_tracked": t["norm.num_batches_tracked"] + 1,
    }


def test_running_statistics_are_outputs(reference: ReferenceProcess) -> None:
    subject = norm_subject()
    screen, full = verdicts(reference, subject, batch_norm)
    assert screen.passed
    assert full.passed, full.detail
    assert verdicts(reference, subject, lambda t: batch_norm(t, updates=False))[1].cause is Cause.WRONG
    assert verdicts(reference, subject, lambda t: batch_norm(t, uses_affine=False))[1].cause is Cause.WRONG


def argmax_subject() -> Subject:
    x, y = spec("x", (64, 300)), spec("y", (64,), DType.INT64)
    buffers = (
        Buffer("x", Role.INPUT, DType.FLOAT32, (64, 300)),
        Buffer("e", Role.SCRATCH, DType.FLOAT32, (64, 300)),
        Buffer("y", Role.OUTPUT, DType.INT64, (64,)),
    )
    steps = (
        Library("aten.exp.default", (Ref("x"),), (), ("e",)),
        Library("aten.argmax.default", (Ref("e"), 1), (), ("y",)),
    )
    return Subject("argmax", (x,), (), (y,), uniform(x), plan=Plan(buffers, steps))


def test_an_index_is_right_if_it_points_at_the_extreme(reference: ReferenceProcess) -> None:
    subject = argmax_subject()

    def last_of_equals(t: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": 299 - t["x"].flip(1).argmax(1)}

    full = verdicts(reference, subject, last_of_equals)[1]
    assert full.passed, full.detail
    for wrong in (lambda t: {"y": t["x"].argmin(1)}, lambda t: {"y": t["x"].argmax(1) + 300}, lambda t: {}):
        assert verdicts(reference, subject, wrong)[1].cause is Cause.WRONG


class Logarithm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.log() * torch.sqrt(x)


def test_operations_that_want_positive_inputs_get_them(reference: ReferenceProcess) -> None:
    x = spec("x", (64, 64))
    subject = Subject("log", (x,), (), (spec("y", (64, 64)),), uniform(x), module=Logarithm())
    full = verdicts(reference, subject, lambda t: {"y": torch.log(t["x"]) * t["x"].sqrt()})[1]
    assert full.passed, full.detail
    assert "normal|abs" in {case.case for case in full.cases}


class Constant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(torch.clamp(x, max=0.0), min=0.0) + torch.zeros_like(x)


def test_a_program_without_work_cannot_be_judged(reference: ReferenceProcess) -> None:
    x = spec("x", (64, 64))
    subject = Subject("constant", (x,), (), (spec("y", (64, 64)),), uniform(x), module=Constant())
    screen, full = verdicts(reference, subject, lambda t: {"y": torch.zeros(64, 64)})
    assert screen.cause is Cause.UNJUDGEABLE
    assert full.cause is Cause.UNJUDGEABLE
    assert "zero" in full.detail


class Relu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


def test_an_identity_is_no_relu_though_the_shipped_inputs_are_positive(reference: ReferenceProcess) -> None:
    x = spec("x", (64, 64))
    subject = Subject("relu", (x,), (), (spec("y", (64, 64)),), uniform(x), module=Relu())
    assert verdicts(reference, subject, lambda t: {"y": t["x"].clone()})[1].cause is Cause.WRONG
    full = verdicts(reference, subject, lambda t: {"y": t["x"].clamp(min=0)})[1]
    assert full.passed, full.detail
    assert {case.case for case in full.cases if case.set_aside} >= {"shipped"}


def test_little_time_means_fewer_cases_but_never_too_few(reference: ReferenceProcess) -> None:
    subject, backend = softmax_subject(), FakeBackend({"k": honest})
    judge = Judge(backend, reference, Precision.FP32, 6, preparation_seconds=0.0)  # type: ignore[arg-type]
    for _ in range(2):
        full = judge.verify(subject, candidate(subject, "k"), build(), final=False)
        assert full.passed
        assert len([case for case in full.cases if case.set_aside is None]) == 3
        assert any("no time" in (case.set_aside or "") for case in full.cases)


class Suicidal(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        return x


def test_only_the_failure_of_the_reference_leaves_the_judge(reference: ReferenceProcess) -> None:
    x = spec("x", (4, 4))
    subject = Subject("suicidal", (x,), (), (spec("y", (4, 4)),), uniform(x), module=Suicidal())
    with pytest.raises(ReferenceFailure):
        judge_of(reference, {"k": honest}).verify(subject, candidate(subject, "k"), build(), final=False)
    reference.forget("suicidal")
    assert verdicts(reference, softmax_subject(), honest)[1].passed


def slow(t: dict[str, Tensor]) -> dict[str, Tensor]:
    for _ in range(40):
        y = torch.softmax(t["x"], -1)
    return {"y": y}


def test_a_slower_candidate_is_measured_as_slower(reference: ReferenceProcess) -> None:
    subject, judge = softmax_subject(), judge_of(reference, {"k": slow})
    found = judge.compare(subject, candidate(subject, "k"), build(), final=False, seconds=2.0)
    assert isinstance(found, Comparison)
    assert found.speedup < 0.5
    assert not found.is_win
    assert found.ci95[0] <= found.speedup <= found.ci95[1]
    assert dict(found.baseline.environment)["baseline"] == "eager"
    assert found.candidate.protocol == "paired"


def test_timed_calls_have_to_be_the_checked_ones(reference: ReferenceProcess) -> None:
    subject, judge = softmax_subject(), judge_of(reference, {"k": WearingOut()})
    found = judge.compare(subject, candidate(subject, "k"), build(), final=False, seconds=1.0)
    assert isinstance(found, Verdict)
    assert found.cause is Cause.NONDETERMINISTIC
    failing = judge_of(reference, {"k": raising(RunFailure(Cause.CRASHED, "signal 11"))})
    found = failing.compare(subject, candidate(subject, "k"), build(), final=False, seconds=1.0)
    assert isinstance(found, Verdict)
    assert found.cause is Cause.CRASHED


def test_a_time_below_physics_is_suspect(reference: ReferenceProcess) -> None:
    subject = softmax_subject(Work(bytes_moved=10**9, flops=0))
    made = candidate(subject, "k")
    assert judge_of(reference, {"k": honest}, bandwidth=1e9).screen(subject, made, build())[0].cause is Cause.SUSPECT
    backend = FakeBackend({"k": honest}, bandwidth=1e9)
    quiet = FakeBackend({"k": honest}, bandwidth=1e15)
    judge = Judge(backend, reference, Precision.FP32, 5, remeasure=quiet.facts)  # type: ignore[arg-type]
    assert judge.screen(subject, made, build())[0].passed


def test_baselines_and_why_one_is_missing(reference: ReferenceProcess) -> None:
    subject, judge = softmax_subject(), judge_of(reference, {"k": honest})
    found = judge.baselines(subject, seconds=0.2)
    assert set(found) == {"eager"}
    assert found["eager"].median_ns > 0
    assert "compile" in judge.unavailable(subject)
