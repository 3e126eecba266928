"""Result types as torch promotes them (https://docs.pytorch.org/docs/stable/tensor_attributes.html)."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from modelblaster.records.tensor import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

Typed = tuple[DType | type, int]
"""A type and the number of dimensions; a Python number has its Python type and -1 dimensions."""

_WIDTHS = {DType.BOOL: 0, DType.UINT8: 1, DType.INT8: 1, DType.INT16: 2, DType.INT32: 3, DType.INT64: 4}


def category(dtype: DType) -> int:
    """0 for booleans, 1 for integers, 2 for floating types: a lower one never widens a higher one."""
    return 0 if dtype is DType.BOOL else 2 if dtype.is_floating else 1


def promote(a: DType, b: DType) -> DType:
    """The smallest type that holds both."""
    if a is b:
        return a
    if category(a) != category(b):
        return a if category(a) > category(b) else b
    if a.is_floating:
        if a.itemsize == b.itemsize:
            return DType.FLOAT32
        return a if a.itemsize > b.itemsize else b
    if _WIDTHS[a] == _WIDTHS[b]:
        return DType.INT16
    return a if _WIDTHS[a] > _WIDTHS[b] else b


def result_type(operands: Sequence[Typed]) -> DType:
    """The common type of tensors with dimensions, tensors without, and Python numbers, in this order of weight."""
    groups: tuple[list[DType], list[DType], list[DType]] = ([], [], [])
    for kind, dimensions in operands:
        if isinstance(kind, DType):
            groups[0 if dimensions > 0 else 1].append(kind)
        else:
            groups[2].append(_NUMBERS[kind])
    result: DType | None = None
    for group in groups:
        if group:
            together = reduce(promote, group)
            if result is None or category(together) > category(result):
                result = together
    return result or DType.FLOAT32


_NUMBERS: dict[type, DType] = {bool: DType.BOOL, int: DType.INT64, float: DType.FLOAT32}
