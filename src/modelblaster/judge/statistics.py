"""Medians and intervals of timings: few samples, long tails, no assumption about their shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Resamples of a bootstrap: more would move a 95 % bound by less than the noise of the samples themselves.
RESAMPLES = 1000
FEWEST_SAMPLES = 5


def median(samples: Sequence[float]) -> float:
    """The median.

    Raises:
        ValueError: there are no samples.
    """
    if not samples:
        raise ValueError("the median of no samples")
    return float(np.median(np.asarray(samples, dtype=np.float64)))


def interval(samples: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """The bootstrap 95 % interval of the median; the same samples and seed give the same interval."""
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("the interval of no samples")
    return _bounds(_resampled_medians(values, seed))


def ratio(
    baseline: Sequence[Sequence[float]], candidate: Sequence[Sequence[float]], *, seed: int = 0
) -> tuple[float, tuple[float, float]]:
    """How many times faster the candidate is, with the 95 % interval, from blocks measured in turn.

    Each pair of neighbouring blocks gives one ratio of medians, so that a machine that slows down for a while slows
    both sides of a pair; the pairs are what is resampled. With a single pair, the samples inside it are resampled.
    Fewer than FEWEST_SAMPLES on a side prove nothing, and the interval says so: it has no end.

    Raises:
        ValueError: no blocks, or not as many on both sides.
    """
    if len(baseline) != len(candidate) or not baseline:
        raise ValueError("paired blocks are needed on both sides")
    if min(sum(map(len, baseline)), sum(map(len, candidate))) < FEWEST_SAMPLES:
        values = [median([sample for block in side for sample in block]) for side in (baseline, candidate)]
        return values[0] / values[1], (0.0, math.inf)
    if len(baseline) == 1:
        return _ratio_of_samples(baseline[0], candidate[0], seed)
    pairs = np.log([median(a) / median(b) for a, b in zip(baseline, candidate, strict=True)])
    low, high = _bounds(np.exp(_resampled_medians(pairs, seed)))
    return float(np.exp(np.median(pairs))), (low, high)


def _ratio_of_samples(
    baseline: Sequence[float], candidate: Sequence[float], seed: int
) -> tuple[float, tuple[float, float]]:
    left = _resampled_medians(np.asarray(baseline, dtype=np.float64), seed)
    right = _resampled_medians(np.asarray(candidate, dtype=np.float64), seed + 1)
    return median(baseline) / median(candidate), _bounds(left / right)


def _resampled_medians(values: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    generator = np.random.default_rng(seed)
    chosen = generator.integers(0, values.size, size=(RESAMPLES, values.size))
    medians: NDArray[np.float64] = np.median(values[chosen], axis=1)
    return medians


def _bounds(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
