"""What there is to see of a run at a moment, folded from its events; it knows nothing of terminals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modelblaster.records.events import (
    BaselineMeasured,
    RunStarted,
    SlotClosed,
    SlotImproved,
    SlotMeasured,
    SlotsCut,
    StepFinished,
    StepStarted,
)
from modelblaster.records.result import CandidateCounts
from modelblaster.report.words import slot_label
from modelblaster.runs.state import counted

if TYPE_CHECKING:
    from modelblaster.records.events import Event
    from modelblaster.records.outcome import Outcome


@dataclass(slots=True)
class SlotRow:
    """A slot: what it computes, its reference's time, and the best so far."""

    label: str
    family: str
    occurrences: int
    is_covered: bool
    reference_ns: float | None = None
    best_ns: float | None = None
    speedup: float = 1.0
    technique: str = ""
    steps: int = 0
    closed: str = ""

    @property
    def spent_ns(self) -> float | None:
        """The time of all its occurrences now."""
        now = self.best_ns or self.reference_ns
        return None if now is None else now * self.occurrences


@dataclass(slots=True)
class Picture:
    """A run at a moment. `seconds_left` is as of the last step's start."""

    task: str = ""
    device: str = ""
    slots: dict[str, SlotRow] = field(default_factory=dict)
    baselines: dict[str, BaselineMeasured] = field(default_factory=dict)
    current: StepStarted | None = None
    last: Outcome | None = None
    counts: CandidateCounts = field(default_factory=CandidateCounts)
    steps: int = 0

    def see(self, event: Event) -> None:
        """Take one event into the picture."""
        match event:
            case RunStarted():
                self.task, self.device = event.task.problem.location, event.device
            case SlotsCut():
                for slot in event.slots:
                    label = slot_label(slot.family, slot.operators)
                    # A resumed run cuts its slots again; what is known of them stays.
                    self.slots.setdefault(slot.key, SlotRow(label, slot.family, slot.occurrences, slot.is_covered))
            case BaselineMeasured():
                self.baselines[event.name] = event
            case StepStarted():
                self.current = event
            case StepFinished():
                self._finish(event.outcome)
            case SlotMeasured() | SlotImproved() | SlotClosed():
                self._see_slot(event)

    def row(self, slot: str) -> SlotRow:
        """A slot's row; an empty one for a slot that was not announced."""
        return self.slots.setdefault(slot, SlotRow(slot[:8], "", 1, is_covered=True))

    def label(self, slot: str) -> str:
        """What a slot is called."""
        return self.row(slot).label

    def estimate(self) -> float:
        """The program's speedup if every slot keeps its own: measured slots only, 1.0 if there are none."""
        rows = [row for row in self.slots.values() if row.reference_ns is not None]
        before = sum((row.reference_ns or 0.0) * row.occurrences for row in rows)
        after = sum(row.spent_ns or 0.0 for row in rows)
        return before / after if after else 1.0

    def _finish(self, outcome: Outcome) -> None:
        self.last = outcome
        self.steps = max(self.steps, outcome.step)
        self.counts = counted(self.counts, outcome)
        row = self.row(outcome.slot)
        row.steps += 1
        if outcome.kept:
            row.technique = outcome.technique

    def _see_slot(self, event: SlotMeasured | SlotImproved | SlotClosed) -> None:
        row = self.row(event.slot)
        match event:
            case SlotMeasured():
                row.reference_ns = event.timing.median_ns if event.timing else None
            case SlotImproved():
                row.speedup = event.speedup
                # In the units of the reference's own timing, so that sums over slots compare.
                reference = row.reference_ns or event.comparison.baseline.median_ns
                row.best_ns = reference / event.speedup
            case SlotClosed():
                row.closed = event.reason
