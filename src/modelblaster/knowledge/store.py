"""The memory on disk. Every write is one transaction; several processes may write at once.

Statistics are updated by the database itself in one statement, never read, changed and written back, so that no
process can overwrite what another has just learned.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import case, create_engine, event, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool
from sqlalchemy.schema import CreateIndex, CreateTable

from modelblaster.errors import StorageError
from modelblaster.knowledge.arms import ArmStatistics
from modelblaster.knowledge.schema import ARMS, IMPLEMENTATIONS, METADATA, OUTCOMES, SCHEMA_VERSION, VERSION
from modelblaster.records.codec import from_json, to_json
from modelblaster.records.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from sqlalchemy import Connection, Engine, Table

    Insert = sqlite.Insert | postgresql.Insert

IN_MEMORY = "sqlite://"
# How long a write waits for other writers; each holds the file for milliseconds.
BUSY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class VerifiedImplementation:
    """A candidate that was fully verified and kept for a slot on a device; `protocol` says how the time was taken."""

    slot: str
    family: str
    device: str
    candidate: str
    schedule: str
    median_ns: float
    protocol: str


class Store:
    """Outcomes, arms and verified implementations. Safe for several processes; one instance for each thread.

    Every method raises StorageError where the file cannot be read or written.
    """

    def __init__(self, url: str = IN_MEMORY) -> None:
        """Open, and create what is missing. `url` is SQLAlchemy's; `store_at` gives one for a home folder.

        Raises:
            StorageError: it cannot be opened, or was written by a newer version.
        """
        self._url = url
        with self._refusing():
            self._engine = _engine(url)
            self._prepare()

    def record(self, outcome: Outcome, *, run: str, device_classes: Sequence[str]) -> bool:
        """Remember an outcome and count its reward in the arms of these device classes.

        False, and nothing is counted, if this step of this run is known already.
        """
        with self._refusing(), self._engine.begin() as connection:
            row = self._insert(OUTCOMES).values(_outcome_row(outcome, run)).on_conflict_do_nothing()
            if connection.execute(row).rowcount == 0:
                return False
            if outcome.reward is not None:
                for device_class in device_classes:
                    self._count(connection, outcome, outcome.reward, device_class)
        return True

    def arms(self, state: str, device_class: str) -> dict[str, ArmStatistics]:
        """Statistics of every technique that was rewarded in a state, by the technique's name."""
        query = select(ARMS).where(ARMS.c.state == state, ARMS.c.device_class == device_class)
        with self._refusing(), self._engine.connect() as connection:
            rows = connection.execute(query).all()
        return {row.technique: ArmStatistics(row.n, row.mean, row.m2, row.best, row.failures) for row in rows}

    def outcomes(self, *, run: str | None = None, slot: str | None = None) -> tuple[Outcome, ...]:
        """Outcomes of a run or a slot or all, in the order they were recorded."""
        query = select(OUTCOMES.c.record).order_by(OUTCOMES.c.recorded, OUTCOMES.c.run, OUTCOMES.c.step)
        if run is not None:
            query = query.where(OUTCOMES.c.run == run)
        if slot is not None:
            query = query.where(OUTCOMES.c.slot == slot)
        with self._refusing(), self._engine.connect() as connection:
            return tuple(from_json(Outcome, text) for text in connection.execute(query).scalars())

    def keep(self, implementation: VerifiedImplementation) -> None:
        """Remember a verified implementation; the newest time of the same candidate counts."""
        row = {
            "slot": implementation.slot,
            "family": implementation.family,
            "device": implementation.device,
            "candidate": implementation.candidate,
            "schedule": implementation.schedule,
            "median_ns": implementation.median_ns,
            "protocol": implementation.protocol,
            "recorded": datetime.now(UTC),
        }
        insert = self._insert(IMPLEMENTATIONS).values(row)
        changed = {name: insert.excluded[name] for name in ("schedule", "median_ns", "protocol", "recorded")}
        statement = insert.on_conflict_do_update(index_elements=_keys(IMPLEMENTATIONS), set_=changed)
        with self._refusing(), self._engine.begin() as connection:
            connection.execute(statement)

    def recall(self, slot: str, device: str) -> tuple[VerifiedImplementation, ...]:
        """Verified implementations of a slot on a device, fastest first."""
        table = IMPLEMENTATIONS
        query = select(table).where(table.c.slot == slot, table.c.device == device)
        with self._refusing(), self._engine.connect() as connection:
            rows = connection.execute(query.order_by(table.c.median_ns, table.c.candidate)).all()
        return tuple(
            VerifiedImplementation(
                row.slot, row.family, row.device, row.candidate, row.schedule, row.median_ns, row.protocol
            )
            for row in rows
        )

    def close(self) -> None:
        """Let go of the file. May be called twice."""
        self._engine.dispose()

    def __enter__(self) -> Store:
        """The store itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _count(self, connection: Connection, outcome: Outcome, reward: float, device_class: str) -> None:
        """Welford's update as one upsert; `excluded` holds the arm of this one reward."""
        is_failure = int(not outcome.verdict.passed)
        insert = self._insert(ARMS).values(
            state=outcome.state,
            technique=outcome.technique,
            device_class=device_class,
            n=1,
            mean=reward,
            m2=0.0,
            best=reward,
            failures=is_failure,
        )
        delta = reward - ARMS.c.mean
        changed = {
            "n": ARMS.c.n + 1,
            "mean": ARMS.c.mean + delta / (ARMS.c.n + 1),
            "m2": ARMS.c.m2 + delta * delta * ARMS.c.n / (ARMS.c.n + 1),
            "best": case((ARMS.c.best > reward, ARMS.c.best), else_=reward),
            "failures": ARMS.c.failures + is_failure,
        }
        connection.execute(insert.on_conflict_do_update(index_elements=_keys(ARMS), set_=changed))

    def _insert(self, table: Table) -> Insert:
        """An insert that can say what to do on a conflict, which each database spells its own way."""
        is_sqlite = self._engine.dialect.name == "sqlite"
        return sqlite.insert(table) if is_sqlite else postgresql.insert(table)

    def _prepare(self) -> None:
        with self._engine.begin() as connection:
            # `create_all` looks first and creates then; another process may do so in between.
            connection.execute(CreateTable(VERSION, if_not_exists=True))
            insert = self._insert(VERSION).values(only=1, version=SCHEMA_VERSION)
            connection.execute(insert.on_conflict_do_nothing())
            found = connection.execute(select(func.max(VERSION.c.version))).scalar_one()
            if found > SCHEMA_VERSION:
                raise StorageError(
                    f"the memory at {self._url} has form {found} and this version knows {SCHEMA_VERSION}; "
                    "update modelblaster, or set MODELBLASTER_HOME to another folder"
                )
            for table in METADATA.sorted_tables:
                connection.execute(CreateTable(table, if_not_exists=True))
                for index in table.indexes:
                    connection.execute(CreateIndex(index, if_not_exists=True))

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise StorageError(
                f"cannot use the memory at {self._url}: {error.orig}; it needs space and rights to write"
            ) from error


