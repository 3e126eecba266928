"""Progress of a run on a console: a live picture on a terminal, plain lines elsewhere, nothing with `--json`."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from modelblaster.records.events import (
    BaselineMeasured,
    ProgramVerified,
    RunFinished,
    RunResumed,
    RunStarted,
    SlotClosed,
    SlotImproved,
    SlotsCut,
    StepFinished,
    StepStarted,
)
from modelblaster.report.picture import Picture
from modelblaster.report.table import add_row, final_table
from modelblaster.report.words import count, duration, seconds, times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import RenderableType

    from modelblaster.records.events import Event
    from modelblaster.records.outcome import Outcome
    from modelblaster.records.result import CandidateCounts
    from modelblaster.search.events import Sink

_REFRESHES_PER_SECOND = 4
_MOST_ROWS = 12
# Lines for a file need no wrapping to a screen.
_PLAIN_WIDTH = 160


@contextmanager
def shown(
    *,
    as_json: bool,
    before: Iterable[Event] = (),
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Sink]:
    """A sink that shows what it is given, for as long as the context lasts; the final table at its end.

    Args:
        as_json: show nothing; standard output belongs to the object.
        before: what happened in earlier commands of this run; known, and not shown again.
        console: where to; standard output by default.
        clock: seconds, for the budget that runs down while a step takes its time.
    """
    target = console or Console()
    picture = Picture()
    for event in before:
        picture.see(event)
    if console is None and not target.is_terminal:
        target.width = max(target.width, _PLAIN_WIDTH)
    if as_json:
        yield _ignore
    elif target.is_terminal:
        with _live(target, picture, clock) as sink:
            yield sink
    else:
        yield Lines(target, picture).show


class Lines:
    """One line for each event that says something new, and the final table."""

    def __init__(self, console: Console, picture: Picture) -> None:
        self._console = console
        self._picture = picture

    def show(self, event: Event) -> None:
        """Print what an event says, if anything."""
        self._picture.see(event)
        if isinstance(event, RunFinished):
            self._console.print(final_table(event.result))
            return
        line = describe(event, self._picture)
        if line:
            self._console.print(Text(line), soft_wrap=True)


def describe(event: Event, picture: Picture) -> str:
    """An event as a line; empty where others say it already."""
    match event:
        case RunStarted():
            return f"run {event.run}: {event.task.problem.location} on {event.device}"
        case RunResumed():
            return f"run {event.run} goes on after {count(event.steps, 'step')} and {seconds(event.seconds)}"
        case SlotsCut():
            covered = sum(slot.is_covered for slot in event.slots)
            return f"{count(len(event.slots), 'slot')}, {covered} for kernels of our own"
        case BaselineMeasured():
            measured = duration(event.timing.median_ns) if event.timing else f"not measured: {event.detail}"
            return f"{event.name}: {measured}"
        case StepFinished():
            return _step(event.outcome, picture)
        case SlotImproved():
            return (
                f"{picture.label(event.slot)}: {times(event.speedup)} as fast as its reference, "
                f"the program about {times(picture.estimate())}"
            )
        case SlotClosed():
            row = picture.row(event.slot)
            return f"{row.label}: closed, {event.reason}" if row.is_covered else ""
        case ProgramVerified():
            speedup = f", {times(event.comparison.speedup)} as fast as eager" if event.comparison else ""
            return f"whole program: {event.verdict.cause}{speedup}"
    return ""


@contextmanager
def _live(console: Console, picture: Picture, clock: Callable[[], float]) -> Iterator[Sink]:
    view = _View(picture, clock)
    result: list[RenderableType] = []
    with Live(
        console=console, get_renderable=view.render, refresh_per_second=_REFRESHES_PER_SECOND, transient=True
    ) as live:

        def show(event: Event) -> None:
            if isinstance(event, RunFinished):
                result.append(final_table(event.result))
            elif isinstance(event, BaselineMeasured):
                live.console.print(Text(describe(event, view.picture), style="dim"))
            view.see(event)

        yield show
    for table in result:
        console.print(table)


class _View:
    """The live picture. Rendered from another thread than the one that sees events."""

    def __init__(self, picture: Picture, clock: Callable[[], float]) -> None:
        self.picture = picture
        self._clock = clock
        self._stepped_at = clock()

    def see(self, event: Event) -> None:
        self.picture.see(event)
        if isinstance(event, StepStarted):
            self._stepped_at = self._clock()

    def render(self) -> RenderableType:
        picture = self.picture
        parts: list[RenderableType] = [Text(f"{picture.task}  {picture.device}", style="bold")]
        if picture.slots:
            parts.append(self._slots())
        parts += [Text(self._now(), style="cyan"), Text(self._sums(), style="dim")]
        return Group(*parts)

    def _slots(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for header in ("slot", "reference", "best", "faster by", "technique", "steps", ""):
            table.add_column(header, no_wrap=True)
        current = self.picture.current
        rows = sorted(self.picture.slots.copy().items(), key=lambda item: -(item[1].spent_ns or 0.0))
        for key, row in rows[:_MOST_ROWS]:
            is_current = current is not None and current.slot == key and not row.closed
            add_row(
                table,
                Text(row.label, style="bold" if is_current else ""),
                duration(row.reference_ns) if row.reference_ns else "",
                duration(row.best_ns) if row.best_ns else "",
                times(row.speedup) if row.best_ns else "",
                row.technique,
                str(row.steps or ""),
                Text(row.closed if row.is_covered else "library", style="dim"),
            )
        if len(rows) > _MOST_ROWS:
            table.add_row(Text(f"and {len(rows) - _MOST_ROWS} more", style="dim"))
        return table

    def _now(self) -> str:
        current = self.picture.current
        if current is None:
            return "measuring the reference"
        label = self.picture.label(current.slot)
        return f"step {current.step}: {label}, state {current.state}, technique {current.technique}"

    def _sums(self) -> str:
        parts = [f"best so far about {times(self.picture.estimate())}", counts_line(self.picture.counts)]
        current = self.picture.current
        if current is not None and current.seconds_left is not None:
            parts.append(f"{seconds(current.seconds_left - (self._clock() - self._stepped_at))} left")
        if current is not None and current.steps_left is not None:
            parts.append(f"{count(current.steps_left, 'step')} left")
        return "; ".join(parts)


def counts_line(counts: CandidateCounts) -> str:
    """How many candidates got how far."""
    failed = counts.build_failed + counts.wrong + counts.crashed
    return f"{counts.built + counts.build_failed} candidates, {counts.measured} measured, {failed} refused"


def _step(outcome: Outcome, picture: Picture) -> str:
    measured = duration(outcome.timing.median_ns) if outcome.timing else str(outcome.verdict.cause)
    reason = f" ({outcome.reason})" if outcome.reason else ""
    kept = ", kept" if outcome.kept else ""
    label = picture.label(outcome.slot)
    return f"step {outcome.step}: {label}, {outcome.state}, {outcome.technique}: {measured}{reason}{kept}"


def _ignore(_event: Event) -> None:
    return None
