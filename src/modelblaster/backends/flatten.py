"""From a plan to straight-line steps: expressions become integers, repeats are unrolled, views become offsets.

What a plan may not do is refused here, before anything runs: write inputs or parameters, reach outside a buffer, read
a name that no step has made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modelblaster.backends.flat import Address, Flat, FlatCopy, FlatFill, FlatLaunch, FlatLibrary, Placed, Region
from modelblaster.records.expression import ExpressionError, evaluate
from modelblaster.records.plan import Copy, Fill, Launch, Library, Ref, Repeat, Role, View
from modelblaster.records.tensor import contiguous_strides, span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modelblaster.backends.flat import FlatStep
    from modelblaster.records.plan import Argument, Buffer, Expr, Plan, Step

STEP_LIMIT = 100_000
"""Steps after unrolling; more are a mistake in a repeat's count."""

_NEVER_WRITTEN = frozenset({Role.INPUT, Role.PARAMETER})


class PlanError(ValueError):
    """A plan that cannot run as it is written; the message names the step or buffer and the reason."""


def flatten(plan: Plan, facts: Mapping[str, int]) -> Flat:
    """The plan's steps in order, with integers.

    `facts` are device facts that expressions may name (`threads`); the plan's own symbols hide them.

    Raises:
        PlanError: the plan is malformed.
    """
    return _Flattening(plan, facts).flat()


