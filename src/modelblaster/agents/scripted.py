"""The actor that needs no language model: it applies a technique's move to a schedule and emits the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelblaster.kernels.emit import emit
from modelblaster.kernels.moves import MOVES
from modelblaster.kernels.schedule import default, from_text, is_legal, to_text
from modelblaster.records.candidate import Candidate
from modelblaster.records.codec import digest
from modelblaster.records.plan import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelblaster.kernels.dialect import Dialect
    from modelblaster.kernels.schedule import Schedule
    from modelblaster.knowledge.techniques import Technique
    from modelblaster.program.slots import Slot
    from modelblaster.records.candidate import Source
    from modelblaster.records.facts import Facts
    from modelblaster.records.plan import Plan

AUTHOR = "scripted"
_BORDER = (Role.INPUT, Role.PARAMETER, Role.OUTPUT, Role.MUTATED)


@dataclass(frozen=True, slots=True)
class _Written:
    digest: str
    sources: tuple[Source, ...]
    plan: Plan


class ScriptedActor:
    """Candidates from nests and schedules. The same arguments give the same candidates."""

    def __init__(self, dialect: Dialect, facts: Facts) -> None:
        self._dialect = dialect
        self._facts = facts
        # A slot's neighbours are asked for again at every step on it; emitting them anew would cost more than a build.
        self._written: dict[tuple[str, str], _Written] = {}

    def start(self, slot: Slot) -> Candidate | None:
        """The default schedule's candidate; None for a slot that no emitter covers."""
        if slot.nest is None:
            return None
        return self._candidate(slot, default(slot.nest, self._facts), None, None)

    def rebuild(self, slot: Slot, schedule: str) -> Candidate | None:
        """The candidate of a remembered schedule; None if it cannot be read or is not legal here and now."""
        if slot.nest is None:
            return None
        try:
            found = from_text(schedule)
        except ValueError:
            return None
        return self._candidate(slot, found, None, None) if is_legal(slot.nest, found, self._facts) else None

    def propose(self, slot: Slot, technique: Technique, parent: Candidate) -> Iterator[Candidate]:
        """What the technique's move makes of the parent's schedule; nothing where it has no move."""
        move = MOVES.get(technique.move) if technique.move else None
        if move is None or slot.nest is None or not parent.schedule:
            return
        for schedule in move(slot.nest, from_text(parent.schedule), self._facts):
            yield self._candidate(slot, schedule, technique, parent)

    def _candidate(
        self, slot: Slot, schedule: Schedule, technique: Technique | None, parent: Candidate | None
    ) -> Candidate:
        text = to_text(schedule)
        written = self._written.get((slot.key, text))
        if written is None:
            written = self._written[slot.key, text] = self._write(slot, schedule)
        return Candidate(
            digest=written.digest,
            sources=written.sources,
            plan=written.plan,
            author=AUTHOR,
            technique=technique.name if technique else None,
            parent=parent.digest if parent else None,
            claims=_claims(technique, schedule, parent),
            schedule=text,
        )

    def _write(self, slot: Slot, schedule: Schedule) -> _Written:
        assert slot.nest is not None
        border = slot.reference.named(*_BORDER)
        # The slot's key makes names of entries unique in a program, and equal in every run.
        sources, plan = emit(slot.nest, schedule, self._dialect, prefix=f"s{slot.key}", buffers=border)
        return _Written(digest(plan, *(source.text for source in sources)), sources, plan)


def _claims(technique: Technique | None, schedule: Schedule, parent: Candidate | None) -> tuple[str, ...]:
    """What the technique promises; narrower vectors are neighbours of its move, too, and promise nothing."""
    if technique is None or parent is None:
        return ()
    is_narrower = schedule.lanes < from_text(parent.schedule).lanes
    return tuple(claim for claim in technique.claims if not (is_narrower and claim == "wide_simd"))
