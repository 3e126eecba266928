"""From a module to an artifact and back, with the real judge, backend and store, on programs of a few kilobytes."""

import json
import shutil
import warnings

import pytest
import torch
from torch import nn

from modelblaster import api
from modelblaster.errors import ArtifactError, ProblemError, RunError
from modelblaster.records.result import BestKind
from modelblaster.records.task import Budget
from modelblaster.runs.run import Run
from modelblaster.task.problem import from_module, load_problem

PROBLEM = """
import torch
from torch import nn

SIZE = 64


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.linear = nn.Linear(SIZE, SIZE)
        self.scale = nn.Parameter(torch.full((SIZE,), scale))
        self.table = torch.linspace(-1, 1, SIZE)

    def forward(self, x, bias):
        y = self.linear(torch.tanh(x * self.scale + bias) * self.table)
        return {"y": torch.softmax(y, -1), "top": (y.amax(-1), y.argmax(-1))}


def get_inputs():
    return [torch.randn(512, SIZE), torch.randn(SIZE)]


def get_init_inputs():
    return [1.5]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module", autouse=True)
def _environment(home):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODELBLASTER_HOME", str(home))
        yield


@pytest.fixture(scope="module")
def problem_file(home):
    path = home / "problem.py"
    path.write_text(PROBLEM)
    return path


def always_win(monkeypatch):
    """The machine decides what is faster; these tests are about what is handed out."""
    monkeypatch.setattr("modelblaster.records.timing.WIN_MARGIN", -1.0)
    monkeypatch.setattr("modelblaster.search.trial.WIN_MARGIN", -1.0)
    monkeypatch.setattr("modelblaster.search.loop._is_better", lambda _, trial: trial.comparison is not None)


@pytest.fixture(scope="module")
def result(problem_file, home):
    with pytest.MonkeyPatch.context() as patch:
        always_win(patch)
        options = api.Options(budget=Budget(steps=2), home=home)
        return api.optimize_problem(load_problem(str(problem_file)), options)


def test_a_program_of_kernels_and_library_calls_is_verified(result):
    assert result.verdict.passed
    assert result.best.kind is BestKind.KERNELS
    assert result.candidates.built == 2
    assert {slot.family for slot in result.slots} == {"map", "row_reduction", "library"}
    assert len([case for case in result.verdict.cases if case.case.startswith("secret")]) > 0


def test_the_artifact_is_a_drop_in_module(result, problem_file):
    fast = api.load(result.artifact)
    problem = load_problem(str(problem_file))
    reference, inputs = problem.module(), problem.inputs(7)
    with torch.no_grad():
        found, again, expected = fast(*inputs), fast(*inputs), reference(*inputs)
    assert list(found) == ["y", "top"]
    torch.testing.assert_close(found["y"], expected["y"])
    torch.testing.assert_close(found["top"][0], expected["top"][0])
    assert torch.equal(found["top"][1], expected["top"][1])
    assert found["y"].data_ptr() != again["y"].data_ptr()


def test_other_weights_are_seen_at_the_next_call(result, problem_file):
    problem = load_problem(str(problem_file))
    other = problem.module(seed=5)
    fast = api.load(result.artifact, problem.module())
    inputs = problem.inputs(3)
    with torch.no_grad():
        fast(*inputs)
        fast.reference.load_state_dict(other.state_dict())
        torch.testing.assert_close(fast(*inputs)["y"], other(*inputs)["y"])
        fast.reference.linear.weight.mul_(2.0)
        other.linear.weight.mul_(2.0)
        torch.testing.assert_close(fast(*inputs)["y"], other(*inputs)["y"])
        fast.reference.scale = nn.Parameter(torch.zeros(64))
        other.scale = nn.Parameter(torch.zeros(64))
        torch.testing.assert_close(fast(*inputs)["y"], other(*inputs)["y"])


@pytest.mark.parametrize("change", ["shape", "strides", "dtype", "gradients"])
def test_outside_its_guards_the_reference_runs_and_says_so_once(result, problem_file, change):
    problem = load_problem(str(problem_file))
    fast, (x, bias) = api.load(result.artifact, problem.module()), problem.inputs(0)
    if change == "shape":
        x = x[:100]
    elif change == "strides":
        x = x.t().contiguous().t()
    elif change == "dtype":
        fast, x, bias = fast.double(), x.double(), bias.double()
        fast.reference.table = fast.reference.table.double()
    with torch.set_grad_enabled(change == "gradients"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            found = fast(x, bias)
        expected = fast.reference(x, bias)
    torch.testing.assert_close(found["y"], expected["y"])
    assert len([warning for warning in caught if "running the reference" in str(warning.message)]) == 1
    assert found["y"].requires_grad == (change == "gradients")


@pytest.mark.parametrize("file", ["plan.json", "constants.bin", "artifact.json", "added.txt", "sources", "objects"])
def test_a_changed_artifact_is_refused(result, tmp_path, file):
    copy = tmp_path / "copy"
    shutil.copytree(result.artifact, copy)
    target = copy / file
    if target.is_dir():
        target = next(path for path in target.rglob("*") if path.is_file())
    text = target.read_bytes() if target.exists() else b""
    if file == "artifact.json":
        target.write_bytes(text.replace(b'"schema": "modelblaster.artifact/1"', b'"schema": "modelblaster.artifact/9"'))
    else:
        target.write_bytes(text + b" ")
    with pytest.raises(ArtifactError):
        api.load(copy)


def test_an_artifact_of_another_program_is_refused(result, tmp_path):
    with pytest.raises(ArtifactError, match="another program"):
        api.load(result.artifact, nn.Linear(64, 64))
    other = tmp_path / "other.py"
    other.write_text(PROBLEM.replace("SIZE = 64", "SIZE = 32"))
    with pytest.raises(ArtifactError, match="another program"):
        api.verify(load_problem(str(other)), api.Path(result.artifact))


def test_verify_repeats_the_verdict(result, problem_file):
    artifact, evidence = api.verify(load_problem(str(problem_file)), api.Path(result.artifact))
    assert evidence.verdict.passed
    assert evidence.comparison is not None
    assert str(artifact.path) == result.artifact


def test_verify_refuses_a_wrong_program(result, problem_file, tmp_path):
    """The same shapes, another function: the hashes cannot know, the judge does."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(PROBLEM.replace("torch.tanh(x * self.scale", "torch.sin(x * self.scale"))
    _, evidence = api.verify(load_problem(str(wrong)), api.Path(result.artifact))
    assert evidence.verdict.cause.value == "wrong"


def test_another_device_rebuilds_and_checks_again(result, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(result.artifact, copy)
    manifest = json.loads((copy / "artifact.json").read_text())
    (copy / "artifact.json").write_text(json.dumps({**manifest, "device": "another processor"}))
    with pytest.warns(UserWarning, match="proved again"):
        api.load(copy)


def test_a_finished_run_is_not_run_again(result, home):
    assert api.resume(home / "runs" / result.run) == result


def test_an_interrupted_run_goes_on_where_it_was(result, problem_file, home, monkeypatch):
    """Cut the journal after its first finished step: that step is not repeated, and nothing of it is lost."""
    always_win(monkeypatch)
    copy = home / "runs" / "interrupted"
    shutil.copytree(home / "runs" / result.run, copy)
    lines = (copy / "journal.jsonl").read_text().splitlines(keepends=True)
    first = next(index for index, line in enumerate(lines) if '"type": "StepFinished"' in line)
    (copy / "journal.jsonl").write_text("".join(lines[: first + 1]) + lines[first + 1][:20])
    shutil.rmtree(copy / "best")
    resumed = api.resume(copy)
    assert resumed.verdict.passed
    assert resumed.steps == 2
    assert resumed.candidates.built == 2
    state = Run(copy).state()
    assert state.is_finished
    assert resumed.artifact == str(copy / "best")


def test_what_cannot_be_traced_stays_as_it_is(home):
    class Branches(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else x + 1

    options = api.Options(budget=Budget(steps=1), home=home)
    found = api.optimize_problem(from_module(Branches(), [torch.ones(4)]), options)
    assert found.verdict.passed
    assert "the reference is kept" in found.verdict.detail
    assert found.best.kind is BestKind.REFERENCE
    assert found.speedup.over_eager == 1.0
    assert found.artifact is None


def test_a_reference_that_fails_when_called_is_refused(home):
    class Fails(nn.Module):
        def forward(self, x):
            raise RuntimeError("no\nway")

    options = api.Options(budget=Budget(steps=1), home=home)
    with pytest.raises(ProblemError, match="forward fails: RuntimeError: no way"):
        api.optimize_problem(from_module(Fails(), [torch.ones(4)]), options)


def test_a_run_of_a_live_module_needs_it_again(home):
    with pytest.raises(RunError):
        api.resume(home / "runs" / "nothing")
