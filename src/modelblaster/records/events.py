"""What happens in a run, as records: the search emits them, journals and consoles read them."""

from __future__ import annotations

from dataclasses import dataclass

from modelblaster.records.outcome import Outcome
from modelblaster.records.result import Result
from modelblaster.records.task import Task
from modelblaster.records.timing import Comparison, Timing
from modelblaster.records.verdict import Verdict


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The first event of every run. `isolation` says how candidates are kept apart here."""

    run: str
    task: Task
    device: str
    isolation: str


@dataclass(frozen=True, slots=True)
class RunResumed:
    """A run goes on after it was interrupted; `seconds` and `steps` of its budget were used before."""

    run: str
    seconds: float
    steps: int


@dataclass(frozen=True, slots=True)
class SlotSummary:
    """A slot as people know it: `operators` are the overloads that it computes, in order."""

    key: str
    family: str
    occurrences: int
    is_covered: bool
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlotsCut:
    """The program was captured and cut."""

    slots: tuple[SlotSummary, ...]


@dataclass(frozen=True, slots=True)
class BaselineMeasured:
    """A comparator of the whole program (`eager`, `compile`); where it has no timing, `detail` says why."""

    name: str
    timing: Timing | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SlotMeasured:
    """The time of a slot's reference, as screening measures; where it has none, `detail` says why."""

    slot: str
    timing: Timing | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A candidate for a slot was chosen. `seconds_left` and `steps_left` are None where the budget has no such end."""

    step: int
    slot: str
    state: str
    technique: str
    candidate: str
    seconds_left: float | None
    steps_left: int | None


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A step is done; once this is written, it is never lost."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class SlotImproved:
    """A candidate became its slot's best. `comparison` is with what was best before, `speedup` over the reference."""

    slot: str
    candidate: str
    comparison: Comparison
    speedup: float


@dataclass(frozen=True, slots=True)
class SlotClosed:
    """No more steps on this slot, and why."""

    slot: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProgramVerified:
    """The whole program with its slots' best was judged. `candidate` is the assembled one's digest."""

    candidate: str
    verdict: Verdict
    comparison: Comparison | None


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The last event of a run that ended by itself."""

    result: Result


Event = (
    RunStarted
    | RunResumed
    | SlotsCut
    | BaselineMeasured
    | SlotMeasured
    | StepStarted
    | StepFinished
    | SlotImproved
    | SlotClosed
    | ProgramVerified
    | RunFinished
)
EVENTS: tuple[type[Event], ...] = (
    RunStarted,
    RunResumed,
    SlotsCut,
    BaselineMeasured,
    SlotMeasured,
    StepStarted,
    StepFinished,
    SlotImproved,
    SlotClosed,
    ProgramVerified,
    RunFinished,
)
