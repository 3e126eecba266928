"""A plan of kernels, loaded in the compiled runner."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from modelblaster.backends.cpu.arena import Arena
from modelblaster.backends.cpu.session_text import session_text
from modelblaster.backends.cpu.worker import Worker
from modelblaster.backends.flat import Address, Placed
from modelblaster.backends.interface import RunFailure
from modelblaster.records.plan import Role
from modelblaster.records.verdict import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    import torch

    from modelblaster.backends.cpu.memory import MemoryStore
    from modelblaster.backends.cpu.sandbox import Sandbox
    from modelblaster.backends.flat import Flat

MOST_SAMPLES = 32768

# How far the worker's clock and ours may be apart before a timing is not believed: a busy machine may keep us from
# reading the answer, so only gross differences count.
_CLOCK_FACTOR = 3.0
_CLOCK_SLACK_NS = 250e6


class NativeSession:
    """Implements `interface.Session` with a runner process and two shared arenas."""

    def __init__(
        self,
        flat: Flat,
        objects: Sequence[Path],
        *,
        runner: Path,
        libraries: Sequence[Path],
        sandbox: Sandbox,
        store: MemoryStore,
        cpus: Sequence[int],
        sets: int,
        flush_bytes: int,
        deadline_seconds: float,
    ) -> None:
        """Start the runner, lock it, load the objects.

        Raises:
            RunFailure: the runner did not come up.
        """
        arena = Arena(flat, sets=sets, threads=len(cpus), store=store)
        command = [str(runner), *map(str, arena.descriptors)]
        readable = [runner, *libraries, *objects]
        text = session_text(flat, arena.layout, objects, cpus=cpus, sets=sets, flush_bytes=flush_bytes)
        try:
            worker = Worker(sandbox.command(command, readable=readable), descriptors=arena.descriptors, environment={})
            answer = worker.ask(text, deadline_seconds)
        except RunFailure:
            arena.close()
            raise
        self._adopt(flat, arena, worker, deadline_seconds)
        _, files, calls = (*answer.split(), "0", "0")[:3]
        self.locks = tuple(name for name, is_on in (("landlock", files != "0"), ("seccomp", calls == "1")) if is_on)

    def _adopt(self, flat: Flat, arena: Arena, worker: Worker, deadline_seconds: float) -> None:
        """Take over memory and a process that has loaded the plan."""
        self._flat = flat
        self._arena = arena
        self._worker = worker
        self._deadline_seconds = deadline_seconds
        self._is_closed = False
        self._names = {region.name: index for index, region in enumerate(flat.regions)}

    def load(self, index: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write inputs (into set `index`) and parameters or mutated buffers (into the only copy) by buffer name.

        Raises:
            ValueError: an unknown name, or a tensor of another shape or type than the buffer.
        """
        for name, tensor in tensors.items():
            region = self._names.get(name)
            if region is None or self._flat.regions[region].role not in (Role.INPUT, Role.PARAMETER, Role.MUTATED):
                raise ValueError(f"the plan has no input or parameter {name!r}")
            target = self._tensor(region, index)
            if (target.shape, target.dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(
                    f"{name!r} is {tensor.dtype} {tuple(tensor.shape)}, not {target.dtype} {tuple(target.shape)}"
                )
            target.copy_(tensor)

    def setup(self) -> float:
        """Run the plan's setup steps on the parameters. Returns nanoseconds.

        Raises:
            RunFailure: it did not end well.
        """
        (elapsed,) = self._ask("setup", 1)
        self._check_zones()
        return elapsed

    def run(self, index: int) -> None:
        """Poison the outputs of set `index` and scratch, run the plan once, check the red zones.

        Raises:
            RunFailure: it did not end well or wrote beside a buffer.
        """
        self._arena.poison(index)
        self._ask(f"run {index}", 1)
        self._check_zones()

    def outputs(self, index: int) -> dict[str, torch.Tensor]:
        """Outputs of set `index` and mutated buffers, by buffer name, as they are in memory now."""
        return {name: self._arena.tensor(placed, index) for name, placed in self._flat.results.items()}

    def time(self, samples: int, *, calls: int = 1, flush: bool = False) -> Sequence[float]:
        """Nanoseconds a call, `samples` times, each the mean of `calls` calls, walking around the ring.

        A few random lines of the outputs are overwritten before each sample, so results that a call finds done from
        the round before are not whole.

        Raises:
            RunFailure: it did not end well, or the worker's clock does not fit ours.
        """
        if not 0 < samples <= MOST_SAMPLES:
            raise ValueError(f"{samples} samples; between 1 and {MOST_SAMPLES} can be asked for")
        begin = time.monotonic_ns()
        message = f"time {samples} {calls} {int(flush)} {secrets.randbits(62)}"
        total, *times = self._ask(message, samples + 1)
        elapsed = time.monotonic_ns() - begin
        is_consistent = sum(times) <= total <= elapsed and elapsed <= _CLOCK_FACTOR * total + _CLOCK_SLACK_NS
        if not flush:
            is_consistent = is_consistent and total <= _CLOCK_FACTOR * sum(times) + _CLOCK_SLACK_NS
        if not is_consistent:
            self.close()
            detail = f"the worker reports {sum(times) / 1e6:.3f} ms, {elapsed / 1e6:.3f} ms went by"
            raise RunFailure(Cause.SUSPECT, detail)
        self._check_zones()
        return [sample / calls for sample in times]

    def close(self) -> None:
        """End the runner and give back the memory. May be called twice."""
        if not self._is_closed:
            self._is_closed = True
            self._worker.close()
            self._arena.close()

    def __enter__(self) -> NativeSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tensor(self, region: int, index: int) -> torch.Tensor:
        found = self._flat.regions[region]
        return self._arena.tensor(Placed(Address(region, 0), found.dtype, found.shape, found.strides), index)

    def _ask(self, message: str, count: int) -> list[float]:
        """The numbers of an answer, `count` of them."""
        word, *numbers = self._worker.ask(message, self._deadline_seconds).split() or [""]
        if word != "ok" or len(numbers) != count or not all(number.isdigit() for number in numbers):
            self.close()
            raise RunFailure(Cause.CRASHED, "the worker's answer is not one of ours")
        return [float(number) for number in numbers]

    def _check_zones(self) -> None:
        owner = self._arena.damage()
        if owner is not None:
            self.close()
            raise RunFailure(Cause.OUT_OF_BOUNDS, f"the candidate wrote beside the buffer {owner!r}")
