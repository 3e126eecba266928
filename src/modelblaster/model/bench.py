"""The search's bench: the judge and the backend, asked about slots."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modelblaster.judge.profile import profile
from modelblaster.judge.reference import ReferenceFailure
from modelblaster.program.assemble import assemble
from modelblaster.records.plan import Launch, Repeat
from modelblaster.records.verdict import Cause, Stage, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelblaster.backends.interface import Backend, Build
    from modelblaster.judge.judge import Judge
    from modelblaster.judge.subject import Subject
    from modelblaster.model.reference import Reference
    from modelblaster.program.slots import Slot
    from modelblaster.records.candidate import Candidate
    from modelblaster.records.plan import Step
    from modelblaster.records.profile import Profile
    from modelblaster.records.timing import Comparison, Timing

_REFERENCE_SECONDS = 0.5


class JudgeBench:
    """Implements `search.parts.Bench`."""

    def __init__(self, reference: Reference, judge: Judge, backend: Backend, *, compare_seconds: float) -> None:
        self._reference = reference
        self._judge = judge
        self._backend = backend
        self._compare_seconds = compare_seconds
        self._subjects: dict[str, Subject] = {}

    def reference(self, slot: Slot, seconds: float) -> Timing | None:
        """The time of a slot's library steps; None where they fail on their own."""
        try:
            return self._judge.eager(self._subject(slot), seconds=min(seconds, _REFERENCE_SECONDS))
        except ReferenceFailure:
            return None

    def build(self, slot: Slot, candidate: Candidate) -> Build:
        """Compile a candidate's sources."""
        return self._backend.build(candidate.sources)

    def screen(self, slot: Slot, candidate: Candidate, build: Build, seconds: float) -> tuple[Verdict, Timing | None]:
        """One case, and a quick time."""
        try:
            return self._judge.screen(self._subject(slot), self._whole(slot, candidate), build)
        except ReferenceFailure as failure:
            return _unanswered(failure, Stage.SCREEN), None

    def profile(self, slot: Slot, candidate: Candidate, build: Build, timing: Timing) -> Profile:
        """Metrics from the time, the nest's work and the device's ceilings."""
        assert slot.nest is not None
        subject = self._subject(slot)
        return profile(
            timing,
            slot.nest.work(),
            self._backend.facts(),
            launches=launches(candidate.plan.steps),
            vector_fraction=build.vector_fraction,
            working_set_bytes=self._judge.ring_bytes(subject),
        )

    def verify(self, slot: Slot, candidate: Candidate, build: Build, seconds: float) -> Verdict:
        """Every case."""
        try:
            return self._judge.verify(self._subject(slot), self._whole(slot, candidate), build, final=False)
        except ReferenceFailure as failure:
            return _unanswered(failure, Stage.FULL)

    def compare(self, slot: Slot, candidate: Candidate, build: Build, seconds: float) -> Comparison | Verdict:
        """Paired timing with the slot's library steps."""
        try:
            return self._judge.compare(
                self._subject(slot),
                self._whole(slot, candidate),
                build,
                final=False,
                seconds=min(seconds, self._compare_seconds),
            )
        except ReferenceFailure as failure:
            return _unanswered(failure, Stage.FULL)

    def _subject(self, slot: Slot) -> Subject:
        if slot.key not in self._subjects:
            whole = self._reference.subject if self._reference.is_one_slot else None
            self._subjects[slot.key] = whole or self._reference.slot_subject(slot)
        return self._subjects[slot.key]

    def _whole(self, slot: Slot, candidate: Candidate) -> Candidate:
        """The candidate as its subject knows it; claims stay, since the sources do."""
        if not self._reference.is_one_slot:
            return candidate
        assert self._reference.captured is not None
        program = assemble(self._reference.captured.plan, [slot], {slot.key: candidate}, author=candidate.author)
        return replace(program, claims=candidate.claims)


def launches(steps: Sequence[Step]) -> int:
    """Kernel launches in one call, repeats with a fixed count included."""
    count = 0
    for step in steps:
        if isinstance(step, Launch):
            count += 1
        elif isinstance(step, Repeat):
            count += launches(step.steps) * (step.count if isinstance(step.count, int) else 1)
    return count


def _unanswered(failure: ReferenceFailure, stage: Stage) -> Verdict:
    return Verdict(Cause.UNJUDGEABLE, stage, str(failure))
