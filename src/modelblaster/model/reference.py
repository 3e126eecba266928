"""The reference program of a task: module, example inputs, captured plan, slots, and what the judge needs of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
import torch
from torch.utils import _pytree as pytree

from modelblaster.errors import ProblemError
from modelblaster.judge.subject import Subject
from modelblaster.program.capture import Captured, capture, state_of, tensor_leaves
from modelblaster.program.graph import Uncaptured
from modelblaster.program.slots import Slot, cut, specs_of
from modelblaster.program.values import ProgramValues
from modelblaster.program.work import work_of
from modelblaster.records.plan import Ref, Role
from modelblaster.records.profile import Work
from modelblaster.records.task import Precision, Task, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelblaster.records.plan import Plan
    from modelblaster.records.tensor import TensorSpec
    from modelblaster.task.problem import Problem

_LOW = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}
# The program's own memory, its copies in the reference process and the arena, eager's and the oracle's.
_COPIES = 8
_MEMORY_SHARE = 0.85


@dataclass(frozen=True, slots=True)
class Reference:
    """A program that was loaded. `captured` is None where no tracer could follow it; `refusal` says why."""

    problem: Problem
    task: Task
    module: torch.nn.Module
    captured: Captured | None
    refusal: str
    slots: tuple[Slot, ...]
    subject: Subject | None
    values: ProgramValues | None
    work: Work | None

    @property
    def is_one_slot(self) -> bool:
        """Whether one slot, once, is the whole program: then its candidates are judged as programs."""
        return len(self.slots) == 1 and self.slots[0].nest is not None and len(self.slots[0].occurrences) == 1

    @property
    def workload(self) -> Workload | None:
        """The shapes of this run."""
        if self.subject is None:
            return None
        mutated = tuple(spec.name for spec in self.subject.mutated)
        return Workload("shipped", self.subject.inputs, self.subject.outputs, mutated)

    def slot_subject(self, slot: Slot) -> Subject:
        """What candidates for a slot are compared with."""
        specs = specs_of(slot.reference.buffers)

        def of(role: Role) -> tuple[TensorSpec, ...]:
            return tuple(specs[buffer.name] for buffer in slot.reference.named(role))

        binding = dict(slot.occurrences[0].binding)
        names = [spec.name for spec in (*of(Role.INPUT), *of(Role.PARAMETER))]

        def shipped(seed: int) -> Mapping[str, torch.Tensor]:
            assert self.values is not None
            values = self.values(tuple(sorted({binding[name] for name in names})), seed)
            return {name: values[binding[name]] for name in names}

        return Subject(
            key=slot.key,
            inputs=of(Role.INPUT),
            parameters=of(Role.PARAMETER),
            outputs=of(Role.OUTPUT),
            shipped=shipped,
            plan=slot.reference,
            mode=self.task.mode,
            work=slot.nest.work() if slot.nest else None,
        )


def load_reference(problem: Problem, task: Task) -> Reference:
    """Make the module and its inputs, capture, cut.

    Raises:
        ProblemError: the problem cannot be made, or is too large for this machine.
    """
    module = _lowered_module(problem.module(task.mode, task.seed), task.precision)
    inputs = _lowered(problem.inputs(task.seed), task.precision)
    _require_made(module, task)
    _require_memory(module, inputs)
    try:
        captured = capture(module, inputs)
    except Uncaptured as reason:
        _require_call(module, inputs, task)
        return Reference(problem, task, module, None, str(reason), (), None, None, None)
    slots = cut(captured.plan)
    subject = _program_subject(problem, task, module, inputs, captured, _least_work(captured.plan, slots))
    values = ProgramValues(captured.plan, subject.shipped)
    return Reference(problem, task, module, captured, "", slots, subject, values, work_of(captured.plan))


def _require_made(module: torch.nn.Module, task: Task) -> None:
    for name, parameter in (*module.named_parameters(), *module.named_buffers()):
        if torch.nn.parameter.is_lazy(parameter):
            raise ProblemError(
                f"{task.problem.location}: {name} is made at the first call; give it its size, or call once"
            )


def _require_call(module: torch.nn.Module, inputs: list[Any], task: Task) -> None:
    """A program that cannot be traced stays as it is; one that cannot be called is refused."""
    try:
        with torch.no_grad():
            module(*inputs)
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise ProblemError(f"{task.problem.location}: forward fails: {type(error).__name__}: {text[:200]}") from error


def _program_subject(
    problem: Problem, task: Task, module: torch.nn.Module, inputs: list[Any], captured: Captured, work: Work
) -> Subject:
    specs = specs_of(captured.plan.buffers)
    names = iter(captured.inputs)
    arguments = pytree.tree_map(lambda leaf: Ref(next(names)) if isinstance(leaf, torch.Tensor) else leaf, inputs)
    state = {**state_of(module), **captured.constants}

    def shipped(seed: int) -> Mapping[str, torch.Tensor]:
        tensors = tensor_leaves(_lowered(problem.inputs(seed), task.precision))
        given = dict(zip(captured.inputs, tensors, strict=True))
        return {**{buffer.name: state[buffer.name] for buffer in _state(captured.plan)}, **given}

    return Subject(
        key="program",
        inputs=tuple(specs[name] for name in captured.inputs),
        parameters=tuple(specs[buffer.name] for buffer in captured.plan.named(Role.PARAMETER)),
        outputs=tuple(specs[name] for name in captured.outputs),
        returns=captured.outputs,
        shipped=shipped,
        mutated=tuple(specs[buffer.name] for buffer in captured.plan.named(Role.MUTATED)),
        plan=captured.plan,
        module=module,
        arguments=tuple(arguments),
        mode=task.mode,
        frozen=frozenset(captured.constants),
        work=work,
    )


def _least_work(plan: Plan, slots: tuple[Slot, ...]) -> Work:
    """For the gate of physics: algebra may drop arithmetic and inputs, but nobody can drop outputs."""
    if len(slots) == 1 and slots[0].nest is not None and len(slots[0].occurrences) == 1:
        return slots[0].nest.work()
    outputs = specs_of(plan.named(Role.OUTPUT))
    return Work(bytes_moved=sum(spec.nbytes for spec in outputs.values()), flops=0)


def _state(plan: Plan) -> tuple[Any, ...]:
    return plan.named(Role.PARAMETER, Role.MUTATED)


def _lowered_module(module: torch.nn.Module, precision: Precision) -> torch.nn.Module:
    return module.to(_LOW[precision]) if precision in _LOW else module


def _lowered(inputs: list[Any], precision: Precision) -> list[Any]:
    """Floating inputs in the tier's storage type; labels and indices stay integers."""
    dtype = _LOW.get(precision)
    if dtype is None:
        return inputs

    def lower(leaf: Any) -> Any:
        return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float32 else leaf

    lowered: list[Any] = pytree.tree_map(lower, inputs)
    return lowered


def _require_memory(module: torch.nn.Module, inputs: list[Any]) -> None:
    nbytes = sum(tensor.nbytes for tensor in (*tensor_leaves(inputs), *state_of(module).values()))
    available = psutil.virtual_memory().available
    # Parameters and inputs are here already: what is free must hold the other copies.
    if (_COPIES - 1) * nbytes > _MEMORY_SHARE * available:
        raise ProblemError(
            f"inputs and parameters take {nbytes / 1e9:.1f} GB; proving a candidate right needs about {_COPIES} times"
            f" as much and {available / 1e9:.0f} GB are free: make the problem smaller with --set"
        )
