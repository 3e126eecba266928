"""Reading a functional torch.fx graph of ATen calls as a plan."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from modelblaster.program.library import refusal
from modelblaster.records.plan import Attribute, Buffer, Copy, Library, Plan, Ref, Role
from modelblaster.records.tensor import DType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.fx import Graph, Node

    from modelblaster.records.plan import Argument, Step


class Uncaptured(Exception):
    """A program that cannot be written as a plan; the message is one clear line."""


class GraphReader:
    """One pass over a graph. `parameters` maps placeholder names to qualified state names."""

    def __init__(self, graph: Graph, *, parameters: Mapping[str, str]) -> None:
        self._nodes: list[Node] = list(graph.nodes)
        self._parameters = parameters
        taken = set(parameters.values())
        self._names: dict[Node, str] = {}
        for node in self._nodes:
            name = parameters.get(node.name) or (f"{node.name}_" if node.name in taken else node.name)
            self._names[node] = name

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensor inputs, in order."""
        return tuple(self._names[node] for node in self._nodes if self._is_input(node))

    def plan(self, mutations: Sequence[str | None]) -> tuple[Plan, tuple[str, ...]]:
        """The plan and the names of the program's results.

        `mutations` has for each result of the graph the state that it overwrites, or None for a program's result.

        Raises:
            Uncaptured: a node that no plan can hold.
        """
        steps = [self._step(node) for node in self._nodes if self._is_call(node)]
        results, copies, roles = self._results(mutations)
        roles.update({self._names[node]: Role.INPUT for node in self._nodes if self._is_input(node)})
        buffers = [self._buffer(node, roles) for node in self._nodes if self._is_tensor(node)]
        buffers += [self._copied(copy, buffers) for copy in copies if copy.destination not in self._parameters.values()]
        order = {Role.INPUT: 0, Role.PARAMETER: 1, Role.MUTATED: 1}
        buffers.sort(key=lambda buffer: order.get(buffer.role, 2))
        plan_steps: tuple[Step, ...] = (*steps, *copies)
        return Plan(buffers=tuple(buffers), steps=plan_steps), results

    def _results(self, mutations: Sequence[str | None]) -> tuple[tuple[str, ...], list[Copy], dict[str, Role]]:
        """Every result is a buffer of its own: inputs, state and repeated results are copied."""
        (returned,) = next(node for node in self._nodes if node.op == "output").args
        assert isinstance(returned, (tuple, list))
        roles = dict.fromkeys(self._parameters.values(), Role.PARAMETER)
        results: list[str] = []
        copies: list[Copy] = []
        for index, (node, state) in enumerate(zip(returned, mutations, strict=True)):
            if not hasattr(node, "op") or not self._is_tensor(node):
                raise Uncaptured("a result that is no tensor")
            name = self._names[node]
            if state is not None:
                roles[state] = Role.MUTATED
                copies.append(Copy(source=name, destination=state))
            elif node.op == "placeholder" or name in roles:
                copies.append(Copy(source=name, destination=f"result_{index}"))
                results.append(f"result_{index}")
            else:
                roles[name] = Role.OUTPUT
                results.append(name)
        return tuple(results), copies, roles

    def _step(self, node: Node) -> Library:
        if not isinstance(node.target, torch._ops.OpOverload):
            raise Uncaptured(f"{node.target} is no ATen operator")
        step = Library(
            overload=str(node.target),
            arguments=tuple(self._argument(value) for value in node.args),
            keywords=tuple((name, self._argument(value)) for name, value in node.kwargs.items()),
            outputs=self._outputs(node),
        )
        reason = refusal(step)
        if reason is not None:
            raise Uncaptured(reason)
        return step

    def _outputs(self, node: Node) -> tuple[str, ...]:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            return (self._names[node],)
        names = [""] * len(value)
        for user in node.users:
            if user.target is operator.getitem:
                names[int(user.args[1])] = self._names[user]  # type: ignore[arg-type]
        return tuple(names)

    def _argument(self, value: Any) -> Argument:
        if hasattr(value, "op"):
            return Ref(self._names[value])
        if isinstance(value, (tuple, list)):
            return tuple(self._argument(part) for part in value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        return _attribute(value)

    def _buffer(self, node: Node, roles: Mapping[str, Role]) -> Buffer:
        value = node.meta["val"]
        name = self._names[node]
        try:
            dtype = DType(str(value.dtype).removeprefix("torch."))
        except ValueError:
            raise Uncaptured(f"values of type {value.dtype}") from None
        sizes = (*value.shape, *value.stride())
        if any(not isinstance(size, int) for size in sizes):
            raise Uncaptured(f"a shape that depends on the data ({name})")
        return Buffer(name, roles.get(name, Role.SCRATCH), dtype, tuple(value.shape), tuple(value.stride()))

    @staticmethod
    def _copied(copy: Copy, buffers: Sequence[Buffer]) -> Buffer:
        source = next(buffer for buffer in buffers if buffer.name == copy.source)
        return Buffer(copy.destination, Role.OUTPUT, source.dtype, source.shape, source.strides)

    def _is_input(self, node: Node) -> bool:
        return node.op == "placeholder" and node.name not in self._parameters and self._is_tensor(node)

    @staticmethod
    def _is_tensor(node: Node) -> bool:
        return isinstance(node.meta.get("val"), torch.Tensor)

    @staticmethod
    def _is_call(node: Node) -> bool:
        if node.op in ("get_attr", "call_module", "call_method"):
            raise Uncaptured(f"a {node.op} of {node.target}")
        return node.op == "call_function" and node.target is not operator.getitem


def _attribute(value: Any) -> Attribute:
    if isinstance(value, torch.dtype):
        return Attribute("dtype", str(value).removeprefix("torch."))
    if isinstance(value, torch.memory_format):
        return Attribute("memory_format", str(value).removeprefix("torch."))
    if isinstance(value, torch.layout):
        return Attribute("layout", str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return Attribute("device", str(value))
    raise Uncaptured(f"an argument of type {type(value).__name__}")
