"""A plan in a process that has torch: library calls by torch, runs of kernels between them by the pool.

Serves artifacts in a user's process and, in a sandbox, candidates with library steps. Library results stay where
torch puts them and are let go after their last use, as in eager execution, so that neither side of a comparison pays
for memory that the other does not.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from modelblaster.backends.flat import FlatCopy, FlatFill, FlatLaunch, FlatLibrary
from modelblaster.program.library import prepare, torch_dtype
from modelblaster.records.plan import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from modelblaster.backends.cpu.pool import Pool
    from modelblaster.backends.flat import Flat, FlatStep, Placed, Region

_KEPT = frozenset({Role.PARAMETER, Role.MUTATED, Role.DERIVED, Role.SCRATCH})


class PlanExecutor:
    """Implements `interface.InProcess`. `flat` fits the pool's number of threads."""

    def __init__(self, flat: Flat, pool: Pool, objects: Sequence[Path]) -> None:
        self._flat = flat
        self._pool = pool
        self._objects = tuple(objects)
        self._tensors: list[torch.Tensor | None] = [None] * len(flat.regions)
        self._pointers = (ctypes.c_void_p * len(flat.regions))()
        self._index = {region.name: index for index, region in enumerate(flat.regions)}
        self._from_library = {
            self._index[name]
            for step in flat.steps
            if isinstance(step, FlatLibrary)
            for name in step.step.outputs
            if name in self._index
        }
        self._outputs = [
            index
            for index, region in enumerate(flat.regions)
            if region.role is Role.OUTPUT and index not in self._from_library
        ]
        for index, region in enumerate(flat.regions):
            if region.role in (Role.DERIVED, Role.SCRATCH) and index not in self._from_library:
                self._put(index, _allocate(region))
        self._setup = self._compile(flat.setup)
        self._steps = self._compile(flat.steps)

    def bind(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Use these parameters and mutated buffers, and run the setup."""
        for name, tensor in parameters.items():
            if name in self._index:
                self._put(self._index[name], tensor)
        for step in self._setup:
            step()

    def __call__(self, inputs: Mapping[str, torch.Tensor], *, is_poisoned: bool = False) -> dict[str, torch.Tensor]:
        """Outputs by name, freshly allocated or as a library call returned them.

        With `is_poisoned`, memory that the plan is to write holds NaN in every floating type before.
        """
        for name, tensor in inputs.items():
            if name in self._index:
                self._put(self._index[name], tensor)
        for index in self._outputs:
            self._put(index, _allocate(self._flat.regions[index]))
        if is_poisoned:
            self._poison()
        for step in self._steps:
            step()
        results = {name: self._tensor(placed) for name, placed in self._flat.results.items()}
        for index, region in enumerate(self._flat.regions):
            if region.role not in _KEPT:
                self._tensors[index] = None
        return results

    def _poison(self) -> None:
        for index, region in enumerate(self._flat.regions):
            tensor = self._tensors[index]
            if tensor is not None and region.role in (Role.SCRATCH, Role.OUTPUT):
                flat = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0)
                flat.view(torch.uint8).fill_(0xFF)

    def _compile(self, steps: Sequence[FlatStep]) -> list[Callable[[], None]]:
        compiled: list[Callable[[], None]] = []
        native: list[FlatLaunch | FlatFill | FlatCopy] = []
        last_use = self._last_uses(steps)
        for position, step in enumerate(steps):
            if isinstance(step, FlatLibrary):
                if native:
                    compiled.append(self._segment(native))
                    native = []
                done = [index for index, last in last_use.items() if last == position]
                compiled.append(self._library(step, done))
            else:
                native.append(step)
        if native:
            compiled.append(self._segment(native))
        return compiled

    def _last_uses(self, steps: Sequence[FlatStep]) -> dict[int, int]:
        """For library results that only library calls read: the position of the last one."""
        last: dict[int, int] = {}
        held: set[int] = {placed.address.region for placed in self._flat.results.values()}
        for position, step in enumerate(steps):
            if isinstance(step, FlatLibrary):
                last.update({placed.address.region: position for placed in step.tensors.values()})
            else:
                held.update(_regions(step))
        return {index: at for index, at in last.items() if index in self._from_library and index not in held}

    def _segment(self, steps: Sequence[FlatLaunch | FlatFill | FlatCopy]) -> Callable[[], None]:
        handle = self._pool.prepare(tuple(steps), self._objects)

        def run() -> None:
            self._pool.execute(handle, self._pointers)

        return run

    def _library(self, step: FlatLibrary, done: Sequence[int]) -> Callable[[], None]:
        call = prepare(step.step)
        read = [(name, placed) for name, placed in step.tensors.items() if name not in step.step.outputs]
        written = [(name, step.tensors.get(name)) for name in step.step.outputs]

        def run() -> None:
            results = call({name: self._tensor(placed) for name, placed in read})
            for (name, placed), result in zip(written, results, strict=True):
                if placed is not None and result is not None:
                    self._bind_result(name, placed, result)
            for index in done:
                self._tensors[index] = None

        return run

    def _bind_result(self, name: str, placed: Placed, result: torch.Tensor) -> None:
        """The plan's strides hold for everything after: a library that answers with others is copied."""
        index = self._index.get(name)
        if index is None:
            self._tensor(placed).copy_(result)
            return
        region = self._flat.regions[index]
        if not _fits(result, region):
            result = _allocate(region).copy_(result)
        self._put(index, result)

    def _put(self, index: int, tensor: torch.Tensor) -> None:
        self._tensors[index] = tensor
        self._pointers[index] = tensor.data_ptr()

    def _tensor(self, placed: Placed) -> torch.Tensor:
        region = self._flat.regions[placed.address.region]
        tensor = self._tensors[placed.address.region]
        assert tensor is not None, f"{region.name} is read before it is written"
        is_whole = (
            placed.address.offset == 0
            and placed.dtype == region.dtype
            and placed.shape == region.shape
            and placed.strides == region.strides
        )
        if is_whole:
            return tensor
        dtype = torch_dtype(placed.dtype)
        if placed.dtype != region.dtype:
            flat = tensor.view(torch.uint8)[placed.address.offset :]
            usable = flat.numel() // dtype.itemsize * dtype.itemsize
            return flat[:usable].view(dtype).as_strided(placed.shape, placed.strides)
        offset = tensor.storage_offset() + placed.address.offset // dtype.itemsize
        return tensor.as_strided(placed.shape, placed.strides, offset)


def _allocate(region: Region) -> torch.Tensor:
    return torch.empty_strided(region.shape, region.strides, dtype=torch_dtype(region.dtype))


def _fits(tensor: torch.Tensor, region: Region) -> bool:
    """Strides of axes of one element do not matter."""
    return tensor.dtype == torch_dtype(region.dtype) and all(
        size == 1 or actual == stated
        for size, actual, stated in zip(region.shape, tensor.stride(), region.strides, strict=True)
    )


def _regions(step: FlatLaunch | FlatFill | FlatCopy) -> list[int]:
    if isinstance(step, FlatLaunch):
        return [address.region for address in step.arguments]
    if isinstance(step, FlatFill):
        return [step.target.address.region]
    return [step.source.address.region, step.destination.address.region]
