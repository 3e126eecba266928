"""How a nest is run: a small frozen record, what is legal, and a default that is already good."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from modelblaster.kernels.ir import Load
from modelblaster.kernels.layout import width
from modelblaster.kernels.passes import Shape, cacheable, is_online_possible

if TYPE_CHECKING:
    from modelblaster.kernels.ir import Nest, Store
    from modelblaster.records.facts import Facts

ROW, COLUMN = "row", "column"
MAX_UNROLL = 16
PAGE_BYTES = 4096
SPLIT_POINTS = 32768
"""Points of a domain from which another launch (a few microseconds) is worth a second thread."""
MIN_BLOCK, MAX_BLOCK = 256, 1 << 20
PIECE_BYTES = 64 << 10
"""Bytes that one piece of work handed to a thread should move: large enough to hide the hand-out (about 100 ns)."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Choices for one nest.

    `mode`: lanes lie along the innermost reduced axis (`row`; maps too) or along a parallel axis with the reduced axes
    looped outside (`column`). `lanes`: elements of a vector. `unroll`: independent accumulators, or vectors a step.
    `block`: elements of a map's innermost axis in one unit. `grain`: units in one piece of work. `stream`: stores of
    elements bypass the caches. `online`: the maximum and the sum of exponentials in one pass over memory. `keep`:
    expensive elements are kept in fast memory for the next pass. `pieces`: parts that a reduction is split into.
    """

    mode: str
    lanes: int
    unroll: int = 4
    block: int = 4096
    grain: int = 1
    stream: bool = False
    online: bool = False
    keep: bool = False
    pieces: int = 1


def to_text(schedule: Schedule) -> str:
    """A schedule as JSON."""
    return json.dumps(asdict(schedule), sort_keys=True)


def from_text(text: str) -> Schedule:
    """The schedule that a JSON text holds.

    Raises:
        ValueError: the text is no JSON object with exactly the fields of a schedule, or a field has another type.
    """
    data: Any = json.loads(text)
    names = {field.name: field.type for field in fields(Schedule)}
    if not isinstance(data, dict) or set(data) != set(names):
        raise ValueError(f"not a schedule: {text}")
    for name, kind in names.items():
        if type(data[name]).__name__ != kind:
            raise ValueError(f"not a schedule: {name} is {data[name]!r}")
    return Schedule(**data)


def most_lanes(nest: Nest, facts: Facts) -> int:
    """Lanes of the widest vector for this nest's types."""
    return max(1, facts.vector_bytes // width(nest))


def is_legal(nest: Nest, schedule: Schedule, facts: Facts) -> bool:
    """Whether the emitter can write this schedule for this nest, and it makes sense on this device."""
    return _is_well_formed(nest, schedule, facts) and _options_are_legal(nest, schedule, facts)


def _is_well_formed(nest: Nest, schedule: Schedule, facts: Facts) -> bool:
    lanes, step = schedule.lanes, max(1, schedule.lanes * schedule.unroll)
    has_rows = bool(nest.reduced) and len(nest.reduced) < len(nest.axes)
    return (
        (schedule.mode == ROW or (schedule.mode == COLUMN and has_rows))
        and 2 <= lanes <= most_lanes(nest, facts)
        and lanes & (lanes - 1) == 0
        and 1 <= schedule.unroll <= MAX_UNROLL
        and schedule.grain >= 1
        and MIN_BLOCK <= schedule.block <= MAX_BLOCK
        and schedule.block % step == 0
    )


def _options_are_legal(nest: Nest, schedule: Schedule, facts: Facts) -> bool:
    whole = schedule.pieces == 1
    return (
        (not schedule.stream or has_wide_stores(nest))
        and (not schedule.online or (is_online_possible(nest) and whole and not schedule.keep))
        and (not schedule.keep or is_keep_legal(nest, schedule, facts))
        and (whole or (bool(nest.reduced) and 2 <= schedule.pieces <= split_size(nest)))
    )


def has_wide_stores(nest: Nest) -> bool:
    """Whether elements of at least four bytes are stored contiguously along the innermost axis."""
    last = len(nest.axes) - 1
    return any(s.dtype.itemsize >= 4 and last >= 0 and s.strides[last] == 1 for s in nest.stores)


def is_keep_legal(nest: Nest, schedule: Schedule, facts: Facts) -> bool:
    """Whether the elements worth keeping fit in half of a thread's second-level cache."""
    shape = Shape.of(nest, schedule.mode)
    kept = cacheable(shape)
    bytes_needed = len(kept) * kept_elements(shape, schedule) * width(nest)
    return bool(kept) and schedule.pieces == 1 and bytes_needed <= facts.l2_bytes // 2


def kept_elements(shape: Shape, schedule: Schedule) -> int:
    """Elements of one kept value in a thread's scratch."""
    row = shape.row_size
    return row * schedule.lanes * schedule.unroll if shape.is_column else row


def split_size(nest: Nest) -> int:
    """The size of the axis that a split reduction cuts."""
    return max((nest.axes[k].size for k in nest.reduced), default=1)


def default(nest: Nest, facts: Facts) -> Schedule:
    """A good schedule without measuring: widest vectors, enough accumulators, both threads busy."""
    lanes = most_lanes(nest, facts)
    mode = _mode(nest, lanes)
    base = Schedule(mode, lanes, unroll=_unroll(nest, mode, lanes), stream=_streams(nest, facts))
    base = replace(base, block=_block(nest, facts, base))
    pieces = _pieces(nest, facts, mode, lanes * base.unroll)
    base = replace(base, pieces=pieces)
    kept = replace(base, keep=True)
    if is_legal(nest, replace(kept, grain=1), facts):
        base = kept
    return replace(base, grain=grain(nest, facts, base))


def _mode(nest: Nest, lanes: int) -> str:
    parallel = [k for k, axis in enumerate(nest.axes) if not axis.reduced]
    if not nest.reduced or not parallel:
        return ROW
    reduced, rows = nest.axes[nest.reduced[-1]].size, nest.axes[parallel[-1]].size
    if parallel[-1] > nest.reduced[-1]:
        return ROW if rows < lanes // 2 <= reduced else COLUMN
    # a row of less than two vectors is mostly tail and sums across lanes: gather whole rows into the lanes instead
    return COLUMN if reduced < 2 * lanes <= rows else ROW


def _unroll(nest: Nest, mode: str, lanes: int) -> int:
    if not nest.reduced:
        return 2
    if mode == ROW:
        return 4
    parallel = [axis.size for axis in nest.axes if not axis.reduced]
    lane = Shape.of(nest, mode).lane
    if any(n.strides[lane] not in (0, 1) for n in nest.nodes if isinstance(n, Load)):
        return 1  # gathering is what takes the time, and it is long code
    wide = 8
    while wide > 1 and parallel[-1] < wide * lanes:
        wide //= 2
    return wide


def _streams(nest: Nest, facts: Facts) -> bool:
    stored = sum(nest.addressed(s.strides) * s.dtype.itemsize for s in nest.stores)
    return has_wide_stores(nest) and stored > facts.last_level_bytes // 4


def _block(nest: Nest, facts: Facts, schedule: Schedule) -> int:
    step = schedule.lanes * schedule.unroll
    block = 4096
    if nest.axes and not nest.reduced:
        points = 1
        for axis in nest.axes:
            points *= axis.size
        while block > MIN_BLOCK and points // block < 4 * facts.threads:
            block //= 2
    return max(step, block // step * step)


def _pieces(nest: Nest, facts: Facts, mode: str, step: int) -> int:
    if not nest.reduced or any(axis.limit for axis in nest.axes):
        return 1
    shape = Shape.of(nest, mode)
    units = shape.units(step)
    wanted = 4 * facts.threads // max(1, units)
    if mode == COLUMN and nest.family == "row_reduction" and _hops(nest, shape):
        wanted = max(wanted, 4 * facts.threads)
    elif units >= 2 * facts.threads or shape.row_size * units < SPLIT_POINTS:
        return 1
    return min(split_size(nest), max(2, wanted))


def _hops(nest: Nest, shape: Shape) -> bool:
    """Whether a group of columns touches a new page with every step down a long row: better in pieces."""
    strides = [n.strides[shape.inner] * n.dtype.itemsize for n in nest.nodes if isinstance(n, Load)]
    is_single = sum(p.walks for p in shape.passes) == 1
    return is_single and max(strides, default=0) >= PAGE_BYTES // 2 and shape.row_size >= 4096


def grain(nest: Nest, facts: Facts, schedule: Schedule) -> int:
    """Units of one piece: about PIECE_BYTES moved, but at least four pieces for each thread where there are units."""
    shape = Shape.of(nest, schedule.mode)
    units = shape.units(schedule.block if not nest.reduced else schedule.lanes * schedule.unroll)
    moved = sum(nest.addressed(a.strides) * a.dtype.itemsize for a in _accesses(nest))
    for_bytes = PIECE_BYTES * units // max(1, moved)
    for_threads = units // (4 * facts.threads)
    return max(1, min(for_bytes, for_threads))


def _accesses(nest: Nest) -> list[Store | Load]:
    return [*nest.stores, *(node for node in nest.nodes if isinstance(node, Load))]
