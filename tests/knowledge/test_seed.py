from __future__ import annotations

import pytest

from modelblaster.kernels.moves import CLAIMS, MOVES
from modelblaster.knowledge.states import SeedError, parse_states, seed_states
from modelblaster.knowledge.techniques import parse_techniques, seed_techniques


def test_seed_techniques_and_moves_agree() -> None:
    """Every technique's move exists with the same claims, and every move belongs to a technique."""
    techniques = seed_techniques().techniques
    assert {technique.move for technique in techniques} == set(MOVES)
    assert {t.move: t.claims for t in techniques} == {move: CLAIMS.get(move, ()) for move in MOVES}


def test_every_leaf_has_techniques_of_its_own_and_its_family_s() -> None:
    techniques = seed_techniques()
    tree = techniques.tree
    for state in tree.states:
        applicable = techniques.applicable(state.id)
        family = techniques.applicable(tree.ancestry(state.id)[-1])
        assert {technique.name for technique in family} <= {technique.name for technique in applicable}
    assert techniques.applicable("row_reduction.memory.passes")[0].name == "online_reduction"
    assert techniques.applicable("map.memory.saturated")[0].name == "streaming_stores"
    assert techniques.applicable("") == ()


def test_ancestry() -> None:
    tree = seed_states()
    assert tree.ancestry("map.memory.saturated") == ("map.memory.saturated", "map.memory", "map")
    assert tree.ancestry("") == ()
    assert [state.id for state in tree.children("")] == ["map", "row_reduction"]


STATE = '[[state]]\nid = "a"\ntext = "t"\nwhen = [{ fact = "family", is = "map" }]\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[state", "states:"),
        ("", "state"),
        (STATE + STATE, "twice"),
        (STATE.replace('text = "t"', 'text = "t"\nparent = "b"'), "parent 'b'"),
        (STATE.replace('text = "t"', 'text = "t"\nparent = "a"'), "parent 'a'"),
        (STATE.replace('fact = "family", is = "map"', 'metric = "speed", below = 1.0'), "unknown metric 'speed'"),
        (STATE.replace('fact = "family", is = "map"', 'metric = "kernels"'), "at_least or below"),
        (STATE.replace('fact = "family", is = "map"', 'fact = "colour", is = "map"'), "fact"),
        (STATE.replace('fact = "family", is = "map"', 'fact = "family"'), "needs is"),
        (STATE.replace("text", "comment"), "text"),
        (STATE.replace("when = [{ fact", "when = [] #"), "when"),
    ],
)
def test_trees_that_make_no_sense(text: str, complaint: str) -> None:
    with pytest.raises(SeedError, match=complaint):
        parse_states(text)


TECHNIQUE = '[[technique]]\nname = "n"\ntext = "t"\nstates = ["a"]\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (TECHNIQUE + TECHNIQUE, "twice"),
        (TECHNIQUE.replace('["a"]', '["b"]'), "unknown states b"),
        (TECHNIQUE.replace('["a"]', "[]"), "states"),
        (TECHNIQUE + "colour = 1", "colour"),
        (TECHNIQUE.replace('"n"', '"N n"'), "name"),
    ],
)
def test_techniques_that_make_no_sense(text: str, complaint: str) -> None:
    with pytest.raises(SeedError, match=complaint):
        parse_techniques(text, parse_states(STATE))
