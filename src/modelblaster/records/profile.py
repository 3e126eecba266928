"""What limits a slot now, in numbers that mean the same on every backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """Neutral metrics: shares in [0, 1] or plain counts; None where a backend cannot know.

    `memory_throughput` and `compute_throughput` are shares of the measured ceilings, `vector_fraction` the share of
    arithmetic and memory instructions of the kernel that are full-width vector ones, `launch_overhead` the share of
    the time that starting the kernels takes, `roofline_fraction` the time of physics over the measured time.
    """

    memory_throughput: float | None = None
    compute_throughput: float | None = None
    vector_fraction: float | None = None
    launch_overhead: float | None = None
    arithmetic_intensity: float | None = None
    roofline_fraction: float | None = None
    kernels: int | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What a slot has to do at least: bytes that must move, floating-point operations, kernel launches it makes."""

    bytes_moved: int
    flops: int
    launches: int = 1
