"""Plans with library steps: a sandboxed process that has torch.

Starting one takes seconds, so it serves all sessions of one candidate in turn; another candidate gets a fresh one.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from modelblaster.backends.cpu.arena import Arena
from modelblaster.backends.cpu.session import NativeSession
from modelblaster.backends.cpu.worker import Worker
from modelblaster.backends.interface import RunFailure
from modelblaster.records.codec import digest, to_json

if TYPE_CHECKING:
    from modelblaster.backends.cpu.backend import CpuBackend
    from modelblaster.backends.interface import Build
    from modelblaster.records.plan import Plan

_START_SECONDS = 60.0

# As for the reference (`judge.reference.ALLOCATION`): neither side pays for page faults that the other does not.
_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(1 << 28),
}


# What the system itself provides to a runtime; inside bubblewrap these are fresh or absent.
_SYSTEM = ("/proc", "/dev", "/sys", "/etc")


class TorchHost:
    """The process, and what it may be used for. Not thread-safe."""

    def __init__(self, backend: CpuBackend) -> None:
        self._backend = backend
        self._worker: Worker | None = None
        self._channel: socket.socket | None = None
        self._candidate: str | None = None

    @property
    def process(self) -> int | None:
        """The process number of the worker, or of bubblewrap around it; None where there is none."""
        return self._worker.process if self._worker is not None else None

    def start(self) -> None:
        """Spawn a process if there is none, without waiting for it."""
        if self._worker is not None:
            return
        ours, theirs = socket.socketpair()
        library = self._backend.toolchain.pool_library()
        readable = _readable(self._backend.home)
        command = [
            sys.executable, "-m", "modelblaster.backends.cpu.torch_start",
            str(theirs.fileno()), str(library), str(self._backend.threads),
            *map(str, readable), *_SYSTEM,
        ]  # fmt: skip
        environment = {
            **_ENVIRONMENT,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "OMP_NUM_THREADS": str(self._backend.threads),
            "HOME": "/tmp",
            "TORCHINDUCTOR_CACHE_DIR": "/tmp",
        }
        try:
            self._worker = Worker(
                self._backend.sandbox.command(command, readable=readable, has_proc=True, environment=environment),
                descriptors=(theirs.fileno(),),
                environment=environment,
            )
        finally:
            theirs.close()
        self._channel = ours
        self._candidate = None

    def open(self, candidate: str, description: str, descriptors: tuple[int, int]) -> Worker:
        """The worker, with a session open in it.

        Raises:
            RunFailure: it did not come up or refused the plan.
        """
        if self._worker is None or not self._worker.is_open or self._candidate not in (None, candidate):
            self.close()
            self.start()
        assert self._worker is not None
        assert self._channel is not None
        self._candidate = candidate
        socket.send_fds(self._channel, [b"m"], list(descriptors))
        self._worker.ask(f"open {description}", _START_SECONDS)
        return self._worker

    def close(self) -> None:
        """End the process. May be called twice."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class TorchSession(NativeSession):
    """Implements `interface.Session` in a torch process, over the same arenas as kernels alone have."""

    def __init__(self, backend: CpuBackend, plan: Plan, build: Build, sets: int, deadline_seconds: float) -> None:
        """Load a plan.

        Raises:
            RunFailure: the process did not come up or the plan cannot be loaded.
        """
        flat = backend.flatten(plan)
        arena = Arena(flat, sets=sets, threads=backend.threads, store=backend.store)
        description = {
            "plan": to_json(plan),
            "symbols": dict(backend.symbols),
            "spots": [(int(spot.segment), spot.offset, spot.set_stride) for spot in arena.layout.spots],
            "sets": sets,
            "objects": [str(path) for path in build.objects],
            "flush_bytes": backend.flush_bytes,
        }
        candidate = digest(plan, *map(str, build.objects))
        try:
            worker = backend.torch_host.open(candidate, json.dumps(description), arena.descriptors)
        except RunFailure:
            arena.close()
            raise
        self._adopt(flat, arena, worker, deadline_seconds)

    def setup(self) -> float:
        """Bind the parameters as they are now, and run the plan's setup. Returns nanoseconds."""
        return super().setup()

    def close(self) -> None:
        """Leave the process to the next session of this candidate."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._worker.is_open:
            self._worker.ask("close", self._deadline_seconds)
        self._arena.close()


def _readable(home: Path) -> list[Path]:
    """What Python, torch and the kernels need to be loaded."""
    wanted = {
        *map(Path, (sys.prefix, sys.base_prefix, sys.exec_prefix, sysconfig.get_path("purelib"))),
        *(Path(path) for path in sys.path if path and Path(path).exists()),
        *(Path(path) for path in ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/sys/devices/system/cpu")),
        home / "cache",
        Path(sys.executable).resolve().parent,
    }
    return sorted(path for path in wanted if path.exists())
