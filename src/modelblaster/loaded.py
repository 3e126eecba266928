"""An artifact as a drop-in module.

Within its guards (the form of the call, types, shapes, strides, modes, no gradients wanted) a call runs the plan;
outside them it runs the reference, which the module holds. The reference's weights are used as they are: assigning or
loading others is seen at the next call. Attributes that are neither tensors nor modules are part of the program as it
was captured.
"""

from __future__ import annotations

import os
import threading
import warnings
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch.utils import _pytree as pytree

from modelblaster.program.capture import form_of, modes_of
from modelblaster.program.library import torch_dtype
from modelblaster.program.slots import specs_of
from modelblaster.records.plan import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from modelblaster.backends.interface import InProcess
    from modelblaster.records.manifest import Border
    from modelblaster.records.plan import Plan
    from modelblaster.records.tensor import TensorSpec

# From a warning up to who called the module, over two frames of torch.
_CALLER = 5
_PLAIN = (torch.Tensor, nn.Parameter)


class LoadedModule(nn.Module):
    """The optimized program. `reference` is the original module and owns the weights.

    `reload` makes such a module of another reference: copies and pickles go through it. Calls in several threads take
    turns; a forked child runs the reference, since the threads of the plan stay in its parent.
    """

    def __init__(
        self,
        reference: nn.Module,
        plan: Plan,
        border: Border,
        constants: Mapping[str, torch.Tensor],
        program: InProcess,
        reload: Callable[[nn.Module], LoadedModule],
    ) -> None:
        super().__init__()
        # The same registries, so that names in a state dict, `to` and an optimizer see the reference and nothing else.
        self.__dict__["reference"] = reference
        self._parameters, self._buffers, self._modules = reference._parameters, reference._buffers, reference._modules
        self._non_persistent_buffers_set = reference._non_persistent_buffers_set
        self._border = border
        self._program = program
        self._reload = reload
        self._guards = specs_of(plan.named(Role.INPUT))
        self._state_specs = specs_of(plan.named(Role.PARAMETER, Role.MUTATED))
        self._owners = _owners(reference, self._state_specs)
        self._constants = {name: tensor for name, tensor in constants.items() if name not in self._owners}
        self._bound: tuple[tuple[int, int], ...] | None = None
        self._structure: pytree.TreeSpec | None = None
        self._warned: set[str] = set()
        self._lock = threading.Lock()
        self._process = os.getpid()

    def train(self, mode: bool = True) -> LoadedModule:
        """Set the reference's mode; in another one than it was captured in, the plan is not used."""
        super().train(mode)
        self._original.training = mode
        return self

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """What the reference returns for these arguments."""
        reason = "keyword arguments" if keywords else self._refusal(arguments)
        if reason is not None:
            self._warn(reason)
            return self._original(*arguments, **keywords)
        tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
        with self._lock, torch.no_grad():
            structure = self._results_in(arguments)
            self._bind()
            results = self._program(dict(zip(self._border.inputs, tensors, strict=True)))
        return pytree.tree_unflatten([results[name] for name in self._border.outputs], structure)

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        """A copy is loaded anew over a copy of the reference."""
        return self._reload, (self._original,)

    @property
    def _original(self) -> nn.Module:
        return cast("nn.Module", self.__dict__["reference"])

    def _refusal(self, arguments: tuple[Any, ...]) -> str | None:
        """Why this call is outside the guards, or None."""
        if os.getpid() != self._process:
            return "this process was forked from the one that loaded it"
        if form_of(arguments) != self._border.arguments:
            return "the arguments differ in form, or in a value that is no tensor, from those it was captured with"
        if modes_of(self._original) != self._border.training:
            return "it was captured in another mode (train or eval)"
        tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*tensors, *self._original.parameters())):
            return "gradients are wanted; call it under torch.no_grad() or torch.inference_mode()"
        named = (*zip(self._border.inputs, tensors, strict=True),)
        for name, tensor in named:
            problem = _difference(tensor, self._guards[name])
            if problem is not None:
                return f"input {name} {problem}"
        for name, (owner, attribute) in self._owners.items():
            problem = _difference(getattr(owner, attribute, None), self._state_specs[name])
            if problem is not None:
                return f"the weight {name} {problem}"
        return None

    def _results_in(self, arguments: tuple[Any, ...]) -> pytree.TreeSpec:
        """The containers of the result, found once by a call of the reference on copies of its state."""
        if self._structure is None:
            state = {name: tensor.clone() for name, tensor in self._original.state_dict().items()}
            result = torch.func.functional_call(self._original, state, arguments)
            self._structure = pytree.tree_structure(result)
        return self._structure

    def _bind(self) -> None:
        state = {name: getattr(owner, attribute) for name, (owner, attribute) in self._owners.items()}
        versions = tuple((tensor.data_ptr(), _version(tensor)) for tensor in state.values())
        if versions != self._bound:
            self._program.bind({**{name: tensor.detach() for name, tensor in state.items()}, **self._constants})
            self._bound = versions

    def _warn(self, reason: str) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            warnings.warn(f"modelblaster: running the reference: {reason}", stacklevel=_CALLER)


def _owners(module: nn.Module, specs: Mapping[str, TensorSpec]) -> dict[str, tuple[nn.Module, str]]:
    """For each state of the plan that the module holds: where. Tensors made in `forward` have no place."""
    found = {}
    for name in specs:
        path, _, attribute = name.rpartition(".")
        try:
            owner = module.get_submodule(path)
        except AttributeError:
            continue
        if isinstance(getattr(owner, attribute, None), torch.Tensor):
            found[name] = (owner, attribute)
    return found


def _difference(tensor: object, spec: TensorSpec) -> str | None:
    """Why kernels cannot read a tensor's memory as what was captured, or None."""
    if type(tensor) not in _PLAIN or torch._C._functorch.is_functorch_wrapped_tensor(cast("torch.Tensor", tensor)):
        return f"is a {type(tensor).__name__} that is no plain tensor"
    plain = cast("torch.Tensor", tensor)
    if plain.device.type != "cpu" or plain.layout != torch.strided or plain.is_neg() or plain.is_conj():
        return "lies on another device, or is a lazy view"
    if plain.dtype != torch_dtype(spec.dtype) or tuple(plain.shape) != spec.shape:
        return f"is {plain.dtype} {tuple(plain.shape)}, not {spec.dtype.value} {spec.shape}"
    if _strides(plain.shape, plain.stride()) != _strides(spec.shape, spec.strides):
        return f"has the strides {plain.stride()}, not {spec.strides}"
    return None


def _version(tensor: torch.Tensor) -> int:
    """Counts writes to a tensor; tensors made in inference mode are not counted by torch."""
    return 0 if tensor.is_inference() else tensor._version


def _strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides that matter: those of axes longer than one."""
    return tuple(stride for size, stride in zip(shape, strides, strict=True) if size > 1)
