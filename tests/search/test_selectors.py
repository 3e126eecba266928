from __future__ import annotations

import math
import random

import pytest
from search_landscape import candidate, seed, slot, timing

from modelblaster.knowledge.arms import ArmStatistics
from modelblaster.knowledge.states import seed_states
from modelblaster.knowledge.techniques import Technique
from modelblaster.records.profile import Profile
from modelblaster.records.task import Budget as Granted
from modelblaster.records.verdict import Cause, Stage, Verdict
from modelblaster.search.budget import GRACE_SECONDS, Budget
from modelblaster.search.classifier import classify
from modelblaster.search.operators import score, select, shares
from modelblaster.search.progress import SlotProgress, Standing
from modelblaster.search.reward import reward
from modelblaster.search.techniques import LEAST_SCALE, bound, rank, reward_scale

NAMES = ("first", "second", "third", "fourth")
ALL = tuple(Technique(name=name, text="t", states=("map",)) for name in NAMES)


def arm(*rewards: float) -> ArmStatistics:
    result = ArmStatistics()
    for value in rewards:
        result = result.with_reward(value)
    return result


def ranked(arms: dict[str, ArmStatistics], broader: dict[str, ArmStatistics] | None = None, seed: int = 0) -> list:
    return [technique.name for technique in rank(ALL, arms, broader or {}, random.Random(seed))]


def test_what_nobody_tried_comes_first_in_its_own_order() -> None:
    assert ranked({}) == list(NAMES)
    assert ranked({"first": arm(2.0), "third": arm(-0.5)}) == ["second", "fourth", "first", "third"]


def test_the_bound_is_the_formula() -> None:
    arms = {"first": arm(0.2, 0.4), "second": arm(0.1), "third": arm(0.3, 0.3, 0.3), "fourth": arm(-0.5)}
    rewards = [0.2, 0.4, 0.1, 0.3, 0.3, 0.3, -0.5]
    mean = sum(rewards) / 7
    scale = math.sqrt(sum((value - mean) ** 2 for value in rewards) / 7)
    assert reward_scale(arms.values()) == pytest.approx(scale)
    assert bound(arms["first"], 7, scale) == pytest.approx(0.3 + scale * math.sqrt(math.log(7) / 2))
    assert ranked(arms) == ["first", "third", "second", "fourth"]


def test_equal_rewards_still_leave_some_curiosity() -> None:
    arms = {name: arm(0.1, 0.1) for name in NAMES} | {"fourth": arm(0.1)}
    assert reward_scale(arms.values()) == LEAST_SCALE
    assert ranked(arms)[0] == "fourth"


def test_ties_are_broken_by_the_seed_alone() -> None:
    arms = {name: arm(0.25) for name in NAMES}
    assert ranked(arms, seed=1) == ranked(arms, seed=1)
    assert len({tuple(ranked(arms, seed=number)) for number in range(20)}) > 5


def test_experience_of_other_devices_counts_as_two_pulls() -> None:
    others = {"first": arm(*[-0.5] * 50), "second": arm(*[1.0] * 50)}
    assert ranked({}, others) == ["third", "fourth", "second", "first"]
    own = {name: arm(0.3) for name in NAMES}
    assert ranked(own, others)[0] == "second"
    own["second"] = arm(*[-0.5] * 8)
    assert ranked(own, others)[0] != "second"


def test_the_operator_score_is_the_formula() -> None:
    assert score(0.5, 2, 3, 10) == pytest.approx(0.5 * 0.7**2 + 0.2 * math.sqrt(math.log(11) / 4))


def progress(key: str, nanoseconds: float | None, *, occurrences: int = 1) -> SlotProgress:
    reference = None if nanoseconds is None else timing(nanoseconds)
    return SlotProgress(slot(key, occurrences=occurrences), reference)


def test_shares_follow_what_is_best_now() -> None:
    slots = [progress("a", 600.0), progress("b", 100.0, occurrences=4), progress("c", None)]
    assert shares(slots) == {"a": 0.6, "b": 0.4, "c": 0.0}
    slots[0].best = Standing(candidate("a", 0, 0), timing(100.0), None)
    assert shares(slots) == {"a": 0.2, "b": 0.8, "c": 0.0}
    assert shares([progress("c", None)]) == {"c": 0.0}


