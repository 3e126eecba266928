"""What a run had reached when it ended or was interrupted, told from its journal alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modelblaster.records.events import (
    BaselineMeasured,
    Event,
    RunFinished,
    RunStarted,
    SlotClosed,
    SlotImproved,
    SlotMeasured,
    StepFinished,
)
from modelblaster.records.result import CandidateCounts, Result
from modelblaster.records.verdict import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelblaster.records.outcome import Outcome
    from modelblaster.records.profile import Profile
    from modelblaster.records.task import Task
    from modelblaster.records.timing import Timing
    from modelblaster.runs.journal import Entry


@dataclass(frozen=True, slots=True)
class Reached:
    """An implementation of a slot that passed: the candidate's digest, its time as screened and its profile."""

    candidate: str
    timing: Timing
    profile: Profile | None


@dataclass(slots=True)
class SlotState:
    """One slot's progress. `reached` holds what passed, in the order of the steps; `best` what was kept last.

    `tried` are digests; `improved` the speedups over the reference that were announced, by digest.
    """

    reference: Timing | None = None
    best: Reached | None = None
    reached: list[Reached] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    visits: int = 0
    stalls: int = 0
    failures: int = 0
    closed: str | None = None
    improved: dict[str, float] = field(default_factory=dict)

    @property
    def speedup(self) -> float:
        """The best's over the reference: as timed in pairs, or as screened if that was not written any more."""
        if self.best is None:
            return 1.0
        screened = self.reference.median_ns / self.best.timing.median_ns if self.reference else 1.0
        return self.improved.get(self.best.candidate, screened)

    def add(self, outcome: Outcome) -> None:
        """Count one step."""
        self.visits += 1
        self.stalls = 0 if outcome.kept else self.stalls + 1
        self.failures += not outcome.verdict.passed
        self.tried.append(outcome.candidate)
        if outcome.verdict.passed and outcome.timing is not None:
            self.reached.append(Reached(outcome.candidate, outcome.timing, outcome.profile))
            if outcome.kept:
                self.best = self.reached[-1]


@dataclass(slots=True)
class RunState:
    """A run as its journal tells it. `seconds` of the budget are used, `steps` are finished."""

    run: str = ""
    task: Task | None = None
    seconds: float = 0.0
    steps: int = 0
    baselines: dict[str, BaselineMeasured] = field(default_factory=dict)
    slots: dict[str, SlotState] = field(default_factory=dict)
    counts: CandidateCounts = field(default_factory=CandidateCounts)
    last: Outcome | None = None
    result: Result | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the run ended by itself."""
        return self.result is not None

    def slot(self, key: str) -> SlotState:
        """The progress of one slot, empty if it was never worked on."""
        return self.slots.setdefault(key, SlotState())


def replay(entries: Iterable[Entry]) -> RunState:
    """The state after these entries."""
    state = RunState()
    for entry in entries:
        state.seconds = max(state.seconds, entry.seconds)
        _apply(state, entry.event)
    return state


def counted(counts: CandidateCounts, outcome: Outcome) -> CandidateCounts:
    """The counts with one more outcome."""
    cause = outcome.verdict.cause
    return CandidateCounts(
        built=counts.built + (cause is not Cause.BUILD_FAILED),
        build_failed=counts.build_failed + (cause is Cause.BUILD_FAILED),
        wrong=counts.wrong + (cause in _WRONG),
        crashed=counts.crashed + (cause in _CRASHED),
        measured=counts.measured + (outcome.timing is not None),
    )


_WRONG = frozenset({Cause.WRONG, Cause.NONFINITE, Cause.NONDETERMINISTIC, Cause.CLAIM_UNMET, Cause.SUSPECT})
_CRASHED = frozenset(
    {
        Cause.CRASHED,
        Cause.TIMEOUT,
        Cause.FORBIDDEN,
        Cause.OUT_OF_MEMORY,
        Cause.OUT_OF_BOUNDS,
        Cause.INPUT_WRITTEN,
    }
)


def _apply(state: RunState, event: Event) -> None:
    match event:
        case RunStarted():
            state.run, state.task = event.run, event.task
        case BaselineMeasured():
            state.baselines[event.name] = event
        case SlotMeasured():
            state.slot(event.slot).reference = event.timing
        case StepFinished():
            state.steps = max(state.steps, event.outcome.step)
            state.counts = counted(state.counts, event.outcome)
            state.last = event.outcome
            state.slot(event.outcome.slot).add(event.outcome)
        case SlotImproved():
            state.slot(event.slot).improved[event.candidate] = event.speedup
        case SlotClosed():
            state.slot(event.slot).closed = event.reason
        case RunFinished():
            state.result = event.result
