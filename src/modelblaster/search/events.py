"""Where events of a search go. The records themselves are in `records.events`, as journals and reports know them."""

from __future__ import annotations

from collections.abc import Callable

from modelblaster.records.events import (
    BaselineMeasured,
    Event,
    ProgramVerified,
    RunFinished,
    RunResumed,
    RunStarted,
    SlotClosed,
    SlotImproved,
    SlotMeasured,
    SlotsCut,
    SlotSummary,
    StepFinished,
    StepStarted,
)

Sink = Callable[[Event], None]
"""Takes one event; called in order, from one thread. What it raises ends the search."""


def fan_out(*sinks: Sink) -> Sink:
    """One sink that hands each event to several, in their order: put the journal first, so nothing is shown unsaved."""

    def emit(event: Event) -> None:
        for sink in sinks:
            sink(event)

    return emit


__all__ = [
    "BaselineMeasured", "Event", "ProgramVerified", "RunFinished", "RunResumed", "RunStarted", "Sink", "SlotClosed",
    "SlotImproved", "SlotMeasured", "SlotSummary", "SlotsCut", "StepFinished", "StepStarted", "fan_out",
]  # fmt: skip
