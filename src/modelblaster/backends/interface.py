"""What a backend is to the rest of the program: it lowers, runs and measures, and decides nothing.

The judge owns verdicts and timings; a backend hands it sessions in which a plan runs isolated from everything that
could tell a candidate the answer. Nothing outside `backends/` names a backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    import torch

    from modelblaster.kernels.dialect import Dialect
    from modelblaster.records.candidate import Source
    from modelblaster.records.facts import Facts
    from modelblaster.records.plan import Plan
    from modelblaster.records.verdict import Cause


class BuildFailure(Exception):
    """The toolchain refused the sources; the message is the compiler's, with file, line and text."""


class RunFailure(Exception):
    """A plan did not run to its end: what happened, as a cause and a sentence. The session is closed."""

    def __init__(self, cause: Cause, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Build:
    """Loadable objects, one for each source, and what is visible in them.

    `properties` are the claims that hold of the built code (`wide_simd`, `streaming_stores`); `vector_fraction` is
    the share of full-width vector instructions among the arithmetic and memory ones.
    """

    objects: tuple[Path, ...]
    properties: frozenset[str]
    vector_fraction: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing a backend needs or likes: whether it is there, and what to install if not."""

    name: str
    is_met: bool
    is_required: bool
    detail: str
    remedy: str = ""


class Session(Protocol):
    """One plan loaded in an isolated worker, with a ring of input and output sets.

    Inputs and outputs exist once for every set of the ring, parameters, derived and scratch buffers once. Tensors
    passed in are copied; tensors handed out are valid until the next call on the session. Not thread-safe. Every
    method may raise RunFailure, after which only `close` may be called.
    """

    def load(self, index: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write inputs (into set `index`) and parameters (into the only copy) by buffer name."""

    def setup(self) -> float:
        """Run the plan's setup steps on the parameters. Returns nanoseconds."""

    def run(self, index: int) -> None:
        """Poison the outputs of set `index` and scratch, run the plan once, check the red zones."""

    def outputs(self, index: int) -> dict[str, torch.Tensor]:
        """Outputs of set `index` and mutated buffers, by buffer name, as they are in memory now."""

    def time(self, samples: int, *, calls: int = 1, flush: bool = False) -> Sequence[float]:
        """Nanoseconds a call, `samples` times, each the mean of `calls` calls, walking around the ring.

        The clock is the worker's own and is checked against the parent's. With `flush`, caches are overwritten
        before each sample, outside the clock.
        """

    def close(self) -> None:
        """End the worker and give back the memory. May be called twice."""

    def __enter__(self) -> Session:
        """The session itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""


class InProcess(Protocol):
    """A verified plan loaded into the user's own process: how an artifact runs. One call at a time."""

    def bind(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Use these parameters and mutated buffers from now on, and run the setup on them."""

    def __call__(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Outputs by name, freshly allocated. Mutated buffers are written in place. Inputs fit the plan's guards."""


class Backend(Protocol):
    """Toolchain, runner, profiler, dialect, baselines' settings and facts of one kind of device."""

    name: str

    def requirements(self) -> tuple[Requirement, ...]:
        """What this backend needs here, for `doctor`."""

    def device(self) -> str:
        """Fingerprint of the device: model, cores, instruction sets."""

    def isolation(self) -> str:
        """How candidates are kept apart on this machine, in words for the result."""

    def environment(self) -> tuple[tuple[str, str], ...]:
        """What a timing carries: device, threads, compiler, versions."""

    def dialect(self) -> Dialect:
        """Spelling and limits for the emitters."""

    def facts(self) -> Facts:
        """Ceilings, measured once for each device and kept under the home folder."""

    def remeasure(self) -> Facts:
        """The ceilings measured now, the better of old and new kept: before a time is refused as impossible."""

    def build(self, sources: tuple[Source, ...], *, low_priority: bool = False) -> Build:
        """Compile, from a cache keyed by content where possible.

        With `low_priority` the compiler yields to everything else: for builds beside a measurement.

        Raises:
            BuildFailure: the compiler or the inspection of the object refused.
            ToolchainError: there is no compiler.
        """

    def open(self, plan: Plan, build: Build, *, sets: int, deadline_seconds: float = 30.0) -> Session:
        """Start a worker for a plan. `deadline_seconds` bounds each single call of the session.

        Raises:
            RunFailure: the worker did not come up.
        """

    def load(self, plan: Plan, objects: tuple[Path, ...]) -> InProcess:
        """Load a verified plan and its objects into this process.

        Raises:
            ToolchainError: what runs plans in a process cannot be built here.
        """

    def close(self) -> None:
        """End what was started and give kept memory back. May be called twice."""
