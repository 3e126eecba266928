"""Python files of the package, parsed once."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = "modelblaster"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule at one place."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file: where it lies, its dotted module name, its text and its syntax tree."""

    path: Path
    module: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The first name below the package (`judge`, `api`); empty for the package's own `__init__`."""
        parts = self.module.split(".")
        return parts[1] if len(parts) > 1 else ""


def read_package(root: Path) -> tuple[SourceFile, ...]:
    """Every Python file below `root`, the folder that holds the package (`src`)."""
    files: list[SourceFile] = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        files.append(SourceFile(path, module, text, ast.parse(text, filename=str(path))))
    return tuple(files)
