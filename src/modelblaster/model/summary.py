"""What a run found, and the result that it comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modelblaster.judge.physics import roofline_fraction
from modelblaster.records.events import Event, StepFinished
from modelblaster.records.result import UNCHANGED, Best, BestKind, CandidateCounts, Result, SlotResult, Speedup
from modelblaster.records.verdict import Cause, Stage, Verdict
from modelblaster.runs.state import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from modelblaster.model.proof import Proof
    from modelblaster.model.reference import Reference
    from modelblaster.records.facts import Facts
    from modelblaster.records.task import Task
    from modelblaster.records.timing import Timing
    from modelblaster.runs.run import Run
    from modelblaster.search.progress import SlotProgress


@dataclass(slots=True)
class Findings:
    """What has been found so far. `over_compiled` is there where torch.compile is the strongest baseline."""

    run: Run
    task: Task
    reference: Reference
    facts: Facts
    isolation: str
    eager: Timing | None = None
    compiled: Timing | None = None
    slots: Sequence[SlotProgress] = field(default_factory=list)
    counts: CandidateCounts = field(default_factory=CandidateCounts)
    refused: Verdict | None = None
    steps: int = 0
    proof: Proof | None = None
    over_compiled: float | None = None
    artifact: Path | None = None

    @property
    def is_win(self) -> bool:
        """Whether the program is right and faster than every baseline that could be measured."""
        is_beaten = self.over_compiled is not None and self.over_compiled < 1.0
        return self.proof is not None and self.proof.is_win and not is_beaten

    def count(self, event: Event) -> None:
        """Count a step's candidate."""
        if isinstance(event, StepFinished):
            self.counts = counted(self.counts, event.outcome)
            if not event.outcome.verdict.passed:
                self.refused = event.outcome.verdict


def summarize(findings: Findings, *, seconds: float) -> Result:
    """The result. A kept reference is exactly 1.0: it is never measured against itself."""
    best = _best(findings)
    return Result(
        run=findings.run.name,
        task=findings.task,
        size="shipped" if not findings.task.problem.overrides else "set",
        lint=(),
        verdict=_verdict(findings),
        eager=findings.eager,
        compiled=findings.compiled,
        best=best,
        speedup=_speedup(findings) if findings.is_win else UNCHANGED,
        roofline_fraction=_roofline(findings),
        candidates=findings.counts,
        steps=findings.steps,
        seconds=seconds,
        artifact=str(findings.artifact) if findings.artifact else None,
        isolation=findings.isolation,
        slots=tuple(_slots(findings)),
    )


def _best(findings: Findings) -> Best:
    proof = findings.proof
    if findings.is_win and proof is not None and proof.comparison is not None:
        timing = proof.comparison.candidate
        return Best(BestKind.KERNELS, timing.median_ns, timing.ci95_ns)
    timings = [timing for timing in (findings.eager,) if timing is not None]
    if not timings:
        return Best(BestKind.REFERENCE, 0.0, (0.0, 0.0))
    return Best(BestKind.REFERENCE, timings[0].median_ns, timings[0].ci95_ns)


def _speedup(findings: Findings) -> Speedup:
    assert findings.proof is not None
    assert findings.proof.comparison is not None
    comparison = findings.proof.comparison
    over_strongest = comparison.speedup if findings.over_compiled is None else findings.over_compiled
    return Speedup(comparison.speedup, comparison.ci95, over_strongest)


def _verdict(findings: Findings) -> Verdict:
    """The program's. Where the reference is kept, the sentence says why."""
    proof, reference = findings.proof, findings.reference
    if proof is not None and findings.is_win:
        return proof.verdict
    if findings.over_compiled is not None and proof is not None and proof.comparison is not None:
        gain = f"{proof.comparison.speedup:.2f} times as fast as eager, but torch.compile is faster"
        return Verdict(Cause.PASSED, Stage.SCREEN, f"the reference is kept: the best that was found is {gain}")
    if reference.captured is None:
        return Verdict(Cause.PASSED, Stage.SCREEN, f"the reference is kept: {reference.refusal}")
    if proof is not None and not proof.verdict.passed:
        return Verdict(Cause.PASSED, Stage.SCREEN, f"the reference is kept: the program was refused: {_words(proof)}")
    covered = [slot for slot in findings.slots if slot.slot.nest is not None]
    if not covered:
        return Verdict(Cause.PASSED, Stage.SCREEN, "the reference is kept: no emitter covers a part of the program")
    return Verdict(Cause.PASSED, Stage.SCREEN, f"the reference is kept: {_why_nothing(findings)}")


def _why_nothing(findings: Findings) -> str:
    if not findings.steps:
        return "there was no time to try anything"
    if not findings.counts.measured and findings.refused is not None:
        return f"nothing that was tried passed: {findings.refused.cause.value}, {findings.refused.detail}"
    if findings.proof is not None and findings.proof.comparison is None:
        return "there was no time to measure the whole program"
    return "nothing that was tried is surely faster"


def _words(proof: Proof) -> str:
    return f"{proof.verdict.cause.value}, {proof.verdict.detail}" if proof.verdict.detail else proof.verdict.cause.value


def _roofline(findings: Findings) -> float | None:
    work, subject = findings.reference.work, findings.reference.subject
    proof = findings.proof
    timing = proof.comparison.candidate if proof and findings.is_win and proof.comparison else findings.eager
    if work is None or subject is None or timing is None:
        return None
    cold = subject.set_bytes + sum(spec.nbytes for spec in subject.state)
    return min(1.0, roofline_fraction(timing, work, findings.facts, working_set_bytes=max(cold, 1), is_cold=True))


def _slots(findings: Findings) -> list[SlotResult]:
    times = {
        slot.key: slot.occurrences * slot.reference.median_ns for slot in findings.slots if slot.reference is not None
    }
    is_complete = len(times) == len(findings.slots)
    total = sum(times.values())
    return [
        SlotResult(
            key=slot.key,
            family=slot.family,
            occurrences=slot.occurrences,
            share=times[slot.key] / total if is_complete and total else None,
            reference_ns=slot.reference.median_ns if slot.reference else None,
            best_ns=slot.best.timing.median_ns if slot.best else None,
            technique=slot.best.candidate.technique or "default" if slot.best else None,
            steps=slot.visits,
            gain=slot.speedup if slot.best else 1.0,
        )
        for slot in findings.slots
    ]
