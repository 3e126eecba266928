"""Plans as backends run them: straight-line steps with integer sizes over regions of memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelblaster.records.plan import Library, Role
    from modelblaster.records.tensor import DType


@dataclass(frozen=True, slots=True)
class Region:
    """A buffer with memory of its own. `strides` are in elements."""

    name: str
    role: Role
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Address:
    """A place in memory: an index into `Flat.regions` and a byte offset."""

    region: int
    offset: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor and where it lies. `strides` are in elements."""

    address: Address
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlatLaunch:
    """Call `entry` over `range` units in pieces of `grain`; `scratch_bytes` are per thread."""

    entry: str
    arguments: tuple[Address, ...]
    sizes: tuple[int, ...]
    range: int
    grain: int
    scratch_bytes: int


@dataclass(frozen=True, slots=True)
class FlatFill:
    """Set every element of a tensor."""

    target: Placed
    value: float


@dataclass(frozen=True, slots=True)
class FlatCopy:
    """Copy between two tensors of equal shape and type."""

    source: Placed
    destination: Placed


@dataclass(frozen=True, slots=True)
class FlatLibrary:
    """A library call; `tensors` says for every buffer that it names where that lies now. Offsets are integers."""

    step: Library
    tensors: Mapping[str, Placed]


FlatStep = FlatLaunch | FlatFill | FlatCopy | FlatLibrary


@dataclass(frozen=True, slots=True)
class Flat:
    """A plan in order. `results` says where outputs and mutated buffers lie at the end of `steps`."""

    regions: tuple[Region, ...]
    setup: tuple[FlatStep, ...]
    steps: tuple[FlatStep, ...]
    results: Mapping[str, Placed]

    @property
    def scratch_bytes(self) -> int:
        """The largest scratch that any launch asks for, per thread."""
        launches = [step for step in (*self.setup, *self.steps) if isinstance(step, FlatLaunch)]
        return max((step.scratch_bytes for step in launches), default=0)
