"""Hash-consed expressions while a nest is being built, and terms: how operators' rules write formulas."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modelblaster.kernels import primitives
from modelblaster.kernels.dialect import CType
from modelblaster.kernels.ir import Apply, Const, Index, Load, Node, Reduce

if TYPE_CHECKING:
    from collections.abc import Callable

Number = int | float | bool


class Refused(Exception):
    """A step that this family of nests does not cover; the message says why."""


class Graph:
    """Nodes by content: an equal node is the same number."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[Node, int] = {}

    def add(self, node: Node) -> Term:
        """The term of this node, new or known."""
        number = self._numbers.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return Term(self, number)

    def copy(self) -> Graph:
        """An independent graph with the same numbers."""
        other = Graph()
        other.nodes = list(self.nodes)
        other._numbers = dict(self._numbers)
        return other

    def rewrite_strides(self, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> None:
        """Express every access over a changed domain; numbers stay."""
        for number, node in enumerate(self.nodes):
            if isinstance(node, Load | Index):
                self.nodes[number] = replace(node, strides=change(node.strides))
        self._numbers = {node: number for number, node in enumerate(self.nodes)}

    def apply(self, op: str, *terms: Term, ctype: CType | None = None) -> Term:
        """A primitive on terms; its type is that of the last one unless stated.

        Raises:
            Refused: the function does not exist for that type.
        """
        source = terms[-1].ctype
        if op in primitives.FUNCTIONS and source is not CType.F32:
            _check_double(op, source)
        return self.add(Apply(op, tuple(term.number for term in terms), ctype or source))

    def constant(self, value: Number, ctype: CType) -> Term:
        """A number of this type."""
        if ctype is CType.MASK:
            text = repr(bool(value))
        elif ctype.is_floating:
            text = repr(float(value))
        else:
            if isinstance(value, float) and not math.isfinite(value):
                raise Refused(f"{value} as an integer")
            text = repr(int(value))
        return self.add(Const(text, ctype))

    def reduce(self, combiner: str, *terms: Term, ctype: CType | None = None) -> Term:
        """A combination over the reduced axes."""
        return self.add(Reduce(combiner, tuple(term.number for term in terms), ctype or terms[-1].ctype))


def _check_double(op: str, source: CType) -> None:
    if source is not CType.F64:
        raise Refused(f"{op} of {source}")
    if op not in primitives.DOUBLE_FUNCTIONS:
        raise Refused(f"{op} in float64")


@dataclass(frozen=True, slots=True)
class Term:
    """A node with Python's operators; numbers on the other side become constants of the term's type."""

    graph: Graph
    number: int

    @property
    def node(self) -> Node:
        """The node itself."""
        return self.graph.nodes[self.number]

    @property
    def ctype(self) -> CType:
        """The type it computes in."""
        return self.node.ctype

    def like(self, value: Number) -> Term:
        """A constant of the type of this term."""
        return self.graph.constant(value, self.ctype)

    def cast(self, ctype: CType) -> Term:
        """The same value in another compute type, as C converts; to MASK: whether it is not zero."""
        if ctype is self.ctype:
            return self
        if isinstance(self.node, Const):
            return self.graph.constant(_number(self.node), ctype)
        if ctype is CType.MASK:
            return self.ne(0)
        return self.graph.apply("cast", self, ctype=ctype)

    def _binary(self, op: str, other: Term | Number) -> Term:
        return self.graph.apply(op, self, self._lift(other))

    def _lift(self, other: Term | Number) -> Term:
        return other if isinstance(other, Term) else self.like(other)

    def _compare(self, op: str, other: Term | Number) -> Term:
        return self.graph.apply(op, self, self._lift(other), ctype=CType.MASK)

    def __add__(self, other: Term | Number) -> Term:
        return self._binary("add", other)

    def __radd__(self, other: Number) -> Term:
        return self.like(other)._binary("add", self)

    def __sub__(self, other: Term | Number) -> Term:
        return self._binary("sub", other)

    def __rsub__(self, other: Number) -> Term:
        return self.like(other)._binary("sub", self)

    def __mul__(self, other: Term | Number) -> Term:
        return self if not isinstance(other, Term) and other == 1 else self._binary("mul", other)

    def __rmul__(self, other: Number) -> Term:
        return self * other

    def __truediv__(self, other: Term | Number) -> Term:
        return self._binary("div", other)

    def __rtruediv__(self, other: Number) -> Term:
        return self.like(other)._binary("div", self)

    def __neg__(self) -> Term:
        return self.graph.apply("neg", self)

    def __and__(self, other: Term) -> Term:
        return self._binary("and", other)

    def __or__(self, other: Term) -> Term:
        return self._binary("or", other)

    def __xor__(self, other: Term) -> Term:
        return self._binary("xor", other)

    def __invert__(self) -> Term:
        return self.graph.apply("not", self)

    def lt(self, other: Term | Number) -> Term:
        """Less; false if unordered, as all comparisons but `ne`."""
        return self._compare("lt", other)

    def le(self, other: Term | Number) -> Term:
        """Less or equal."""
        return self._compare("le", other)

    def gt(self, other: Term | Number) -> Term:
        """Greater."""
        return self._compare("gt", other)

    def ge(self, other: Term | Number) -> Term:
        """Greater or equal."""
        return self._compare("ge", other)

    def eq(self, other: Term | Number) -> Term:
        """Equal."""
        return self._compare("eq", other)

    def ne(self, other: Term | Number) -> Term:
        """Not equal: true if unordered."""
        return self._compare("ne", other)

    def where(self, yes: Term, no: Term | Number) -> Term:
        """`yes` where this mask holds, else `no`."""
        return self.graph.apply("select", self, yes, yes._lift(no))

    def maximum(self, other: Term | Number) -> Term:
        """The greater; NaN if either is NaN."""
        if isinstance(other, Term) or other != other:
            return self._binary("max", other)
        return self.like(other)._binary("max_number", self)

    def minimum(self, other: Term | Number) -> Term:
        """The smaller; NaN if either is NaN."""
        if isinstance(other, Term) or other != other:
            return self._binary("min", other)
        return self.like(other)._binary("min_number", self)

    def call(self, op: str) -> Term:
        """A primitive of one argument."""
        return self.graph.apply(op, self)


def _number(node: Const) -> Number:
    if node.ctype is CType.MASK:
        return node.value == "True"
    return float(node.value) if node.ctype.is_floating else int(node.value)
