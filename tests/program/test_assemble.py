"""Cutting and assembling: the program that comes out computes what went in, whatever stands between the slots."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from modelblaster.agents.scripted import ScriptedActor
from modelblaster.program.assemble import assemble
from modelblaster.program.capture import capture, state_of, tensor_leaves
from modelblaster.program.pool import ALIGNMENT, Lifetime, lay_out
from modelblaster.program.slots import LIBRARY, cut
from modelblaster.records.facts import Ceiling, Facts
from modelblaster.records.plan import Copy, Library, Role

FACTS = Facts("test", 2, 32, 32 << 10, 512 << 10, 32 << 20, 500.0, 1e11, (Ceiling(1 << 18, False, 2e10),))


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


def rebuild(backend, module, inputs, *, skip=()):
    """The program with our kernels wherever they can be, as a plan, and its results beside the module's."""
    captured = capture(module, inputs)
    slots = cut(captured.plan)
    actor = ScriptedActor(backend.dialect(), FACTS)
    chosen = {slot.key: actor.start(slot) for slot in slots if slot.nest is not None and slot.family not in skip}
    candidate = assemble(captured.plan, slots, chosen, author="test")
    program = backend.load(candidate.plan, backend.build(candidate.sources).objects)
    state = {name: tensor.clone() for name, tensor in state_of(module).items()}
    with torch.no_grad():
        program.bind({**state, **captured.constants})
        tensors = dict(zip(captured.inputs, tensor_leaves(inputs), strict=True))
        for _ in range(2):  # the second call reuses memory
            results = program(tensors)
        expected_state = {name: tensor.clone() for name, tensor in state_of(module).items()}
        for _ in range(2):
            expected = tensor_leaves(torch.func.functional_call(module, expected_state, tuple(inputs)))
    for name, value in zip(captured.outputs, expected, strict=True):
        torch.testing.assert_close(results[name], value, rtol=1e-4, atol=1e-5)
    for name, value in expected_state.items():
        torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5)
    return slots, candidate


def families(slots):
    return [slot.family for slot in slots for _ in slot.occurrences]


def x(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


CASES = {
    "a view of a kernel's result is a result": lambda a: torch.relu(a).view(-1),
    "a result that is also used": lambda a: (torch.relu(a), torch.relu(a).sum(1)),
    "part of a kernel's result is a result": lambda a: torch.relu(a)[:, 1:3],
    "a transposed result": lambda a: torch.relu(a).t(),
    "an input is a result": lambda a: (a, torch.relu(a)),
    "the same result twice": lambda a: (torch.relu(a),) * 2,
    "kernel, library, kernel": lambda a: torch.relu(torch.cumsum(torch.relu(a), 1)) + 1,
    "library result seen through views": lambda a: torch.relu(torch.cumsum(a, 1).t().unsqueeze(0)),
    "two reductions over different axes": lambda a: torch.softmax(a, 0) * torch.softmax(a, 1),
    "a diamond over the library": lambda a: torch.relu(a) + torch.cumsum(torch.relu(a), 0),
    "a constant": lambda a: a + torch.arange(7.0),
    "constants alone": lambda a: torch.ones(3),
    "indices": lambda a: torch.max(a, 1),
    "booleans and integers": lambda a: ((a > 0) & (a < 1), (a > 0).to(torch.int64)),
    "split and put together": lambda a: torch.cat([part * 2 for part in a.split(3, 1)], 1),
    "a scalar": lambda a: (a * a).mean(),
}


@pytest.mark.parametrize("name", CASES)
def test_what_stands_between_slots(backend, name):
    rebuild(backend, Function(CASES[name]), [x(5, 7)])


def test_modules_with_state(backend):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
            self.linear, self.layer = nn.Linear(4, 6), nn.LayerNorm(6)

        def forward(self, value):
            value = torch.relu(self.norm(self.convolution(value))).mean((2, 3))
            return torch.softmax(self.layer(self.linear(value)), -1)

    for is_training in (False, True):
        slots, _ = rebuild(backend, Block().train(is_training), [x(2, 3, 8, 8)])
        assert families(slots).count(LIBRARY) <= 3


def test_equal_slots_are_one_slot(backend):
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

        def forward(self, value):
            for layer in self.layers:
                value = torch.nn.functional.gelu(layer(value))
            return value

    slots, candidate = rebuild(backend, Deep(), [x(4, 8)])
    # The last one writes a result, which is a slot of its own only by its role in the program.
    assert {slot.family: len(slot.occurrences) for slot in slots} == {"map": 4, LIBRARY: 4}
    assert len(candidate.sources) == 1


def test_a_chain_is_one_slot_and_needs_no_library(backend):
    slots, candidate = rebuild(backend, Function(lambda a: torch.softmax(torch.relu(a) * 2 + 1, -1)), [x(5, 7)])
    assert families(slots) == ["row_reduction"]
    assert not [step for step in candidate.plan.steps if isinstance(step, (Library, Copy))]
    assert [buffer.role for buffer in candidate.plan.buffers] == [Role.INPUT, Role.OUTPUT]


def test_steps_that_read_the_same_share_one_pass(backend):
    slots, _ = rebuild(backend, Function(lambda a: (a.argmax(1), a.amax(1), a.amin(1))), [x(5, 7)])
    assert families(slots) == ["row_reduction"]


def test_without_candidates_the_program_stays_the_librarys(backend):
    _, candidate = rebuild(backend, Function(torch.relu), [x(5, 7)], skip=("map",))
    assert [step.kind for step in candidate.plan.steps] == ["library"]


def test_values_between_kernels_share_memory(backend):
    def chain(value):
        for _ in range(6):
            value = torch.softmax(torch.softmax(value, 0), 1)
        return value

    _, candidate = rebuild(backend, Function(chain), [x(16, 16)])
    pool = candidate.plan.buffer("pool")
    assert pool.shape[0] == 2 * 16 * 16 * 4


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=14))
def test_the_pool_never_gives_living_values_the_same_memory(drawn):
    values = [Lifetime(str(i), size, first, first + more) for i, (size, first, more) in enumerate(drawn)]
    offsets, total = lay_out(values)
    for value in values:
        assert offsets[value.name] % ALIGNMENT == 0
        assert offsets[value.name] + value.nbytes <= total
        for other in values:
            if other.name < value.name and value.first <= other.last and other.first <= value.last:
                start, end = offsets[value.name], offsets[value.name] + value.nbytes
                assert end <= offsets[other.name] or offsets[other.name] + other.nbytes <= start
