"""Where values that live for a while lie in one pool of memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A value of `nbytes` that is needed from step `first` to step `last`, both included."""

    name: str
    nbytes: int
    first: int
    last: int


def lay_out(lifetimes: Sequence[Lifetime]) -> tuple[dict[str, int], int]:
    """Byte offsets by name, and the size of the pool.

    Largest first, each at the lowest place that is free over its whole life (Pisarchyk and Lee, 2020, "greedy by
    size": within a few percent of the best possible for networks).
    """
    placed: list[tuple[int, Lifetime]] = []
    for value in sorted(lifetimes, key=lambda value: (-value.nbytes, value.first)):
        offset = 0
        for start, other in sorted(placed, key=lambda pair: pair[0]):
            if other.last < value.first or value.last < other.first:
                continue
            if offset + value.nbytes <= start:
                break
            offset = max(offset, _aligned(start + other.nbytes))
        placed.append((offset, value))
    total = max((offset + _aligned(value.nbytes) for offset, value in placed), default=0)
    return {value.name: offset for offset, value in placed}, total


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
