from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelblaster.errors import OverrideError, ProblemError
from modelblaster.task.overrides import apply_overrides, constants, parse_overrides


def run(text: str, *settings: str) -> dict[str, object]:
    changed = apply_overrides(text, parse_overrides(settings), location="file.py")
    names: dict[str, object] = {}
    exec(compile(changed, "file.py", "exec"), names)
    return names


def test_derived_constants_follow() -> None:
    names = run("channels = 8\nshape = (channels, channels * 2)\n", "channels=3")
    assert names["shape"] == (3, 6)


@pytest.mark.parametrize(
    ("text", "setting", "expected"),
    [
        ("a = 1", "a=-5", -5),
        ("a: int = 1", "a=7", 7),
        ("a = 'mean'", "a='sum'", "sum"),
        ("a = (1, 2)", "a=(3, 4, 5)", (3, 4, 5)),
        ("a = [1, 2]", "a=[]", []),
        ("a = True", "a=False", False),
        ("a = None", "a=1e-3", 1e-3),
        ("a, b = 1, 2", "a=5", 5),
        ("(b, a) = (1, 2)", "a=5", 5),
        ("b, a = [1, 2]", "a=(1, 1)", (1, 1)),
        ("a = b = 1", "a=5", 5),
        ("pair = (1, 2)\nb, a = pair", "a=5", 5),
        ("*b, a = 1, 2, 3", "a=5", 5),
        ("(b, (a, c)) = (1, (2, 3))", "a=5", 5),
        ("a = 1\na *= 4", "a=5", 5),
        ("a = 1\nb = a\na = 2", "a=5", 5),
        ("if True:\n    a = 1\nelse:\n    a = 2", "a=5", 5),
        ("try:\n    a = 1\nfinally:\n    pass", "a=5", 5),
        ("é = 'ü'; a = 'ä'  # ö", "a=5", 5),
        ("a = 1; b = a", "a=5", 5),
        ("a = (1)if True else 2", "a=5", 5),
        ("a = 5", "a = 5", 5),
    ],
)
def test_every_kind_of_assignment(text: str, setting: str, expected: object) -> None:
    assert run(text, setting)["a"] == expected


def test_other_names_of_the_same_statement_keep_their_values() -> None:
    names = run("a = b = 1\nc, d = 2, 3\ne = (a, b, c, d)", "a=9", "d=8")
    assert names["e"] == (9, 1, 2, 8)


def test_both_elements_of_an_unpacked_tuple() -> None:
    names = run("pair = (1, 2)\na, b = pair\nc = a * 10 + b", "a=3", "b=4")
    assert names["c"] == 34


def test_constants_inside_functions_are_not_touched() -> None:
    text = "n = 4\ndef f():\n    n = 1\n    return n\nclass C:\n    n = 2\n"
    names = run(text, "n=9")
    assert names["n"] == 9
    assert names["f"]() == 1
    assert names["C"].n == 2


def test_lines_keep_their_numbers_and_comments() -> None:
    text = "shape = (\n    1,  # one\n    2,\n)\n# kept\nlast = 1\n"
    changed = apply_overrides(text, (("shape", "(3, 4)"),), location="f.py")
    assert changed.split("\n")[4:] == text.split("\n")[4:]
    assert ast.parse(changed).body[1].lineno == 6


def test_without_overrides_the_text_is_the_same() -> None:
    text = "a = 1   # odd   spacing\n"
    assert apply_overrides(text, (), location="f.py") == text


def test_an_unknown_name_lists_the_constants_there_are() -> None:
    with pytest.raises(OverrideError, match=r"--set batch: f\.py has no constant of this name; it has: a, b, c"):
        apply_overrides("a = 1\nb, c = 2, 3\nx.y = 1\ndef f(): pass", (("batch", "1"),), location="f.py")
    with pytest.raises(OverrideError, match="it has none"):
        apply_overrides("import math", (("batch", "1"),), location="f.py")


@pytest.mark.parametrize("setting", ["n", "=3", "a b=3", "n.x=3", "2n=1", ""])
def test_a_setting_that_is_no_assignment(setting: str) -> None:
    with pytest.raises(OverrideError, match="NAME=VALUE"):
        parse_overrides([setting])


@pytest.mark.parametrize("value", ["", "m * 2", "f()", "mean", "(1", "__import__('os')", "1 2", "import os"])
def test_a_value_that_is_no_literal(value: str) -> None:
    with pytest.raises(OverrideError, match="is no Python literal"):
        parse_overrides([f"n={value}"])


def test_an_unquoted_string_gets_a_hint() -> None:
    with pytest.raises(OverrideError, match='n="mean"'):
        parse_overrides(["n=mean"])


def test_a_name_given_twice() -> None:
    with pytest.raises(OverrideError, match="given twice"):
        parse_overrides(["n=1", "n=2"])


def test_a_value_may_contain_an_equals_sign() -> None:
    assert parse_overrides(["n='a=b'"]) == (("n", "'a=b'"),)


def test_text_that_is_no_python() -> None:
    with pytest.raises(ProblemError, match=r"f\.py: line 2: "):
        apply_overrides("a = 1\nb = = 2", (), location="f.py")
    with pytest.raises(ProblemError, match=r"f\.py"):
        apply_overrides("a = '\0'", (), location="f.py")


def test_constants_in_order() -> None:
    assert constants("b = 1\na, c = 1, 2\nb = 3\n", "f.py") == ("b", "a", "c")


literals = st.recursive(
    st.integers() | st.floats(allow_nan=False) | st.text() | st.booleans() | st.none(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
)


@given(literals.filter(lambda value: "inf" not in repr(value)))
def test_any_literal_arrives_as_it_is(value: object) -> None:
    assert run("first, a = 1, 2\nlast = a", f"a={value!r}")["last"] == value
