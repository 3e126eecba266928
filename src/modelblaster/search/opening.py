"""The slots' progress at the beginning of a command: measured anew, or as an interrupted run left it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelblaster.search.events import SlotClosed, SlotMeasured, SlotsCut, SlotSummary
from modelblaster.search.progress import SlotProgress, Standing
from modelblaster.search.trial import STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelblaster.program.slots import Slot
    from modelblaster.runs.state import Reached, RunState, SlotState
    from modelblaster.search.budget import Budget
    from modelblaster.search.parts import Archive, Parts

UNCOVERED = "no emitter covers it: the library computes it"
UNMEASURED = "its reference could not be measured"
# Slots of the library are measured only to know the shares: not with more than this part of the budget.
_LIBRARY_PART = 0.1


def open_slots(
    parts: Parts, slots: Sequence[Slot], budget: Budget, state: RunState | None = None
) -> list[SlotProgress]:
    """The slots ready for `search`, their references measured.

    With the state of an interrupted run, nothing that it knows is measured again, and its last outcome is handed to
    the memory once more, which may have missed it.
    """
    parts.emit(SlotsCut(tuple(summary(slot) for slot in slots)))
    if state is not None and state.last is not None:
        parts.memory.record(state.last)
    known = state.slots if state is not None else {}
    progresses = {}
    for slot in sorted(slots, key=lambda slot: slot.nest is None):
        before = known.get(slot.key)
        progress = restored(slot, before, parts.archive) if before is not None else SlotProgress(slot, None)
        if progress.reference is None and progress.is_open:
            _measure(parts, progress, budget)
        progresses[slot.key] = progress
    return [progresses[slot.key] for slot in slots]


def restored(slot: Slot, state: SlotState, archive: Archive) -> SlotProgress:
    """A slot's progress as an interrupted run left it.

    Raises:
        RunError: a candidate that the run names cannot be read.
    """

    def standing(reached: Reached) -> Standing:
        return Standing(archive.candidate(reached.candidate), reached.timing, reached.profile)

    progress = SlotProgress(
        slot,
        state.reference,
        opener=archive.candidate(state.tried[0]) if state.tried else None,
        tried=set(state.tried),
        visits=state.visits,
        stalls=state.stalls,
        failures=state.failures,
        closed=state.closed,
    )
    for reached in state.reached:
        found = standing(reached)
        progress.reached.append(found)
        if state.best is not None and reached.candidate == state.best.candidate:
            progress.best = found
    progress.reached.sort(key=lambda found: found.timing.median_ns)
    progress.speedup = state.speedup
    return progress


def summary(slot: Slot) -> SlotSummary:
    """A slot as people know it."""
    operators = tuple(step.overload for step in slot.reference.steps if step.kind == "library")
    return SlotSummary(slot.key, slot.family, len(slot.occurrences), slot.nest is not None, operators)


def _measure(parts: Parts, progress: SlotProgress, budget: Budget) -> None:
    is_covered = progress.slot.nest is not None
    is_asked = not budget.is_spent() and (is_covered or _has_time_to_spare(budget))
    if is_asked:
        progress.reference = parts.bench.reference(progress.slot, budget.deadline(STEP_SECONDS))
        detail = "" if progress.reference is not None else UNMEASURED
        parts.emit(SlotMeasured(progress.key, progress.reference, detail))
    if not is_covered or progress.reference is None:
        progress.closed = UNMEASURED if is_covered else UNCOVERED
        # Where only the time was missing, a resumed run may still measure it.
        if is_asked or not is_covered:
            parts.emit(SlotClosed(progress.key, progress.closed))


def _has_time_to_spare(budget: Budget) -> bool:
    left = budget.seconds_left()
    return left is None or budget.elapsed() < _LIBRARY_PART * (budget.elapsed() + left)
