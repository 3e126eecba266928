"""What is right for each case of a subject: computed once by the reference process, and kept while there is room."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from modelblaster.judge.cases import Case, Drawer, Kind, derived_seed
from modelblaster.judge.indices import IndexSource, index_check, index_source, operand_plan
from modelblaster.judge.reference import ReferenceFailure, ReferenceProcess
from modelblaster.judge.tolerance import (
    Allowance,
    Refusal,
    allowance,
    checks,
    exact_check,
    floor_of,
    zero_check,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from modelblaster.judge.subject import Subject
    from modelblaster.records.task import Precision
    from modelblaster.records.tensor import TensorSpec
    from modelblaster.records.verdict import Check

# The set of a reference that cases are computed in; timing uses the others.
CASE_SET = 0
_LIMIT_BYTES = 3 << 29
# Kinds whose shipped-like inputs may leave the output as it is: only there a second draw is worth its time.
_ASK_OTHER = (Kind.SHIPPED, Kind.NORMAL)


@dataclass(frozen=True, slots=True)
class Expected:
    """What one output of one case has to be.

    Floats have an allowance (None: the oracle is zero); integers have none and are compared exactly, or through the
    operand of the step that chose them.
    """

    spec: TensorSpec
    oracle: torch.Tensor
    eager: torch.Tensor | None
    allowed: Allowance | None
    floor: float
    source: IndexSource | None = None
    operand: torch.Tensor | None = None

    def check(self, value: torch.Tensor) -> tuple[bool, tuple[Check, ...]]:
        """Whether a candidate's tensor is finite, and its checks, named by the output."""
        is_finite, found = self._check(value)
        return is_finite, tuple(replace(check, name=f"{self.spec.name}: {check.name}") for check in found)

    def _check(self, value: torch.Tensor) -> tuple[bool, tuple[Check, ...]]:
        if value.numel() == 0:
            return True, ()
        if self.allowed is not None:
            return checks(value, self.oracle, self.allowed)
        assert self.eager is not None
        if self.spec.dtype.is_floating:
            return zero_check(value, self.eager)
        if self.source is not None and self.operand is not None:
            return True, index_check(value, self.oracle, self.eager, self.operand, self.source, self.floor)
        return exact_check(value, self.oracle, self.eager)


@dataclass(frozen=True, slots=True)
class Prepared:
    """One case, ready for candidates: its tensors and what is expected, or why it is set aside."""

    case: Case
    set_aside: str | None = None
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)
    expected: tuple[Expected, ...] = ()
    eager_seconds: float = 0.0

    @property
    def nbytes(self) -> int:
        """Memory that it holds."""
        kept = [*self.tensors.values()]
        for expected in self.expected:
            kept += [t for t in (expected.oracle, expected.eager, expected.operand) if t is not None]
        return sum(tensor.nbytes for tensor in kept)


