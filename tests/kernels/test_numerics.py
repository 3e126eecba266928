"""Accuracy of the functions over their whole range, special values, and long sums."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from kernel_harness import check_all, compile_bodies, emitted_of, run

LOG_SCALE = torch.logspace(-44, 38, 9001, dtype=torch.float64).float()
WIDE = torch.cat([-LOG_SCALE, LOG_SCALE, torch.linspace(-12, 12, 20011)])
EXPONENTS = torch.linspace(-103, 88.7, 30011)
SMALL = torch.cat([torch.logspace(-37, 1.3, 9001), -torch.logspace(-37, 1.3, 9001)])
SPECIAL = torch.tensor(
    [
        float("nan"),
        math.inf,
        -math.inf,
        0.0,
        -0.0,
        1.0,
        -1.0,
        1e-40,
        -1e-40,
        3e38,
        -3e38,
        0.5,
        1e-45,
        4194304.5,
        -8388607.5,
        2.5,
    ]
)

# name, function, inputs, allowed relative error
FUNCTIONS = [
    ("exp", torch.exp, EXPONENTS, 2e-7), ("exp2", torch.exp2, EXPONENTS * 1.44, 2e-7),
    ("expm1", torch.expm1, torch.cat([EXPONENTS, SMALL]), 4e-7), ("log", torch.log, LOG_SCALE, 2e-7),
    ("log near 1", torch.log, torch.linspace(0.9, 1.1, 20011), 2e-7), ("log2", torch.log2, LOG_SCALE, 3e-7),
    ("log10", torch.log10, LOG_SCALE, 3e-7), ("log1p", torch.log1p, torch.cat([LOG_SCALE, SMALL.clamp(-0.99)]), 3e-7),
    ("tanh", torch.tanh, torch.cat([WIDE, SMALL]), 4e-7), ("erf", torch.erf, torch.cat([WIDE, SMALL]), 3e-7),
    ("sigmoid", torch.sigmoid, torch.linspace(-86, 86, 20011), 3e-7), ("pow", lambda x: x**2.75, LOG_SCALE, 3e-7),
    ("pow negative", lambda x: x**-0.375, LOG_SCALE, 3e-7), ("sqrt", torch.sqrt, LOG_SCALE, 1.2e-7),
    ("softplus", F.softplus, torch.linspace(-80, 30, 20011), 4e-7), ("elu", F.elu, SMALL, 5e-7),
]  # fmt: skip


def actual_and_expected(cases):
    found = emitted_of([(name, function, (x,)) for name, function, x in cases])
    for e, library in zip(found, compile_bodies([e.text for e in found]), strict=True):
        yield e.name, run(library, e.plan, e.traced.inputs, e.traced.specs)[e.traced.outputs[0]], e.traced


def test_relative_error_over_the_whole_range():
    allowed = {name: bound for name, _, _, bound in FUNCTIONS}
    wrong = []
    for name, actual, traced in actual_and_expected([row[:3] for row in FUNCTIONS]):
        expected = traced.expected[0]
        normal = (expected.abs() > 1.2e-38) & (expected.abs() < 3.4e38)
        error = ((actual.double() - expected).abs() / expected.abs())[normal].max().item()
        if not error <= allowed[name]:
            wrong.append(f"{name}: {error:.2e} over {allowed[name]:.1e}")
        denormal = expected.abs() <= 1.2e-38
        assert (actual.double() - expected)[denormal].abs().max().item() < 3e-45 if denormal.any() else True, name
    assert not wrong, wrong


def test_gelu_is_as_exact_as_its_largest_term():
    x = torch.linspace(-9, 9, 40009)
    ((_, actual, traced),) = actual_and_expected([("gelu", F.gelu, x)])
    error = (actual.double() - traced.expected[0]).abs() / x.double().abs().clamp(min=1e-3)
    assert error.max().item() < 2e-7
    eager = (F.gelu(x).double() - traced.expected[0]).abs()
    assert (actual.double() - traced.expected[0]).square().mean() < 4 * eager.square().mean()


def test_special_values_are_torchs():
    names = ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "erf", "sqrt", "rsqrt", "reciprocal",
             "sigmoid", "relu", "floor", "ceil", "round", "trunc", "abs", "isnan", "isinf", "neg"]  # fmt: skip
    cases = [(n, getattr(torch, n), SPECIAL) for n in names]
    cases += [("gelu", F.gelu, SPECIAL), ("softplus", F.softplus, SPECIAL), ("elu", F.elu, SPECIAL),
              ("pow", lambda x: x**1.5, SPECIAL), ("cube", lambda x: x**3.0, SPECIAL), ("mish", F.mish, SPECIAL),
              ("hardtanh", F.hardtanh, SPECIAL), ("x ** 5", lambda x: x**5.0, SPECIAL)]  # fmt: skip
    wrong = []
    for name, actual, traced in actual_and_expected(cases):
        expected = traced.expected[0].to(actual.dtype)
        same = torch.isclose(actual.float(), expected.float(), rtol=1e-6, atol=3e-45, equal_nan=True)
        if not same.all():
            wrong.append((name, SPECIAL[~same], actual[~same], expected[~same]))
    assert not wrong, wrong


@pytest.mark.parametrize("where", [0, 5, 29])
def test_nan_and_infinity_in_reductions(where):
    rows = torch.randn(6, 30, generator=torch.Generator().manual_seed(1))
    rows[0, where] = float("nan")
    rows[1, where] = math.inf
    rows[2, where] = -math.inf
    rows[3] = -math.inf
    rows[4, where:] = rows[4, where] = 7.5
    cases = []
    for d, x in ((1, rows), (0, rows.t().contiguous())):
        for name, f in {
            "max": torch.max, "min": torch.min, "argmax": torch.argmax, "argmin": torch.argmin, "sum": torch.sum,
            "softmax": torch.softmax, "log_softmax": torch.log_softmax, "logsumexp": torch.logsumexp,
        }.items():  # fmt: skip
            cases.append((f"{name} {d}", lambda x, f=f, d=d: f(x, d), (x,)))
    check_all(cases)


def test_long_sums_do_not_lose_precision():
    """A plain float32 chain over a million terms of 0.1 is off by 1e-3 and more."""
    tenth = torch.full((1 << 20,), 0.1)
    drift = torch.rand(1 << 20, generator=torch.Generator().manual_seed(3)) + 100
    tall, cube = drift.view(1 << 17, 8), drift.view(1 << 10, 4, 1 << 8)
    check_all([
        ("all", torch.sum, (tenth,)), ("drift", torch.sum, (drift,)), ("tall", lambda x: x.sum(0), (tall,)),
        ("var", lambda x: x.var(), (drift,)), ("cube", lambda x: x.sum((0, 2)), (cube,)),
        ("flat", lambda x: x.sum(1), (drift.view(2, -1),)), ("inf", torch.sum, (torch.cat([drift, SPECIAL[1:2]]),)),
    ], tolerance=2e-6)  # fmt: skip
