"""Cases that are prepared once, forgotten where memory is short, and set aside by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from judge_fakes import spec, uniform
from torch import nn

from modelblaster.judge.cases import Case, Kind
from modelblaster.judge.evidence import Evidence
from modelblaster.judge.reference import ReferenceProcess
from modelblaster.judge.subject import Subject
from modelblaster.records.task import Precision

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceProcess]:
    with ReferenceProcess(threads=1, deadline_seconds=60.0) as process:
        yield process


class TwoOutputs(nn.Module):
    """One output that is always zero, beside an honest one."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tanh(x), x * 0.0


class Choosy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool((x < 0).any()):
            raise ValueError("negative")
        return torch.exp(-x)


def subject(key: str, module: nn.Module, *outputs: str) -> Subject:
    shape = (32, 300)
    specs = tuple(spec(name, shape) for name in outputs)
    return Subject(key, (spec("x", shape),), (), specs, uniform(spec("x", shape)), module=module)


def test_a_zero_output_beside_another_is_still_checked(reference: ReferenceProcess) -> None:
    evidence = Evidence(reference, Precision.FP32, 1)
    found = evidence.prepared(subject("two", TwoOutputs(), "a", "b"), Case(Kind.NORMAL, 1))
    assert found.set_aside is None
    zero = found.expected[1]
    assert all(check.passed for check in zero.check(torch.zeros(32, 300))[1])
    assert not all(check.passed for check in zero.check(torch.full((32, 300), 1e-3))[1])
    assert not zero.check(torch.full((32, 300), torch.nan))[0]


def test_a_reference_that_raises_is_asked_again_with_positive_inputs(reference: ReferenceProcess) -> None:
    evidence = Evidence(reference, Precision.FP32, 1)
    choosy = subject("choosy", Choosy(), "y")
    found = evidence.prepared(choosy, Case(Kind.NORMAL, 1))
    assert found.set_aside is None
    assert found.case.name == "normal|abs"


def test_memory_is_bounded_and_forgotten_cases_come_back_the_same(reference: ReferenceProcess) -> None:
    one = subject("one", nn.Tanh(), "y")
    evidence = Evidence(reference, Precision.FP32, 1, limit_bytes=200_000)
    cases = [Case(Kind.NORMAL, seed) for seed in range(4)]
    first = evidence.prepared(one, cases[0])
    assert evidence.prepared(one, cases[0]) is first
    for case in cases[1:]:
        evidence.prepared(one, case)
    again = evidence.prepared(one, cases[0])
    assert again is not first
    assert torch.equal(again.expected[0].oracle, first.expected[0].oracle)
    assert torch.equal(again.tensors["x"], first.tensors["x"])


def test_an_output_that_ignores_its_input_is_trivial(reference: ReferenceProcess) -> None:
    class Ignoring(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linspace(0, 1, x.numel(), dtype=x.dtype).view_as(x) + x * 0.0

    found = Evidence(reference, Precision.FP32, 1).prepared(subject("ignoring", Ignoring(), "y"), Case(Kind.NORMAL, 1))
    assert found.set_aside is not None
    assert "another input" in found.set_aside
