"""One launch of one nest as C text: units handed to threads, passes over a row, stores.

A unit is a row, a block of a map's innermost axis, or a group of neighbouring rows (column mode). The text reads from
the inside out: a step function for each pass, then (column mode) a function for one group of rows, then the entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelblaster.kernels.dialect import LANES
from modelblaster.kernels.expressions import Place, Writer, pointer_names
from modelblaster.kernels.ir import Load, Reduce, arguments
from modelblaster.kernels.passes import ROW_LEVEL, Shape, cacheable, needed, online_pair
from modelblaster.kernels.schedule import kept_elements
from modelblaster.kernels.steps import Frame, Step
from modelblaster.kernels.text import Lines
from modelblaster.kernels.walk import online_walk, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from modelblaster.kernels.dialect import Dialect
    from modelblaster.kernels.ir import Nest
    from modelblaster.kernels.passes import Pass
    from modelblaster.kernels.schedule import Schedule

ALIGNMENT = 64


class Kernel:
    """The text of one launch and the numbers that go with it."""

    def __init__(self, nest: Nest, schedule: Schedule, dialect: Dialect, entry: str) -> None:
        self.shape = Shape.of(nest, schedule.mode)
        self.schedule = schedule
        self.dialect = dialect
        self.entry = entry
        names = pointer_names(self.shape.nest.inputs, self.shape.nest.outputs)
        self.buffers = tuple(names)
        self._writer = Writer(self.shape.nest, self.shape.lane, dialect, names)
        self._coordinates = {
            k: "i" if k == self.shape.lane else f"p{k}" if k in self.shape.outer else f"r{k}"
            for k in range(len(self.shape.nest.axes))
        }
        kept = cacheable(self.shape) if schedule.keep else frozenset()
        first = {k: p.number for p in reversed(self.shape.passes) for k in needed(self.shape, p.roots(self.shape.nest))}
        self._kept = {k: first[k] for k in sorted(kept)}

    @property
    def units(self) -> int:
        """The range of the launch."""
        return self.shape.units(self._block)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of kept values for each thread."""
        return sum(self._kept_bytes(k) for k in self._kept)

    @property
    def _block(self) -> int:
        return self.schedule.block if self.shape.is_map else self.schedule.lanes * self.schedule.unroll

    def _kept_bytes(self, node: int) -> int:
        size = kept_elements(self.shape, self.schedule) + self.schedule.lanes
        itemsize = self._frame(self.schedule.unroll).kept_element(node).itemsize
        return -(-size * itemsize // ALIGNMENT) * ALIGNMENT

    def _frame(self, unroll: int) -> Frame:
        return Frame(
            self.shape, self._writer, self.entry, self._coordinates, self._kept, self.schedule.lanes, unroll,
            self.schedule.stream,
        )  # fmt: skip

    def text(self) -> str:
        """The functions of this launch."""
        frame = self._frame(self.schedule.unroll)
        steps = {p.number: Step(frame, p) for p in self.shape.passes if p.walks}
        parts = [step.text() for step in steps.values()]
        if self.shape.is_column:
            for unroll in sorted({1, self.schedule.unroll}):
                parts.append(self._group(frame, steps, unroll))
        parts.append(self._entry(frame, steps))
        return "\n".join(parts)

    def _group(self, frame: Frame, steps: dict[int, Step], unroll: int) -> str:
        """Column mode: `unroll` vectors of neighbouring rows from lane coordinate `i` on."""
        out = Lines()
        listed = ", ".join([*self._pointers(), *self._kept_parameters(), *self._unit_parameters(), "int64_t n"])
        out.open(f"{self.dialect.inline()} void {self.entry}_rows{unroll}({listed})")
        self._stages(out, frame, steps, list(range(unroll)))
        out.close()
        return out.text()

    def _unit_parameters(self) -> list[str]:
        limits = [f"int64_t n{k}" for k in self._limited()]
        return [f"int64_t p{k}" for k in self.shape.outer] + limits + ["int64_t i"]

    def _limited(self) -> list[int]:
        return [k for k, axis in enumerate(self.shape.nest.axes) if axis.limit]

    def _pointers(self) -> list[str]:
        return [self._declared(buffer) for buffer in self.buffers]

    def _declared(self, buffer: str) -> str:
        nest = self.shape.nest
        stored = {s.buffer: s.dtype for s in nest.stores}
        loaded = {n.buffer: n.dtype for n in nest.nodes if isinstance(n, Load)}
        qualifier = "" if buffer in stored else "const "
        element = self.dialect.element(stored.get(buffer) or loaded[buffer])
        return f"{qualifier}{element} *{self._writer.names[buffer]}"

    def _kept_parameters(self) -> list[str]:
        frame = self._frame(self.schedule.unroll)
        return [f"{self.dialect.element(frame.kept_element(k))} *kept{k}" for k in self._kept]

    def _entry(self, frame: Frame, steps: dict[int, Step]) -> str:
        out = Lines()
        out.open(self.dialect.entry(self.entry))
        out.add("(void)sizes, (void)scratch;")
        for k, buffer in enumerate(self.buffers):
            out.add(f"{self._declared(buffer)} = buffers[{k}];")
        offset = 0
        for k, parameter in zip(self._kept, self._kept_parameters(), strict=True):
            out.add(f"{parameter} = (void *)((char *)scratch + {offset});")
            offset += self._kept_bytes(k)
        self._first_coordinates(out)
        out.open("for (int64_t unit = begin; unit < end; unit++)")
        for k in self._limited():
            outer, total = self.shape.nest.axes[k].limit or (0, 0)
            size = self.shape.nest.axes[k].size
            out.add(
                f"const int64_t n{k} = p{outer} * {size} + {size} <= {total} ? {size} : {total} - p{outer} * {size};"
            )
        if self.shape.is_column:
            self._groups(out)
        else:
            if self.shape.is_map:
                self._block_bounds(out)
            self._stages(out, frame, steps, [0])
        self._advance(out)
        out.close()
        if finish := self.dialect.finish(stream=self.schedule.stream):
            out.add(finish)
        out.close()
        return out.text()

    def _counters(self) -> list[tuple[str, int]]:
        """The coordinates of a unit, outer to inner, with their sizes."""
        axes = self.shape.nest.axes
        counters = [(f"p{k}", axes[k].size) for k in self.shape.outer]
        if self.shape.is_map or self.shape.is_column:
            counters.append(("block", -(-axes[self.shape.lane].size // self._block)))
        return counters

    def _first_coordinates(self, out: Lines) -> None:
        rest = "begin"
        counters = self._counters()
        for position in reversed(range(len(counters))):
            name, size = counters[position]
            out.add(f"int64_t {name} = {rest}{f' % {size}' if position else ''};")
            rest = f"{rest} / {size}"

    def _advance(self, out: Lines) -> None:
        """Count up to the next unit, without divisions."""
        counters = self._counters()
        if not counters:
            return
        for name, size in reversed(counters[1:]):
            out.add(f"if (++{name} < {size}) continue;", f"{name} = 0;")
        out.add(f"{counters[0][0]}++;")

    def _block_bounds(self, out: Lines) -> None:
        size = self.shape.nest.axes[self.shape.lane].size
        out.add(f"const int64_t from = block * {self._block};")
        out.add(f"const int64_t to = from + {self._block} <= {size} ? from + {self._block} : {size};")

    def _groups(self, out: Lines) -> None:
        """Whole groups of rows at once, the last one vector by vector."""
        size, unroll = self.shape.nest.axes[self.shape.lane].size, self.schedule.unroll
        given = [self._writer.names[b] for b in self.buffers] + [f"kept{k}" for k in self._kept]
        given += [f"p{k}" for k in self.shape.outer] + [f"n{k}" for k in self._limited()]
        step = self.schedule.lanes * unroll
        listed = ", ".join(given)
        out.add(f"int64_t i = block * {step};")
        if size % step == 0:
            out.add(f"{self.entry}_rows{unroll}({listed}, i, {LANES});")
            return
        out.add(f"if (i + {step} <= {size}) {self.entry}_rows{unroll}({listed}, i, {LANES});")
        out.open("else")
        out.add(f"for (; i + {LANES} <= {size}; i += {LANES}) {self.entry}_rows1({listed}, i, {LANES});")
        if size % self.schedule.lanes:
            out.add(f"if (i < {size}) {self.entry}_rows1({listed}, i, {size} - i);")
        out.close()

    def _stages(self, out: Lines, frame: Frame, steps: dict[int, Step], group: list[int]) -> None:
        """All passes of a unit, with the row values and row stores between them."""
        declared: set[int] = set()
        pair = online_pair(self.shape.nest) if self.schedule.online else None
        for stage in self.shape.passes:
            self._row_stores(out, stage, group, declared)
            if stage.number not in steps or (pair and stage.number == 1):
                continue
            step = steps[stage.number]
            self._row_values(out, step.at(ROW_LEVEL), group, declared)
            if pair and stage.number == 0:
                self._row_values(out, [k for k in steps[1].at(ROW_LEVEL) if k != pair[0]], group, declared)
                online_walk(out, frame, (step, steps[1]), pair, group)
            else:
                walk(out, frame, step, group)
            declared.update(stage.reduces)
            if pair and stage.number == 0:
                declared.add(pair[1])

    def _row_stores(self, out: Lines, stage: Pass, group: list[int], declared: set[int]) -> None:
        self._row_values(out, [store.value for store in stage.rows], group, declared)
        for store in stage.rows:
            for unit in group:
                out.add(self._writer.store(store, self._place(unit), self._name(store.value, unit), stream=False))

    def _row_values(self, out: Lines, nodes: Iterable[int], group: list[int], declared: set[int]) -> None:
        """Declare row values that are not known yet, and what they are made of."""
        for k in nodes:
            if k in declared:
                continue
            node = self.shape.nest.nodes[k]
            if isinstance(node, Reduce):
                raise TypeError("a reduction is declared by its pass")
            self._row_values(out, arguments(node), group, declared)
            declared.add(k)
            for unit in group:
                out.add(self._writer.declare(k, self._name(k, unit), self._place(unit), self._namer(unit)))

    def _namer(self, unit: int) -> Callable[[int], str]:
        return lambda node: self._name(node, unit)

    def _name(self, node: int, unit: int) -> str:
        return f"v{node}_{unit}" if self.shape.is_column else f"v{node}"

    def _place(self, unit: int) -> Place:
        coordinates = {k: f"p{k}" for k in self.shape.outer}
        if self.shape.is_column:
            coordinates[self.shape.lane] = f"(i + {unit} * {LANES})" if unit else "i"
        return Place(coordinates, "n")
