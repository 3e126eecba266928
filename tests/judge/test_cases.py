"""What is drawn anew and what is kept, and that a seed repeats it."""

from __future__ import annotations

import pytest
import torch
from judge_fakes import spec

from modelblaster.judge.cases import Case, Drawer, Kind, derived_seed, secret_cases, standard_cases
from modelblaster.judge.subject import Subject
from modelblaster.records.tensor import DType

INPUTS = {
    "x": lambda g: torch.rand(32, 40, generator=g),
    "labels": lambda g: torch.randint(10, (32,), generator=g),
    "mask": lambda g: torch.rand(32, 40, generator=g) < 0.5,
    "signs": lambda g: torch.randint(2, (32, 40), generator=g).float() * 2 - 1,
    "probabilities": lambda g: torch.softmax(torch.randn(32, 40, generator=g), -1),
    "columns": lambda g: torch.softmax(torch.randn(32, 40, generator=g), 0),
}
PARAMETERS = {
    "weight": torch.randn(64, 64, generator=torch.Generator().manual_seed(0)) * 0.05,
    "ones": torch.ones(4096),
    "zeros": torch.zeros(4096),
    "bn.running_var": torch.ones(4096),
    "count": torch.tensor(3),
    "causal": torch.tril(torch.ones(16, 16)),
    "bias_mask": torch.full((8,), -torch.inf),
    "table": torch.rand(64) + 0.5,
}


def subject(*, frozen: frozenset[str] = frozenset()) -> Subject:
    def shipped(seed: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return {name: make(generator) for name, make in INPUTS.items()} | PARAMETERS

    def specs(tensors: dict[str, torch.Tensor]) -> tuple:  # type: ignore[type-arg]
        return tuple(
            spec(name, tuple(value.shape), DType(str(value.dtype).removeprefix("torch.")))
            for name, value in tensors.items()
        )

    drawn = {name: shipped(0)[name] for name in INPUTS}
    return Subject("s", specs(drawn), specs(PARAMETERS), (), shipped, frozen=frozen)


def drawn(kind: Kind, seed: int = 3, **more: bool) -> dict[str, torch.Tensor]:
    return Drawer(subject(), first_seed=1).draw(Case(kind, seed, **more))


@pytest.mark.parametrize("kind", list(Kind))
def test_a_case_repeats_from_its_seed(kind: Kind) -> None:
    first, second, other = drawn(kind), drawn(kind), drawn(kind, seed=4)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["x"], other["x"])
    assert all(first[name].dtype == made(torch.Generator()).dtype for name, made in INPUTS.items())


def test_inputs_that_carry_meaning_keep_their_generator() -> None:
    values = drawn(Kind.LARGE)
    shipped = subject().shipped(3)
    for name in ("labels", "mask", "signs", "probabilities", "columns"):
        assert torch.equal(values[name], shipped[name]), name
    assert float(values["x"].abs().max()) > 2**19


def test_distributions_are_what_they_are_called() -> None:
    affine, mixed, sparse, ramp = (drawn(kind)["x"] for kind in (Kind.AFFINE, Kind.MIXED, Kind.SPARSE, Kind.RAMP))
    assert 4 < float(affine.mean()) < 6
    assert 9 < float(affine.std()) < 11
    assert float(mixed.abs().min()) < 1e-2
    assert float(mixed.abs().max()) > 1e2
    assert abs(float((mixed > 0).double().mean()) - 0.5) < 0.1
    assert 0.02 < float((sparse != 0).double().mean()) < 0.2
    assert float(ramp[0].mean()) < float(ramp[16].mean()) < float(ramp[31].mean())
    assert float(drawn(Kind.SMALL)["x"].abs().max()) < 1e-4


def test_absolute_cases_are_positive_and_say_so() -> None:
    case = Case(Kind.NORMAL, 3).absolute()
    assert case.name == "normal|abs"
    values = Drawer(subject(), first_seed=1).draw(case)
    assert float(values["x"].min()) >= 0
    assert float(values["signs"].min()) == -1


def test_parameters_are_redrawn_by_what_they_are() -> None:
    values = drawn(Kind.NORMAL)
    assert 0.04 < float(values["weight"].std()) < 0.06
    assert not torch.equal(values["weight"], PARAMETERS["weight"])
    assert 0.18 < float(values["ones"].std()) < 0.22
    assert 0.98 < float(values["ones"].mean()) < 1.02
    assert 0.18 < float(values["zeros"].std()) < 0.22
    assert 0.5 <= float(values["bn.running_var"].min()) < 0.6
    assert 1.9 < float(values["bn.running_var"].max()) <= 2.0
    assert float(values["table"].min()) >= 0
    for name in ("count", "causal", "bias_mask"):
        assert torch.equal(values[name], PARAMETERS[name]), name


def test_shipped_parameters_and_frozen_ones_are_kept() -> None:
    values = drawn(Kind.SHIPPED, keeps_parameters=True)
    assert all(torch.equal(values[name], value) for name, value in PARAMETERS.items())
    frozen = Drawer(subject(frozen=frozenset({"weight"})), first_seed=1).draw(Case(Kind.NORMAL, 3))
    assert torch.equal(frozen["weight"], PARAMETERS["weight"])


def test_names_and_seeds_of_cases_are_distinct() -> None:
    cases = (*standard_cases(1), *secret_cases(2, (Kind.NORMAL, Kind.SHIPPED), 25))
    assert len({case.name for case in cases}) == len(cases)
    assert len({case.seed for case in cases}) == len(cases)
    assert derived_seed(1, "a") == derived_seed(1, "a") != derived_seed(1, "b")
