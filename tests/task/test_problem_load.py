from __future__ import annotations

import dataclasses
import inspect
import random
import subprocess
import sys
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch

from modelblaster.errors import OverrideError, ProblemError
from modelblaster.records.codec import from_json, to_json
from modelblaster.records.task import Mode, ProblemSource, SourceKind
from modelblaster.task.problem import from_module, load_problem, rebuild

GOOD = """
import torch
from torch import nn

features = 6
hidden = features * 2

class Model(nn.Module):
    def __init__(self, features, hidden):
        super(Model, self).__init__()
        self.linear = nn.Linear(features, hidden)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, labels, scale, extra):
        return self.drop(self.linear(x)) * scale, labels

def get_inputs():
    return [torch.randn(4, features), torch.randint(0, 5, (4,)), 2.5, [torch.ones(2, dtype=torch.bool), None]]

def get_init_inputs():
    return [features, hidden]
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str, name: str = "some_problem.py") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def use(target: str) -> None:
    problem = load_problem(target)
    problem.module()
    problem.inputs()


def failure(target: str) -> str:
    """The one line that a person gets."""
    with pytest.raises(ProblemError) as caught:
        use(target)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_in_the_common_format(write) -> None:
    problem = load_problem(write(GOOD))
    module, inputs = problem.module(), problem.inputs()
    assert not module.training
    output, labels = module(*inputs)
    assert output.shape == (4, 12)
    assert labels.dtype is torch.int64
    assert inputs[2] == 2.5
    assert inputs[3][0].dtype is torch.bool
    assert inputs[3][1] is None


def test_overrides_reach_what_is_derived(write) -> None:
    problem = load_problem(write(GOOD), ["features=3"])
    assert problem.module().linear.weight.shape == (6, 3)
    assert problem.inputs()[0].shape == (4, 3)
    assert problem.source.overrides == (("features", "3"),)
    assert "features = 3" in problem.source.text


def test_modes(write) -> None:
    problem = load_problem(write(GOOD))
    assert problem.module(Mode.TRAIN).training
    assert problem.module(Mode.TRAIN).drop.training
    assert not problem.module(Mode.EVAL).drop.training


def test_a_seed_gives_the_same_weights_and_inputs(write) -> None:
    problem = load_problem(write(GOOD))
    again = load_problem(write(GOOD))
    for seed in (0, 7):
        assert torch.equal(problem.inputs(seed)[0], again.inputs(seed)[0])
        assert torch.equal(problem.module(seed=seed).linear.weight, again.module(seed=seed).linear.weight)
    assert not torch.equal(problem.inputs(0)[0], problem.inputs(1)[0])
    assert not torch.equal(problem.module(seed=0).linear.weight, problem.module(seed=1).linear.weight)


def test_every_generator_is_seeded_and_restored(write) -> None:
    text = GOOD.replace(
        "return [torch.randn(4, features)",
        "import random, numpy\n    return [torch.full((4, 6), random.random() + numpy.random.rand())",
    )
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(1)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    problem = load_problem(write(text))
    problem.module(seed=3)
    assert torch.equal(problem.inputs(5)[0], problem.inputs(5)[0])
    assert not torch.equal(problem.inputs(5)[0], problem.inputs(6)[0])
    assert (random.random(), np.random.rand(), torch.rand(1)) == expected


def test_settings_hold_for_the_problem_and_nobody_else(write) -> None:
    text = "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)\n" + GOOD
    text = text.replace("def get_inputs():", "def get_inputs():\n    assert not torch.is_grad_enabled()")
    path = list(sys.path)
    problem = load_problem(write(text))
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()
    assert problem.module().linear.weight.dtype is torch.float64
    assert problem.inputs()[0].dtype is torch.float64
    assert torch.get_default_dtype() is torch.float32
    assert sys.path == path


def test_settings_are_restored_after_a_failure(write) -> None:
    failure(write("import torch\ntorch.set_default_dtype(torch.float64)\n1 / 0"))
    assert torch.get_default_dtype() is torch.float32


def test_prints_go_to_standard_error(write, capsys: pytest.CaptureFixture[str]) -> None:
    problem = load_problem(write("print('one')\n" + GOOD.replace("return [f", "print('two'); return [f")))
    problem.module()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.split() == ["one", "two"]


def test_files_and_modules_beside_it(write, tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("6")
    (tmp_path / "sibling_of_problem.py").write_text("VALUE = 4\n")
    text = GOOD.replace(
        "features = 6",
        "from pathlib import Path\nimport sibling_of_problem\n"
        "features = int(Path(__file__).with_name('numbers.txt').read_text()) + sibling_of_problem.VALUE",
    )
    assert load_problem(write(text)).inputs()[0].shape == (4, 10)


def test_dataclasses_and_source_text(write) -> None:
    text = "from __future__ import annotations\nimport dataclasses\n" + GOOD.replace(
        "class Model", "@dataclasses.dataclass\nclass Config:\n    width: int = 3\n\nclass Model"
    )
    problem = load_problem(write(text), ["features=5"])
    module = sys.modules[type(problem.module()).__module__]
    assert [field.name for field in dataclasses.fields(module.Config)] == ["width"]
    assert "return self.drop(self.linear(x)) * scale" in inspect.getsource(type(problem.module()).forward)


def test_a_module_travels_to_another_process(write, tmp_path: Path) -> None:
    problem = load_problem(write(GOOD))
    packed = tmp_path / "packed"
    packed.write_bytes(cloudpickle.dumps((problem.module(seed=3), problem.inputs(3))))
    code = (
        "import pickle, sys; module, inputs = pickle.load(open(sys.argv[1], 'rb')); "
        "print(module(*inputs)[0].double().sum().item())"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(packed)], capture_output=True, text=True, check=True)
    expected = problem.module(seed=3)(*problem.inputs(3))[0].double().sum().item()
    assert float(ran.stdout) == pytest.approx(expected, rel=1e-6)


def test_a_record_rebuilds_it_when_the_file_has_gone(write) -> None:
    target = write(GOOD)
    problem = load_problem(target, ["features=3"])
    text = to_json(problem.source)
    Path(target).unlink()
    again = rebuild(from_json(ProblemSource, text))
    assert torch.equal(again.module(seed=2).linear.weight, problem.module(seed=2).linear.weight)
    assert "nn.Linear" in inspect.getsource(type(again.module()).__init__)


def test_inputs_lose_their_gradients(write) -> None:
    problem = load_problem(write(GOOD.replace("randn(4, features)", "randn(4, features, requires_grad=True)")))
    assert not problem.inputs()[0].requires_grad


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = (", "line 1: "),
        ("import torch\n", "no class Model"),
        ("Model = 3\n", "Model is no subclass of torch.nn.Module"),
        ("class Model: pass\n", "Model is no subclass of torch.nn.Module"),
        ("a = 1\nimport not_there_at_all\n", "line 2: ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("raise ValueError('first\\nsecond')\n", "line 1: ValueError: first second"),
        ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3"),
        (GOOD.replace("def get_inputs", "def other"), "no function get_inputs()"),
        (GOOD.replace("return [features, hidden]", "return 5"), "get_init_inputs() returned an int, not a list"),
        (GOOD.replace("return [features, hidden]", "return [1]"), "making the model: TypeError: "),
        (
            GOOD.replace("super(Model, self).__init__()", "raise RuntimeError"),
            "line 10: making the model: RuntimeError",
        ),
        (GOOD.replace("return [torch.randn", "return 3, [torch.no_such"), "line 18: get_inputs(): AttributeError: "),
        (
            GOOD.replace("return [torch.randn(4", "return torch.randn(4) or [torch.randn(4"),
            "get_inputs(): RuntimeError",
        ),
        (GOOD.replace("return [torch", "return {1: 2} if features else [torch"), "the inputs are a dict, not a list"),
        (GOOD.replace("randn(4,", "randn(4, device='cuda:0', size=(4,"), "line 18: "),
        ("def f():\n    return f()\nf()", "RecursionError"),
    ],
)
def test_failures_are_one_line(write, text: str, said: str) -> None:
    assert said in failure(write(text))


def test_code_for_another_device_is_one_line(write) -> None:
    said = failure(write(GOOD.replace("randn(4, features)", "randn(4, features).cuda()")))
    assert "line 18: get_inputs(): " in said or "a problem makes its tensors on the CPU" in said


def test_paths_that_are_no_problem_files(write, tmp_path: Path) -> None:
    assert "no such file" in failure(str(tmp_path / "missing.py"))
    assert "no such file" in failure("a" * 5000)
    assert "no such file" in failure("a\0b")
    assert "is a folder" in failure(str(tmp_path))
    assert "is not a regular file" in failure("/dev/null")
    binary = tmp_path / "binary.py"
    binary.write_bytes(bytes(range(128, 256)))
    assert "not a Python file" in failure(str(binary))
    assert "an attribute is named by its module, as in package.module:Model" in failure("softmax.py:Model")


def test_an_unknown_override(write) -> None:
    with pytest.raises(OverrideError, match="it has: features, hidden"):
        load_problem(write(GOOD), ["batch=3"])


@pytest.fixture
def package(write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(
        GOOD + "\nclass Inner:\n    ready = Model(6, 2)\n\ndef make():\n    return Model(6, 3)\n\nnumber = 3\n",
        "attribute_module.py",
    )
    write("from torch import nn\nready = nn.Linear(2, 2)\n", "no_inputs_module.py")
    write("import nowhere_to_be_found\n", "broken_module.py")
    return tmp_path


def test_attributes(package: Path) -> None:
    for attribute, width in (("Inner.ready", 2), ("make", 3), ("Model", 12)):
        problem = load_problem(f"attribute_module:{attribute}")
        assert problem.source == ProblemSource(SourceKind.ATTRIBUTE, f"attribute_module:{attribute}")
        assert problem.module()(*problem.inputs())[0].shape == (4, width)
        assert rebuild(problem.source).module().linear.weight.shape == (width, 6)


def test_a_ready_module_is_copied(package: Path) -> None:
    problem = load_problem("attribute_module:Inner.ready")
    assert not problem.module().training
    assert sys.modules["attribute_module"].Inner.ready.training


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("attribute_module:nothing", "has no attribute nothing"),
        ("attribute_module:number", "number is an int, no torch.nn.Module nor a way to make one"),
        ("attribute_module:get_inputs", "the model is a list, not a torch.nn.Module"),
        ("no_inputs_module:ready", "no function get_inputs()"),
        ("not_a_module_at_all:Model", "no module not_a_module_at_all"),
        ("broken_module:Model", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
    ],
)
def test_attributes_that_cannot_be_used(package: Path, target: str, said: str) -> None:
    assert said in failure(target)


def test_attributes_have_no_constants_to_set(package: Path) -> None:
    with pytest.raises(OverrideError, match="only the constants of a problem file"):
        load_problem("attribute_module:Model", ["features=3"])


def test_a_live_module() -> None:
    module = torch.nn.BatchNorm1d(3)
    x = torch.randn(4, 3, requires_grad=True)
    problem = from_module(module, [x * 2, None][:1])
    made = problem.module(Mode.TRAIN, seed=5)
    made(*problem.inputs())
    assert module.num_batches_tracked == 0
    assert torch.equal(problem.inputs(1)[0], x * 2)
    assert torch.equal(problem.inputs(1)[0], problem.inputs(2)[0])
    assert problem.source.kind is SourceKind.PYTHON
    with pytest.raises(ProblemError, match="given as a live module"):
        rebuild(problem.source)


def test_live_things_that_are_no_problem() -> None:
    with pytest.raises(ProblemError, match=r"not a torch\.nn\.Module"):
        from_module(torch.relu, [torch.ones(1)])  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="not a list or tuple"):
        from_module(torch.nn.ReLU(), torch.ones(1))  # type: ignore[arg-type]
    module = torch.nn.ReLU()
    module.lock = iter([open(__file__)])  # noqa: SIM115
    problem = from_module(module, [torch.ones(1)])
    with pytest.raises(ProblemError, match="cannot be copied"):
        problem.module()


def test_shapes_alone(write) -> None:
    problem = load_problem(write(GOOD), ["features=100000", "hidden=100000"])
    with torch.device("meta"):
        assert problem.module().linear.weight.shape == (100000, 100000)
        assert problem.inputs()[0].is_meta
