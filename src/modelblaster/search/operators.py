"""Which slot to work on: its share of the program's time, how often work on it came to nothing, and curiosity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelblaster.search.progress import SlotProgress

STALL_DECAY = 0.7
# Shares sum to 1, so a small weight is enough to visit every slot (research/paper.md, a.4).
EXPLORATION = 0.2


def shares(slots: Sequence[SlotProgress]) -> dict[str, float]:
    """Each slot's part of the program's time, with what is best for every slot now; all occurrences of it together."""
    times = {progress.key: progress.current_ns * progress.occurrences for progress in slots}
    total = sum(times.values())
    return {key: time / total if total else 0.0 for key, time in times.items()}


def score(share: float, stalls: int, visits: int, all_visits: int) -> float:
    """`share · d^stalls + c·sqrt(ln(1+N) / (1+n))`."""
    return share * STALL_DECAY**stalls + EXPLORATION * math.sqrt(math.log1p(all_visits) / (1 + visits))


def select(slots: Sequence[SlotProgress]) -> SlotProgress | None:
    """The open slot of the highest score, the first of equal ones; None if all are closed."""
    share = shares(slots)
    visits = sum(progress.visits for progress in slots)
    candidates = [progress for progress in slots if progress.is_open]
    return max(
        candidates,
        key=lambda progress: score(share[progress.key], progress.stalls, progress.visits, visits),
        default=None,
    )
