"""What every store of the memory must do. Subclass `StoreConformance` and override `store`, a pytest fixture."""

from __future__ import annotations

import dataclasses
import math

from modelblaster.knowledge.arms import ArmStatistics
from modelblaster.knowledge.store import Store, VerifiedImplementation
from modelblaster.records.outcome import Outcome
from modelblaster.records.timing import Timing
from modelblaster.records.verdict import CaseResult, Cause, Check, Stage, Verdict

CLASSES = ("here", "kind", "any")


def outcome(step: int, *, reward: float | None = 0.25, cause: Cause = Cause.PASSED, state: str = "map") -> Outcome:
    """An outcome with every kind of content."""
    case = CaseResult("normal", 3, cause, (Check("y: rms", 1e-7, 1e-5), Check("y: max", math.inf, 1e-4)))
    is_passed = cause is Cause.PASSED
    return Outcome(
        step=step,
        slot="5107",
        family="map",
        device="the device",
        state=state,
        technique="unroll",
        candidate=f"{step:016x}",
        parent=None,
        verdict=Verdict(cause, Stage.FULL, "", (case,)),
        timing=Timing(100.0, (90.0, 110.0), (90.0, 100.0, 110.0), "screen") if is_passed else None,
        profile=None,
        reward=reward,
        reason="because",
        kept=is_passed,
        seconds=0.5,
    )


class StoreConformance:
    """Cases for a fixture `store` that gives an empty store."""

    def test_an_empty_store_knows_nothing(self, store: Store) -> None:
        """Nothing is there, and asking is no error."""
        assert store.arms("map", "here") == {}
        assert store.outcomes() == ()
        assert store.recall("5107", "the device") == ()

    def test_outcomes_come_back_as_they_were(self, store: Store) -> None:
        """Failures, infinities and missing values too."""
        given = [outcome(1), outcome(2, cause=Cause.CRASHED, reward=-0.5), outcome(3, reward=None)]
        for one in given:
            assert store.record(one, run="r", device_classes=CLASSES)
        assert list(store.outcomes(run="r")) == given
        assert list(store.outcomes(slot="5107")) == given
        assert store.outcomes(run="another") == ()
        assert store.outcomes(slot="another") == ()

    def test_a_step_counts_once(self, store: Store) -> None:
        """Handing in an outcome again changes nothing; the same step of another run is another one."""
        assert store.record(outcome(1), run="r", device_classes=CLASSES)
        assert not store.record(dataclasses.replace(outcome(1), reward=2.0), run="r", device_classes=CLASSES)
        assert store.record(outcome(1), run="s", device_classes=CLASSES)
        assert store.arms("map", "here")["unroll"].n == 2

    def test_statistics_are_those_of_all_rewards(self, store: Store) -> None:
        """Mean, variance, best and failures, in every class of devices that was named."""
        rewards = [0.5, -0.5, 1.25, 0.0, 0.125]
        expected = ArmStatistics()
        for step, reward in enumerate(rewards, start=1):
            is_failure = reward == -0.5
            cause = Cause.WRONG if is_failure else Cause.PASSED
            store.record(outcome(step, reward=reward, cause=cause), run="r", device_classes=CLASSES)
            expected = expected.with_reward(reward, is_failure=is_failure)
        for device_class in CLASSES:
            found = store.arms("map", device_class)["unroll"]
            assert (found.n, found.best, found.failures) == (5, 1.25, 1)
            assert math.isclose(found.mean, expected.mean)
            assert math.isclose(found.m2, expected.m2)
        assert store.arms("map", "elsewhere") == {}
        assert store.arms("row_reduction", "here") == {}

    def test_unmeasured_steps_leave_statistics_alone(self, store: Store) -> None:
        """An outcome without a reward is remembered, and no arm is touched."""
        store.record(outcome(1, reward=None), run="r", device_classes=CLASSES)
        assert store.arms("map", "here") == {}
        assert len(store.outcomes()) == 1

    def test_the_fastest_implementation_comes_first(self, store: Store) -> None:
        """Of one slot on one device; a newer time of the same candidate replaces the older one."""
        slow = VerifiedImplementation("5107", "map", "the device", "aa", "{}", 200.0, "paired")
        fast = dataclasses.replace(slow, candidate="bb", median_ns=100.0)
        for one in (slow, fast, dataclasses.replace(slow, device="another", median_ns=1.0)):
            store.keep(one)
        assert store.recall("5107", "the device") == (fast, slow)
        faster = dataclasses.replace(slow, median_ns=50.0, schedule="{1}")
        store.keep(faster)
        assert store.recall("5107", "the device") == (faster, fast)
        assert store.recall("another", "the device") == ()
