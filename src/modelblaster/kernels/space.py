"""The domain of a nest that is being built, and how tensors lie in it.

Each value in the nest knows, for each of its dimensions, which domain axes that dimension runs over, outer to inner
(none for a dimension of size 1). So views that only rename, add, remove, merge or split dimensions cost nothing, and a
tensor from outside gets its strides along the domain from its `TensorSpec`. Splitting a domain axis is always possible:
every access is affine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modelblaster.kernels.graph import Graph, Refused, Term
from modelblaster.kernels.ir import Load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelblaster.records.tensor import DType, TensorSpec

Dims = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that the nest computes: node number, type, shape, and its dimensions as domain axes.

    `dims` is None for a constant, which fits any place in the domain.
    """

    number: int
    dtype: DType
    shape: tuple[int, ...]
    dims: Dims | None


@dataclass(frozen=True, slots=True)
class Outside:
    """A tensor from outside the nest, perhaps under another shape: `spec.name` is its buffer."""

    spec: TensorSpec
    offset: int = 0

    @property
    def dtype(self) -> DType:
        """Element type in memory."""
        return self.spec.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape as seen here."""
        return self.spec.shape


Operand = Value | Outside


class Space:
    """Domain sizes, the reduced set, and everything known in it. Copied for each attempt to add a step."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.sizes: list[int] = []
        self.reduced: frozenset[int] | None = None
        self.values: dict[str, Operand] = {}
        self.loaded: dict[Outside, Value] = {}
        self.is_open = True

    def copy(self) -> Space:
        """An independent space."""
        other = Space()
        other.graph = self.graph.copy()
        other.sizes = list(self.sizes)
        other.reduced = self.reduced
        other.values = dict(self.values)
        other.loaded = dict(self.loaded)
        other.is_open = self.is_open
        return other

    def term(self, operand: Operand, dims: Dims) -> Term:
        """The element of an operand that is broadcast over `dims` (aligned at the right)."""
        if isinstance(operand, Value):
            return Term(self.graph, operand.number)
        known = self.loaded.get(operand)
        own = _own_dims(operand.shape, dims)
        if known is not None and known.dims == own:
            return Term(self.graph, known.number)
        strides = [0] * len(self.sizes)
        for axes, stride in zip(own, operand.spec.strides, strict=True):
            step = stride
            for axis in reversed(axes):
                strides[axis] = step
                step *= self.sizes[axis]
        term = self.graph.add(Load(operand.spec.name, operand.dtype, tuple(strides), operand.offset))
        self.loaded[operand] = Value(term.number, operand.dtype, operand.shape, own)
        return term

    def unify(self, shape: Sequence[int], operands: Sequence[Operand]) -> Dims:
        """The domain axes of a result of this shape that is computed point by point from the operands.

        Raises:
            Refused: the operands lie differently in the domain, or the domain would have to grow.
        """
        if 0 in shape:
            raise Refused("an empty tensor")
        found: list[tuple[int, ...] | None] = [() if size == 1 else None for size in shape]
        for operand in operands:
            if isinstance(operand, Value) and operand.dims is not None:
                self._adopt(found, operand, is_hint=False)
        for operand in operands:
            if isinstance(operand, Outside) and operand in self.loaded:
                self._adopt(found, self.loaded[operand], is_hint=True)
        if None in found:
            found = self._open(shape) if self.is_open else self._by_example(tuple(shape), found)
        self.is_open = False
        dims = tuple(axes for axes in found if axes is not None)
        used = [axis for axes in dims for axis in axes]
        if len(set(used)) != len(used):
            raise Refused("one axis in two dimensions")
        return dims

    def _adopt(self, found: list[tuple[int, ...] | None], value: Value, *, is_hint: bool) -> None:
        assert value.dims is not None
        for back, axes in enumerate(reversed(value.dims), start=1):
            if not axes:
                continue
            if found[-back] is None:
                found[-back] = axes
            elif found[-back] != axes and not is_hint:
                raise Refused("operands lie differently in the domain")

    def _open(self, shape: Sequence[int]) -> list[tuple[int, ...] | None]:
        found: list[tuple[int, ...] | None] = []
        for size in shape:
            if size == 1:
                found.append(())
            else:
                found.append((len(self.sizes),))
                self.sizes.append(size)
        return found

    def _by_example(self, shape: tuple[int, ...], found: list[tuple[int, ...] | None]) -> list[tuple[int, ...] | None]:
        for value in [*reversed(self.values.values()), *self.loaded.values()]:
            if not isinstance(value, Value) or value.dims is None or value.shape != shape:
                continue
            if all(axes is None or axes == theirs for axes, theirs in zip(found, value.dims, strict=True)):
                return list(value.dims)
        raise Refused("the domain would grow")

    def regroup(self, dims: Dims, shape: Sequence[int]) -> Dims:
        """The same elements in the same order under another shape, splitting domain axes where needed.

        Dims held elsewhere than in this space are stale after a split; those returned are not.

        Raises:
            Refused: the new shape cuts an axis unevenly.
        """
        axes = [axis for dim in dims for axis in dim]
        result: list[tuple[int, ...]] = []
        for size in shape:
            group: list[int] = []
            wanted = size
            while wanted > 1:
                if not axes:
                    raise Refused("a view of another size")
                axis = axes.pop(0)
                length = self.sizes[axis]
                if wanted % length:
                    outer = math.gcd(wanted, length)
                    if outer == 1 or wanted != outer:
                        raise Refused("a view that cuts an axis unevenly")
                    self.split(axis, outer)
                    result = [_shifted(dim, axis) for dim in result]
                    group = list(_shifted(tuple(group), axis))
                    axes = [axis + 1, *_shifted(tuple(axes), axis)]
                    length = outer
                group.append(axis)
                wanted //= length
            result.append(tuple(group))
        if axes:
            raise Refused("a view of another size")
        return tuple(result)

    def split(self, axis: int, outer: int) -> None:
        """Replace a domain axis by two: `outer` times the rest."""
        inner = self.sizes[axis] // outer
        self.sizes[axis : axis + 1] = [outer, inner]

        def change(strides: tuple[int, ...]) -> tuple[int, ...]:
            return (*strides[:axis], strides[axis] * inner, *strides[axis:])

        self.graph.rewrite_strides(change)
        if self.reduced is not None:
            both = {axis, axis + 1} if axis in self.reduced else set()
            self.reduced = frozenset(both | {a + (a > axis) for a in self.reduced if a != axis})
        self.values = {name: _refined(value, axis) for name, value in self.values.items()}
        self.loaded = {key: _refined_value(value, axis) for key, value in self.loaded.items()}

    def reduce_over(self, axes: Sequence[int]) -> None:
        """Fix the reduced set, or check that it is this one. No axes (dimensions of size 1) is always right.

        Raises:
            Refused: another set is reduced already.
        """
        if not axes:
            return
        wanted = frozenset(axes)
        if self.reduced is None:
            self.reduced = wanted
        elif self.reduced != wanted:
            raise Refused("a second set of reduced axes")

    def record(self, name: str, value: Operand) -> None:
        """Make a result known.

        Raises:
            Refused: it covers neither the whole domain nor exactly the rows.
        """
        if isinstance(value, Value) and value.dims is not None:
            covered = {axis for axes in value.dims for axis in axes}
            everything = set(range(len(self.sizes)))
            if covered != everything and covered != everything - (self.reduced or frozenset()):
                raise Refused("a result that covers a part of the domain")
        if name:
            self.values[name] = value


def _own_dims(shape: tuple[int, ...], dims: Dims) -> Dims:
    aligned = dims[len(dims) - len(shape) :]
    return tuple(() if size == 1 else axes for size, axes in zip(shape, aligned, strict=True))


def _shifted(axes: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The axes after `axis` was split in two; `axis` itself becomes both."""
    return tuple(b for a in axes for b in ((a, a + 1) if a == axis else (a + (a > axis),)))


def _refined_value(value: Value, axis: int) -> Value:
    if value.dims is None:
        return value
    return replace(value, dims=tuple(_shifted(dim, axis) for dim in value.dims))


def _refined(value: Operand, axis: int) -> Operand:
    return _refined_value(value, axis) if isinstance(value, Value) else value
