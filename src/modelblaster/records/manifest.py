"""What an artifact says of itself."""

from __future__ import annotations

from dataclasses import dataclass

from modelblaster.records.task import Task
from modelblaster.records.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class Border:
    """How the plan's border meets the module's: buffer names in the order of the flattened arguments and results.

    `arguments` is the form that a call must have (`program.capture.form_of`): its containers and every value in it
    that is no tensor. `training` are the modes of all modules, in their order, that the plan was captured in.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[TensorSpec, ...]
    arguments: str
    training: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The first thing that is read: what this is, for what, and the hash of every other file."""

    schema: str
    task: Task
    border: Border
    device: str
    isolation: str
    files: tuple[tuple[str, str], ...]
