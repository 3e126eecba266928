from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from modelblaster import cli
from modelblaster.records.events import RunFinished, RunStarted, SlotMeasured, StepFinished
from modelblaster.records.result import UNCHANGED, Best, BestKind, CandidateCounts, Result
from modelblaster.records.task import Budget, Mode, Precision, ProblemSource, SourceKind, Task
from modelblaster.records.timing import Timing
from modelblaster.records.verdict import Cause, Stage, Verdict
from modelblaster.runs.run import Run, create
from modelblaster.testing.stores import outcome

if TYPE_CHECKING:
    from pathlib import Path

TASK = Task(ProblemSource(SourceKind.FILE, "one.py"), "fake", Precision.FP32, Mode.EVAL, 7, Budget(60.0))
TIMING = Timing(1000.0, (900.0, 1100.0), (1000.0,), "screen")
RESULT = Result(
    run="r",
    task=TASK,
    size="default",
    lint=(),
    verdict=Verdict(Cause.PASSED, Stage.FINAL),
    eager=TIMING,
    compiled=None,
    best=Best(BestKind.REFERENCE, 1000.0, (900.0, 1100.0)),
    speedup=UNCHANGED,
    roofline_fraction=None,
    candidates=CandidateCounts(),
    steps=3,
    seconds=9.0,
    artifact=None,
    isolation="none",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MODELBLASTER_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def started(home: Path, day: int) -> Run:
    run = create(home, TASK, now=datetime(2026, 3, day))
    with run.open_journal(lambda: 4.0) as journal:
        journal.append(RunStarted(run.name, TASK, "device", "none"))
        journal.append(SlotMeasured("5107", TIMING))
        journal.append(StepFinished(outcome(1)))
    return run


def finished(home: Path, day: int, result: Result = RESULT) -> Run:
    run = started(home, day)
    with run.open_journal(lambda: 4.0) as journal:
        journal.append(RunFinished(dataclasses.replace(result, run=run.name)))
    return run


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict:
    assert cli.main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_home_without_runs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", "list"]) == 0
    assert "modelblaster optimize" in capsys.readouterr().out
    assert answer(capsys, "runs", "list") == {"schema": "modelblaster.runs/1", "runs": []}


def test_the_list(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = finished(home, 1), started(home, 2)
    damaged = started(home, 3)
    (damaged.path / "journal.jsonl").write_text("{}\n{}\n{}\n")
    rows = answer(capsys, "runs", "list")["runs"]
    assert [row["run"] for row in rows] == [first.name, second.name, damaged.name]
    assert [row["finished"] for row in rows] == [True, False, False]
    assert [row["over_eager"] for row in rows] == [1.0, None, None]
    assert [bool(row["problem"]) for row in rows] == [False, False, True]
    assert cli.main(["runs", "list"]) == 0
    shown = capsys.readouterr().out
    for words in (first.name, "passed", "not finished", "damaged"):
        assert words in shown


def test_an_unfinished_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = started(home, 2)
    data = answer(capsys, "runs", "show", run.name)
    assert (data["schema"], data["steps"], data["seconds"]) == ("modelblaster.run/1", 1, 4.0)
    assert data["result"] is None
    assert data["candidates"]["measured"] == 1
    (slot,) = data["slots"]
    assert (slot["slot"], slot["reference_ns"], slot["best_ns"], slot["speedup"]) == ("5107", 1000.0, 100.0, 10.0)
    assert cli.main(["runs", "show", run.name]) == 0
    shown = capsys.readouterr().out
    assert f"modelblaster runs resume {run.name}" in shown
    assert "10.00x" in shown


def test_a_finished_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = finished(home, 1)
    data = answer(capsys, "runs", "show", "2026")
    assert data["result"]["schema"] == "modelblaster.result/1"
    assert data["run"] == run.name
    assert cli.main(["runs", "show", str(run.path)]) == 0
    assert "the reference is kept" in capsys.readouterr().out


def test_resuming_hands_the_run_to_the_library(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(home, 2)
    asked: list[Path] = []

    def resume(path: Path, *, sink) -> Result:
        asked.append(path)
        sink(RunFinished(RESULT))
        return RESULT

    monkeypatch.setattr("modelblaster.api.resume", resume)
    assert answer(capsys, "runs", "resume", run.name)["verdict"] == "passed"
    assert cli.main(["runs", "resume", run.name]) == 0
    assert capsys.readouterr().out.count("the reference is kept") == 1
    assert asked == [run.path, run.path]


def test_resuming_a_finished_run_shows_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = dataclasses.replace(RESULT, verdict=Verdict(Cause.UNJUDGEABLE, Stage.FULL, "two cases"))
    run, bad = finished(home, 1), finished(home, 2, refused)
    before = (run.path / "journal.jsonl").read_bytes()
    assert cli.main(["runs", "resume", run.name]) == 0
    assert capsys.readouterr().out.count("the reference is kept") == 1
    assert answer(capsys, "runs", "resume", bad.name, code=1)["verdict"] == "unjudgeable"
    assert (run.path / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize("command", ["show", "resume"])
def test_an_unknown_run(home: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    started(home, 1)
    assert cli.main(["runs", command, "nothing"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "modelblaster runs list" in captured.err
    assert answer(capsys, "runs", command, "nothing", code=2)["error"]["kind"] == "RunError"


def test_a_damaged_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = started(home, 1)
    (run.path / "journal.jsonl").write_text("{}\n{}\n{}\n")
    assert cli.main(["runs", "show", run.name]) == 2
    assert "damaged" in capsys.readouterr().err
    assert cli.main(["runs", "resume", run.name]) == 2


def test_help_of_the_group_imports_nothing_heavy() -> None:
    code = (
        "import sys; from modelblaster import cli; cli.main(['runs', '--help'])\n"
        "cli.main(['runs', 'resume', '--help'])\n"
        "print('heavy:', sorted(set(sys.modules) & {'torch', 'numpy', 'sqlalchemy', 'rich.live'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "heavy: []"
