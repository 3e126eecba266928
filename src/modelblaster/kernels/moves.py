"""Techniques as moves of the scripted actor: from one schedule to its legal neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from modelblaster.kernels.ir import Nest
from modelblaster.kernels.schedule import COLUMN, MAX_UNROLL, ROW, Schedule, is_legal
from modelblaster.records.facts import Facts

Move = Callable[[Nest, Schedule, Facts], tuple[Schedule, ...]]


def _legal(nest: Nest, schedule: Schedule, facts: Facts, neighbours: Iterable[Schedule]) -> tuple[Schedule, ...]:
    """The legal ones that differ from the schedule, each once."""
    fitted = (_fitted(neighbour) for neighbour in neighbours)
    unique = dict.fromkeys(n for n in fitted if n != schedule)
    return tuple(n for n in unique if is_legal(nest, n, facts))


def _fitted(schedule: Schedule) -> Schedule:
    """The block as a multiple of the unrolled step."""
    step = schedule.lanes * schedule.unroll
    return replace(schedule, block=max(1, schedule.block // step) * step)


def vectorize(nest: Nest, schedule: Schedule, facts: Facts) -> tuple[Schedule, ...]:
    """Wider vectors, then narrower ones."""
    return _legal(
        nest, schedule, facts, (replace(schedule, lanes=n) for n in (schedule.lanes * 2, schedule.lanes // 2))
    )


def unroll(nest: Nest, schedule: Schedule, facts: Facts) -> tuple[Schedule, ...]:
    """More independent accumulators, then fewer."""
    counts = (schedule.unroll * 2, schedule.unroll // 2)
    return _legal(nest, schedule, facts, (replace(schedule, unroll=n) for n in counts if 1 <= n <= MAX_UNROLL))


def change_grain(nest: Nest, schedule: Schedule, facts: Facts) -> tuple[Schedule, ...]:
    """Larger and smaller pieces of work for a thread: more units, or longer blocks of a map."""
    grains = [replace(schedule, grain=max(1, g)) for g in (schedule.grain * 4, schedule.grain // 4)]
    blocks = [] if nest.reduced else [replace(schedule, block=b) for b in (schedule.block * 4, schedule.block // 4)]
    return _legal(nest, schedule, facts, [*grains, *blocks])


def stream_stores(nest: Nest, schedule: Schedule, facts: Facts) -> tuple[Schedule, ...]:
    """Stores past the caches: saves reading each line before it is overwritten."""
    return _legal(nest, schedule, facts, [replace(schedule, stream=True)])


def cached_stores(nest: Nest, schedule: Schedule, facts: Facts) -> tuple[Schedule, ...]:
    """Stores through the caches: right when what comes next reads the output."""
    return _legal(nest, schedule, facts, [replace(schedule, stream=False)])


def online_reduction(nest: Nest, schedule: Schedule, facts: Facts) -> tuple[Schedule, ...]:
    """Maximum and sum of exponentials in one pass over memory."""
    return _legal(nest, schedule, facts, [replace(schedule, online=True, keep=False, pieces=1)])


def separate_passes(nest: Nest, schedule: Schedule, facts: Facts) -> tuple[Schedule, ...]:
    """One pass for each reduction: less arithmetic, right when a row stays in cache."""
    return _legal(nest, schedule, facts, [replace(schedule, online=False)])


def cache_rows(nest: Nest, schedule: Schedule, facts: Facts) -> tuple[Schedule, ...]:
    """Keep expensive elements in fast memory between the passes."""
    return _legal(nest, schedule, facts, [replace(schedule, keep=True, online=False, pieces=1)])


def recompute(nest: Nest, schedule: Schedule, facts: Facts) -> tuple[Schedule, ...]:
    """Compute elements again in each pass: less memory traffic where arithmetic is free."""
    return _legal(nest, schedule, facts, [replace(schedule, keep=False)])


def split_reduction(nest: Nest, schedule: Schedule, facts: Facts) -> tuple[Schedule, ...]:
    """Cut long rows into pieces for more threads than there are rows; more or fewer pieces."""
    counts = [2 * facts.threads] if schedule.pieces == 1 else [schedule.pieces * 2, schedule.pieces // 2]
    base = replace(schedule, keep=False, online=False)
    return _legal(nest, schedule, facts, (replace(base, pieces=max(1, n)) for n in counts))


def single_pass(nest: Nest, schedule: Schedule, facts: Facts) -> tuple[Schedule, ...]:
    """Whole rows in one launch."""
    return _legal(nest, schedule, facts, [replace(schedule, pieces=1)])


def turn_lanes(nest: Nest, schedule: Schedule, facts: Facts) -> tuple[Schedule, ...]:
    """Lanes along the other kind of axis: rows side by side, or elements of one row."""
    return _legal(
        nest, schedule, facts, [replace(schedule, mode=ROW if schedule.mode == COLUMN else COLUMN, keep=False)]
    )


MOVES: Mapping[str, Move] = {
    "vectorize": vectorize,
    "unroll": unroll,
    "change grain": change_grain,
    "streaming stores": stream_stores,
    "cached stores": cached_stores,
    "online reduction": online_reduction,
    "separate passes": separate_passes,
    "cache rows": cache_rows,
    "recompute": recompute,
    "split reduction": split_reduction,
    "single pass": single_pass,
    "turn lanes": turn_lanes,
}
"""Every move of these families by the name that techniques use."""

CLAIMS: Mapping[str, tuple[str, ...]] = {
    "vectorize": ("wide_simd",),
    "streaming stores": ("streaming_stores",),
}
"""What the object built after a move must show; the judge checks it."""
