"""Where everything that outlives a command is kept."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from modelblaster.errors import StorageError

VARIABLE = "MODELBLASTER_HOME"


def home() -> Path:
    """The folder of runs, memory and caches: MODELBLASTER_HOME, else the platform's data folder. It may not exist."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("modelblaster")


def writable(path: Path) -> Path:
    """The folder, made where it is missing and found to take files.

    Raises:
        StorageError: it cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Rights alone do not tell: a file system may be mounted read-only, and root passes every check of rights.
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            f"cannot write in {path}: {reason}. Set {VARIABLE} to a folder that can be written"
        ) from error
    return path
