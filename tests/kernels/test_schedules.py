"""Every legal schedule gives the same results; what is illegal; defaults; moves."""

import itertools
import json
from dataclasses import replace

import pytest
import torch
from kernel_harness import FACTS, check_all, fuse, trace

from modelblaster.kernels.moves import CLAIMS, MOVES
from modelblaster.kernels.schedule import Schedule, default, from_text, is_legal, to_text
from modelblaster.records.facts import Facts

G = torch.Generator().manual_seed(7)
TALL = torch.randn(301, 5, generator=G)
LONG = torch.randn(3, 1031, generator=G)
CUBE = torch.randn(5, 67, 19, generator=G)

NESTS = {
    "map": (lambda x: torch.tanh(x) + x, (CUBE,)),
    "map with rows": (lambda x: x * x.new_ones(19), (CUBE,)),
    "softmax last": (lambda x: torch.softmax(x, 1), (LONG,)),
    "softmax first": (lambda x: torch.softmax(x, 0), (TALL,)),
    "softmax middle": (lambda x: torch.softmax(x, 1) * x, (CUBE,)),
    "log softmax": (lambda x: torch.log_softmax(x, 2), (CUBE,)),
    "standardize": (lambda x: ((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True), x.amax(1)), (CUBE,)),
    "arg": (lambda x: x.max(1), (CUBE,)),
    "arg last": (lambda x: x.argmin(1), (LONG,)),
    "ends": (lambda x: (x.sum((0, 2)), x.exp().mean((0, 2))), (CUBE,)),
    "all": (lambda x: x.sum(), (CUBE,)),
    "activation first": (lambda x: (g := torch.nn.functional.gelu(x)) - g.mean(-1, keepdim=True), (LONG,)),
}


def variants(nest):
    """A walk over the space: each choice alone, and all of them together."""
    base = default(nest, FACTS)
    changes = [
        {}, {"lanes": 4}, {"lanes": 2}, {"unroll": 1}, {"unroll": 2}, {"unroll": 8}, {"stream": True}, {"grain": 3},
        {"mode": "row"}, {"mode": "column"}, {"keep": True}, {"keep": False}, {"online": True, "keep": False},
        {"pieces": 2, "keep": False}, {"pieces": 7, "keep": False}, {"pieces": 3, "keep": False, "mode": "column"},
        {"online": True, "keep": False, "mode": "column", "unroll": 1}, {"block": 256}, {"unroll": 2, "lanes": 4},
        {"pieces": 19, "keep": False, "mode": "row"}, {"mode": "column", "keep": True, "unroll": 2},
    ]  # fmt: skip
    found = dict.fromkeys(replace(base, **change) for change in changes)
    return [s for s in found if is_legal(nest, s, FACTS)]


@pytest.mark.parametrize("part", [0, 1, 2])
def test_every_legal_schedule_gives_the_same_result(part):
    names = list(NESTS)[part::3]
    emitted = check_all([(n, *NESTS[n]) for n in names], variants, tolerance=4e-6)
    used = {field: {getattr(e.schedule, field) for e in emitted} for field in ("mode", "online", "keep", "stream")}
    assert all(len(values) == 2 for values in used.values()), used
    assert any(len(e.plan.steps) > 1 for e in emitted)


def nest_of(name):
    return fuse(trace(NESTS[name][0], *NESTS[name][1]))


def test_split_plans_have_scratch_buffers_and_several_launches():
    nest = nest_of("softmax last")
    (emitted,) = check_all(
        [("split", *NESTS["softmax last"])], lambda n: [replace(default(n, FACTS), pieces=5, keep=False)]
    )
    assert is_legal(nest, emitted.schedule, FACTS)
    scratch = [b.name for b in emitted.plan.buffers if b.role == "scratch"]
    assert len(emitted.plan.steps) == 5
    assert all(name.startswith("k0_part") for name in scratch)
    written = set(itertools.chain.from_iterable(step.writes for step in emitted.plan.steps))
    assert written == {*scratch, *emitted.traced.outputs}


def test_illegal_schedules():
    softmax, maps = nest_of("softmax last"), nest_of("map")
    good = default(softmax, FACTS)
    for change in (
        {"lanes": 16}, {"lanes": 3}, {"lanes": 1}, {"unroll": 0}, {"unroll": 64}, {"mode": "diagonal"}, {"grain": 0},
        {"block": 100}, {"pieces": 5000}, {"keep": True, "online": True},
    ):  # fmt: skip
        assert not is_legal(softmax, replace(good, **change), FACTS), change
    plain = default(maps, FACTS)
    for change in ({"mode": "column"}, {"pieces": 2}, {"online": True}, {"keep": True}):
        assert not is_legal(maps, replace(plain, **change), FACTS), change
    assert not is_legal(nest_of("all"), replace(default(nest_of("all"), FACTS), mode="column", pieces=1), FACTS)
    tiny = replace(FACTS, l2_bytes=1024)
    assert is_legal(softmax, replace(good, keep=True), FACTS)
    assert not is_legal(softmax, replace(good, keep=True), tiny)


def test_defaults_use_wide_vectors_and_all_threads():
    for name in NESTS:
        nest = nest_of(name)
        schedule = default(nest, FACTS)
        assert is_legal(nest, schedule, FACTS), name
        assert schedule.lanes == 8
    wide = fuse(trace(lambda x: x.sum(), torch.zeros(1 << 20)))
    assert default(wide, FACTS).pieces >= 4
    assert default(fuse(trace(lambda x: x + 1, torch.zeros(1 << 23))), FACTS).stream
    assert not default(fuse(trace(lambda x: x + 1, torch.zeros(1 << 16))), FACTS).stream
    assert default(fuse(trace(lambda x: x + 1, torch.zeros(64).double())), FACTS).lanes == 4
    other = Facts("other", 8, 64, 32 << 10, 1 << 20, 32 << 20, 2000.0, 1e12, FACTS.ceilings)
    assert default(nest_of("map"), other).lanes == 16


def test_moves_lead_to_other_legal_schedules():
    reached = set()
    for name in NESTS:
        nest = nest_of(name)
        for start in variants(nest):
            for move_name, move in MOVES.items():
                neighbours = move(nest, start, FACTS)
                assert start not in neighbours
                assert len(set(neighbours)) == len(neighbours)
                assert all(is_legal(nest, n, FACTS) for n in neighbours)
                if neighbours:
                    reached.add(move_name)
    assert reached == set(MOVES)
    assert set(CLAIMS) <= set(MOVES)


def test_schedules_as_text():
    schedule = Schedule("row", 8, keep=True)
    assert from_text(to_text(schedule)) == schedule
    for wrong in ("[]", "{}", json.dumps({**json.loads(to_text(schedule)), "lanes": "8"}), "nonsense"):
        with pytest.raises(ValueError, match=r"schedule|Expecting"):
            from_text(wrong)
