from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from modelblaster import cli
from modelblaster.backends import registry
from modelblaster.backends.interface import Requirement

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Planted:
    """A backend that only knows what it needs."""

    needs: tuple[Requirement, ...]

    def requirements(self) -> tuple[Requirement, ...]:
        return self.needs

    def device(self) -> str:
        return "a device [of the test]"

    def isolation(self) -> str:
        return "a wall"


COMPILER = Requirement("compiler", is_met=False, is_required=True, detail="no gcc", remedy="apt-get install gcc")
SANDBOX = Requirement("sandbox", is_met=False, is_required=False, detail="none", remedy="apt-get install sandbox")
FOUND = Requirement("library", is_met=True, is_required=True, detail="version 3")


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def backends(**needs: tuple[Requirement, ...]) -> None:
        monkeypatch.setattr(registry, "names", lambda: tuple(needs))
        monkeypatch.setattr(registry, "get", lambda name: Planted(needs[name]))

    monkeypatch.setenv("MODELBLASTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    return backends


def test_a_machine_where_nothing_works(backends, capsys: pytest.CaptureFixture[str]) -> None:
    backends(first=(COMPILER, FOUND))
    assert cli.main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "cannot work here" in shown
    assert "apt-get install gcc" in shown


def test_optional_things_do_not_matter(backends, capsys: pytest.CaptureFixture[str]) -> None:
    backends(first=(COMPILER,), second=(SANDBOX, FOUND))
    assert cli.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "second works here a device [of the test]" in shown
    assert "apt-get install sandbox" in shown
    assert "a wall" in shown


def test_as_json(backends, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    backends(first=(COMPILER,), second=(SANDBOX, FOUND))
    assert cli.main(["doctor", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "modelblaster.doctor/1"
    assert answer["default"] == "second"
    assert [backend["works"] for backend in answer["backends"]] == [False, True]
    assert answer["backends"][0]["requirements"][0]["remedy"] == "apt-get install gcc"
    assert answer["home"] == {"path": str(tmp_path / "home"), "is_writable": True, "detail": ""}
    assert answer["versions"]["torch"]


def test_a_home_that_cannot_be_written(
    backends, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MODELBLASTER_HOME", str(tmp_path / "file" / "home"))
    backends(first=(FOUND,))
    assert cli.main(["doctor", "--json"]) == 0
    home = json.loads(capsys.readouterr().out)["home"]
    assert not home["is_writable"]
    assert home["detail"]


def test_the_backends_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    monkeypatch.setenv("MODELBLASTER_HOME", str(tmp_path))
    assert cli.main(["doctor", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["default"] in registry.names()
    assert all(need["detail"] for backend in answer["backends"] for need in backend["requirements"])
