"""What a device can do at most, as measured on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Best bytes per second of reading, copying and streaming-store copying at one working set.

    Bytes moved count once for a read and once for a write. `is_cold`: the working set was not in cache before.
    """

    working_set_bytes: int
    is_cold: bool
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Facts:
    """Measured ceilings of one device with one number of threads, cached with the device's fingerprint."""

    device: str
    threads: int
    vector_bytes: int
    l1_bytes: int
    l2_bytes: int
    last_level_bytes: int
    launch_ns: float
    peak_flops: float
    ceilings: tuple[Ceiling, ...]

    def bandwidth(self, working_set_bytes: int, *, is_cold: bool) -> float:
        """Bytes per second at the measured working set nearest to this one, from below where there is one.

        A smaller working set is never slower, so this is a ceiling and not a guess in between.
        """
        rows = [row for row in self.ceilings if row.is_cold == is_cold]
        below = [row for row in rows if row.working_set_bytes <= working_set_bytes]
        row = max(below, key=lambda r: r.working_set_bytes) if below else min(rows, key=lambda r: r.working_set_bytes)
        return row.bytes_per_second
