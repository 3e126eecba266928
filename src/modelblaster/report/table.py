"""The final table of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from modelblaster.records.result import BestKind
from modelblaster.report.words import count, duration, seconds, timed, times

if TYPE_CHECKING:
    from rich.console import RenderableType

    from modelblaster.records.result import Result, SlotResult
    from modelblaster.records.timing import Timing


def final_table(result: Result) -> RenderableType:
    """Times, speedups, slots and the verdict, for a terminal or a file."""
    task = result.task
    title = f"{task.problem.location}  ({task.backend}, {task.precision}, {task.mode}, {result.size} size)"
    parts: list[RenderableType] = [Text(title, style="bold"), _times(result)]
    if result.slots:
        parts += [Text(""), _slots(result.slots)]
    parts += [Text(""), _facts(result)]
    return Group(*parts)


def add_row(table: Table, *cells: str | Text) -> None:
    """Add a row of texts as they are: what looks like markup (an interval in brackets) is none."""
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def _times(result: Result) -> Table:
    best, speedup = result.best, result.speedup
    is_reference = best.kind is BestKind.REFERENCE
    table = _plain("", "time of one call [95 %]", "best over it")
    add_row(table, "eager", _timing(result.eager), _interval(speedup.over_eager, speedup.over_eager_ci95))
    add_row(table, "compile", _timing(result.compiled), _over_compile(result))
    name = "best: the reference is kept" if is_reference else "best: kernels of its own"
    add_row(
        table, name, timed(best.median_ns, best.ci95_ns) if best.median_ns else "not measured", _over_strongest(result)
    )
    return table


def _over_strongest(result: Result) -> str:
    if result.best.kind is BestKind.REFERENCE:
        return times(1.0)
    strongest = "the strongest" if result.compiled is not None else "eager, the only one measured"
    return f"{times(result.speedup.over_strongest)} over {strongest}"


def _over_compile(result: Result) -> str:
    """The paired figure where compile is the strongest baseline, else the ratio of the two times."""
    compiled, eager, best = result.compiled, result.eager, result.best
    if compiled is None:
        return ""
    if best.kind is BestKind.REFERENCE:
        return times(1.0)
    if eager is None or compiled.median_ns < eager.median_ns:
        return times(result.speedup.over_strongest)
    return times(compiled.median_ns / best.median_ns) if best.median_ns else ""


def _slots(slots: tuple[SlotResult, ...]) -> Table:
    table = _plain("slot alone", "share", "reference", "best", "gain, in pairs", "technique", "steps")
    for slot in sorted(slots, key=lambda slot: -(slot.share or 0.0)):
        add_row(
            table,
            f"{slot.family} {slot.key[:6]}" + (f" x{slot.occurrences}" if slot.occurrences > 1 else ""),
            "unknown" if slot.share is None else f"{slot.share:.0%}",
            duration(slot.reference_ns) if slot.reference_ns is not None else "unknown",
            duration(slot.best_ns) if slot.best_ns is not None else "library",
            times(slot.gain),
            slot.technique or "",
            str(slot.steps),
        )
    return table


def _facts(result: Result) -> Table:
    counts, verdict = result.candidates, result.verdict
    words = f"{verdict.cause}: {verdict.detail}" if verdict.detail else str(verdict.cause)
    if not verdict.detail or not verdict.passed:
        words += f" ({verdict.stage} checks)"
    table = Table(box=None, show_header=False, pad_edge=False)
    add_row(table, "verdict", Text(words, style="green" if verdict.passed else "red"))
    if result.speedup.algebra != 1.0:
        add_row(table, "gained by", f"algebra {times(result.speedup.algebra)}, kernels {times(result.speedup.kernel)}")
    if result.roofline_fraction is not None:
        add_row(table, "roofline", f"{result.roofline_fraction:.0%} of what this device could do at most")
    add_row(
        table,
        "candidates",
        f"{counts.built} built, {counts.build_failed} failed to build, {counts.wrong} wrong, "
        f"{counts.crashed} crashed, {counts.measured} measured; "
        f"{count(result.steps, 'step')} in {seconds(result.seconds)}",
    )
    add_row(table, "isolation", Text(result.isolation))
    for finding in result.lint:
        add_row(table, "note", Text(finding, style="yellow"))
    add_row(table, "run", Text(result.run))
    add_row(table, "artifact", Text(result.artifact or "none: nothing faster was found"))
    return table


def _timing(timing: Timing | None) -> str:
    return timed(timing.median_ns, timing.ci95_ns) if timing is not None else "not measured"


def _interval(speedup: float, ci95: tuple[float, float]) -> str:
    return f"{times(speedup)} [{ci95[0]:.2f}, {ci95[1]:.2f}]"


def _plain(*headers: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, header in enumerate(headers):
        table.add_column(header, justify="left" if number == 0 else "right", no_wrap=number == 0)
    return table
