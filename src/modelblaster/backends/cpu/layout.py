"""Where a plan's regions lie in the two arenas that a worker maps.

The read-only arena holds the inputs of all sets and the parameters, the writable one derived buffers first (they have
pages of their own), then the outputs of all sets, mutated and scratch buffers and the threads' scratch. Red zones
stand on both sides of everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from modelblaster.records.plan import Role

if TYPE_CHECKING:
    from modelblaster.backends.flat import Flat

LINE = 64
PAGE = 4096
RED_ZONE_BYTES = 256


class Segment(IntEnum):
    """Mappings of a worker. DERIVED is the start of the writable arena, read-only once the setup has run."""

    READ_ONLY = 0
    WRITABLE = 1
    DERIVED = 2


_SEGMENTS = {Role.INPUT: Segment.READ_ONLY, Role.PARAMETER: Segment.READ_ONLY, Role.DERIVED: Segment.DERIVED}
_ONCE_PER_SET = frozenset({Role.INPUT, Role.OUTPUT})


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a region lies: set `k` has it at `offset + k * set_stride` bytes of its segment."""

    segment: Segment
    offset: int
    set_stride: int = 0

    def at(self, index: int) -> int:
        """Byte offset in the segment for one set of the ring."""
        return self.offset + index * self.set_stride


@dataclass(frozen=True, slots=True)
class Zone:
    """Bytes beside `owner` that nothing may write."""

    owner: str
    segment: Segment
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of all regions, in their order, and the sizes of the arenas."""

    spots: tuple[Spot, ...]
    zones: tuple[Zone, ...]
    read_only_bytes: int
    writable_bytes: int
    derived_bytes: int
    scratch_offset: int
    scratch_stride: int


def lay_out(flat: Flat, *, sets: int, threads: int) -> Layout:
    """Places for a plan's regions, a ring of `sets` and the scratch of `threads`."""
    read_only, derived = _Shelf(Segment.READ_ONLY, 0), _Shelf(Segment.DERIVED, 0)
    spots = _place(flat, read_only, sets) | _place(flat, derived, sets)
    derived_bytes = derived.close() if derived.zones else 0
    writable = _Shelf(Segment.WRITABLE, derived_bytes)
    spots |= _place(flat, writable, sets)
    scratch_offset, scratch_stride = writable.put_threads(flat.scratch_bytes, threads) if flat.scratch_bytes else (0, 0)
    return Layout(
        spots=tuple(spots[index] for index in range(len(flat.regions))),
        zones=(*read_only.zones, *derived.zones, *writable.zones),
        read_only_bytes=read_only.close(),
        writable_bytes=writable.close(),
        derived_bytes=derived_bytes,
        scratch_offset=scratch_offset,
        scratch_stride=scratch_stride,
    )


def _place(flat: Flat, shelf: _Shelf, sets: int) -> dict[int, Spot]:
    """Spots, by index, of the regions that belong to a shelf's segment."""
    mine = [
        (index, region)
        for index, region in enumerate(flat.regions)
        if _SEGMENTS.get(region.role, Segment.WRITABLE) is shelf.segment
    ]
    spots = {
        index: Spot(shelf.segment, shelf.put(region.name, region.nbytes))
        for index, region in mine
        if region.role not in _ONCE_PER_SET
    }
    ringed = [(index, region) for index, region in mine if region.role in _ONCE_PER_SET]
    if not ringed:
        return spots
    starts = []
    for _ in range(sets):
        starts.append(shelf.close())
        shelf.begin_set()
        offsets = {index: shelf.put(region.name, region.nbytes) for index, region in ringed}
        spots |= {index: Spot(shelf.segment, offset) for index, offset in offsets.items() if index not in spots}
    stride = starts[1] - starts[0] if sets > 1 else 0
    return spots | {index: Spot(shelf.segment, spots[index].offset, stride) for index, _ in ringed}


class _Shelf:
    """Regions put one after another, with red zones, from a page's start on."""

    # Successive regions start at different places in their page, so that a kernel that reads one and writes another
    # at the same position does not run into false store-to-load dependencies (the low 12 address bits).
    _STAGGER = 13 * LINE

    def __init__(self, segment: Segment, start: int) -> None:
        self.segment = segment
        self.zones: list[Zone] = []
        self._end = start
        self._count = 0

    def begin_set(self) -> None:
        """Start again with the stagger, so that every set of the ring is laid out alike."""
        self._count = 1

    def put(self, owner: str, nbytes: int) -> int:
        offset = self._end + RED_ZONE_BYTES
        offset += (self._count * self._STAGGER - offset) % PAGE
        self._count += 1
        self._forbid(owner, offset - RED_ZONE_BYTES)
        self._forbid(owner, offset + nbytes)
        return offset

    def put_threads(self, nbytes: int, threads: int) -> tuple[int, int]:
        """Offset of the first thread's scratch, and the distance to the next one's."""
        stride = -(-nbytes // LINE) * LINE + RED_ZONE_BYTES
        offset = self.put("scratch", stride * threads)
        for thread in range(threads):
            self._forbid("scratch", offset + thread * stride + nbytes)
        self._end = offset + stride * threads + RED_ZONE_BYTES
        return offset, stride

    def close(self) -> int:
        """End on a page's border. Returns the end in bytes."""
        self._end = -(-self._end // PAGE) * PAGE
        return self._end

    def _forbid(self, owner: str, begin: int) -> None:
        self._end = begin + RED_ZONE_BYTES
        self.zones.append(Zone(owner, self.segment, begin, self._end))
