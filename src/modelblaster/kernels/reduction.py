"""Accumulators of a reduction: how they start, step, are flushed into wider totals, and end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelblaster.kernels.dialect import CType
from modelblaster.kernels.ir import ALL, ANY, ARGMAX, ARGMIN, INDEX_COMBINERS, MAX, MIN, PROD, SUM, Reduce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelblaster.kernels.dialect import Dialect
    from modelblaster.kernels.ir import Nest

CHAIN = 64
"""Additions into one float32 accumulator before it is added to a float64 total. Equal terms round the same way each
time, so that a chain of n is off by up to n / 2^25 of itself: 64 keep that under 2e-6 in the worst case."""

_FLOAT_START = {SUM: "0.0", PROD: "1.0", MAX: "-inf", MIN: "inf", ARGMAX: "-inf", ARGMIN: "inf"}
_LIMITS = {CType.I32: 2**31, CType.I64: 2**63}


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One reduction's state in one of several independent accumulators, as C variables.

    An index combiner's state is a value and an index; the index has the lanes of a mask.
    """

    nest: Nest
    dialect: Dialect
    number: int

    @property
    def node(self) -> Reduce:
        """The reduction."""
        node = self.nest.nodes[self.number]
        assert isinstance(node, Reduce)
        return node

    @property
    def ctype(self) -> CType:
        """The type that values are compared or added in."""
        return self.nest.nodes[self.node.arguments[0]].ctype

    @property
    def is_indexed(self) -> bool:
        """Whether an index goes along."""
        return self.node.combiner in INDEX_COMBINERS

    @property
    def needs_total(self) -> bool:
        """Whether long chains lose precision."""
        return self.node.combiner == SUM and self.ctype is CType.F32

    def names(self, unit: int) -> list[str]:
        """The variables of accumulator `unit`."""
        return [f"a{self.number}_{unit}"] + ([f"i{self.number}_{unit}"] if self.is_indexed else [])

    def parameters(self) -> list[str]:
        """How a step function declares the state that it changes."""
        types = self._types()
        return [f"{kind} *{name}" for kind, name in zip(types, [f"a{self.number}", f"i{self.number}"], strict=False)]

    def _types(self) -> list[str]:
        index = [self.dialect.vector(CType.MASK)] if self.is_indexed else []
        return [self.dialect.vector(self.ctype), *index]

    def declare(self, unit: int) -> list[str]:
        """The state before the first element."""
        starts = [self.start(), self.dialect.constant("False", CType.MASK)]
        return [
            f"{kind} {name} = {start};"
            for kind, name, start in zip(self._types(), self.names(unit), starts, strict=False)
        ]

    def start(self) -> str:
        """The combiner's neutral value; an index starts at 0, which is right when nothing beats the start."""
        combiner, ctype = self.node.combiner, self.ctype
        if combiner in (ANY, ALL):
            return self.dialect.constant(repr(combiner == ALL), CType.MASK)
        if ctype.is_floating:
            return self.dialect.constant(_FLOAT_START[combiner], ctype)
        limit = _LIMITS[ctype]
        whole = {SUM: 0, PROD: 1, MAX: -limit, ARGMAX: -limit, MIN: limit - 1, ARGMIN: limit - 1}
        return self.dialect.constant(str(whole[combiner]), ctype)

    def step(self, values: Sequence[str], length: str, *, is_masked: bool) -> list[str]:
        """Take one vector of elements into `*a…`; lanes from `length` on keep their state if `is_masked`."""
        targets = [f"*a{self.number}", f"*i{self.number}"][: 2 if self.is_indexed else 1]
        combined = self.dialect.combine(self.node.combiner, self.ctype, targets, values)
        types = [self.ctype, CType.MASK]
        lines = []
        fresh = [f"n{self.number}", f"m{self.number}"]
        for kind, name, new in zip(types, fresh, combined, strict=False):
            lines.append(f"const {self.dialect.vector(kind)} {name} = {new};")
        for kind, name, target in zip(types, fresh, targets, strict=False):
            kept = self.dialect.keep(kind, name, target, length) if is_masked else name
            lines.append(f"{target} = {kept};")
        return lines

    def join(self, units: Sequence[int]) -> list[str]:
        """Combine several accumulators into the first, pairwise."""
        lines: list[str] = []
        left = list(units)
        while len(left) > 1:
            half = (len(left) + 1) // 2
            for a, b in zip(left[:half], left[half:], strict=False):
                lines += self._joined(a, b)
            left = left[:half]
        return lines

    def _joined(self, a: int, b: int) -> list[str]:
        combined = self.dialect.combine(self.node.combiner, self.ctype, self.names(a), self.names(b))
        if not self.is_indexed:
            return [f"{self.names(a)[0]} = {combined[0]};"]
        value, index = self.names(a)
        kind = self.dialect.vector(self.ctype)
        return [f"{{ const {kind} best = {combined[0]}; {index} = {combined[1]}; {value} = best; }}"]

    def total(self, unit: int) -> str:
        """The float64 variable that accumulators are flushed into."""
        return f"t{self.number}_{unit}"

    def declare_total(self, unit: int) -> str:
        """It starts at zero."""
        return f"{self.dialect.vector(CType.F64)} {self.total(unit)} = {self.dialect.constant('0.0', CType.F64)};"

    def flush(self, target: int, units: Sequence[int]) -> list[str]:
        """Add accumulators (joined first) to a total and clear them."""
        lines = self.join(units)
        first = self.names(units[0])[0]
        wide = self.dialect.apply("cast", CType.F32, CType.F64, [first])
        added = self.dialect.apply("add", CType.F64, CType.F64, [self.total(target), wide])
        lines.append(f"{self.total(target)} = {added};")
        lines += [f"{self.names(u)[0]} = {self.start()};" for u in units]
        return lines

    def result(self, unit: int, *, across: bool, from_total: bool) -> str:
        """The reduction's value from accumulator `unit`, in every lane if combined `across` them."""
        state = self.names(unit)
        if from_total:
            state = [self.dialect.apply("cast", CType.F64, CType.F32, [self.total(unit)])]
        if across:
            state = list(self.dialect.across(self.node.combiner, self.ctype, state))
        value = state[-1]
        if self.is_indexed:
            return self.dialect.relane(value, CType.MASK, self.node.ctype)
        return value
