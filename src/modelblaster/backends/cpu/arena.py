"""Memory that a worker shares with this process: two sealed memfds, and tensors over them.

The worker can never map the first one for writing (F_SEAL_FUTURE_WRITE); this process still writes inputs there. Red
zones are filled with NaN patterns: a kernel that reads past a buffer gets NaN, one that writes past it is found out.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import TYPE_CHECKING

import numpy as np
import torch

from modelblaster.backends.cpu.layout import Segment, lay_out
from modelblaster.backends.interface import RunFailure
from modelblaster.records.plan import Role
from modelblaster.records.verdict import Cause

if TYPE_CHECKING:
    from modelblaster.backends.cpu.layout import Layout
    from modelblaster.backends.flat import Flat, Placed

# linux/fcntl.h; the fcntl module lacks it.
F_SEAL_FUTURE_WRITE = 0x0010
_MEMORY_SHARE = 0.9

# Both halves of a float32, a float16 and a bfloat16 of these bytes are NaN.
_CANARY = np.array([0xA5, 0xFF], dtype=np.uint8)
_POISON = 0xFF


class Arena:
    """The memory of one session. `layout` says where each region of `flat` lies."""

    def __init__(self, flat: Flat, *, sets: int, threads: int) -> None:
        """Make and map the memory.

        Raises:
            RunFailure: there is not enough of it.
        """
        self.flat = flat
        self.layout: Layout = lay_out(flat, sets=sets, threads=threads)
        self.sets = sets
        self._threads = threads
        _check_room(self.layout.read_only_bytes + self.layout.writable_bytes)
        self._maps = {
            Segment.READ_ONLY: _Map(self.layout.read_only_bytes, F_SEAL_FUTURE_WRITE),
            Segment.WRITABLE: _Map(self.layout.writable_bytes, 0),
        }
        self._zones = self._canaries()

    @property
    def descriptors(self) -> tuple[int, int]:
        """The read-only and the writable memfd, to be inherited by the worker."""
        return self._maps[Segment.READ_ONLY].descriptor, self._maps[Segment.WRITABLE].descriptor

    def close_descriptors(self) -> None:
        """Close the memfds, once the worker has them; the mappings stay."""
        for part in self._maps.values():
            part.close_descriptor()

    def tensor(self, placed: Placed, index: int) -> torch.Tensor:
        """A tensor over the memory of set `index`, without a copy."""
        spot = self.layout.spots[placed.address.region]
        dtype: torch.dtype = getattr(torch, placed.dtype.value)
        if 0 in placed.shape:
            return torch.empty(placed.shape, dtype=dtype)
        region = self.flat.regions[placed.address.region]
        count = (region.nbytes - placed.address.offset) // placed.dtype.itemsize
        offset = spot.at(index) + placed.address.offset
        whole = torch.frombuffer(self._map(spot.segment).memory, dtype=dtype, count=count, offset=offset)
        return whole.as_strided(placed.shape, placed.strides)

    def poison(self, index: int) -> None:
        """Fill the outputs of a set and all scratch with bytes that are NaN in every floating type."""
        for region, spot in zip(self.flat.regions, self.layout.spots, strict=True):
            if region.role in (Role.OUTPUT, Role.SCRATCH):
                start = spot.at(index)
                self._map(spot.segment).bytes[start : start + region.nbytes] = _POISON
        for thread in range(self._threads if self.layout.scratch_stride else 0):
            start = self.layout.scratch_offset + thread * self.layout.scratch_stride
            self._maps[Segment.WRITABLE].bytes[start : start + self.flat.scratch_bytes] = _POISON

    def damage(self) -> str | None:
        """The name of a buffer beside which something was written, or None."""
        for segment, (places, expected) in self._zones.items():
            wrong = self._map(segment).bytes[places] != expected
            if wrong.any():
                place = int(places[int(wrong.argmax())])
                zones = [z for z in self.layout.zones if z.segment is segment or segment is not Segment.READ_ONLY]
                return next(zone.owner for zone in zones if zone.begin <= place < zone.end)
        return None

    def close(self) -> None:
        """Give the memory back, as soon as no tensor refers to it any more."""
        for part in self._maps.values():
            part.close()

    def _map(self, segment: Segment) -> _Map:
        return self._maps[Segment.READ_ONLY if segment is Segment.READ_ONLY else Segment.WRITABLE]

    def _canaries(self) -> dict[Segment, tuple[np.ndarray, np.ndarray]]:
        """Write the red zones. Returns the places to check in the writable arena and what they must hold."""
        checked: list[np.ndarray] = []
        for zone in self.layout.zones:
            places = np.arange(zone.begin, zone.end)
            self._map(zone.segment).bytes[zone.begin : zone.end] = _CANARY[places % 2]
            if zone.segment is not Segment.READ_ONLY:
                checked.append(places)
        if not checked:
            return {}
        places = np.concatenate(checked)
        return {Segment.WRITABLE: (places, _CANARY[places % 2])}


class _Map:
    """One memfd and this process's mapping of it."""

    def __init__(self, nbytes: int, seal: int) -> None:
        nbytes = max(nbytes, mmap.PAGESIZE)
        self.descriptor = os.memfd_create("modelblaster", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, nbytes)
            self.memory = mmap.mmap(self.descriptor, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL | seal
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
        except (OSError, ValueError) as error:
            os.close(self.descriptor)
            raise RunFailure(Cause.OUT_OF_MEMORY, f"cannot map {nbytes} bytes: {error}") from error
        self.bytes = np.frombuffer(self.memory, dtype=np.uint8)

    def close_descriptor(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def close(self) -> None:
        self.close_descriptor()
        self.bytes = np.empty(0, dtype=np.uint8)


def _check_room(nbytes: int) -> None:
    available = _available_bytes()
    if available is not None and nbytes > _MEMORY_SHARE * available:
        detail = f"the buffers need {nbytes / 1e9:.1f} GB and {available / 1e9:.1f} GB are free"
        raise RunFailure(Cause.OUT_OF_MEMORY, detail)


def _available_bytes() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        return None
    return int(found[0]) * 1024 if found else None
