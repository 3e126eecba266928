"""The loops of one pass over a row (row mode) or over a group of rows (column mode)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelblaster.kernels.dialect import LANES, CType
from modelblaster.kernels.expressions import Place
from modelblaster.kernels.passes import MID
from modelblaster.kernels.reduction import CHAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modelblaster.kernels.steps import Frame, Step
    from modelblaster.kernels.text import Lines

ONLINE_ELEMENTS = 4096
"""Elements of a row (vectors of a column) between two corrections of an online sum: they stay in the first cache."""


def walk(out: Lines, frame: Frame, step: Step, group: list[int]) -> None:
    """Declare the accumulators, loop over the row, declare the reductions' values."""
    shape = frame.shape
    units = group if shape.is_column else list(range(frame.unroll))
    targets = group if shape.is_column else [0]
    chunks = _chunks(frame) if any(a.needs_total for a in step.accumulators) else None
    for accumulator in step.accumulators:
        for unit in units:
            out.add(*accumulator.declare(unit))
        if chunks is not None and accumulator.needs_total:
            out.add(*(accumulator.declare_total(target) for target in targets))
    _nested(out, frame, step, group, chunks)
    for accumulator in step.accumulators:
        from_total = chunks is not None and accumulator.needs_total
        if not shape.is_column and not from_total:
            out.add(*accumulator.join(units))
        for target in targets:
            value = accumulator.result(target, across=not shape.is_column, from_total=from_total)
            name = _value(frame, accumulator.number, target)
            out.add(f"const {frame.writer.vector(accumulator.number)} {name} = {value};")


def _value(frame: Frame, node: int, unit: int) -> str:
    return f"v{node}_{unit}" if frame.shape.is_column else f"v{node}"


@dataclass(frozen=True, slots=True)
class _Chunks:
    """The loop at `position` runs in chunks of `size`, after each of which accumulators are flushed."""

    position: int
    size: int


