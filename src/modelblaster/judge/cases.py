"""The inputs that a candidate has to get right: the shipped ones, and ones that shortcuts do not survive.

Uniform inputs in [0, 1) hide low precision, identities and constants (research/evaluation.md 3.3 and 3.5); zero-mean,
mixed, sparse and position-dependent ones show them. Parameters are drawn anew, because initial values (all ones, all
zeros) make work disappear as well.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modelblaster.judge.subject import Subject


class Kind(StrEnum):
    """How the float inputs of a case are distributed."""

    SHIPPED = "shipped"
    NORMAL = "normal"
    AFFINE = "affine"
    MIXED = "mixed"
    SPARSE = "sparse"
    RAMP = "ramp"
    LARGE = "large"
    SMALL = "small"


@dataclass(frozen=True, slots=True)
class Case:
    """One draw of inputs and parameters, repeatable from its seed.

    `is_absolute`: the absolute values of the float inputs, for operations that want them positive.
    `keeps_parameters`: the parameters as shipped instead of redrawn ones.
    """

    kind: Kind
    seed: int
    label: str = ""
    is_absolute: bool = False
    keeps_parameters: bool = False

    @property
    def name(self) -> str:
        """Its name in verdicts (`normal`, `shipped/2`, `large|abs`)."""
        return (self.label or self.kind.value) + ("|abs" if self.is_absolute else "")

    def absolute(self) -> Case:
        """The same draw with positive inputs."""
        return replace(self, is_absolute=True)

    def other(self) -> Case:
        """The same kind with other inputs, to see whether the output depends on them at all."""
        return replace(self, seed=derived_seed(self.seed, "other"))


def derived_seed(seed: int, *words: object) -> int:
    """A seed that follows from another one and some words: 62 bits, the same everywhere."""
    text = ":".join([str(seed), *map(str, words)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 2


def standard_cases(seed: int) -> tuple[Case, ...]:
    """The cases of a full verification, the most telling ones first.

    The first shipped case has the shipped parameters too: it is the program as its owner runs it.
    """
    kinds = (Kind.AFFINE, Kind.MIXED, Kind.SPARSE, Kind.RAMP, Kind.LARGE, Kind.SMALL)
    return (
        Case(Kind.NORMAL, derived_seed(seed, "normal")),
        Case(Kind.SHIPPED, derived_seed(seed, "shipped", 1), keeps_parameters=True),
        Case(Kind.SHIPPED, derived_seed(seed, "shipped", 2), label="shipped/2"),
        Case(Kind.SHIPPED, derived_seed(seed, "shipped", 3), label="shipped/3"),
        *(Case(kind, derived_seed(seed, kind.value)) for kind in kinds),
    )


def secret_cases(seed: int, kinds: tuple[Kind, ...], count: int) -> tuple[Case, ...]:
    """Cases of a finalist, from a seed that nobody knew while the candidate was written."""
    chosen = [kinds[i % len(kinds)] for i in range(count)]
    return tuple(
        Case(kind, derived_seed(seed, "secret", i), label=f"secret/{i + 1}/{kind.value}")
        for i, kind in enumerate(chosen)
    )


class Drawer:
    """Draws the tensors of cases for one subject; looks once at the shipped values to see what each buffer is."""

    def __init__(self, subject: Subject, *, first_seed: int, frozen: frozenset[str] = frozenset()) -> None:
        self._subject = subject
        shipped = dict(subject.shipped(first_seed))
        self._first = (first_seed, shipped if _nbytes(shipped) < _KEEP_BYTES else None)
        self._keeps = {spec.name for spec in subject.inputs if _keeps_generator(shipped[spec.name])}
        never = subject.frozen | frozen
        self._redraw = {spec.name: _redraw(spec.name, shipped[spec.name], never) for spec in subject.state}
        self._fixed = {name: shipped[name] for name, rule in self._redraw.items() if rule is None}

    def draw(self, case: Case) -> dict[str, torch.Tensor]:
        """Every input, parameter and mutated buffer of a case."""
        generator = torch.Generator().manual_seed(case.seed)
        shipped = self._shipped(case) if self._needs_shipped(case) else {}
        tensors: dict[str, torch.Tensor] = {}
        for spec in self._subject.inputs:
            if case.kind is Kind.SHIPPED or spec.name in self._keeps:
                value = shipped[spec.name]
            else:
                value = _DRAWS[case.kind](spec.shape, generator).to(getattr(torch, spec.dtype.value))
            floats = value.is_floating_point() and spec.name not in self._keeps
            tensors[spec.name] = value.abs() if case.is_absolute and floats else value
        for name, rule in self._redraw.items():
            if case.keeps_parameters:
                tensors[name] = shipped[name]
            else:
                tensors[name] = self._fixed[name] if rule is None else rule(generator)
        return tensors

    def _needs_shipped(self, case: Case) -> bool:
        return case.kind is Kind.SHIPPED or bool(self._keeps) or case.keeps_parameters

    def _shipped(self, case: Case) -> Mapping[str, torch.Tensor]:
        seed, values = self._first
        return values if values is not None and seed == case.seed else self._subject.shipped(case.seed)


# Shipped values above this are made again from their seed instead of being kept.
_KEEP_BYTES = 256 << 20
_LABEL_LIMIT = 4096.0


def _nbytes(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def _keeps_generator(value: torch.Tensor) -> bool:
    """Whether an input carries meaning that a random float would destroy: labels, indices, masks, probabilities."""
    if not value.is_floating_point():
        return True
    if value.numel() < 2 or not bool(torch.isfinite(value).all()):
        return not bool(torch.isfinite(value).all())
    return _is_label_like(value) or _is_probability_like(value)


def _is_label_like(value: torch.Tensor) -> bool:
    """Small whole numbers in a float tensor, more than one of them: targets of losses, masks."""
    low, high = (float(bound) for bound in torch.aminmax(value))
    if low == high or max(-low, high) > _LABEL_LIMIT:
        return False
    return bool((value == value.round()).all())


def _is_probability_like(value: torch.Tensor) -> bool:
    """Nonnegative, and summing to one along an axis."""
    if float(value.amin()) < 0.0:
        return False
    for axis, size in enumerate(value.shape):
        if size > 1 and bool(((value.sum(axis, dtype=torch.float32) - 1.0).abs() < 2e-3).all()):
            return True
    return False


def _redraw(name: str, value: torch.Tensor, never: frozenset[str]) -> Callable[[torch.Generator], torch.Tensor] | None:
    """How a parameter is drawn anew; None where its shipped value is kept."""
    if name in never or not value.is_floating_point() or value.numel() == 0:
        return None
    if not bool(torch.isfinite(value).all()) or _is_label_like(value):
        return None
    shape, dtype = value.shape, value.dtype
    if "running_var" in name:
        return lambda generator: (0.5 + 1.5 * torch.rand(shape, generator=generator)).to(dtype)
    deviation, mean = (float(part) for part in torch.std_mean(value.float(), correction=0))
    low, high = (float(bound) for bound in torch.aminmax(value))
    if low == high:
        deviation, mean = 0.2, low

    def draw(generator: torch.Generator) -> torch.Tensor:
        drawn = torch.randn(shape, generator=generator).mul_(deviation).add_(mean)
        # Values that are never negative but differ may be variances under another name.
        return (drawn.abs_() if low >= 0.0 and low != high else drawn).to(dtype)

    return draw


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator)


def _mixed(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Magnitudes from 1e-3 to 1e3, evenly in the logarithm, of either sign."""
    drawn = torch.rand(shape, generator=generator).mul_(2.0).sub_(1.0)
    # The one uniform number gives the sign and, by its size, the magnitude.
    magnitude = drawn.abs().mul_(6.0 * math.log(10.0)).sub_(3.0 * math.log(10.0)).exp_()
    return magnitude.mul_(torch.where(drawn < 0.0, -1.0, 1.0))


def _sparse(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """One element in ten is not zero."""
    value = torch.randn(shape, generator=generator)
    return value.mul_(torch.rand(shape, generator=generator) < 0.1)


def _ramp(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Values that tell their position, with a little noise: a wrong row or a shifted column shows.

    They are positive, because sums of a ramp through zero cancel, and low tiers would fail for no fault of theirs.
    """
    noise = torch.randn(shape, generator=generator)
    return torch.linspace(0.5, 2.5, noise.numel()).reshape(shape).add_(noise, alpha=0.05)


_DRAWS: dict[Kind, Callable[[tuple[int, ...], torch.Generator], torch.Tensor]] = {
    Kind.NORMAL: _normal,
    Kind.AFFINE: lambda shape, generator: _normal(shape, generator).mul_(10.0).add_(5.0),
    Kind.MIXED: _mixed,
    Kind.SPARSE: _sparse,
    Kind.RAMP: _ramp,
    Kind.LARGE: lambda shape, generator: _normal(shape, generator).mul_(2.0**20),
    Kind.SMALL: lambda shape, generator: _normal(shape, generator).mul_(2.0**-20),
}
