"""`--set name=value`: constants of a problem file, replaced in its syntax tree before the file runs.

The new text keeps every line where it was, so that tracebacks and `inspect` still point at the person's file.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelblaster.errors import OverrideError, ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class _Edit:
    """Replace the UTF-8 bytes `[start, end)` of the file by `text`."""

    start: int
    end: int
    text: str


def parse_overrides(settings: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`name=value` texts as (name, canonical Python literal) pairs.

    Raises:
        OverrideError: no `=`, a name that is none, a value that is no Python literal, a name given twice.
    """
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise OverrideError(f"--set {setting}: write it as NAME=VALUE, as in --set batch_size=16")
        if name in found:
            raise OverrideError(f"--set {name}: given twice ({found[name]} and {value.strip()})")
        found[name] = _literal(name, value.strip())
    return tuple(found.items())


def apply_overrides(text: str, overrides: Sequence[tuple[str, str]], *, location: str) -> str:
    """The file's text in which every module-level assignment of a named constant gives it the new value.

    Constants that the file derives from it follow, because the file runs with the new text. In `a, b = 1, 2` the one
    element is replaced; where an element cannot be singled out (`a = b = 1`, `a, b = shape`, `a *= 2`) an assignment
    of the new value is put behind the statement. Without overrides the text comes back unchanged.

    Raises:
        ProblemError: the text is no Python.
        OverrideError: the file has no such constant; the message lists those it has.
    """
    tree = parse(text, location)
    if not overrides:
        return text
    statements = list(_assignments(tree.body))
    starts = _line_starts(text)
    edits: list[_Edit] = []
    for name, value in overrides:
        touched = [statement for statement in statements if name in _names_assigned(statement)]
        if not touched:
            raise OverrideError(_unknown(name, statements, location))
        edits.extend(_edit(statement, name, value, starts) for statement in touched)
    return _edited(text, edits)


def parse(text: str, location: str) -> ast.Module:
    """The syntax tree of a problem file.

    Raises:
        ProblemError: the text is no Python; the message says where.
    """
    try:
        return ast.parse(text, filename=location)
    except SyntaxError as error:
        raise ProblemError(f"{location}: line {error.lineno or 1}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"{location}: not a Python file: {error}") from error


def constants(text: str, location: str) -> tuple[str, ...]:
    """Names that the file assigns at module level, in the order of their first assignment.

    Raises:
        ProblemError: the text is no Python.
    """
    return _all_names(list(_assignments(parse(text, location).body)))


_Assignment = ast.Assign | ast.AnnAssign | ast.AugAssign


def _literal(name: str, value: str) -> str:
    try:
        ast.literal_eval(value)
        return ast.unparse(ast.parse(value, mode="eval"))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        hint = f"; a string needs quotes: --set '{name}=\"{value}\"'" if value.isidentifier() else ""
        raise OverrideError(f"--set {name}: {value!r} is no Python literal{hint}") from error


def _assignments(body: Sequence[ast.stmt]) -> Iterator[_Assignment]:
    """Assignments that run when the file does, those inside `if`, `for`, `while`, `with` and `try` included."""
    for statement in body:
        if isinstance(statement, ast.Assign | ast.AugAssign):
            yield statement
        elif isinstance(statement, ast.AnnAssign):
            if statement.value is not None:
                yield statement
        elif isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.TryStar | ast.Match):
            yield from _assignments(_inner(statement))


def _inner(statement: ast.stmt) -> list[ast.stmt]:
    blocks: list[ast.stmt] = []
    for field in ("body", "orelse", "finalbody"):
        blocks.extend(getattr(statement, field, []))
    for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
        blocks.extend(part.body)
    return blocks


def _targets(statement: _Assignment) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def _names_assigned(statement: _Assignment) -> list[str]:
    """Plain names among the targets; `a[0] = …` and `a.b = …` assign none."""
    pending = list(_targets(statement))
    names: list[str] = []
    while pending:
        target = pending.pop(0)
        if isinstance(target, ast.Name):
            names.append(target.id)
        elif isinstance(target, ast.Tuple | ast.List):
            pending[:0] = target.elts
        elif isinstance(target, ast.Starred):
            pending.insert(0, target.value)
    return names


def _all_names(statements: Sequence[_Assignment]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for statement in statements for name in _names_assigned(statement)))


def _unknown(name: str, statements: Sequence[_Assignment], location: str) -> str:
    known = _all_names(statements)
    listed = f"it has: {', '.join(known)}" if known else "it has none"
    return f"--set {name}: {location} has no constant of this name; {listed}"


def _edit(statement: _Assignment, name: str, value: str, starts: Sequence[int]) -> _Edit:
    expression = _value_of(statement, name)
    if expression is None:
        end = starts[(statement.end_lineno or 1) - 1] + (statement.end_col_offset or 0)
        return _Edit(end, end, f"; {name} = {value}")
    start = starts[expression.lineno - 1] + expression.col_offset
    end = starts[(expression.end_lineno or 1) - 1] + (expression.end_col_offset or 0)
    lost = (expression.end_lineno or 1) - expression.lineno
    # Line breaks inside parentheses mean nothing, and every later line keeps its number.
    return _Edit(start, end, f"({value}" + "\n" * lost + ")" if lost else value)


def _value_of(statement: _Assignment, name: str) -> ast.expr | None:
    """The expression that gives `name` its value and nothing else, if there is one."""
    if isinstance(statement, ast.AugAssign) or len(_targets(statement)) != 1:
        return None
    target, value = _targets(statement)[0], statement.value
    if isinstance(target, ast.Name):
        return value
    if not isinstance(target, ast.Tuple | ast.List) or not isinstance(value, ast.Tuple | ast.List):
        return None
    elements = [*target.elts, *value.elts]
    if len(target.elts) != len(value.elts) or any(isinstance(element, ast.Starred) for element in elements):
        return None
    named = [isinstance(element, ast.Name) and element.id == name for element in target.elts]
    return value.elts[named.index(True)] if named.count(True) == 1 else None


def _line_starts(text: str) -> list[int]:
    """Byte offset of each line, as the syntax tree counts columns in UTF-8."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line.encode()) + 1)
    return starts


def _edited(text: str, edits: Sequence[_Edit]) -> str:
    data = text.encode()
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
    return data.decode()
