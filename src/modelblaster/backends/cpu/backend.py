"""The backend's parts put together."""

from __future__ import annotations

import os
import time
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from modelblaster.backends.cpu.doctor import requirements
from modelblaster.backends.cpu.inspection import inspect_object, properties, vector_fraction
from modelblaster.backends.cpu.machine import Machine, read_machine
from modelblaster.backends.cpu.sandbox import Sandbox, find_sandbox, libraries_of
from modelblaster.backends.cpu.toolchain import Toolchain, find_compiler
from modelblaster.backends.flatten import PlanError, flatten
from modelblaster.backends.interface import Build, BuildFailure, RunFailure
from modelblaster.errors import ToolchainError
from modelblaster.records.plan import Library, Repeat
from modelblaster.records.verdict import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from modelblaster.backends.cpu.memory import MemoryStore
    from modelblaster.backends.cpu.pool import Pool
    from modelblaster.backends.cpu.torch_session import TorchHost
    from modelblaster.backends.flat import Flat
    from modelblaster.backends.interface import InProcess, Requirement, Session
    from modelblaster.kernels.dialect import Dialect
    from modelblaster.records.candidate import Source
    from modelblaster.records.facts import Facts
    from modelblaster.records.plan import Plan, Step

_MOST_FLUSH_BYTES = 512 << 20


