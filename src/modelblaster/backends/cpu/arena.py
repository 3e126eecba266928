"""Memory that a worker shares with this process, and tensors over it.

The worker can never map the read-only part for writing; this process still writes inputs there. Red zones are filled
with NaN patterns: a kernel that reads past a buffer gets NaN, one that writes past it is found out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from modelblaster.backends.cpu.layout import Segment, lay_out
from modelblaster.backends.cpu.memory import POISON
from modelblaster.records.plan import Role

if TYPE_CHECKING:
    from modelblaster.backends.cpu.layout import Layout, Zone
    from modelblaster.backends.cpu.memory import MemoryStore, Shared
    from modelblaster.backends.flat import Flat, Placed

# Both halves of a float32, a float16 and a bfloat16 of these bytes are NaN.
_CANARY = np.array([0xA5, 0xFF], dtype=np.uint8)


class Arena:
    """The memory of one session. `layout` says where each region of `flat` lies."""

    def __init__(self, flat: Flat, *, sets: int, threads: int, store: MemoryStore) -> None:
        """Take the memory from a store.

        Raises:
            RunFailure: there is not enough of it.
        """
        self.flat = flat
        self.layout: Layout = lay_out(flat, sets=sets, threads=threads)
        self._threads = threads
        self._store = store
        self._read_only: Shared | None = store.take(self.layout.read_only_bytes, is_sealed=True)
        try:
            self._writable: Shared | None = store.take(self.layout.writable_bytes, is_sealed=False)
        except BaseException:
            store.give_back(self._read_only)
            raise
        self._watched = self._write_zones()

    @property
    def descriptors(self) -> tuple[int, int]:
        """The read-only and the writable memfd, to be inherited by the worker."""
        return self._shared(Segment.READ_ONLY).descriptor, self._shared(Segment.WRITABLE).descriptor

    def tensor(self, placed: Placed, index: int) -> torch.Tensor:
        """A tensor over the memory of set `index`, without a copy."""
        spot = self.layout.spots[placed.address.region]
        dtype: torch.dtype = getattr(torch, placed.dtype.value)
        if 0 in placed.shape:
            return torch.empty(placed.shape, dtype=dtype)
        region = self.flat.regions[placed.address.region]
        count = (region.nbytes - placed.address.offset) // placed.dtype.itemsize
        offset = spot.at(index) + placed.address.offset
        whole = torch.frombuffer(self._shared(spot.segment).memory, dtype=dtype, count=count, offset=offset)
        return whole.as_strided(placed.shape, placed.strides)

    def poison(self, index: int) -> None:
        """Fill the outputs of a set and all scratch with bytes that are NaN in every floating type."""
        for region, spot in zip(self.flat.regions, self.layout.spots, strict=True):
            if region.role in (Role.OUTPUT, Role.SCRATCH):
                start = spot.at(index)
                self._shared(spot.segment).bytes[start : start + region.nbytes] = POISON
        for thread in range(self._threads if self.layout.scratch_stride else 0):
            start = self.layout.scratch_offset + thread * self.layout.scratch_stride
            self._shared(Segment.WRITABLE).bytes[start : start + self.flat.scratch_bytes] = POISON

    def damage(self) -> str | None:
        """The name of a buffer beside which something was written, or None."""
        zones, places, expected = self._watched
        wrong = self._shared(Segment.WRITABLE).bytes[places] != expected
        if not wrong.any():
            return None
        place = int(places[int(wrong.argmax())])
        return next(zone.owner for zone in zones if zone.begin <= place < zone.end)

    def close(self) -> None:
        """Give the memory back. May be called twice."""
        for shared in (self._read_only, self._writable):
            if shared is not None:
                self._store.give_back(shared)
        self._read_only = self._writable = None

    def _shared(self, segment: Segment) -> Shared:
        shared = self._read_only if segment is Segment.READ_ONLY else self._writable
        if shared is None:
            raise ValueError("the session is closed")
        return shared

    def _write_zones(self) -> tuple[list[Zone], np.ndarray, np.ndarray]:
        """Write the red zones. Returns those of the writable arena, all their places and what must be there."""
        for zone in self.layout.zones:
            self._shared(zone.segment).bytes[zone.begin : zone.end] = _CANARY[np.arange(zone.begin, zone.end) % 2]
        watched = [zone for zone in self.layout.zones if zone.segment is not Segment.READ_ONLY]
        places = np.concatenate([np.arange(zone.begin, zone.end) for zone in watched] or [np.arange(0)])
        return watched, places, _CANARY[places % 2]
