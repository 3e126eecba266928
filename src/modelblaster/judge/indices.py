"""Index outputs: an index is right if the value that it points at is as extreme as the oracle's, within the allowance.

Equal values (ties) and values that rounding makes equal have several right indices, so indices are not compared: the
operand of the reducing step is computed in float64 and looked up at both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from modelblaster.judge.tolerance import EAGER_FACTOR, MAXIMUM_FLOORS
from modelblaster.records.plan import Library, Plan, Ref, Role, View
from modelblaster.records.verdict import Check

if TYPE_CHECKING:
    from modelblaster.records.plan import Argument, Buffer, Step

# Overload: position of the index result, position of the `dim` argument, `dim` where it is not stated.
_REDUCERS: dict[str, tuple[int, int, int | None]] = {
    "aten.argmax.default": (0, 1, None),
    "aten.argmin.default": (0, 1, None),
    "aten.max.dim": (1, 1, -1),
    "aten.min.dim": (1, 1, -1),
    "aten.topk.default": (1, 2, -1),
    "aten.sort.default": (1, 1, -1),
    "aten.sort.stable": (1, 99, -1),
}
_SELECTORS = ("aten.topk.", "aten.sort.")
# Steps that leave the elements and their order as they are.
_RESHAPERS = frozenset(
    {
        "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.squeeze.dim",
        "aten.squeeze.dims", "aten.squeeze.default", "aten.unsqueeze.default", "aten.alias.default",
        "aten.clone.default", "aten.detach.default", "aten._to_copy.default",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class IndexSource:
    """Which step gives an index output: its operand's buffer and its axis (None: the flattened operand).

    `is_raw`: the operand is an input or parameter itself, so that no rounding excuses another value.
    `is_distinct`: the indices along the axis have to be different (top-k, sort). `step` is the index in the plan.
    """

    operand: str
    dim: int | None
    is_raw: bool
    is_distinct: bool
    step: int


def index_source(plan: Plan, output: str) -> IndexSource | None:
    """The reducing step behind an output, seen through reshapes; None where there is none."""
    index, name = _producer(plan, output)
    step = plan.steps[index] if index is not None else None
    if index is None or not isinstance(step, Library) or step.overload not in _REDUCERS:
        return None
    result, position, default = _REDUCERS[step.overload]
    operand = step.arguments[0] if step.arguments else None
    if step.outputs[result] != name or not isinstance(operand, Ref):
        return None
    dim = _argument(step, position, "dim", default)
    _, origin = _producer(plan, operand.buffer)
    is_raw = plan.buffer(origin).role in (Role.INPUT, Role.PARAMETER)
    is_distinct = step.overload.startswith(_SELECTORS)
    return IndexSource(operand.buffer, dim if isinstance(dim, int) else None, is_raw, is_distinct, index)


def operand_plan(plan: Plan, source: IndexSource) -> Plan:
    """The part of the plan that computes the operand, as a plan whose only output it is.

    An operand that is an input or parameter is its own value: there is nothing to compute, and None would do as well,
    so the plan copies it under its own name by an identity step.
    """
    role = plan.buffer(source.operand).role
    if role in (Role.INPUT, Role.PARAMETER, Role.MUTATED):
        twin = replace(plan.buffer(source.operand), name=f"{source.operand}'", role=Role.OUTPUT)
        clone = Library("aten.clone.default", (Ref(source.operand),), (), (twin.name,))
        return Plan((*_demoted(plan, ""), twin), (clone,))
    return replace(plan, buffers=_demoted(plan, source.operand), steps=plan.steps[: source.step])


def index_check(
    value: torch.Tensor,
    oracle: torch.Tensor,
    eager: torch.Tensor,
    operand: torch.Tensor,
    source: IndexSource,
    floor: float,
) -> tuple[Check, ...]:
    """How far the operand at the candidate's indices is from the operand at the oracle's, relative to its RMS."""
    table = operand.flatten() if source.dim is None else operand
    dim = 0 if source.dim is None else source.dim
    if table.dim() == 0:
        table = table.reshape(1)
    right = _natural(oracle, table, dim)
    found = _natural(value, table, dim)
    if bool(((found < 0) | (found >= table.shape[dim])).any()):
        return (Check("index out of range", 1.0, 0.0),)
    scale = max(float(table.square().mean().sqrt()), 1e-300)
    wanted = table.gather(dim, right)
    error = float((table.gather(dim, found) - wanted).abs().max()) / scale
    own = float((table.gather(dim, _natural(eager, table, dim)) - wanted).abs().max()) / scale
    allowed = max(EAGER_FACTOR * own, 0.0 if source.is_raw else MAXIMUM_FLOORS * floor)
    checks = [Check("value at index", error, allowed)]
    if source.is_distinct and table.shape[dim] > 1:
        repeated = found.sort(dim).values.diff(dim=dim) == 0
        checks.append(Check("repeated indices", float(repeated.sum()), 0.0))
    return tuple(checks)


def _natural(indices: torch.Tensor, table: torch.Tensor, dim: int) -> torch.Tensor:
    """Indices in the shape that `gather` along the axis wants."""
    others = table.numel() // max(table.shape[dim], 1)
    shape = list(table.shape)
    shape[dim] = indices.numel() // max(others, 1)
    return indices.to(torch.int64).reshape(shape)


def _producer(plan: Plan, name: str) -> tuple[int | None, str]:
    """The step that computes a buffer and its name there, looking through views and reshapes."""
    for index in range(len(plan.steps) - 1, -1, -1):
        step = plan.steps[index]
        if name not in _written(step):
            continue
        if isinstance(step, View):
            name = step.source
        elif isinstance(step, Library) and step.overload in _RESHAPERS and isinstance(step.arguments[0], Ref):
            name = step.arguments[0].buffer
        else:
            return index, name
    return None, name


def _written(step: Step) -> tuple[str, ...]:
    if isinstance(step, Library):
        return step.outputs
    return (step.buffer,) if isinstance(step, View) else ()


def _argument(step: Library, position: int, name: str, default: Argument) -> Argument:
    if len(step.arguments) > position:
        return step.arguments[position]
    return dict(step.keywords).get(name, default)


def _demoted(plan: Plan, output: str) -> tuple[Buffer, ...]:
    """The buffers with one output only."""
    return tuple(
        replace(buffer, role=Role.OUTPUT if buffer.name == output else _inner(buffer.role)) for buffer in plan.buffers
    )


def _inner(role: Role) -> Role:
    return {Role.OUTPUT: Role.SCRATCH, Role.MUTATED: Role.PARAMETER}.get(role, role)
