"""What the loop is put together from, as narrow protocols: each can be faked in a few lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modelblaster.backends.interface import Build
    from modelblaster.knowledge.arms import ArmStatistics
    from modelblaster.knowledge.techniques import Technique, Techniques
    from modelblaster.program.slots import Slot
    from modelblaster.records.candidate import Candidate
    from modelblaster.records.outcome import Outcome
    from modelblaster.records.profile import Profile
    from modelblaster.records.timing import Comparison, Timing
    from modelblaster.records.verdict import Verdict
    from modelblaster.search.events import Sink


class Actor(Protocol):
    """Who writes candidates. Answers depend on the arguments alone, so that a run can be repeated."""

    def start(self, slot: Slot) -> Candidate | None:
        """The first candidate for a slot; None where the actor cannot write any."""

    def rebuild(self, slot: Slot, schedule: str) -> Candidate | None:
        """The candidate of a remembered schedule; None where it is not legal here and now."""

    def propose(self, slot: Slot, technique: Technique, parent: Candidate) -> Iterator[Candidate]:
        """Candidates that a technique makes of a parent, one after the other as they are asked for; maybe none."""


class Bench(Protocol):
    """Where candidates are built, judged and timed. `seconds` bound the work of one call.

    `build` may raise BuildFailure, the others RunFailure; both become outcomes.
    """

    def reference(self, slot: Slot, seconds: float) -> Timing | None:
        """The time of a slot's reference; None where it cannot be measured."""

    def build(self, slot: Slot, candidate: Candidate) -> Build:
        """The candidate, compiled and inspected."""

    def screen(self, slot: Slot, candidate: Candidate, build: Build, seconds: float) -> tuple[Verdict, Timing | None]:
        """One case, and a quick time if it passes."""

    def profile(self, slot: Slot, candidate: Candidate, build: Build, timing: Timing) -> Profile:
        """What limits a candidate that was timed."""

    def verify(self, slot: Slot, candidate: Candidate, build: Build, seconds: float) -> Verdict:
        """Every case."""

    def compare(self, slot: Slot, candidate: Candidate, build: Build, seconds: float) -> Comparison | Verdict:
        """Paired timing of a verified candidate with the slot's reference; a verdict where it fails meanwhile."""


class Memory(Protocol):
    """What is known from before and learned now (`knowledge.memory.Memory`)."""

    def record(self, outcome: Outcome) -> None:
        """Learn from an outcome; handing in one again changes nothing."""

    def arms(self, state: str) -> Mapping[str, ArmStatistics]:
        """Rewards of techniques in a state on this device."""

    def broader_arms(self, state: str) -> Mapping[str, ArmStatistics]:
        """Rewards of techniques in a state on other devices."""

    def keep(self, slot: str, family: str, candidate: Candidate, timing: Timing) -> None:
        """Remember a verified implementation."""

    def recall(self, slot: str) -> str | None:
        """The schedule of the fastest verified implementation of a slot on this device."""


class Archive(Protocol):
    """Where candidates are kept (`runs.run.Run`)."""

    def save(self, candidate: Candidate) -> None:
        """Keep a candidate; it is there before any event names it."""

    def candidate(self, digest: str) -> Candidate:
        """A candidate that was kept."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that the loop calls. `device` is the fingerprint that outcomes carry; `seed` decides ties."""

    actor: Actor
    bench: Bench
    memory: Memory
    archive: Archive
    techniques: Techniques
    emit: Sink
    device: str
    seed: int
