"""The process that runs plans with library steps: torch, our pool of threads, and nothing of the judge.

Started by `torch_session.TorchHost` inside the sandbox, through `torch_start`. It answers the same framed messages as
the compiled runner; `open` brings the memory of a session as two descriptors over a socket, a plan and its objects.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import socket
import struct
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from modelblaster.backends.cpu.executor import PlanExecutor
from modelblaster.backends.cpu.layout import Segment, Spot
from modelblaster.backends.cpu.pool import Pool, find_parallel
from modelblaster.backends.flat import Address, Flat, Placed
from modelblaster.backends.flatten import flatten
from modelblaster.program.library import torch_dtype
from modelblaster.records.codec import from_json
from modelblaster.records.plan import Plan, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_HEADER = struct.Struct("<I")
_TOUCHED_LINES = 8
_LINE = 64


class _Session:
    """One plan over one pair of arenas."""

    def __init__(self, description: Mapping[str, Any], files: list[int], pool: Pool) -> None:
        read_only, writable = (
            mmap.mmap(file, os.fstat(file).st_size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=protection)
            for file, protection in zip(files, (mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE), strict=True)
        )
        for file in files:
            os.close(file)
        self._memory = {Segment.READ_ONLY: read_only, Segment.WRITABLE: writable, Segment.DERIVED: writable}
        self._spots = [Spot(Segment(segment), offset, stride) for segment, offset, stride in description["spots"]]
        self._sets: int = description["sets"]
        self._flat: Flat = flatten(from_json(Plan, description["plan"]), description["symbols"])
        self._executor = PlanExecutor(self._flat, pool, [Path(path) for path in description["objects"]])
        self._flush = torch.zeros(max(1, description["flush_bytes"]), dtype=torch.uint8)
        self._inputs = [
            {name: self._region(name, index) for name in self._names(Role.INPUT)} for index in range(self._sets)
        ]
        self._next = 0

    def setup(self) -> list[int]:
        """Bind the parameters and derive from them."""
        begin = time.perf_counter_ns()
        self._executor.bind({name: self._region(name, 0) for name in self._names(Role.PARAMETER, Role.MUTATED)})
        return [time.perf_counter_ns() - begin]

    def run(self, index: int) -> list[int]:
        begin = time.perf_counter_ns()
        results = self._executor(self._inputs[index], is_poisoned=True)
        elapsed = time.perf_counter_ns() - begin
        self._publish(results, index)
        return [elapsed]

    def time(self, samples: int, calls: int, is_flushed: bool, seed: int) -> list[int]:
        """Results of the last visits to the first and last set are published, once the clock stands."""
        draw = random.Random(seed)
        last_visits = {self._last_visit(index, samples * calls) for index in (0, self._sets - 1)}
        begin = time.perf_counter_ns()
        times = []
        for sample in range(samples):
            if is_flushed:
                self._flush.add_(1)
            self._touch_outputs(draw)
            kept = []
            start = time.perf_counter_ns()
            for call in range(calls):
                index = (sample * calls + call) % self._sets
                results = self._executor(self._inputs[index])
                if sample * calls + call in last_visits:
                    kept.append((results, index))
            del results
            times.append(time.perf_counter_ns() - start)
            for published, index in kept:
                self._publish(published, index)
        return [time.perf_counter_ns() - begin, *times]

    def _last_visit(self, index: int, visits: int) -> int:
        return (visits - 1 - index) // self._sets * self._sets + index

    def _touch_outputs(self, draw: random.Random) -> None:
        """What stood in the arena from the round before is no longer whole."""
        for name in self._names(Role.OUTPUT):
            for index in {0, self._sets - 1}:
                flat = self._bytes(name, index)
                for _ in range(min(_TOUCHED_LINES, flat.numel() // _LINE)):
                    place = draw.randrange(flat.numel() // _LINE) * _LINE
                    flat[place : place + _LINE] = 0xFF

    def _publish(self, results: Mapping[str, torch.Tensor], index: int) -> None:
        for name, placed in self._flat.results.items():
            if self._flat.regions[placed.address.region].role is Role.OUTPUT:
                self._place(placed, index).copy_(results[name])

    def _names(self, *roles: Role) -> list[str]:
        return [region.name for region in self._flat.regions if region.role in roles]

    def _region(self, name: str, index: int) -> torch.Tensor:
        position = next(i for i, region in enumerate(self._flat.regions) if region.name == name)
        region = self._flat.regions[position]
        return self._place(Placed(Address(position, 0), region.dtype, region.shape, region.strides), index)

    def _bytes(self, name: str, index: int) -> torch.Tensor:
        position = next(i for i, region in enumerate(self._flat.regions) if region.name == name)
        return _view(self._memory, self._spots[position], index, self._flat.regions[position].nbytes)

    def _place(self, placed: Placed, index: int) -> torch.Tensor:
        region = self._flat.regions[placed.address.region]
        flat = _view(self._memory, self._spots[placed.address.region], index, region.nbytes)
        usable = flat[placed.address.offset :]
        usable = usable[: usable.numel() // placed.dtype.itemsize * placed.dtype.itemsize]
        return usable.view(torch_dtype(placed.dtype)).as_strided(placed.shape, placed.strides)


def _view(memory: Mapping[Segment, mmap.mmap], spot: Spot, index: int, nbytes: int) -> torch.Tensor:
    if nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    with warnings.catch_warnings():
        # That the inputs cannot be written is the point.
        warnings.simplefilter("ignore")
        return torch.frombuffer(memory[spot.segment], dtype=torch.uint8, count=nbytes, offset=spot.at(index))


def serve(descriptor: int, library: str, threads: int, answers: int, lock: Callable[[], int]) -> None:
    """Answer on the descriptor `answers` until the parent closes standard input.

    `lock` refuses new threads and processes; it is called when every thread that torch uses is there.
    """
    channel = socket.socket(fileno=descriptor)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    torch.ones(1 << 20).add_(1)
    torch.ones(256, 256) @ torch.ones(256, 256)
    pool = Pool(Path(library), threads, parallel=find_parallel())
    lock()
    session: _Session | None = None
    while True:
        header = _read(_HEADER.size)
        if not header:
            return
        word, _, rest = _read(_HEADER.unpack(header)[0]).decode().partition(" ")
        try:
            if word == "open":
                session = None
                _, files, _, _ = socket.recv_fds(channel, 1, 2)
                session = _Session(json.loads(rest), list(files), pool)
                answer: list[int] = []
            elif word == "close":
                session, answer = None, []
            else:
                assert session is not None
                answer = getattr(session, word)(*(int(number) for number in rest.split()))
        except MemoryError:
            _answer(answers, "error memory")
        except Exception as error:  # noqa: BLE001 - whatever a plan does wrong is told to the parent
            _answer(answers, f"error {type(error).__name__}: {error}")
        else:
            _answer(answers, " ".join(["ok", *map(str, answer)]))


def _read(count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = os.read(0, count - len(parts))
        if not part:
            return b""
        parts += part
    return parts


def _answer(descriptor: int, text: str) -> None:
    payload = text.encode()
    frame = _HEADER.pack(len(payload)) + payload
    while frame:
        frame = frame[os.write(descriptor, frame) :]
