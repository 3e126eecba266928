from __future__ import annotations

import dataclasses
import io
import json
import math
import re
from pathlib import Path

import pytest
from report_story import RESULT, STORY, timing
from rich.console import Console

from modelblaster.records.codec import from_json, to_json
from modelblaster.records.events import RunFinished, RunResumed, StepStarted
from modelblaster.records.result import UNCHANGED, Best, BestKind, Result
from modelblaster.records.verdict import Cause, Stage, Verdict
from modelblaster.report.console import _View, shown
from modelblaster.report.picture import Picture
from modelblaster.report.result import SCHEMA, as_data, as_json
from modelblaster.report.words import duration, seconds, slot_label, timed

DOCUMENT = (Path(__file__).parents[2] / "docs" / "schema.md").read_text(encoding="utf-8")
KEPT = dataclasses.replace(
    RESULT,
    best=Best(BestKind.REFERENCE, 2e6, (1.8e6, 2.2e6)),
    speedup=UNCHANGED,
    compiled=None,
    artifact=None,
    lint=(),
    slots=(),
    roofline_fraction=None,
)


def told(*, is_terminal: bool, as_json: bool = False, result: Result = RESULT) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=is_terminal, width=160)
    with shown(as_json=as_json, console=console) as sink:
        for event in STORY[:-1]:
            sink(event)
        sink(RunFinished(result))
    return stream.getvalue()


def test_the_object_has_exactly_the_documented_fields() -> None:
    data = as_data(RESULT)
    assert {key: sorted(value) if isinstance(value, dict) else None for key, value in data.items()} == {
        "schema": None,
        "run": None,
        "task": None,
        "backend": None,
        "precision": None,
        "mode": None,
        "size": None,
        "lint": None,
        "verdict": None,
        "reason": None,
        "baselines": ["compile", "eager"],
        "best": ["ci95_ns", "kind", "median_ns"],
        "speedup": ["algebra", "kernel", "over_eager", "over_eager_ci95", "over_strongest"],
        "roofline_fraction": None,
        "candidates": ["build_failed", "built", "crashed", "measured", "wrong"],
        "steps": None,
        "seconds": None,
        "artifact": None,
    }
    section = DOCUMENT.split(SCHEMA)[1].split("\n## ")[0]
    documented = set(re.findall(r"`([a-z0-9_.]+)`", section))
    for key, value in data.items():
        if key != "schema":
            names = [f"{key}.{name}" for name in value] if isinstance(value, dict) else [key]
            assert documented.issuperset(names)


def test_the_object_is_json_with_the_result_s_numbers() -> None:
    data = json.loads(as_json(RESULT))
    assert data["schema"] == "modelblaster.result/1"
    assert data["task"] == "problems/[softmax].py"
    assert (data["precision"], data["mode"], data["verdict"]) == ("fp32", "eval", "passed")
    assert data["baselines"]["compile"] == {
        "median_ns": 1.5e6,
        "ci95_ns": [pytest.approx(1.35e6), pytest.approx(1.65e6)],
    }
    assert data["best"] == {"kind": "kernels", "median_ns": 1e6, "ci95_ns": [0.9e6, 1.1e6]}
    assert data["speedup"] == {
        "over_eager": 2.0,
        "over_eager_ci95": [1.9, 2.1],
        "over_strongest": 1.5,
        "algebra": 1.25,
        "kernel": 1.6,
    }
    assert data["candidates"] == {"built": 9, "build_failed": 1, "wrong": 2, "crashed": 3, "measured": 4}
    assert data["lint"] == ["the output is constant"]


def test_a_kept_reference_as_json() -> None:
    data = json.loads(as_json(KEPT))
    assert (data["baselines"]["compile"], data["artifact"], data["roofline_fraction"]) == (None, None, None)
    assert data["speedup"] == dict.fromkeys(("over_eager", "over_strongest", "algebra", "kernel"), 1.0) | {
        "over_eager_ci95": [1.0, 1.0]
    }


def test_numbers_that_are_not_finite_are_null() -> None:
    odd = dataclasses.replace(RESULT, eager=timing(math.inf), roofline_fraction=math.nan)
    data = json.loads(as_json(odd))
    assert data["baselines"]["eager"] == {"median_ns": None, "ci95_ns": [None, None]}
    assert data["roofline_fraction"] is None


def test_results_and_events_survive_a_journal() -> None:
    for event in STORY:
        assert from_json(type(event), to_json(event)) == event


def test_nothing_is_shown_beside_json() -> None:
    assert told(is_terminal=False, as_json=True) == ""
    assert told(is_terminal=True, as_json=True) == ""


def test_plain_lines() -> None:
    text = told(is_terminal=False)
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[0] == "run 20260304-050607-abcdef: problems/[softmax].py on a device"
    assert lines[1] == "2 slots, 1 for kernels of our own"
    assert "eager: 2.00 ms" in lines
    assert "compile: not measured: no compiler" in lines
    assert "step 1: mul+gelu, map, unroll: 100 ns (because), kept" in lines
    assert "mul+gelu: 2.00x as fast as its reference, the program about 1.82x" in lines
    assert "step 2: mul+gelu, map, unroll: wrong (wrong: rms 1 over 1e-5)" in lines
    assert "mul+gelu: closed, every technique is exhausted" in lines
    assert "whole program: passed, 2.00x as fast as eager" in lines
    assert not any("no emitter covers it" in line for line in lines)


