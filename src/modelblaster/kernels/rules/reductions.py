"""Reductions over dimensions, and what is made of them: sums, extremes, indices, variances, norms, softmaxes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from modelblaster.kernels.dialect import CType
from modelblaster.kernels.graph import Number, Refused, Term
from modelblaster.kernels.ir import ALL, ANY, ARGMAX, ARGMIN, COMPUTE_TYPES, MAX, MIN, PROD, SUM, Index
from modelblaster.kernels.rules.scope import Rule, Scope, Source, rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelblaster.kernels.space import Dims
    from modelblaster.records.plan import Argument

_INT32_POINTS = 2**31 - 1


class Rows:
    """A source with some of its dimensions reduced."""

    def __init__(self, scope: Scope, source: Source, dim: object) -> None:
        self.scope = scope
        self.source = source
        self.reduced = _dimensions(dim, len(source.shape))
        self.axes = source.axes(self.reduced)
        scope.space.reduce_over(self.axes)

    @property
    def count(self) -> int:
        """Elements of one row."""
        return self.scope.size_of(self.axes)

    def combine(self, combiner: str, *terms: Term) -> Term:
        """A row value; the element itself where there is only one."""
        return self.scope.graph.reduce(combiner, *terms) if self.axes else terms[0]

    def sum(self, term: Term) -> Term:
        """The sum of an element over the row."""
        return self.combine(SUM, term)

    def mean(self, term: Term) -> Term:
        """The mean of an element over the row."""
        return self.sum(term) / term.like(self.count)

    def dims(self, *, keep: bool) -> Dims:
        """Where a row value lies in the domain."""
        kept = [() if k in self.reduced else axes for k, axes in enumerate(self.source.dims)]
        return tuple(axes for k, axes in enumerate(kept) if keep or k not in self.reduced)

    def extreme_index(self, combiner: str, term: Term) -> Term:
        """Where the extreme lies, counted along the reduced dimensions in row-major order."""
        strides = [0] * len(self.scope.space.sizes)
        step = 1
        for axis in reversed(self.axes):
            strides[axis] = step
            step *= self.scope.space.sizes[axis]
        if step > _INT32_POINTS:
            raise Refused("an index beyond 32 bits")
        if not self.axes:
            return self.scope.graph.constant(0, CType.I32)
        return self.scope.graph.reduce(combiner, term, self.scope.graph.add(Index(tuple(strides), CType.I32)))


def _dimensions(dim: object, rank: int) -> tuple[int, ...]:
    if dim is None or dim == ():
        return tuple(range(rank))
    wanted: Sequence[Any] = dim if isinstance(dim, tuple | list) else (dim,)
    if not all(isinstance(d, int) and -rank <= d < max(rank, 1) for d in wanted):
        raise Refused("a dimension out of range")
    return tuple(sorted({d % rank for d in wanted})) if rank else ()


def _rows(scope: Scope, argument: Argument, dim: object) -> Rows:
    return Rows(scope, scope.source(argument), dim)


def _as_result(scope: Scope, term: Term, index: int = 0) -> Term:
    return term.cast(COMPUTE_TYPES[scope.result_spec(index).dtype])


def _simple(signature: str, combiner: str) -> Rule:
    """A combination of the elements, converted to the result's type before."""

    @rule(signature)
    def simple(scope: Scope, self: Argument, dim: object = None, keepdim: bool = False, *_: Any) -> None:
        rows = _rows(scope, self, dim)
        scope.record(0, rows.combine(combiner, _as_result(scope, rows.source.term)), rows.dims(keep=keepdim))

    return simple


@rule("self dim=None keepdim=False dtype=None")
def _mean(scope: Scope, self: Argument, dim: object, keepdim: bool, _: object) -> None:
    rows = _rows(scope, self, dim)
    scope.record(0, rows.mean(_as_result(scope, rows.source.term)), rows.dims(keep=keepdim))


def _with_index(combiner: str, index_combiner: str) -> Rule:
    @rule("self dim keepdim=False")
    def with_index(scope: Scope, self: Argument, dim: object, keepdim: bool) -> None:
        rows = _rows(scope, self, dim)
        element = _comparable(rows.source.term)
        dims = rows.dims(keep=keepdim)
        if scope.is_wanted(0):
            scope.record(0, rows.combine(combiner, element), dims)
        if scope.is_wanted(1):
            scope.record(1, rows.extreme_index(index_combiner, element), dims, is_index=True)

    return with_index


def _index(combiner: str) -> Rule:
    @rule("self dim=None keepdim=False")
    def index(scope: Scope, self: Argument, dim: object, keepdim: bool) -> None:
        rows = _rows(scope, self, dim)
        found = rows.extreme_index(combiner, _comparable(rows.source.term))
        scope.record(0, found, rows.dims(keep=keepdim), is_index=True)

    return index


def _comparable(term: Term) -> Term:
    return term.cast(CType.I32) if term.ctype is CType.MASK else term


def _truth(combiner: str) -> Rule:
    @rule("self dim=None keepdim=False")
    def truth(scope: Scope, self: Argument, dim: object, keepdim: bool) -> None:
        rows = _rows(scope, self, dim)
        scope.record(0, rows.combine(combiner, rows.source.term.cast(CType.MASK)), rows.dims(keep=keepdim))

    return truth


def _variance(scope: Scope, self: Argument, dim: object, correction: Number | None) -> tuple[Rows, Term, Term]:
    """The rows, their mean and their variance in two passes, which is right for any mean."""
    rows = _rows(scope, self, dim)
    element = rows.source.term
    if not element.ctype.is_floating:
        raise Refused("a variance of integers")
    mean = rows.mean(element)
    deviation = element - mean
    degrees = max(0.0, rows.count - (1 if correction is None else correction))
    return rows, mean, rows.sum(deviation * deviation) / element.like(degrees)


