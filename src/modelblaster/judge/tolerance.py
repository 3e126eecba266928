"""What counts as right: DESIGN section 9's allowances, derived from the reference's own error in its tier."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from modelblaster.judge.errors import QUANTILE_ELEMENTS, Errors, Scale, measure, relative, scale_of
from modelblaster.records.task import Precision
from modelblaster.records.tensor import DType
from modelblaster.records.verdict import Check

if TYPE_CHECKING:
    from collections.abc import Mapping

# RMS error that honest arithmetic of a tier may have whatever eager has. Measured on matmuls of 256 to 2048 terms: fp32
# 3e-7, three bf16 products 4e-6, tf32 and fp16 3e-4, truncated tf32 8e-4, bf16 2.3e-3.
FLOORS = {Precision.FP32: 1e-5, Precision.TF32: 1.2e-3, Precision.FP16: 1.2e-3, Precision.BF16: 6e-3}
_TYPE_FLOORS = {DType.FLOAT16: FLOORS[Precision.FP16], DType.BFLOAT16: FLOORS[Precision.BF16]}

EAGER_FACTOR = 4.0
QUANTILE_FACTOR = 8.0
MAXIMUM_FLOORS = 12.0
# |error| / |output| of two independent normals has its 90th percentile at tan(0.45 pi) times its median: arithmetic
# whose RMS error is just at the floor reaches this many floors there (three bf16 products: 2.8e-5, measured).
P90_FLOORS = math.tan(0.45 * math.pi)
# The error has to be under this share of the best trivial answer's. Arithmetic that the tier allows has to be under ten
# times as much only: a product of positive uniform matrices is 95 % constant, and truncated tf32 is honest there too.
TRIVIAL_SHARE = 0.01
# A reference whose own error is above this many floors cannot tell right from wrong.
UNSTABLE_FLOORS = 100.0
# So many of the runs may be unstable before the whole case is.
UNSTABLE_RUNS = 0.01

_QUANTILES = (0.5, 0.9)
_SAMPLED_ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class Allowance:
    """Everything needed to judge one float output of one case, without the oracle itself.

    `run_quantiles` are thresholds on relative errors; in no run may more than half (a tenth) of the elements be above
    them. `unstable` marks runs in which eager itself is far off. `trivial` is None where that rule does not apply.
    """

    scale: Scale
    rms: float
    maximum: float
    quantiles: tuple[float, float]
    run_rms: torch.Tensor
    run_max: torch.Tensor
    run_quantiles: tuple[float, float]
    unstable: torch.Tensor
    trivial: float | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an output of a case proves nothing.

    A zero oracle (`is_zero`) or one that a trivial answer reaches (`fallback` is then the allowance without that rule)
    can still be checked beside other outputs; with any other reason the case has to be set aside.
    """

    reason: str
    is_zero: bool = False
    fallback: Allowance | None = None

    @property
    def is_weak(self) -> bool:
        """Whether the output can still be checked, though it proves nothing alone."""
        return self.is_zero or self.fallback is not None


def floor_of(precision: Precision, dtype: DType) -> float:
    """The floor of a tier for an output of this type: rounding to a narrow output type is nobody's fault."""
    return max(FLOORS[precision], _TYPE_FLOORS.get(dtype, 0.0))


def allowance(
    eager: torch.Tensor, oracle: torch.Tensor, floor: float, trivial: Mapping[str, torch.Tensor]
) -> Allowance | Refusal:
    """Judge the reference as if it were a candidate, and derive what candidates are allowed.

    `trivial` are answers that need no work (an input, the output for another input) by name; zeros and the best
    constant are added here.
    """
    if not bool(torch.isfinite(oracle).all()) or not bool(torch.isfinite(eager).all()):
        return Refusal("the reference is not finite")
    scale = scale_of(oracle)
    if scale.rms < 1e-150:
        return Refusal("the oracle is zero", is_zero=True)
    start = (floor / QUANTILE_FACTOR, floor * P90_FLOORS / QUANTILE_FACTOR)
    errors = measure(eager, oracle, scale, start)
    limit = UNSTABLE_FLOORS * floor
    unstable = errors.run_rms > limit
    if errors.rms > limit or float(unstable.double().mean()) > UNSTABLE_RUNS:
        return Refusal(f"eager's own error is {errors.rms:.1e}, more than {UNSTABLE_FLOORS:.0f} floors")
    best, distance = _best_trivial(oracle, scale, trivial)
    bound = max(TRIVIAL_SHARE * distance, min(floor, 10.0 * TRIVIAL_SHARE * distance))
    quantiles = _quantile_allowances(errors, floor)
    found = Allowance(
        scale=scale,
        rms=max(EAGER_FACTOR * errors.rms, floor),
        maximum=max(EAGER_FACTOR * errors.maximum, MAXIMUM_FLOORS * floor),
        quantiles=quantiles,
        run_rms=_run_allowance(errors.run_rms, unstable, floor),
        run_max=_run_allowance(errors.run_max, unstable, MAXIMUM_FLOORS * floor),
        run_quantiles=_run_quantiles(eager, oracle, scale, errors, quantiles, limit),
        unstable=unstable,
        trivial=bound,
    )
    if errors.rms >= bound:
        reason = f"the trivial answer '{best}' is nearly as right as eager"
        return Refusal(reason, fallback=replace(found, trivial=None))
    return found


