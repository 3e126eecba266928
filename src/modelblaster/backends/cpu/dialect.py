"""C with compiler vector types: what gcc and clang both read, without any header.

The prelude is made of fragments in `prelude/*.h`. A fragment starts with `//@ NAME [for TYPES] [: NEEDS]`; `$` letters
are filled in for each type (see `_VECTORS` and `_MEMORY`). A source gets the fragments that it names and what they
need, so that it builds in hundredths of a second.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from modelblaster.kernels.dialect import CType
from modelblaster.records.tensor import DType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FILES = ("lanes.h", "memory.h", "math64.h", "math32.h")
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_ELEMENTS = {
    DType.FLOAT64: "double",
    DType.FLOAT32: "float",
    DType.FLOAT16: "uint16_t",
    DType.BFLOAT16: "uint16_t",
    DType.INT64: "int64_t",
    DType.INT32: "int32_t",
    DType.INT16: "int16_t",
    DType.INT8: "int8_t",
    DType.UINT8: "uint8_t",
    DType.BOOL: "uint8_t",
}
_VECTORS = {
    "f32": {"V": "f32", "I": "i32", "S": "float", "F": "f", "M": "8388608.0f"},
    "f64": {"V": "f64", "I": "i64", "S": "double", "F": "", "M": "4503599627370496.0"},
    "i32": {"V": "i32", "I": "i32", "S": "int32_t"},
    "i64": {"V": "i64", "I": "i64", "S": "int64_t"},
    "mask": {"V": "mask", "I": "mask"},
}
_MEMORY = {
    "float32": {"D": "float32", "E": "float", "V": "f32"},
    "float64": {"D": "float64", "E": "double", "V": "f64"},
    "int32": {"D": "int32", "E": "int32_t", "V": "i32"},
    "int64": {"D": "int64", "E": "int64_t", "V": "i64"},
    "int16": {"D": "int16", "E": "int16_t", "V": "i32"},
    "int8": {"D": "int8", "E": "int8_t", "V": "i32"},
    "uint8": {"D": "uint8", "E": "uint8_t", "V": "i32"},
    "float16": {"D": "float16", "E": "uint16_t", "V": "f32"},
    "bfloat16": {"D": "bfloat16", "E": "uint16_t", "V": "f32"},
}
_MARK = re.compile(r"^//@ (\S+)(?: for ([^:\n]+))?(?: : ([^\n]+))?\n", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class _Fragment:
    name: str
    needs: tuple[str, ...]
    text: str


class CpuDialect:
    """The SIMD emitter's target on processors; implements `kernels.dialect.Dialect`.

    `vector_bytes` is the width of the registers: 32 with AVX2, 64 with AVX-512, 16 otherwise.
    """

    name = "cpu"
    language = "c"

    def __init__(self, vector_bytes: int = 32) -> None:
        self.vector_bytes = vector_bytes

    def vector(self, ctype: CType) -> str:
        """The type of a vector of `LANES` elements."""
        return ctype.value

    def element(self, dtype: DType) -> str:
        """The type of one element in memory; half types are their bits."""
        return _ELEMENTS[dtype]

    def constant(self, value: str, ctype: CType) -> str:
        """A splat of a number written as Python's `repr` writes it."""
        if ctype is CType.MASK:
            return f"MASK({-int(value == 'True')})"
        if not ctype.is_floating:
            return f"{ctype.value.upper()}({_integer(int(value))})"
        return f"{ctype.value.upper()}({_floating(float(value), ctype)})"

    def apply(self, op: str, source: CType, target: CType, arguments: Sequence[str]) -> str:
        """A primitive of `kernels.primitives` on vectors; `source` is the type of its last argument."""
        if op in _INFIX:
            return f"{arguments[0]} {_INFIX[op]} {arguments[1]}"
        if op in _COMPARE:
            return f"CONVERT({arguments[0]} {_COMPARE[op]} {arguments[1]}, mask)"
        if op == "neg":
            return f"-{arguments[0]}"
        if op == "not":
            return f"~{arguments[0]}"
        if op == "cast":
            return _cast(source, target, arguments[0])
        if not source.is_floating and op in ("max_number", "min_number"):
            op = op.removesuffix("_number")
        listed = ", ".join(arguments)
        if op.startswith(("wrap_", "round_")):
            return f"{op}({listed})"
        return f"{op}_{source.value}({listed})"

    def load(self, dtype: DType, pointer: str, stride: int, length: str) -> str:
        """`length` elements, `stride` apart (0: one element in every lane), in the compute type; other lanes are 0."""
        if stride == 1:
            return f"load_{dtype.value}({pointer}, {length})"
        if stride == 0:
            return f"splat_{dtype.value}({pointer})"
        return f"gather_{dtype.value}({pointer}, {stride}, {length})"

    def store(self, dtype: DType, pointer: str, stride: int, value: str, length: str, *, stream: bool) -> str:
        """A statement that writes `length` elements; `stream` bypasses the caches where the address allows it."""
        if stride == 1:
            way = "stream" if stream and dtype.itemsize >= 4 else "store"
            return f"{way}_{dtype.value}({pointer}, {value}, {length});"
        if stride == 0:
            return f"store_{dtype.value}({pointer}, {value}, 1);"
        return f"scatter_{dtype.value}({pointer}, {stride}, {value}, {length});"

    def relane(self, value: str, source: CType, target: CType) -> str:
        """Integer lanes (an index held in a mask's lanes, or back) as another integer type of the same numbers."""
        return value if source is target else f"CONVERT({value}, {target.value})"

    def index(self, start: str, stride: int, ctype: CType) -> str:
        """A vector `start, start + stride, …`."""
        return f"index_{ctype.value}({start}, {stride})"

    def combine(self, combiner: str, ctype: CType, left: Sequence[str], right: Sequence[str]) -> tuple[str, ...]:
        """Lane-wise combination of two reduction states (an index combiner has a value and an index)."""
        if combiner in ("argmax", "argmin"):
            better = f"{combiner}_{ctype.value}({left[0]}, {left[1]}, {right[0]}, {right[1]})"
            return (f"select_{ctype.value}({better}, {right[0]}, {left[0]})",
                    f"select_mask({better}, {right[1]}, {left[1]})")  # fmt: skip
        infix = {"sum": "+", "prod": "*", "any": "|", "all": "&"}.get(combiner)
        return (f"{left[0]} {infix} {right[0]}" if infix else f"{combiner}_{ctype.value}({left[0]}, {right[0]})",)

    def across(self, combiner: str, ctype: CType, state: Sequence[str]) -> tuple[str, ...]:
        """The state combined over all lanes, in every lane; of an index combiner only the index."""
        return (f"across_{combiner}_{ctype.value}({', '.join(state)})",)

    def keep(self, ctype: CType, new: str, old: str, length: str) -> str:
        """`new` in the first `length` lanes, `old` in the others."""
        return f"keep_{ctype.value}({length}, {new}, {old})"

    def inline(self) -> str:
        """The specifiers of a function that is always inlined."""
        return "INLINE"

    def entry(self, name: str) -> str:
        """The head of a kernel, visible outside."""
        arguments = "void *const *buffers, const int64_t *sizes, int64_t begin, int64_t end, void *scratch"
        return f'__attribute__((visibility("default")))\nvoid {name}({arguments})'

    def finish(self, *, stream: bool) -> str:
        """A statement at the end of every kernel: orders streaming stores."""
        return "FENCE;" if stream else ""

    def prelude(self, body: str, *, lanes: int, width: int) -> str:
        """Text at the head of a source: what `body` uses, and no more. `width`: bytes of a mask's lane, 4 or 8."""
        return _head(lanes, width) + "\n" + "\n".join(_needed(body))


