"""Records to JSON text and back, and their content hash."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


class RecordError(ValueError):
    """A text that is not the record it should be."""


@cache
def _adapter(record_type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(record_type)


def to_json(record: object, *, indent: int | None = None) -> str:
    """One record as JSON text (infinities and NaN as JavaScript spells them)."""
    return json.dumps(to_data(record), indent=indent)


def to_data(record: object) -> Any:
    """One record as dictionaries, lists, strings and numbers, as JSON has them."""
    return _adapter(cast("Any", type(record))).dump_python(record, mode="json")


def from_json(record_type: type[T], text: str | bytes) -> T:
    """The record that a text holds.

    Raises:
        RecordError: the text is no JSON or not of this type.
    """
    try:
        value: T = _adapter(cast("Any", record_type)).validate_python(json.loads(text))
    except json.JSONDecodeError as error:
        raise RecordError(f"not a {record_type.__name__}: {error}") from error
    except ValidationError as error:
        message = f"not a {record_type.__name__}: {error.error_count()} problems, first: {_first(error)}"
        raise RecordError(message) from error
    return value


def digest(*parts: object) -> str:
    """A content hash of records and strings: 16 hexadecimal digits."""
    state = hashlib.sha256()
    for part in parts:
        text = part if isinstance(part, str) else to_json(part)
        state.update(f"{len(text)}:".encode())
        state.update(text.encode())
    return state.hexdigest()[:16]


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
