"""Where a rule works: one library step, the space it is added to, and the formulas it may write."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modelblaster.kernels.graph import Graph, Number, Refused, Term
from modelblaster.kernels.ir import COMPUTE_TYPES
from modelblaster.kernels.rules.promotion import Typed, result_type
from modelblaster.kernels.space import Dims, Operand, Outside, Space, Value
from modelblaster.records.plan import Argument, Library, Ref
from modelblaster.records.tensor import DType, TensorSpec

if TYPE_CHECKING:
    from modelblaster.kernels.dialect import CType

_WRAPS = {DType.INT8: "wrap_int8", DType.INT16: "wrap_int16", DType.UINT8: "wrap_uint8"}


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor that a rule reads: its element, its dimensions in the domain, its type and shape."""

    term: Term
    dims: Dims
    dtype: DType
    shape: tuple[int, ...]

    def axes(self, dims: Sequence[int]) -> list[int]:
        """The domain axes of some dimensions."""
        return [axis for dim in dims for axis in self.dims[dim]]


class Scope:
    """One step being added; every method raises Refused where the step does not fit."""

    def __init__(self, space: Space, step: Library, specs: Mapping[str, TensorSpec]) -> None:
        self.space = space
        self.step = step
        self._specs = specs

    @property
    def graph(self) -> Graph:
        """The expressions."""
        return self.space.graph

    def operand(self, argument: Argument) -> Operand:
        """The tensor that an argument names."""
        if not isinstance(argument, Ref) or argument.offset != 0:
            raise Refused("an argument that is no whole tensor")
        known = self.space.values.get(argument.buffer)
        if known is not None:
            return known
        spec = self._specs.get(argument.buffer)
        if spec is None:
            raise Refused(f"an unknown tensor {argument.buffer}")
        return Outside(spec)

    def result_spec(self, index: int = 0) -> TensorSpec:
        """Type and shape of a result."""
        spec = self._specs.get(self.step.outputs[index])
        if spec is None:
            raise Refused("a result without a type")
        return spec

    def is_wanted(self, index: int) -> bool:
        """Whether somebody uses a result: dropped ones have no name, void ones no elements."""
        if index >= len(self.step.outputs) or not self.step.outputs[index]:
            return False
        spec = self._specs.get(self.step.outputs[index])
        return spec is not None and spec.shape != (0,)

    def source(self, argument: Argument, *, like: Source | None = None, dims: Dims | None = None) -> Source:
        """A tensor's element; with `dims`, of a tensor that is broadcast over these dimensions."""
        operand = self.operand(argument)
        if dims is None:
            dims = like.dims if like is not None else self.dims_of(operand)
        return Source(self.space.term(operand, dims), dims, operand.dtype, operand.shape)

    def dims_of(self, operand: Operand) -> Dims:
        """Where a tensor lies in the domain; opens the domain if this is the first one."""
        return self.space.unify(operand.shape, [operand])

    def record(self, index: int, term: Term, dims: Dims | None, *, is_index: bool = False) -> None:
        """Name a result: converted to its type, over these dimensions (None: a constant).

        An index stays in 32 bits until somebody computes with it or stores it: it fits the lanes of 32-bit values.
        """
        if not self.is_wanted(index):
            return
        spec = self.result_spec(index)
        result = term if is_index else convert(term, spec.dtype)
        value = Value(result.number, spec.dtype, spec.shape, dims)
        self.space.record(self.step.outputs[index], value)

    def size_of(self, axes: Sequence[int]) -> int:
        """Points of some axes."""
        return math.prod(self.space.sizes[axis] for axis in axes)


def convert(term: Term, dtype: DType) -> Term:
    """The value in the compute type of `dtype`; integers wrap to its range, half types are not rounded."""
    result = term.cast(COMPUTE_TYPES[dtype])
    if dtype in _WRAPS and not _is_narrow(result, dtype):
        result = result.call(_WRAPS[dtype])
    return result


