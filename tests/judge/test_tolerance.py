"""The golden tests of the thresholds (DESIGN section 9): which arithmetic passes which tier, on simulated kernels."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch.nn import functional

from modelblaster.judge.cases import Case, Drawer, Kind, standard_cases
from modelblaster.judge.subject import Subject
from modelblaster.judge.tolerance import Allowance, Refusal, allowance, checks, floor_of
from modelblaster.records.task import Precision
from modelblaster.records.tensor import DType, TensorSpec, contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Problem:
    name: str
    shapes: dict[str, tuple[int, ...]]
    function: Callable[..., Tensor]

    def subject(self) -> Subject:
        def shipped(seed: int) -> dict[str, Tensor]:
            generator = torch.Generator().manual_seed(seed)
            return {name: torch.rand(shape, generator=generator) for name, shape in self.shapes.items()}

        specs = tuple(TensorSpec(n, DType.FLOAT32, s, contiguous_strides(s)) for n, s in self.shapes.items())
        return Subject(key=self.name, inputs=specs, parameters=(), outputs=(), shipped=shipped)


MAP = Problem("map", {"x": (32, 1024)}, lambda x: functional.silu(x) * 0.5 + x)
SUM = Problem("sum", {"x": (1024, 300)}, lambda x: x.sum(-1))
SOFTMAX = Problem("softmax", {"x": (64, 1024)}, lambda x: torch.softmax(x, -1))
NORM = Problem("norm", {"x": (64, 1024)}, lambda x: functional.layer_norm(x, (1024,)))
MATMUL = Problem("matmul", {"a": (128, 512), "b": (512, 256)}, lambda a, b: a @ b)
CONV = Problem("conv", {"x": (2, 32, 20, 20), "w": (32, 32, 3, 3)}, functional.conv2d)
PROBLEMS = [MAP, SUM, SOFTMAX, NORM, MATMUL, CONV]
CONTRACTIONS = [MATMUL, CONV]


def kept_bits(value: Tensor, bits: int, *, truncate: bool = False) -> Tensor:
    """float32 with fewer bits behind the point, rounded to nearest or cut off."""
    shift = 23 - bits
    half = 0 if truncate else 1 << (shift - 1)
    return ((value.view(torch.int32) + half) >> shift << shift).view(torch.float32)


def tf32(value: Tensor) -> Tensor:
    return kept_bits(value.contiguous(), 10)


def bf16(value: Tensor) -> Tensor:
    return value.bfloat16().float()


def with_operands(problem: Problem, rounding: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda *operands: problem.function(*(rounding(operand) for operand in operands))


def three_products(problem: Problem) -> Callable[..., Tensor]:
    def run(a: Tensor, b: Tensor) -> Tensor:
        high_a, high_b = bf16(a), bf16(b)
        low_a, low_b = bf16(a - high_a), bf16(b - high_b)
        corrections = problem.function(high_a, low_b) + problem.function(low_a, high_b)
        return corrections + problem.function(high_a, high_b)

    return run


@cache
def prepared(
    problem: Problem, precision: Precision, eager: Callable[..., Tensor]
) -> list[tuple[str, dict[str, Tensor], Tensor, Allowance]]:
    """The cases that are not set aside."""
    drawer = Drawer(problem.subject(), first_seed=1)
    found = []
    for case in standard_cases(7):
        inputs = drawer.draw(case)
        oracle = problem.function(*(value.double() for value in inputs.values()))
        allowed = allowance(eager(*inputs.values()), oracle, floor_of(precision, DType.FLOAT32), inputs)
        if isinstance(allowed, Allowance):
            found.append((case.name, inputs, oracle, allowed))
    return found


def judged(
    problem: Problem, candidate: Callable[..., Tensor], precision: Precision, eager: Callable[..., Tensor] | None = None
) -> dict[str, list[str]]:
    """Names of the failed checks by case; cases that are set aside are left out."""
    failed: dict[str, list[str]] = {}
    for name, inputs, oracle, allowed in prepared(problem, precision, eager or problem.function):
        is_finite, found = checks(candidate(*inputs.values()), oracle, allowed)
        failed[name] = ([] if is_finite else ["finite"]) + [check.name for check in found if not check.passed]
    assert len(failed) >= 3, f"{problem.name} lost its cases"
    return failed


def passes(failed: dict[str, list[str]]) -> bool:
    return not any(failed.values())


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_eager_passes_its_own_tier(problem: Problem) -> None:
    assert passes(judged(problem, problem.function, Precision.FP32))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_another_order_of_float32_operations_passes(problem: Problem) -> None:
    def flipped(*operands: Tensor) -> Tensor:
        return problem.function(*(operand.double() for operand in operands)).float()

    assert passes(judged(problem, flipped, Precision.FP32))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_tf32_operands_fail_fp32(problem: Problem) -> None:
    assert not passes(judged(problem, with_operands(problem, tf32), Precision.FP32))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_bf16_operands_fail_tf32(problem: Problem) -> None:
    assert not passes(judged(problem, with_operands(problem, bf16), Precision.TF32))


@pytest.mark.parametrize("eager_is_tf32", [True, False])
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_truncated_tf32_passes_tf32(problem: Problem, eager_is_tf32: bool) -> None:
    if problem in (SOFTMAX, NORM, SUM):
        pytest.skip("tf32 is a property of contractions and of maps around them")
    candidate = with_operands(problem, lambda value: kept_bits(value.contiguous(), 10, truncate=True))
    eager = with_operands(problem, tf32) if eager_is_tf32 else None
    assert passes(judged(problem, candidate, Precision.TF32, eager))


@pytest.mark.parametrize("problem", CONTRACTIONS, ids=lambda p: p.name)
def test_three_bf16_products_pass_fp32(problem: Problem) -> None:
    assert passes(judged(problem, three_products(problem), Precision.FP32))


@pytest.mark.parametrize("problem", CONTRACTIONS, ids=lambda p: p.name)
def test_bf16_operands_pass_bf16(problem: Problem) -> None:
    assert passes(judged(problem, with_operands(problem, bf16), Precision.BF16))


def test_zeroed_small_rows_fail() -> None:
    """The rows are too small to matter in the whole: each is judged by its own size."""
    scale = torch.logspace(0, -7, 256)[:, None]
    problem = Problem("rows", {"x": (256, 1024)}, lambda x: torch.tanh(x) * scale.to(x.dtype))

    def lazy(x: Tensor) -> Tensor:
        return problem.function(x) * (scale > 1e-6)

    failed = judged(problem, lazy, Precision.FP32)
    assert "run rms" in failed["normal"]
    assert "rms" not in failed["normal"]


def test_zeroed_small_softmax_values_fail() -> None:
    def lazy(x: Tensor) -> Tensor:
        value = torch.softmax(x, -1)
        return torch.where(value < 1e-7, 0.0, value)

    failed = judged(SOFTMAX, lazy, Precision.FP32)
    assert "run over p90" in failed["affine"]


@pytest.mark.parametrize("problem", [MAP, NORM, MATMUL, CONV], ids=lambda p: p.name)
@pytest.mark.parametrize("seed", range(3))
def test_one_element_in_a_million_off_by_a_hundredth_fails(problem: Problem, seed: int) -> None:
    def nearly(*operands: Tensor) -> Tensor:
        value = problem.function(*operands).clone()
        where = torch.randint(value.numel(), (1,), generator=torch.Generator().manual_seed(seed))
        value.view(-1)[where] *= 1.01
        return value

    assert not passes(judged(problem, nearly, Precision.FP32))


def test_one_long_chain_of_additions_fails() -> None:
    x = torch.rand(2, 1 << 22, generator=torch.Generator().manual_seed(0))
    oracle = x.sum(-1, dtype=torch.float64)
    allowed = allowance(x.sum(-1), oracle, floor_of(Precision.FP32, DType.FLOAT32), {})
    assert isinstance(allowed, Allowance)
    chain = torch.from_numpy(np.add.accumulate(x.numpy(), axis=1, dtype=np.float32)[:, -1].copy())
    assert not all(check.passed for check in checks(chain, oracle, allowed)[1])
    partial = x.view(2, 1024, -1).sum(-1).sum(-1)
    assert all(check.passed for check in checks(partial, oracle, allowed)[1])


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
@pytest.mark.parametrize("answer", ["zeros", "nan", "one_nan", "previous row"])
def test_wrong_answers_fail(problem: Problem, answer: str) -> None:
    def wrong(*operands: Tensor) -> Tensor:
        value = problem.function(*operands).clone()
        if answer == "zeros":
            return torch.zeros_like(value)
        if answer == "nan":
            return torch.full_like(value, torch.nan)
        if answer == "one_nan":
            value.view(-1)[value.numel() // 2] = torch.nan
            return value
        return value.roll(1, 0)

    failed = judged(problem, wrong, Precision.FP32)
    assert all(failed.values()) or answer == "previous row"
    assert not passes(failed)


def test_a_constant_function_is_refused_and_not_passed() -> None:
    x = torch.rand(512, 512)
    value = torch.ones(512, 512)
    found = allowance(value, value.double(), 1e-5, {"x": x})
    assert isinstance(found, Refusal)
    assert "trivial" in found.reason


def test_zero_and_nonfinite_references_are_refused() -> None:
    x = torch.rand(64, 64)
    assert isinstance(allowance(x * 0, x.double() * 0, 1e-5, {}), Refusal)
    assert isinstance(allowance(x / 0, x.double(), 1e-5, {}), Refusal)
    assert isinstance(allowance(x, x.double() / 0, 1e-5, {}), Refusal)
    assert isinstance(allowance(x + 0.1, x.double(), 1e-5, {}), Refusal)


def test_a_loss_is_one_number_and_can_be_judged() -> None:
    a, b = torch.randn(1000), torch.randn(1000)
    oracle = (a.double() - b.double()).square().mean()
    allowed = allowance((a - b).square().mean(), oracle, 1e-5, {})
    assert isinstance(allowed, Allowance)
    assert all(check.passed for check in checks(oracle.float(), oracle, allowed)[1])
    assert not all(check.passed for check in checks(oracle.float() * 1.001, oracle, allowed)[1])


def test_tiny_and_huge_outputs_are_judged_by_their_own_size() -> None:
    x = torch.randn(300, 300)
    for factor in (1e-30, 1e30):
        value = x * factor
        allowed = allowance(value, x.double() * factor, 1e-5, {})
        assert isinstance(allowed, Allowance)
        assert all(check.passed for check in checks(value, x.double() * factor, allowed)[1])
        assert not all(check.passed for check in checks(tf32(value), x.double() * factor, allowed)[1])


def test_sixteen_megabytes_are_compared_quickly() -> None:
    """A guard against an accident, not a benchmark: quiet, it takes about 30 ms on two cores."""
    drawn = Drawer(Problem("big", {"x": (4096, 1024)}, torch.tanh).subject(), first_seed=1)
    x = drawn.draw(Case(Kind.NORMAL, 1))["x"]
    oracle, value = torch.tanh(x.double()), torch.tanh(x)
    allowed = allowance(value, oracle, 1e-5, {})
    assert isinstance(allowed, Allowance)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        checks(value, oracle, allowed)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.4
