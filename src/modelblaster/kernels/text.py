"""Indented lines of C."""

from __future__ import annotations


class Lines:
    """Collects lines; blocks open and close."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def add(self, *lines: str) -> None:
        """Lines at the current depth."""
        self._lines += ["    " * self._depth + line for line in lines]

    def open(self, head: str = "") -> None:
        """`head {` and one level deeper."""
        self.add(f"{head} {{" if head else "{")
        self._depth += 1

    def close(self) -> None:
        """The end of a block."""
        self._depth -= 1
        self.add("}")

    def text(self) -> str:
        """Everything."""
        return "\n".join(self._lines) + "\n"
