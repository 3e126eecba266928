"""The declarative plan: steps over named buffers.

A plan is how a program runs: the captured reference (library steps only), a candidate for a slot and a whole
optimized program are all plans. Sizes, offsets and ranges are `Expr`: an integer, or text over shape symbols, the
variable of an enclosing `Repeat` and device facts, with + - * // % min max ceildiv align (`records.expression`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from modelblaster.records.tensor import DType

Expr = int | str


class Role(StrEnum):
    """Who fills a buffer and who may read it."""

    INPUT = "input"
    PARAMETER = "parameter"
    DERIVED = "derived"
    OUTPUT = "output"
    MUTATED = "mutated"
    SCRATCH = "scratch"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named region. `strides` are in elements; None means contiguous.

    DERIVED buffers are written by `setup` from parameters and read by `steps`; SCRATCH lives within one call;
    MUTATED buffers are parameters that the steps also write (running statistics).
    """

    name: str
    role: Role
    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """A buffer as an argument. `offset` is in elements."""

    buffer: str
    offset: Expr = 0
    kind: Literal["ref"] = "ref"


@dataclass(frozen=True, slots=True)
class Attribute:
    """A torch constant that JSON has no word for: `dtype`, `memory_format`, `layout` or `device`, by its name."""

    type: Literal["dtype", "memory_format", "layout", "device"]
    name: str
    kind: Literal["attribute"] = "attribute"


Argument = TypeAliasType(
    "Argument",
    "Annotated[Ref | Attribute, Field(discriminator='kind')] | bool | int | float | str | tuple[Argument, ...] | None",
)


@dataclass(frozen=True, slots=True)
class Launch:
    """Call a kernel over `range` units, in pieces of `grain` units; `scratch_bytes` are per worker thread."""

    entry: str
    arguments: tuple[Ref, ...]
    sizes: tuple[Expr, ...]
    range: Expr
    grain: Expr
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    scratch_bytes: Expr = 0
    kind: Literal["launch"] = "launch"


@dataclass(frozen=True, slots=True)
class Library:
    """Call an ATen overload (`aten.convolution.default`); every argument is stated.

    `outputs` names one buffer for each result, in order; an empty name drops that result.
    """

    overload: str
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...]
    outputs: tuple[str, ...]
    kind: Literal["library"] = "library"


@dataclass(frozen=True, slots=True)
class Fill:
    """Set every element of a buffer."""

    buffer: str
    value: float
    kind: Literal["fill"] = "fill"


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy one buffer into another of equal shape and type; the strides may differ."""

    source: str
    destination: str
    kind: Literal["copy"] = "copy"


@dataclass(frozen=True, slots=True)
class View:
    """Make `buffer` another name for memory of `source`, from `offset` elements on. Costs nothing.

    `buffer` is declared among the plan's buffers with its own shape and strides.
    """

    buffer: str
    source: str
    offset: Expr = 0
    kind: Literal["view"] = "view"


@dataclass(frozen=True, slots=True)
class Repeat:
    """Run `steps` `count` times with `variable` counting from 0."""

    variable: str
    count: Expr
    steps: tuple[Step, ...]
    kind: Literal["repeat"] = "repeat"


Step = TypeAliasType("Step", "Annotated[Launch | Library | Fill | Copy | View | Repeat, Field(discriminator='kind')]")


@dataclass(frozen=True, slots=True)
class Plan:
    """Buffers, a setup that runs once on the weights, and the steps of a call, in an order that is valid.

    `symbols` are the default values of the shape symbols used in expressions. Inputs, parameters and outputs are
    passed and returned in the order of `buffers`. The shapes, types and strides of input buffers are the guards.
    """

    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    setup: tuple[Step, ...] = ()
    symbols: tuple[tuple[str, int], ...] = ()
    deterministic: bool = True

    def named(self, *roles: Role) -> tuple[Buffer, ...]:
        """The buffers of these roles, in order."""
        return tuple(buffer for buffer in self.buffers if buffer.role in roles)

    def buffer(self, name: str) -> Buffer:
        """The buffer of this name.

        Raises:
            KeyError: the plan has no such buffer.
        """
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        raise KeyError(name)


__all__ = [
    "Annotated", "Argument", "Attribute", "Buffer", "Copy", "Expr", "Field", "Fill", "Launch", "Library", "Plan",
    "Ref", "Repeat", "Role", "Step", "View",
]  # fmt: skip
