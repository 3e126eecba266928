"""The neutral metrics that follow from a time, the work and the device's ceilings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelblaster.judge.physics import lower_bound_ns
from modelblaster.records.profile import Profile, Work

if TYPE_CHECKING:
    from modelblaster.records.facts import Facts
    from modelblaster.records.timing import Timing


def profile(
    timing: Timing, work: Work, facts: Facts, *, launches: int, vector_fraction: float | None, working_set_bytes: int
) -> Profile:
    """What limits an implementation that needed this time for this work.

    `launches` are those that it really makes; `working_set_bytes` is the ring that it was timed on.
    """
    seconds = timing.median_ns * 1e-9
    bandwidth = facts.bandwidth(working_set_bytes, is_cold=False)
    return Profile(
        memory_throughput=min(1.0, work.bytes_moved / seconds / bandwidth),
        compute_throughput=min(1.0, work.flops / seconds / facts.peak_flops),
        vector_fraction=vector_fraction,
        launch_overhead=min(1.0, launches * facts.launch_ns / timing.median_ns),
        arithmetic_intensity=work.flops / work.bytes_moved if work.bytes_moved else None,
        roofline_fraction=min(1.0, lower_bound_ns(work, facts, working_set_bytes=working_set_bytes) / timing.median_ns),
        kernels=launches,
    )
