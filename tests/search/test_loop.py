from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import pytest
from search_landscape import DEVICE, FAILURES, Bed, candidate, slot, timing

from modelblaster.backends.interface import RunFailure
from modelblaster.errors import StorageError
from modelblaster.records.events import (
    SlotClosed,
    SlotImproved,
    SlotMeasured,
    SlotsCut,
    StepFinished,
    StepStarted,
)
from modelblaster.records.timing import Comparison
from modelblaster.records.verdict import Cause, Stage, Verdict
from modelblaster.runs.journal import Entry
from modelblaster.runs.state import replay
from modelblaster.search.loop import EXHAUSTED, search
from modelblaster.search.opening import UNCOVERED, UNMEASURED, open_slots

if TYPE_CHECKING:
    from modelblaster.search.progress import SlotProgress


def valley(key: str, schedule: str) -> float:
    """Fastest at 3,2: every step towards it is worth ten percent and more."""
    a, b = map(int, schedule.split(","))
    return 200.0 + 100.0 * (3 - a) + 80.0 * abs(b - 2)


def run(bed: Bed, *slots, seconds: float | None = None, steps: int | None = None) -> list[SlotProgress]:
    budget = bed.budget(seconds, steps)
    progress = open_slots(bed.parts, slots, budget)
    search(bed.parts, progress, budget)
    return progress


def test_it_finds_the_bottom_of_the_valley_and_stops(bed) -> None:
    it = bed(valley)
    (progress,) = run(it, slot())
    assert progress.best is not None
    assert progress.best.candidate.schedule == "3,2"
    assert progress.speedup == 5.0
    assert progress.closed == EXHAUSTED
    tried = [event.outcome.candidate for event in it.of(StepFinished)]
    assert len(tried) == len(set(tried))
    assert [event.step for event in it.of(StepStarted)] == list(range(1, len(tried) + 1))


def test_the_first_step_is_the_actor_s_default(bed) -> None:
    it = bed(valley)
    (progress,) = run(it, slot(), steps=1)
    (started,) = it.of(StepStarted)
    (finished,) = it.of(StepFinished)
    assert (started.technique, started.state, started.steps_left) == ("default", "map", 1)
    outcome = finished.outcome
    assert outcome.kept
    assert outcome.reward == pytest.approx(0.4155, abs=1e-3)  # ln(1000 / 660)
    assert (outcome.parent, outcome.device, outcome.seconds) == (None, DEVICE, 1.0)
    assert outcome.timing == timing(660.0)
    assert outcome.profile is not None
    assert progress.speedup == pytest.approx(1000 / 660)
    assert len(it.of(SlotImproved)) == 1


def test_events_tell_the_whole_story_in_order(bed) -> None:
    it = bed(valley)
    run(it, slot("s"), slot("t", is_covered=False), steps=2)
    names = [type(event).__name__ for event in it.events]
    assert names[:5] == ["SlotsCut", "SlotMeasured", "SlotMeasured", "SlotClosed", "StepStarted"]
    assert names[5:] == ["StepFinished", "SlotImproved", "StepStarted", "StepFinished", "SlotImproved"]
    cut = it.events[0]
    assert isinstance(cut, SlotsCut)
    assert [(row.key, row.is_covered, row.operators) for row in cut.slots] == [
        ("s", True, ("aten.relu.default",)),
        ("t", False, ("aten.relu.default",)),
    ]


@pytest.mark.parametrize("stage", FAILURES)
def test_failures_are_outcomes_and_the_search_goes_on(bed, stage: str) -> None:
    it = bed(valley)
    it.bench.fates[stage, "0,0"] = FAILURES[stage]
    (progress,) = run(it, slot())
    first = it.of(StepFinished)[0].outcome
    assert not first.kept
    assert first.reward == -0.5
    assert first.verdict.cause is not Cause.PASSED
    assert progress.best is not None
    assert progress.best.candidate.schedule == "3,2"


def test_a_slot_whose_candidates_all_fail_is_closed(bed) -> None:
    it = bed(valley)
    it.bench.fates["screen", "*"] = RunFailure(Cause.TIMEOUT, "hangs")
    it.actor.propose = lambda slot, technique, parent: (candidate("s", a, 0) for a in range(1, 9))
    (progress,) = run(it, slot())
    assert progress.closed == "the first 4 candidates all failed"
    assert it.of(SlotClosed) == [SlotClosed("s", progress.closed)]
    assert len(it.of(StepFinished)) == 4
    assert progress.best is None


