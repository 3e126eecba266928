"""The strongest single tripwire: nothing is faster than the memory and the arithmetic units allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelblaster.records.facts import Facts
    from modelblaster.records.profile import Work
    from modelblaster.records.timing import Timing

# A time below this share of the bound is refused. Ceilings are themselves measurements on a shared machine: between
# passes the same copy moves by up to 1.3 times, and no eager or vendor time may ever be refused.
MARGIN = 0.75


def lower_bound_ns(work: Work, facts: Facts, *, working_set_bytes: int | None = None, is_cold: bool = False) -> float:
    """Nanoseconds that the work needs at least: the longer of moving its bytes and doing its arithmetic.

    `working_set_bytes` is everything that repeated calls walk over (a whole ring of sets): it decides which cache the
    bytes can come from. By default it is what one call moves.
    """
    reach = work.bytes_moved if working_set_bytes is None else working_set_bytes
    moving = work.bytes_moved / facts.bandwidth(reach, is_cold=is_cold) if work.bytes_moved else 0.0
    computing = work.flops / facts.peak_flops if work.flops else 0.0
    return max(moving, computing) * 1e9


def roofline_fraction(
    timing: Timing, work: Work, facts: Facts, *, working_set_bytes: int | None = None, is_cold: bool = False
) -> float:
    """The time of physics over the measured one: 1.0 is a kernel that nothing can beat."""
    bound = lower_bound_ns(work, facts, working_set_bytes=working_set_bytes, is_cold=is_cold)
    return bound / timing.median_ns


def is_suspect(
    timing: Timing, work: Work, facts: Facts, *, working_set_bytes: int | None = None, is_cold: bool = False
) -> bool:
    """Whether the time is below physics by more than the margin.

    Ceilings taken while the machine was busy are too low: re-measure them before refusing.
    """
    fraction = roofline_fraction(timing, work, facts, working_set_bytes=working_set_bytes, is_cold=is_cold)
    return fraction * MARGIN > 1.0