def _spread(*, root: bool, with_mean: bool) -> Rule:
    @rule("self dim=None correction=1 keepdim=False")
    def spread(scope: Scope, self: Argument, dim: object, correction: Number | None, keepdim: bool) -> None:
        rows, mean, variance = _variance(scope, self, dim, correction)
        dims = rows.dims(keep=keepdim)
        scope.record(0, variance.call("sqrt") if root else variance, dims)
        if with_mean:
            scope.record(1, mean, dims)

    return spread


def _by_flag(*, root: bool) -> Rule:
    @rule("self dim unbiased=True keepdim=False")
    def spread(scope: Scope, self: Argument, dim: object, unbiased: bool, keepdim: bool) -> None:
        rows, _, variance = _variance(scope, self, dim, int(unbiased))
        scope.record(0, variance.call("sqrt") if root else variance, rows.dims(keep=keepdim))

    return spread


@rule("self ord=2 dim=None keepdim=False dtype=None")
def _vector_norm(scope: Scope, self: Argument, order: Number, dim: object, keepdim: bool, _: object) -> None:
    rows = _rows(scope, self, dim)
    scope.record(0, _norm(rows, _as_result(scope, rows.source.term), float(order)), rows.dims(keep=keepdim))


@rule("self p dim=() keepdim=False")
def _norm_dims(scope: Scope, self: Argument, order: Number | None, dim: object, keepdim: bool) -> None:
    rows = _rows(scope, self, dim)
    element = _as_result(scope, rows.source.term)
    scope.record(0, _norm(rows, element, 2.0 if order is None else float(order)), rows.dims(keep=keepdim))


def _norm(rows: Rows, x: Term, order: float) -> Term:
    if order == 2:
        return rows.sum(x * x).call("sqrt")
    size = x.call("abs")
    if math.isinf(order):
        return rows.combine(MAX if order > 0 else MIN, size)
    if order == 1:
        return rows.sum(size)
    if order == 0:
        return rows.sum(x.ne(0).cast(x.ctype))
    graph = x.graph
    return graph.apply("pow", rows.sum(graph.apply("pow", size, x.like(order))), x.like(1 / order))


def _shifted(rows: Rows, x: Term) -> tuple[Term, Term]:
    """The row's maximum and the exponential of the distance to it."""
    top = rows.combine(MAX, x)
    return top, (x - top).call("exp")


@rule("self dim half_to_float")
def _softmax(scope: Scope, self: Argument, dim: object, _half_to_float: bool) -> None:
    rows = _rows(scope, self, dim)
    _, e = _shifted(rows, _as_result(scope, rows.source.term))
    scope.record(0, e * (1 / rows.sum(e)), rows.source.dims)


@rule("self dim half_to_float")
def _log_softmax(scope: Scope, self: Argument, dim: object, _: bool) -> None:
    rows = _rows(scope, self, dim)
    x = _as_result(scope, rows.source.term)
    top, e = _shifted(rows, x)
    scope.record(0, x - top - rows.sum(e).call("log"), rows.source.dims)


@rule("self dim keepdim=False")
def _logsumexp(scope: Scope, self: Argument, dim: object, keepdim: bool) -> None:
    rows = _rows(scope, self, dim)
    x = _as_result(scope, rows.source.term)
    top = rows.combine(MAX, x)
    # as torch does: an infinite maximum is not subtracted
    base = top.call("abs").eq(math.inf).where(top.like(0), top)
    total = rows.sum((x - base).call("exp"))
    scope.record(0, total.call("log") + base, rows.dims(keep=keepdim))


RULES: dict[str, Rule] = {
    "aten.sum.default": _simple("self", SUM),
    "aten.sum.dim_IntList": _simple("self dim=None keepdim=False dtype=None", SUM),
    "aten.mean.default": _mean,
    "aten.mean.dim": _mean,
    "aten.prod.default": _simple("self", PROD),
    "aten.prod.dim_int": _simple("self dim keepdim=False dtype=None", PROD),
    "aten.amax.default": _simple("self dim=() keepdim=False", MAX),
    "aten.amin.default": _simple("self dim=() keepdim=False", MIN),
    "aten.max.default": _simple("self", MAX),
    "aten.min.default": _simple("self", MIN),
    "aten.max.dim": _with_index(MAX, ARGMAX),
    "aten.min.dim": _with_index(MIN, ARGMIN),
    "aten.argmax.default": _index(ARGMAX),
    "aten.argmin.default": _index(ARGMIN),
    "aten.any.default": _truth(ANY),
    "aten.any.dim": _truth(ANY),
    "aten.any.dims": _truth(ANY),
    "aten.all.default": _truth(ALL),
    "aten.all.dim": _truth(ALL),
    "aten.all.dims": _truth(ALL),
    "aten.var.correction": _spread(root=False, with_mean=False),
    "aten.std.correction": _spread(root=True, with_mean=False),
    "aten.var_mean.correction": _spread(root=False, with_mean=True),
    "aten.std_mean.correction": _spread(root=True, with_mean=True),
    "aten.var.dim": _by_flag(root=False),
    "aten.std.dim": _by_flag(root=True),
    "aten.linalg_vector_norm.default": _vector_norm,
    "aten.norm.ScalarOpt_dim": _norm_dims,
    "aten.norm.Scalar": _norm_dims,
    "aten._softmax.default": _softmax,
    "aten._log_softmax.default": _log_softmax,
    "aten.softmax.int": _softmax,
    "aten.log_softmax.int": _log_softmax,
    "aten.logsumexp.default": _logsumexp,
}
