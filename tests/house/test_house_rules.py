"""Each house rule finds a planted violation, leaves what is allowed alone, and holds for the package as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from checks.backend_names import named_backends
from checks.ratchet import counts, read, risen, write
from checks.rooms import broken_imports
from checks.sizes import FUNCTION_LINES, MODULE_LINES, too_large
from checks.source import read_package

ROOT = Path(__file__).parents[2]


@pytest.fixture
def plant(tmp_path: Path):
    """Write `files` (path in the package → text) and parse the package."""

    def plant(**files: str):
        for name, text in files.items():
            path = tmp_path / "src" / "modelblaster" / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return read_package(tmp_path / "src")

    return plant


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("records__plan", "import modelblaster.errors"),
        ("records__plan", "from modelblaster.task import problem"),
        ("task__problem", "from modelblaster.runs.home import home"),
        ("kernels__emit", "from modelblaster.program.slots import cut"),
        ("runs__home", "import modelblaster.task.problem"),
        ("knowledge__store", "from modelblaster.judge import judge"),
        ("backends__cpu__runner", "from modelblaster.program.capture import capture"),
        ("backends__cpu__runner", "from modelblaster import judge"),
        ("backends__interface", "from modelblaster.kernels.emit import emit"),
        ("judge__judge", "from modelblaster.backends.registry import get"),
        ("judge__judge", "from modelblaster.search.loop import run"),
        ("search__loop", "from modelblaster.backends.cpu import CpuBackend"),
        ("search__loop", "from modelblaster.model.rounds import rounds"),
        ("agents__actor", "from modelblaster.search.loop import run"),
        ("search__loop", "def f():\n    from modelblaster.api import optimize"),
        ("search__loop", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import modelblaster.cli"),
        ("report__console", "import modelblaster.cli.optimize"),
        ("api", "from modelblaster import cli"),
        ("basement__x", "import os"),
    ],
)
def test_imports_that_a_room_may_not_make(plant, module: str, statement: str) -> None:
    files = plant(**{module: statement, "judge____init__": "", "cli____init__": ""})
    assert len(list(broken_imports(files))) == 1


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("records__plan", "from modelblaster.records.tensor import DType\nimport json"),
        ("task__problem", "from modelblaster.records.task import Task\nfrom modelblaster import errors"),
        ("program__slots", "from modelblaster.kernels.builder import NestBuilder"),
        ("backends__cpu__runner", "from modelblaster.kernels import dialect\nimport modelblaster.runs.home"),
        ("backends__cpu__torch_runner", "from modelblaster.program.library import interpret"),
        ("judge__judge", "from modelblaster.backends.interface import Backend"),
        ("search__loop", "from modelblaster.backends.registry import get\nfrom modelblaster.agents import scripted"),
        ("cli__optimize", "from modelblaster.report.console import show\nfrom modelblaster import optimize"),
        ("__init__", "from modelblaster.api import optimize"),
        ("__main__", "from modelblaster.cli import main"),
    ],
)
def test_imports_that_a_room_may_make(plant, module: str, statement: str) -> None:
    files = plant(**{module: statement, "kernels__dialect": "", "errors": ""})
    assert list(broken_imports(files)) == []


def test_sizes(plant) -> None:
    body = "\n".join(f"    x{i} = {i}" for i in range(FUNCTION_LINES - 1))
    fits = f"def f():\n{body}\n"
    assert list(too_large(plant(api=fits + "\n" * (MODULE_LINES - FUNCTION_LINES)))) == []
    assert "f: 61 lines" in str(next(too_large(plant(api=fits + "    y = 1\n"))))
    assert "async_f" in str(next(too_large(plant(api=fits.replace("def f", "async def async_f") + "    y = 1\n"))))
    assert "401 lines" in str(next(too_large(plant(api="\n" * (MODULE_LINES + 1)))))


def test_names_that_say_nothing(plant) -> None:
    assert len(list(too_large(plant(judge__utils="", judge__timing_helpers="")))) == 2


@pytest.mark.parametrize(
    "code",
    [
        "import cuda",
        "def to_opencl(): pass",
        "class RvvThing: pass",
        "backend = 'cuda'",
        "if name == 'opencl': pass",
        "machine = 'x86_64'",
        "text = f'for {1} rvv'",
        "torch.cuda.synchronize()",
        "f(backend='cuda')",
        "def f(x86=1): pass",
        "{'cuda': 1}",
        "x.to_backend('cuda')",
    ],
)
def test_backends_named_in_code(plant, code: str) -> None:
    assert len({finding.line for finding in named_backends(plant(search__loop=code))}) == 1


@pytest.mark.parametrize(
    "code",
    [
        '"""Works with cuda and x86."""',
        "def f():\n    '''For opencl.'''\n",
        "x = 1\n'cuda is documented here'",
        "x = 1  # on rvv this is slow",
        "torch.device('cuda:0')",
        "tensor.to('cuda')",
        "torch.ones(3, device='cuda')",
        "if tensor.device.type == 'cuda': pass",
        "is_gpu = tensor.device.type in ('cuda', 'xpu')",
    ],
)
def test_words_that_are_free(plant, code: str) -> None:
    assert list(named_backends(plant(search__loop=code))) == []


def test_backends_may_be_named_at_home_and_not_by_a_file_elsewhere(plant) -> None:
    assert list(named_backends(plant(backends__cuda__runner="backend = 'cuda'"))) == []
    assert len(list(named_backends(plant(kernels__opencl="")))) == 1


def test_the_ratchet(plant, tmp_path: Path) -> None:
    text = (
        "from typing import Any\n"
        "def public(x: dict[str, Any], *, y: Any) -> Any: ...\n"
        "def _private(x: Any) -> None: ...\n"
        "class Public:\n    def method(self, x: Any) -> None: ...\n    def _inner(self) -> Any: ...\n"
        "z = 1  # type: ignore[assignment]\nw = 2  # noqa: F821\nnot_one = '# noqa'\n"
    )
    files = plant(api=text)
    assert counts(files) == {"public_any": 4, "type_ignore": 1, "noqa": 1}
    record = tmp_path / "ratchet.toml"
    write(record, {"public_any": 3, "type_ignore": 1, "noqa": 2})
    assert [finding.message for finding in risen(files, record)] == ["public_any: 4, was 3; this may only fall"]
    write(record, counts(files))
    assert read(record) == counts(files)
    assert list(risen(files, record)) == []


def test_the_package_keeps_the_rules() -> None:
    ran = subprocess.run([sys.executable, "-m", "checks"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 findings" in ran.stdout
