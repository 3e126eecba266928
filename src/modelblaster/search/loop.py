"""The search on the slots of one program. It decides nothing by itself, measures nothing and never prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelblaster.records.outcome import Outcome
from modelblaster.search.events import SlotClosed, SlotImproved, StepFinished, StepStarted
from modelblaster.search.operators import select
from modelblaster.search.proposal import propose
from modelblaster.search.reward import reward
from modelblaster.search.trial import attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelblaster.search.budget import Budget
    from modelblaster.search.parts import Parts
    from modelblaster.search.progress import SlotProgress
    from modelblaster.search.proposal import Proposal
    from modelblaster.search.trial import Trial

EXHAUSTED = "every technique is exhausted"


def search(parts: Parts, slots: Sequence[SlotProgress], budget: Budget) -> None:
    """Work on the slots until the budget is spent or all are closed; what was found is in `slots` and the events.

    Raises:
        StorageError: the journal, the archive or the memory cannot be written any more.
    """
    while not budget.is_spent():
        progress = select(slots)
        if progress is None:
            return
        proposal = propose(parts, progress, budget.steps + 1)
        if proposal is None:
            _close(parts, progress, EXHAUSTED)
            continue
        started = budget.elapsed()
        step = _announce(parts, progress, proposal, budget)
        trial = attempt(parts.bench, progress, proposal.candidate, budget)
        outcome = _outcome(step, parts, progress, proposal, trial, budget.elapsed() - started)
        parts.emit(StepFinished(outcome))
        parts.memory.record(outcome)
        progress.add(outcome, proposal.candidate)
        if outcome.kept:
            _improve(parts, progress, proposal, trial)
        reason = progress.hopeless()
        if reason is not None:
            _close(parts, progress, reason)


def _announce(parts: Parts, progress: SlotProgress, proposal: Proposal, budget: Budget) -> int:
    parts.archive.save(proposal.candidate)
    seconds, steps = budget.seconds_left(), budget.steps_left()
    step = budget.begin_step()
    digest = proposal.candidate.digest
    parts.emit(StepStarted(step, progress.key, proposal.state, proposal.technique, digest, seconds, steps))
    return step


def _outcome(
    step: int, parts: Parts, progress: SlotProgress, proposal: Proposal, trial: Trial, seconds: float
) -> Outcome:
    value, reason = reward(trial.verdict, _speedup(proposal, trial))
    return Outcome(
        step=step,
        slot=progress.key,
        family=progress.family,
        device=parts.device,
        state=proposal.state,
        technique=proposal.technique,
        candidate=proposal.candidate.digest,
        parent=proposal.parent,
        verdict=trial.verdict,
        timing=trial.timing,
        profile=trial.profile,
        reward=value,
        reason=reason,
        kept=_is_better(progress, trial),
        seconds=seconds,
    )


def _speedup(proposal: Proposal, trial: Trial) -> float | None:
    """Over the parent, both as screened; over the reference, where that is the parent, as timed in pairs."""
    if proposal.parent is None and trial.comparison is not None:
        return trial.comparison.speedup
    if trial.timing is None or proposal.parent_ns is None:
        return None
    return proposal.parent_ns / trial.timing.median_ns


def _is_better(progress: SlotProgress, trial: Trial) -> bool:
    """Whether it is surely faster than the reference, and faster than the best in equal pairings with it."""
    comparison = trial.comparison
    return comparison is not None and comparison.is_win and comparison.speedup > progress.speedup


def _improve(parts: Parts, progress: SlotProgress, proposal: Proposal, trial: Trial) -> None:
    assert trial.comparison is not None
    progress.speedup = trial.comparison.speedup
    parts.memory.keep(progress.key, progress.family, proposal.candidate, trial.comparison.candidate)
    parts.emit(SlotImproved(progress.key, proposal.candidate.digest, trial.comparison, progress.speedup))


def _close(parts: Parts, progress: SlotProgress, reason: str) -> None:
    progress.closed = reason
    parts.emit(SlotClosed(progress.key, reason))
