"""Which technique to try in a state: an upper confidence bound over the rewards seen there (DESIGN section 8)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from modelblaster.knowledge.arms import ArmStatistics, pooled

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

    from modelblaster.knowledge.techniques import Technique

EXPLORATION = 1.0
LEAST_SCALE = 0.02
# What was seen on other devices counts as this many pulls.
PSEUDO_PULLS = 2


def rank(
    techniques: Sequence[Technique],
    arms: Mapping[str, ArmStatistics],
    broader: Mapping[str, ArmStatistics],
    generator: random.Random,
) -> tuple[Technique, ...]:
    """The techniques, best first.

    Those that nobody has tried come first, in their own order; the others follow by `mean + c·scale·sqrt(ln N / n)`,
    ties in an order drawn from `generator`.

    Args:
        techniques: what applies in the state, the most fitting first.
        arms: rewards in this state on this device, by technique.
        broader: rewards in this state elsewhere, for techniques where there are any.
        generator: seeded for this step.
    """
    felt = {technique.name: _with_prior(technique.name, arms, broader) for technique in techniques}
    unseen = [technique for technique in techniques if felt[technique.name].n == 0]
    seen = [technique for technique in techniques if felt[technique.name].n > 0]
    scale = reward_scale(felt.values())
    total = sum(arm.n for arm in felt.values())
    ties = {technique.name: generator.random() for technique in seen}
    seen.sort(key=lambda technique: (-bound(felt[technique.name], total, scale), ties[technique.name]))
    return (*unseen, *seen)


def bound(arm: ArmStatistics, total: int, scale: float) -> float:
    """The upper confidence bound of an arm with n > 0 among `total` pulls of its state."""
    return arm.mean + EXPLORATION * scale * math.sqrt(math.log(total) / arm.n)


def reward_scale(arms: Iterable[ArmStatistics]) -> float:
    """The standard deviation of a state's rewards, at least LEAST_SCALE."""
    total = pooled(arms)
    return max(LEAST_SCALE, math.sqrt(total.m2 / total.n)) if total.n else LEAST_SCALE


def _with_prior(name: str, arms: Mapping[str, ArmStatistics], broader: Mapping[str, ArmStatistics]) -> ArmStatistics:
    own = arms.get(name, ArmStatistics())
    elsewhere = broader.get(name)
    if elsewhere is None or elsewhere.n == 0:
        return own
    prior = ArmStatistics(PSEUDO_PULLS, elsewhere.mean, 0.0, elsewhere.best)
    return pooled((own, prior))
