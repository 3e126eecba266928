from __future__ import annotations

import dataclasses

import pytest
import torch

from modelblaster.agents.scripted import ScriptedActor
from modelblaster.backends.cpu.dialect import CpuDialect
from modelblaster.kernels.schedule import from_text, is_legal
from modelblaster.knowledge.techniques import Technique, seed_techniques
from modelblaster.program.capture import capture
from modelblaster.program.slots import cut
from modelblaster.records.facts import Ceiling, Facts
from modelblaster.records.plan import Launch, Role

FACTS = Facts("test", 2, 32, 32 << 10, 512 << 10, 32 << 20, 2000.0, 2e11, (Ceiling(1 << 20, True, 2e10),))
TECHNIQUES = {technique.name: technique for technique in seed_techniques().techniques}


class Softmax(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, dim=-1)


class Product(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


def slots_of(module: torch.nn.Module, *inputs: torch.Tensor):
    return cut(capture(module.eval(), list(inputs)).plan)


@pytest.fixture(scope="module")
def softmax():
    (slot,) = slots_of(Softmax(), torch.randn(64, 1000))
    return slot


@pytest.fixture
def actor() -> ScriptedActor:
    return ScriptedActor(CpuDialect(), FACTS)


def test_the_first_candidate(actor: ScriptedActor, softmax) -> None:
    first = actor.start(softmax)
    assert first is not None
    assert is_legal(softmax.nest, from_text(first.schedule), FACTS)
    assert (first.author, first.technique, first.parent, first.claims) == ("scripted", None, None, ())
    border = (Role.INPUT, Role.PARAMETER, Role.OUTPUT, Role.MUTATED)
    assert first.plan.named(*border) == softmax.reference.named(*border)
    assert all(isinstance(step, Launch) for step in first.plan.steps)
    text = "".join(source.text for source in first.sources)
    for step in first.plan.steps:
        assert softmax.key in step.entry
        assert step.entry in text


def test_equal_questions_have_equal_answers(actor: ScriptedActor, softmax) -> None:
    again = ScriptedActor(CpuDialect(), FACTS)
    assert actor.start(softmax) == again.start(softmax)
    first = actor.start(softmax)
    assert first is not None
    for technique in TECHNIQUES.values():
        answers = list(actor.propose(softmax, technique, first))
        assert answers == list(again.propose(softmax, technique, first))
        assert answers == list(actor.propose(softmax, technique, first))


def test_moves_make_new_legal_candidates(actor: ScriptedActor, softmax) -> None:
    first = actor.start(softmax)
    assert first is not None
    found = {name: list(actor.propose(softmax, technique, first)) for name, technique in TECHNIQUES.items()}
    assert found["unroll"]
    assert found["change_grain"]
    for name, candidates in found.items():
        for candidate in candidates:
            assert candidate.schedule != first.schedule
            assert is_legal(softmax.nest, from_text(candidate.schedule), FACTS)
            assert (candidate.technique, candidate.parent) == (name, first.digest)
            is_narrower = from_text(candidate.schedule).lanes < from_text(first.schedule).lanes
            assert candidate.claims == (() if is_narrower else TECHNIQUES[name].claims)
    digests = [candidate.digest for candidates in found.values() for candidate in candidates]
    assert len(set(digests)) > 4
    assert all(len(digest) == 16 for digest in digests)


def test_the_digest_is_of_what_runs_and_not_of_where_it_comes_from(actor: ScriptedActor, softmax) -> None:
    first = actor.start(softmax)
    assert first is not None
    assert actor.rebuild(softmax, first.schedule) == first
    up = next(actor.propose(softmax, TECHNIQUES["unroll"], first))
    back = [one for one in actor.propose(softmax, TECHNIQUES["unroll"], up) if one.schedule == first.schedule]
    assert [one.digest for one in back] == [first.digest]
    assert back[0].technique == "unroll"
    assert up.digest != first.digest


def test_remembered_schedules(actor: ScriptedActor, softmax) -> None:
    first = actor.start(softmax)
    assert first is not None
    assert actor.rebuild(softmax, "no schedule") is None
    assert actor.rebuild(softmax, "[]") is None
    narrow = ScriptedActor(CpuDialect(), dataclasses.replace(FACTS, vector_bytes=16))
    assert narrow.rebuild(softmax, first.schedule) is None


def test_what_the_actor_cannot_write(actor: ScriptedActor, softmax) -> None:
    (product,) = slots_of(Product(), torch.randn(8, 8))
    first = actor.start(softmax)
    assert first is not None
    assert actor.start(product) is None
    assert actor.rebuild(product, first.schedule) is None
    assert list(actor.propose(product, TECHNIQUES["unroll"], first)) == []
    spoken = Technique(name="think", text="think", states=("map",))
    assert list(actor.propose(softmax, spoken, first)) == []
    unknown = dataclasses.replace(first, schedule="")
    assert list(actor.propose(softmax, TECHNIQUES["unroll"], unknown)) == []
