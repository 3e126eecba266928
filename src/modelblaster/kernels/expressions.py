"""Nodes of a nest as statements of a dialect, at given loop coordinates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelblaster.kernels.ir import COMPUTE_TYPES, Const, Index, Load, Reduce

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from modelblaster.kernels.dialect import Dialect
    from modelblaster.kernels.ir import Nest, Store

_IDENTIFIER = re.compile(r"\W")


@dataclass(frozen=True, slots=True)
class Place:
    """Where statements stand: the C expression of every axis in scope, and how many lanes are alive."""

    coordinates: Mapping[int, str]
    length: str


class Writer:
    """Spells nodes and stores of one nest; `names` gives the pointer of each buffer."""

    def __init__(self, nest: Nest, lane: int, dialect: Dialect, names: Mapping[str, str]) -> None:
        self.nest = nest
        self.lane = lane
        self.dialect = dialect
        self.names = names

    def declare(self, node: int, name: str, place: Place, value_of: Callable[[int], str]) -> str:
        """`const TYPE name = …;`."""
        return f"const {self.vector(node)} {name} = {self.expression(node, place, value_of)};"

    def vector(self, node: int) -> str:
        """The vector type of a node."""
        return self.dialect.vector(self.nest.nodes[node].ctype)

    def expression(self, number: int, place: Place, value_of: Callable[[int], str]) -> str:
        """A node in terms of its arguments' names."""
        node = self.nest.nodes[number]
        if isinstance(node, Load):
            pointer = self._pointer(self.names[node.buffer], node.strides, node.offset, place)
            return self.dialect.load(node.dtype, pointer, node.strides[self.lane], place.length)
        if isinstance(node, Const):
            return self.dialect.constant(node.value, node.ctype)
        if isinstance(node, Index):
            start = self._offset(node.strides, 0, place) or "0"
            return self.dialect.index(start, node.strides[self.lane], node.ctype)
        if isinstance(node, Reduce):
            raise TypeError("a reduction is no expression")
        source = self.nest.nodes[node.arguments[-1]].ctype
        return self.dialect.apply(node.op, source, node.ctype, [value_of(a) for a in node.arguments])

    def store(self, store: Store, place: Place, value: str, *, stream: bool) -> str:
        """The statement of a store; converts where the value computes in another type than memory wants."""
        have, wanted = self.nest.nodes[store.value].ctype, COMPUTE_TYPES[store.dtype]
        if have is not wanted:
            value = self.dialect.apply("cast", have, wanted, [value])
        pointer = self._pointer(self.names[store.buffer], store.strides, 0, place)
        return self.dialect.store(store.dtype, pointer, store.strides[self.lane], value, place.length, stream=stream)

    def _pointer(self, name: str, strides: Sequence[int], offset: int, place: Place) -> str:
        text = self._offset(strides, offset, place)
        return f"{name} + {text}" if text else name

    def _offset(self, strides: Sequence[int], offset: int, place: Place) -> str:
        terms = [
            place.coordinates[axis] if stride == 1 else f"{place.coordinates[axis]} * {stride}"
            for axis, stride in enumerate(strides)
            if stride and axis in place.coordinates
        ]
        return " + ".join(([str(offset)] if offset else []) + terms)


def pointer_names(inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """A C name for each buffer, readable and unique: a program's names have dots and may clash with keywords."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for buffer in dict.fromkeys([*inputs, *outputs]):
        stem = ("out_" if buffer in outputs else "in_") + _IDENTIFIER.sub("_", buffer)
        name, count = stem, 1
        while name in taken:
            count += 1
            name = f"{stem}_{count}"
        taken.add(name)
        names[buffer] = name
    return names