def test_a_resumed_run_knows_what_went_before_and_does_not_say_it_again() -> None:
    console = Console(file=io.StringIO(), width=160)
    with shown(as_json=False, console=console, before=STORY[:10]) as sink:
        for event in (RunResumed("r", 125.0, 1), STORY[1], STORY[11]):
            sink(event)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0] == "run r goes on after 1 step and 2:05 min"
    assert lines[2].startswith("step 2: mul+gelu")
    assert len(lines) == 3
    picture = Picture()
    for event in (*STORY[:10], STORY[1]):
        picture.see(event)
    assert picture.estimate() == pytest.approx(1.818, abs=1e-3)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_final_table(is_terminal: bool) -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", told(is_terminal=is_terminal))
    end = text[text.rindex("problems/[softmax].py  (fake, fp32, eval, default size)") :]
    for words in (
        "2.00 ms [1.80, 2.20]",
        "2.00x [1.90, 2.10]",
        "1.50x over the strongest",
        "kernels of its own",
        "map 510751 x3",
        "75%",
        "library",
        "unroll",
        "passed (final checks)",
        "a wall [strong]",
        "algebra 1.25x, kernels 1.60x",
        "80% of what",
        "9 built, 1 failed to build, 2 wrong, 3 crashed, 4 measured; 10 steps in 42 s",
        "the output is constant",
        RESULT.artifact,
    ):
        assert words in end


def test_the_row_of_compile_shows_the_paired_figure_only_where_that_was_taken() -> None:
    assert re.search(r"compile +1\.50 ms \S+ \S+ +1\.50x", told(is_terminal=False))
    slower = dataclasses.replace(RESULT, compiled=timing(4e6))
    assert re.search(r"compile +4\.00 ms \S+ \S+ +4\.00x", told(is_terminal=False, result=slower))


def test_the_final_table_of_a_kept_reference() -> None:
    text = told(is_terminal=False, result=KEPT)
    assert "the reference is kept" in text
    assert "not measured" in text
    assert "none: nothing faster was found" in text


def test_the_final_table_of_a_refused_program() -> None:
    refused = dataclasses.replace(KEPT, verdict=Verdict(Cause.UNJUDGEABLE, Stage.FULL, "[two] cases"))
    assert "unjudgeable: [two] cases (full checks)" in told(is_terminal=False, result=refused)


def test_the_live_picture_is_gone_at_the_end() -> None:
    """What remains on the terminal is the baselines and the final table."""
    text = told(is_terminal=True)
    assert text.rindex("final checks") > text.rindex("\x1b[2K")


def test_the_live_picture() -> None:
    now = [0.0]
    view = _View(Picture(), lambda: now[0])

    def seen() -> str:
        console = Console(file=io.StringIO(), width=160)
        console.print(view.render())
        return console.file.getvalue()  # type: ignore[attr-defined]

    assert "measuring the reference" in seen()
    for event in STORY[:-4]:
        view.see(event)
    now[0] = 5.0
    text = seen()
    assert "step 2: mul+gelu, state map.latency, technique vectorize" in text
    assert "best so far about 1.82x" in text  # (9000 + 1000) / (4500 + 1000)
    assert "1 candidates, 1 measured, 0 refused" in text
    assert "15 s left" in text
    assert "19 steps left" in text
    assert re.search(r"mul\+gelu +3\.00 µs +1\.50 µs +2\.00x +unroll +1", text)
    assert re.search(r"mm +1\.00 µs +library", text)


def test_many_slots_do_not_fill_the_screen() -> None:
    view = _View(Picture(), lambda: 0.0)
    for number in range(40):
        view.see(StepStarted(1, f"{number}", "map", "unroll", "c", None, None))
        view.picture.label(f"{number}")
    console = Console(file=io.StringIO(), width=160)
    console.print(view.render())
    assert console.file.getvalue().count("\n") < 20  # type: ignore[attr-defined]
    assert "and 28 more" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_picture_without_measurements_claims_nothing() -> None:
    assert Picture().estimate() == 1.0


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [(0.0, "0 ns"), (999.0, "999 ns"), (999.7, "1.00 µs"), (1234.0, "1.23 µs"), (99_949.0, "99.9 µs"),
     (1.5e6, "1.50 ms"), (123.4e6, "123 ms"), (2.5e9, "2.50 s")],
)  # fmt: skip
def test_durations(nanoseconds: float, expected: str) -> None:
    assert duration(nanoseconds) == expected


def test_intervals_have_the_unit_of_the_median() -> None:
    assert timed(1000.0, (950.0, 1050.0)) == "1.00 µs [0.95, 1.05]"
    assert timed(5.0, (4.0, 6.0)) == "5 ns [4.00, 6.00]"


def test_words() -> None:
    assert (seconds(-1.0), seconds(59.6), seconds(150.0)) == ("0 s", "60 s", "2:30 min")
    assert slot_label("map", ()) == "map"
    assert slot_label("map", ("aten.mul.Tensor",) * 5) == "mul+mul+mul+2 more"
