"""Escapes from the type checker and the linter: counted, and the count may only fall.

`ratchet.toml` holds the counts of today; `python -m checks --record` writes them.
"""

from __future__ import annotations

import ast
import io
import tokenize
import tomllib
from typing import TYPE_CHECKING

from checks.source import Finding, SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_MARKS = {"type_ignore": "type: ignore", "noqa": "noqa"}


def counts(files: Sequence[SourceFile]) -> dict[str, int]:
    """How often each escape is used: `Any` in signatures of public functions, and comments by kind."""
    found = {"public_any": sum(_anys(file.tree) for file in files), **dict.fromkeys(_MARKS, 0)}
    for file in files:
        for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
            if token.type == tokenize.COMMENT:
                for kind, mark in _MARKS.items():
                    found[kind] += mark in token.string
    return found


def risen(files: Sequence[SourceFile], record: Path) -> Iterator[Finding]:
    """Counts above those in the record."""
    recorded = read(record)
    for kind, count in counts(files).items():
        if count > recorded.get(kind, 0):
            yield Finding(record, 1, f"{kind}: {count}, was {recorded.get(kind, 0)}; this may only fall")


def read(record: Path) -> dict[str, int]:
    """The recorded counts."""
    return {kind: int(count) for kind, count in tomllib.loads(record.read_text(encoding="utf-8")).items()}


def write(record: Path, found: Mapping[str, int]) -> None:
    """Record these counts."""
    lines = ["# Written by `python -m checks --record`; a higher number needs a reason in its commit."]
    lines += [f"{kind} = {count}" for kind, count in found.items()]
    record.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _anys(tree: ast.Module) -> int:
    return sum(_mentions_any(annotation) for function in _public(tree.body) for annotation in _annotations(function))


def _public(body: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _public(node.body)


def _annotations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    parts = function.args
    for argument in (*parts.posonlyargs, *parts.args, *parts.kwonlyargs, parts.vararg, parts.kwarg):
        if argument is not None and argument.annotation is not None:
            yield argument.annotation
    if function.returns is not None:
        yield function.returns


def _mentions_any(annotation: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(annotation))
