"""What the emitters ask of a backend: how things are spelled in its language, and its limits.

The emitter writes loops that are strip-mined by a symbolic vector length (`length`, at most `LANES`) with masked
tails. Every value that it computes with is a vector of `lanes` elements of a compute type; values that do not vary
along the lanes are splats. Names that a dialect hands out are C identifiers or expressions without side effects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelblaster.records.tensor import DType


class CType(StrEnum):
    """What arithmetic is done in: half types compute in F32, booleans are lane masks (0 or all ones)."""

    F32 = "f32"
    F64 = "f64"
    I32 = "i32"
    I64 = "i64"
    MASK = "mask"

    @property
    def is_floating(self) -> bool:
        """Whether values are rounded."""
        return self in (CType.F32, CType.F64)


LANES = "LANES"
"""The macro that every prelude defines: lanes of one vector."""


class Dialect(Protocol):
    """Spelling and limits of one target of the SIMD emitter. Texts are C."""

    name: str
    language: str
    vector_bytes: int

    def vector(self, ctype: CType) -> str:
        """The type of a vector of `LANES` elements."""

    def element(self, dtype: DType) -> str:
        """The type of one element in memory."""

    def constant(self, value: str, ctype: CType) -> str:
        """A splat of a number written as Python's `repr` writes it."""

    def apply(self, op: str, source: CType, target: CType, arguments: Sequence[str]) -> str:
        """A primitive of `kernels.primitives` on vectors; `source` is the type of its last argument."""

    def load(self, dtype: DType, pointer: str, stride: int, length: str) -> str:
        """`length` elements, `stride` apart (0: one element in every lane), in the compute type; other lanes are 0."""

    def store(self, dtype: DType, pointer: str, stride: int, value: str, length: str, *, stream: bool) -> str:
        """A statement that writes `length` elements; `stream` bypasses the caches where the address allows it."""

    def relane(self, value: str, source: CType, target: CType) -> str:
        """Integer lanes (an index held in a mask's lanes, or back) as another integer type of the same numbers."""

    def index(self, start: str, stride: int, ctype: CType) -> str:
        """A vector `start, start + stride, …`."""

    def combine(self, combiner: str, ctype: CType, left: Sequence[str], right: Sequence[str]) -> tuple[str, ...]:
        """Lane-wise combination of two reduction states (an index combiner has a value and an index)."""

    def across(self, combiner: str, ctype: CType, state: Sequence[str]) -> tuple[str, ...]:
        """The state combined over all lanes, in every lane."""

    def keep(self, ctype: CType, new: str, old: str, length: str) -> str:
        """`new` in the first `length` lanes, `old` in the others."""

    def inline(self) -> str:
        """The specifiers of a function that is always inlined."""

    def entry(self, name: str) -> str:
        """The head of a kernel: `void name(buffers, sizes, begin, end, scratch)`, visible outside."""

    def finish(self, *, stream: bool) -> str:
        """A statement at the end of every kernel: orders streaming stores. May be empty."""

    def prelude(self, body: str, *, lanes: int, width: int) -> str:
        """Text at the head of a source: what `body` uses, and no more. `width`: bytes of a mask's lane, 4 or 8."""
