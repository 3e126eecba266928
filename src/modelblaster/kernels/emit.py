"""A nest under a schedule as a candidate: one source and a plan of launches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modelblaster.kernels.kernel import Kernel
from modelblaster.kernels.layout import normalized, width
from modelblaster.kernels.passes import Shape
from modelblaster.kernels.schedule import COLUMN, MIN_BLOCK, ROW
from modelblaster.kernels.split import Parts, split
from modelblaster.records.candidate import Source
from modelblaster.records.plan import Launch, Plan, Ref

if TYPE_CHECKING:
    from modelblaster.kernels.dialect import Dialect
    from modelblaster.kernels.ir import Nest
    from modelblaster.kernels.schedule import Schedule
    from modelblaster.records.plan import Buffer


def emit(
    nest: Nest, schedule: Schedule, dialect: Dialect, *, prefix: str, buffers: tuple[Buffer, ...]
) -> tuple[tuple[Source, ...], Plan]:
    """The source and the plan that compute a nest.

    Args:
        nest: what to compute.
        schedule: a legal schedule of it.
        dialect: how the target spells it.
        prefix: what entry and scratch names start with; a C identifier, unique in the whole program.
        buffers: the slot's INPUT, PARAMETER, OUTPUT and MUTATED buffers; scratch buffers are added to them.
    """
    parts = split(nest, schedule.pieces, prefix) if schedule.pieces > 1 else Parts((nest,), ())
    kernels = [
        Kernel(part, _scheduled(part, schedule) if part is not nest else schedule, dialect, f"{prefix}_{k}")
        for k, part in enumerate(normalized(p) if p is not nest else p for p in parts.nests)
    ]
    body = "\n".join(kernel.text() for kernel in kernels)
    head = dialect.prelude(body, lanes=schedule.lanes, width=width(nest))
    source = Source(f"{prefix}.{dialect.language}", dialect.language, f"{head}\n{body}")
    steps = tuple(_launch(kernel) for kernel in kernels)
    return (source,), Plan((*buffers, *parts.buffers), steps)


def _launch(kernel: Kernel) -> Launch:
    nest = kernel.shape.nest
    return Launch(
        entry=kernel.entry,
        arguments=tuple(Ref(buffer) for buffer in kernel.buffers),
        sizes=(),
        range=kernel.units,
        grain=kernel.schedule.grain,
        reads=nest.inputs,
        writes=nest.outputs,
        scratch_bytes=kernel.scratch_bytes,
    )


def _scheduled(part: Nest, schedule: Schedule) -> Schedule:
    """The schedule of one part of a split: the same choices where they apply, single units as pieces of work."""
    has_rows = any(not axis.reduced for axis in part.axes)
    mode = schedule.mode if part.reduced and has_rows else ROW
    if mode == COLUMN and part.axes[-1].reduced:
        mode = ROW
    step = schedule.lanes * schedule.unroll
    block = max(MIN_BLOCK, schedule.block) // step * step
    inner = replace(schedule, mode=mode, pieces=1, online=False, keep=False, block=block, grain=1)
    units = Shape.of(part, mode).units(block if not part.reduced else step)
    return replace(inner, grain=max(1, units // 64))
