"""What is to be optimized, for what, and within which budget."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from modelblaster.records.tensor import TensorSpec


class Mode(StrEnum):
    """Whether the reference runs as in inference or as in training (batch statistics, live dropout)."""

    EVAL = "eval"
    TRAIN = "train"


class Precision(StrEnum):
    """The tier that both sides compute in; the user's choice, never the search's."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"


class SourceKind(StrEnum):
    """Where a reference program comes from, and so how it can be rebuilt."""

    FILE = "file"
    ATTRIBUTE = "attribute"
    PYTHON = "python"


@dataclass(frozen=True, slots=True)
class ProblemSource:
    """How to rebuild the reference.

    `location` is a path, a `module:attribute` name or, for a module given in Python, its qualified class name.
    `text` is the whole problem file after its overrides, so that a run can be repeated when the file has gone
    (empty for other kinds). `overrides` are (constant, Python literal) pairs.
    """

    kind: SourceKind
    location: str
    text: str = ""
    overrides: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """One set of shapes that the program is to be fast for.

    `mutated` names the parameters or buffers that the program writes (running statistics); they count as outputs.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    mutated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """Whichever ends first ends the search. `seconds` count from the start of the command."""

    seconds: float | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A reference program, a backend, a precision tier, input cases and a budget."""

    problem: ProblemSource
    backend: str
    precision: Precision
    mode: Mode
    seed: int
    budget: Budget
    workloads: tuple[Workload, ...] = ()
