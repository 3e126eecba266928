"""How baseline and candidate are timed: in turn, in blocks, on rings of buffers larger than the last-level cache."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelblaster.judge import statistics
from modelblaster.records.timing import Comparison, Timing

if TYPE_CHECKING:
    from modelblaster.records.facts import Facts

# Samples, calls a sample: nanoseconds a call.
Take = Callable[[int, int], Sequence[float]]

# A ring holds this many times the last-level cache, so that a call finds nothing of the previous round.
RING_CACHES = 2.0
MAX_SETS = 32
MAX_RING_BYTES = 1 << 30
# Shorter calls are timed several at once: a clock reading and a message cost a good part of a microsecond.
SHORTEST_SAMPLE_NS = 50_000.0
# A block lasts about this long, so that both sides of a pair see the same machine.
BLOCK_SECONDS = 0.06
MIN_PAIRS = 6
MAX_PAIRS = 60
# The half width of the ratio's interval at which more samples would not change what is decided.
TIGHT = 0.01


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a timing says about itself."""

    name: str
    environment: tuple[tuple[str, str], ...]
    seed: int = 0


def sets_for(bytes_per_set: int, facts: Facts, *, max_bytes: int = MAX_RING_BYTES) -> int:
    """Sets of inputs and outputs in a ring, so that walking around it leaves the last-level cache cold.

    At most 32 sets, and as many as fit `max_bytes` (but one): tiny calls stay warm, on both sides alike.
    """
    if bytes_per_set <= 0:
        return 1
    wanted = math.ceil(RING_CACHES * facts.last_level_bytes / bytes_per_set)
    return max(1, min(wanted, MAX_SETS, max_bytes // bytes_per_set))


def calls_for(nanoseconds: float) -> int:
    """Calls in one sample, so that a sample is not shorter than the clock deserves."""
    return max(1, min(1000, math.ceil(SHORTEST_SAMPLE_NS / max(nanoseconds, 1.0))))


def timing(samples: Sequence[float], protocol: Protocol) -> Timing:
    """A record of samples with their median and its interval."""
    interval = statistics.interval(samples, seed=protocol.seed)
    return Timing(statistics.median(samples), interval, tuple(samples), protocol.name, protocol.environment)


def paired(
    baseline: Take,
    candidate: Take,
    *,
    seconds: float,
    protocol: Protocol,
    baseline_environment: tuple[tuple[str, str], ...] = (),
    clock: Callable[[], float] = time.monotonic,
) -> Comparison:
    """Compare two sides in alternating blocks until the ratio is known well enough or the time is up.

    `seconds` bound both sides together, warm-up included; at least one pair is taken. Every second pair starts with the
    other side, so that a drift does not favour one.
    """
    end = clock() + seconds
    sides = (baseline, candidate)
    first = [statistics.median(side(2, 1)) for side in sides]
    calls = [calls_for(duration) for duration in first]
    counts = [_block_samples(duration * repeat, seconds) for duration, repeat in zip(first, calls, strict=True)]
    for side, repeat in zip(sides, calls, strict=True):
        side(1, repeat)
    blocks: tuple[list[Sequence[float]], list[Sequence[float]]] = ([], [])
    while len(blocks[0]) < MAX_PAIRS:
        order = (0, 1) if len(blocks[0]) % 2 == 0 else (1, 0)
        start = clock()
        for index in order:
            blocks[index].append(sides[index](counts[index], calls[index]))
        if clock() + (clock() - start) > end or _is_tight(blocks, protocol.seed):
            break
    speedup, interval = statistics.ratio(blocks[0], blocks[1], seed=protocol.seed)
    records = [timing([sample for block in side for sample in block], protocol) for side in blocks]
    base = Timing(
        records[0].median_ns, records[0].ci95_ns, records[0].samples_ns, protocol.name,
        protocol.environment + baseline_environment,
    )  # fmt: skip
    return Comparison(base, records[1], speedup, interval)


def _block_samples(sample_ns: float, seconds: float) -> int:
    """Samples in a block: three to nine where the time allows it."""
    affordable = seconds / (2.0 * MIN_PAIRS) / (sample_ns * 1e-9)
    return max(1, min(9, max(3, math.ceil(BLOCK_SECONDS / (sample_ns * 1e-9))), math.floor(affordable)))


def _is_tight(blocks: tuple[list[Sequence[float]], list[Sequence[float]]], seed: int) -> bool:
    if len(blocks[0]) < MIN_PAIRS:
        return False
    value, (low, high) = statistics.ratio(blocks[0], blocks[1], seed=seed)
    return (high - low) / 2.0 < TIGHT * value
