"""Runs a problem file as a module of its own, and says in one line what went wrong when it does not run."""

from __future__ import annotations

import linecache
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import cloudpickle

from modelblaster.errors import ProblemError
from modelblaster.records.codec import digest
from modelblaster.task.surroundings import Settings, seed_generators, visiting

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_LONGEST_MESSAGE = 240


@dataclass(frozen=True, slots=True)
class Executed:
    """A module that ran, the settings of torch that it left behind, and where it lies."""

    module: ModuleType
    settings: Settings
    location: str
    folder: Path | None


def execute(text: str, location: str) -> Executed:
    """Run the text of a problem file as the file at `location` (which need not exist any more).

    The module enters `sys.modules` under a name made of its contents, so that dataclasses and type hints resolve and
    another process that runs the same text unpickles its objects; cloudpickle sends its classes by value.

    Raises:
        ProblemError: the file raised, or tried to leave.
    """
    path = Path(location)
    module = ModuleType(_module_name(path, text))
    module.__file__ = location
    # `inspect.getsource` and tracebacks read the text that ran, with its overrides, from here.
    linecache.cache[location] = (len(text), None, text.splitlines(keepends=True), location)
    sys.modules[module.__name__] = module

    def run() -> Settings:
        exec(compile(text, location, "exec", dont_inherit=True), module.__dict__)
        return Settings.current()

    try:
        settings = guarded("", location, path.parent, None, run)
    except BaseException:
        sys.modules.pop(module.__name__, None)
        raise
    _send_by_value(module)
    return Executed(module, settings, location, path.parent)


def guarded(
    doing: str, location: str, folder: Path | None, settings: Settings | None, call: Callable[[], T], seed: int = 0
) -> T:
    """The result of a piece of the problem's own code, called with seeded generators and a clean-up behind it.

    Raises:
        ProblemError: it raised or tried to leave; `doing` says during what (`get_inputs()`).
    """
    try:
        with visiting(folder, settings):
            seed_generators(seed)
            return call()
    except ProblemError:
        raise
    except (Exception, SystemExit) as error:
        raise ProblemError(_one_line(doing, location, error)) from error


def _send_by_value(module: ModuleType) -> None:
    register: Callable[[ModuleType], object] = cloudpickle.register_pickle_by_value
    register(module)


def _module_name(path: Path, text: str) -> str:
    stem = re.sub(r"\W", "_", path.stem)
    return f"modelblaster_problem_{stem}_{digest(str(path), text)}"


def _one_line(doing: str, location: str, error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == location]
    where = f"{location}: line {lines[-1]}" if lines and lines[-1] else location
    try:
        words = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - a problem's own exceptions may fail to print
        words = ""
    if len(words) > _LONGEST_MESSAGE:
        words = words[: _LONGEST_MESSAGE - 1].rstrip() + "…"
    what = type(error).__name__ + (f": {words}" if words else "")
    return f"{where}: {doing}: {what}" if doing else f"{where}: {what}"