class _Flattening:
    """The state of one walk through a plan."""

    def __init__(self, plan: Plan, facts: Mapping[str, int]) -> None:
        self._plan = plan
        self._symbols = {**facts, **dict(plan.symbols)}
        self._buffers = {buffer.name: buffer for buffer in plan.buffers}
        if len(self._buffers) != len(plan.buffers):
            raise PlanError("two buffers of the plan have the same name")
        viewed = set(_viewed((*plan.setup, *plan.steps)))
        self._shapes = {buffer.name: self._shape(buffer) for buffer in plan.buffers}
        self._regions = tuple(self._region(buffer) for buffer in plan.buffers if buffer.name not in viewed)
        self._placed = {
            region.name: Placed(Address(index, 0), region.dtype, region.shape, region.strides)
            for index, region in enumerate(self._regions)
        }
        self._in_setup = False
        self._count = 0

    def flat(self) -> Flat:
        self._in_setup = True
        setup = tuple(self._walk(self._plan.setup))
        self._in_setup = False
        steps = tuple(self._walk(self._plan.steps))
        results = {buffer.name: self._place(buffer.name) for buffer in self._plan.named(Role.OUTPUT, Role.MUTATED)}
        return Flat(self._regions, setup, steps, results)

    def _walk(self, steps: Sequence[Step]) -> Iterator[FlatStep]:
        for step in steps:
            if isinstance(step, Repeat):
                yield from self._repeat(step)
            elif isinstance(step, View):
                self._view(step)
            else:
                self._count += 1
                if self._count > STEP_LIMIT:
                    raise PlanError(f"the plan has over {STEP_LIMIT} steps once its repeats are unrolled")
                yield self._one(step)

    def _one(self, step: Launch | Library | Fill | Copy) -> FlatStep:
        if isinstance(step, Launch):
            return self._launch(step)
        if isinstance(step, Library):
            return self._library(step)
        if isinstance(step, Fill):
            return FlatFill(self._written(step.buffer, "fill"), step.value)
        return self._copy(step)

    def _repeat(self, step: Repeat) -> Iterator[FlatStep]:
        if step.variable in self._symbols:
            raise PlanError(f"the repeat variable {step.variable!r} is already a symbol")
        count = self._value(step.count, "the count of a repeat")
        if count < 0:
            raise PlanError(f"a repeat of {count} times")
        for index in range(count):
            self._symbols[step.variable] = index
            yield from self._walk(step.steps)
        self._symbols.pop(step.variable, None)

    def _view(self, step: View) -> None:
        where = f"view {step.buffer!r}"
        source = self._place(step.source)
        if step.buffer not in self._buffers:
            raise PlanError(f"{where}: no such buffer is declared")
        shape, strides = self._shapes[step.buffer]
        offset = source.address.offset + self._value(step.offset, where) * source.dtype.itemsize
        placed = Placed(Address(source.address.region, offset), self._buffers[step.buffer].dtype, shape, strides)
        self._check_inside(placed, where)
        self._placed[step.buffer] = placed

    def _launch(self, step: Launch) -> FlatLaunch:
        where = f"launch {step.entry!r}"
        for name in step.writes:
            self._written(name, where)
        for name in step.reads:
            self._read(name, where)
        units, grain = self._value(step.range, where), self._value(step.grain, where)
        scratch = self._value(step.scratch_bytes, where)
        if units < 0 or grain < 1 or scratch < 0:
            raise PlanError(f"{where}: range {units}, grain {grain}, scratch {scratch} bytes make no sense")
        arguments = tuple(self._argument(argument, where) for argument in step.arguments)
        sizes = tuple(self._value(size, where) for size in step.sizes)
        return FlatLaunch(step.entry, arguments, sizes, units, grain, scratch)

    def _argument(self, reference: Ref, where: str) -> Address:
        placed = self._place(reference.buffer)
        self._check_phase(placed, reference.buffer, where)
        elements = self._value(reference.offset, where)
        address = Address(placed.address.region, placed.address.offset + elements * placed.dtype.itemsize)
        nbytes = self._regions[address.region].nbytes
        # One past the end is a valid pointer: nothing is left to do there.
        if not 0 <= address.offset <= nbytes:
            raise PlanError(f"{where}: offset {elements} lies outside the buffer {reference.buffer!r}")
        return address

    def _library(self, step: Library) -> FlatLibrary:
        where = f"library {step.overload}"
        tensors: dict[str, Placed] = {}

        def resolve(argument: Argument) -> Argument:
            if isinstance(argument, Ref):
                tensors[argument.buffer] = self._read(argument.buffer, where)
                return Ref(argument.buffer, self._value(argument.offset, where))
            return tuple(resolve(part) for part in argument) if isinstance(argument, tuple) else argument

        arguments = tuple(resolve(argument) for argument in step.arguments)
        keywords = tuple((name, resolve(argument)) for name, argument in step.keywords)
        for name in filter(None, step.outputs):
            tensors[name] = self._written(name, where)
        return FlatLibrary(replace(step, arguments=arguments, keywords=keywords), tensors)

    def _copy(self, step: Copy) -> FlatCopy:
        where = f"copy of {step.source!r} to {step.destination!r}"
        source, destination = self._read(step.source, where), self._written(step.destination, where)
        if (source.dtype, source.shape) != (destination.dtype, destination.shape):
            raise PlanError(f"{where}: {source.dtype} {source.shape} is not {destination.dtype} {destination.shape}")
        return FlatCopy(source, destination)

    def _place(self, name: str) -> Placed:
        if name not in self._buffers:
            raise PlanError(f"the plan has no buffer {name!r}")
        if name not in self._placed:
            raise PlanError(f"the buffer {name!r} is used before the view that makes it")
        return self._placed[name]

    def _read(self, name: str, where: str) -> Placed:
        placed = self._place(name)
        self._check_phase(placed, name, where)
        return placed

    def _written(self, name: str, where: str) -> Placed:
        placed = self._read(name, where)
        role = self._regions[placed.address.region].role
        if role in _NEVER_WRITTEN:
            raise PlanError(f"{where}: {name!r} is {role.value} memory and may not be written")
        if role is Role.DERIVED and not self._in_setup:
            raise PlanError(f"{where}: {name!r} is derived memory and only the setup may write it")
        return placed

    def _check_phase(self, placed: Placed, name: str, where: str) -> None:
        role = self._regions[placed.address.region].role
        if self._in_setup and role in (Role.INPUT, Role.OUTPUT, Role.MUTATED):
            raise PlanError(f"{where}: the setup sees parameters only, and {name!r} is {role.value} memory")

    def _check_inside(self, placed: Placed, where: str) -> None:
        region = self._regions[placed.address.region]
        last = placed.address.offset + span(placed.shape, placed.strides) * placed.dtype.itemsize
        if placed.address.offset < 0 or last > region.nbytes:
            raise PlanError(f"{where}: it reaches outside the {region.nbytes} bytes of {region.name!r}")

    def _shape(self, buffer: Buffer) -> tuple[tuple[int, ...], tuple[int, ...]]:
        where = f"buffer {buffer.name!r}"
        shape = tuple(self._value(size, where) for size in buffer.shape)
        if buffer.strides is None:
            strides = contiguous_strides(shape)
        else:
            strides = tuple(self._value(stride, where) for stride in buffer.strides)
        if len(strides) != len(shape) or min((*shape, *strides), default=0) < 0:
            raise PlanError(f"{where}: shape {shape} and strides {strides} do not fit")
        return shape, strides

    def _region(self, buffer: Buffer) -> Region:
        shape, strides = self._shapes[buffer.name]
        return Region(
            buffer.name, buffer.role, buffer.dtype, shape, strides, span(shape, strides) * buffer.dtype.itemsize
        )

    def _value(self, expression: Expr, where: str) -> int:
        try:
            return evaluate(expression, self._symbols)
        except ExpressionError as error:
            raise PlanError(f"{where}: {error}") from error


def _viewed(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        if isinstance(step, View):
            yield step.buffer
        elif isinstance(step, Repeat):
            yield from _viewed(step.steps)
