"""A reduction with too few rows as several launches: partial results of pieces, combined, then the next pass.

Every part is a plain nest again, so the emitter knows nothing of splitting. For each depth of nested reductions: one
nest whose pieces are a parallel axis and whose outputs are partial results, and one small nest that combines them
(and stores the row outputs after the last depth). Then one map over the whole domain for the element outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modelblaster.kernels.dialect import CType
from modelblaster.kernels.ir import (
    ARGMAX,
    ARGMIN,
    INDEX_COMBINERS,
    MAX,
    MIN,
    Axis,
    Index,
    Load,
    Nest,
    Reduce,
    Store,
    arguments,
    depths,
    variation,
    with_arguments,
    with_axes,
)  # fmt: skip
from modelblaster.kernels.layout import compacted, with_strides
from modelblaster.records.plan import Buffer, Role
from modelblaster.records.tensor import DType, contiguous_strides

if TYPE_CHECKING:
    from modelblaster.kernels.ir import Node

_EXTREME = {ARGMAX: MAX, ARGMIN: MIN}
_MEMORY = {
    CType.F32: DType.FLOAT32,
    CType.F64: DType.FLOAT64,
    CType.I32: DType.INT32,
    CType.I64: DType.INT64,
    CType.MASK: DType.BOOL,
}


@dataclass(frozen=True, slots=True)
class Parts:
    """Nests in the order in which they run, and the scratch buffers between them."""

    nests: tuple[Nest, ...]
    buffers: tuple[Buffer, ...]


def split(nest: Nest, pieces: int, prefix: str) -> Parts:
    """The nest with its longest reduced axis cut into about `pieces` pieces."""
    return _Splitter(nest, pieces, prefix).parts()


class _Splitter:
    def __init__(self, nest: Nest, pieces: int, prefix: str) -> None:
        self._original = nest
        self._prefix = prefix
        self._cut = max(nest.reduced, key=lambda k: nest.axes[k].size)
        size = nest.axes[self._cut].size
        self._chunk = -(-size // pieces)
        self._pieces = -(-size // self._chunk)
        self._rows = tuple(k for k, axis in enumerate(nest.axes) if not axis.reduced)
        self._row_shape = tuple(nest.axes[k].size for k in self._rows)
        self._depth = depths(nest)
        self._buffers: list[Buffer] = []
        self._known: dict[int, Load] = {}

    def parts(self) -> Parts:
        nests: list[Nest] = []
        deepest = max(self._depth)
        for depth in range(1, deepest + 1):
            numbers = [
                k for k, n in enumerate(self._original.nodes) if isinstance(n, Reduce) and self._depth[k] == depth
            ]
            partial = self._partial(numbers)
            nests += [partial, self._combined(numbers, is_last=depth == deepest)]
        elements = tuple(s for s in self._original.stores if not self._is_row(s))
        if elements:
            nests.append(self._elements(elements))
        return Parts(tuple(nests), tuple(self._buffers))

    def _is_row(self, store: Store) -> bool:
        varies = variation(self._original)[store.value]
        return not any(store.strides[k] or k in varies for k in self._original.reduced)

    def _scratch(self, dtype: DType, shape: tuple[int, ...]) -> str:
        name = f"{self._prefix}_part{len(self._buffers)}"
        self._buffers.append(Buffer(name, Role.SCRATCH, dtype, shape or (1,)))
        return name

    def _row_strides(self, extra: int = 1) -> tuple[int, ...]:
        """Strides over the original axes of a buffer with `extra` entries for each row."""
        strides = [0] * len(self._original.axes)
        for axis, stride in zip(self._rows, contiguous_strides(self._row_shape), strict=True):
            strides[axis] = stride * extra
        return tuple(strides)

    def _substituted(self, stores: tuple[Store, ...]) -> Nest:
        """The original with known values read from scratch and other stores."""
        nodes = list(self._original.nodes)
        for number, load in self._known.items():
            nodes[number] = load
        return Nest(self._original.axes, tuple(nodes), stores)

    def _partial(self, numbers: list[int]) -> Nest:
        base = self._substituted(())
        nodes = list(base.nodes)
        strides = self._row_strides(self._pieces)
        stores: list[Store] = []
        for number in numbers:
            for value, dtype in self._states(nodes, number):
                name = self._scratch(dtype, (*self._row_shape, self._pieces))
                stores.append(Store(name, dtype, value, strides))
        cut, chunk = self._cut, self._chunk
        total = self._original.axes[cut].size
        limit = (cut, total) if total % chunk else None
        axes = [*base.axes[:cut], Axis(self._pieces), Axis(chunk, reduced=True, limit=limit), *base.axes[cut + 1 :]]
        nest = with_strides(
            Nest(base.axes, tuple(nodes), tuple(stores)),
            tuple(axes),
            lambda s: (*s[:cut], s[cut] * chunk, s[cut], *s[cut + 1 :]),
        )
        opened = tuple(replace(s, strides=(*s.strides[:cut], 1, *s.strides[cut + 1 :])) for s in nest.stores)
        return compacted(replace(nest, stores=opened))

    def _states(self, nodes: list[Node], number: int) -> list[tuple[int, DType]]:
        """The nodes that make up a partial state: the value, and the index of an index combiner."""
        node = nodes[number]
        assert isinstance(node, Reduce)
        if node.combiner not in INDEX_COMBINERS:
            return [(number, _MEMORY[node.ctype])]
        element = node.arguments[0]
        ctype = nodes[element].ctype
        nodes.append(Reduce(_EXTREME[node.combiner], (element,), ctype))
        return [(len(nodes) - 1, _MEMORY[ctype]), (number, _MEMORY[node.ctype])]

    def _combined(self, numbers: list[int], *, is_last: bool) -> Nest:
        """Rows and pieces only: the reductions from their parts, then what is stored of rows."""
        names = iter([b.name for b in self._buffers[-self._count(numbers) :]])
        nodes = list(self._substituted(()).nodes)
        piece = len(self._original.axes)
        extended = [with_axes(n, (*n.strides, 0)) if isinstance(n, Load | Index) else n for n in nodes]
        strides = (*self._row_strides(self._pieces), 1)
        for number in numbers:
            node = nodes[number]
            assert isinstance(node, Reduce)
            loads = []
            for argument in node.arguments:
                dtype = _MEMORY[nodes[argument].ctype]
                extended.append(Load(next(names), dtype, strides))
                loads.append(len(extended) - 1)
            extended[number] = Reduce(node.combiner, tuple(loads), node.ctype)
        stores = self._row_outputs(numbers, is_last=is_last)
        kept = [*self._rows, piece]
        axes = (*(self._original.axes[k] for k in self._rows), Axis(self._pieces, reduced=True))
        wide = Nest((*self._original.axes, axes[-1]), tuple(extended), stores)
        nest = compacted(_ordered(wide))
        return with_strides(nest, axes, lambda s: tuple(s[k] for k in kept))

    def _count(self, numbers: list[int]) -> int:
        return sum(len(arguments(self._original.nodes[k])) for k in numbers)

    def _row_outputs(self, numbers: list[int], *, is_last: bool) -> tuple[Store, ...]:
        """Scratch stores of values that later parts read, and after the last depth the row outputs."""
        stores: list[Store] = []
        row = self._row_strides()
        wanted = self._frontier() if is_last else numbers
        for number in wanted:
            if number in self._known and not is_last:
                continue
            dtype = _MEMORY[self._original.nodes[number].ctype]
            name = self._scratch(dtype, self._row_shape)
            stores.append(Store(name, dtype, number, (*row, 0)))
        if is_last:
            outputs = [s for s in self._original.stores if self._is_row(s)]
            stores += [replace(s, strides=(*s.strides, 0)) for s in outputs]
        known = {s.value: Load(s.buffer, s.dtype, row) for s in stores if s.buffer.startswith(f"{self._prefix}_part")}
        self._known = {**self._known, **known}
        return tuple(stores)

    def _frontier(self) -> list[int]:
        """Row values made of reductions that the element outputs use directly."""
        nest, varies = self._original, variation(self._original)
        reduced = set(nest.reduced)
        found: set[int] = set()
        waiting = [s.value for s in nest.stores if not self._is_row(s)]
        seen: set[int] = set()
        while waiting:
            k = waiting.pop()
            if k in seen:
                continue
            seen.add(k)
            if self._depth[k] and not varies[k] & reduced:
                found.add(k)
            else:
                waiting.extend(arguments(nest.nodes[k]))
        return sorted(found)

    def _elements(self, stores: tuple[Store, ...]) -> Nest:
        nest = compacted(self._substituted(stores))
        return replace(nest, axes=tuple(replace(axis, reduced=False) for axis in nest.axes))


def _ordered(nest: Nest) -> Nest:
    """Nodes renumbered so that arguments come first again."""
    order: list[int] = []
    done: set[int] = set()

    def visit(k: int) -> None:
        if k in done:
            return
        done.add(k)
        for a in arguments(nest.nodes[k]):
            visit(a)
        order.append(k)

    for k in range(len(nest.nodes)):
        visit(k)
    new = {old: position for position, old in enumerate(order)}
    nodes = tuple(with_arguments(nest.nodes[k], tuple(new[a] for a in arguments(nest.nodes[k]))) for k in order)
    return Nest(nest.axes, nodes, tuple(replace(s, value=new[s.value]) for s in nest.stores))
