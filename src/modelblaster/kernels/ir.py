"""The tensor-expression IR: one nest is one loop nest over a domain, with at most one set of reduced axes.

A nest computes, for every point of its domain, a hash-consed DAG of typed expressions. A value is a *row* value if it
does not vary over the reduced axes (every `Reduce` is one) and an *element* value otherwise. The depth of nested
reductions gives the passes over a row: softmax has max (depth 1), sum of exp (depth 2), and a map.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modelblaster.kernels.dialect import CType
from modelblaster.kernels.primitives import FLOPS
from modelblaster.records.profile import Work
from modelblaster.records.tensor import DType

if TYPE_CHECKING:
    from collections.abc import Iterator

SUM, PROD, MAX, MIN, ARGMAX, ARGMIN, ANY, ALL = "sum", "prod", "max", "min", "argmax", "argmin", "any", "all"
INDEX_COMBINERS = frozenset({ARGMAX, ARGMIN})

COMPUTE_TYPES = {
    DType.FLOAT64: CType.F64,
    DType.FLOAT32: CType.F32,
    DType.FLOAT16: CType.F32,
    DType.BFLOAT16: CType.F32,
    DType.INT64: CType.I64,
    DType.INT32: CType.I32,
    DType.INT16: CType.I32,
    DType.INT8: CType.I32,
    DType.UINT8: CType.I32,
    DType.BOOL: CType.MASK,
}


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop of the domain.

    `limit` (outer axis, total) marks the inner part of an axis cut into pieces that do not divide it: at index o of
    the outer axis the size is `min(size, total - size * o)`.
    """

    size: int
    reduced: bool = False
    limit: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """An element of a buffer at `offset + Σ index * stride` (elements), one stride for each axis."""

    buffer: str
    dtype: DType
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def ctype(self) -> CType:
        """The type it computes in."""
        return COMPUTE_TYPES[self.dtype]


@dataclass(frozen=True, slots=True)
class Const:
    """A number as `repr` writes it, so that -0.0 and NaN compare as texts do."""

    value: str
    ctype: CType


@dataclass(frozen=True, slots=True)
class Index:
    """The integer `Σ index * stride`: where an element lies in a reduced row."""

    strides: tuple[int, ...]
    ctype: CType


@dataclass(frozen=True, slots=True)
class Apply:
    """A primitive of `kernels.primitives` on earlier nodes."""

    op: str
    arguments: tuple[int, ...]
    ctype: CType


@dataclass(frozen=True, slots=True)
class Reduce:
    """A combination over the reduced axes. ARGMAX and ARGMIN take a value and an index and give the index."""

    combiner: str
    arguments: tuple[int, ...]
    ctype: CType


Node = Load | Const | Index | Apply | Reduce


@dataclass(frozen=True, slots=True)
class Store:
    """Write node `value` to a buffer; strides are 0 along axes that it does not vary over."""

    buffer: str
    dtype: DType
    value: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Nest:
    """A domain, nodes in an order in which arguments come first, and what is written."""

    axes: tuple[Axis, ...]
    nodes: tuple[Node, ...]
    stores: tuple[Store, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the buffers that are read, each once, in order of first use."""
        return tuple(dict.fromkeys(node.buffer for node in self.nodes if isinstance(node, Load)))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the buffers that are written."""
        return tuple(store.buffer for store in self.stores)

    @property
    def reduced(self) -> tuple[int, ...]:
        """Positions of the reduced axes."""
        return tuple(k for k, axis in enumerate(self.axes) if axis.reduced)

    @property
    def family(self) -> str:
        """The word that states and arms are keyed by: `map` or `row_reduction`."""
        return "row_reduction" if any(isinstance(node, Reduce) for node in self.nodes) else "map"

    def work(self) -> Work:
        """What has to happen at least: every addressed element of a buffer once, every node once for each value.

        Floating-point operations are counted as `primitives.FLOPS` says: one for arithmetic, more for functions.
        """
        moved: dict[tuple[str, bool], int] = {}
        accesses: list[Load | Store] = [node for node in self.nodes if isinstance(node, Load)]
        accesses += self.stores
        for access in accesses:
            key = (access.buffer, isinstance(access, Store))
            moved[key] = max(moved.get(key, 0), self.addressed(access.strides) * access.dtype.itemsize)
        return Work(bytes_moved=sum(moved.values()), flops=self._flops(), launches=1)

    def addressed(self, strides: tuple[int, ...]) -> int:
        """How many different elements an access with these strides touches."""
        return math.prod(axis.size for axis, stride in zip(self.axes, strides, strict=True) if stride)

    def _flops(self) -> int:
        varies = variation(self)
        total = 0
        for k, node in enumerate(self.nodes):
            if isinstance(node, Apply):
                total += FLOPS.get(node.op, 1) * math.prod(self.axes[a].size for a in varies[k])
            elif isinstance(node, Reduce):
                total += math.prod(self.axes[a].size for a in varies[k] | set(self.reduced))
        return total


def variation(nest: Nest) -> list[frozenset[int]]:
    """For every node, the axes that its value depends on."""
    reduced = frozenset(nest.reduced)
    result: list[frozenset[int]] = []
    for node in nest.nodes:
        if isinstance(node, Load | Index):
            result.append(frozenset(k for k, stride in enumerate(node.strides) if stride))
        elif isinstance(node, Const):
            result.append(frozenset())
        else:
            union = frozenset[int]().union(*(result[a] for a in node.arguments))
            result.append(union - reduced if isinstance(node, Reduce) else union)
    return result


def depths(nest: Nest) -> list[int]:
    """For every node, how many reductions are nested in it: its value is known after that many passes."""
    result: list[int] = []
    for node in nest.nodes:
        below = max((result[a] for a in arguments(node)), default=0)
        result.append(below + 1 if isinstance(node, Reduce) else below)
    return result


def arguments(node: Node) -> tuple[int, ...]:
    """The nodes that a node is computed from."""
    return node.arguments if isinstance(node, Apply | Reduce) else ()


def with_arguments(node: Node, numbers: tuple[int, ...]) -> Node:
    """The node computed from others; nodes without arguments stay."""
    return replace(node, arguments=numbers) if isinstance(node, Apply | Reduce) else node


def with_axes(node: Node, strides: tuple[int, ...]) -> Node:
    """The node over other axes; nodes without strides stay."""
    return replace(node, strides=strides) if isinstance(node, Load | Index) else node


def reachable(nest: Nest, roots: Iterator[int] | list[int]) -> set[int]:
    """The roots and everything that they are computed from."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        k = waiting.pop()
        if k not in seen:
            seen.add(k)
            waiting.extend(arguments(nest.nodes[k]))
    return seen
