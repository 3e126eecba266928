"""Cutting a captured program into slots: what one kernel can compute becomes one slot.

The fusion rule is the nest builder's: a step joins the slot of one of its producers if the builder takes it and the
slots stay free of cycles. Views and constant factories belong to no slot; a slot that needs one repeats it. What no
emitter covers is a library slot of one step. Equal slots of a program are one slot with several occurrences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modelblaster.kernels.builder import NestBuilder
from modelblaster.program.library import is_view, reads, writes
from modelblaster.records.codec import digest
from modelblaster.records.plan import Buffer, Library, Plan, Ref, Role
from modelblaster.records.tensor import TensorSpec, contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modelblaster.kernels.ir import Nest
    from modelblaster.records.plan import Argument, Step

LIBRARY = "library"


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One place of a slot in the program: its steps there and, for each buffer of the slot, the program's name."""

    steps: tuple[int, ...]
    binding: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """A subgraph that one candidate implements.

    `reference` has canonical buffer names, so that `key`, its content hash, does not depend on where the slot stands.
    `nest` is None where no emitter covers it.
    """

    key: str
    family: str
    reference: Plan
    nest: Nest | None
    occurrences: tuple[Occurrence, ...]


def cut(plan: Plan) -> tuple[Slot, ...]:
    """The slots of a captured program, in the order of their first occurrences."""
    groups = _Cutter(plan).groups()
    found: dict[str, Slot] = {}
    for group in groups:
        reference, binding = _extract(plan, group)
        nest = _nest(reference) if group.is_covered else None
        key = digest(reference)
        occurrence = Occurrence(tuple(group.steps), binding)
        if key in found:
            found[key] = replace(found[key], occurrences=(*found[key].occurrences, occurrence))
        else:
            found[key] = Slot(key, nest.family if nest else LIBRARY, reference, nest, (occurrence,))
    return tuple(found.values())


def is_free(step: Step) -> bool:
    """Whether a step belongs to no slot: it gives memory another shape, or makes a constant out of nothing."""
    return not isinstance(step, Library) or not reads(step) or is_view(step)


def specs_of(buffers: Iterable[Buffer]) -> dict[str, TensorSpec]:
    """The buffers of a static plan as tensor specs, by name."""
    specs = {}
    for buffer in buffers:
        shape = tuple(int(size) for size in buffer.shape)
        strides = contiguous_strides(shape) if buffer.strides is None else tuple(int(part) for part in buffer.strides)
        specs[buffer.name] = TensorSpec(buffer.name, buffer.dtype, shape, strides)
    return specs


def _nest(reference: Plan) -> Nest:
    builder = NestBuilder(specs_of(reference.buffers))
    for step in reference.steps:
        assert isinstance(step, Library)
        accepted = builder.try_add(step)
        assert accepted, step.overload
    return builder.finish([buffer.name for buffer in reference.named(Role.OUTPUT)])


class _Group:
    """A slot while it grows. `steps` holds the free steps it repeats, too."""

    def __init__(self, number: int, builder: NestBuilder | None) -> None:
        self.number = number
        self.builder = builder
        self.steps: list[int] = []

    @property
    def is_covered(self) -> bool:
        return self.builder is not None


