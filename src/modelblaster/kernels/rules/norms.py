"""Normalizations: batch norm in both modes, layer norm, group norm."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modelblaster.kernels.graph import Number, Refused, Term
from modelblaster.kernels.rules.reductions import Rows
from modelblaster.kernels.rules.scope import Rule, Scope, Source, rule

if TYPE_CHECKING:
    from modelblaster.kernels.space import Dims
    from modelblaster.records.plan import Argument


def _statistics(rows: Rows, eps: Number) -> tuple[Term, Term, Term]:
    """Mean, biased variance and reciprocal deviation of the rows, in two passes."""
    x = rows.source.term
    if not x.ctype.is_floating:
        raise Refused("a normalization of integers")
    mean = rows.mean(x)
    deviation = x - mean
    variance = rows.mean(deviation * deviation)
    return mean, variance, 1 / (variance + eps).call("sqrt")


def _scaled(scope: Scope, y: Term, weight: Argument, bias: Argument, dims: Dims) -> Term:
    if weight is not None:
        y = y * scope.source(weight, dims=dims).term
    if bias is not None:
        y = y + scope.source(bias, dims=dims).term
    return y


@rule("input normalized_shape weight=None bias=None eps=1e-05 cudnn_enable=True")
def _layer_norm(
    scope: Scope, x: Argument, shape: tuple[int, ...], weight: Argument, bias: Argument, eps: Number, _: bool
) -> None:
    source = scope.source(x)
    rank = len(source.shape)
    rows = Rows(scope, source, tuple(range(rank - len(shape), rank)))
    mean, _variance, scale = _statistics(rows, eps)
    y = (source.term - mean) * scale
    scope.record(0, _scaled(scope, y, weight, bias, source.dims[rank - len(shape) :]), source.dims)
    scope.record(1, mean, rows.dims(keep=True))
    scope.record(2, scale, rows.dims(keep=True))


def _grouped(scope: Scope, x: Argument, groups: int) -> tuple[Source, Source]:
    """The input as it is and with its channels split into (groups, channels of a group)."""
    source = scope.source(x)
    batch, channels, *rest = source.shape
    if channels % groups:
        raise Refused("groups that do not divide the channels")
    shape = (batch, groups, channels // groups, *rest)
    dims = scope.space.regroup(source.dims, shape)
    whole: Dims = (dims[0], dims[1] + dims[2], *dims[3:])
    return replace(source, dims=whole), Source(source.term, dims, source.dtype, shape)


def _normalize_groups(scope: Scope, x: Argument, weight: Argument, bias: Argument, groups: int, eps: Number) -> None:
    source, split = _grouped(scope, x, groups)
    rows = Rows(scope, split, tuple(range(2, len(split.shape))))
    mean, _variance, scale = _statistics(rows, eps)
    y = _scaled(scope, (source.term - mean) * scale, weight, bias, (source.dims[1],))
    scope.record(0, y, source.dims)
    scope.record(1, mean, split.dims[:2])
    scope.record(2, scale, split.dims[:2])


@rule("input weight bias N C HxW group eps")
def _native_group_norm(
    scope: Scope, x: Argument, weight: Argument, bias: Argument, _n: int, _c: int, _hw: int, group: int, eps: Number
) -> None:
    _normalize_groups(scope, x, weight, bias, group, eps)


@rule("input num_groups weight=None bias=None eps=1e-05 cudnn_enabled=True")
def _group_norm(scope: Scope, x: Argument, groups: int, weight: Argument, bias: Argument, eps: Number, _: bool) -> None:
    _normalize_groups(scope, x, weight, bias, groups, eps)


@rule("input weight bias running_mean running_var momentum eps")
def _batch_norm_eval(
    scope: Scope, x: Argument, weight: Argument, bias: Argument, mean: Argument, variance: Argument,
    _momentum: Number, eps: Number,
) -> None:  # fmt: skip
    source = scope.source(x)
    channel: Dims = (source.dims[1],)
    scale = 1 / (scope.source(variance, dims=channel).term + eps).call("sqrt")
    if weight is not None:
        scale = scale * scope.source(weight, dims=channel).term
    y = (source.term - scope.source(mean, dims=channel).term) * scale
    scope.record(0, _scaled(scope, y, None, bias, channel), source.dims)


def _batch_statistics(
    scope: Scope, x: Argument, weight: Argument, bias: Argument, eps: Number
) -> tuple[Rows, Term, Term]:
    source = scope.source(x)
    rows = Rows(scope, source, tuple(d for d in range(len(source.shape)) if d != 1))
    mean, variance, scale = _statistics(rows, eps)
    y = (source.term - mean) * scale
    channel: Dims = (source.dims[1],)
    scope.record(0, _scaled(scope, y, weight, bias, channel), source.dims)
    scope.record(1, mean, channel)
    scope.record(2, scale, channel)
    return rows, mean, variance


@rule("input weight bias training momentum eps")
def _batch_norm_no_stats(
    scope: Scope, x: Argument, weight: Argument, bias: Argument, _training: bool, _momentum: Number, eps: Number
) -> None:
    _batch_statistics(scope, x, weight, bias, eps)


@rule("input weight bias running_mean running_var training momentum eps")
def _batch_norm_functional(
    scope: Scope, x: Argument, weight: Argument, bias: Argument, running_mean: Argument, running_var: Argument,
    training: bool, momentum: Number, eps: Number,
) -> None:  # fmt: skip
    if not training:
        raise Refused("an evaluation under a training operator")
    rows, mean, variance = _batch_statistics(scope, x, weight, bias, eps)
    channel: Dims = (rows.source.dims[1],)
    unbiased = variance * (rows.count / max(1, rows.count - 1))
    for index, (running, fresh) in enumerate(((running_mean, mean), (running_var, unbiased)), start=3):
        if scope.is_wanted(index):
            old = scope.source(running, dims=channel).term
            scope.record(index, old * (1 - momentum) + fresh * momentum, channel)


RULES: dict[str, Rule] = {
    "aten.native_layer_norm.default": _layer_norm,
    "aten.layer_norm.default": _layer_norm,
    "aten.native_group_norm.default": _native_group_norm,
    "aten.group_norm.default": _group_norm,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm_eval,
    "aten._native_batch_norm_legit.no_stats": _batch_norm_no_stats,
    "aten._native_batch_norm_legit_functional.default": _batch_norm_functional,
}
