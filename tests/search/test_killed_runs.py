"""The whole search with journal, archive and memory on disk, killed and resumed again and again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from search_landscape import DEVICE, Bed, FakeBench, seed, slot

from modelblaster.knowledge.memory import Memory
from modelblaster.knowledge.store import Store, store_at
from modelblaster.records.events import RunResumed, RunStarted, StepFinished
from modelblaster.records.task import Budget as Granted
from modelblaster.records.task import Mode, Precision, ProblemSource, SourceKind, Task
from modelblaster.runs.run import Run, create
from modelblaster.search.budget import Budget
from modelblaster.search.events import fan_out
from modelblaster.search.loop import search
from modelblaster.search.opening import open_slots
from modelblaster.search.parts import Parts

KILLS = 30
TASK = Task(ProblemSource(SourceKind.FILE, "one.py"), "fake", Precision.FP32, Mode.EVAL, 3, Granted())
SLOTS = [slot(f"slot{number}") for number in range(6)]


def valley(key: str, schedule: str) -> float:
    a, b = map(int, schedule.split(","))
    return 200.0 + 100.0 * (3 - a) + 80.0 * abs(b - 2)


def go_on(run: Run, home: Path, acknowledge) -> None:
    """One command's work on a run, like `optimize` and `runs resume` do it."""
    state = run.state()
    budget = Budget(Granted(), time.monotonic, seconds_before=state.seconds, steps_before=state.steps)
    bed = Bed(FakeBench(valley), Store())
    with run.open_journal(budget.elapsed) as journal, store_at(home) as store:
        memory = Memory(store, run=run.name, backend="fake", device=DEVICE)
        emit = fan_out(journal.append, acknowledge)
        is_new = state.task is None
        emit(RunStarted(run.name, TASK, DEVICE, "") if is_new else RunResumed(run.name, state.seconds, state.steps))
        parts = Parts(bed.actor, bed.bench, memory, run, seed(), emit, DEVICE, TASK.seed)
        search(parts, open_slots(parts, SLOTS, budget, None if is_new else state), budget)


def killed_again_and_again(home: Path) -> list[str]:
    """Digests of the steps that children acknowledged before they were killed."""
    run = create(home, TASK)
    generator = random.Random(11)
    acknowledged: list[str] = []
    for _ in range(KILLS):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)

            def acknowledge(event: object, pipe: int = writing) -> None:
                if isinstance(event, StepFinished):
                    os.write(pipe, f"{event.outcome.candidate}\n".encode())

            go_on(run, home, acknowledge)
            os._exit(0)
        os.close(writing)
        time.sleep(generator.uniform(0.03, 0.2))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(reading) as pipe:
            acknowledged += [line.strip() for line in pipe if line.endswith("\n")]
    go_on(run, home, lambda event: None)
    return acknowledged


def undisturbed(home: Path) -> list[str]:
    run = create(home, TASK)
    go_on(run, home, lambda event: None)
    return [entry.event.outcome.candidate for entry in run.entries() if isinstance(entry.event, StepFinished)]


def test_nothing_finished_is_lost(tmp_path: Path) -> None:
    """In a process of its own, because this one may have threads, which do not survive a fork."""
    code = (
        "import json, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "import test_killed_runs as killed\n"
        "killed.go_on(killed.create(Path(sys.argv[1]) / 'warm', killed.TASK), Path(sys.argv[1]), lambda event: None)\n"
        "print(json.dumps(killed.killed_again_and_again(Path(sys.argv[1]) / 'home')))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    acknowledged = json.loads(ran.stdout)
    home = tmp_path / "home"
    (run,) = [Run(path) for path in (home / "runs").iterdir()]
    outcomes = [entry.event.outcome for entry in run.entries() if isinstance(entry.event, StepFinished)]
    digests = [outcome.candidate for outcome in outcomes]
    assert set(acknowledged) <= set(digests)
    assert digests == undisturbed(tmp_path / "undisturbed")
    assert [outcome.step for outcome in outcomes] == list(range(1, len(outcomes) + 1))
    assert {run.candidate(digest).digest for digest in digests} == set(digests)
    state = run.state()
    for key in (each.key for each in SLOTS):
        best = state.slots[key].best
        assert best is not None
        assert run.candidate(best.candidate).schedule == "3,2"
        assert state.slots[key].speedup == 5.0
    with store_at(home) as store:
        assert sorted(outcome.candidate for outcome in store.outcomes(run=run.name)) == sorted(digests)
    resumed = sum(isinstance(entry.event, RunResumed) for entry in run.entries())
    assert resumed > 4
    assert len(acknowledged) > 4
