"""What a problem hands over: a module and the arguments of one call, checked and copied."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from modelblaster.errors import ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

# Tensors without storage ("meta") are for looking at shapes only.
_DEVICES = ("cpu", "meta")


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Every tensor in nested lists, tuples and dictionaries, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)


def checked_module(made: object, location: str) -> nn.Module:
    """`made`, if it is a module on the CPU.

    Raises:
        ProblemError: it is something else, or elsewhere.
    """
    if not isinstance(made, nn.Module):
        raise ProblemError(f"{location}: the model is {kind_of(made)}, not a torch.nn.Module")
    for name, tensor in (*made.named_parameters(), *made.named_buffers()):
        _require_cpu(tensor, f"{location}: {name}")
    return made


def checked_inputs(made: object, location: str) -> list[Any]:
    """`made` as a list of positional arguments, its tensors without gradients; types and constants stay as they are.

    Raises:
        ProblemError: no list or tuple, or a tensor that is not on the CPU.
    """
    if not isinstance(made, list | tuple):
        raise ProblemError(f"{location}: the inputs are {kind_of(made)}, not a list or tuple of arguments")
    for position, value in enumerate(made):
        for tensor in tensors_in(value):
            _require_cpu(tensor, f"{location}: input {position}")
    return [_without_gradients(value) for value in made]


def copied(value: T, location: str) -> T:
    """A deep copy.

    Raises:
        ProblemError: something in it cannot be copied.
    """
    try:
        return copy.deepcopy(value)
    except Exception as error:
        words = " ".join(str(error).split())
        raise ProblemError(f"{location}: cannot be copied: {type(error).__name__}: {words}") from error


def kind_of(value: object) -> str:
    """What a value is, in words for a message: `an int`, `None`."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _without_gradients(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach() if value.requires_grad else value
    if type(value) in (list, tuple):
        return type(value)(_without_gradients(part) for part in value)
    if type(value) is dict:
        return {key: _without_gradients(part) for key, part in value.items()}
    return value


def _require_cpu(tensor: torch.Tensor, what: str) -> None:
    if tensor.device.type not in _DEVICES:
        raise ProblemError(f"{what} is on {tensor.device}; a problem makes its tensors on the CPU")
    if tensor.layout != torch.strided:
        raise ProblemError(f"{what} is {tensor.layout}; only dense tensors can be optimized")
