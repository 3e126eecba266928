"""Numbers and names as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))
_MOST_OPERATORS = 3


def duration(nanoseconds: float) -> str:
    """Three digits and a unit: `1.23 ms`."""
    for size, unit in _UNITS:
        if nanoseconds >= size * 0.9995:
            return f"{_three_digits(nanoseconds / size)} {unit}"
    return f"{nanoseconds:.0f} ns"


def timed(median_ns: float, ci95_ns: tuple[float, float]) -> str:
    """A time with its interval, all three in one unit: `1.23 ms [1.20, 1.31]`."""
    text = duration(median_ns)
    size = next((size for size, unit in _UNITS if text.endswith(f" {unit}")), 1.0)
    low, high = (_three_digits(bound / size) for bound in ci95_ns)
    return f"{text} [{low}, {high}]"


def count(number: int, what: str) -> str:
    """A number of things: `1 step`, `2 steps`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def times(speedup: float) -> str:
    """A speedup."""
    return f"{speedup:.2f}x"


def seconds(value: float) -> str:
    """A budget's seconds, as a clock shows them."""
    whole = max(0, round(value))
    return f"{whole} s" if whole < 120 else f"{whole // 60}:{whole % 60:02d} min"


def slot_label(family: str, operators: Sequence[str]) -> str:
    """A slot by what it computes: `_softmax`, `mul+add+gelu`."""
    names = [_short(operator) for operator in operators]
    if not names:
        return family
    more = f"+{len(names) - _MOST_OPERATORS} more" if len(names) > _MOST_OPERATORS else ""
    return "+".join(names[:_MOST_OPERATORS]) + more


def _short(operator: str) -> str:
    parts = operator.split(".")
    return parts[1] if len(parts) > 1 else operator


def _three_digits(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}"
