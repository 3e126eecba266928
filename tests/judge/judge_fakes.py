"""A backend whose kernels are Python functions of this process: enough to see what the judge makes of behaviour."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from modelblaster.backends.interface import Build, RunFailure
from modelblaster.records.candidate import Candidate
from modelblaster.records.facts import Ceiling, Facts
from modelblaster.records.plan import Buffer, Launch, Plan, Ref, Role
from modelblaster.records.tensor import DType, TensorSpec, contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from modelblaster.judge.subject import Subject

Tensors = dict[str, torch.Tensor]
Kernel = "Callable[[Tensors], Mapping[str, torch.Tensor]]"


def spec(name: str, shape: tuple[int, ...], dtype: DType = DType.FLOAT32) -> TensorSpec:
    return TensorSpec(name, dtype, shape, contiguous_strides(shape))


def uniform(*specs: TensorSpec) -> Callable[[int], Tensors]:
    """KernelBench's way: every float input uniform in [0, 1)."""

    def shipped(seed: int) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        return {one.name: torch.rand(one.shape, generator=generator) for one in specs}

    return shipped


class FakeSession:
    """One plan; its first launch's entry names the kernel."""

    def __init__(self, kernel: Kernel, plan: Plan, sets: int) -> None:
        self._kernel = kernel
        self._plan = plan
        self._parameters: Tensors = {}
        self._inputs: list[Tensors] = [{} for _ in range(sets)]
        self._outputs: list[Tensors] = [self._poisoned() for _ in range(sets)]
        self._turn = 0
        self.is_closed = False

    def load(self, index: int, tensors: Mapping[str, torch.Tensor]) -> None:
        names = {buffer.name for buffer in self._plan.named(Role.INPUT)}
        for name, tensor in tensors.items():
            place = self._inputs[index] if name in names else self._parameters
            place[name] = tensor.clone()

    def setup(self) -> float:
        return 0.0

    def run(self, index: int) -> None:
        self._outputs[index] = self._poisoned()
        self._call(index)

    def outputs(self, index: int) -> Tensors:
        mutated = {buffer.name: self._parameters[buffer.name] for buffer in self._plan.named(Role.MUTATED)}
        return {**self._outputs[index], **mutated}

    def time(self, samples: int, *, calls: int = 1, flush: bool = False) -> Sequence[float]:
        found = []
        for _ in range(samples):
            start = time.perf_counter_ns()
            for _ in range(calls):
                self._call(self._turn)
                self._turn = (self._turn + 1) % len(self._inputs)
            found.append((time.perf_counter_ns() - start) / calls)
        return found

    def close(self) -> None:
        self.is_closed = True

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, index: int) -> None:
        for name, value in self._kernel({**self._parameters, **self._inputs[index]}).items():
            place = self._parameters if name in self._parameters else self._outputs[index]
            place[name] = value

    def _poisoned(self) -> Tensors:
        return {
            buffer.name: torch.full(buffer.shape, torch.nan if buffer.dtype.is_floating else 77).to(
                getattr(torch, buffer.dtype.value)
            )
            for buffer in self._plan.named(Role.OUTPUT)
        }


class FakeBackend:
    """Kernels by entry name; `facts` may be set to make physics strict."""

    name = "fake"

    def __init__(self, kernels: Mapping[str, Kernel], *, bandwidth: float = 1e15, last_level_bytes: int = 1 << 16):
        self._kernels = kernels
        self._ceiling = Ceiling(1, False, bandwidth)
        self._last_level_bytes = last_level_bytes
        self.sessions: list[FakeSession] = []

    def environment(self) -> tuple[tuple[str, str], ...]:
        return (("device", "fake"),)

    def facts(self) -> Facts:
        cold = Ceiling(1, True, self._ceiling.bytes_per_second)
        return Facts("fake", 1, 32, 1 << 15, 1 << 19, self._last_level_bytes, 0.0, 1e15, (self._ceiling, cold))

    def open(self, plan: Plan, build: Build, *, sets: int, deadline_seconds: float = 30.0) -> FakeSession:
        entry = next(step.entry for step in plan.steps if isinstance(step, Launch))
        session = FakeSession(self._kernels[entry], plan, sets)
        self.sessions.append(session)
        return session


def candidate(subject: Subject, entry: str, *, claims: tuple[str, ...] = (), deterministic: bool = True) -> Candidate:
    """A candidate for a subject with one launch of the named kernel."""
    buffers = tuple(
        Buffer(one.name, role, one.dtype, one.shape)
        for role, specs in (
            (Role.INPUT, subject.inputs),
            (Role.PARAMETER, subject.parameters),
            (Role.MUTATED, subject.mutated),
            (Role.OUTPUT, subject.outputs),
        )
        for one in specs
    )
    arguments = tuple(Ref(buffer.name) for buffer in buffers)
    writes = tuple(one.name for one in subject.results)
    launch = Launch(entry, arguments, (), 1, 1, tuple(one.name for one in subject.inputs), writes)
    plan = Plan(buffers, (launch,), deterministic=deterministic)
    return Candidate(entry, (), plan, "test", claims=claims)


def build(*properties: str) -> Build:
    return Build((), frozenset(properties), None, 0.0)


def raising(failure: RunFailure) -> Kernel:
    def kernel(tensors: Tensors) -> Tensors:
        raise failure

    return kernel
