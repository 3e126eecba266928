"""Writing the winner as an artifact."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from modelblaster.program.slots import specs_of
from modelblaster.records.manifest import Border
from modelblaster.records.plan import Role
from modelblaster.runs import artifact

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from modelblaster.backends.interface import Backend
    from modelblaster.model.proof import Proof
    from modelblaster.model.reference import Reference
    from modelblaster.program.capture import Captured
    from modelblaster.records.task import Task
    from modelblaster.runs.run import Run


def keep(run: Run, task: Task, reference: Reference, proof: Proof, backend: Backend) -> Path:
    """Write the run's artifact; its folder.

    Raises:
        StorageError: it cannot be written.
    """
    assert reference.captured is not None
    assert proof.build is not None
    border = border_of(reference.captured)
    artifact.write(
        run.artifact,
        task=replace(task, workloads=(reference.workload,)) if reference.workload else task,
        border=border,
        candidate=proof.candidate,
        evidence=proof.evidence,
        constants=b"".join(_raw(reference.captured.constants[spec.name]) for spec in border.constants),
        device=backend.device(),
        isolation=backend.isolation(),
        objects=proof.build.objects,
    )
    return run.artifact


def border_of(captured: Captured) -> Border:
    """How a captured program's plan meets its module."""
    specs = specs_of(captured.plan.named(Role.PARAMETER))
    constants = tuple(spec for name, spec in specs.items() if name in captured.constants)
    return Border(captured.inputs, captured.outputs, constants, captured.arguments, captured.training)


def constants_of(border: Border, raw: bytes) -> Mapping[str, torch.Tensor]:
    """The constants that an artifact holds as bytes, by name."""
    found = {}
    offset = 0
    for spec in border.constants:
        nbytes = spec.elements * spec.dtype.itemsize
        dtype: torch.dtype = getattr(torch, spec.dtype.value)
        part = torch.frombuffer(bytearray(raw[offset : offset + nbytes]), dtype=dtype) if nbytes else torch.empty(0)
        values = torch.empty_strided(spec.shape, spec.strides, dtype=dtype)
        found[spec.name] = values.copy_(part.reshape(spec.shape))
        offset += nbytes
    return found


def _raw(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
