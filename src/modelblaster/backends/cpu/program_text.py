"""Flattened steps as the text that `native/program.c` reads."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from modelblaster.backends.flat import FlatCopy, FlatFill, FlatLaunch
from modelblaster.records.tensor import DType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from modelblaster.backends.flat import Address, FlatStep, Placed

_MOST_RANK = 16
_FORMATS = {
    DType.FLOAT64: "d",
    DType.FLOAT32: "f",
    DType.FLOAT16: "e",
    DType.INT64: "q",
    DType.INT32: "i",
    DType.INT16: "h",
    DType.INT8: "b",
    DType.UINT8: "B",
    DType.BOOL: "?",
}


def program_text(steps: Sequence[FlatStep], objects: Sequence[Path]) -> str:
    """The text of a program whose entries are in `objects`.

    Raises:
        ValueError: a library step, a rank over 16 or a value that does not fit its type.
    """
    lines = [line for step in steps if (line := _line(step)) is not None]
    return "\n".join([objects_text(objects), f"steps {len(lines)}", *lines]) + "\n"


def objects_text(objects: Sequence[Path]) -> str:
    """The list of objects that a program may load."""
    return " ".join([f"objects {len(objects)}", *(measured(str(path)) for path in objects)])


def measured(text: str) -> str:
    """A text with its length in bytes before it."""
    return f"{len(text.encode())}:{text}"


def fill_pattern(dtype: DType, value: float) -> int:
    """The bits of one element, as a signed integer of 64 bits.

    Raises:
        ValueError: the value does not fit the type.
    """
    if dtype is DType.BFLOAT16:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        # Round to nearest even; a NaN must not become an infinity.
        return int(0x7FC0 if math.isnan(value) else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    try:
        packed = struct.pack(f"<{_FORMATS[dtype]}", value if dtype.is_floating else int(value))
    except (struct.error, OverflowError, ValueError) as error:
        raise ValueError(f"{value} does not fit {dtype.value}") from error
    return int.from_bytes(packed.ljust(8, b"\0"), "little", signed=True)


def _line(step: FlatStep) -> str | None:
    """None for a move of nothing."""
    if isinstance(step, FlatLaunch):
        arguments = [_place(address) for address in step.arguments]
        words = ["L", step.entry, step.range, step.grain, len(arguments), *arguments, len(step.sizes), *step.sizes]
        return _words(words)
    if isinstance(step, FlatFill):
        axes = _axes(step.target, step.target)
        pattern = fill_pattern(step.target.dtype, step.value)
        head = ["F", _place(step.target.address), step.target.dtype.itemsize, pattern]
        return None if axes is None else _words([*head, len(axes), *_column(axes, 0), *_column(axes, 1)])
    if isinstance(step, FlatCopy):
        axes = _axes(step.source, step.destination)
        head = ["C", _place(step.source.address), _place(step.destination.address), step.source.dtype.itemsize]
        columns = [] if axes is None else [*_column(axes, 0), *_column(axes, 1), *_column(axes, 2)]
        return None if axes is None else _words([*head, len(axes), *columns])
    raise ValueError(f"{step.step.overload} is a library step; this program has kernels only")


def _axes(source: Placed, target: Placed) -> list[tuple[int, int, int]] | None:
    """Size, source and target stride of as few axes as possible, outermost in the target first; None if empty."""
    if 0 in target.shape:
        return None
    axes = [axis for axis in zip(target.shape, source.strides, target.strides, strict=True) if axis[0] > 1]
    axes.sort(key=lambda axis: -axis[2])
    merged: list[tuple[int, int, int]] = []
    for size, one, other in axes:
        if merged and merged[-1][1] == size * one and merged[-1][2] == size * other:
            merged[-1] = (merged[-1][0] * size, one, other)
        else:
            merged.append((size, one, other))
    if len(merged) > _MOST_RANK:
        raise ValueError(f"a copy over {len(merged)} axes")
    return merged or [(1, 1, 1)]


def _column(axes: Sequence[tuple[int, int, int]], index: int) -> list[int]:
    return [axis[index] for axis in axes]


def _place(address: Address) -> str:
    return f"{address.region} {address.offset}"


def _words(words: Sequence[object]) -> str:
    return " ".join(map(str, words))
