"""Sealed memfds and this process's mappings of them, kept from one session for the next."""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import threading

import numpy as np
import psutil

from modelblaster.backends.interface import RunFailure
from modelblaster.records.verdict import Cause

# linux/fcntl.h; the fcntl module lacks it.
F_SEAL_FUTURE_WRITE = 0x0010
POISON = 0xFF

_MEMORY_SHARE = 0.9
_KEPT_BYTES = 1 << 30
_WASTE = 4


class Shared:
    """One memfd of at least the size asked for. With `is_sealed` no process can map it for writing from now on."""

    def __init__(self, nbytes: int, *, is_sealed: bool) -> None:
        """Make and map it.

        Raises:
            RunFailure: there is not enough memory.
        """
        _check_room(nbytes)
        self.nbytes = nbytes
        self.is_sealed = is_sealed
        self.descriptor = os.memfd_create("modelblaster", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, nbytes)
            self.memory = mmap.mmap(self.descriptor, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals | (F_SEAL_FUTURE_WRITE if is_sealed else 0))
        except (OSError, ValueError) as error:
            os.close(self.descriptor)
            raise RunFailure(Cause.OUT_OF_MEMORY, f"cannot map {nbytes} bytes: {error}") from error
        self.bytes = np.frombuffer(self.memory, dtype=np.uint8)
        self._references = sys.getrefcount(self.memory)

    @property
    def is_referred_to(self) -> bool:
        """Whether a tensor over this memory is alive somewhere."""
        return sys.getrefcount(self.memory) > self._references

    def close(self) -> None:
        """Close the memfd; the mapping goes with the last tensor over it."""
        os.close(self.descriptor)


class MemoryStore:
    """Memory of closed sessions. New pages cost 1 ms for each MB on a virtual machine, used ones nothing.

    May be used by several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[Shared] = []

    def take(self, nbytes: int, *, is_sealed: bool) -> Shared:
        """Memory of this size or somewhat more. Writable memory that was used before is filled with POISON.

        Raises:
            RunFailure: there is not enough memory.
        """
        nbytes = max(nbytes, mmap.PAGESIZE)
        with self._lock:
            fitting = [m for m in self._free if m.is_sealed == is_sealed and nbytes <= m.nbytes <= _WASTE * nbytes]
            found = min(fitting, key=lambda m: m.nbytes, default=None)
            if found is not None:
                self._free.remove(found)
        if found is None:
            return Shared(nbytes, is_sealed=is_sealed)
        if not is_sealed:
            found.bytes[:nbytes] = POISON
        return found

    def give_back(self, memory: Shared) -> None:
        """Keep memory whose session has ended, unless tensors still refer to it or too much is kept."""
        if memory.is_referred_to:
            memory.close()
            return
        with self._lock:
            self._free.append(memory)
            while sum(kept.nbytes for kept in self._free) > _KEPT_BYTES:
                self._free.pop(0).close()

    def close(self) -> None:
        """Give everything back to the system."""
        with self._lock:
            while self._free:
                self._free.pop().close()


def _check_room(nbytes: int) -> None:
    available = psutil.virtual_memory().available
    if nbytes > _MEMORY_SHARE * available:
        detail = f"the buffers need {nbytes / 1e9:.1f} GB and {available / 1e9:.1f} GB are free"
        raise RunFailure(Cause.OUT_OF_MEMORY, detail)