def test_unjudgeable_slots_teach_nothing(bed) -> None:
    it = bed(valley)
    it.bench.fates["screen", "*"] = Verdict(Cause.UNJUDGEABLE, Stage.SCREEN, "two cases")
    run(it, slot())
    assert {event.outcome.reward for event in it.of(StepFinished)} == {None}
    assert it.parts.memory.arms("map") == {}


def test_what_is_not_promising_is_not_verified(bed) -> None:
    """Full verification and pairing cost seconds: a screen within noise of the best does not get there."""
    it = bed(lambda key, schedule: 500.0 if schedule == "0,0" else 495.0)
    (progress,) = run(it, slot())
    assert [call for call in it.bench.calls if call[0] in ("verify", "compare")] == [
        ("verify", "0,0"),
        ("compare", "0,0"),
    ]
    assert progress.best is not None
    assert progress.best.candidate.schedule == "0,0"
    others = [event.outcome for event in it.of(StepFinished)][1:]
    assert all(0.0 <= outcome.reward < 0.02 and not outcome.kept for outcome in others)


def test_a_kept_candidate_is_surely_faster_than_the_reference(bed) -> None:
    """The screen was too kind: the paired interval does not clear the margin."""
    it = bed(valley)
    it.bench.fates["compare", "0,0"] = Comparison(timing(1000), timing(980), 1.02, (0.99, 1.05))
    (progress,) = run(it, slot(), steps=1)
    outcome = it.of(StepFinished)[0].outcome
    assert not outcome.kept
    assert outcome.verdict.passed
    assert progress.best is None
    assert progress.speedup == 1.0


def test_a_kept_candidate_is_faster_than_the_best_in_pairs(bed) -> None:
    it = bed(valley)
    it.bench.fates["compare", "1,0"] = Comparison(timing(1000), timing(700), 1.43, (1.4, 1.5))
    it.bench.fates["compare", "0,1"] = Comparison(timing(1000), timing(700), 1.43, (1.4, 1.5))
    (progress,) = run(it, slot(), steps=3)
    assert progress.best is not None
    assert progress.best.candidate.schedule == "0,0"


def test_a_slower_neighbour_can_be_the_way(bed) -> None:
    """0,1 and 1,0 are slower than 0,0; 1,1 is fast, and is found through them."""
    times = {"0,0": 500.0, "1,0": 510.0, "0,1": 520.0, "1,1": 200.0}
    it = bed(lambda key, schedule: times.get(schedule, 900.0))
    (progress,) = run(it, slot())
    assert progress.best is not None
    assert progress.best.candidate.schedule == "1,1"


def test_memory_is_tried_first(bed) -> None:
    it = bed(valley)
    it.parts.memory.keep("s", "map", candidate("s", 3, 2), timing(200.0, "paired"))
    (progress,) = run(it, slot(), steps=1)
    assert it.of(StepStarted)[0].technique == "recall"
    assert progress.best is not None
    assert progress.best.candidate.schedule == "3,2"


def test_a_memory_that_no_longer_fits_is_passed_over(bed) -> None:
    it = bed(valley)
    it.parts.memory.keep("s", "map", dataclasses.replace(candidate("s", 0, 0), schedule="illegal"), timing(1.0))
    run(it, slot(), steps=1)
    assert it.of(StepStarted)[0].technique == "default"


def test_a_remembered_candidate_that_fails_gives_way_to_the_default(bed) -> None:
    it = bed(valley)
    it.bench.fates["verify", "3,2"] = FAILURES["verify"]
    it.parts.memory.keep("s", "map", candidate("s", 3, 2), timing(200.0, "paired"))
    (progress,) = run(it, slot(), steps=2)
    assert [event.technique for event in it.of(StepStarted)] == ["recall", "default"]
    assert progress.best is not None
    assert progress.best.candidate.schedule == "0,0"


