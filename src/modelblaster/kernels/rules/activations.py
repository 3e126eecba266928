"""Activations, as torch's documentation defines them, written so that small results keep their relative accuracy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from modelblaster.kernels.graph import Number, Refused, Term
from modelblaster.kernels.rules.scope import Formula, Rule, map_rule

if TYPE_CHECKING:
    from collections.abc import Callable

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def sigmoid(x: Term) -> Term:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + (-x).call("exp"))


def _floating(function: Callable[..., Term]) -> Callable[..., Term]:
    """A function whose tensor argument is computed in the result's type, which must be floating."""

    def lifted(f: Formula, x: Term, *rest: Number | str | None) -> Term:
        if not f.ctype.is_floating:
            raise Refused("an activation of integers")
        return function(f.lift(x), *rest)

    return lifted


def _gelu(x: Term, approximate: str) -> Term:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        # 0.5 * (1 + tanh(u)) is sigmoid(2u), without the cancellation
        return x * sigmoid(2.0 * inner)
    return 0.5 * x * (1 + (x * math.sqrt(0.5)).call("erf_absolute"))


def _softplus(x: Term, beta: Number, threshold: Number) -> Term:
    scaled = x * beta
    return scaled.gt(threshold).where(x, scaled.call("exp").call("log1p") / x.like(beta))


def _mish(x: Term) -> Term:
    # tanh(log1p(e)) = e (e + 2) / (e (e + 2) + 2) for e = exp(x); beyond 20 it is 1 in both precisions
    e = x.minimum(20.0).call("exp")
    n = e * (e + 2)
    return x * (n / (n + 2))


def _elu(x: Term, alpha: Number, scale: Number, input_scale: Number) -> Term:
    negative = (x * input_scale).call("expm1") * (float(alpha) * float(scale))
    return x.gt(0).where(x * scale, negative)


def _clamped(x: Term, low: Number, high: Number) -> Term:
    return x.maximum(low).minimum(high)


def _hardtanh(f: Formula, x: Term, low: Number, high: Number) -> Term:
    return _clamped(f.lift(x), low, high)


def _prelu(_: Formula, x: Term, weight: Term) -> Term:
    return x.gt(0).where(x, x * weight)


def _silu(x: Term) -> Term:
    return x * sigmoid(x)


def _logit(x: Term, eps: Number | None) -> Term:
    if eps is not None:
        x = _clamped(x, eps, 1 - float(eps))
    return (x / (1 - x)).call("log")


RULES: dict[str, Rule] = {
    "aten.relu.default": map_rule("self", lambda _, x: x.maximum(0)),
    "aten.relu6.default": map_rule("self", lambda _, x: _clamped(x, 0, 6)),
    "aten.hardtanh.default": map_rule("self min_val=-1 max_val=1", _hardtanh),
    "aten.leaky_relu.default": map_rule(
        "self negative_slope=0.01", _floating(lambda x, slope: x.gt(0).where(x, x * slope))
    ),
    "aten.elu.default": map_rule("self alpha=1 scale=1 input_scale=1", _floating(_elu)),
    "aten.selu.default": map_rule("self", _floating(lambda x: _elu(x, _SELU_ALPHA, _SELU_SCALE, 1))),
    "aten.celu.default": map_rule("self alpha=1", _floating(lambda x, alpha: _elu(x, alpha, 1, 1 / float(alpha)))),
    "aten.gelu.default": map_rule("self approximate=none", _floating(_gelu)),
    "aten.silu.default": map_rule("self", _floating(_silu)),
    "aten.sigmoid.default": map_rule("self", _floating(sigmoid)),
    "aten.tanh.default": map_rule("self", _floating(lambda x: x.call("tanh"))),
    "aten.softplus.default": map_rule("self beta=1 threshold=20", _floating(_softplus)),
    "aten.hardswish.default": map_rule("self", _floating(lambda x: x * _clamped(x + 3, 0, 6) / x.like(6))),
    "aten.hardsigmoid.default": map_rule("self", _floating(lambda x: _clamped(x + 3, 0, 6) / x.like(6))),
    "aten.mish.default": map_rule("self", _floating(_mish)),
    "aten.threshold.default": map_rule("self threshold value", lambda _, x, t, v: x.le(t).where(x.like(v), x)),
    "aten.hardshrink.default": map_rule(
        "self lambd=0.5", _floating(lambda x, edge: (x.ge(-edge) & x.le(edge)).where(x.like(0), x))
    ),
    "aten.softshrink.default": map_rule(
        "self lambd=0.5", _floating(lambda x, edge: x.gt(edge).where(x - edge, x.lt(-edge).where(x + edge, x * 0)))
    ),
    "aten.prelu.default": map_rule("self weight", _prelu),
    "aten._prelu_kernel.default": map_rule("self weight", _prelu),
    "aten.logit.default": map_rule("self eps=None", _floating(_logit)),
}
