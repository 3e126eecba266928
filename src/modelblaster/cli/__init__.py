"""The `modelblaster` command: one file for each subcommand, imported only when it is called.

A subcommand NAME lives in `cli/NAME.py`, which defines NAME as a function with typer annotations, or as a `typer.Typer`
where it has subcommands of its own. It returns nothing or an exit code: 0 success, 1 the work failed. Wrong use is an
exception (`errors.UserError` or typer's own) that becomes one line on standard error and exit code 2; with `--json`
standard output gets one object as well: `{"schema": "modelblaster.error/1", "error": {"kind": …, "message": …}}`.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from typer.exceptions import TyperException

from modelblaster.errors import StorageError, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Listed:
    """A subcommand as the overview shows it, without importing it."""

    name: str
    summary: str


COMMANDS = (
    Listed("optimize", "Search for a faster implementation of a program and prove that it computes the same."),
    Listed("verify", "Judge a candidate or an artifact against a problem, without a search."),
    Listed("runs", "List, show and resume runs."),
    Listed("doctor", "Say what works on this machine, and what to install."),
)

WRONG_USE = 2
INTERRUPTED = 130
_STORAGE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. `arguments` are those of the process by default."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        sys.stdout.flush()
    except UserError as error:
        return _refuse(words, type(error).__name__, str(error))
    except TyperException as error:
        return _refuse(words, "UsageError", _usage(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        _silence_output()
        return 1
    except OSError as error:
        if error.errno not in _STORAGE_ERRORS:
            raise
        return _refuse(words, StorageError.__name__, _storage(error))
    return code


def command() -> int:
    """The installed command: `main`, and an end that threads which were left running cannot hold up or disturb."""
    code = main()
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def application(words: Sequence[str]) -> typer.Typer:
    """The command line with the one subcommand that `words` call, if they call any; the others are only listed."""
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback(help="Makes PyTorch programs faster and proves that they still compute the same.")(_options)
    called = next((word for word in words if not word.startswith("-")), None)
    for command in COMMANDS:
        if command.name != called:
            app.command(command.name, help=command.summary)(_only_listed)
            continue
        found = getattr(importlib.import_module(f"modelblaster.cli.{command.name}"), command.name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=command.name, help=command.summary)
        else:
            app.command(command.name)(found)
    return app


def _run(words: list[str]) -> int:
    command = typer.main.get_command(application(words))
    result = command.main(args=words or ["--help"], prog_name="modelblaster", standalone_mode=False)
    return result if isinstance(result, int) else 0


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        typer.echo(f"modelblaster {version('modelblaster')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


def _only_listed() -> None:
    """Stands for a subcommand that is shown in the overview and was not called."""


def _refuse(words: Sequence[str], kind: str, message: str) -> int:
    """Say in one line what is wrong, as JSON too where JSON was asked for."""
    line = " ".join(message.split())
    if line:
        typer.echo(f"modelblaster: {line}", err=True)
    if "--json" in words:
        error = {"schema": "modelblaster.error/1", "error": {"kind": kind, "message": line}}
        typer.echo(json.dumps(error))
    return WRONG_USE


def _usage(error: TyperException) -> str:
    """The message and where to read on; empty where the help itself was the answer (a group without a subcommand)."""
    message = error.format_message()
    if not message:
        return ""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "modelblaster"
    ending = "" if message.endswith((".", "?")) else "."
    return f"{message}{ending} Try '{command} --help'"


def _storage(error: OSError) -> str:
    what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return f"{what}. Runs and memory are written under MODELBLASTER_HOME; point it at a folder with space and rights"


def _silence_output() -> None:
    """Nobody reads any more: the interpreter's own flush at its end must not complain about it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
