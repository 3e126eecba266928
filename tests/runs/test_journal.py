from __future__ import annotations

import errno
import itertools
import json
import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from modelblaster.errors import RunError, StorageError
from modelblaster.records.events import EVENTS, RunResumed, SlotClosed, StepFinished, StepStarted
from modelblaster.runs.journal import Entry, Journal, read
from modelblaster.testing.stores import outcome

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 30


def closed(number: int) -> SlotClosed:
    return SlotClosed(f"{number}", "for the test")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def write(path: Path, *numbers: int) -> None:
    ticks = itertools.count()
    with Journal(path, lambda: float(next(ticks))) as journal:
        for number in numbers:
            journal.append(closed(number))


def test_events_come_back_with_their_times(path: Path) -> None:
    clock = iter([0.25, 1.5, 2.0])
    events = [RunResumed("r", 3.0, 4), StepStarted(1, "s", "map", "unroll", "c", None, 3), StepFinished(outcome(1))]
    with Journal(path, lambda: next(clock)) as journal:
        for event in events:
            journal.append(event)
        assert read(path) == tuple(map(Entry, [0.25, 1.5, 2.0], events))


def test_every_event_has_a_name_of_its_own() -> None:
    assert len({event.__name__ for event in EVENTS}) == len(EVENTS)


def test_a_journal_that_is_not_there_is_empty(path: Path) -> None:
    assert read(path) == ()


def test_appending_goes_on_where_it_ended(path: Path) -> None:
    write(path, 1, 2)
    write(path, 3)
    assert [entry.event for entry in read(path)] == [closed(1), closed(2), closed(3)]


@pytest.mark.parametrize("cut", [1, 2, 20, 60])
def test_a_torn_last_line_is_dropped(path: Path, cut: int) -> None:
    write(path, 1, 2, 3)
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    assert [entry.event for entry in read(path)] == [closed(1), closed(2)]
    write(path, 4)
    assert [entry.event for entry in read(path)] == [closed(1), closed(2), closed(4)]


def test_a_last_line_of_rubbish_is_dropped(path: Path) -> None:
    write(path, 1)
    with path.open("ab") as file:
        file.write(b"\0\0\0\n")
    write(path, 2)
    assert [entry.event for entry in read(path)] == [closed(1), closed(2)]


def test_damage_before_the_last_line_is_refused(path: Path) -> None:
    write(path, 1, 2, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"reason", b"season") + lines[2])
    with pytest.raises(RunError, match="line 2 is damaged"):
        read(path)
    before = path.read_bytes()
    with pytest.raises(RunError, match="line 2 is damaged"):
        Journal(path, time.monotonic)
    assert path.read_bytes() == before


def test_events_of_a_newer_version_are_refused(path: Path) -> None:
    path.write_text(json.dumps({"type": "Telepathy", "seconds": 0, "event": {}}) + "\n")
    with pytest.raises(RunError, match="update modelblaster"):
        read(path)


def test_two_processes_cannot_write_one_run(path: Path) -> None:
    with Journal(path, time.monotonic) as journal:
        journal.append(closed(1))
        with pytest.raises(RunError, match="another process"):
            Journal(path, time.monotonic)
        code = (
            "import sys, time; from pathlib import Path; from modelblaster.runs.journal import Journal\n"
            "from modelblaster.errors import RunError\n"
            "try: Journal(Path(sys.argv[1]), time.monotonic)\nexcept RunError as error: print(error)"
        )
        ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        assert "another process" in ran.stdout
        journal.append(closed(2))
    write(path, 3)
    assert len(read(path)) == 3


def test_a_journal_in_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"):
        Journal(tmp_path / "file" / "journal.jsonl", time.monotonic)


def test_a_full_disk_leaves_whole_lines(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    with Journal(path, lambda: 0.0) as journal:
        journal.append(closed(1))
        is_first = iter([True, False])

        def half(descriptor: int, data: bytes) -> int:
            if next(is_first):
                return real(descriptor, bytes(data[: len(data) // 2]))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "write", half)
        with pytest.raises(StorageError, match="No space left"):
            journal.append(closed(2))
        monkeypatch.undo()
        assert path.read_bytes().endswith(b"\n")
        journal.append(closed(3))
    assert [entry.event for entry in read(path)] == [closed(1), closed(3)]


def test_kills_at_random_moments_lose_no_acknowledged_step(tmp_path: Path) -> None:
    """The appender forks from a process that has imported everything, so that 30 kills take seconds."""
    code = KILLED.format(kills=KILLS)
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    results = json.loads(ran.stdout)
    assert len(results) == KILLS
    for number, acknowledged in enumerate(results):
        path = tmp_path / f"{number}.jsonl"
        write(path, 0)
        events = [entry.event for entry in read(path)]
        steps = [event.outcome.step for event in events[:-1]]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) in (acknowledged, acknowledged + 1)
        assert events[:-1] == [StepFinished(outcome(step)) for step in steps]
    assert sum(acknowledged > 0 for acknowledged in results) > 4


# Forks a writer, kills it after a random time, and reports how many steps each had acknowledged.
KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
from modelblaster.records.codec import to_json
from modelblaster.records.events import StepFinished
from modelblaster.runs.journal import Journal
from modelblaster.testing.stores import outcome

def append_for_ever(path, pipe):
    with Journal(path, time.monotonic) as journal:
        step = 1
        while True:
            journal.append(StepFinished(outcome(step)))
            os.write(pipe, b".")
            step += 1

to_json(StepFinished(outcome(1)))  # builds what the children need
acknowledged = []
generator = random.Random(5)
for number in range({kills}):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        append_for_ever(Path(sys.argv[1]) / f"{{number}}.jsonl", writing)
    os.close(writing)
    time.sleep(generator.uniform(0.01, 0.1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    count = 0
    while data := os.read(reading, 65536):
        count += len(data)
    os.close(reading)
    acknowledged.append(count)
print(json.dumps(acknowledged))
"""


def test_a_torn_write_in_the_middle_of_a_step(path: Path) -> None:
    """Cut at every place of the last line: the same as a death in the middle of a write."""
    with Journal(path, lambda: 0.0) as journal:
        journal.append(StepFinished(outcome(1)))
        whole = len(path.read_bytes())
        journal.append(StepFinished(outcome(2)))
    data = path.read_bytes()
    places = random.Random(1).sample(range(whole, len(data)), 40)
    for place in places:
        path.write_bytes(data[:place])
        with Journal(path, lambda: 0.0):
            assert [entry.event for entry in read(path)] == [StepFinished(outcome(1))]
        assert path.read_bytes() == data[:whole]
