"""A trusted, long-lived process that computes what is right and times what candidates are compared with.

It shares nothing with candidates: they run elsewhere, without references, seeds or expected values beside them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import cloudpickle

from modelblaster.judge.channel import Closed, receive, send
from modelblaster.records.task import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    import torch

    from modelblaster.judge.subject import Subject
    from modelblaster.records.plan import Plan

# With these, glibc keeps freed memory: otherwise every fresh 64 MB output of eager is mapped, zeroed and unmapped
# again, which makes it 2 to 3 times slower than a kernel that writes into a buffer made once (measured).
ALLOCATION = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(1 << 28),
}


class ReferenceFailure(Exception):
    """The reference did not answer. `is_alive`: it raised an exception; otherwise its process died or was killed."""

    def __init__(self, detail: str, *, is_alive: bool) -> None:
        super().__init__(detail)
        self.is_alive = is_alive


@dataclass(frozen=True, slots=True)
class Samples:
    """Timed calls of a reference, in nanoseconds a call, or why there are none.

    `page_faults` happened while the clock ran: a fair baseline has next to none.
    """

    samples_ns: tuple[float, ...]
    page_faults: int
    compile_seconds: float
    unavailable: str = ""


class ReferenceProcess:
    """References by key, hosted in a child process; not thread-safe.

    `start` only spawns the child (importing torch takes it seconds); the first call waits for it. After a crash or a
    missed deadline the next call starts a new child and hands it the subjects again, but not what was loaded:
    `generation` counts the children.
    """

    def __init__(self, *, threads: int, deadline_seconds: float = 120.0, compiler_cache: Path | None = None) -> None:
        self.generation = 0
        self._threads = threads
        self._deadline = deadline_seconds
        self._compiler_cache = compiler_cache
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._noise: IO[bytes] | None = None
        self._registered: dict[str, tuple[str, dict[str, Any]]] = {}
        self._settable: dict[str, frozenset[str]] = {}
        self._is_greeted = False

    def start(self) -> None:
        """Spawn the child if there is none, without waiting for it."""
        if self._process is not None:
            return
        ours, theirs = socket.socketpair()
        if self._noise is not None:
            self._noise.close()
        self._noise = os.fdopen(os.memfd_create("noise", os.MFD_CLOEXEC), "w+b")
        command = [sys.executable, "-m", "modelblaster.judge.reference_worker", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=self._environment(), stdin=subprocess.DEVNULL,
            stdout=self._noise, stderr=self._noise,
        )  # fmt: skip
        theirs.close()
        self._channel = ours
        self._is_greeted = False
        self.generation += 1
        send(ours, ("hello", {"threads": self._threads}), {})

    def subject(self, subject: Subject) -> frozenset[str]:
        """Host a subject; gives the names of the parameters that can be set. A second time costs nothing."""
        if subject.key not in self._registered:
            self._registered[subject.key] = _registration(subject)
            self._settable.pop(subject.key, None)
        self._ready()
        return self._settable[subject.key]

    def plan(self, key: str, plan: Plan) -> None:
        """Host a plan that is no subject of its own (a part of one)."""
        self._registered.setdefault(key, ("plan", {"plan": plan}))

    def forget(self, key: str) -> None:
        """Drop a subject and its memory."""
        if self._registered.pop(key, None) is not None and self._settable.pop(key, None) is not None:
            self._request("forget", {"key": key}, {})

    def load(self, key: str, index: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy inputs into set `index` and parameters into the only place."""
        self._request("load", {"key": key, "index": index}, tensors)

    def eager(self, key: str, index: int) -> tuple[dict[str, torch.Tensor], float]:
        """Outputs and mutated buffers by name, as PyTorch computes them, and the seconds that it took."""
        seconds, tensors = self._request("eager", {"key": key, "index": index}, {})
        return tensors, float(seconds)

    def oracle(self, key: str, index: int) -> dict[str, torch.Tensor]:
        """The same in float64. Integers stay integers."""
        return self._request("oracle", {"key": key, "index": index}, {})[1]

    def time(
        self,
        key: str,
        variant: str,
        samples: int,
        *,
        sets: Sequence[int] = (0,),
        calls: int = 1,
        flush_bytes: int = 0,
        compile_seconds: float = 60.0,
    ) -> Samples:
        """Time `samples` means of `calls` calls, walking around the given loaded sets.

        `variant` is `eager` or `compile`; where torch.compile fails or takes more than `compile_seconds`, the result
        says why. With `flush_bytes`, so much memory is written before each sample.
        """
        arguments = {
            "key": key, "variant": variant, "samples": samples, "sets": tuple(sets), "repeat": calls,
            "flush_bytes": flush_bytes, "compile_seconds": compile_seconds,
        }  # fmt: skip
        try:
            answer, _ = self._request("time", arguments, {}, seconds=self._deadline + compile_seconds)
        except ReferenceFailure as failure:
            if variant == "eager":
                raise
            return Samples((), 0, 0.0, f"torch.compile failed: {failure}")
        return Samples(answer["samples"], answer["faults"], answer["compile_seconds"], answer["unavailable"])

    def kill(self) -> None:
        """End the child now; the next call starts another one."""
        process, self._process = self._process, None
        self._settable.clear()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End the child and forget everything."""
        self.kill()
        self._registered.clear()
        if self._noise is not None:
            self._noise.close()
            self._noise = None

    def __enter__(self) -> ReferenceProcess:
        """Spawn the child."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(part or os.getcwd() for part in sys.path)
        environment = {**os.environ, **ALLOCATION, "PYTHONPATH": path, "OMP_NUM_THREADS": str(self._threads)}
        if self._compiler_cache is not None:
            environment["TORCHINDUCTOR_CACHE_DIR"] = str(self._compiler_cache)
        return environment

    def _ready(self) -> None:
        """Have a child that hosts every registered subject."""
        self.start()
        if not self._is_greeted:
            self._answer(self._deadline)
            self._is_greeted = True
        for key, (method, arguments) in self._registered.items():
            if key not in self._settable:
                self._settable[key], _ = self._exchange(method, {"key": key, **arguments}, {}, self._deadline)

    def _request(
        self, method: str, arguments: dict[str, Any], tensors: Mapping[str, torch.Tensor], seconds: float | None = None
    ) -> tuple[Any, dict[str, torch.Tensor]]:
        self._ready()
        return self._exchange(method, arguments, tensors, seconds or self._deadline)

    def _exchange(
        self, method: str, arguments: dict[str, Any], tensors: Mapping[str, torch.Tensor], seconds: float
    ) -> tuple[Any, dict[str, torch.Tensor]]:
        try:
            self._open_channel().settimeout(seconds)
            send(self._open_channel(), (method, arguments), tensors)
        except (Closed, TimeoutError) as error:
            raise self._death(str(error)) from error
        return self._answer(seconds)

    def _answer(self, seconds: float) -> tuple[Any, dict[str, torch.Tensor]]:
        try:
            (is_well, value), tensors = receive(self._open_channel(), until=time.monotonic() + seconds)
        except TimeoutError as error:
            raise self._death(f"no answer within {seconds:.0f} s") from error
        except Closed as error:
            raise self._death("the process died") from error
        if not is_well:
            raise ReferenceFailure(str(value), is_alive=True)
        return value, tensors

    def _open_channel(self) -> socket.socket:
        if self._channel is None:
            raise Closed("there is no process")
        return self._channel

    def _death(self, what: str) -> ReferenceFailure:
        """Clean up after the child; the failure says how it ended and what it printed last."""
        process = self._process
        self.kill()
        status = f", exit status {process.returncode}" if process is not None else ""
        return ReferenceFailure(f"reference process: {what}{status}{self._last_words()}", is_alive=False)

    def _last_words(self) -> str:
        if self._noise is None:
            return ""
        size = self._noise.seek(0, os.SEEK_END)
        self._noise.seek(max(0, size - 600))
        words = " ".join(self._noise.read().decode(errors="replace").split())
        return f"; it said: {words}" if words else ""


def _pickled(module: torch.nn.Module) -> bytes:
    # cloudpickle brings along classes that the child cannot import: of executed problem files and of __main__.
    text: bytes = cloudpickle.dumps(module)  # type: ignore[no-untyped-call]
    return text


def _registration(subject: Subject) -> tuple[str, dict[str, Any]]:
    if subject.module is None:
        if subject.plan is None:
            raise ValueError(f"subject {subject.key} has neither a module nor a plan")
        return "plan", {"plan": subject.plan}
    options = {
        "payload": _pickled(subject.module), "arguments": subject.call_arguments(),
        "outputs": subject.returned_names(),
        "mutated": tuple(spec.name for spec in subject.mutated),
        "train": subject.mode is Mode.TRAIN, "plan": subject.plan,
    }  # fmt: skip
    return "module", options