def _integer(value: int) -> str:
    return f"({value + 1}LL - 1)" if value == -(2**63) else f"{value}LL" if abs(value) >= 2**31 else str(value)


def _floating(value: float, ctype: CType) -> str:
    suffix = "f" if ctype is CType.F32 else ""
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value) or (ctype is CType.F32 and abs(value) > 3.4028235677973366e38):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    text = f"{value:.9g}" if ctype is CType.F32 else repr(value)
    return (text if any(mark in text for mark in ".en") else f"{text}.0") + suffix


def _cast(source: CType, target: CType, value: str) -> str:
    if source is CType.MASK:
        # true is -1: 0 - x gives 1 and, unlike -x, a positive zero
        return f"0 - CONVERT({value}, {target.value})"
    return f"CONVERT({value}, {target.value})"


def _needed(body: str) -> Iterator[str]:
    fragments = _fragments()
    waiting = [word for word in dict.fromkeys(_WORD.findall(body)) if word in fragments]
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting.extend(fragments[name].needs)
    done: set[str] = set()
    for name in fragments:
        if name in needed:
            yield from _ordered(name, fragments, done)


def _ordered(name: str, fragments: dict[str, _Fragment], done: set[str]) -> Iterator[str]:
    if name in done:
        return
    done.add(name)
    for need in fragments[name].needs:
        yield from _ordered(need, fragments, done)
    yield fragments[name].text


@cache
def _fragments() -> dict[str, _Fragment]:
    folder = files("modelblaster.backends.cpu") / "prelude"
    found: dict[str, _Fragment] = {}
    for file in _FILES:
        parts = _MARK.split((folder / file).read_text(encoding="utf-8"))
        for name, types, needs, text in zip(parts[1::4], parts[2::4], parts[3::4], parts[4::4], strict=True):
            for values in _substitutions(types):
                filled = [Template(part).safe_substitute(values) for part in (name, needs or "", text)]
                found[filled[0]] = _Fragment(filled[0], tuple(filled[1].split()), filled[2])
    known = set(found)
    for name, fragment in list(found.items()):
        needs = tuple(need for need in fragment.needs if need in known)
        found[name] = _Fragment(name, needs, fragment.text)
    return found


def _substitutions(types: str | None) -> list[dict[str, str]]:
    if types is None:
        return [{}]
    return [{**_VECTORS, **_MEMORY}[word] for word in types.split()]


def _head(lanes: int, width: int) -> str:
    steps = [lanes >> k for k in range(1, lanes.bit_length())]
    swapped = ", ".join(f"{k} ^ (s)" for k in range(lanes))
    text = (files("modelblaster.backends.cpu") / "prelude" / "head.h").read_text(encoding="utf-8")
    return Template(text).safe_substitute(
        LANES=lanes,
        MASK="i32" if width == 4 else "i64",
        IOTA=", ".join(str(k) for k in range(lanes)),
        SWAPPED=swapped,
        BUTTERFLY=" ".join(f"step({s})" for s in steps),
    )
