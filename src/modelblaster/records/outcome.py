"""What came of one step; failures are outcomes too."""

from __future__ import annotations

from dataclasses import dataclass

from modelblaster.records.profile import Profile
from modelblaster.records.timing import Timing
from modelblaster.records.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """State, technique, candidate, verdict, timing and reward of one step on one slot.

    `slot` is the slot's content key, `candidate` and `parent` are digests. `reward` is None where nothing was
    measured, so that statistics are not touched; `reason` is the reward as a sentence.
    """

    step: int
    slot: str
    family: str
    device: str
    state: str
    technique: str
    candidate: str
    parent: str | None
    verdict: Verdict
    timing: Timing | None
    profile: Profile | None
    reward: float | None
    reason: str
    kept: bool
    seconds: float
