"""One candidate on the bench, cheapest checks first; whatever goes wrong is part of the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modelblaster.backends.interface import BuildFailure, RunFailure
from modelblaster.records.timing import WIN_MARGIN, Comparison
from modelblaster.records.verdict import Cause, Stage, Verdict

if TYPE_CHECKING:
    from modelblaster.backends.interface import Build
    from modelblaster.records.candidate import Candidate
    from modelblaster.records.profile import Profile
    from modelblaster.records.timing import Timing
    from modelblaster.search.budget import Budget
    from modelblaster.search.parts import Bench
    from modelblaster.search.progress import SlotProgress

STEP_SECONDS = 30.0
# A whole compiler's output helps nobody in a journal; its first lines name the place.
_DETAIL_LENGTH = 2000


@dataclass(frozen=True, slots=True)
class Trial:
    """What was found. `timing` is the screen's; `comparison`, with the reference, is there if nothing was refused."""

    verdict: Verdict
    timing: Timing | None = None
    profile: Profile | None = None
    comparison: Comparison | None = None


def attempt(bench: Bench, progress: SlotProgress, candidate: Candidate, budget: Budget) -> Trial:
    """Build, screen, and if that promises more than the best so far, verify fully and time against the reference."""
    try:
        build = bench.build(progress.slot, candidate)
    except BuildFailure as failure:
        return Trial(Verdict(Cause.BUILD_FAILED, Stage.SCREEN, str(failure)[:_DETAIL_LENGTH]))
    screened = _screened(bench, progress, candidate, build, budget)
    if not _is_promising(screened, progress):
        return screened
    try:
        return _proven(bench, progress, candidate, build, budget, screened)
    except RunFailure as failure:
        return Trial(Verdict(failure.cause, Stage.FULL, failure.detail))


def _screened(bench: Bench, progress: SlotProgress, candidate: Candidate, build: Build, budget: Budget) -> Trial:
    try:
        verdict, timing = bench.screen(progress.slot, candidate, build, budget.deadline(STEP_SECONDS))
    except RunFailure as failure:
        return Trial(Verdict(failure.cause, Stage.SCREEN, failure.detail))
    if not verdict.passed or timing is None:
        return Trial(verdict)
    return Trial(verdict, timing, bench.profile(progress.slot, candidate, build, timing))


def _is_promising(screened: Trial, progress: SlotProgress) -> bool:
    """Whether the screen's time beats what is best now by more than noise."""
    if not screened.verdict.passed or screened.timing is None:
        return False
    return screened.timing.median_ns * WIN_MARGIN < progress.current_ns


def _proven(
    bench: Bench, progress: SlotProgress, candidate: Candidate, build: Build, budget: Budget, screened: Trial
) -> Trial:
    verdict = bench.verify(progress.slot, candidate, build, budget.deadline(STEP_SECONDS))
    if not verdict.passed:
        return Trial(verdict)
    compared = bench.compare(progress.slot, candidate, build, budget.deadline(STEP_SECONDS))
    if not isinstance(compared, Comparison):
        return Trial(compared)
    return replace(screened, verdict=verdict, comparison=compared)
