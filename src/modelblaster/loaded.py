"""An artifact as a drop-in module.

Within its guards (types, shapes, strides, no gradients wanted) a call runs the plan; outside them it runs the
reference, which the module holds. The reference's parameters are used as they are: assigning or loading other
weights is seen at the next call.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from modelblaster.program.library import torch_dtype
from modelblaster.program.slots import specs_of
from modelblaster.records.plan import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelblaster.backends.interface import InProcess
    from modelblaster.records.manifest import Border
    from modelblaster.records.plan import Plan


class LoadedModule(nn.Module):
    """The optimized program. `reference` is the original module and owns the weights."""

    def __init__(
        self,
        reference: nn.Module,
        plan: Plan,
        border: Border,
        constants: Mapping[str, torch.Tensor],
        program: InProcess,
    ) -> None:
        super().__init__()
        self.reference = reference
        self._inputs = border.inputs
        self._outputs = border.outputs
        self._constants = dict(constants)
        self._program = program
        self._guards = specs_of(plan.named(Role.INPUT))
        self._state_specs = specs_of(plan.named(Role.PARAMETER, Role.MUTATED))
        self._owners = _owners(reference, [name for name in self._state_specs if name not in self._constants])
        self._bound: tuple[tuple[int, int], ...] | None = None
        self._structures: dict[object, pytree.TreeSpec] = {}
        self._has_warned = False

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """What the reference returns for these arguments."""
        tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
        refusal = self._refusal(tensors, keywords)
        if refusal is not None:
            self._warn(refusal)
            return self.reference(*arguments, **keywords)
        structure = self._structure(arguments)
        if structure is None:
            return self.reference(*arguments)
        state = self._state()
        if state is None:
            return self.reference(*arguments)
        with torch.no_grad():
            self._bind(state)
            results = self._program(dict(zip(self._inputs, tensors, strict=True)))
        return pytree.tree_unflatten([results[name] for name in self._outputs], structure)

    def _refusal(self, tensors: Sequence[torch.Tensor], keywords: Mapping[str, Any]) -> str | None:
        """Why this call is outside the guards, or None."""
        if keywords or len(tensors) != len(self._inputs):
            return "the arguments are not those that the program was captured with"
        if torch.is_grad_enabled() and (
            any(tensor.requires_grad for tensor in tensors)
            or any(parameter.requires_grad for parameter in self.reference.parameters())
        ):
            return "gradients are wanted; call it under torch.no_grad() or torch.inference_mode()"
        for name, tensor in zip(self._inputs, tensors, strict=True):
            guard = self._guards[name]
            if tensor.dtype != torch_dtype(guard.dtype) or tuple(tensor.shape) != guard.shape:
                return f"input {name} is {tensor.dtype} {tuple(tensor.shape)}, not {guard.dtype} {guard.shape}"
            if tensor.device.type != "cpu" or _strides(tensor) != _strides_of(guard.shape, guard.strides):
                return f"input {name} has other strides or lies on another device than the program was captured with"
        return None

    def _structure(self, arguments: tuple[Any, ...]) -> pytree.TreeSpec | None:
        """The containers of the result. Found once by a call of the reference; None if it holds more than tensors."""
        _, key = pytree.tree_flatten(arguments)
        text = str(key)
        if text not in self._structures:
            with torch.no_grad():
                state = {name: tensor.clone() for name, tensor in self.reference.state_dict().items()}
                result = torch.func.functional_call(self.reference, state, arguments)
            leaves, structure = pytree.tree_flatten(result)
            if len(leaves) != len(self._outputs) or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
                return None
            self._structures[text] = structure
        return self._structures[text]

    def _state(self) -> dict[str, torch.Tensor] | None:
        state = {name: getattr(owner, attribute) for name, owner, attribute in self._owners}
        for name, tensor in state.items():
            spec = self._state_specs[name]
            if (
                not isinstance(tensor, torch.Tensor)
                or tensor.dtype != torch_dtype(spec.dtype)
                or tuple(tensor.shape) != spec.shape
                or tensor.device.type != "cpu"
                or _strides(tensor) != _strides_of(spec.shape, spec.strides)
            ):
                self._warn(f"the weight {name} has changed its type, shape, strides or device")
                return None
        return state

    def _bind(self, state: dict[str, torch.Tensor]) -> None:
        versions = tuple((tensor.data_ptr(), _version(tensor)) for tensor in state.values())
        if versions != self._bound:
            self._program.bind({**{name: tensor.detach() for name, tensor in state.items()}, **self._constants})
            self._bound = versions

    def _warn(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f"modelblaster: running the reference: {reason}", stacklevel=3)


def _owners(module: nn.Module, names: Sequence[str]) -> list[tuple[str, nn.Module, str]]:
    found = []
    for name in names:
        path, _, attribute = name.rpartition(".")
        found.append((name, module.get_submodule(path), attribute))
    return found


def _version(tensor: torch.Tensor) -> int:
    """Counts writes to a tensor; tensors made in inference mode are not counted by torch."""
    return 0 if tensor.is_inference() else tensor._version


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    return _strides_of(tuple(tensor.shape), tensor.stride())


def _strides_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides that matter: those of axes longer than one."""
    return tuple(stride for size, stride in zip(shape, strides, strict=True) if size > 1)
