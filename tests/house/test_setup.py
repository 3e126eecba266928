"""`tools/setup`, the Makefile and `.ci/run`, with recorders in place of the programs that they call."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDER = '#!/bin/sh\necho "{name} $*" >> "{log}"\n{action}\n'
MAKE_VENV = 'if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi'


class Machine:
    """A PATH with nothing but a shell's basics and recorders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.log = folder / "log"
        self.log.touch()
        for name in ("bash", "dirname", "sh", "mkdir", "cp"):
            (self.folder / name).symlink_to(str(shutil.which(name)))

    def has(self, name: str, action: str = "") -> None:
        path = self.folder / name
        path.write_text(RECORDER.format(name=name, log=self.log, action=action))
        path.chmod(0o755)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.folder)}
        bash = str(self.folder / "bash")
        return subprocess.run([bash, *command], env=environment, capture_output=True, text=True, cwd=ROOT)

    def calls(self, name: str) -> list[str]:
        lines = self.log.read_text().splitlines()
        return [line.removeprefix(name).strip() for line in lines if line.startswith(name)]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.has("python3", MAKE_VENV)
    machine.has("id", "echo 1000")
    return machine


def setup(machine: Machine, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    ran = machine.run(str(ROOT / "tools/setup"), "python3", str(tmp_path / "venv"))
    assert ran.returncode == 0, ran.stderr
    return ran


def test_a_machine_that_has_everything(machine: Machine, tmp_path: Path) -> None:
    machine.has("gcc")
    machine.has("bwrap")
    ran = setup(machine, tmp_path)
    assert ran.stdout + ran.stderr == ""
    assert machine.calls("python3")[-1].endswith("-c constraints.txt -e .[dev]")


def test_without_rights_it_says_what_to_install_and_goes_on(machine: Machine, tmp_path: Path) -> None:
    machine.has("apt-get")
    ran = setup(machine, tmp_path)
    assert "apt-get install gcc bubblewrap" in ran.stderr
    assert machine.calls("apt-get") == []
    assert machine.calls("python3")[-1].endswith("-e .[dev,compiler]")


def test_as_root_it_installs(machine: Machine, tmp_path: Path) -> None:
    machine.has("id", "echo 0")
    machine.has("apt-get", f'if [ "$1" = install ]; then cp {machine.folder}/id {machine.folder}/gcc; fi')
    machine.has("bwrap")
    setup(machine, tmp_path)
    assert machine.calls("apt-get")[-1].split()[-1] == "gcc"
    assert machine.calls("python3")[-1].endswith("-e .[dev]")


def test_a_failing_installation_does_not_stop_it(machine: Machine, tmp_path: Path) -> None:
    machine.has("id", "echo 0")
    machine.has("apt-get", "exit 100")
    ran = setup(machine, tmp_path)
    assert "could not install gcc bubblewrap; going on" in ran.stderr
    assert machine.calls("python3")[-1].endswith("-e .[dev,compiler]")


@pytest.mark.parametrize(("failing", "expected"), [("", 0), ("check", 1), ("test", 1)])
def test_ci_runs_both_and_fails_with_either(machine: Machine, failing: str, expected: int) -> None:
    machine.has("make", f'read line && exit 3; test "$1" != "{failing}"')
    assert machine.run(str(ROOT / ".ci/run")).returncode == expected
    assert machine.calls("make") == (["check"] if failing == "check" else ["check", "test"])


def test_set_up_is_repeated_only_when_its_files_change(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "tools/setup"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)

    def planned() -> str:
        return subprocess.run(["make", "-n", "test"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "tools/setup" in planned()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.installed").touch()
    assert "tools/setup" not in planned()
    assert "pytest" in planned()
    (tmp_path / "constraints.txt").write_text("# changed\n")
    subprocess.run(["touch", "-d", "+5 seconds", str(tmp_path / "constraints.txt")], check=True)
    assert "tools/setup" in planned()
