"""A loaded module is the program that was optimized, whatever a call brings; else it is the reference."""

import copy
import pickle
import threading
import warnings

import pytest
import torch
from torch import nn

from modelblaster.agents.scripted import ScriptedActor
from modelblaster.backends.cpu import CpuBackend
from modelblaster.loaded import LoadedModule
from modelblaster.model.keeping import border_of
from modelblaster.program.assemble import assemble
from modelblaster.program.capture import capture
from modelblaster.program.graph import Uncaptured
from modelblaster.program.slots import cut


@pytest.fixture(scope="module")
def backend(tmp_path_factory):
    found = CpuBackend(threads=2, home=tmp_path_factory.mktemp("home"))
    yield found
    found.close()


class Reload:
    """Makes the module again of another reference, as `api.load` does from an artifact."""

    backend: CpuBackend

    def __init__(self, inputs):
        self.inputs = inputs

    def __call__(self, reference):
        return loaded(self.backend, reference, self.inputs)


def loaded(backend, module, inputs):
    captured = capture(module, inputs)
    slots = cut(captured.plan)
    actor = ScriptedActor(backend.dialect(), backend.facts())
    chosen = {slot.key: actor.start(slot) for slot in slots if slot.nest is not None}
    candidate = assemble(captured.plan, slots, chosen, author="test")
    program = backend.load(candidate.plan, backend.build(candidate.sources).objects)
    Reload.backend = backend
    return LoadedModule(module, candidate.plan, border_of(captured), captured.constants, program, Reload(inputs))


class Scaled(nn.Module):
    def forward(self, x, scale, mode="relu"):
        return torch.sigmoid(x * scale) if mode == "relu" else torch.tanh(x)


class Named(nn.Module):
    def forward(self, values):
        return {"difference": values["a"] - values["b"]}


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.table = torch.arange(8.0)

    def forward(self, x):
        return torch.relu(self.inner(x)) * self.table


def same(fast, *arguments, warns):
    fast._warned.clear()
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.manual_seed(0)
        found = fast(*arguments)
        torch.manual_seed(0)
        expected = fast.reference(*arguments)
    torch.testing.assert_close(found, expected)
    assert bool([w for w in caught if "running the reference" in str(w.message)]) == warns
    assert all(w.filename == __file__ for w in caught if "running the reference" in str(w.message))


def test_arguments_that_are_no_tensors_are_part_of_the_call(backend):
    fast = loaded(backend, Scaled(), [torch.randn(8, 8), 2.0])
    same(fast, torch.randn(8, 8), 2.0, warns=False)
    same(fast, torch.randn(8, 8), 3.0, warns=True)
    same(fast, torch.randn(8, 8), 2, warns=True)
    same(fast, torch.randn(8, 8), 2.0, "tanh", warns=True)


def test_dictionaries_are_not_bound_by_position(backend):
    a, b = torch.randn(4), torch.randn(4)
    fast = loaded(backend, Named(), [{"a": a, "b": b}])
    same(fast, {"a": a, "b": b}, warns=False)
    same(fast, {"b": b, "a": a}, warns=True)


def test_another_mode_runs_the_reference(backend):
    fast = loaded(backend, Weighted().eval(), [torch.randn(4, 8)])
    same(fast, torch.randn(4, 8), warns=False)
    fast.train()
    assert fast.reference.training
    same(fast, torch.randn(4, 8), warns=True)
    fast.eval()
    fast.inner[2].train()
    with torch.no_grad():
        assert (fast(torch.ones(4, 8)) != fast(torch.ones(4, 8))).any()


def test_tensors_that_are_attributes_are_seen_as_they_are(backend):
    fast = loaded(backend, Weighted().eval(), [torch.randn(4, 8)])
    x = torch.randn(4, 8)
    same(fast, x, warns=False)
    fast.reference.table.mul_(3.0)
    same(fast, x, warns=False)
    fast.reference.table = torch.ones(8)
    same(fast, x, warns=False)


def test_names_are_the_references(backend):
    fast = loaded(backend, Weighted().eval(), [torch.randn(4, 8)])
    assert fast.state_dict().keys() == Weighted().state_dict().keys()
    other = Weighted().eval()
    fast.load_state_dict(other.state_dict())
    holder = nn.ModuleDict({"part": fast})
    holder.load_state_dict({f"part.{name}": value for name, value in other.state_dict().items()})
    x = torch.randn(4, 8)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), other(x))


def test_copies_and_pickles_are_modules_of_their_own(backend):
    fast = loaded(backend, Weighted().eval(), [torch.randn(4, 8)])
    x = torch.randn(4, 8)
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        same(other, x, warns=False)
        with torch.no_grad():
            other.inner[0].weight.zero_()
        same(other, x, warns=False)
        same(fast, x, warns=False)
    assert fast.inner[0].weight.any()


def test_threads_take_turns(backend):
    fast = loaded(backend, Scaled(), [torch.randn(256, 256), 2.0])
    wrong = []

    def call(seed):
        x = torch.randn(256, 256, generator=torch.Generator().manual_seed(seed))
        for _ in range(50):
            with torch.no_grad():
                if not torch.allclose(fast(x, 2.0), torch.sigmoid(2.0 * x), atol=1e-6):
                    wrong.append(seed)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("kind", ["negated", "subclass", "vmap"])
def test_tensors_whose_memory_is_not_their_value_run_the_reference(backend, kind):
    fast = loaded(backend, nn.ReLU(), [torch.randn(4)])
    x = torch.randn(4)
    if kind == "negated":
        same(fast, torch._neg_view(x), warns=True)
    elif kind == "subclass":

        class Mine(torch.Tensor):
            pass

        assert isinstance(fast(x.as_subclass(Mine)), Mine)
    else:
        torch.testing.assert_close(torch.func.vmap(fast)(torch.stack([x, -x])), torch.relu(torch.stack([x, -x])))


def test_a_program_that_counts_its_calls_is_not_captured():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    with pytest.raises(Uncaptured, match="state of its own"):
        capture(Counting(), [torch.ones(3)])
