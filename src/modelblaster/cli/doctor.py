"""`modelblaster doctor`: asks each backend whether it can work here, and says what to install where it cannot."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from modelblaster.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelblaster.backends.interface import Requirement

SCHEMA = "modelblaster.doctor/1"


@dataclass(frozen=True, slots=True)
class Examined:
    """One backend on this machine. `device` and `isolation` are empty where it cannot work."""

    name: str
    works: bool
    device: str
    isolation: str
    requirements: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of runs and memory, and what keeps it from being written, if anything does."""

    path: str
    is_writable: bool
    detail: str


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> int:
    """Say what works on this machine, and what to install.

    Exit code 0 if some backend can work, 1 if none can.
    """
    backends, home, versions = examine(), examine_home(), installed_versions()
    if as_json:
        typer.echo(json.dumps(as_data(backends, home, versions), indent=2))
    else:
        _show(backends, home, versions)
    return 0 if any(backend.works for backend in backends) else 1


def examine() -> tuple[Examined, ...]:
    """Every backend, best first."""
    from modelblaster.backends import registry

    examined: list[Examined] = []
    for name in registry.names():
        backend = registry.get(name)
        requirements = backend.requirements()
        works = all(need.is_met for need in requirements if need.is_required)
        device, isolation = (backend.device(), backend.isolation()) if works else ("", "")
        examined.append(Examined(name, works, device, isolation, requirements))
    return tuple(examined)


def examine_home() -> Home:
    """Whether runs can be written."""
    from modelblaster.runs.home import home, writable

    try:
        return Home(str(writable(home())), is_writable=True, detail="")
    except StorageError as error:
        return Home(str(home()), is_writable=False, detail=str(error))


def installed_versions() -> dict[str, str]:
    """Versions that an answer to a question about a run needs."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version()}
    for name in ("modelblaster", "torch", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def as_data(backends: Sequence[Examined], home: Home, versions: Mapping[str, str]) -> dict[str, object]:
    """The object that `--json` prints: `schema, default, backends[], home, versions`."""
    return {
        "schema": SCHEMA,
        "default": next((backend.name for backend in backends if backend.works), None),
        "backends": [asdict(backend) for backend in backends],
        "home": asdict(home),
        "versions": dict(versions),
    }


def _show(backends: Sequence[Examined], home: Home, versions: Mapping[str, str]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    for backend in backends:
        verdict = "[green]works here[/]" if backend.works else "[red]cannot work here[/]"
        console.print(f"[bold]{escape(backend.name)}[/] {verdict} {escape(backend.device)}")
        console.print(_table(backend.requirements))
        if backend.isolation:
            console.print(f"candidates are kept apart by: {escape(backend.isolation)}")
    console.print(f"home: {escape(home.path)}" + ("" if home.is_writable else f" [red]{escape(home.detail)}[/]"))
    console.print(", ".join(f"{name} {number}" for name, number in versions.items()), highlight=False)


def _table(requirements: Sequence[Requirement]) -> object:
    from rich.table import Table
    from rich.text import Text

    table = Table("", "needs", "found", "what to do")
    for need in requirements:
        if need.is_met:
            mark = Text("yes", style="green")
        else:
            mark = Text("no", style="red") if need.is_required else Text("no, optional", style="yellow")
        table.add_row(mark, Text(need.name), Text(need.detail), Text("" if need.is_met else need.remedy))
    return table
