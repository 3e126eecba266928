"""How far the search has come on each slot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelblaster.program.slots import Slot
    from modelblaster.records.candidate import Candidate
    from modelblaster.records.outcome import Outcome
    from modelblaster.records.profile import Profile
    from modelblaster.records.timing import Timing

# Moves start from the best and from the next best: two changes may only pay together.
MOST_STARTS = 3
# A slot of which the first candidates all fail has something that the emitter does not understand.
FAILURES_BEFORE_CLOSING = 4


@dataclass(frozen=True, slots=True)
class Standing:
    """An implementation that passed, with its time as screened and its profile."""

    candidate: Candidate
    timing: Timing
    profile: Profile | None


@dataclass(slots=True)
class SlotProgress:
    """One slot. `best` is what was kept, None while the reference is; `reached` all that passed, fastest first.

    `opener` is the first candidate that was tried: what moves start from while nothing has passed. `speedup` is the
    best's over the reference.
    """

    slot: Slot
    reference: Timing | None
    best: Standing | None = None
    speedup: float = 1.0
    reached: list[Standing] = field(default_factory=list)
    opener: Candidate | None = None
    tried: set[str] = field(default_factory=set)
    visits: int = 0
    stalls: int = 0
    failures: int = 0
    closed: str | None = None

    @property
    def key(self) -> str:
        """The slot's content key."""
        return self.slot.key

    @property
    def family(self) -> str:
        """The slot's family."""
        return self.slot.family

    @property
    def occurrences(self) -> int:
        """How often the program runs the slot."""
        return len(self.slot.occurrences)

    @property
    def is_open(self) -> bool:
        """Whether steps on it make sense."""
        return self.closed is None

    @property
    def current_ns(self) -> float:
        """The time of one occurrence with what is best now; 0 where the reference could not be measured."""
        if self.best is not None:
            return self.best.timing.median_ns
        return self.reference.median_ns if self.reference is not None else 0.0

    def starts(self) -> list[Standing]:
        """What moves start from: the best, then the fastest others."""
        others = [standing for standing in self.reached if standing is not self.best]
        return ([self.best] if self.best else []) + others[: MOST_STARTS - (self.best is not None)]

    def add(self, outcome: Outcome, candidate: Candidate) -> None:
        """Count one step on this slot."""
        self.visits += 1
        self.stalls = 0 if outcome.kept else self.stalls + 1
        self.tried.add(candidate.digest)
        self.opener = self.opener or candidate
        if not outcome.verdict.passed:
            self.failures += 1
            return
        if outcome.timing is None:
            return
        standing = Standing(candidate, outcome.timing, outcome.profile)
        self.reached.append(standing)
        self.reached.sort(key=lambda reached: reached.timing.median_ns)
        if outcome.kept:
            self.best = standing

    def hopeless(self) -> str | None:
        """Why the slot should be closed for its failures, if it should."""
        if not self.reached and self.failures >= FAILURES_BEFORE_CLOSING:
            return f"the first {self.failures} candidates all failed"
        return None
