"""Size expressions of plans: parsed by us, never evaluated by Python.

Grammar, loosest binding first: sum of terms (`+ -`), product of factors (`* // %`), then an integer, a name, a
negated factor, a parenthesis or a call of min, max (two or more arguments), ceildiv, align (two arguments).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modelblaster.records.plan import Expr

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|(//|[-+*%(),]))")


class ExpressionError(ValueError):
    """A size expression that is malformed, names an unknown symbol or divides by zero."""


def evaluate(expression: Expr, symbols: Mapping[str, int]) -> int:
    """The value of an expression.

    Raises:
        ExpressionError: malformed text, an unknown symbol, a division by zero.
    """
    if isinstance(expression, int):
        return expression
    parser = _Parser(_tokens(expression), symbols, expression)
    value = parser.sum()
    parser.expect_end()
    return value


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpressionError(f"cannot read the size expression {text!r} at {text[position:]!r}")
        tokens.append(match.group().strip())
        position = match.end()
    return tokens


def _ceildiv(a: int, b: int) -> int:
    return -(-a // b)


def _align(a: int, b: int) -> int:
    return _ceildiv(a, b) * b


_CALLS: dict[str, Callable[..., int]] = {"min": min, "max": max, "ceildiv": _ceildiv, "align": _align}


class _Parser:
    """Recursive descent over the tokens, evaluating as it goes."""

    def __init__(self, tokens: list[str], symbols: Mapping[str, int], text: str) -> None:
        self._tokens = tokens
        self._symbols = symbols
        self._text = text
        self._position = 0

    def expect_end(self) -> None:
        if self._position != len(self._tokens):
            raise self._error(f"unexpected {self._tokens[self._position]!r}")

    def sum(self) -> int:
        value = self._product()
        while self._peek() in ("+", "-"):
            value = value + self._product() if self._take() == "+" else value - self._product()
        return value

    def _product(self) -> int:
        value = self._factor()
        while self._peek() in ("*", "//", "%"):
            operator, right = self._take(), self._factor()
            if operator != "*" and right == 0:
                raise self._error("division by zero")
            value = value * right if operator == "*" else value // right if operator == "//" else value % right
        return value

    def _factor(self) -> int:
        token = self._take()
        if token == "-":
            return -self._factor()
        if token == "(":
            value = self.sum()
            self._expect(")")
            return value
        if token.isdigit():
            return int(token)
        if token in _CALLS:
            return self._call(token)
        if token in self._symbols:
            return self._symbols[token]
        raise self._error(f"unknown symbol {token!r}")

    def _call(self, name: str) -> int:
        self._expect("(")
        arguments = [self.sum()]
        while self._peek() == ",":
            self._take()
            arguments.append(self.sum())
        self._expect(")")
        if len(arguments) < 2 or (name not in ("min", "max") and len(arguments) != 2):
            raise self._error(f"{name} of {len(arguments)} arguments")
        if name in ("ceildiv", "align") and arguments[1] <= 0:
            raise self._error(f"{name} by {arguments[1]}")
        return _CALLS[name](*arguments)

    def _peek(self) -> str | None:
        return self._tokens[self._position] if self._position < len(self._tokens) else None

    def _take(self) -> str:
        token = self._peek()
        if token is None:
            raise self._error("unexpected end")
        self._position += 1
        return token

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise self._error(f"expected {token!r}")

    def _error(self, what: str) -> ExpressionError:
        return ExpressionError(f"{what} in the size expression {self._text!r}")