def test_the_selector() -> None:
    slots = [progress("a", 600.0), progress("b", 300.0)]
    assert select(slots) is slots[0]
    slots[0].stalls, slots[0].visits = 3, 3
    assert select(slots) is slots[1]
    slots[1].closed = "for the test"
    assert select(slots) is slots[0]
    slots[0].closed = "for the test"
    assert select(slots) is None
    assert select([]) is None


@pytest.mark.parametrize(
    ("speedup", "expected"),
    [
        (math.e, 1.0),
        (1.0, 0.0),
        (1e6, 2.0),
        (1e-6, -1.0),
        (None, None),
        (0.0, None),
        (math.nan, None),
        (math.inf, None),
    ],
)
def test_rewards_of_right_candidates(speedup: float | None, expected: float | None) -> None:
    value, sentence = reward(Verdict(Cause.PASSED, Stage.FULL), speedup)
    assert value == (None if expected is None else pytest.approx(expected))
    assert sentence


def test_rewards_of_others() -> None:
    value, sentence = reward(Verdict(Cause.BUILD_FAILED, Stage.SCREEN, "k.c:3: what?"), 5.0)
    assert (value, sentence) == (-0.5, "build failed: k.c:3: what?")
    assert reward(Verdict(Cause.UNJUDGEABLE, Stage.SCREEN), 5.0)[0] is None
    assert reward(Verdict(Cause.PASSED, Stage.FULL), 0.5)[1] == "slower than its parent: 2.00 times its time"
    assert reward(Verdict(Cause.PASSED, Stage.FULL), 1.5)[1] == "1.50 times as fast as its parent"


def test_states_of_our_own_tree() -> None:
    tree = seed_states()
    assert classify(tree, "map", None) == "map"
    assert classify(tree, "unheard of", None) == ""
    assert classify(tree, "map", Profile(memory_throughput=0.9, compute_throughput=0.1)) == "map.memory.saturated"
    assert classify(tree, "map", Profile(memory_throughput=0.6, compute_throughput=0.1)) == "map.memory.partial"
    assert classify(tree, "map", Profile(memory_throughput=0.2, compute_throughput=0.5)) == "map.compute"
    assert classify(tree, "map", Profile(memory_throughput=0.2, compute_throughput=0.1)) == "map.latency"
    small = Profile(memory_throughput=0.2, compute_throughput=0.1, launch_overhead=0.5, vector_fraction=0.1)
    assert classify(tree, "map", small) == "map.overhead"
    passes = Profile(memory_throughput=0.7, roofline_fraction=0.4)
    assert classify(tree, "row_reduction", passes) == "row_reduction.memory.passes"
    assert classify(tree, "row_reduction", Profile(vector_fraction=0.2)) == "row_reduction.scalar"


def test_every_measured_profile_of_a_known_family_has_a_state_below_the_family() -> None:
    tree = seed_states()
    shares = [0.0, 0.3, 0.55, 0.85, 1.0]
    for family in ("map", "row_reduction"):
        for memory in shares:
            for compute in shares:
                state = classify(tree, family, Profile(memory_throughput=memory, compute_throughput=compute))
                assert state.startswith(f"{family}.")


def test_an_unknown_metric_fulfils_nothing() -> None:
    tree = seed().tree
    assert classify(tree, "map", Profile()) == "map"
    assert classify(tree, "map", Profile(memory_throughput=0.4)) == "map.slow"
    assert classify(tree, "map", Profile(memory_throughput=0.5)) == "map"


def test_the_budget() -> None:
    now = [100.0]
    budget = Budget(Granted(seconds=60.0, steps=3), lambda: now[0], started=90.0, seconds_before=5.0, steps_before=1)
    assert budget.elapsed() == 15.0
    assert (budget.seconds_left(), budget.steps_left(), budget.is_spent()) == (45.0, 2, False)
    assert budget.deadline(30.0) == 30.0
    now[0] = 140.0
    assert budget.deadline(30.0) == 5.0 + GRACE_SECONDS
    assert budget.begin_step() == 2
    assert not budget.is_spent()
    assert budget.begin_step() == 3
    assert budget.is_spent()
    now[0] = 1000.0
    assert (budget.seconds_left(), budget.deadline(30.0)) == (0.0, GRACE_SECONDS)
    endless = Budget(Granted(), lambda: now[0])
    assert (endless.seconds_left(), endless.steps_left(), endless.is_spent()) == (None, None, False)
    assert endless.deadline(30.0) == 30.0
