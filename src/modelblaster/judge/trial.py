"""One candidate in one session: run on cases, compared, run again, and looked at after timing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from modelblaster.records.plan import Role
from modelblaster.records.verdict import CaseResult, Cause, Check

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from modelblaster.backends.interface import Backend, Build, RunFailure, Session
    from modelblaster.judge.evidence import Expected, Prepared
    from modelblaster.judge.subject import Subject
    from modelblaster.records.plan import Plan

Tensors = dict[str, torch.Tensor]


class Trial:
    """A candidate's plan in a session of the backend. Every method may raise RunFailure."""

    def __init__(
        self, backend: Backend, subject: Subject, plan: Plan, build: Build, *, sets: int, deadline_seconds: float
    ) -> None:
        self.sets = sets
        self._subject = subject
        self._plan = plan
        self._border = {buffer.name for buffer in plan.named(Role.INPUT, Role.PARAMETER, Role.MUTATED)}
        self._inputs = {buffer.name for buffer in plan.named(Role.INPUT)}
        self.session: Session = backend.open(plan, build, sets=sets, deadline_seconds=deadline_seconds)

    def __enter__(self) -> Trial:
        """The trial itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the session."""
        self.session.close()

    def run(self, tensors: Mapping[str, torch.Tensor]) -> Tensors:
        """Load everything into set 0, run once; the tensors are valid until the next call.

        Set 0 is used for every case, so that the same pointers get new contents each time.
        """
        self.session.load(0, {name: tensor for name, tensor in tensors.items() if name in self._border})
        self.session.setup()
        self.session.run(0)
        return self.session.outputs(0)

    def fill_ring(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy inputs into the other sets of the ring."""
        inputs = {name: tensor for name, tensor in tensors.items() if name in self._inputs}
        for index in range(1, self.sets):
            self.session.load(index, inputs)

    def judge(self, prepared: Prepared) -> tuple[CaseResult, Tensors]:
        """Run a case and compare; also the outputs (valid until the next call)."""
        outputs = self.run(prepared.tensors)
        return judged(prepared, outputs), outputs

    def repeats(self, prepared: Prepared, first: Mapping[str, torch.Tensor], times: int) -> str | None:
        """Run a case again: why it is not the same as before, or None.

        Bitwise, unless the plan declares itself nondeterministic: then each run has to be right.
        """
        for _ in range(times):
            outputs = self.run(prepared.tensors)
            if not self._plan.deterministic:
                result = judged(prepared, outputs)
                if result.cause is not Cause.PASSED:
                    return f"a repeated call is wrong: {result.detail}"
                continue
            difference = different(outputs, first)
            if difference is not None:
                return f"equal calls give different {difference}"
        return None

    def after_timing(self, first: Mapping[str, torch.Tensor], indices: tuple[int, ...]) -> str | None:
        """Whether timed calls on equal inputs left what an untimed call leaves: why not, or None."""
        if self._subject.mutated or not self._plan.deterministic:
            return None
        for index in indices:
            difference = different(self.session.outputs(index), first)
            if difference is not None:
                return f"a timed call left another {difference} than an untimed one"
        return None


def judged(prepared: Prepared, outputs: Mapping[str, torch.Tensor]) -> CaseResult:
    """Compare a candidate's outputs with what is expected of them."""
    case = prepared.case
    found: list[Check] = []
    cause, detail = Cause.PASSED, ""
    for expected in prepared.expected:
        value = outputs.get(expected.spec.name)
        problem = _form_problem(value, expected)
        if value is None or problem is not None:
            return CaseResult(case.name, case.seed, Cause.WRONG, tuple(found), detail=problem or "")
        is_finite, checks = expected.check(value)
        found += checks
        failed = [check for check in checks if not check.passed]
        if not is_finite:
            cause, detail = Cause.NONFINITE, f"{expected.spec.name} has values that are not finite"
        elif failed and cause is Cause.PASSED:
            cause, detail = Cause.WRONG, _words(failed[0])
        if cause is not Cause.PASSED:
            break
    return CaseResult(case.name, case.seed, cause, tuple(found), detail=detail)


def different(outputs: Mapping[str, torch.Tensor], first: Mapping[str, torch.Tensor]) -> str | None:
    """The first output that is not bitwise the same."""
    for name, value in first.items():
        if name not in outputs or not _same_bits(outputs[name], value):
            return name
    return None


def failed_case(prepared: Prepared, failure: RunFailure) -> CaseResult:
    """A case in which the candidate did not come to its end."""
    return CaseResult(prepared.case.name, prepared.case.seed, failure.cause, detail=failure.detail)


def _same_bits(value: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(value, other) or torch.equal(_bits(value), _bits(other))


def _bits(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous().reshape(-1).view(torch.uint8)


def _form_problem(value: torch.Tensor | None, expected: Expected) -> str | None:
    spec = expected.spec
    if value is None:
        return f"there is no output {spec.name}"
    dtype = str(value.dtype).removeprefix("torch.")
    if tuple(value.shape) != spec.shape or dtype != spec.dtype.value:
        return f"{spec.name} is {dtype} {tuple(value.shape)}, not {spec.dtype.value} {spec.shape}"
    return None


def _words(check: Check) -> str:
    return f"{check.name} error is {check.error:.2e}, allowed {check.allowed:.2e}"