def _chunks(frame: Frame) -> _Chunks | None:
    """Where chains of additions have to be cut; None if all are short."""
    sizes = [frame.shape.nest.axes[k].size for k in frame.shape.loops]
    step = 1 if frame.shape.is_column else frame.lanes * frame.unroll
    # what is left after whole unrolled steps goes into the first accumulator
    left = 0 if frame.shape.is_column else -(-(sizes[-1] % step) // frame.lanes)
    sizes[-1] = sizes[-1] // step + left
    inside = 1
    for position in reversed(range(len(sizes))):
        if inside * sizes[position] > CHAIN:
            count = max(1, CHAIN // inside)
            return _Chunks(position, count * (step if position == len(sizes) - 1 else 1))
        inside *= sizes[position]
    return None


def _nested(out: Lines, frame: Frame, step: Step, group: list[int], chunks: _Chunks | None) -> None:
    """The loops around the innermost one, values that vary over them only, the innermost loop, flushes."""
    loops = frame.shape.loops
    bounds = ["0"] * len(loops), [extent(frame, axis) for axis in loops]
    if frame.shape.is_map:
        bounds = ["from"], ["to"]
    for position, axis in enumerate(loops):
        start, end = bounds[0][position], bounds[1][position]
        if chunks is not None and chunks.position == position:
            start, end = open_chunk(out, end, chunks.size)
        if position < len(loops) - 1:
            name = frame.coordinates[axis]
            out.open(f"for (int64_t {name} = {start}; {name} < {end}; {name}++)")
        else:
            _mid_values(out, frame, step, group)
            innermost(out, frame, group, (start, end), lambda us, n: [step.call(u, n, {}) for u in us])
    for position in reversed(range(len(loops))):
        if position < len(loops) - 1:
            out.close()
        if chunks is not None and chunks.position == position:
            _flush(out, frame, step, group)
            out.close()


def open_chunk(out: Lines, end: str, size: int) -> tuple[str, str]:
    """A loop over chunks of a loop up to `end`; returns the bounds of the loop inside."""
    out.open(f"for (int64_t chunk = 0; chunk < {end}; chunk += {size})")
    out.add(f"const int64_t stop = chunk + {size} <= {end} ? chunk + {size} : {end};")
    return "chunk", "stop"


def _flush(out: Lines, frame: Frame, step: Step, group: list[int]) -> None:
    for accumulator in step.accumulators:
        if not accumulator.needs_total:
            continue
        if frame.shape.is_column:
            for unit in group:
                out.add(*accumulator.flush(unit, [unit]))
        else:
            out.add(*accumulator.flush(0, list(range(frame.unroll))))


def _mid_values(out: Lines, frame: Frame, step: Step, group: list[int]) -> None:
    for k in step.at(MID):
        for unit in group:
            out.add(frame.writer.declare(k, _value(frame, k, unit), _place(frame, unit), _namer(frame, unit)))


def _namer(frame: Frame, unit: int) -> Callable[[int], str]:
    return lambda node: _value(frame, node, unit)


def _place(frame: Frame, unit: int) -> Place:
    coordinates: Mapping[int, str] = frame.coordinates
    if frame.shape.is_column:
        coordinates = {**coordinates, frame.shape.lane: f"(i + {unit} * {LANES})" if unit else "i"}
    return Place(coordinates, "n" if frame.shape.is_column else LANES)


def extent(frame: Frame, axis: int) -> str:
    """The size of an axis: a number, or the variable of one that is cut unevenly."""
    return f"n{axis}" if frame.shape.nest.axes[axis].limit else str(frame.shape.nest.axes[axis].size)


def innermost(
    out: Lines, frame: Frame, group: list[int], bounds: tuple[str, str], calls: Callable[[list[int], str], list[str]]
) -> None:
    """The innermost loop between two bounds: whole unrolled steps, whole vectors, and a tail (row mode)."""
    start, end = bounds
    if frame.shape.is_column:
        name = frame.coordinates[frame.shape.inner]
        out.open(f"for (int64_t {name} = {start}; {name} < {end}; {name}++)")
        out.add(*calls(group, "n"))
        out.close()
        return
    out.open()
    out.add(f"int64_t i = {start};")
    step = frame.lanes * frame.unroll
    if frame.unroll > 1:
        out.open(f"for (; i + {step} <= {end}; i += {step})")
        out.add(*calls(list(range(frame.unroll)), LANES))
        out.close()
    out.add(f"for (; i + {LANES} <= {end}; i += {LANES}) {calls([0], LANES)[0]}")
    if not (start.isdigit() and end.isdigit() and int(end) % frame.lanes == 0):
        out.add(f"if (i < {end}) {calls([0], f'{end} - i')[0]}")
    out.close()


def online_walk(out: Lines, frame: Frame, steps: tuple[Step, Step], pair: tuple[int, int], group: list[int]) -> None:
    """Maximum and sum of exponentials in one pass over memory.

    Chunk by chunk and lane by lane: the maximum so far, then the sum so far scaled by exp(old - new maximum) plus the
    chunk's exponentials while it is still in the first cache (Milakov and Gimelshein 2018, arXiv 1805.02867).
    """
    shape = frame.shape
    targets = group if shape.is_column else [0]
    units = group if shape.is_column else list(range(frame.unroll))
    top, total = steps[0].accumulators[0], steps[1].accumulators[0]
    vector = frame.writer.vector(pair[0])
    for unit in targets:
        out.add(f"{vector} top_{unit} = {top.start()}, sum_{unit} = {total.start()};")
    for axis in shape.loops[:-1]:
        name = frame.coordinates[axis]
        out.open(f"for (int64_t {name} = 0; {name} < {extent(frame, axis)}; {name}++)")
    _mid_values(out, frame, steps[0], group)
    end = extent(frame, shape.inner)
    chunk = ONLINE_ELEMENTS // (frame.unroll * frame.lanes) if shape.is_column else ONLINE_ELEMENTS
    bounds = open_chunk(out, end, chunk)
    for unit in units:
        out.add(f"{vector} {top.names(unit)[0]} = top_{unit if shape.is_column else 0};")
    innermost(out, frame, group, bounds, lambda us, n: [steps[0].call(u, n, {}) for u in us])
    if not shape.is_column:
        out.add(*top.join(units))
    for unit in targets:
        _rescale(out, frame, (top.names(unit)[0], f"top_{unit}", f"sum_{unit}", f"base_{unit}"), pair)
    for unit in units:
        out.add(*total.declare(unit))
    innermost(out, frame, group, bounds, _second(frame, steps[1], pair[0]))
    if not shape.is_column:
        out.add(*total.join(units))
    out.add(*(f"sum_{unit} = sum_{unit} + {total.names(unit)[0]};" for unit in targets))
    for _ in shape.loops:
        out.close()
    _online_result(out, frame, (top.number, total.number), targets)


def _second(frame: Frame, step: Step, top: int) -> Callable[[list[int], str], list[str]]:
    def calls(units: list[int], length: str) -> list[str]:
        return [step.call(unit, length, {f"v{top}": f"base_{unit if frame.shape.is_column else 0}"}) for unit in units]

    return calls


def _rescale(out: Lines, frame: Frame, names: tuple[str, str, str, str], pair: tuple[int, int]) -> None:
    new, old, total, base = names
    dialect = frame.writer.dialect
    ctype = frame.shape.nest.nodes[pair[0]].ctype
    out.add(f"{total} = {total} * {_factor(frame, old, new, ctype)};", f"{old} = {new};")
    # a lane that has seen only -inf must add exp(-inf) = 0, not exp(-inf + inf)
    lowest, zero = dialect.constant("-inf", ctype), dialect.constant("0.0", ctype)
    is_lowest = dialect.apply("eq", ctype, CType.MASK, [new, lowest])
    out.add(f"const {dialect.vector(ctype)} {base} = {dialect.apply('select', ctype, ctype, [is_lowest, zero, new])};")


def _factor(frame: Frame, old: str, new: str, ctype: CType) -> str:
    """exp(old - new), 1 where they are equal (both may be infinite)."""
    dialect = frame.writer.dialect
    same = dialect.apply("eq", ctype, CType.MASK, [old, new])
    power = dialect.apply("exp", ctype, ctype, [dialect.apply("sub", ctype, ctype, [old, new])])
    return dialect.apply("select", ctype, ctype, [same, dialect.constant("1.0", ctype), power])


def _online_result(out: Lines, frame: Frame, numbers: tuple[int, int], targets: list[int]) -> None:
    dialect = frame.writer.dialect
    ctype = frame.shape.nest.nodes[numbers[0]].ctype
    vector = dialect.vector(ctype)
    for unit in targets:
        top, total = _value(frame, numbers[0], unit), _value(frame, numbers[1], unit)
        if frame.shape.is_column:
            out.add(f"const {vector} {top} = top_{unit};", f"const {vector} {total} = sum_{unit};")
            continue
        out.add(f"const {vector} {top} = {dialect.across('max', ctype, [f'top_{unit}'])[0]};")
        out.add(f"sum_{unit} = sum_{unit} * {_factor(frame, f'top_{unit}', top, ctype)};")
        out.add(f"const {vector} {total} = {dialect.across('sum', ctype, [f'sum_{unit}'])[0]};")
