"""How long something took, with everything needed to compare it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall-clock time of one call. Only the judge writes one.

    `ci95_ns` is the bootstrap interval of the median; `protocol` names how it was taken (`screen`, `paired`), so that
    only like is compared with like; `environment` holds device, threads, versions as (key, value) pairs.
    """

    median_ns: float
    ci95_ns: tuple[float, float]
    samples_ns: tuple[float, ...]
    protocol: str
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Baseline over candidate, from paired blocks: 1.5 means that the candidate needs two thirds of the time."""

    baseline: Timing
    candidate: Timing
    speedup: float
    ci95: tuple[float, float]

    @property
    def is_win(self) -> bool:
        """Whether the whole interval lies above the noise margin (DESIGN section 9)."""
        return self.ci95[0] > WIN_MARGIN


WIN_MARGIN = 1.02
