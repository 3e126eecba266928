"""The journal of a run: events as lines of JSON, appended and flushed to the disk one by one.

What `append` has returned for survives the death of the process at any moment. A line that was cut short by such a
death is dropped when the journal is next opened; damage anywhere else is refused. One process at a time may write.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelblaster.errors import RunError, StorageError
from modelblaster.records.codec import RecordError, from_json, to_data
from modelblaster.records.events import EVENTS, Event

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

_TYPES = {event_type.__name__: event_type for event_type in EVENTS}


@dataclass(frozen=True, slots=True)
class Entry:
    """An event and the seconds of the run's budget that were used when it was written."""

    seconds: float
    event: Event


class Journal:
    """An open journal, locked for this process until `close`. Not thread-safe.

    `elapsed` gives the seconds that each entry carries.
    """

    def __init__(self, path: Path, elapsed: Callable[[], float]) -> None:
        """Open or create.

        Raises:
            RunError: another process writes this run, or the journal is damaged before its last line.
            StorageError: the file cannot be written.
        """
        self._path = path
        self._elapsed = elapsed
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            self._claim()
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, event: Event) -> None:
        """Write one event; when this returns, it is on the disk.

        Raises:
            StorageError: it could not be written; the journal is as it was before.
        """
        line = {"type": type(event).__name__, "seconds": round(self._elapsed(), 6), "event": to_data(event)}
        remaining = memoryview(json.dumps(line).encode() + b"\n")
        end = os.fstat(self._descriptor).st_size
        try:
            while remaining:
                remaining = remaining[os.write(self._descriptor, remaining) :]
            os.fsync(self._descriptor)
        except OSError as error:
            self._cut(end)
            raise _unwritable(self._path, error) from error

    def close(self) -> None:
        """Give the lock back. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Journal:
        """The journal itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _claim(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(f"{self._path.parent.name} is being written by another process; wait for its end") from error
        try:
            whole = _whole(self._path)
            if whole[1] != os.fstat(self._descriptor).st_size:
                os.ftruncate(self._descriptor, whole[1])
            os.fsync(self._descriptor)
            _sync_folder(self._path.parent)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def _cut(self, end: int) -> None:
        try:
            os.ftruncate(self._descriptor, end)
        except OSError:
            return  # Nothing more can be done here: the torn line is dropped at the next opening.


def read(path: Path) -> tuple[Entry, ...]:
    """Every whole entry of a journal, which may be being written meanwhile.

    Raises:
        RunError: it cannot be read, is damaged before its last line, or holds events of a newer version.
    """
    try:
        return _whole(path)[0]
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error


def _whole(path: Path) -> tuple[tuple[Entry, ...], int]:
    """The entries, and where the last whole one ends."""
    entries: list[Entry] = []
    end = 0
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break
        try:
            entries.append(_entry(line))
        except (RecordError, ValueError, KeyError, TypeError, RecursionError) as error:
            if number == len(lines):
                break
            raise RunError(f"{path}: line {number} is damaged: {error}") from error
        end += len(line)
    return tuple(entries), end


def _entry(line: bytes) -> Entry:
    data = json.loads(line)
    event_type = _TYPES.get(data["type"])
    if event_type is None:
        raise RunError(f"the journal holds {data['type']!r}, which this version does not know; update modelblaster")
    return Entry(float(data["seconds"]), from_json(event_type, json.dumps(data["event"])))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot write {path}: {error.strerror or error}; the run needs space and rights there")
