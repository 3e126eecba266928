"""What the reference process holds: a module or a plan, its parameters, and rings of inputs.

Parameters exist once, inputs once for every set of the ring. A call never leaves a trace: buffers, running statistics
and attributes that a module writes are put back afterwards.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.utils import _pytree as pytree

from modelblaster.program.library import interpret, prepare, reads
from modelblaster.records.plan import Library, Ref, Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from modelblaster.records.plan import Plan


Run = Callable[..., object]
Compiler = Callable[[Run], Run]


class Hosted(Protocol):
    """One subject in the reference process."""

    def settable(self) -> frozenset[str]:
        """Names of parameters that can be given other values."""

    def load(self, index: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy parameters (into the only place) and inputs (into a set of the ring) by name."""

    def eager(self, index: int) -> dict[str, torch.Tensor]:
        """Outputs and mutated buffers of one call."""

    def oracle(self, index: int) -> dict[str, torch.Tensor]:
        """The same in float64."""

    def calls(self, sets: Sequence[int], wrap: Compiler | None) -> list[Callable[[], object]]:
        """A function without arguments for each set, to be timed. `wrap` is a compiler of functions."""

    def untouched(self) -> AbstractContextManager[None]:
        """A context at whose end everything is as it was."""


class HostedPlan:
    """A slot's reference: library steps over named buffers."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._parameters: dict[str, torch.Tensor] = {}
        self._sets: dict[int, dict[str, torch.Tensor]] = {}
        self._inputs = {buffer.name for buffer in plan.named(Role.INPUT)}

    def settable(self) -> frozenset[str]:
        """Every parameter of the plan."""
        return frozenset(buffer.name for buffer in self._plan.named(Role.PARAMETER, Role.MUTATED))

    def load(self, index: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy tensors in by name; names that the plan does not know are ignored."""
        ring = self._sets.setdefault(index, {})
        for name, tensor in tensors.items():
            _keep(ring if name in self._inputs else self._parameters, name, tensor)

    def eager(self, index: int) -> dict[str, torch.Tensor]:
        """Interpret the plan in its own types."""
        return interpret(self._plan, self._tensors(index))

    def oracle(self, index: int) -> dict[str, torch.Tensor]:
        """Interpret the plan in float64."""
        return interpret(self._plan, self._tensors(index), as_double=True)

    def calls(self, sets: Sequence[int], wrap: Compiler | None) -> list[Callable[[], object]]:
        """The plan with its steps resolved before the clock starts."""
        run: Run = _resolved(self._plan)
        if wrap is not None:
            run = wrap(run)
        return [_bound(run, self._tensors(index)) for index in sets]

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Nothing to do: library steps change none of their arguments."""
        yield

    def _tensors(self, index: int) -> dict[str, torch.Tensor]:
        return self._parameters | self._sets[index]


class HostedModule:
    """A whole program, called as its owner calls it.

    `arguments` is a pytree with `Ref` in the place of inputs; `outputs` are the names of the tensors that it returns,
    in pytree order; `mutated` are state names that count as outputs as well. `plan`, where given, is the captured
    program: the oracle when the module itself cannot run in float64.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        arguments: tuple[object, ...],
        outputs: tuple[str, ...],
        mutated: tuple[str, ...],
        *,
        train: bool,
        plan: Plan | None,
    ) -> None:
        self._module = module.train(train).requires_grad_(False)
        self._arguments = arguments
        self._outputs = outputs
        self._mutated = mutated
        self._plan = plan
        self._sets: dict[int, dict[str, torch.Tensor]] = {}
        self._extra: dict[str, torch.Tensor] = {}

    def settable(self) -> frozenset[str]:
        """Parameters and buffers by qualified name."""
        return frozenset(_state(self._module))

    def load(self, index: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write into the module's own state (also seen by flattened weights and ties); the rest are inputs.

        Parameters that are constants of the captured plan only are kept for the plan.
        """
        state = _state(self._module)
        inputs = {leaf.buffer for leaf in pytree.tree_leaves(self._arguments, is_leaf=_is_ref) if _is_ref(leaf)}
        ring = self._sets.setdefault(index, {})
        for name, tensor in tensors.items():
            if name in inputs:
                _keep(ring, name, tensor)
            elif name in state:
                state[name].copy_(tensor)
            else:
                _keep(self._extra, name, tensor)

    def eager(self, index: int) -> dict[str, torch.Tensor]:
        """One call, with everything that it writes put back."""
        with self.untouched():
            return self._named(self._module, self._module(*self._bound(self._sets[index])))

    def oracle(self, index: int) -> dict[str, torch.Tensor]:
        """One call of a copy of the module in float64, or of the captured plan where that fails."""
        try:
            return self._double(index)
        except Exception:
            if self._plan is None:
                raise
            tensors = {**_state(self._module), **self._extra, **self._sets[index]}
            with self.untouched():
                return interpret(self._plan, tensors, as_double=True)

    def calls(self, sets: Sequence[int], wrap: Compiler | None) -> list[Callable[[], object]]:
        """The module's own call."""
        run: Run = self._module if wrap is None else wrap(self._module)
        return [_bound(run, *self._bound(self._sets[index])) for index in sets]

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Put back buffers (their contents and identity) and attributes of every submodule."""
        contents = {name: buffer.clone() for name, buffer in self._module.named_buffers(remove_duplicate=False)}
        owned = [(part, dict(part._buffers), dict(part.__dict__)) for part in self._module.modules()]
        try:
            yield
        finally:
            for part, buffers, attributes in owned:
                part.__dict__.clear()
                part.__dict__.update(attributes)
                part._buffers.clear()
                part._buffers.update(buffers)
            for name, buffer in self._module.named_buffers(remove_duplicate=False):
                buffer.copy_(contents[name])

    def _double(self, index: int) -> dict[str, torch.Tensor]:
        module = copy.deepcopy(self._module).double()
        arguments = self._bound({name: _double(value) for name, value in self._sets[index].items()})
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            result = self._named(module, module(*arguments))
        finally:
            torch.set_default_dtype(before)
        if any(value.is_floating_point() and value.dtype != torch.float64 for value in result.values()):
            raise TypeError("the module returns less than float64 whatever it is given")
        return result

    def _bound(self, tensors: Mapping[str, torch.Tensor]) -> tuple[Any, ...]:
        def value(leaf: object) -> object:
            return tensors[leaf.buffer] if isinstance(leaf, Ref) else leaf

        bound: tuple[Any, ...] = pytree.tree_map(value, self._arguments, is_leaf=_is_ref)
        return bound

    def _named(self, module: torch.nn.Module, result: Any) -> dict[str, torch.Tensor]:
        leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if len(leaves) != len(self._outputs):
            raise ValueError(f"the module returned {len(leaves)} tensors, {len(self._outputs)} were expected")
        state = _state(module)
        written = {name: state[name].clone() for name in self._mutated}
        return dict(zip(self._outputs, leaves, strict=True)) | written


def _is_ref(leaf: object) -> bool:
    return isinstance(leaf, Ref)


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return {**parameters, **dict(module.named_buffers(remove_duplicate=False))}


def _double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _keep(place: dict[str, torch.Tensor], name: str, tensor: torch.Tensor) -> None:
    """Copy into private memory, the same as before where it fits: shared memory would be a handicap in timings."""
    held = place.get(name)
    if held is None or (held.shape, held.dtype, held.stride()) != (tensor.shape, tensor.dtype, tensor.stride()):
        held = place[name] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    held.copy_(tensor)


def _bound(function: Callable[..., object], *arguments: object) -> Callable[[], object]:
    return lambda: function(*arguments)


def _resolved(plan: Plan) -> Callable[[Mapping[str, torch.Tensor]], tuple[torch.Tensor, ...]]:
    """The plan as a function; buffers are let go after their last use, as eager execution does."""
    results = [buffer.name for buffer in plan.named(Role.OUTPUT, Role.MUTATED)]
    steps = [step for step in (*plan.setup, *plan.steps) if isinstance(step, Library)]
    if len(steps) < len(plan.setup) + len(plan.steps):
        return lambda tensors: tuple(interpret(plan, tensors).values())
    last = {name: index for index, step in enumerate(steps) for name in (*reads(step), *step.outputs)}
    keep = set(results)
    prepared = [
        (prepare(step), step.outputs, [n for n, i in last.items() if i == index and n and n not in keep])
        for index, step in enumerate(steps)
    ]

    def run(tensors: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        environment = dict(tensors)
        for call, names, spent in prepared:
            environment.update(zip(names, call(environment), strict=True))  # type: ignore[arg-type]
            for name in spent:
                environment.pop(name, None)
        return tuple(environment[name] for name in results)

    return run
