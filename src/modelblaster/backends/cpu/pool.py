"""The thread pool as a shared library: runs kernels of a plan inside this process.

For artifacts that a user loads and for the torch worker. Where an OpenMP runtime is loaded already, its threads are
borrowed: two pools whose threads spin would fight for the cores.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import TYPE_CHECKING

from modelblaster.backends.cpu.program_text import program_text
from modelblaster.backends.flat import FlatLaunch
from modelblaster.backends.interface import BuildFailure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from modelblaster.backends.flat import FlatStep

_LINE = 64
_MESSAGE_BYTES = 1024
_OPENMP = re.compile(r"/lib(gomp|iomp5|omp)[-.\w]*\.so[.\d]*$")


class Prepared:
    """Steps that a pool can execute, with their objects loaded and their scratch. Keep it as long as it is used."""

    def __init__(self, library: ctypes.CDLL, handle: int, scratch_bytes: int, threads: int) -> None:
        self._library = library
        self.handle: int | None = handle
        self.stride = -(-scratch_bytes // _LINE) * _LINE
        self._memory = ctypes.create_string_buffer(self.stride * threads + _LINE)
        address = ctypes.addressof(self._memory)
        self.scratch = address + -address % _LINE

    def close(self) -> None:
        """Unload the objects. May be called twice."""
        if self.handle is not None:
            self._library.mb_program_free(self.handle)
            self.handle = None

    def __del__(self) -> None:
        self.close()


class Pool:
    """`threads` threads, the calling one included. Executions in several threads take turns.

    A process that forks loses the threads: make a new pool in the child.
    """

    def __init__(self, library: Path, threads: int, *, parallel: int | None = None, cpus: Sequence[int] = ()) -> None:
        """Load the library (`Toolchain.pool_library`) and start the threads.

        `parallel` is the address of a `GOMP_parallel` whose threads are borrowed instead (`find_parallel`). `cpus`,
        one for each thread, pins them, the calling one too.

        Raises:
            OSError: the library cannot be loaded or a thread cannot be made.
        """
        self.threads = threads
        self._library = _declared(ctypes.CDLL(str(library)))
        pins = (ctypes.c_int * len(cpus))(*cpus) if cpus else None
        self._handle: int | None = self._library.mb_pool_create(threads, pins, parallel, None)
        if not self._handle:
            raise OSError(f"cannot start {threads} threads")

    def prepare(self, steps: Sequence[FlatStep], objects: Sequence[Path]) -> Prepared:
        """Load objects and steps (no library steps).

        Raises:
            BuildFailure: an object cannot be loaded or lacks an entry.
        """
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        handle = self._library.mb_program_load(program_text(steps, objects).encode(), message, _MESSAGE_BYTES)
        if not handle:
            raise BuildFailure(message.value.decode(errors="replace"))
        scratch = max((step.scratch_bytes for step in steps if isinstance(step, FlatLaunch)), default=0)
        return Prepared(self._library, handle, scratch, self.threads)

    def execute(self, prepared: Prepared, pointers: Sequence[int] | ctypes.Array[ctypes.c_void_p]) -> None:
        """Run the steps. `pointers` holds the address of every region, in the order of `Flat.regions`.

        Not checked in any way: a wrong address is a crash.
        """
        bases = pointers if isinstance(pointers, ctypes.Array) else (ctypes.c_void_p * len(pointers))(*pointers)
        self._library.mb_execute(self._handle, prepared.handle, bases, prepared.scratch, prepared.stride)

    def close(self) -> None:
        """End the threads. May be called twice."""
        if self._handle:
            self._library.mb_pool_destroy(self._handle)
            self._handle = None

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()


def find_parallel() -> int | None:
    """The address of `GOMP_parallel` in the OpenMP runtime that this process has loaded, None without one."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            paths = {line.split(maxsplit=5)[-1].strip() for line in lines}
    except OSError:
        return None
    for path in sorted(path for path in paths if _OPENMP.search(path)):
        function = getattr(ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD), "GOMP_parallel", None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value
    return None


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    library.mb_pool_create.restype = ctypes.c_void_p
    library.mb_pool_create.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    library.mb_pool_destroy.restype = None
    library.mb_pool_destroy.argtypes = [ctypes.c_void_p]
    library.mb_program_load.restype = ctypes.c_void_p
    library.mb_program_load.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    library.mb_program_free.restype = None
    library.mb_program_free.argtypes = [ctypes.c_void_p]
    library.mb_execute.restype = None
    library.mb_execute.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
    ]  # fmt: skip
    return library
