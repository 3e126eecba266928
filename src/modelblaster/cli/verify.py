"""`modelblaster verify`: the judge alone, on an artifact and the problem that it claims to solve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modelblaster.cli.optimize import Settings, Target, load_problem

if TYPE_CHECKING:
    from modelblaster.records.evidence import Evidence
    from modelblaster.runs.artifact import Artifact

SCHEMA = "modelblaster.verify/1"


def verify(
    target: Target,
    candidate: Annotated[Path, typer.Argument(metavar="ARTIFACT", help="An artifact's folder, such as RUN/best.")],
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with all evidence.")] = False,
) -> int:
    """Judge an artifact against a problem, without a search: every case, fresh secret seeds, the time beside eager.

    Constants that the artifact was made with hold unless --set is given. Exit code 0 if it passes, 1 if it does not.
    """
    from modelblaster import api
    from modelblaster.runs.artifact import read

    given = settings if settings is not None else _settings_of(read(candidate))
    artifact, evidence = api.verify(load_problem(target, given), candidate)
    if as_json:
        typer.echo(json.dumps(as_data(artifact, evidence), indent=2))
    else:
        _show(artifact, evidence)
    return 0 if evidence.verdict.passed else 1


def as_data(artifact: Artifact, evidence: Evidence) -> dict[str, object]:
    """The object that `--json` prints: verdict, every case with its seed and checks, and the timing."""
    from modelblaster.records.codec import to_data

    comparison = evidence.comparison
    return {
        "schema": SCHEMA,
        "task": artifact.manifest.task.problem.location,
        "artifact": str(artifact.path),
        "verdict": str(evidence.verdict.cause),
        "reason": evidence.verdict.detail,
        "over_eager": comparison.speedup if comparison else None,
        "over_eager_ci95": list(comparison.ci95) if comparison else None,
        "evidence": to_data(evidence),
    }


def _settings_of(artifact: Artifact) -> list[str]:
    return [f"{name}={value}" for name, value in artifact.manifest.task.problem.overrides]


def _show(artifact: Artifact, evidence: Evidence) -> None:
    from rich.console import Console
    from rich.table import Table

    from modelblaster.report.table import add_row

    table = Table(box=None, pad_edge=False, header_style="dim")
    for header in ("case", "verdict", "worst error of its allowance", ""):
        table.add_column(header)
    for case in evidence.verdict.cases:
        worst = max((check.error / check.allowed for check in case.checks if check.allowed), default=None)
        share = "" if worst is None else f"{worst:.1%}"
        cause = "set aside" if case.set_aside else str(case.cause)
        add_row(table, case.case, cause, share, case.set_aside or case.detail)
    console = Console()
    console.print(table)
    reason = f": {evidence.verdict.detail}" if evidence.verdict.detail else ""
    console.print(f"verdict: {evidence.verdict.cause}{reason}", highlight=False)
    if evidence.comparison is not None:
        low, high = evidence.comparison.ci95
        console.print(f"over eager: {evidence.comparison.speedup:.2f} [{low:.2f}, {high:.2f}]", highlight=False)
    console.print(f"artifact: {artifact.path}", highlight=False)