class _Cutter:
    """One walk over the steps in their order."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._specs = specs_of(plan.buffers)
        self._producer = {name: index for index, step in enumerate(plan.steps) for name in writes(step)}
        self._group_of: dict[int, _Group] = {}
        self._successors: dict[int, set[int]] = {}
        self._groups: list[_Group] = []
        self._readers: dict[str, list[_Group]] = {}

    def groups(self) -> list[_Group]:
        for index, step in enumerate(self._plan.steps):
            if not is_free(step):
                self._place(index)
        living = {id(group): group for group in self._group_of.values()}
        return sorted(living.values(), key=lambda group: group.steps[-1])

    def _place(self, index: int) -> None:
        producers = self._producing_groups(index)
        covered = [group for group in producers if group.is_covered]
        covered.sort(key=lambda group: -group.steps[-1])
        for group in (*covered, *self._siblings(index, covered)):
            if not self._closes_cycle(group, producers) and self._add(group, index):
                for other in covered:
                    if other is not group:
                        self._merge(other, self._group_of[index])
                return
        group = self._new_group(NestBuilder(self._specs))
        if not self._add(group, index):
            group.builder = None
            self._append(group, [index], index)

    def _new_group(self, builder: NestBuilder | None) -> _Group:
        group = _Group(len(self._groups), builder)
        self._groups.append(group)
        self._successors[group.number] = set()
        return group

    def _add(self, group: _Group, index: int) -> bool:
        """Add a step and the free steps between it and the group. A refused step may leave unused views behind."""
        assert group.builder is not None
        wanted = [*self._free_steps(group, index), index]
        for position in wanted:
            step = self._plan.steps[position]
            if position not in group.steps and not (isinstance(step, Library) and group.builder.try_add(step)):
                return False
        self._append(group, wanted, index)
        return True

    def _append(self, group: _Group, wanted: Sequence[int], index: int) -> None:
        group.steps = sorted({*group.steps, *wanted})
        self._group_of[index] = group
        for name in reads(self._plan.steps[index]):
            self._readers.setdefault(name, []).append(group)
        for producer in self._producing_groups(index):
            if producer is not group:
                self._successors[producer.number].add(group.number)

    def _merge(self, first: _Group, second: _Group) -> None:
        """Make one group of two that a common consumer joined, if one nest can hold both."""
        if first is second or not first.is_covered:
            return
        if self._reaches(first.number, second.number, direct=False) or self._reaches(second.number, first.number):
            return
        builder = NestBuilder(self._specs)
        steps = sorted({*first.steps, *second.steps})
        for position in steps:
            step = self._plan.steps[position]
            if not (isinstance(step, Library) and builder.try_add(step)):
                return
        second.builder = builder
        second.steps = steps
        for position, group in self._group_of.items():
            if group is first:
                self._group_of[position] = second
        self._successors[second.number] |= self._successors.pop(first.number) - {second.number}
        for successors in self._successors.values():
            if first.number in successors:
                successors.discard(first.number)
                successors.add(second.number)
        self._successors[second.number].discard(second.number)
        for readers in self._readers.values():
            readers[:] = [second if group is first else group for group in readers]

    def _free_steps(self, group: _Group, index: int) -> list[int]:
        """Views of the group's own values, and factories, that a step reads, in order."""
        found: list[int] = []
        pending = [index]
        while pending:
            for name in reads(self._plan.steps[pending.pop()]):
                producer = self._producer.get(name)
                if producer is None or not is_free(self._plan.steps[producer]):
                    continue
                root = self._root(producer)
                if root is None or self._group_of.get(root) is group:
                    found.append(producer)
                    pending.append(producer)
        return sorted(set(found))

    def _root(self, index: int) -> int | None:
        """The step that computes what a chain of views shows; None for a factory, -1 for an input or parameter."""
        step = self._plan.steps[index]
        while is_free(step):
            names = reads(step)
            if not names:
                return None
            if names[0] not in self._producer:
                return -1
            index = self._producer[names[0]]
            step = self._plan.steps[index]
        return index

    def _producing_groups(self, index: int) -> list[_Group]:
        groups: dict[int, _Group] = {}
        for name in reads(self._plan.steps[index]):
            if name in self._producer:
                root = self._root(self._producer[name])
                group = self._group_of.get(root) if root is not None else None
                if group is not None:
                    groups[group.number] = group
        return list(groups.values())

    def _siblings(self, index: int, producers: Sequence[_Group]) -> list[_Group]:
        """Covered groups that read a value which this step reads, too: one pass over memory can serve both."""
        step = self._plan.steps[index]
        values = [name for name in reads(step) if self._plan.buffer(name).role not in (Role.PARAMETER, Role.MUTATED)]
        groups = {group.number: group for name in values for group in self._readers.get(name, ())}
        return [group for group in groups.values() if group.is_covered and group not in producers]

    def _closes_cycle(self, group: _Group, producers: Sequence[_Group]) -> bool:
        return any(other is not group and self._reaches(group.number, other.number) for other in producers)

    def _reaches(self, start: int, goal: int, *, direct: bool = True) -> bool:
        """Whether there is a path; without `direct`, one over a third group."""
        pending = [number for number in self._successors[start] if direct or number != goal]
        seen = set(pending)
        while pending:
            number = pending.pop()
            if number == goal:
                return True
            fresh = self._successors[number] - seen
            seen |= fresh
            pending.extend(fresh)
        return False


