"""Pointwise arithmetic, comparisons, selects, casts and constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modelblaster.kernels.dialect import CType
from modelblaster.kernels.graph import Number, Refused, Term
from modelblaster.kernels.ir import COMPUTE_TYPES
from modelblaster.kernels.rules.scope import Formula, Rule, Scope, convert, map_rule, rule
from modelblaster.records.tensor import DType

if TYPE_CHECKING:
    from collections.abc import Callable

TermOrNumber = Term | Number


def _unary(function: Callable[[Term], Term]) -> Rule:
    return map_rule("self", lambda f, x: function(f.lift(x)))


def _function(op: str) -> Rule:
    return _unary(lambda x: x.call(op))


def _same(_: Formula, x: Term, *_unused: Any) -> Term:
    return x


def _add(f: Formula, a: TermOrNumber, b: TermOrNumber, alpha: Number) -> Term:
    if f.ctype is CType.MASK:
        return f.lift(a) | f.lift(b)
    return f.lift(a) + f.lift(b) * alpha


def _sub(f: Formula, a: TermOrNumber, b: TermOrNumber, alpha: Number) -> Term:
    return f.lift(a) - f.lift(b) * alpha


def _mul(f: Formula, a: TermOrNumber, b: TermOrNumber) -> Term:
    if f.ctype is CType.MASK:
        return f.lift(a) & f.lift(b)
    return f.lift(a) * f.lift(b)


def _div(f: Formula, a: TermOrNumber, b: TermOrNumber, mode: str | None = None) -> Term:
    if not f.ctype.is_floating:
        raise Refused("a division of integers")
    quotient = f.lift(a) / f.lift(b)
    if mode is None:
        return quotient
    if mode == "trunc":
        return quotient.call("trunc")
    # torch's floor division corrects the quotient by the remainder; keep the library's operator
    raise Refused("a floor division")


def _remainder(f: Formula, a: TermOrNumber, b: TermOrNumber) -> Term:
    if not f.ctype.is_floating:
        raise Refused("a remainder of integers")
    divisor = f.lift(b)
    rest = f.graph.apply("fmod", f.lift(a), divisor)
    return (rest.ne(0) & (rest.lt(0) ^ divisor.lt(0))).where(rest + divisor, rest)


def _fmod(f: Formula, a: TermOrNumber, b: TermOrNumber) -> Term:
    return f.graph.apply("fmod", f.lift(a), f.lift(b))


def _pow_number(f: Formula, x: Term, exponent: Number) -> Term:
    x = f.lift(x)
    if not x.ctype.is_floating and exponent not in (0, 1, 2, 3):
        raise Refused("a power of integers")
    special: dict[float, Callable[[], Term]] = {
        0.0: lambda: x.like(1),
        1.0: lambda: x,
        2.0: lambda: x * x,
        3.0: lambda: x * x * x,
        0.5: lambda: x.call("sqrt"),
        -0.5: lambda: 1 / x.call("sqrt"),
        -1.0: lambda: 1 / x,
        -2.0: lambda: 1 / (x * x),
    }
    known = special.get(float(exponent))
    return known() if known is not None else f.graph.apply("pow", x, x.like(exponent))


def _pow_tensor(f: Formula, x: TermOrNumber, exponent: Term) -> Term:
    return f.graph.apply("pow", f.lift(x), f.lift(exponent))


def _compare(op: str) -> Rule:
    def compare(f: Formula, a: TermOrNumber, b: TermOrNumber) -> Term:
        common = f.common()
        # masks are 0 and all ones: compare them as integers 0 and 1
        wanted = CType.I32 if common is CType.MASK else common
        return f.graph.apply(op, f.lift(a, wanted), f.lift(b, wanted), ctype=CType.MASK)

    return map_rule("self other", compare)


def _logical(function: Callable[[Term, Term], Term]) -> Rule:
    return map_rule("self other", lambda f, a, b: function(f.lift(a, CType.MASK), f.lift(b, CType.MASK)))


def _bitwise(function: Callable[[Term, Term], Term]) -> Rule:
    return map_rule("self other", lambda f, a, b: function(f.lift(a), f.lift(b)))


def _where(f: Formula, condition: Term, yes: TermOrNumber, no: TermOrNumber) -> Term:
    return condition.cast(CType.MASK).where(f.lift(yes), f.lift(no))


def _masked_fill(f: Formula, x: Term, mask: Term, value: TermOrNumber) -> Term:
    return mask.where(f.lift(value), x)


def _clamp(f: Formula, x: Term, low: TermOrNumber | None, high: TermOrNumber | None) -> Term:
    x = f.lift(x)
    if low is not None:
        x = x.maximum(f.lift(low) if isinstance(low, Term) else low)
    if high is not None:
        x = x.minimum(f.lift(high) if isinstance(high, Term) else high)
    return x


def _clamp_tensor(f: Formula, x: Term, low: Term | None, high: Term | None) -> Term:
    return _clamp(f, x, low, high)


def _sign(x: Term) -> Term:
    if x.ctype is CType.MASK:
        return x
    one = x.like(1)
    return x.gt(0).where(one, x.lt(0).where(-one, x * 0 if not x.ctype.is_floating else x.like(0)))


def _abs(x: Term) -> Term:
    return x if x.ctype is CType.MASK else x.call("abs")


def _rounding(op: str) -> Rule:
    return _unary(lambda x: x.call(op) if x.ctype.is_floating else x)


def _lerp(f: Formula, start: Term, end: Term, weight: TermOrNumber) -> Term:
    w = f.lift(weight)
    difference = end - start
    return w.call("abs").lt(0.5).where(start + w * difference, end - difference * (1 - w))


def _addcmul(f: Formula, x: Term, a: Term, b: Term, value: Number) -> Term:
    return f.lift(x) + f.lift(a) * f.lift(b) * value


def _addcdiv(f: Formula, x: Term, a: Term, b: Term, value: Number) -> Term:
    return f.lift(x) + f.lift(a) * value / f.lift(b)


def _cast(f: Formula, x: Term, *_: Any) -> Term:
    result = convert(x, f.out)
    if f.out in (DType.FLOAT16, DType.BFLOAT16) and getattr(x.node, "dtype", None) is not f.out:
        return result.call(f"round_{f.out.value}")
    return result


def _isnan(f: Formula, x: Term) -> Term:
    return x.ne(x) if x.ctype.is_floating else f.number(value=False)


def _isinf(f: Formula, x: Term) -> Term:
    return x.call("abs").eq(float("inf")) if x.ctype.is_floating else f.number(value=False)


def _isfinite(f: Formula, x: Term) -> Term:
    return x.call("abs").lt(float("inf")) if x.ctype.is_floating else f.number(value=True)


def _constant(signature: str, value: Number | None = None) -> Rule:
    """A rule for a tensor that is one number everywhere; without `value`, its last argument."""

    @rule(signature)
    def constant(scope: Scope, *bound: Any) -> None:
        number = bound[-1] if value is None else value
        if not isinstance(number, bool | int | float):
            raise Refused("a fill value that is no number")
        spec = scope.result_spec()
        term = scope.graph.constant(number, COMPUTE_TYPES[spec.dtype])
        scope.record(0, term, None)

    return constant


def _both(names: tuple[str, ...], item: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names, item)


def _tensor_and_scalar(name: str, item: Rule) -> dict[str, Rule]:
    return _both((f"aten.{name}.Tensor", f"aten.{name}.Scalar"), item)


ARITHMETIC: dict[str, Rule] = {
    **_tensor_and_scalar("add", map_rule("self other alpha=1", _add)),
    **_tensor_and_scalar("sub", map_rule("self other alpha=1", _sub)),
    **_tensor_and_scalar("rsub", map_rule("self other alpha=1", lambda f, a, b, alpha: _sub(f, b, a, alpha))),
    **_tensor_and_scalar("mul", map_rule("self other", _mul)),
    **_tensor_and_scalar("div", map_rule("self other", _div)),
    **_both(("aten.div.Tensor_mode", "aten.div.Scalar_mode"), map_rule("self other rounding_mode=None", _div)),
    **_tensor_and_scalar("remainder", map_rule("self other", _remainder)),
    **_tensor_and_scalar("fmod", map_rule("self other", _fmod)),
    "aten.pow.Tensor_Scalar": map_rule("self exponent", _pow_number),
    "aten.pow.Tensor_Tensor": map_rule("self exponent", _pow_tensor),
    "aten.pow.Scalar": map_rule("self exponent", _pow_tensor),
    "aten.square.default": _unary(lambda x: x * x),
    "aten.maximum.default": map_rule("self other", lambda f, a, b: f.lift(a).maximum(f.lift(b))),
    "aten.minimum.default": map_rule("self other", lambda f, a, b: f.lift(a).minimum(f.lift(b))),
    "aten.lerp.Scalar": map_rule("self end weight", _lerp),
    "aten.lerp.Tensor": map_rule("self end weight", _lerp),
    "aten.addcmul.default": map_rule("self tensor1 tensor2 value=1", _addcmul),
    "aten.addcdiv.default": map_rule("self tensor1 tensor2 value=1", _addcdiv),
    "aten.clamp.default": map_rule("self min=None max=None", _clamp),
    "aten.clamp.Tensor": map_rule("self min=None max=None", _clamp_tensor),
    "aten.clamp_min.default": map_rule("self min", lambda f, x, low: _clamp(f, x, low, None)),
    "aten.clamp_max.default": map_rule("self max", lambda f, x, high: _clamp(f, x, None, high)),
}

UNARY: dict[str, Rule] = {
    **{f"aten.{name}.default": _function(name) for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "erf",
    )},
    **{f"aten.{name}.default": _rounding(name) for name in ("floor", "ceil", "trunc", "round")},
    "aten.rsqrt.default": _unary(lambda x: 1 / x.call("sqrt")),
    "aten.reciprocal.default": _unary(lambda x: 1 / x),
    "aten.abs.default": _unary(_abs),
    "aten.neg.default": _unary(lambda x: -x),
    "aten.sign.default": _unary(_sign),
    "aten.sgn.default": _unary(_sign),
    "aten.isnan.default": map_rule("self", _isnan),
    "aten.isinf.default": map_rule("self", _isinf),
    "aten.isfinite.default": map_rule("self", _isfinite),
    "aten.logical_not.default": map_rule("self", lambda f, x: ~f.lift(x, CType.MASK)),
    "aten.bitwise_not.default": map_rule("self", lambda f, x: ~f.lift(x)),
    "aten.clone.default": map_rule("self memory_format=None", _same),
    "aten.contiguous.default": map_rule("self memory_format=None", _same),
    "aten.lift_fresh_copy.default": map_rule("self", _same),
    "aten._to_copy.default": map_rule("self", _cast),
    "aten.to.dtype": map_rule("self dtype non_blocking=False copy=False memory_format=None", _cast),
    "prims.convert_element_type.default": map_rule("self dtype", _cast),
}  # fmt: skip

SELECTION: dict[str, Rule] = {
    **{rule_name: _compare(op) for op in ("lt", "le", "gt", "ge", "eq", "ne")
       for rule_name in (f"aten.{op}.Tensor", f"aten.{op}.Scalar")},
    "aten.logical_and.default": _logical(lambda a, b: a & b),
    "aten.logical_or.default": _logical(lambda a, b: a | b),
    "aten.logical_xor.default": _logical(lambda a, b: a ^ b),
    **_tensor_and_scalar("bitwise_and", _bitwise(lambda a, b: a & b)),
    **_tensor_and_scalar("bitwise_or", _bitwise(lambda a, b: a | b)),
    **_tensor_and_scalar("bitwise_xor", _bitwise(lambda a, b: a ^ b)),
    **_both(("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar"),
            map_rule("condition self other", _where)),
    **_both(("aten.masked_fill.Scalar", "aten.masked_fill.Tensor"), map_rule("self mask value", _masked_fill)),
}  # fmt: skip

CONSTANTS: dict[str, Rule] = {
    "aten.full.default": _constant("size fill_value"),
    "aten.full_like.default": _constant("self fill_value"),
    "aten.scalar_tensor.default": _constant("s"),
    "aten.zeros.default": _constant("size", 0),
    "aten.ones.default": _constant("size", 1),
    "aten.new_full.default": _constant("self size fill_value"),
    "aten.new_zeros.default": _constant("self size", 0),
    "aten.new_ones.default": _constant("self size", 1),
    "aten.zeros_like.default": _constant("self", 0),
    "aten.ones_like.default": _constant("self", 1),
}

RULES: dict[str, Rule] = {**ARITHMETIC, **UNARY, **SELECTION, **CONSTANTS}
