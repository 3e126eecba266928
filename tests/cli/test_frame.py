from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
import typer

from modelblaster import cli
from modelblaster.errors import ProblemError

COMMAND = str(Path(sys.executable).with_name("modelblaster"))


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch):
    """Add a subcommand `planted` that does what it is given."""

    def plant(action, *, as_group: bool = False) -> None:
        def planted(target: str = "", as_json: Annotated[bool, typer.Option("--json")] = False) -> object:
            return action()

        module = ModuleType("modelblaster.cli.planted")
        module.planted = planted
        if as_group:
            module.planted = typer.Typer()
            module.planted.command("first")(planted)
            module.planted.command("second")(planted)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(cli, "COMMANDS", (*cli.COMMANDS, cli.Listed("planted", "Only for the test.")))

    return plant


def raising(error: BaseException):
    def action() -> None:
        raise error

    return action


def test_help_shows_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["-h"], []):
        assert cli.main(words) == 0
        shown = capsys.readouterr().out
        for name in ("optimize", "verify", "runs", "doctor"):
            assert name in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    name, number = capsys.readouterr().out.split()
    assert name == "modelblaster"
    assert number[0].isdigit()


def test_exit_codes_of_commands(plant) -> None:
    results = iter([None, 0, 1])
    plant(lambda: next(results))
    assert [cli.main(["planted"]) for _ in range(3)] == [0, 0, 1]


def test_an_exit_raised_by_a_command(plant) -> None:
    plant(raising(typer.Exit(1)))
    assert cli.main(["planted"]) == 1


def test_a_command_with_subcommands(plant) -> None:
    plant(lambda: 1, as_group=True)
    assert cli.main(["planted", "second"]) == 1
    assert cli.main(["planted", "third"]) == 2


def test_wrong_use_is_one_line(plant, capsys: pytest.CaptureFixture[str]) -> None:
    plant(raising(ProblemError("no such\nfile")))
    assert cli.main(["planted"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "modelblaster: no such file\n"


def test_wrong_use_as_json(plant, capsys: pytest.CaptureFixture[str]) -> None:
    plant(raising(ProblemError("no such file")))
    assert cli.main(["planted", "--json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "schema": "modelblaster.error/1",
        "error": {"kind": "ProblemError", "message": "no such file"},
    }
    assert captured.err == "modelblaster: no such file\n"


@pytest.mark.parametrize("words", [["planted", "--none"], ["plnted"], ["planted", "surplus"], ["--none"]])
def test_usage_errors(plant, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    plant(lambda: None)
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("modelblaster: ")
    assert captured.err.count("\n") == 1
    assert "--help'" in captured.err
    assert cli.main([*words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "UsageError"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_home_that_cannot_be_written(plant, capsys: pytest.CaptureFixture[str], code: int) -> None:
    plant(raising(OSError(code, os.strerror(code), "/home/x/run")))
    assert cli.main(["planted", "--json"]) == 2
    captured = capsys.readouterr()
    assert f"/home/x/run: {os.strerror(code)}" in captured.err
    assert "MODELBLASTER_HOME" in captured.err
    assert json.loads(captured.out)["error"]["kind"] == "StorageError"


def test_other_errors_are_not_hidden(plant) -> None:
    plant(raising(OSError(errno.EIO, "broken")))
    with pytest.raises(OSError, match="broken"):
        cli.main(["planted"])
    plant(raising(ValueError("a mistake of ours")))
    with pytest.raises(ValueError, match="a mistake of ours"):
        cli.main(["planted"])


def test_an_interruption(plant) -> None:
    plant(raising(KeyboardInterrupt()))
    assert cli.main(["planted"]) == 130


def test_a_reader_that_leaves_early() -> None:
    """`modelblaster --help | head` prints no complaint."""
    read, write = os.pipe()
    os.close(read)
    try:
        ran = subprocess.run([COMMAND, "--help"], stdout=write, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(write)
    assert ran.stderr == ""
    assert ran.returncode == 1


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from modelblaster import cli; cli.main(['--help'])\n"
        "print('heavy:', sorted(set(sys.modules) & "
        "{'torch', 'numpy', 'sqlalchemy', 'pydantic', 'cloudpickle', 'matplotlib', 'modelblaster.backends.registry'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "heavy: []"


def test_help_is_quick() -> None:
    def seconds() -> float:
        start = time.perf_counter()
        subprocess.run([COMMAND, "--help"], stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.5
