"""Ceilings of this machine, measured through the same runner as candidates and kept with its fingerprint."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from modelblaster.backends.cpu.toolchain import NATIVE
from modelblaster.errors import StorageError
from modelblaster.records.candidate import Source
from modelblaster.records.codec import RecordError, digest, from_json, to_json
from modelblaster.records.facts import Ceiling, Facts
from modelblaster.records.plan import Buffer, Launch, Plan, Ref, Role
from modelblaster.records.tensor import DType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from modelblaster.backends.cpu.backend import CpuBackend
    from modelblaster.backends.interface import Build

_VERSION = "1"
_BLOCK = 4096
_SMALLEST = 256 << 10
_STEP = 4
_LARGEST = 1 << 30
_FLOPS_ROUNDS = 20_000
_CHAINS = 12
_SAMPLE_BYTES = 256 << 20
_MOST_SAMPLES = 30
_FEWEST_SAMPLES = 6
_MOST_SETS = 256
_LAUNCHES = 200
_KERNELS = ("ceiling_read", "ceiling_copy", "ceiling_stream")


def read_or_measure(backend: CpuBackend) -> Facts:
    """The facts of this device, from `<home>/facts` where they were measured before.

    Raises:
        StorageError: the folder cannot be written.
    """
    path = _path(backend)
    try:
        return from_json(Facts, path.read_bytes())
    except (OSError, RecordError):
        facts = measure(backend)
    _write(path, to_json(facts, indent=1))
    return facts


def remeasure(backend: CpuBackend) -> Facts:
    """Measure anew and keep the better of old and new, since other work on the machine only makes ceilings lower.

    Raises:
        StorageError: the folder cannot be written.
    """
    old, new = read_or_measure(backend), measure(backend)
    facts = replace(
        new,
        launch_ns=min(old.launch_ns, new.launch_ns),
        peak_flops=max(old.peak_flops, new.peak_flops),
        ceilings=tuple(
            replace(row, bytes_per_second=max(row.bytes_per_second, before.bytes_per_second))
            for row, before in zip(new.ceilings, old.ceilings, strict=True)
        ),
    )
    _write(_path(backend), to_json(facts, indent=1))
    return facts


def _path(backend: CpuBackend) -> Path:
    return backend.home / "facts" / f"{digest(_VERSION, backend.device())}.json"


def measure(backend: CpuBackend) -> Facts:
    """Measure now: one to two seconds."""
    machine = backend.machine
    text = f"#define VECTOR_BYTES {machine.vector_bytes}\n{(NATIVE / 'ceilings.c').read_text()}"
    build = backend.build((Source("ceilings.c", "c", text),))
    launch_ns = _launch_ns(backend, build)
    ceilings = [
        _ceiling(backend, build, nbytes, launch_ns, is_cold=is_cold)
        for nbytes in working_sets(machine.last_level_bytes)
        for is_cold in (False, True)
    ]
    return Facts(
        device=backend.device(),
        threads=backend.threads,
        vector_bytes=machine.vector_bytes,
        l1_bytes=machine.l1_bytes,
        l2_bytes=machine.l2_bytes,
        last_level_bytes=machine.last_level_bytes,
        launch_ns=launch_ns,
        peak_flops=_peak_flops(backend, build),
        ceilings=_monotone(ceilings),
    )


def _monotone(ceilings: Sequence[Ceiling]) -> tuple[Ceiling, ...]:
    """What a larger working set reaches, a smaller one can as well; starting cost hides it in the smallest."""
    return tuple(
        replace(row, bytes_per_second=max(o.bytes_per_second for o in ceilings if _is_no_easier(o, row)))
        for row in ceilings
    )


def _is_no_easier(other: Ceiling, row: Ceiling) -> bool:
    return other.working_set_bytes >= row.working_set_bytes and (other.is_cold or not row.is_cold)


def working_sets(last_level_bytes: int) -> tuple[int, ...]:
    """Bytes from 256 KB in steps of four up to the first that is twice the last-level cache, at most 1 GB."""
    sizes = [_SMALLEST]
    while sizes[-1] < min(2 * last_level_bytes, _LARGEST):
        sizes.append(min(sizes[-1] * _STEP, _LARGEST))
    return tuple(sizes)


def _launch_ns(backend: CpuBackend, build: Build) -> float:
    plan = _plan("ceiling_launch", 16, 16, units=backend.threads, grain=1)
    with backend.open(plan, build, sets=1) as session:
        return min(session.time(_MOST_SAMPLES, calls=_LAUNCHES))


def _peak_flops(backend: CpuBackend, build: Build) -> float:
    lanes = backend.machine.vector_bytes // DType.FLOAT32.itemsize
    units = 4 * backend.threads
    plan = _plan("ceiling_flops", 2 * lanes, units * lanes, units=units, grain=1, size=_FLOPS_ROUNDS)
    operations = 2 * _CHAINS * lanes * _FLOPS_ROUNDS * units
    with backend.open(plan, build, sets=1) as session:
        return 1e9 * operations / min(session.time(_MOST_SAMPLES))


def _ceiling(backend: CpuBackend, build: Build, nbytes: int, launch_ns: float, *, is_cold: bool) -> Ceiling:
    """The best kernel's bytes per second; starting the kernel is taken off, for a ceiling must not be too low.

    Cold is a ring of sets that together are twice the last-level cache.
    """
    best = 0.0
    sets = max(2, -(-2 * backend.machine.last_level_bytes // nbytes)) if is_cold else 1
    samples = max(_FEWEST_SAMPLES, min(_MOST_SAMPLES, _SAMPLE_BYTES // nbytes))
    for kernel in _KERNELS:
        reads_only = kernel == "ceiling_read"
        read_bytes = nbytes if reads_only else nbytes // 2
        units = read_bytes // _BLOCK
        grain = max(1, units // (8 * backend.threads))
        # A read keeps one vector of each part: its output is there but hardly touched.
        written = read_bytes // DType.FLOAT32.itemsize
        plan = _plan(kernel, read_bytes // DType.FLOAT32.itemsize, written, units=units, grain=grain)
        ring = min(sets, _MOST_SETS)
        with backend.open(plan, build, sets=ring) as session:
            fastest = min(session.time(max(samples, 2 * ring if is_cold else 0)))
        best = max(best, 1e9 * nbytes / max(fastest - launch_ns, 0.1 * fastest))
    return Ceiling(nbytes, is_cold, best)


def _plan(entry: str, source: int, target: int, *, units: int, grain: int, size: int = 0) -> Plan:
    buffers = (
        Buffer("source", Role.INPUT, DType.FLOAT32, (source,)),
        Buffer("target", Role.OUTPUT, DType.FLOAT32, (target,)),
    )
    launch = Launch(entry, (Ref("source"), Ref("target")), (size,), units, grain, ("source",), ("target",))
    return Plan(buffers, (launch,))


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text)
        draft.replace(path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error