def checks(value: torch.Tensor, oracle: torch.Tensor, allowed: Allowance) -> tuple[bool, tuple[Check, ...]]:
    """Whether a candidate's output is finite, and its errors beside what is allowed."""
    shared = allowed.quantiles == allowed.run_quantiles
    thresholds = allowed.quantiles if shared else (*allowed.quantiles, *allowed.run_quantiles)
    errors = measure(value, oracle, allowed.scale, thresholds)
    found = [Check("rms", errors.rms, allowed.rms), Check("max", errors.maximum, allowed.maximum)]
    total = float(allowed.scale.counted.sum())
    for name, share, threshold, over in zip(
        ("median", "p90"), _QUANTILES, allowed.quantiles, errors.over[:2], strict=True
    ):
        found.append(_quantile_check(name, errors.quantile(share), threshold, float(over.sum()), (1 - share) * total))
    if allowed.trivial is not None:
        found.append(Check("trivial", errors.rms, allowed.trivial))
    if allowed.scale.runs > 1:
        found += _run_checks(errors, allowed, errors.over[:2] if shared else errors.over[2:])
    return errors.is_finite, tuple(found)


def zero_check(value: torch.Tensor, eager: torch.Tensor) -> tuple[bool, tuple[Check, ...]]:
    """The check of an output whose oracle is all zeros, beside other outputs that are not."""
    worst = float(value.double().abs().max()) if value.numel() else 0.0
    limit = max(EAGER_FACTOR * float(eager.double().abs().max()), 1e-30) if eager.numel() else 0.0
    return math.isfinite(worst), (Check("zero", worst, limit),)


def exact_check(value: torch.Tensor, oracle: torch.Tensor, eager: torch.Tensor) -> tuple[bool, tuple[Check, ...]]:
    """The check of integers and booleans: none may differ.

    Where rounding makes eager decide otherwise than the oracle (a comparison of sums), either answer is right.
    """
    wrong = int(((value != oracle) & (value != eager)).sum())
    return True, (Check("different integers", float(wrong), 0.0),)


def _quantile_check(name: str, estimate: float, threshold: float, over: float, may_exceed: float) -> Check:
    """The decision is by exact count; the error shown is the sample's estimate, kept on the side of the decision."""
    if over <= may_exceed:
        return Check(name, min(estimate, threshold), threshold)
    return Check(name, max(estimate, math.nextafter(threshold, math.inf)), threshold)


def _run_checks(errors: Errors, allowed: Allowance, over: tuple[torch.Tensor, ...]) -> list[Check]:
    found = []
    for name, error, limit in (
        ("run rms", errors.run_rms, allowed.run_rms),
        ("run max", errors.run_max, allowed.run_max),
    ):
        worst = int(torch.nan_to_num(error / limit, nan=math.inf, posinf=math.inf).argmax())
        found.append(Check(name, float(error[worst]), float(limit[worst])))
    counted = allowed.scale.counted
    usable = (counted >= QUANTILE_ELEMENTS) & ~allowed.unstable
    for name, share, count in zip(("run over median", "run over p90"), _QUANTILES, over, strict=True):
        shares = torch.where(usable, count / counted.clamp(min=1.0), 0.0)
        # A few elements of a short run are luck, not a habit.
        slack = 2.0 / counted.clamp(min=1.0).sqrt()
        worst = int((shares - slack).argmax())
        found.append(Check(name, float(shares[worst]), 1.0 - share + float(slack[worst])))
    return found


def _run_allowance(errors: torch.Tensor, unstable: torch.Tensor, floor: float) -> torch.Tensor:
    """Per run: four times the worst that eager shows in any stable run; in unstable ones, the worst of all.

    A run's own error of eager is not used alone: where one rounding (of a row's sum) decides it, eager may be lucky.
    """
    stable = float(errors[~unstable].max()) if bool((~unstable).any()) else 0.0
    usual = max(EAGER_FACTOR * stable, floor)
    worst = max(EAGER_FACTOR * float(errors.max()), floor)
    return torch.where(unstable, worst, usual)


def _quantile_allowances(errors: Errors, floor: float) -> tuple[float, float]:
    median, p90 = (errors.quantile(share) for share in _QUANTILES)
    return max(QUANTILE_FACTOR * median, floor), max(QUANTILE_FACTOR * p90, P90_FLOORS * floor)


def _run_quantiles(
    eager: torch.Tensor, oracle: torch.Tensor, scale: Scale, errors: Errors, whole: tuple[float, float], limit: float
) -> tuple[float, float]:
    """Thresholds for runs: eager's worst run counts, as long as that run is not a mess (`limit`)."""
    usable = scale.counted >= QUANTILE_ELEMENTS
    allowed = []
    for share, base, over in zip(_QUANTILES, whole, errors.over, strict=True):
        busy = torch.nonzero(usable & (over > (1.0 - share) * scale.counted)).flatten()
        if scale.runs == 1 or busy.numel() == 0:
            allowed.append(base)
            continue
        keep = max(1, _SAMPLED_ELEMENTS // scale.length)
        rows = busy[:: max(1, busy.numel() // keep)]
        figures = torch.nanquantile(relative(eager, oracle, scale, rows), share, dim=1)
        clean = figures[figures <= limit]
        allowed.append(max(base, QUANTILE_FACTOR * float(clean.max())) if clean.numel() else base)
    return allowed[0], allowed[1]


def _best_trivial(oracle: torch.Tensor, scale: Scale, trivial: Mapping[str, torch.Tensor]) -> tuple[str, float]:
    """The answer that needs no work and is nearest to the oracle, with its RMS error as a share of the oracle's RMS."""
    found = {"zeros": 1.0}
    if oracle.numel() > 1:
        found["a constant"] = float(oracle.std(correction=0)) / scale.rms
    for name, answer in trivial.items():
        if answer.shape == oracle.shape and answer.is_floating_point():
            error = measure(answer, oracle, scale).rms
            found[name] = error if math.isfinite(error) else math.inf
    best = min(found, key=lambda name: found[name])
    return best, found[best]