def _extract(plan: Plan, group: _Group) -> tuple[Plan, tuple[tuple[str, str], ...]]:
    """A group's reference with canonical names, and the program's name of each of its border buffers."""
    steps = [plan.steps[index] for index in _needed(plan, group.steps)]
    made = {name for step in steps for name in writes(step)}
    outside = _used_outside(plan, set(group.steps))
    names: dict[str, str] = {}
    buffers: list[Buffer] = []
    for step in steps:
        for name in (*reads(step), *writes(step)):
            if name not in names:
                buffer = plan.buffer(name)
                role = _role(buffer, name in made, name in outside)
                names[name] = f"{_PREFIX[role]}{len(names)}{_suffix(buffer)}"
                buffers.append(replace(buffer, name=names[name], role=role))
    buffers.sort(key=lambda buffer: _ORDER[buffer.role])
    renamed = tuple(rename(step, names) for step in steps if isinstance(step, Library))
    border = {buffer.name for buffer in buffers if buffer.role is not Role.SCRATCH}
    binding = tuple((canonical, name) for name, canonical in names.items() if canonical in border)
    return Plan(buffers=tuple(buffers), steps=renamed), binding


_PREFIX = {Role.INPUT: "x", Role.PARAMETER: "p", Role.OUTPUT: "y", Role.SCRATCH: "t"}
_ORDER = {Role.INPUT: 0, Role.PARAMETER: 1, Role.OUTPUT: 2, Role.SCRATCH: 3}


def _role(buffer: Buffer, is_made: bool, is_used_outside: bool) -> Role:
    if is_made:
        return Role.OUTPUT if is_used_outside else Role.SCRATCH
    return Role.PARAMETER if buffer.role in (Role.PARAMETER, Role.MUTATED) else Role.INPUT


def _suffix(buffer: Buffer) -> str:
    """What kind of parameter it is decides how the judge draws it; the name tells."""
    return f"_{buffer.name.rpartition('.')[2]}" if buffer.role in (Role.PARAMETER, Role.MUTATED) else ""


def _needed(plan: Plan, steps: Sequence[int]) -> list[int]:
    """Steps without the views that a refused consumer left behind."""
    wanted: set[str] = set()
    kept: list[int] = []
    for index in reversed(steps):
        step = plan.steps[index]
        if not is_free(step) or wanted.intersection(writes(step)):
            kept.append(index)
            wanted.update(reads(step))
    return kept[::-1]


def _used_outside(plan: Plan, steps: set[int]) -> set[str]:
    """Values that a step elsewhere, or the program's caller, needs; through views, too."""
    used = {buffer.name for buffer in plan.buffers if buffer.role in (Role.OUTPUT, Role.MUTATED)}
    for index in reversed(range(len(plan.steps))):
        step = plan.steps[index]
        is_elsewhere = index not in steps and not is_free(step)
        if is_elsewhere or not isinstance(step, Library) or (used.intersection(writes(step)) and is_free(step)):
            used.update(reads(step))
    return used


def rename(step: Library, names: Mapping[str, str]) -> Library:
    """The step with other buffer names; a result that nobody reads loses its name."""

    def renamed(argument: Argument) -> Argument:
        if isinstance(argument, Ref):
            return replace(argument, buffer=names[argument.buffer])
        return tuple(renamed(part) for part in argument) if isinstance(argument, tuple) else argument

    return replace(
        step,
        arguments=tuple(renamed(argument) for argument in step.arguments),
        keywords=tuple((name, renamed(argument)) for name, argument in step.keywords),
        outputs=tuple(names.get(name, "") for name in step.outputs),
    )
