"""Who may know whom (docs/design.md, "The rooms"). Imports for types and inside functions count like all others."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from checks.source import PACKAGE, Finding, SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What each room may import beside itself: rooms, or single modules of a room.
_FIRST_FLOOR = ("records", "errors")
_GROUND = (*_FIRST_FLOOR, "task", "program", "kernels", "knowledge", "runs")
_SEAMS = ("backends.interface", "backends.registry")
_AGENTS = (*_GROUND, *_SEAMS, "judge")
_SEARCH = (*_AGENTS, "agents")
_MODEL = (*_SEARCH, "search")
_API = (*_MODEL, "model")
_TOP = (*_API, "loaded", "api", "")

ALLOWED: dict[str, tuple[str, ...]] = {
    "errors": (),
    "records": (),
    "task": _FIRST_FLOOR,
    "kernels": _FIRST_FLOOR,
    "program": (*_FIRST_FLOOR, "kernels"),
    "knowledge": _FIRST_FLOOR,
    "runs": _FIRST_FLOOR,
    "backends": (*_FIRST_FLOOR, "kernels.dialect", "program.library", "runs.home"),
    "judge": (*_FIRST_FLOOR, "program", "backends.interface"),
    "agents": _AGENTS,
    "search": _SEARCH,
    "model": _MODEL,
    "loaded": _API,
    "api": (*_API, "loaded"),
    "report": _TOP,
    "cli": (*_TOP, "report"),
    "testing": (*_TOP, "report"),
    "": (*_TOP, "report"),
    "__main__": ("cli",),
}


def broken_imports(files: Sequence[SourceFile]) -> Iterator[Finding]:
    """Imports from a room that the importing one may not know, and rooms that the rules do not list."""
    modules = {file.module for file in files}
    for file in files:
        allowed = ALLOWED.get(file.room)
        if allowed is None:
            yield Finding(file.path, 1, f"room {file.room!r} has no rule in checks/rooms.py")
            continue
        for line, target in _imported(file, modules):
            if not _is_allowed(target, file.room, allowed):
                known = ", ".join(name or "the package itself" for name in allowed) or "nothing of the package"
                yield Finding(file.path, line, f"{file.room or PACKAGE} may import {known}; not {target}")


def _imported(file: SourceFile, modules: set[str]) -> Iterator[tuple[int, str]]:
    """(line, module) for every import of the package's own modules."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield node.lineno, inner if inner in modules else str(node.module)


def _is_allowed(target: str, room: str, allowed: Sequence[str]) -> bool:
    inner = target.removeprefix(PACKAGE).removeprefix(".")
    if room and inner.split(".")[0] == room:
        return True
    return any(inner == name or (name and inner.startswith(f"{name}.")) for name in allowed)
