"""Views that only rename, add, remove, reorder, merge or split dimensions: free inside a nest.

A view of a tensor from outside stays outside: it is the same buffer under another shape. Views that move data or
select a part of it are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modelblaster.kernels.graph import Refused
from modelblaster.kernels.rules.scope import Rule, Scope, rule
from modelblaster.kernels.space import Dims, Operand, Outside, Value
from modelblaster.records.tensor import TensorSpec, contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelblaster.records.plan import Argument


def _record(scope: Scope, value: Operand) -> None:
    scope.space.record(scope.step.outputs[0], value)


def _outside(operand: Outside, shape: tuple[int, ...], strides: tuple[int, ...]) -> Outside:
    return Outside(TensorSpec(operand.spec.name, operand.dtype, shape, strides), operand.offset)


def _renamed(scope: Scope, operand: Value, dims: Dims | None) -> None:
    spec = scope.result_spec()
    _record(scope, Value(operand.number, operand.dtype, spec.shape, dims))


def _reorder(scope: Scope, self: Argument, order: Sequence[int]) -> None:
    """Dimension k of the result is dimension `order[k]` of the source."""
    operand = scope.operand(self)
    if isinstance(operand, Outside):
        shape, strides = operand.shape, operand.spec.strides
        _record(scope, _outside(operand, tuple(shape[d] for d in order), tuple(strides[d] for d in order)))
    else:
        _renamed(scope, operand, None if operand.dims is None else tuple(operand.dims[d] for d in order))


@rule("self dims")
def _permute(scope: Scope, self: Argument, dims: Sequence[int]) -> None:
    rank = len(scope.operand(self).shape)
    _reorder(scope, self, [d % rank for d in dims])


@rule("self dim0 dim1")
def _transpose(scope: Scope, self: Argument, dim0: int, dim1: int) -> None:
    order = list(range(len(scope.operand(self).shape)))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    _reorder(scope, self, order)


@rule("self")
def _t(scope: Scope, self: Argument) -> None:
    _reorder(scope, self, list(reversed(range(len(scope.operand(self).shape)))))


@rule("self size dtype=None")
def _view(scope: Scope, self: Argument, _size: object, dtype: object) -> None:
    if dtype is not None:
        raise Refused("a view as another type")
    _reshape(scope, self)


@rule("self shape")
def _reshape_rule(scope: Scope, self: Argument, _shape: object) -> None:
    _reshape(scope, self)


@rule("self start_dim=0 end_dim=-1")
def _flatten(scope: Scope, self: Argument, _start: int, _end: int) -> None:
    _reshape(scope, self)


def _reshape(scope: Scope, self: Argument) -> None:
    operand = scope.operand(self)
    shape = scope.result_spec().shape
    if isinstance(operand, Outside) and operand.spec.strides == contiguous_strides(operand.shape):
        _record(scope, _outside(operand, shape, contiguous_strides(shape)))
        return
    if isinstance(operand, Value) and operand.dims is None:
        _renamed(scope, operand, None)
        return
    _regrouped(scope, operand, shape)


def _regrouped(scope: Scope, operand: Operand, shape: tuple[int, ...]) -> None:
    dims = scope.dims_of(operand)
    number = scope.space.term(operand, dims).number
    _record(scope, Value(number, operand.dtype, shape, scope.space.regroup(dims, shape)))


def _insert_or_remove(scope: Scope, self: Argument) -> None:
    """Dimensions of size 1 come or go: the others keep their order."""
    operand = scope.operand(self)
    shape = scope.result_spec().shape
    if isinstance(operand, Value) and operand.dims is None:
        _renamed(scope, operand, None)
        return
    sizes = [size for size in operand.shape if size != 1]
    if sizes != [size for size in shape if size != 1]:
        raise Refused("a view of another size")
    if isinstance(operand, Outside):
        kept = iter([s for size, s in zip(operand.shape, operand.spec.strides, strict=True) if size != 1])
        _record(scope, _outside(operand, shape, tuple(1 if size == 1 else next(kept) for size in shape)))
        return
    axes = iter([dim for size, dim in zip(operand.shape, operand.dims or (), strict=True) if size != 1])
    _renamed(scope, operand, tuple(() if size == 1 else next(axes) for size in shape))


def _ones(signature: str) -> Rule:
    @rule(signature)
    def ones(scope: Scope, self: Argument, *_: Any) -> None:
        _insert_or_remove(scope, self)

    return ones


@rule("self size implicit=False")
def _expand(scope: Scope, self: Argument, _size: object, _implicit: bool) -> None:
    operand = scope.operand(self)
    shape = scope.result_spec().shape
    added = len(shape) - len(operand.shape)
    if isinstance(operand, Outside):
        old = [*[1] * added, *operand.shape]
        strides = [*[0] * added, *operand.spec.strides]
        widened = tuple(s if a == b else 0 for a, b, s in zip(old, shape, strides, strict=True))
        _record(scope, _outside(operand, shape, widened))
    elif operand.dims is None:
        _renamed(scope, operand, None)
    else:
        _renamed(scope, operand, scope.space.unify(shape, [operand]))


@rule("self")
def _alias(scope: Scope, self: Argument) -> None:
    _record(scope, scope.operand(self))


RULES: dict[str, Rule] = {
    "aten.permute.default": _permute,
    "aten.transpose.int": _transpose,
    "aten.t.default": _t,
    "aten.view.default": _view,
    "aten._unsafe_view.default": _view,
    "aten.reshape.default": _reshape_rule,
    "aten.flatten.using_ints": _flatten,
    "aten.unsqueeze.default": _ones("self dim"),
    "aten.squeeze.default": _ones("self"),
    "aten.squeeze.dim": _ones("self dim"),
    "aten.squeeze.dims": _ones("self dim"),
    "aten.expand.default": _expand,
    "aten.alias.default": _alias,
    "aten.detach.default": _alias,
    "aten.lift_fresh.default": _alias,
}
