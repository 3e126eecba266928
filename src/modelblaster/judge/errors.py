"""How far a tensor is from its float64 oracle: over the whole, and over every run of its last axes.

Everything is relative to the oracle's own size, so that no absolute allowance can swallow small outputs. The work is
done in tiles that fit the cache: the difference in float64, its statistics in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# A run is made of as many last axes as it takes to reach this many elements: below, an RMS error is a matter of luck.
RUN_ELEMENTS = 256
# A run's scale is at least this share of the whole's, so that runs that are exactly zero do not divide by zero.
SMALLEST_RUN = 1e-12
# Oracle values up to this size are left out of the element-wise quantiles: float32 has no precision left there.
SMALLEST_ELEMENT = 1e-36
# Runs with fewer elements than this that count have no quantiles of their own.
QUANTILE_ELEMENTS = 32

_TILE = 1 << 18
_SAMPLE_STEP = 31
_SAMPLE_ELEMENTS = 1 << 17


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of an oracle: its RMS, how it falls into runs, and each run's RMS as a share of the whole's.

    `counted` is how many elements of each run are large enough for the element-wise quantiles.
    """

    rms: float
    runs: int
    length: int
    run_rms: torch.Tensor
    counted: torch.Tensor


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of one tensor, as shares of the whole's or the run's scale; `is_finite` is false where a value is not.

    `sample` holds relative errors |y - o| / |o| of a part of the elements; `over[i]` counts, for each run, the elements
    whose relative error is above the i-th threshold that was asked for.
    """

    is_finite: bool
    rms: float
    maximum: float
    run_rms: torch.Tensor
    run_max: torch.Tensor
    sample: torch.Tensor
    over: tuple[torch.Tensor, ...]

    def quantile(self, share: float) -> float:
        """The relative error that this share of the sampled elements does not exceed."""
        count = self.sample.numel()
        if count == 0:
            return 0.0
        return float(self.sample.kthvalue(max(1, math.ceil(share * count))).values)


def run_length(shape: tuple[int, ...]) -> int:
    """Elements of the shortest run of last axes that is long enough; the whole tensor where none is."""
    length = 1
    for size in reversed(shape):
        length *= size
        if length >= RUN_ELEMENTS:
            break
    return max(length, 1)


def scale_of(oracle: torch.Tensor) -> Scale:
    """The scale of an oracle (float64, any shape, not empty)."""
    length = run_length(tuple(oracle.shape))
    table = oracle.reshape(-1, length)
    runs = table.shape[0]
    square = torch.zeros(runs, dtype=torch.float64)
    counted = torch.zeros(runs)
    for rows, columns in _tiles(runs, length):
        tile = table[rows, columns]
        square[rows] += torch.linalg.vector_norm(tile, dim=1).square_()
        counted[rows] += tile.abs().gt_(SMALLEST_ELEMENT).sum(1).float()
    rms = math.sqrt(float(square.sum()) / (runs * length))
    run_rms = (square / length).sqrt_()
    share = run_rms / rms if rms > 0.0 else torch.ones_like(run_rms)
    return Scale(rms, runs, length, share.clamp_(min=SMALLEST_RUN), counted)


def measure(value: torch.Tensor, oracle: torch.Tensor, scale: Scale, thresholds: Sequence[float] = ()) -> Errors:
    """The errors of a float tensor against its oracle of the same shape, whose scale is not zero."""
    left = value.reshape(scale.runs, scale.length)
    right = oracle.reshape(scale.runs, scale.length)
    square = torch.zeros(scale.runs, dtype=torch.float64)
    maximum = torch.zeros(scale.runs)
    over = tuple(torch.zeros(scale.runs) for _ in thresholds)
    samples: list[torch.Tensor] = []
    smallest = max(SMALLEST_ELEMENT / scale.rms, 1e-37)
    step = _SAMPLE_STEP if value.numel() > _SAMPLE_ELEMENTS else 1
    tile = _Tile(1.0 / scale.rms)
    for rows, columns in _tiles(scale.runs, scale.length):
        error, size = tile.load(left[rows, columns], right[rows, columns])
        square[rows] += torch.linalg.vector_norm(error, dim=1).double().square_()
        maximum[rows] = torch.maximum(maximum[rows], error.amax(1))
        size.masked_fill_(size <= smallest, math.inf)
        samples.append(_sampled(error, size, step))
        for count, threshold in zip(over, thresholds, strict=True):
            count[rows] += tile.count(size, error, threshold)
    whole = math.sqrt(max(float(square.sum()), 0.0) / (scale.runs * scale.length))
    is_finite = math.isfinite(whole) or bool(torch.isfinite(value).all())
    run_rms = (square / scale.length).sqrt_() / scale.run_rms
    run_max = maximum.double() / scale.run_rms
    return Errors(is_finite, whole, float(maximum.max()), run_rms, run_max, torch.cat(samples), over)


def relative(value: torch.Tensor, oracle: torch.Tensor, scale: Scale, rows: torch.Tensor) -> torch.Tensor:
    """Relative errors of the elements that count, for some runs only; infinite sizes give 0."""
    exact = oracle.reshape(scale.runs, scale.length)[rows]
    error = (value.reshape(scale.runs, scale.length)[rows].double() - exact).abs_()
    size = exact.abs()
    return torch.where(size > SMALLEST_ELEMENT, error / size, math.nan)


class _Tile:
    """Scratch memory for one tile, so that measuring allocates nothing per tile."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._wide = torch.empty(_TILE, dtype=torch.float64)
        self._narrow = torch.empty(3, _TILE)

    def load(self, value: torch.Tensor, exact: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """|value - exact| and |exact| in float32, in units of the whole's scale; valid until the next tile."""
        count, shape = exact.numel(), exact.shape
        wide = self._wide[:count].view(shape)
        error, size = self._narrow[0, :count].view(shape), self._narrow[1, :count].view(shape)
        error.copy_(torch.sub(value, exact, out=wide).mul_(self._factor)).abs_()
        size.copy_(torch.mul(exact, self._factor, out=wide)).abs_()
        return error, size

    def count(self, size: torch.Tensor, error: torch.Tensor, threshold: float) -> torch.Tensor:
        """Per run, how many errors are above a share of the size (sums of 0.0 and 1.0: counting bools is slow)."""
        limits = torch.mul(size, threshold, out=self._narrow[2, : size.numel()].view(size.shape))
        return limits.lt_(error).sum(1)


def _sampled(error: torch.Tensor, size: torch.Tensor, step: int) -> torch.Tensor:
    """Relative errors of every `step`-th element, without those that do not count."""
    chosen, sizes = error.flatten()[::step], size.flatten()[::step]
    return (chosen / sizes)[torch.isfinite(sizes)]


def _tiles(runs: int, length: int) -> Iterator[tuple[slice, slice]]:
    """Pieces of a (runs, length) table, some whole runs or a part of one each."""
    height = max(1, _TILE // length)
    width = min(length, _TILE)
    for top in range(0, runs, height):
        for left in range(0, length, width):
            yield slice(top, min(top + height, runs)), slice(left, min(left + width, length))
