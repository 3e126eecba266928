"""What came of one run: the figures of the final table and of `--json`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from modelblaster.records.task import Task
from modelblaster.records.timing import Timing
from modelblaster.records.verdict import Verdict


class BestKind(StrEnum):
    """What a run ends with: the reference as it is, or a plan with kernels of its own."""

    REFERENCE = "reference"
    KERNELS = "kernels"


@dataclass(frozen=True, slots=True)
class Best:
    """The implementation that is handed out and its time for one call of the program."""

    kind: BestKind
    median_ns: float
    ci95_ns: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times faster the best is than what it is compared with; all are 1.0 for a kept reference.

    `over_strongest` is over the fastest baseline. `over_eager = algebra * kernel`: `algebra` is what exact rewrites
    gain when the library runs them, `kernel` the rest.
    """

    over_eager: float
    over_eager_ci95: tuple[float, float]
    over_strongest: float
    algebra: float = 1.0

    @property
    def kernel(self) -> float:
        """What kernels gained apart from algebra."""
        return self.over_eager / self.algebra


UNCHANGED = Speedup(over_eager=1.0, over_eager_ci95=(1.0, 1.0), over_strongest=1.0)


@dataclass(frozen=True, slots=True)
class CandidateCounts:
    """How many candidates got how far; `wrong` and `crashed` are those that were built and refused."""

    built: int = 0
    build_failed: int = 0
    wrong: int = 0
    crashed: int = 0
    measured: int = 0


@dataclass(frozen=True, slots=True)
class SlotResult:
    """One slot at the end, each time as screens measure it. `share` is its part of the reference's time, where known.

    `best_ns` is None where the library stays. `gain` is over the slot's library calls, timed in pairs, so it is not
    exactly the ratio of the two times, which were taken apart.
    """

    key: str
    family: str
    occurrences: int
    share: float | None
    reference_ns: float | None
    best_ns: float | None
    technique: str | None
    steps: int
    gain: float = 1.0


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that a person or a program is told about a run.

    `size` names the size profile; `verdict` is the whole program's. `eager` and `compiled` are the baselines, None
    where one could not be measured. `roofline_fraction` is the time of physics over the best's time. `artifact` is
    a path, None where nothing was written.
    """

    run: str
    task: Task
    size: str
    lint: tuple[str, ...]
    verdict: Verdict
    eager: Timing | None
    compiled: Timing | None
    best: Best
    speedup: Speedup
    roofline_fraction: float | None
    candidates: CandidateCounts
    steps: int
    seconds: float
    artifact: str | None
    isolation: str
    slots: tuple[SlotResult, ...] = ()