class CpuBackend:
    """Implements `interface.Backend` for this machine's processor."""

    name = "cpu"

    def __init__(self, *, threads: int | None = None, home: Path | None = None, sandbox: Sandbox | None = None) -> None:
        """Use `threads` cores (all that this process may use) and keep objects and facts under `home` (the user's)."""
        self._asked_threads = threads
        self._home = home
        self._given_sandbox = sandbox

    @cached_property
    def machine(self) -> Machine:
        """The processor."""
        return read_machine()

    @cached_property
    def threads(self) -> int:
        """Threads that a launch is spread over."""
        return self._asked_threads or len(self.machine.cpus)

    @cached_property
    def cpus(self) -> tuple[int, ...]:
        """A logical processor for each thread; -1 where there are more threads than cores."""
        fits = self.threads <= len(self.machine.cpus)
        return self.machine.cpus[: self.threads] if fits else (-1,) * self.threads

    @cached_property
    def home(self) -> Path:
        """Where objects and facts are kept."""
        if self._home is not None:
            return self._home
        from modelblaster.runs.home import home

        return home()

    @cached_property
    def sandbox(self) -> Sandbox:
        """What workers are started in."""
        return self._given_sandbox or find_sandbox()

    @cached_property
    def store(self) -> MemoryStore:
        """Memory that sessions of this backend hand on to each other."""
        from modelblaster.backends.cpu.memory import MemoryStore

        return MemoryStore()

    @cached_property
    def toolchain(self) -> Toolchain:
        """The compiler with its cache.

        Raises:
            ToolchainError: there is none.
        """
        return Toolchain(find_compiler(), self.home, self.machine.device(0))

    @cached_property
    def symbols(self) -> Mapping[str, int]:
        """Device facts that a plan's expressions may name."""
        machine = self.machine
        return {
            "threads": self.threads,
            "vector_bytes": machine.vector_bytes,
            "l1_bytes": machine.l1_bytes,
            "l2_bytes": machine.l2_bytes,
            "last_level_bytes": machine.last_level_bytes,
        }

    @property
    def flush_bytes(self) -> int:
        """Bytes that are overwritten to empty the caches."""
        return min(self.machine.last_level_bytes, _MOST_FLUSH_BYTES)

    def requirements(self) -> tuple[Requirement, ...]:
        """Compiler, bubblewrap, landlock, seccomp, torch."""
        return requirements(self.sandbox)

    def device(self) -> str:
        """Model, threads, cache, instruction sets."""
        return self.machine.device(self.threads)

    def isolation(self) -> str:
        """What candidates run in, as found on this machine."""
        met = [need.name for need in self.requirements() if need.is_met and need.name in ("landlock", "seccomp")]
        return ", ".join([self.sandbox.describe(), *met, "rlimits"])

    def environment(self) -> tuple[tuple[str, str], ...]:
        """Device, threads, compiler, isolation, kernel and torch."""
        try:
            torch_version = version("torch")
        except PackageNotFoundError:
            torch_version = "none"
        return (
            ("device", self.device()),
            ("threads", str(self.threads)),
            ("compiler", self.toolchain.compiler.version),
            ("isolation", self.isolation()),
            ("kernel", os.uname().release),
            ("torch", torch_version),
        )

    def dialect(self) -> Dialect:
        """C with vector types as wide as this processor's registers."""
        from modelblaster.backends.cpu.dialect import CpuDialect

        return CpuDialect(self.machine.vector_bytes)

    def facts(self) -> Facts:
        """Ceilings, measured once and kept under the home folder.

        Raises:
            ToolchainError: there is no compiler.
            StorageError: the home folder cannot be written.
        """
        from modelblaster.backends.cpu.facts import read_or_measure

        return read_or_measure(self)

    def remeasure(self) -> Facts:
        """Ceilings measured now, the better of old and new kept.

        Raises:
            StorageError: the home folder cannot be written.
        """
        from modelblaster.backends.cpu.facts import remeasure

        return remeasure(self)

    def close(self) -> None:
        """End the torch process and give kept memory back. May be called twice."""
        if "torch_host" in self.__dict__:
            self.torch_host.close()
        if "store" in self.__dict__:
            self.store.close()

    def build(self, sources: tuple[Source, ...], *, low_priority: bool = False) -> Build:
        """Compile and inspect.

        Raises:
            BuildFailure: the compiler or the inspection refused.
            ToolchainError: there is no compiler.
        """
        begin = time.monotonic()
        objects = self.toolchain.objects(sources, low_priority=low_priority)
        found = [inspect_object(path, vector_bytes=self.machine.vector_bytes) for path in objects]
        return Build(objects, properties(found), vector_fraction(found), time.monotonic() - begin)

    def open(self, plan: Plan, build: Build, *, sets: int, deadline_seconds: float = 30.0) -> Session:
        """Start a worker: the compiled runner, or a torch process for plans with library steps.

        Raises:
            RunFailure: the plan is malformed or the worker did not come up.
        """
        if _has_library((*plan.setup, *plan.steps)):
            from modelblaster.backends.cpu.torch_session import TorchSession

            return TorchSession(self, plan, build, sets, deadline_seconds)
        from modelblaster.backends.cpu.session import NativeSession

        runner, libraries = self._runner
        return NativeSession(
            self.flatten(plan),
            build.objects,
            runner=runner,
            libraries=libraries,
            sandbox=self.sandbox,
            store=self.store,
            cpus=self.cpus,
            sets=sets,
            flush_bytes=self.flush_bytes,
            deadline_seconds=deadline_seconds,
        )

    def load(self, plan: Plan, objects: tuple[Path, ...]) -> InProcess:
        """Load a verified plan and its objects into this process.

        Raises:
            ToolchainError: what runs plans in a process cannot be built here.
        """
        from modelblaster.backends.cpu.executor import PlanExecutor

        return PlanExecutor(self.flatten(plan), self.pool, objects)

    @cached_property
    def torch_host(self) -> TorchHost:
        """The process for plans with library steps; it starts with the first of them."""
        from modelblaster.backends.cpu.torch_session import TorchHost

        return TorchHost(self)

    @cached_property
    def pool(self) -> Pool:
        """Threads for plans in this process: those of the OpenMP runtime that is loaded, else our own.

        Raises:
            ToolchainError: the pool cannot be built here.
        """
        from modelblaster.backends.cpu.pool import Pool, find_parallel

        try:
            library = self.toolchain.pool_library()
        except BuildFailure as error:
            raise ToolchainError(f"the thread pool does not build: {error}") from error
        return Pool(library, self.threads, parallel=find_parallel())

    def flatten(self, plan: Plan) -> Flat:
        """The plan as straight-line steps, with this device's facts.

        Raises:
            RunFailure: it is malformed.
        """
        try:
            return flatten(plan, self.symbols)
        except PlanError as error:
            raise RunFailure(Cause.BUILD_FAILED, str(error)) from error

    @cached_property
    def _runner(self) -> tuple[Path, tuple[Path, ...]]:
        try:
            runner = self.toolchain.runner()
        except BuildFailure as error:
            raise RunFailure(Cause.CRASHED, f"the runner does not build: {error}") from error
        return runner, libraries_of(runner)


def _has_library(steps: Sequence[Step]) -> bool:
    return any(isinstance(step, Library) or (isinstance(step, Repeat) and _has_library(step.steps)) for step in steps)
