"""Wrong use of the commands: one clear line, exit code 2, no traceback, and nothing lost."""

from __future__ import annotations

import errno
import json
import os

import pytest

from modelblaster.cli import main

GOOD = """
import torch
SIZE = 8
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(SIZE, SIZE)]
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    path = tmp_path / "home"
    monkeypatch.setenv("MODELBLASTER_HOME", str(path))
    return path


@pytest.fixture
def refused(capsys):
    """Run a command that must be refused; its line."""

    def run(*words: object) -> str:
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        assert code == 2, (code, shown)
        (line,) = shown.err.strip().splitlines()
        assert "Traceback" not in shown.err
        return line

    return run


def write(tmp_path, text, name="problem.py"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD.replace("class Model", "class Net"), "Model"),
        (GOOD.replace("get_inputs", "make_inputs"), "get_inputs"),
        (GOOD + "\nraise ValueError('at import')", "at import"),
        (GOOD + "\nimport sys; sys.exit(3)", "SystemExit"),
        (GOOD.replace("torch.relu(x)", "torch.relu(x) + undefined"), "undefined"),
        ("def (", "line 1"),
    ],
)
def test_a_problem_that_cannot_be_used(home, tmp_path, refused, text, says):
    assert says in refused("optimize", write(tmp_path, text), "--steps", 1)


def test_a_file_that_is_not_there(home, tmp_path, refused):
    assert "no such file" in refused("optimize", tmp_path / "nothing.py")
    assert "folder" in refused("optimize", tmp_path)


@pytest.mark.parametrize("setting", ["SIZES=4", "SIZE", "SIZE=import os", "=3"])
def test_a_setting_that_does_not_fit(home, tmp_path, refused, setting):
    assert "SIZE" in refused("optimize", write(tmp_path, GOOD), "--set", setting) or setting == "=3"


def test_an_unknown_backend_names_the_known_ones(home, tmp_path, refused):
    assert "cpu" in refused("optimize", write(tmp_path, GOOD), "--backend", "abacus")


@pytest.mark.parametrize("words", [("--precision", "fp8"), ("--mode", "test"), ("--seconds", "-1"), ("--no-such",)])
def test_an_option_that_does_not_exist(home, tmp_path, refused, words):
    refused("optimize", write(tmp_path, GOOD), *words)


def test_no_compiler(home, tmp_path, refused, monkeypatch):
    monkeypatch.setenv("MODELBLASTER_CC", "/no/such/compiler")
    assert "compiler" in refused("optimize", write(tmp_path, GOOD), "--steps", 1)


def test_a_home_that_cannot_be_a_folder(tmp_path, refused, monkeypatch):
    for place in (write(tmp_path, "", "file"), "/proc/no-home"):
        monkeypatch.setenv("MODELBLASTER_HOME", str(place))
        assert str(place) in refused("optimize", write(tmp_path, GOOD), "--steps", 1)


def test_a_full_disk(home, tmp_path, refused, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in refused("optimize", write(tmp_path, GOOD), "--steps", 1)


def test_a_foreign_artifact(home, tmp_path, refused):
    artifact = tmp_path / "artifact"
    artifact.mkdir()
    problem = write(tmp_path, GOOD)
    assert "no artifact" in refused("verify", problem, artifact)
    (artifact / "artifact.json").write_text(json.dumps({"schema": "another/1"}))
    assert "another/1" in refused("verify", problem, artifact)


def test_a_run_that_is_not_there(home, refused):
    for command in ("show", "resume"):
        assert "runs list" in refused("runs", command, "nothing")


def test_with_json_the_refusal_is_an_object_too(home, tmp_path, capsys):
    assert main(["optimize", str(tmp_path / "nothing.py"), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "modelblaster.error/1"
    assert found["error"]["kind"] == "ProblemError"