def store_at(home: Path) -> Store:
    """The memory of a home folder, `knowledge.db`.

    Raises:
        StorageError: the folder or the file cannot be written.
    """
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make {home}: {error.strerror}; set MODELBLASTER_HOME to another folder") from error
    return Store(f"sqlite:///{home / 'knowledge.db'}")


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url)
    if url == IN_MEMORY:
        return create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})
    event.listen(engine, "connect", _configure)
    return engine


def _configure(connection: object, _record: object) -> None:
    """Write-ahead log: readers never wait for writers, and a write survives the process."""
    import sqlite3

    assert isinstance(connection, sqlite3.Connection)
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode=WAL").fetchone()
            connection.execute("PRAGMA synchronous=NORMAL")
        except sqlite3.OperationalError as error:
            # The busy timeout does not cover the change of mode, which needs the file alone for a moment.
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _keys(table: Table) -> list[str]:
    return [column.name for column in table.primary_key]


def _outcome_row(outcome: Outcome, run: str) -> dict[str, object]:
    timing = outcome.timing
    return {
        "run": run,
        "step": outcome.step,
        "recorded": datetime.now(UTC),
        "slot": outcome.slot,
        "family": outcome.family,
        "device": outcome.device,
        "state": outcome.state,
        "technique": outcome.technique,
        "candidate": outcome.candidate,
        "parent": outcome.parent,
        "cause": str(outcome.verdict.cause),
        "median_ns": timing.median_ns if timing else None,
        "protocol": timing.protocol if timing else None,
        "reward": outcome.reward,
        "reason": outcome.reason,
        "kept": outcome.kept,
        "seconds": outcome.seconds,
        "record": to_json(outcome),
    }
