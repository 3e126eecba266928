"""One plan for the whole program out of the plans of its slots.

Slots without a candidate keep their library steps. Views cost nothing wherever memory allows it; values between
kernels share one pool of scratch memory, laid out by how long each one lives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modelblaster.program.library import is_view, reads, view_offset, writes
from modelblaster.program.pool import Lifetime, lay_out
from modelblaster.program.slots import is_free, specs_of
from modelblaster.records.candidate import Candidate
from modelblaster.records.codec import digest
from modelblaster.records.plan import Buffer, Copy, Launch, Library, Plan, Ref, Repeat, Role, View
from modelblaster.records.tensor import DType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modelblaster.program.slots import Occurrence, Slot
    from modelblaster.records.candidate import Source
    from modelblaster.records.plan import Step
    from modelblaster.records.tensor import TensorSpec

POOL = "pool"


@dataclass(frozen=True, slots=True)
class _Item:
    """Steps that run together: one occurrence of a slot, one library step, one free step or one copy."""

    position: int
    steps: tuple[Step, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    is_native: bool


def assemble(program: Plan, slots: Sequence[Slot], chosen: Mapping[str, Candidate], *, author: str) -> Candidate:
    """The whole program with the chosen candidate of each slot, by slot key."""
    assembly = _Assembly(program)
    absorbed: set[int] = set()
    items: list[_Item] = []
    for slot in slots:
        candidate = chosen.get(slot.key)
        if candidate is not None:
            for occurrence in slot.occurrences:
                items.append(assembly.native(occurrence, candidate.plan, len(items)))
                absorbed.update(occurrence.steps)
    computed = {name for item in items for name in item.writes}
    items += [
        _Item(index, (step,), tuple(reads(step)), tuple(writes(step)), is_native=False)
        for index, step in enumerate(program.steps)
        if (index not in absorbed or is_free(step)) and not computed.intersection(writes(step))
    ]
    ordered = _in_order(_wanted(items, program))
    sources: dict[str, Source] = {}
    for slot in slots:
        if slot.key in chosen:
            sources.update({source.name: source for source in chosen[slot.key].sources})
    plan = assembly.plan(ordered)
    texts = tuple(sources.values())
    return Candidate(digest(plan, *(source.text for source in texts)), texts, plan, author)


class _Assembly:
    """Buffers and steps of the whole program as they come together."""

    def __init__(self, program: Plan) -> None:
        self._program = program
        self._buffers = {buffer.name: buffer for buffer in program.buffers}
        self._setup: list[Step] = []

    def native(self, occurrence: Occurrence, plan: Plan, number: int) -> _Item:
        """A candidate's steps under the program's names; its own buffers get names of this occurrence."""
        names = dict(occurrence.binding)
        for buffer in plan.named(Role.SCRATCH, Role.DERIVED):
            names[buffer.name] = f"{buffer.name}@{number}"
            self._buffers[names[buffer.name]] = replace(buffer, name=names[buffer.name])
        self._setup += [_renamed(step, names) for step in plan.setup]
        border = {role: [names[buffer.name] for buffer in plan.named(role)] for role in Role}
        return _Item(
            max(occurrence.steps),
            tuple(_renamed(step, names) for step in plan.steps),
            tuple(border[Role.INPUT] + border[Role.PARAMETER]),
            tuple(border[Role.OUTPUT] + border[Role.MUTATED] + border[Role.SCRATCH]),
            is_native=True,
        )

    def plan(self, items: Sequence[_Item]) -> Plan:
        native = {name for item in items if item.is_native for name in item.writes}
        base: dict[str, str] = {}
        views: list[Step] = []
        steps: list[Step] = []
        for item in items:
            (first, *_) = item.steps
            if isinstance(first, Library) and not item.is_native and reads(first) and is_view(first):
                steps += self._view(first, native, base, views)
            else:
                steps += item.steps
        scratch = [name for name in native if name not in base and self._buffers[name].role is Role.SCRATCH]
        pool = self._pool(scratch, items, base)
        used = {name for step in (*self._setup, *views, *steps, *pool) for name in _mentioned(step)}
        border = {Role.INPUT, Role.PARAMETER, Role.MUTATED, Role.OUTPUT}
        kept = [buffer for buffer in self._buffers.values() if buffer.role in border or buffer.name in used]
        # Vendor libraries may sum in another order where memory is aligned otherwise.
        calls_library = any(isinstance(step, Library) for step in (*self._setup, *steps))
        return replace(
            self._program,
            buffers=tuple(kept),
            setup=tuple(self._setup),
            steps=(*pool, *views, *steps),
            deterministic=not calls_library,
        )

    def _view(self, step: Library, native: set[str], base: dict[str, str], views: list[Step]) -> list[Step]:
        """A view of memory that a library call allocates stays its call; else it is a name for what is there."""
        (source, *_) = reads(step)
        root = base.get(source, source)
        is_allocated_by_library = root not in native and self._buffers[root].role in (Role.SCRATCH, Role.OUTPUT)
        if is_allocated_by_library or len(writes(step)) != 1:
            return [step]
        (name,) = writes(step)
        buffer = self._buffers[name]
        offset = view_offset(step, self._program)
        if buffer.role is not Role.OUTPUT:
            base[name] = root
            return [View(name, source, offset)]
        if (
            self._buffers[source].role is Role.SCRATCH
            and source not in base
            and _is_whole(buffer, self._buffers[source])
        ):
            base[source] = name
            views.append(View(source, name))
            return []
        shown = f"{name}@view"
        self._buffers[shown] = replace(buffer, name=shown, role=Role.SCRATCH)
        return [View(shown, source, offset), Copy(shown, name)]

    def _pool(self, names: Sequence[str], items: Sequence[_Item], base: Mapping[str, str]) -> list[Step]:
        if not names:
            return []
        uses = [{base.get(name, name) for name in (*item.reads, *item.writes)} for item in items]
        lifetimes = [Lifetime(name, _spec(self._buffers[name]).nbytes, *_ends(name, uses)) for name in sorted(names)]
        offsets, total = lay_out(lifetimes)
        self._buffers[POOL] = Buffer(POOL, Role.SCRATCH, DType.UINT8, (total,))
        return [View(name, POOL, offset) for name, offset in offsets.items()]


def _ends(name: str, uses: Sequence[set[str]]) -> tuple[int, int]:
    positions = [index for index, used in enumerate(uses) if name in used]
    return positions[0], positions[-1]


def _is_whole(view: Buffer, source: Buffer) -> bool:
    """Whether a view shows all of a dense source from its first element on, so that either may own the memory."""
    specs = [_spec(view), _spec(source)]
    is_dense = all(spec.nbytes == spec.elements * spec.dtype.itemsize for spec in specs)
    return is_dense and specs[0].elements == specs[1].elements


def _spec(buffer: Buffer) -> TensorSpec:
    return specs_of((buffer,))[buffer.name]


def _wanted(items: Sequence[_Item], program: Plan) -> list[_Item]:
    """Items whose results reach the caller: free steps that every user has taken over are dropped."""
    producer = {name: item for item in items for name in item.writes}
    pending = [buffer.name for buffer in program.named(Role.OUTPUT, Role.MUTATED) if buffer.name in producer]
    kept: dict[int, _Item] = {}
    while pending:
        item = producer.get(pending.pop())
        if item is not None and id(item) not in kept:
            kept[id(item)] = item
            pending.extend(item.reads)
    return list(kept.values())


def _in_order(items: Sequence[_Item]) -> list[_Item]:
    """A topological order that stays close to the program's. State is overwritten after its last reader."""
    producer = {name: item for item in items for name in item.writes}
    done: set[int] = set()
    ordered: list[_Item] = []

    def visit(item: _Item) -> None:
        if id(item) in done:
            return
        done.add(id(item))
        for name in item.reads:
            if name in producer and producer[name] is not item and not _overwrites(producer[name]):
                visit(producer[name])
        ordered.append(item)

    for item in sorted(items, key=lambda item: item.position):
        visit(item)
    return sorted(ordered, key=_overwrites)


def _overwrites(item: _Item) -> bool:
    """Copies into state and results stand at the end of a captured plan."""
    return isinstance(item.steps[0], Copy)


def _mentioned(step: Step) -> Iterator[str]:
    if isinstance(step, Launch):
        yield from (reference.buffer for reference in step.arguments)
    elif isinstance(step, Repeat):
        for part in step.steps:
            yield from _mentioned(part)
    else:
        yield from (*reads(step), *writes(step))


def _renamed(step: Step, names: Mapping[str, str]) -> Step:
    if isinstance(step, Launch):
        return replace(
            step,
            arguments=tuple(Ref(names[ref.buffer], ref.offset) for ref in step.arguments),
            reads=tuple(names[name] for name in step.reads),
            writes=tuple(names[name] for name in step.writes),
        )
    if isinstance(step, Copy):
        return Copy(names[step.source], names[step.destination])
    if isinstance(step, View):
        return replace(step, buffer=names[step.buffer], source=names[step.source])
    if isinstance(step, Repeat):
        return replace(step, steps=tuple(_renamed(part, names) for part in step.steps))
    assert not isinstance(step, Library)
    return replace(step, buffer=names[step.buffer])
