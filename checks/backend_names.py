"""No backend is named outside `backends/`: not in identifiers, not in strings, not in file names.

Docstrings and comments are free. torch's own device strings are allowed where they are plainly that: `torch.device(…)`,
`.to(…)`, a `device=` argument, or beside something that ends in `device` or `device.type` in a comparison.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import TYPE_CHECKING

from checks.source import Finding, SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAMES = re.compile(r"cuda|opencl|rvv|x86", re.IGNORECASE)
_HOME = "backends"


def named_backends(files: Sequence[SourceFile]) -> Iterator[Finding]:
    """Backends' names in code that should know none."""
    for file in files:
        if file.room == _HOME:
            continue
        for line, text in sorted({*_identifiers(file), *_strings(file), (1, file.module)}):
            if found := _NAMES.search(text):
                yield Finding(file.path, line, f"names the backend {found.group()!r}; only {_HOME}/ may")


def _identifiers(file: SourceFile) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def _strings(file: SourceFile) -> Iterator[tuple[int, str]]:
    free = {id(node) for node in _free(file.tree)}
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in free:
            yield node.lineno, node.value


def _free(tree: ast.Module) -> Iterator[ast.AST]:
    """Docstrings and torch's device strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            yield node.value
        elif isinstance(node, ast.Call):
            yield from _device_arguments(node)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(_is_device(side) for side in sides):
                for side in sides:
                    yield from ast.walk(side)


def _device_arguments(call: ast.Call) -> Iterator[ast.AST]:
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("device", "to"):
        yield from call.args
    for keyword in call.keywords:
        if keyword.arg == "device":
            yield keyword.value


def _is_device(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute) and node.attr == "type":
        return _is_device(node.value)
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name == "device" or name.endswith("_device")