def test_what_was_kept_is_recalled_in_the_next_run(bed) -> None:
    it = bed(valley)
    run(it, slot())
    again = Bed(it.bench, it.store, run="another")
    (progress,) = run(again, slot(), steps=1)
    assert progress.best is not None
    assert progress.best.candidate.schedule == "3,2"


def test_the_largest_share_comes_first_and_every_slot_gets_its_turn(bed) -> None:
    references = {"small": 1000.0, "large": 8000.0, "often": 3000.0}
    it = bed(lambda key, schedule: 0.9 * references[key])
    it.bench.references.update(references)
    slots = [slot("small"), slot("large"), slot("often", occurrences=4)]
    run(it, *slots, steps=8)
    order = [event.slot for event in it.of(StepStarted)]
    assert order[0] == "often"
    assert list(dict.fromkeys(order)) == ["often", "large", "small"]


def test_budgets(bed) -> None:
    for seconds, steps, expected in ((None, 3, 3), (3.5, None, 4), (100.0, 2, 2), (0.0, None, 0), (None, 0, 0)):
        it = bed(valley)
        run(it, slot(), seconds=seconds, steps=steps)
        assert len(it.of(StepFinished)) == expected
        assert len(it.of(StepStarted)) == expected


def test_uncovered_and_unmeasurable_slots_are_closed(bed) -> None:
    it = bed(valley)
    it.bench.references["b"] = None
    covered, broken, library = run(it, slot("a"), slot("b"), slot("c", is_covered=False), steps=2)
    assert covered.is_open
    assert (broken.closed, library.closed) == (UNMEASURED, UNCOVERED)
    assert {event.slot for event in it.of(SlotMeasured)} == {"a", "b", "c"}
    assert {event.slot for event in it.of(StepStarted)} == {"a"}


def test_library_slots_are_not_measured_with_more_than_a_part_of_the_budget(bed) -> None:
    it = bed(valley)
    slots = [slot(f"l{number}", is_covered=False) for number in range(20)]
    run(it, slot("a"), *slots, seconds=10.0)
    measured = {event.slot for event in it.of(SlotMeasured)}
    assert "a" in measured
    assert 1 < len(measured) <= 6


def test_equal_seeds_and_timings_give_equal_runs(bed) -> None:
    def story(seed: int) -> list:
        it = bed(valley)
        it.seed = seed
        run(it, slot("s"), slot("t"), steps=14)
        return it.events

    assert story(1) == story(1)


def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(bed) -> None:
    """Cut after any event: what was finished is not tried again, and the end is the same."""
    whole = bed(valley)
    run(whole, slot("s"), slot("t"))
    expected = {event.outcome.candidate for event in whole.of(StepFinished)}
    for end in range(4, len(whole.events), 3):
        first = bed(valley)
        budget = first.budget()
        search(first.parts, open_slots(first.parts, [slot("s"), slot("t")], budget), budget)
        journal = first.events[:end]
        state = replay(Entry(float(number), event) for number, event in enumerate(journal))
        second = Bed(first.bench, bed(valley).store, archive=first.archive)
        for outcome in (event.outcome for event in journal if isinstance(event, StepFinished)):
            if outcome is not state.last:
                second.parts.memory.record(outcome)
        budget = second.budget(seconds_before=state.seconds, steps_before=state.steps)
        progress = open_slots(second.parts, [slot("s"), slot("t")], budget, state)
        search(second.parts, progress, budget)
        steps = [event for event in (*journal, *second.events) if isinstance(event, StepFinished)]
        assert {event.outcome.candidate for event in steps} == expected
        assert len(steps) == len(expected)
        assert [event.outcome.step for event in steps] == list(range(1, len(steps) + 1))
        assert {each.best.candidate.schedule for each in progress if each.best} == {"3,2"}
        assert {each.speedup for each in progress} == {5.0}
        assert len(second.store.outcomes()) == len(steps)


def test_a_full_disk_ends_the_search(bed) -> None:
    it = bed(valley)
    parts = it.parts
    count = itertools.count()

    def full(event: object) -> None:
        if next(count) == 4:
            raise StorageError("no space")

    budget = it.budget()
    progress = open_slots(parts, [slot()], budget)
    with pytest.raises(StorageError):
        search(dataclasses.replace(parts, emit=full), progress, budget)