class Evidence:
    """Prepared cases by subject, the least recently used ones forgotten where memory is short."""

    def __init__(
        self, reference: ReferenceProcess, precision: Precision, seed: int, *, limit_bytes: int = _LIMIT_BYTES
    ) -> None:
        self._reference = reference
        self._precision = precision
        self._seed = seed
        self._limit_bytes = limit_bytes
        self._drawers: dict[str, Drawer] = {}
        self._kept: OrderedDict[tuple[str, Case], Prepared] = OrderedDict()
        self.writes = 0

    def drawer(self, subject: Subject) -> Drawer:
        """What draws the subject's tensors.

        Raises:
            ReferenceFailure: the reference process cannot host the subject.
        """
        if subject.key not in self._drawers:
            settable = self._reference.subject(subject)
            frozen = frozenset(spec.name for spec in subject.state if spec.name not in settable)
            first = derived_seed(self._seed, "shipped", 1)
            self._drawers[subject.key] = Drawer(subject, first_seed=first, frozen=frozen)
        return self._drawers[subject.key]

    def has(self, subject: Subject, case: Case) -> bool:
        """Whether the case is at hand, so that asking for it costs nothing."""
        return (subject.key, case) in self._kept

    def prepared(self, subject: Subject, case: Case, *, keep: bool = True) -> Prepared:
        """The case with everything that is needed to judge it. `writes` counts how often the reference was reloaded.

        Raises:
            ReferenceFailure: the reference process died or hung.
        """
        found = self._kept.get((subject.key, case))
        if found is not None:
            self._kept.move_to_end((subject.key, case))
            return found
        found = self._prepare(subject, case)
        if keep:
            self._keep(subject.key, case, found)
        return found

    def _keep(self, key: str, case: Case, prepared: Prepared) -> None:
        self._kept[(key, case)] = prepared
        held = sum(entry.nbytes for entry in self._kept.values())
        while held > self._limit_bytes and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            held -= dropped.nbytes

    def _prepare(self, subject: Subject, case: Case) -> Prepared:
        first = self._attempt(subject, case)
        if first.set_aside is None or not _is_about_the_domain(first.set_aside) or case.kind is Kind.SHIPPED:
            return first
        return self._attempt(subject, case.absolute())

    def _attempt(self, subject: Subject, case: Case) -> Prepared:
        drawer = self.drawer(subject)
        tensors = drawer.draw(case)
        self.writes += 1
        try:
            self._reference.load(subject.key, CASE_SET, tensors)
            eager, seconds = self._reference.eager(subject.key, CASE_SET)
            oracle = self._reference.oracle(subject.key, CASE_SET)
            trivial = self._trivial(subject, case)
            operands = self._operands(subject, tensors)
        except ReferenceFailure as failure:
            if not failure.is_alive:
                raise
            return Prepared(case, set_aside=f"{_RAISED} {failure}")
        if any(not bool(operand.isfinite().all()) for _, operand in operands.values()):
            return Prepared(case, set_aside="what the indices are chosen from is not finite")
        mismatch = _mismatch(subject, eager, oracle)
        if mismatch is not None:
            return Prepared(case, set_aside=mismatch)
        return self._judged(subject, Prepared(case, None, tensors, (), seconds), eager, oracle, trivial, operands)

    def _judged(
        self,
        subject: Subject,
        prepared: Prepared,
        eager: Mapping[str, torch.Tensor],
        oracle: Mapping[str, torch.Tensor],
        trivial: Mapping[str, Mapping[str, torch.Tensor]],
        operands: Mapping[str, tuple[IndexSource, torch.Tensor]],
    ) -> Prepared:
        """Judge the reference as if it were a candidate."""
        expected: list[Expected] = []
        weak: list[str] = []
        proves = False
        for spec in subject.results:
            name, right = spec.name, oracle[spec.name]
            floor = floor_of(self._precision, spec.dtype)
            if not spec.dtype.is_floating or right.numel() == 0:
                source, operand = operands.get(name, (None, None))
                expected.append(Expected(spec, right, eager[name], None, floor, source, operand))
                proves = proves or (right.numel() > 0 and spec in subject.outputs)
                continue
            kept: Allowance | None = None
            answers = {which: values[name] for which, values in trivial.items() if name in values}
            found = allowance(eager[name], right, floor, {**_inputs_like(subject, prepared, spec), **answers})
            if isinstance(found, Refusal):
                if not found.is_weak:
                    return Prepared(prepared.case, set_aside=f"{name}: {found.reason}")
                weak.append(f"{name}: {found.reason}")
                kept = found.fallback
            else:
                kept, proves = found, True
            expected.append(Expected(spec, right, eager[name] if kept is None else None, kept, floor))
        if not proves:
            return Prepared(prepared.case, set_aside="; ".join(weak) or "there is no output")
        return replace(prepared, expected=tuple(expected))

    def _trivial(self, subject: Subject, case: Case) -> dict[str, dict[str, torch.Tensor]]:
        """The output for other inputs and the same parameters."""
        if case.kind not in _ASK_OTHER or case.label.startswith("secret") or not subject.inputs:
            return {}
        other = self.drawer(subject).draw(case.other())
        changed = {spec.name: other[spec.name] for spec in subject.inputs}
        self._reference.load(subject.key, CASE_SET, changed)
        return {"the output for another input": self._reference.eager(subject.key, CASE_SET)[0]}

    def _operands(
        self, subject: Subject, tensors: Mapping[str, torch.Tensor]
    ) -> dict[str, tuple[IndexSource, torch.Tensor]]:
        """For each index output, the float64 operand of the step that chose the indices."""
        found = {}
        for spec in subject.outputs:
            source = None if subject.plan is None or spec.dtype.is_floating else index_source(subject.plan, spec.name)
            if source is None or subject.plan is None:
                continue
            key = f"{subject.key}/operand/{spec.name}"
            self._reference.plan(key, operand_plan(subject.plan, source))
            self._reference.load(key, CASE_SET, tensors)
            (operand,) = self._reference.oracle(key, CASE_SET).values()
            self._reference.forget(key)
            found[spec.name] = (source, operand)
        return found


_RAISED = "the reference raised"


def _is_about_the_domain(reason: str) -> bool:
    """Whether positive inputs might help."""
    return reason.startswith(_RAISED) or "not finite" in reason


def _inputs_like(subject: Subject, prepared: Prepared, spec: TensorSpec) -> dict[str, torch.Tensor]:
    return {
        f"input {other.name}": prepared.tensors[other.name]
        for other in subject.inputs
        if other.shape == spec.shape and other.dtype.is_floating
    }


def _mismatch(subject: Subject, eager: Mapping[str, torch.Tensor], oracle: Mapping[str, torch.Tensor]) -> str | None:
    for spec in subject.results:
        for side, values in (("the reference", eager), ("the oracle", oracle)):
            if spec.name not in values:
                return f"{side} gives no {spec.name}"
            if tuple(values[spec.name].shape) != spec.shape:
                return f"{side} gives {spec.name} as {tuple(values[spec.name].shape)}, not {spec.shape}"
    return None
