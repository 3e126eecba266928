"""How much is left of what a person granted, counted from the start of the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelblaster.records.task import Budget as Granted

# A step may overrun the budget by this much, so that a candidate that was just built still gets its verdict.
GRACE_SECONDS = 5.0


class Budget:
    """Seconds and steps, whichever ends first; neither given means no end by itself.

    `started` is the clock's reading at the start of the command; `seconds_before` and `steps_before` were used by
    earlier commands of the same run.
    """

    def __init__(
        self,
        granted: Granted,
        clock: Callable[[], float],
        *,
        started: float | None = None,
        seconds_before: float = 0.0,
        steps_before: int = 0,
    ) -> None:
        self._granted = granted
        self._clock = clock
        self._started = clock() if started is None else started
        self._seconds_before = seconds_before
        self._steps = steps_before

    @property
    def steps(self) -> int:
        """Steps begun so far, those of earlier commands included."""
        return self._steps

    def elapsed(self) -> float:
        """Seconds used so far, those of earlier commands included."""
        return self._seconds_before + self._clock() - self._started

    def seconds_left(self) -> float | None:
        """Seconds left, not below 0; None without a limit."""
        return None if self._granted.seconds is None else max(0.0, self._granted.seconds - self.elapsed())

    def steps_left(self) -> int | None:
        """Steps left; None without a limit."""
        return None if self._granted.steps is None else max(0, self._granted.steps - self._steps)

    def is_spent(self) -> bool:
        """Whether no further step may begin."""
        return self.seconds_left() == 0 or self.steps_left() == 0

    def begin_step(self) -> int:
        """Count a step; its number, from 1."""
        self._steps += 1
        return self._steps

    def deadline(self, most_seconds: float) -> float:
        """Seconds that the work begun now may take: `most_seconds`, or what is left and a grace."""
        left = self.seconds_left()
        return most_seconds if left is None else min(most_seconds, left + GRACE_SECONDS)
