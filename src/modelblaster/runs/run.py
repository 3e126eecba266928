"""The folder of one run under `<home>/runs/`.

`task.json` is what was asked, `problem.py` the problem's text for people, `journal.jsonl` what happened,
`candidates/DIGEST.json` every candidate, written before the event that names it.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from modelblaster.errors import RunError, StorageError
from modelblaster.records.candidate import Candidate
from modelblaster.records.codec import from_json, to_json
from modelblaster.records.task import Task
from modelblaster.runs import journal
from modelblaster.runs.home import writable
from modelblaster.runs.state import RunState, replay

if TYPE_CHECKING:
    from collections.abc import Callable

LIST_COMMAND = "modelblaster runs list"


@dataclass(frozen=True, slots=True)
class Run:
    """A run's folder; it holds no open files."""

    path: Path

    @property
    def name(self) -> str:
        """What the run is called: its folder's name."""
        return self.path.name

    @property
    def artifact(self) -> Path:
        """Where the run's artifact goes."""
        return self.path / "best"

    def task(self) -> Task:
        """What was asked.

        Raises:
            RunError: it cannot be read.
        """
        try:
            return from_json(Task, (self.path / "task.json").read_text())
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path} is no run that can be read: {error}; see `{LIST_COMMAND}`") from error

    def open_journal(self, elapsed: Callable[[], float]) -> journal.Journal:
        """The journal, to append to.

        Raises:
            RunError: another process writes it, or it is damaged.
            StorageError: it cannot be written.
        """
        return journal.Journal(self.path / "journal.jsonl", elapsed)

    def entries(self) -> tuple[journal.Entry, ...]:
        """What has happened so far.

        Raises:
            RunError: the journal cannot be read or is damaged.
        """
        return journal.read(self.path / "journal.jsonl")

    def state(self) -> RunState:
        """How far the run has come.

        Raises:
            RunError: the journal cannot be read or is damaged.
        """
        return replay(self.entries())

    def save(self, candidate: Candidate) -> None:
        """Write a candidate, whole or not at all. Does nothing if it is there.

        Raises:
            StorageError: it cannot be written.
        """
        target = self._candidate_file(candidate.digest)
        if not target.exists():
            _write(target, to_json(candidate))

    def candidate(self, digest: str) -> Candidate:
        """A candidate that was saved.

        Raises:
            RunError: there is none of this digest that can be read.
        """
        try:
            return from_json(Candidate, self._candidate_file(digest).read_text())
        except (OSError, ValueError) as error:
            raise RunError(f"{self.name} holds no candidate {digest}: {error}") from error

    def _candidate_file(self, digest: str) -> Path:
        return self.path / "candidates" / f"{digest}.json"


@dataclass(frozen=True, slots=True)
class Summary:
    """One line about a run. `speedup` is over eager, None while unfinished; `problem` says what is damaged."""

    name: str
    path: Path
    started: datetime
    task: str
    backend: str
    is_finished: bool
    steps: int
    seconds: float
    speedup: float | None
    verdict: str | None
    problem: str = ""


def create(home: Path, task: Task, *, now: datetime | None = None) -> Run:
    """A new run with its folder; the name is the local time and a random ending.

    Raises:
        StorageError: the folder cannot be written.
    """
    runs = writable(home / "runs")
    moment = now or datetime.now().astimezone()
    path = runs / f"{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    try:
        (path / "candidates").mkdir(parents=True)
    except OSError as error:
        raise StorageError(f"cannot make the run's folder {path}: {error.strerror}") from error
    if task.problem.text:
        _write(path / "problem.py", task.problem.text)
    _write(path / "task.json", to_json(task, indent=1))
    return Run(path)


def find(home: Path, name: str) -> Run:
    """A run by its name, by an unambiguous beginning of it, or by its folder's path.

    Raises:
        RunError: there is none, or there are several.
    """
    if "/" in name and (Path(name) / "task.json").is_file():
        return Run(Path(name).absolute())
    names = [run.name for run in _runs(home)]
    matching = [known for known in names if known == name] or [known for known in names if known.startswith(name)]
    if name and len(matching) > 1:
        raise RunError(f"{name!r} is the beginning of {len(matching)} runs: {', '.join(matching)}")
    if not name or not matching:
        raise RunError(f"there is no run {name!r} in {home / 'runs'}; `{LIST_COMMAND}` shows those there are")
    return Run(home / "runs" / matching[0])


def summaries(home: Path) -> tuple[Summary, ...]:
    """Every run, oldest first; one that cannot be read is listed with what is wrong."""
    return tuple(summary(run) for run in _runs(home))


def summary(run: Run) -> Summary:
    """One line about a run; never raises for a damaged one."""
    started = datetime.fromtimestamp(run.path.stat().st_ctime).astimezone()
    try:
        task = run.task()
        started = datetime.fromtimestamp((run.path / "task.json").stat().st_mtime).astimezone()
        state = run.state()
    except RunError as error:
        return Summary(run.name, run.path, started, "", "", False, 0, 0.0, None, None, str(error))
    result = state.result
    return Summary(
        name=run.name,
        path=run.path,
        started=started,
        task=task.problem.location,
        backend=task.backend,
        is_finished=state.is_finished,
        steps=state.steps,
        seconds=result.seconds if result else state.seconds,
        speedup=result.speedup.over_eager if result else None,
        verdict=str(result.verdict.cause) if result else None,
    )


def _runs(home: Path) -> list[Run]:
    folder = home / "runs"
    try:
        paths = sorted(path for path in folder.iterdir() if (path / "task.json").is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"cannot read {folder}: {error.strerror}") from error
    return [Run(path) for path in paths]


def _write(target: Path, text: str) -> None:
    """Write a file so that it exists whole or not at all, even when the machine stops."""
    try:
        target.parent.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=".", delete=False) as draft:
            try:
                draft.write(text)
                draft.flush()
                os.fsync(draft.fileno())
                os.replace(draft.name, target)
            except BaseException:
                os.unlink(draft.name)
                raise
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror}") from error
