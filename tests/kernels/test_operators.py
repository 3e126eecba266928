"""Every operator against torch in float64: tails, primes, broadcasting, strides, other types."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from kernel_harness import check_all

from modelblaster.kernels.operators import RULES, covers

A = torch.ops.aten
SHAPE = (3, 7, 13)


def randn(*shape, seed=0, scale=1.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


X = randn(*SHAPE, scale=2.0)
Y = randn(*SHAPE, seed=1)
P = X.abs() + 0.1
ROW = randn(13, seed=2)
COLUMN = randn(7, 1, seed=3)
MASK = X > 0.3
INTS = torch.arange(-20, 71).reshape(7, 13)

ACTIVATIONS = {
    "relu": torch.relu, "relu6": F.relu6, "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.7), "leaky_relu": F.leaky_relu,
    "elu": F.elu, "elu_alpha": lambda x: A.elu(x, 0.7, 1.3, 1.1), "selu": torch.selu, "celu": lambda x: F.celu(x, 0.8),
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "sigmoid": torch.sigmoid,
    "tanh": torch.tanh, "softplus": F.softplus, "softplus_b": lambda x: F.softplus(x, 2.0, 3.0), "mish": F.mish,
    "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "threshold": lambda x: F.threshold(x, 0.1, -3.0),
    "hardshrink": F.hardshrink, "softshrink": F.softshrink, "prelu": lambda x: F.prelu(x, torch.tensor([0.2])),
}  # fmt: skip
UNARY = {
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "abs": torch.abs, "neg": torch.neg, "sign": torch.sign,
    "floor": torch.floor, "ceil": torch.ceil, "round": torch.round, "trunc": torch.trunc,
    "erf": torch.erf, "reciprocal": torch.reciprocal, "square": torch.square, "isnan": torch.isnan,
    "isinf": torch.isinf, "isfinite": torch.isfinite, "logical_not": torch.logical_not, "clone": torch.clone,
    "cube": lambda x: x**3, "power -2": lambda x: x**-2,
}  # fmt: skip
POSITIVE = {
    "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p, "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt, "pow 2.5": lambda x: x**2.5, "pow 0.5": lambda x: x**0.5, "pow -0.5": lambda x: x**-0.5,
    "2 ** x": lambda x: 2.0**x, "x ** y": lambda x: torch.pow(x, x), "logit": lambda x: A.logit(x / 100 + 0.1),
}  # fmt: skip
BINARY = {
    "add": torch.add, "add alpha": lambda x, y: torch.add(x, y, alpha=0.3), "sub": torch.sub, "mul": torch.mul,
    "rsub": lambda x, y: torch.rsub(x, y, alpha=2), "div": torch.div, "maximum": torch.maximum,
    "minimum": torch.minimum, "fmod": torch.fmod, "remainder": torch.remainder, "lt": torch.lt, "le": torch.le,
    "gt": torch.gt, "ge": torch.ge, "eq": torch.eq, "ne": torch.ne, "logical_and": torch.logical_and,
    "logical_or": torch.logical_or, "logical_xor": torch.logical_xor, "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "addcmul": lambda x, y: torch.addcmul(x, y, y, value=0.5), "clamp": lambda x, y: torch.clamp(x, y, y + 1),
    "where": lambda x, y: torch.where(x > y, x, y), "trunc div": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}  # fmt: skip
SCALAR = {
    "add s": lambda x: x + 2, "sub s": lambda x: x - 0.3, "3 - x": lambda x: 3 - x, "mul s": lambda x: x * 1.7,
    "div s": lambda x: x / 3, "1 / x": lambda x: 1 / x, "fmod s": lambda x: torch.fmod(x, 0.7),
    "remainder s": lambda x: torch.remainder(x, -0.7), "clamp s": lambda x: torch.clamp(x, -0.2, 0.4),
    "clamp min": lambda x: torch.clamp(x, min=0.1), "lt s": lambda x: x < 0.5, "ge s": lambda x: x >= 0.5,
    "eq s": lambda x: x == 0, "masked_fill": lambda x: x.masked_fill(x > 0, -1.0),
    "addcdiv": lambda x: torch.addcdiv(x, x, x * x + 1, value=2), "full_like": lambda x: x + torch.full_like(x, 0.25),
    "zeros_like": lambda x: torch.where(x > 0, x, torch.zeros_like(x)), "lone constant": torch.ones_like,
    "scalar_tensor": lambda x: torch.where(x > 0, x, torch.scalar_tensor(0.5, dtype=x.dtype)),
}  # fmt: skip
LAST = {
    "sum": lambda x, d: x.sum(d), "sum keep": lambda x, d: x.sum(d, keepdim=True), "mean": lambda x, d: x.mean(d),
    "amax": lambda x, d: x.amax(d), "amin": lambda x, d: x.amin(d), "var": lambda x, d: x.var(d),
    "std": lambda x, d: x.std(d, correction=0), "var_mean": torch.var_mean,
    "norm2": lambda x, d: torch.linalg.vector_norm(x, 2, d), "norm1": lambda x, d: torch.linalg.vector_norm(x, 1, d),
    "norm inf": lambda x, d: torch.linalg.vector_norm(x, float("inf"), d),
    "norm -inf": lambda x, d: torch.linalg.vector_norm(x, float("-inf"), d),
    "norm 0": lambda x, d: torch.linalg.vector_norm(x, 0, d), "norm 3": lambda x, d: torch.linalg.vector_norm(x, 3, d),
    "any": lambda x, d: torch.any(x > 2.5, d), "all": lambda x, d: torch.all(x > -2.5, d),
    "logsumexp": torch.logsumexp,
}  # fmt: skip
ONE_DIM = {
    "softmax": torch.softmax, "log_softmax": torch.log_softmax, "argmax": torch.argmax,
    "argmin": lambda x, d: torch.argmin(x, d, keepdim=True), "max": torch.max,
    "min": torch.min, "prod": torch.prod, "l1": lambda x, d: x.norm(1, d),
}  # fmt: skip
WHOLE = {
    "sum": torch.sum, "mean": torch.mean, "max": torch.max, "min": torch.min, "argmax": torch.argmax,
    "prod": lambda x: torch.prod(x * 0.1 + 1), "any": lambda x: torch.any(x > 9), "norm": torch.linalg.vector_norm,
    "std": torch.std, "argmin": torch.argmin,
}  # fmt: skip


def test_maps():
    cases = [(n, f, (X,)) for n, f in {**ACTIVATIONS, **UNARY, **SCALAR}.items() if n != "prelu"]
    cases += [(n, f, (P,)) for n, f in POSITIVE.items()]
    check_all(cases)


def test_binary_maps_with_broadcasting():
    cases = [(n, f, (X, Y)) for n, f in BINARY.items()]
    cases += [(f"{n} row", f, (X, ROW)) for n, f in list(BINARY.items())[:6]]
    cases += [(f"{n} column", f, (X, COLUMN)) for n, f in list(BINARY.items())[:6]]
    cases += [("outer", torch.mul, (ROW.view(13, 1), randn(5))), ("zero-dim", torch.add, (X, torch.tensor(0.3)))]
    cases += [("prelu", A._prelu_kernel, (X, COLUMN))]
    check_all(cases)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_reductions_over_one_dimension(dim):
    cases = [(n, lambda x, f=f: f(x, dim), (X,)) for n, f in {**LAST, **ONE_DIM}.items()]
    check_all(cases, tolerance=4e-6)


@pytest.mark.parametrize("dims", [(0, 2), (1, 2), (0, 1, 2)])
def test_reductions_over_several_dimensions(dims):
    check_all([(n, lambda x, f=f: f(x, dims), (X,)) for n, f in LAST.items()], tolerance=4e-6)


def test_reductions_over_everything():
    check_all([(n, f, (X,)) for n, f in WHOLE.items()], tolerance=4e-6)


def test_strided_inputs():
    turned = randn(13, 7, 3).permute(2, 1, 0)
    spread = randn(3, 7, 26)[..., ::2]
    wide = randn(3, 1, 13).expand(3, 7, 13)
    cases = []
    for name, x in (("turned", turned), ("spread", spread), ("wide", wide)):
        cases += [(f"{name} relu", torch.relu, (x,)), (f"{name} add", torch.add, (x, Y)),
                  (f"{name} softmax", lambda x: torch.softmax(x, 1), (x,)), (f"{name} sum", lambda x: x.sum(2), (x,)),
                  (f"{name} argmax", lambda x: x.argmax(0), (x,))]  # fmt: skip
    check_all(cases)


def test_sizes_of_one():
    shapes = [(1,), (1, 1), (1, 5), (5, 1), (2, 1, 3), ()]
    cases = [(f"gelu {s}", F.gelu, (randn(*s),)) for s in shapes]
    cases += [(f"softmax {s}", lambda x: torch.softmax(x, -1), (randn(*s),)) for s in shapes if s]
    cases += [(f"max {s}", lambda x: x.max(0), (randn(*s),)) for s in shapes if s]
    cases += [(f"mean {s}", lambda x: x.mean(), (randn(*s),)) for s in shapes]
    check_all(cases)


def test_normalizations():
    x, w, b = randn(4, 6, 5, 5), randn(6, seed=1), randn(6, seed=2)
    mean, var = randn(6, seed=3), randn(6, seed=4).abs() + 0.5
    line, lw, lb = randn(9, 33), randn(33, seed=1), randn(33, seed=2)
    functional = A._native_batch_norm_legit_functional
    check_all([
        ("eval", lambda *t: A._native_batch_norm_legit_no_training(*t, 0.1, 1e-5)[0], (x, w, b, mean, var)),
        ("eval 2d", lambda *t: A._native_batch_norm_legit_no_training(*t, 0.1, 1e-5)[0],
         (line, lw, lb, lw, lb.abs() + 0.1)),
        ("eval bare", lambda x, m, v: A._native_batch_norm_legit_no_training(x, None, None, m, v, 0.1, 1e-5)[0],
         (x, mean, var)),
        ("train", lambda x, w, b, m, v: functional(x, w, b, m, v, True, 0.1, 1e-5), (x, w, b, mean, var)),
        ("no stats", lambda x, w, b: A._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5), (x, w, b)),
        ("layer", lambda x, w, b: A.native_layer_norm(x, [33], w, b, 1e-5), (line, lw, lb)),
        ("layer bare", lambda x: A.native_layer_norm(x, [33], None, None, 1e-5)[0], (line,)),
        ("layer 2d", lambda x: A.native_layer_norm(x, [5, 5], None, None, 1e-5), (x,)),
        ("group", lambda x, w, b: A.native_group_norm(x, w, b, 4, 6, 25, 3, 1e-5), (x, w, b)),
        ("group one", lambda x, w, b: A.native_group_norm(x, w, b, 4, 6, 25, 1, 1e-5)[0], (x, w, b)),
        ("group each", lambda x: A.native_group_norm(x, None, None, 4, 6, 25, 6, 1e-5)[0], (x,)),
    ], tolerance=5e-6)  # fmt: skip


def test_integers_and_booleans():
    i32, i8, u8 = INTS.int(), INTS.to(torch.int8), (INTS + 30).to(torch.uint8)
    cases = []
    for name, x in (("int64", INTS), ("int32", i32), ("int16", INTS.short()), ("int8", i8), ("uint8", u8)):
        cases += [(f"{name} {n}", f, (x,)) for n, f in {
            "add": lambda x: x + 100, "mul": lambda x: x * 3, "neg": lambda x: -x, "sum": lambda x: x.sum(1),
            "max": lambda x: x.max(0), "argmin": lambda x: x.argmin(1), "float": lambda x: x.float() * 0.5,
            "eq": lambda x: x == 7, "div": lambda x: x / 4, "mean": lambda x: x.float().mean(1),
            "bool": lambda x: x.bool(), "abs": torch.abs, "clamp": lambda x: x.clamp(3, 9),
        }.items()]  # fmt: skip
    cases += [(f"bool {n}", f, (MASK,)) for n, f in {
        "not": torch.logical_not, "float": lambda m: m.float(), "sum": lambda m: m.sum(2), "any": lambda m: m.any(0),
        "and": lambda m: m & ~m, "long": lambda m: m.long(), "eq": lambda m: m == True,  # noqa: E712
    }.items()]  # fmt: skip
    cases += [
        ("to int", lambda x: (x * 3).int(), (X,)),
        ("to uint8", lambda x: (x.abs() * 30).to(torch.uint8), (X,)),
        ("where mask", lambda m, x: torch.where(m, x, 0.5), (MASK, X)),
        ("mixed", torch.add, (X, INTS)),
        ("to long", lambda x: x.long(), (X,)),
        ("bitwise", lambda x, y: (x & y) ^ (x | 5), (INTS, INTS + 3)),
    ]
    check_all(cases)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floating_types(dtype):
    x, y = X.to(dtype), Y.to(dtype)
    functions = {"add": lambda x, y: x + y, "tanh": lambda x, y: torch.tanh(x), "softmax": lambda x, y: x.softmax(2),
                 "sum 0": lambda x, y: x.sum(0), "cast": lambda x, y: x.float() + y, "max": lambda x, y: x.max(1),
                 "compare": lambda x, y: x > y, "mean": lambda x, y: x.mean((1, 2)), "mul": lambda x, y: x * 0.3,
                 "log_softmax": lambda x, y: x.log_softmax(1), "silu": lambda x, y: F.silu(x),
                 "softplus": lambda x, y: F.softplus(x), "elu": lambda x, y: F.elu(x),
                 "pow": lambda x, y: x.abs() ** 1.5, "round": lambda x, y: torch.round(x * 3)}  # fmt: skip
    check_all([(n, f, (x, y)) for n, f in functions.items()])


def test_functions_missing_in_double_are_refused():
    from kernel_harness import fuse, trace

    assert fuse(trace(torch.erf, X.double())) is None
    assert fuse(trace(torch.erf, X)) is not None


def test_the_table_knows_what_it_covers():
    assert covers("aten.relu.default")
    assert not covers("aten.convolution.default")
    assert len(RULES) > 140
