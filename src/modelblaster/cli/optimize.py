"""`modelblaster optimize`: a problem in, a verified faster implementation out."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Annotated

import typer

from modelblaster.errors import UserError
from modelblaster.records.task import Mode, Precision

if TYPE_CHECKING:
    from modelblaster.task.problem import Problem

DEFAULT_SECONDS = 60.0

Target = Annotated[str, typer.Argument(metavar="FILE|MODULE:ATTRIBUTE", help="The problem.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Override a constant of the problem file; may be repeated."),
]


def optimize(
    target: Target,
    backend: Annotated[
        str | None, typer.Option(help="Where it is to be fast; the first that works here by default.")
    ] = None,
    precision: Annotated[Precision, typer.Option(help="The tier that both sides compute in.")] = Precision.FP32,
    mode: Annotated[Mode, typer.Option(help="Run the reference as in inference or as in training.")] = Mode.EVAL,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.0, help=f"Budget from the start of the command; {DEFAULT_SECONDS:.0f} if no --steps."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=0, help="Candidates to try at most.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, inputs and choices.")] = 0,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of progress.")] = False,
) -> int:
    """Search for a faster implementation of a program and prove that it computes the same.

    Exit code 0 if the run ends with a verdict that passed, a kept reference included; 1 if it failed.
    """
    started = process_start()
    from modelblaster import api
    from modelblaster.model.bounded import bounded
    from modelblaster.model.optimization import GRACE_SECONDS
    from modelblaster.records.events import RunStarted
    from modelblaster.records.task import Budget
    from modelblaster.report.console import shown
    from modelblaster.report.result import as_json as result_as_json
    from modelblaster.search.events import fan_out

    if seconds is not None and not math.isfinite(seconds):
        raise UserError("--seconds takes a number of seconds; leave it out and give --steps for a search without end")
    granted = Budget(DEFAULT_SECONDS if seconds is None and steps is None else seconds, steps)
    options = api.Options(backend, precision, mode, granted, seed)
    if backend is not None:
        api.require_backend(backend)
    left = None if granted.seconds is None else granted.seconds + GRACE_SECONDS - (time.monotonic() - started)
    problem = bounded(left, "importing the problem", lambda: load_problem(target, settings))
    runs: list[str] = []

    def note(event: object) -> None:
        if isinstance(event, RunStarted):
            runs.append(event.run)

    try:
        with shown(as_json=as_json) as sink:
            result = api.optimize_problem(problem, options, sink=fan_out(note, sink), started=started)
    except KeyboardInterrupt:
        for run in runs:
            typer.echo(f"modelblaster: interrupted; `modelblaster runs resume {run}` goes on", err=True)
        raise
    if as_json:
        typer.echo(result_as_json(result))
    return 0 if result.verdict.passed else 1


def process_start() -> float:
    """When this process was started, as `time.monotonic` counts: importing torch takes seconds of the budget, too."""
    import psutil

    return time.monotonic() - max(0.0, time.time() - psutil.Process().create_time())


def load_problem(target: str, settings: list[str] | None) -> Problem:
    """The problem that the command names.

    Raises:
        UserError: it cannot be used.
    """
    from modelblaster.task import problem

    if not target:
        raise UserError("name a problem file or MODULE:ATTRIBUTE")
    return problem.load_problem(target, settings or ())
