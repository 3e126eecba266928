from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from modelblaster.errors import StorageError
from modelblaster.knowledge.arms import ArmStatistics, pooled
from modelblaster.knowledge.memory import Memory
from modelblaster.knowledge.schema import SCHEMA_VERSION
from modelblaster.knowledge.store import Store, store_at
from modelblaster.records.candidate import Candidate
from modelblaster.records.plan import Plan
from modelblaster.records.timing import Timing
from modelblaster.testing.stores import StoreConformance, outcome

if TYPE_CHECKING:
    from pathlib import Path


class TestInMemory(StoreConformance):
    @pytest.fixture
    def store(self):
        with Store() as store:
            yield store


class TestInAFile(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path):
        with store_at(tmp_path / "home") as store:
            yield store


def test_what_was_recorded_is_there_for_the_next_command(tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        store.record(outcome(1), run="r", device_classes=("here",))
    with store_at(tmp_path) as store:
        assert store.outcomes(run="r") == (outcome(1),)
    assert sqlite3.connect(tmp_path / "knowledge.db").execute("PRAGMA journal_mode").fetchone() == ("wal",)


WRITER = """
import sys
from pathlib import Path
from modelblaster.knowledge.store import store_at
from modelblaster.testing.stores import outcome
home, run, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
with store_at(home) as store:
    for step in range(1, count + 1):
        store.record(outcome(step, reward=step / 8), run=run, device_classes=("here", "any"))
"""


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    """They also create the file at once; no reward is lost."""
    count, runs = 40, ["a", "b", "c", "d"]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), run, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for run in runs
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [writer.wait(60) for writer in writers] == [0] * len(runs)
    for writer in writers:
        writer.stdin.close()
        writer.stdout.close()
    expected = ArmStatistics()
    for _ in runs:
        for step in range(1, count + 1):
            expected = expected.with_reward(step / 8)
    with store_at(tmp_path) as store:
        found = store.arms("map", "here")["unroll"]
        assert (found.n, found.best) == (expected.n, expected.best)
        assert math.isclose(found.mean, expected.mean)
        assert math.isclose(found.m2, expected.m2)
        assert len(store.outcomes()) == count * len(runs)


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    store_at(tmp_path).close()
    with sqlite3.connect(tmp_path / "knowledge.db") as connection:
        connection.execute("UPDATE schema_version SET version = ?", (SCHEMA_VERSION + 1,))
    with pytest.raises(StorageError, match="update modelblaster"):
        store_at(tmp_path)


def test_a_home_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="MODELBLASTER_HOME"):
        store_at(tmp_path / "file")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "knowledge.db").write_text("something else, and long enough to be looked at" * 100)
    with pytest.raises(StorageError, match="not a database"):
        store_at(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file(tmp_path: Path) -> None:
    store_at(tmp_path).close()
    (tmp_path / "knowledge.db").chmod(0o400)
    with pytest.raises(StorageError, match="readonly"):
        store_at(tmp_path)


def test_a_store_that_becomes_read_only(tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        with store._engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA query_only = 1")
        with pytest.raises(StorageError, match="readonly"):
            store.record(outcome(1), run="r", device_classes=("here",))


def record_many(store: Store, count: int) -> None:
    for step in range(2, count):
        store.record(outcome(step), run="r", device_classes=("here",))


def test_a_full_disk_loses_nothing_that_was_there(tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        store.record(outcome(1), run="r", device_classes=("here",))
        with store._engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StorageError, match="full"):
            record_many(store, 200)
        kept = store.outcomes()
        assert kept[0] == outcome(1)
        assert store.arms("map", "here")["unroll"].n == len(kept)


def test_arms_without_a_part_of_their_rewards() -> None:
    rewards = [0.5, -0.5, 1.25, 0.0, 0.125, 2.0]
    arms = [ArmStatistics().with_reward(reward) for reward in rewards]
    rest = pooled(arms).without(pooled(arms[:2]))
    expected = pooled(arms[2:])
    assert rest.n == expected.n
    assert math.isclose(rest.mean, expected.mean)
    assert math.isclose(rest.m2, expected.m2)
    assert pooled(arms).without(pooled(arms)) == ArmStatistics()


def test_experience_of_other_devices() -> None:
    with Store() as store:
        here = Memory(store, run="r", backend="one", device="small")
        there = Memory(store, run="s", backend="one", device="large")
        elsewhere = Memory(store, run="t", backend="two", device="other")
        here.record(outcome(1, reward=0.5))
        there.record(outcome(1, reward=1.0))
        elsewhere.record(outcome(1, reward=2.0))
        assert here.arms("map")["unroll"].mean == 0.5
        assert here.broader_arms("map")["unroll"].mean == pytest.approx(1.0)
        assert elsewhere.broader_arms("map")["unroll"].mean == pytest.approx(0.75)


def test_memory_recalls_the_fastest_schedule_of_this_device() -> None:
    with Store() as store:
        here = Memory(store, run="r", backend="one", device="small")
        there = Memory(store, run="s", backend="one", device="large")
        for digest, nanoseconds in (("aa", 300.0), ("bb", 200.0)):
            candidate = Candidate(digest, (), Plan((), ()), "test", schedule=digest)
            here.keep("5107", "map", candidate, Timing(nanoseconds, (0, 0), (), "paired"))
        assert here.recall("5107") == "bb"
        assert here.recall("another") is None
        assert there.recall("5107") is None
