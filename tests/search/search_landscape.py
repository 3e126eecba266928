"""A landscape to search: schedules are points `a,b`, techniques step along one axis, and a table says what is fast."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modelblaster.backends.interface import Build, BuildFailure, RunFailure
from modelblaster.knowledge.memory import Memory
from modelblaster.knowledge.states import parse_states
from modelblaster.knowledge.techniques import Technique, Techniques, parse_techniques
from modelblaster.program.slots import Occurrence, Slot
from modelblaster.records.candidate import Candidate
from modelblaster.records.codec import digest
from modelblaster.records.plan import Library, Plan
from modelblaster.records.profile import Profile
from modelblaster.records.task import Budget as Granted
from modelblaster.records.timing import Comparison, Timing
from modelblaster.records.verdict import Cause, Stage, Verdict
from modelblaster.search.budget import Budget
from modelblaster.search.parts import Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modelblaster.knowledge.store import Store
    from modelblaster.search.events import Event

DEVICE = "the device"
REFERENCE_NS = 1000.0
STATES = """
[[state]]
id = "map"
text = "maps"
when = [{ fact = "family", is = "map" }]
[[state]]
id = "map.slow"
parent = "map"
text = "slow"
when = [{ metric = "memory_throughput", below = 0.5 }]
"""
TECHNIQUES = """
[[technique]]
name = "along_a"
text = "one more or less of a"
states = ["map"]
move = "a"
claims = ["wide"]
[[technique]]
name = "along_b"
text = "one more of b"
states = ["map.slow"]
move = "b"
"""


def seed() -> Techniques:
    return parse_techniques(TECHNIQUES, parse_states(STATES))


def slot(key: str = "s", *, family: str = "map", occurrences: int = 1, is_covered: bool = True) -> Slot:
    reference = Plan((), (Library("aten.relu.default", (), (), ()),))
    places = tuple(Occurrence((number,), ()) for number in range(occurrences))
    nest: object = "a nest" if is_covered else None
    return Slot(key, family, reference, nest, places)  # type: ignore[arg-type]


def timing(nanoseconds: float, protocol: str = "screen") -> Timing:
    return Timing(nanoseconds, (nanoseconds * 0.99, nanoseconds * 1.01), (nanoseconds,), protocol)


def candidate(key: str, a: int, b: int, technique: str | None = None, parent: str | None = None) -> Candidate:
    text = f"{a},{b}"
    return Candidate(digest(key, text), (), Plan((), ()), "fake", technique, parent, (), text)


class FakeActor:
    """Starts at 0,0; every point from 0 to 3 is legal."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def start(self, slot: Slot) -> Candidate | None:
        return candidate(slot.key, 0, 0)

    def rebuild(self, slot: Slot, schedule: str) -> Candidate | None:
        if schedule == "illegal":
            return None
        a, b = map(int, schedule.split(","))
        return candidate(slot.key, a, b)

    def propose(self, slot: Slot, technique: Technique, parent: Candidate) -> Iterator[Candidate]:
        self.asked.append(technique.name)
        a, b = map(int, parent.schedule.split(","))
        points = [(a + 1, b), (a - 1, b)] if technique.move == "a" else [(a, b + 1)]
        for x, y in points:
            if 0 <= x <= 3 and 0 <= y <= 3:
                yield candidate(slot.key, x, y, technique.name, parent.digest)


@dataclass
class FakeBench:
    """Times from a function of slot key and schedule; `fates` say what goes wrong, by stage and schedule."""

    times: Callable[[str, str], float]
    fates: dict[tuple[str, str], object] = field(default_factory=dict)
    references: dict[str, float | None] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 1.0
    now: float = 0.0

    def clock(self) -> float:
        return self.now

    def _do(self, stage: str, schedule: str) -> object:
        self.calls.append((stage, schedule))
        self.now += self.seconds / 4
        fate = self.fates.get((stage, schedule), self.fates.get((stage, "*")))
        if isinstance(fate, Exception):
            raise fate
        return fate

    def reference(self, slot: Slot, seconds: float) -> Timing | None:
        self._do("reference", slot.key)
        nanoseconds = self.references.get(slot.key, REFERENCE_NS)
        return None if nanoseconds is None else timing(nanoseconds)

    def build(self, slot: Slot, candidate: Candidate) -> Build:
        self._do("build", candidate.schedule)
        return Build((), frozenset(), 1.0, 0.1)

    def screen(self, slot: Slot, candidate: Candidate, build: Build, seconds: float) -> tuple[Verdict, Timing | None]:
        fate = self._do("screen", candidate.schedule)
        if isinstance(fate, Verdict):
            return fate, None
        return Verdict(Cause.PASSED, Stage.SCREEN), timing(self.times(slot.key, candidate.schedule))

    def profile(self, slot: Slot, candidate: Candidate, build: Build, timing: Timing) -> Profile:
        return Profile(memory_throughput=min(1.0, 100.0 / timing.median_ns))

    def verify(self, slot: Slot, candidate: Candidate, build: Build, seconds: float) -> Verdict:
        fate = self._do("verify", candidate.schedule)
        return fate if isinstance(fate, Verdict) else Verdict(Cause.PASSED, Stage.FULL)

    def compare(self, slot: Slot, candidate: Candidate, build: Build, seconds: float) -> Comparison | Verdict:
        fate = self._do("compare", candidate.schedule)
        if isinstance(fate, Verdict | Comparison):
            return fate
        reference = self.references.get(slot.key, REFERENCE_NS) or REFERENCE_NS
        nanoseconds = self.times(slot.key, candidate.schedule)
        speedup = reference / nanoseconds
        pair = timing(reference, "paired"), timing(nanoseconds, "paired")
        return Comparison(*pair, speedup, (speedup * 0.995, speedup * 1.005))


class FakeArchive:
    def __init__(self) -> None:
        self.candidates: dict[str, Candidate] = {}

    def save(self, candidate: Candidate) -> None:
        self.candidates[candidate.digest] = candidate

    def candidate(self, digest: str) -> Candidate:
        return self.candidates[digest]


@dataclass
class Bed:
    """A loop with everything around it."""

    bench: FakeBench
    store: Store
    run: str = "run"
    seed: int = 3
    actor: FakeActor = field(default_factory=FakeActor)
    archive: FakeArchive = field(default_factory=FakeArchive)
    events: list[Event] = field(default_factory=list)

    @property
    def parts(self) -> Parts:
        memory = Memory(self.store, run=self.run, backend="fake", device=DEVICE)
        return Parts(self.actor, self.bench, memory, self.archive, seed(), self.events.append, DEVICE, self.seed)

    def budget(self, seconds: float | None = None, steps: int | None = None, **before: float) -> Budget:
        return Budget(Granted(seconds, steps), self.bench.clock, **before)

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]


FAILURES = {
    "build": BuildFailure("k.c:3: no such thing"),
    "screen": RunFailure(Cause.CRASHED, "signal 11"),
    "verify": Verdict(Cause.WRONG, Stage.FULL, "rms 1 over 1e-5"),
    "compare": RunFailure(Cause.TIMEOUT, "30 s"),
}
