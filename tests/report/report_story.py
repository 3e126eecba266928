"""The events of a small run, as a console sees them."""

from __future__ import annotations

import dataclasses

from modelblaster.records.events import (
    BaselineMeasured,
    Event,
    ProgramVerified,
    RunFinished,
    RunStarted,
    SlotClosed,
    SlotImproved,
    SlotMeasured,
    SlotsCut,
    SlotSummary,
    StepFinished,
    StepStarted,
)
from modelblaster.records.result import Best, BestKind, CandidateCounts, Result, SlotResult, Speedup
from modelblaster.records.task import Budget, Mode, Precision, ProblemSource, SourceKind, Task
from modelblaster.records.timing import Comparison, Timing
from modelblaster.records.verdict import Cause, Stage, Verdict
from modelblaster.testing.stores import outcome

TASK = Task(
    ProblemSource(SourceKind.FILE, "problems/[softmax].py"),
    "fake",
    Precision.FP32,
    Mode.EVAL,
    7,
    Budget(60.0, 20),
)


def timing(nanoseconds: float) -> Timing:
    return Timing(nanoseconds, (nanoseconds * 0.9, nanoseconds * 1.1), (nanoseconds,), "screen")


PAIR = Comparison(timing(2e6), timing(1e6), 2.0, (1.9, 2.1))
RESULT = Result(
    run="20260304-050607-abcdef",
    task=TASK,
    size="default",
    lint=("the output is constant",),
    verdict=Verdict(Cause.PASSED, Stage.FINAL),
    eager=timing(2e6),
    compiled=timing(1.5e6),
    best=Best(BestKind.KERNELS, 1e6, (0.9e6, 1.1e6)),
    speedup=Speedup(2.0, (1.9, 2.1), 1.5, algebra=1.25),
    roofline_fraction=0.8,
    candidates=CandidateCounts(9, 1, 2, 3, 4),
    steps=10,
    seconds=42.5,
    artifact="/home/x/runs/20260304-050607-abcdef/best",
    isolation="a wall [strong]",
    slots=(
        SlotResult("5107" * 4, "map", 3, 0.75, 1.5e6, 0.5e6, "unroll", 9, 3.0),
        SlotResult("1b1b" * 4, "library", 1, 0.25, None, None, None, 0),
    ),
)
STORY: tuple[Event, ...] = (
    RunStarted(RESULT.run, TASK, "a device", "a wall"),
    SlotsCut(
        (
            SlotSummary("5107", "map", 3, True, ("aten.mul.Tensor", "aten.gelu.default")),
            SlotSummary("1b1b", "library", 1, False, ("aten.mm.default",)),
        )
    ),
    BaselineMeasured("eager", timing(2e6)),
    BaselineMeasured("compile", None, "no compiler"),
    SlotMeasured("5107", timing(3000.0)),
    SlotMeasured("1b1b", timing(1000.0)),
    SlotClosed("1b1b", "no emitter covers it"),
    StepStarted(1, "5107", "map.latency", "unroll", "c", 30.0, 20),
    StepFinished(outcome(1)),
    SlotImproved("5107", "c", PAIR, 2.0),
    StepStarted(2, "5107", "map.latency", "vectorize", "d", 20.0, 19),
    StepFinished(dataclasses.replace(outcome(2, cause=Cause.WRONG, reward=-0.5), reason="wrong: rms 1 over 1e-5")),
    SlotClosed("5107", "every technique is exhausted"),
    ProgramVerified("e", Verdict(Cause.PASSED, Stage.FINAL), PAIR),
    RunFinished(RESULT),
)
