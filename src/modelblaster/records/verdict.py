"""Whether a candidate computes the same thing, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Why a verdict is what it is."""

    PASSED = "passed"
    BUILD_FAILED = "build_failed"
    CLAIM_UNMET = "claim_unmet"
    WRONG = "wrong"
    NONFINITE = "nonfinite"
    NONDETERMINISTIC = "nondeterministic"
    OUT_OF_BOUNDS = "out_of_bounds"
    INPUT_WRITTEN = "input_written"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    FORBIDDEN = "forbidden"
    OUT_OF_MEMORY = "out_of_memory"
    SUSPECT = "suspect"
    UNJUDGEABLE = "unjudgeable"


class Stage(StrEnum):
    """How much was checked: one case, every case, or every case and the finalist's secret seeds."""

    SCREEN = "screen"
    FULL = "full"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Check:
    """One measured error beside what was allowed."""

    name: str
    error: float
    allowed: float

    @property
    def passed(self) -> bool:
        """Whether the error is within the allowance (NaN is not)."""
        return self.error <= self.allowed


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One input case: its checks for every output, or the reason why it was set aside."""

    case: str
    seed: int
    cause: Cause
    checks: tuple[Check, ...] = ()
    set_aside: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's answer. `detail` says in one sentence what went wrong."""

    cause: Cause
    stage: Stage
    detail: str = ""
    cases: tuple[CaseResult, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the candidate may be used."""
        return self.cause is Cause.PASSED
