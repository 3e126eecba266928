"""The reward of a step: a number and a sentence (DESIGN section 8)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from modelblaster.records.verdict import Cause

if TYPE_CHECKING:
    from modelblaster.records.verdict import Verdict

LOWEST, HIGHEST = -1.0, 2.0
FAILURE = -0.5
# Neither says anything about the technique.
_NOT_ITS_FAULT = frozenset({Cause.UNJUDGEABLE})


def reward(verdict: Verdict, speedup: float | None) -> tuple[float | None, str]:
    """What a technique is credited with, and why; None where nothing was measured.

    Args:
        verdict: the judge's answer.
        speedup: the parent's time over the candidate's; None without a measurement.
    """
    if verdict.cause in _NOT_ITS_FAULT:
        return None, f"not judged: {verdict.detail or 'too few usable cases'}"
    if not verdict.passed:
        return FAILURE, f"{str(verdict.cause).replace('_', ' ')}: {verdict.detail}".rstrip(": ")
    if speedup is None or not speedup > 0.0 or math.isinf(speedup):
        return None, "right, and not measured"
    value = min(max(math.log(speedup), LOWEST), HIGHEST)
    return value, _sentence(speedup)


def _sentence(speedup: float) -> str:
    if speedup >= 1.0:
        return f"{speedup:.2f} times as fast as its parent"
    return f"slower than its parent: {1 / speedup:.2f} times its time"
