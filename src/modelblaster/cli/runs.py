"""`modelblaster runs list|show|resume`: what was run, what became of it, and going on where one was interrupted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from modelblaster.runs.run import Run, Summary
    from modelblaster.runs.state import RunState

LIST_SCHEMA = "modelblaster.runs/1"
RUN_SCHEMA = "modelblaster.run/1"

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Name = Annotated[str, typer.Argument(metavar="RUN", help="A run's name, its beginning, or its folder.")]

runs = typer.Typer(no_args_is_help=True)


@runs.command("list")
def list_runs(as_json: AsJson = False) -> int:
    """List all runs, oldest first."""
    from modelblaster.runs.home import home
    from modelblaster.runs.run import summaries

    found = summaries(home())
    if as_json:
        typer.echo(json.dumps({"schema": LIST_SCHEMA, "runs": [summary_data(one) for one in found]}, indent=2))
    elif not found:
        typer.echo(f"no runs in {home()} yet; `modelblaster optimize FILE` makes one")
    else:
        _print(_list_table(found))
    return 0


@runs.command("show")
def show_run(name: Name, as_json: AsJson = False) -> int:
    """Show one run: its result if it is finished, and how far it has come if not."""
    from modelblaster.runs.run import summary

    run = _find(name)
    task, state, line = run.task(), run.state(), summary(run)
    if as_json:
        data = {"schema": RUN_SCHEMA, **summary_data(line), "precision": str(task.precision), **state_data(state)}
        typer.echo(json.dumps(data, indent=2))
    elif state.result is not None:
        from modelblaster.report.table import final_table

        _print(final_table(state.result))
    else:
        _print(_list_table((line,)))
        _print(_slots_table(state))
        typer.echo(f"not finished; `modelblaster runs resume {run.name}` goes on")
    return 0


@runs.command("resume")
def resume_run(name: Name, as_json: AsJson = False) -> int:
    """Go on with a run that was interrupted; a finished one is shown."""
    run = _find(name)
    run.task()
    from modelblaster import api
    from modelblaster.report.console import shown
    from modelblaster.report.result import as_json as result_as_json
    from modelblaster.report.table import final_table

    was_finished = run.state().is_finished
    with shown(as_json=as_json, before=[entry.event for entry in run.entries()]) as sink:
        result = api.resume(run.path, sink=sink)
    if as_json:
        typer.echo(result_as_json(result))
    elif was_finished:
        _print(final_table(result))
    return 0 if result.verdict.passed else 1


def summary_data(line: Summary) -> dict[str, object]:
    """One run as `--json` has it."""
    return {
        "run": line.name,
        "path": str(line.path),
        "started": line.started.isoformat(timespec="seconds"),
        "task": line.task,
        "backend": line.backend,
        "finished": line.is_finished,
        "steps": line.steps,
        "seconds": round(line.seconds, 3),
        "over_eager": line.speedup,
        "verdict": line.verdict,
        "problem": line.problem,
    }


def state_data(state: RunState) -> dict[str, object]:
    """What a run has reached, as `--json` has it: `candidates`, `slots` and the `result` of a finished one."""
    from modelblaster.records.codec import to_data
    from modelblaster.report.result import as_data

    slots = [
        {
            "slot": key,
            "visits": slot.visits,
            "reference_ns": slot.reference.median_ns if slot.reference else None,
            "best_ns": slot.best.timing.median_ns if slot.best else None,
            "speedup": slot.speedup,
            "candidate": slot.best.candidate if slot.best else None,
            "closed": slot.closed,
        }
        for key, slot in state.slots.items()
    ]
    result = as_data(state.result) if state.result is not None else None
    return {"candidates": to_data(state.counts), "slots": slots, "result": result}


def _find(name: str) -> Run:
    from modelblaster.runs.home import home
    from modelblaster.runs.run import find

    return find(home(), name)


def _print(table: RenderableType) -> None:
    from rich.console import Console

    Console().print(table)


def _list_table(found: tuple[Summary, ...]) -> RenderableType:
    from rich.table import Table

    from modelblaster.report.table import add_row
    from modelblaster.report.words import seconds, times

    table = Table(box=None, pad_edge=False, header_style="dim")
    for header in ("run", "task", "backend", "state", "steps", "time", "gain"):
        table.add_column(header, no_wrap=header == "run")
    for line in found:
        state = "damaged" if line.problem else (line.verdict or "") if line.is_finished else "not finished"
        speedup = times(line.speedup) if line.speedup is not None else ""
        task = line.task.rpartition("/")[2]
        add_row(table, line.name, task, line.backend, state, str(line.steps), seconds(line.seconds), speedup)
    return table


def _slots_table(state: RunState) -> RenderableType:
    from rich.table import Table

    from modelblaster.report.table import add_row
    from modelblaster.report.words import duration, times

    table = Table(box=None, pad_edge=False, header_style="dim")
    for header in ("slot", "steps", "reference", "best", "gain", "closed"):
        table.add_column(header, no_wrap=header == "slot")
    for key, slot in state.slots.items():
        reference = duration(slot.reference.median_ns) if slot.reference else ""
        best = duration(slot.best.timing.median_ns) if slot.best else ""
        speedup = times(slot.speedup) if slot.best else ""
        add_row(table, key, str(slot.visits), reference, best, speedup, slot.closed or "")
    return table
