"""How large a module and a function may be, and names that say nothing."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from checks.source import Finding, SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MODULE_LINES = 400
FUNCTION_LINES = 60
EMPTY_NAMES = frozenset({"utils", "util", "helpers", "helper", "manager", "managers", "common", "misc"})


def too_large(files: Sequence[SourceFile]) -> Iterator[Finding]:
    """Modules and functions over the gates, and modules named after nothing."""
    for file in files:
        lines = file.text.count("\n") + (not file.text.endswith("\n"))
        if lines > MODULE_LINES:
            yield Finding(file.path, 1, f"{lines} lines; a module has at most {MODULE_LINES}")
        if EMPTY_NAMES & set(file.path.stem.split("_")):
            yield Finding(file.path, 1, "the name says nothing of what is inside")
        for node in ast.walk(file.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES:
                    yield Finding(file.path, node.lineno, f"{node.name}: {length} lines; at most {FUNCTION_LINES}")
