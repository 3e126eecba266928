"""What to try next on a slot: a state, a technique, and a candidate that was not tried before."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelblaster.search.classifier import classify
from modelblaster.search.techniques import rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelblaster.records.candidate import Candidate
    from modelblaster.records.profile import Profile
    from modelblaster.search.parts import Parts
    from modelblaster.search.progress import SlotProgress

# Names of what is tried before any technique; they have no move.
RECALL, DEFAULT = "recall", "default"


@dataclass(frozen=True, slots=True)
class Proposal:
    """One candidate to try. `parent_ns` is the screened time of what it was made from; None where that has none."""

    state: str
    technique: str
    candidate: Candidate
    parent: str | None
    parent_ns: float | None


def propose(parts: Parts, progress: SlotProgress, step: int) -> Proposal | None:
    """The next candidate for a slot, or None when every technique is exhausted.

    Candidates that were tried before cost nothing and are passed over.
    """
    for proposal in _possible(parts, progress, step):
        if proposal.candidate.digest not in progress.tried:
            return proposal
    return None


def _possible(parts: Parts, progress: SlotProgress, step: int) -> Iterator[Proposal]:
    yield from _openers(parts, progress)
    generator = random.Random(f"{parts.seed}/{step}")
    starts = progress.starts()
    for start in starts:
        yield from _moved(parts, progress, start.candidate, start.timing.median_ns, start.profile, generator)
    if not starts and progress.opener is not None:
        yield from _moved(parts, progress, progress.opener, None, None, generator)


def _openers(parts: Parts, progress: SlotProgress) -> Iterator[Proposal]:
    """What memory holds of this very slot, then the actor's own beginning, until one has passed."""
    state = classify(parts.techniques.tree, progress.family, None)
    reference_ns = progress.reference.median_ns if progress.reference else None
    if progress.opener is None:
        schedule = parts.memory.recall(progress.key)
        recalled = parts.actor.rebuild(progress.slot, schedule) if schedule else None
        if recalled is not None:
            yield Proposal(state, RECALL, recalled, None, reference_ns)
    if progress.best is None:
        first = parts.actor.start(progress.slot)
        if first is not None:
            yield Proposal(state, DEFAULT, first, None, reference_ns)


def _moved(
    parts: Parts,
    progress: SlotProgress,
    parent: Candidate,
    parent_ns: float | None,
    profile: Profile | None,
    generator: random.Random,
) -> Iterator[Proposal]:
    state = classify(parts.techniques.tree, progress.family, profile)
    applicable = parts.techniques.applicable(state)
    ranked = rank(applicable, parts.memory.arms(state), parts.memory.broader_arms(state), generator)
    for technique in ranked:
        for candidate in parts.actor.propose(progress.slot, technique, parent):
            yield Proposal(state, technique.name, candidate, parent.digest, parent_ns)
