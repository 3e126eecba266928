"""The object that `--json` prints (docs/schema.md). Fields are only ever added under the same schema."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelblaster.records.result import Result
    from modelblaster.records.timing import Timing

SCHEMA = "modelblaster.result/1"


def as_data(result: Result) -> dict[str, object]:
    """A result as JSON has it: numbers that are not finite become null."""
    best, speedup, counts = result.best, result.speedup, result.candidates
    return {
        "schema": SCHEMA,
        "run": result.run,
        "task": result.task.problem.location,
        "backend": result.task.backend,
        "precision": str(result.task.precision),
        "mode": str(result.task.mode),
        "size": result.size,
        "lint": list(result.lint),
        "verdict": str(result.verdict.cause),
        "reason": result.verdict.detail,
        "baselines": {"eager": _timing(result.eager), "compile": _timing(result.compiled)},
        "best": {"kind": str(best.kind), "median_ns": _finite(best.median_ns), "ci95_ns": _pair(best.ci95_ns)},
        "speedup": {
            "over_eager": _finite(speedup.over_eager),
            "over_eager_ci95": _pair(speedup.over_eager_ci95),
            "over_strongest": _finite(speedup.over_strongest),
            "algebra": _finite(speedup.algebra),
            "kernel": _finite(speedup.kernel),
        },
        "roofline_fraction": None if result.roofline_fraction is None else _finite(result.roofline_fraction),
        "candidates": {
            "built": counts.built,
            "build_failed": counts.build_failed,
            "wrong": counts.wrong,
            "crashed": counts.crashed,
            "measured": counts.measured,
        },
        "steps": result.steps,
        "seconds": _finite(result.seconds),
        "artifact": result.artifact,
    }


def as_json(result: Result) -> str:
    """The same as text."""
    return json.dumps(as_data(result), indent=2, allow_nan=False)


def _timing(timing: Timing | None) -> dict[str, object] | None:
    if timing is None:
        return None
    return {"median_ns": _finite(timing.median_ns), "ci95_ns": _pair(timing.ci95_ns)}


def _pair(values: tuple[float, float]) -> list[float | None]:
    return [_finite(value) for value in values]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
