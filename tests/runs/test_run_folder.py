from __future__ import annotations

import dataclasses
import errno
import os
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from modelblaster.errors import RunError, StorageError
from modelblaster.records.candidate import Candidate, Source
from modelblaster.records.events import (
    BaselineMeasured,
    RunFinished,
    RunStarted,
    SlotClosed,
    SlotImproved,
    SlotMeasured,
    StepFinished,
)
from modelblaster.records.plan import Buffer, Plan, Role
from modelblaster.records.result import UNCHANGED, Best, BestKind, CandidateCounts, Result
from modelblaster.records.task import Budget, Mode, Precision, ProblemSource, SourceKind, Task
from modelblaster.records.tensor import DType
from modelblaster.records.timing import Comparison, Timing
from modelblaster.records.verdict import Cause, Stage, Verdict
from modelblaster.runs.home import home, writable
from modelblaster.runs.run import Run, create, find, summaries, summary
from modelblaster.testing.stores import outcome

if TYPE_CHECKING:
    from pathlib import Path

TASK = Task(
    ProblemSource(SourceKind.FILE, "problems/one.py", "A = 1\n"), "null", Precision.FP32, Mode.EVAL, 7, Budget(60.0)
)
CANDIDATE = Candidate(
    "00000000000000aa",
    (Source("k.c", "c", "text"),),
    Plan((Buffer("x", Role.INPUT, DType.FLOAT32, (2, 3)),), ()),
    "scripted",
    schedule="{}",
)
TIMING = Timing(1000.0, (900.0, 1100.0), (1000.0,), "screen")


def result(run: Run, **changes: object) -> Result:
    whole = Result(
        run=run.name,
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
    return dataclasses.replace(whole, **changes)


def test_home_is_where_the_person_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELBLASTER_HOME", str(tmp_path / "x"))
    assert home() == tmp_path / "x"
    assert not home().exists()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELBLASTER_HOME", "y")
    assert home() == tmp_path / "y"
    monkeypatch.delenv("MODELBLASTER_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert home().name == "modelblaster"


def test_a_folder_that_can_be_written(tmp_path: Path) -> None:
    made = writable(tmp_path / "a" / "b")
    assert made.is_dir()
    assert list(made.iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="MODELBLASTER_HOME"):
        writable(tmp_path / "file" / "folder")

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(StorageError, match="Read-only file system"):
        writable(tmp_path)


def test_a_new_run(tmp_path: Path) -> None:
    run = create(tmp_path, TASK, now=datetime(2026, 3, 4, 5, 6, 7))
    assert run.path.parent == tmp_path / "runs"
    assert run.name.startswith("20260304-050607-")
    assert run.task() == TASK
    assert (run.path / "problem.py").read_text() == "A = 1\n"
    assert run.entries() == ()
    assert create(tmp_path, TASK, now=datetime(2026, 3, 4, 5, 6, 7)).name != run.name


def test_candidates_are_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create(tmp_path, TASK)
    run.save(CANDIDATE)
    run.save(CANDIDATE)
    assert run.candidate(CANDIDATE.digest) == CANDIDATE
    with pytest.raises(RunError, match="no candidate 17"):
        run.candidate("17")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        run.save(dataclasses.replace(CANDIDATE, digest="00000000000000bb"))
    assert [file.name for file in (run.path / "candidates").iterdir()] == [f"{CANDIDATE.digest}.json"]


def test_finding_runs(tmp_path: Path) -> None:
    first = create(tmp_path, TASK, now=datetime(2026, 3, 4, 5, 6, 7))
    second = create(tmp_path, TASK, now=datetime(2026, 3, 5, 5, 6, 7))
    assert find(tmp_path, first.name) == first
    assert find(tmp_path, "20260305") == second
    assert find(tmp_path / "elsewhere", str(second.path)) == second
    with pytest.raises(RunError, match="2 runs"):
        find(tmp_path, "2026")
    for unknown in ("1999", "", "../runs", "/no/such/folder"):
        with pytest.raises(RunError, match="modelblaster runs list"):
            find(tmp_path, unknown)
    with pytest.raises(RunError, match="modelblaster runs list"):
        Run(tmp_path).task()


def test_summaries(tmp_path: Path) -> None:
    assert summaries(tmp_path) == ()
    run = create(tmp_path, TASK, now=datetime(2026, 3, 4, 5, 6, 7))
    damaged = create(tmp_path, TASK, now=datetime(2026, 3, 5, 5, 6, 7))
    (damaged.path / "task.json").write_text("{")
    (tmp_path / "runs" / "a folder of someone else").mkdir()
    with run.open_journal(lambda: 4.0) as journal:
        journal.append(RunStarted(run.name, TASK, "device", "none"))
        journal.append(StepFinished(outcome(1)))
        unfinished = summary(run)
        assert (unfinished.is_finished, unfinished.steps, unfinished.seconds) == (False, 1, 4.0)
        assert (unfinished.speedup, unfinished.verdict) == (None, None)
        journal.append(RunFinished(result(run)))
    finished, bad = summaries(tmp_path)
    assert (finished.is_finished, finished.seconds, finished.speedup) == (True, 9.0, 1.0)
    assert (finished.task, finished.backend, finished.verdict) == ("problems/one.py", "null", "passed")
    assert bad.name == damaged.name
    assert "no run that can be read" in bad.problem


def test_the_state_of_an_interrupted_run(tmp_path: Path) -> None:
    run = create(tmp_path, TASK)
    ticks = iter(range(100))
    comparison = Comparison(TIMING, TIMING, 3.0, (2.9, 3.1))
    slow = Timing(500.0, (450.0, 550.0), (500.0,), "screen")
    steps = [
        dataclasses.replace(outcome(1), timing=slow),
        dataclasses.replace(outcome(2), kept=False),
        outcome(3, cause=Cause.CRASHED, reward=-0.5),
        outcome(4, cause=Cause.BUILD_FAILED, reward=-0.5),
        outcome(5, cause=Cause.WRONG, reward=-0.5),
    ]
    with run.open_journal(lambda: float(next(ticks))) as journal:
        journal.append(RunStarted(run.name, TASK, "device", "none"))
        journal.append(BaselineMeasured("eager", TIMING))
        journal.append(SlotMeasured("5107", TIMING))
        for step in steps:
            journal.append(StepFinished(step))
        journal.append(SlotClosed("77", "uncovered"))
    state = run.state()
    assert (state.run, state.task, state.seconds, state.steps) == (run.name, TASK, 8.0, 5)
    assert state.baselines["eager"].timing == TIMING
    assert state.counts == CandidateCounts(built=4, build_failed=1, wrong=1, crashed=1, measured=2)
    assert state.last == steps[-1]
    assert not state.is_finished
    slot = state.slots["5107"]
    assert slot.reference == TIMING
    assert slot.best is not None
    assert slot.best.candidate == steps[0].candidate
    assert [reached.candidate for reached in slot.reached] == [steps[0].candidate, steps[1].candidate]
    assert (slot.visits, slot.stalls, slot.failures) == (5, 4, 3)
    assert slot.tried == [step.candidate for step in steps]
    assert slot.speedup == 2.0
    assert state.slots["77"].closed == "uncovered"
    with run.open_journal(lambda: 10.0) as journal:
        journal.append(SlotImproved("5107", steps[0].candidate, comparison, 3.0))
    assert run.state().slots["5107"].speedup == 3.0
