"""The first message to the runner: memory, threads and programs (read by `native/runner.c`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelblaster.backends.cpu.program_text import measured, objects_text, program_text
from modelblaster.records.plan import Role

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from modelblaster.backends.cpu.layout import Layout
    from modelblaster.backends.flat import Flat

NOT_PINNED = -1


def session_text(
    flat: Flat, layout: Layout, objects: Sequence[Path], *, cpus: Sequence[int], sets: int, flush_bytes: int
) -> str:
    """The description of one session. `cpus` has one entry for each thread, the first NOT_PINNED to pin none."""
    regions = [
        f"{int(spot.segment)} {spot.offset} {spot.set_stride} {region.nbytes if region.role is Role.OUTPUT else 0}"
        for region, spot in zip(flat.regions, layout.spots, strict=True)
    ]
    sizes = (layout.read_only_bytes, layout.writable_bytes, layout.derived_bytes, flush_bytes)
    return "\n".join(
        [
            " ".join(map(str, ("threads", len(cpus), *cpus))),
            " ".join(map(str, ("memory", *sizes, layout.scratch_offset, layout.scratch_stride))),
            f"sets {sets}",
            f"regions {len(regions)}",
            *regions,
            objects_text(objects),
            measured(program_text(flat.setup, objects)),
            measured(program_text(flat.steps, objects)),
        ]
    )
