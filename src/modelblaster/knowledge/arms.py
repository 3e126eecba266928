"""Reward statistics of one technique in one state on one class of devices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ANY_DEVICE = "any"


@dataclass(frozen=True, slots=True)
class ArmStatistics:
    """Rewards so far: count, mean, sum of squared deviations (`m2`), best, and how many steps failed."""

    n: int = 0
    mean: float = 0.0
    m2: float = 0.0
    best: float = -math.inf
    failures: int = 0

    def with_reward(self, reward: float, *, is_failure: bool = False) -> ArmStatistics:
        """With one more reward (Welford's update)."""
        n = self.n + 1
        delta = reward - self.mean
        mean = self.mean + delta / n
        return ArmStatistics(
            n, mean, self.m2 + delta * (reward - mean), max(self.best, reward), self.failures + is_failure
        )

    def without(self, part: ArmStatistics) -> ArmStatistics:
        """What remains when a part of these rewards is taken out; `best` stays."""
        n = self.n - part.n
        if n <= 0:
            return ArmStatistics()
        mean = (self.n * self.mean - part.n * part.mean) / n
        m2 = self.m2 - part.m2 - (mean - part.mean) ** 2 * n * part.n / self.n
        return ArmStatistics(n, mean, max(m2, 0.0), self.best, self.failures - part.failures)


def pooled(arms: Iterable[ArmStatistics]) -> ArmStatistics:
    """All rewards of several arms as if they were one's (Chan's combination)."""
    total = ArmStatistics()
    for arm in arms:
        n = total.n + arm.n
        if arm.n == 0:
            continue
        delta = arm.mean - total.mean
        total = ArmStatistics(
            n,
            total.mean + delta * arm.n / n,
            total.m2 + arm.m2 + delta**2 * total.n * arm.n / n,
            max(total.best, arm.best),
            total.failures + arm.failures,
        )
    return total


def device_classes(backend: str, device: str) -> tuple[str, ...]:
    """The classes that a device's experience counts for, from the narrowest to the broadest."""
    return (f"{backend}/{device}", backend, ANY_DEVICE)
