"""The loop structure of a nest under a mode: which axis is looped where, and what is computed at which depth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from modelblaster.kernels.dialect import CType
from modelblaster.kernels.ir import (
    MAX,
    SUM,
    Apply,
    Axis,
    Nest,
    Reduce,
    Store,
    arguments,
    depths,
    variation,
)  # fmt: skip
from modelblaster.kernels.primitives import EXPENSIVE

LANE, MID, ROW_LEVEL = 2, 1, 0
"""Where a value is computed: in the innermost loop, around it, or once for each row."""


@dataclass(frozen=True)
class Shape:
    """A nest's axes by their use.

    `loops` are the axes looped within a unit, outer to inner: the reduced ones, or a map's innermost one. `lane` is
    the axis of the lanes: the last loop (row mode) or a parallel axis (column mode). `outer` are the axes that make
    units, besides blocks of the lane axis.
    """

    nest: Nest
    loops: tuple[int, ...]
    lane: int
    outer: tuple[int, ...]

    @staticmethod
    def of(nest: Nest, mode: str) -> Shape:
        """The shape under a mode; a nest without axes gets one of size 1."""
        if not nest.axes:
            nest = _with_point(nest)
        parallel = tuple(k for k, axis in enumerate(nest.axes) if not axis.reduced)
        if not nest.reduced:
            return Shape(nest, parallel[-1:], parallel[-1], parallel[:-1])
        if mode == "column":
            return Shape(nest, nest.reduced, parallel[-1], parallel[:-1])
        return Shape(nest, nest.reduced, nest.reduced[-1], parallel)

    @property
    def inner(self) -> int:
        """The innermost looped axis."""
        return self.loops[-1]

    @property
    def is_column(self) -> bool:
        """Whether lanes are rows."""
        return self.lane not in self.loops

    @property
    def is_map(self) -> bool:
        """Whether nothing is reduced: the lane axis is cut into blocks."""
        return not self.nest.reduced

    @property
    def row_size(self) -> int:
        """Points of all loops."""
        return math.prod(self.nest.axes[k].size for k in self.loops)

    def units(self, block: int) -> int:
        """Units of work; `block` elements of the lane axis make one where it is cut."""
        units = math.prod(self.nest.axes[k].size for k in self.outer)
        if self.is_map or self.is_column:
            units *= -(-self.nest.axes[self.lane].size // block)
        return units

    @cached_property
    def varies(self) -> list[frozenset[int]]:
        """For every node, the axes that it depends on."""
        return variation(self.nest)

    @cached_property
    def depth(self) -> list[int]:
        """For every node, after how many passes it is known."""
        return depths(self.nest)

    def level(self, node: int) -> int:
        """Where a node is computed."""
        if self.inner in self.varies[node]:
            return LANE
        return MID if self.varies[node] & set(self.loops) else ROW_LEVEL

    def is_element(self, store: Store) -> bool:
        """Whether a store happens within the loops."""
        return any(store.strides[k] for k in self.loops) or self.level(store.value) != ROW_LEVEL

    @cached_property
    def passes(self) -> list[Pass]:
        """What each pass over a row reduces and stores; the last one may be empty."""
        result: list[Pass] = []
        for p in range(max(self.depth, default=0) + 1):
            reduces = tuple(
                k for k, node in enumerate(self.nest.nodes) if isinstance(node, Reduce) and self.depth[k] == p + 1
            )
            stores = tuple(s for s in self.nest.stores if self.depth[s.value] == p)
            elements = tuple(s for s in stores if self.is_element(s))
            rows = tuple(s for s in stores if not self.is_element(s))
            result.append(Pass(p, reduces, elements, rows))
        return result


@dataclass(frozen=True, slots=True)
class Pass:
    """One walk over a row: reductions of depth `number + 1`, stores of elements and rows known by now."""

    number: int
    reduces: tuple[int, ...]
    elements: tuple[Store, ...]
    rows: tuple[Store, ...]

    @property
    def walks(self) -> bool:
        """Whether it loops over the row at all."""
        return bool(self.reduces or self.elements)

    def roots(self, nest: Nest) -> list[int]:
        """What the walk needs."""
        return [a for k in self.reduces for a in arguments(nest.nodes[k])] + [s.value for s in self.elements]


def _with_point(nest: Nest) -> Nest:
    from modelblaster.kernels.layout import with_strides

    return with_strides(nest, (Axis(1),), lambda _: (0,))


def needed(shape: Shape, roots: list[int], kept: frozenset[int] = frozenset()) -> list[int]:
    """The nodes that the loops of a pass compute for the roots, in order; `kept` ones are read instead.

    Row values on the way are included, what they are made of is not.
    """
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        k = waiting.pop()
        if k in seen:
            continue
        seen.add(k)
        if shape.level(k) != ROW_LEVEL and k not in kept:
            waiting.extend(arguments(shape.nest.nodes[k]))
    return sorted(seen)


def cacheable(shape: Shape) -> frozenset[int]:
    """Elements worth keeping: expensive, computed in one pass and used by a later one."""
    nest = shape.nest
    if not nest.reduced:
        return frozenset()
    first = {k: p.number for p in reversed(shape.passes) for k in needed(shape, p.roots(nest))}
    found: set[int] = set()
    for later in shape.passes:
        for k in _frontier(shape, later.number, later.roots(nest)):
            if first.get(k, later.number) < later.number and nest.nodes[k].ctype is not CType.MASK:
                found.add(k)
    kept: frozenset[int] = frozenset()
    for k in sorted(found):
        if shape.level(k) == LANE and _is_expensive(shape, k, kept):
            kept |= {k}
    return kept


def _frontier(shape: Shape, number: int, roots: list[int]) -> set[int]:
    """Nodes known before a pass that its own nodes use directly."""
    found: set[int] = set()
    for k in needed(shape, roots):
        if shape.depth[k] == number and shape.level(k) != ROW_LEVEL:
            found.update(a for a in arguments(shape.nest.nodes[k]) if shape.depth[a] < number)
    return found | {k for k in roots if shape.depth[k] < number}


def _is_expensive(shape: Shape, node: int, kept: frozenset[int]) -> bool:
    inside = set(needed(shape, [node], kept)) - kept
    ops = (shape.nest.nodes[k] for k in inside if shape.level(k) == LANE)
    return any(isinstance(n, Apply) and n.op in EXPENSIVE for n in ops)


def online_pair(nest: Nest) -> tuple[int, int] | None:
    """The maximum and the sum of exp(x - maximum) of the same x, if the nest's first two passes are just these."""
    depth = depths(nest)
    first = [k for k, node in enumerate(nest.nodes) if isinstance(node, Reduce) and depth[k] == 1]
    second = [k for k, node in enumerate(nest.nodes) if isinstance(node, Reduce) and depth[k] == 2]
    if len(first) != 1 or len(second) != 1 or any(depth[s.value] < 2 for s in nest.stores):
        return None
    top, total = nest.nodes[first[0]], nest.nodes[second[0]]
    if not isinstance(top, Reduce) or not isinstance(total, Reduce) or (top.combiner, total.combiner) != (MAX, SUM):
        return None
    exp = nest.nodes[total.arguments[0]]
    if not isinstance(exp, Apply) or exp.op != "exp":
        return None
    difference = nest.nodes[exp.arguments[0]]
    shifted = Apply("sub", (top.arguments[0], first[0]), top.ctype)
    return (first[0], second[0]) if difference == shifted else None


def is_online_possible(nest: Nest) -> bool:
    """Whether maximum and sum of exponentials can share a pass over memory."""
    return online_pair(nest) is not None
