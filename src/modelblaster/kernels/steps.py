"""The innermost statements of a pass, as one small function that takes one vector: full and tail calls share it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelblaster.kernels.dialect import LANES, CType
from modelblaster.kernels.expressions import Place, Writer
from modelblaster.kernels.ir import Load, Reduce
from modelblaster.kernels.passes import LANE, needed
from modelblaster.kernels.reduction import Accumulator
from modelblaster.records.tensor import DType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modelblaster.kernels.passes import Pass, Shape

_WORD = re.compile(r"[A-Za-z_]\w*")
_KEPT_AS = {
    CType.F32: DType.FLOAT32,
    CType.F64: DType.FLOAT64,
    CType.I32: DType.INT32,
    CType.I64: DType.INT64,
}


@dataclass(frozen=True, slots=True)
class Frame:
    """What all steps of a kernel share: loop coordinates by axis, kept nodes with the pass that fills them."""

    shape: Shape
    writer: Writer
    entry: str
    coordinates: Mapping[int, str]
    kept: Mapping[int, int]
    lanes: int
    unroll: int
    stream: bool

    def kept_element(self, node: int) -> DType:
        """How a kept value lies in scratch."""
        return _KEPT_AS[self.shape.nest.nodes[node].ctype]

    def kept_index(self) -> str:
        """Where in scratch the current vector of a kept value lies."""
        text = ""
        for axis in self.shape.loops:
            name = self.coordinates[axis]
            text = f"({text}) * {self.shape.nest.axes[axis].size} + {name}" if text else name
        return f"({text}) * ({LANES} * {self.unroll})" if self.shape.is_column else text


class Step:
    """The step function of one pass and how to call it."""

    def __init__(self, frame: Frame, walk: Pass) -> None:
        self.frame = frame
        self.walk = walk
        self.name = f"{frame.entry}_pass{walk.number}"
        self.read_back = frozenset(k for k, first in frame.kept.items() if first < walk.number)
        self.nodes = needed(frame.shape, walk.roots(frame.shape.nest), self.read_back)
        self.accumulators = [Accumulator(frame.shape.nest, frame.writer.dialect, k) for k in walk.reduces]
        self._body = list(self._statements())
        words = set(_WORD.findall("\n".join(self._body)))
        self._parameters = [(kind, name) for kind, name in self._candidates() if name in words]

    def at(self, level: int) -> list[int]:
        """The nodes that the pass needs, at one level."""
        return [k for k in self.nodes if self.frame.shape.level(k) == level]

    def text(self) -> str:
        """The function."""
        states = [text for a in self.accumulators for text in a.parameters()]
        listed = [f"{kind} {name}".replace("* ", "*") for kind, name in self._parameters] + states
        lines = "\n".join(f"    {line}" for line in self._body)
        return f"{self.frame.writer.dialect.inline()} void {self.name}({', '.join(listed)}) {{\n{lines}\n}}\n"

    def call(self, unit: int, length: str, renamed: Mapping[str, str]) -> str:
        """A call for vector `unit` of the unrolled ones; `renamed` gives values under other names than `v…`."""
        states = [f"&{name}" for a in self.accumulators for name in a.names(unit)]
        given = [self._argument(name, unit, length, renamed) for _, name in self._parameters]
        return f"{self.name}({', '.join([*given, *states])});"

    def _argument(self, name: str, unit: int, length: str, renamed: Mapping[str, str]) -> str:
        if name in renamed:
            return renamed[name]
        if name == "n":
            return length
        if name == "i":
            return f"i + {unit} * {LANES}" if unit else "i"
        if name.startswith("kept") and self.frame.shape.is_column and unit:
            return f"{name} + {unit} * {LANES}"
        is_value = name[0] == "v" and name[1:].isdigit()
        return f"{name}_{unit}" if is_value and self.frame.shape.is_column else name

    def _candidates(self) -> Iterable[tuple[str, str]]:
        writer, shape = self.frame.writer, self.frame.shape
        written = set(shape.nest.outputs)
        types = {n.buffer: n.dtype for n in shape.nest.nodes if isinstance(n, Load)}
        types.update({s.buffer: s.dtype for s in shape.nest.stores})
        for buffer, name in writer.names.items():
            element = writer.dialect.element(types[buffer])
            yield (f"{element} *" if buffer in written else f"const {element} *"), name
        for k in sorted(self.frame.kept):
            yield f"{writer.dialect.element(self.frame.kept_element(k))} *", f"kept{k}"
        for name in self.frame.coordinates.values():
            yield "int64_t", name
        yield "int64_t", "n"
        for k in self.nodes:
            if shape.level(k) != LANE:
                yield writer.vector(k), f"v{k}"

    def _statements(self) -> Iterable[str]:
        shape, writer = self.frame.shape, self.frame.writer
        place = Place(self.frame.coordinates, "n")
        for k in self.at(LANE):
            if k in self.read_back:
                source = f"kept{k} + {self.frame.kept_index()}"
                loaded = writer.dialect.load(self.frame.kept_element(k), source, 1, self._kept_length())
                yield f"const {writer.vector(k)} v{k} = {loaded};"
            elif not isinstance(shape.nest.nodes[k], Reduce):
                yield writer.declare(k, f"v{k}", place, lambda a: f"v{a}")
            if self.frame.kept.get(k) == self.walk.number:
                target = f"kept{k} + {self.frame.kept_index()}"
                yield writer.dialect.store(
                    self.frame.kept_element(k), target, 1, f"v{k}", self._kept_length(), stream=False
                )
        for accumulator in self.accumulators:
            yield from accumulator.step(self._values(accumulator), "n", is_masked=not shape.is_column)
        for store in self.walk.elements:
            yield writer.store(store, place, f"v{store.value}", stream=self.frame.stream)

    def _kept_length(self) -> str:
        return LANES if self.frame.shape.is_column else "n"

    def _values(self, accumulator: Accumulator) -> list[str]:
        node = accumulator.node
        values = [f"v{a}" for a in node.arguments]
        if accumulator.is_indexed:
            index = self.frame.shape.nest.nodes[node.arguments[1]]
            values[1] = self.frame.writer.dialect.relane(values[1], index.ctype, CType.MASK)
        return values