def _is_narrow(term: Term, dtype: DType) -> bool:
    return getattr(term.node, "dtype", None) is dtype or getattr(term.node, "op", None) == _WRAPS[dtype]


class Formula:
    """What a map's rule sees besides its terms: the result's type and the promoted type of its operands."""

    def __init__(self, graph: Graph, out: DType, operands: Sequence[Typed]) -> None:
        self.graph = graph
        self.out = out
        self._operands = operands

    @property
    def ctype(self) -> CType:
        """The type that the result is computed in."""
        return COMPUTE_TYPES[self.out]

    def common(self) -> CType:
        """The compute type in which operands of different types meet."""
        return COMPUTE_TYPES[result_type(self._operands)]

    def number(self, value: Number) -> Term:
        """A constant of the result's type."""
        return self.graph.constant(value, self.ctype)

    def lift(self, value: Term | Number, ctype: CType | None = None) -> Term:
        """An operand in a type, by default the result's."""
        wanted = ctype or self.ctype
        return value.cast(wanted) if isinstance(value, Term) else self.graph.constant(value, wanted)


Rule = Callable[[Scope], None]
MapFunction = Callable[..., Term]

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Signature:
    """Argument names of an overload with defaults, from text: `self other alpha=1`."""

    names: tuple[str, ...]
    defaults: Mapping[str, Any]

    @staticmethod
    def parse(text: str) -> Signature:
        """Read names and Python literals."""
        names: list[str] = []
        defaults: dict[str, Any] = {}
        for word in text.split():
            name, _, default = word.partition("=")
            names.append(name)
            if default:
                defaults[name] = _LITERALS.get(default, default) if not _is_number(default) else _as_number(default)
        return Signature(tuple(names), defaults)

    def bind(self, step: Library) -> list[Any]:
        """The arguments in the order of the names. Raises Refused for unknown or missing ones."""
        if len(step.arguments) > len(self.names):
            raise Refused("too many arguments")
        given: dict[str, Any] = dict(zip(self.names, step.arguments, strict=False))
        for name, value in step.keywords:
            if name in self.names:
                given[name] = value
            elif name not in _IGNORED:
                raise Refused(f"an unknown argument {name}")
        bound = [given.get(name, self.defaults.get(name, _MISSING)) for name in self.names]
        if any(value is _MISSING for value in bound):
            raise Refused("a missing argument")
        return bound


_LITERALS: dict[str, Any] = {"None": None, "True": True, "False": False, "()": ()}
_IGNORED = frozenset({"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "implicit", "copy"})


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _as_number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def map_rule(signature: str, function: MapFunction) -> Rule:
    """A rule that computes a result point by point: `function(formula, *arguments)` with tensors as terms."""
    parsed = Signature.parse(signature)

    def rule(scope: Scope) -> None:
        bound = parsed.bind(scope.step)
        spec = scope.result_spec()
        operands = [scope.operand(value) for value in bound if isinstance(value, Ref)]
        fixed = [operand for operand in operands if isinstance(operand, Outside) or operand.dims is not None]
        dims = scope.space.unify(spec.shape, fixed) if fixed else None
        terms = [scope.space.term(operand, dims or ()) for operand in operands]
        waiting = iter(terms)
        filled = [next(waiting) if isinstance(value, Ref) else value for value in bound]
        typed: list[Typed] = [(operand.dtype, len(operand.shape)) for operand in operands]
        typed += [(type(value), -1) for value in bound if isinstance(value, bool | int | float)]
        scope.record(0, function(Formula(scope.graph, spec.dtype, typed), *filled), dims)

    return rule


def rule(signature: str) -> Callable[[Callable[..., None]], Rule]:
    """A rule from `function(scope, *arguments)` with the step's arguments bound by name."""
    parsed = Signature.parse(signature)

    def decorate(function: Callable[..., None]) -> Rule:
        def bound_rule(scope: Scope) -> None:
            function(scope, *parsed.bind(scope.step))

        return bound_rule

    return decorate
