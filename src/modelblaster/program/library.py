"""Library steps: calling an ATen overload that a plan names, and running plans made of such steps alone.

This is how a captured reference is executed, in its own precision or, as the oracle, in float64. An overload is
allowed when it is ATen's, changes none of its arguments and draws no random numbers, so that a plan is a function.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from modelblaster.records.plan import Attribute, Copy, Fill, Library, Plan, Ref, Role, View

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from modelblaster.records.plan import Argument, Buffer, Step

_LOW_TYPES = frozenset({torch.float32, torch.float16, torch.bfloat16})


class LibraryError(Exception):
    """A library step that may not be called or that failed; the message names the overload."""


def refusal(step: Library) -> str | None:
    """Why a plan may not hold this step, or None if it may."""
    try:
        _resolve_step(step)
    except LibraryError as error:
        return str(error)
    return None


def is_view(step: Library) -> bool:
    """Whether the step only gives memory of its first argument another shape."""
    returns = _resolve_step(step)._schema.returns
    return all(value.alias_info is not None and not value.alias_info.is_write for value in returns)


def references(argument: Argument | tuple[Argument, ...]) -> list[str]:
    """The buffers that an argument, or a tuple of arguments, names."""
    if isinstance(argument, Ref):
        return [argument.buffer]
    return [name for part in argument for name in references(part)] if isinstance(argument, tuple) else []


def reads(step: Step) -> list[str]:
    """The buffers that a step of a captured plan reads."""
    if isinstance(step, Library):
        return references((*step.arguments, *(argument for _, argument in step.keywords)))
    if isinstance(step, (Copy, View)):
        return [step.source]
    return []


def writes(step: Step) -> list[str]:
    """The buffers that a step of a captured plan writes or names."""
    if isinstance(step, Library):
        return [name for name in step.outputs if name]
    if isinstance(step, Copy):
        return [step.destination]
    return [step.buffer] if isinstance(step, (View, Fill)) else []


def view_offset(step: Library, plan: Plan) -> int:
    """Elements from the start of a view step's source to its first element, found without any memory."""
    source = plan.buffer(reads(step)[0])
    shape = tuple(int(size) for size in source.shape)
    strides = tuple(int(stride) for stride in source.strides or ())
    meta = torch.empty_strided(shape, strides, dtype=torch_dtype(source.dtype), device="meta")
    (view, *_) = call(step, {source.name: meta})
    assert view is not None
    return int(view.storage_offset())


def call(
    step: Library, environment: Mapping[str, torch.Tensor], *, as_double: bool = False
) -> tuple[torch.Tensor | None, ...]:
    """Call one library step on tensors by buffer name.

    With `as_double` every floating type that an argument names becomes float64, so that on float64 tensors the step
    computes its oracle. Returns one entry for each of `step.outputs`.

    Raises:
        LibraryError: the overload is not allowed, or the call failed.
    """
    return prepare(step, as_double=as_double)(environment)


def prepare(
    step: Library, *, as_double: bool = False
) -> Callable[[Mapping[str, torch.Tensor]], tuple[torch.Tensor | None, ...]]:
    """The step with its overload resolved, to be called many times."""
    overload = _resolve_step(step)

    def run(environment: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        arguments = [_decode(argument, environment, as_double) for argument in step.arguments]
        keywords = {name: _decode(argument, environment, as_double) for name, argument in step.keywords}
        try:
            result = overload(*arguments, **keywords)
        except Exception as error:
            raise LibraryError(f"{step.overload}: {error}") from error
        return result if isinstance(result, tuple) else tuple(result) if isinstance(result, list) else (result,)

    return run


def interpret(
    plan: Plan,
    tensors: Mapping[str, torch.Tensor],
    *,
    as_double: bool = False,
    results: Collection[str] | None = None,
) -> dict[str, torch.Tensor]:
    """Run a plan without kernels: outputs and mutated buffers by name, or the buffers that `results` names.

    `tensors` holds inputs and parameters; they are not changed. With `as_double` they are taken to float64 first.
    Values are let go after their last use.

    Raises:
        LibraryError: a step failed or the plan has a step that needs a device.
    """
    if results is None:
        results = [buffer.name for buffer in plan.named(Role.OUTPUT, Role.MUTATED)]
    environment = {name: _double(tensor) if as_double else tensor for name, tensor in tensors.items()}
    steps = (*plan.setup, *plan.steps)
    last_use = {name: position for position, step in enumerate(steps) for name in (*reads(step), *writes(step))}
    for position, step in enumerate(steps):
        _run(step, plan, environment, as_double)
        for name in {*reads(step), *writes(step)}.difference(results):
            if last_use[name] == position:
                environment.pop(name, None)
    return {name: environment[name] for name in results}


def _run(step: Step, plan: Plan, environment: dict[str, torch.Tensor], as_double: bool) -> None:
    if isinstance(step, Library):
        for name, tensor in zip(step.outputs, call(step, environment, as_double=as_double), strict=True):
            if name and tensor is not None:
                environment[name] = tensor
    elif isinstance(step, Copy):
        environment[step.destination] = environment[step.source].clone()
    elif isinstance(step, View):
        environment[step.buffer] = view_of(plan.buffer(step.buffer), environment[step.source], step.offset)
    elif isinstance(step, Fill):
        buffer = plan.buffer(step.buffer)
        dtype = torch_dtype(buffer.dtype)
        shape = [int(size) for size in buffer.shape]
        environment[step.buffer] = torch.full(shape, step.value, dtype=torch.float64 if as_double else dtype)
    else:
        raise LibraryError(f"a {step.kind} step needs a device to run on")


def view_of(buffer: Buffer, source: torch.Tensor, offset: int | str) -> torch.Tensor:
    """The part of a tensor's memory that a View step names."""
    shape = tuple(int(size) for size in buffer.shape)
    strides = tuple(int(stride) for stride in buffer.strides or ())
    return source.as_strided(shape, strides, source.storage_offset() + int(offset))


def torch_dtype(name: str) -> torch.dtype:
    """The torch type of this name."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _decode(argument: Argument, environment: Mapping[str, torch.Tensor], as_double: bool) -> Any:
    if isinstance(argument, Ref):
        return environment[argument.buffer]
    if isinstance(argument, Attribute):
        value = torch.device(argument.name) if argument.type == "device" else getattr(torch, argument.name)
        return torch.float64 if as_double and value in _LOW_TYPES else value
    if isinstance(argument, tuple):
        return [_decode(part, environment, as_double) for part in argument]
    return argument


@cache
def _resolve(name: str) -> Any:
    parts = name.split(".")
    if len(parts) != 3 or parts[0] != "aten":
        raise LibraryError(f"{name} is no ATen overload")
    overload = getattr(getattr(torch.ops.aten, parts[1], None), parts[2], None)
    if overload is None:
        raise LibraryError(f"this torch has no {name}")
    if overload._schema.is_mutable:
        raise LibraryError(f"{name} changes its arguments")
    return overload


def _resolve_step(step: Library) -> Any:
    """Operators with a dropout argument are functions as long as it is zero or they do not train."""
    overload = _resolve(step.overload)
    if torch.Tag.nondeterministic_seeded not in overload.tags:
        return overload
    names = [argument.name for argument in overload._schema.arguments]
    stated = {**dict(zip(names, step.arguments, strict=False)), **dict(step.keywords)}
    dropout = stated.get("dropout", stated.get("dropout_p", 0.0 if "dropout_p" in names else None))
    if dropout == 0 or stated.get("train") is False:
        return overload
    raise LibraryError(f"{step.overload} draws random numbers")
