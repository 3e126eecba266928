"""A module and example inputs become a plan of library steps: the captured reference.

`torch.export` first; where it refuses, `torch.fx` tracing over fake tensors; where that refuses too, `Uncaptured`
says why in one line and the reference stays as it is. Recurrences, attention and norms are kept whole, since their
decompositions unroll or hide what they are.
"""

from __future__ import annotations

import io
import logging
import warnings
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from modelblaster.program.graph import GraphReader, Uncaptured
from modelblaster.program.library import LibraryError, interpret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modelblaster.records.plan import Plan

_KEPT_WHOLE = frozenset(
    {"lstm", "gru", "rnn_tanh", "rnn_relu", "scaled_dot_product_attention", "layer_norm", "group_norm"}
)


@dataclass(frozen=True, slots=True)
class Captured:
    """The reference as a plan.

    `inputs` are the names of the plan's input buffers in the order of the flattened tensor arguments, `outputs` those
    of its results in the order of the flattened result; `constants` are the tensors that the program holds outside
    its state (they are parameters of the plan). `method` is `torch.export` or `torch.fx`.
    """

    plan: Plan
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, torch.Tensor]
    method: str
    arguments: str = ""
    training: tuple[bool, ...] = ()


def state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers, non-persistent ones too, by qualified name."""
    return {name: tensor.detach() for name, tensor in (*module.named_parameters(), *module.named_buffers())}


def tensor_leaves(value: Any) -> list[torch.Tensor]:
    """The tensors of nested containers, in torch's pytree order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def form_of(value: Any) -> str:
    """The containers of a call's arguments, and every value in them that is no tensor, as text.

    Two calls of equal form and equal tensors are the same call.
    """
    if isinstance(value, torch.Tensor):
        return "T"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{form_of(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__qualname__}[" + ",".join(form_of(part) for part in value) + "]"
    return f"{type(value).__qualname__} {value!r}"


def modes_of(module: torch.nn.Module) -> tuple[bool, ...]:
    """Whether each module trains, in the order of `modules()`."""
    return tuple(part.training for part in module.modules())


def capture(module: torch.nn.Module, inputs: Sequence[Any]) -> Captured:
    """The plan of a module that is in the mode it is to be captured in.

    Raises:
        Uncaptured: no tracer can follow the program, or its trace computes something else.
    """
    reasons = []
    for method, trace in (("torch.export", _export), ("torch.fx", _trace_fx)):
        try:
            with _quiet():
                captured = trace(module, inputs, method)
                _check(captured, module, inputs)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - tracers raise anything; each reason is kept
            reasons.append(f"{method}: {_first_line(error)}")
        else:
            return replace(captured, arguments=form_of(tuple(inputs)), training=modes_of(module))
    raise Uncaptured("; ".join(reasons))


def _decompositions() -> dict[Any, Callable[..., Any]]:
    table = torch.export.default_decompositions()
    for overload in [key for key in table if key._schema.name.partition("::")[2] in _KEPT_WHOLE]:
        del table[overload]
    return dict(table)


def _export(module: torch.nn.Module, inputs: Sequence[Any], method: str) -> Captured:
    program = torch.export.export(module, tuple(inputs), strict=False).run_decompositions(_decompositions())
    signature = program.graph_signature
    names: dict[str, str] = {}
    constants: dict[str, torch.Tensor] = {}
    for spec in signature.input_specs:
        if spec.kind is InputKind.CONSTANT_TENSOR:
            names[spec.arg.name] = spec.target
            constants[spec.target] = program.constants[spec.target].detach()
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            names[spec.arg.name] = spec.target
        elif spec.kind is not InputKind.USER_INPUT:
            raise Uncaptured(f"the program takes a {spec.kind.name.lower()}")
    mutated = {}
    for spec in signature.output_specs:
        if spec.kind is OutputKind.BUFFER_MUTATION:
            mutated[spec.arg.name] = spec.target
        elif spec.kind is not OutputKind.USER_OUTPUT:
            raise Uncaptured(f"the program has an effect of kind {spec.kind.name.lower()}")
    reader = GraphReader(program.graph, parameters=names)
    targets = [mutated.get(spec.arg.name) if spec.kind is OutputKind.BUFFER_MUTATION else None
               for spec in signature.output_specs]  # fmt: skip
    plan, outputs = reader.plan(targets)
    return Captured(plan, reader.inputs, outputs, constants, method)


def _trace_fx(module: torch.nn.Module, inputs: Sequence[Any], method: str) -> Captured:
    """Traces what the program dispatches. State that it overwrites and tensors it holds elsewhere are refused."""
    from torch.fx.experimental.proxy_tensor import make_fx

    state = state_of(module)

    def function(tensors: dict[str, torch.Tensor], arguments: Sequence[Any]) -> list[torch.Tensor]:
        return tensor_leaves(torch.func.functional_call(module, tensors, tuple(arguments)))

    with torch.no_grad():
        traced = make_fx(
            torch.func.functionalize(function), decomposition_table=_decompositions(), tracing_mode="fake"
        )(state, list(inputs))
    placeholders = [node.name for node in traced.graph.nodes if node.op == "placeholder"]
    reader = GraphReader(traced.graph, parameters=dict(zip(placeholders, state, strict=False)))
    results = next(node for node in traced.graph.nodes if node.op == "output").args[0]
    plan, outputs = reader.plan([None] * len(results))
    return Captured(plan, reader.inputs, outputs, {}, method)


def _check(captured: Captured, module: torch.nn.Module, inputs: Sequence[Any]) -> None:
    """A trace may silently burn in a branch or a random draw: it must reproduce the module."""
    tensors = dict(zip(captured.inputs, tensor_leaves(inputs), strict=True))
    state = {name: tensor.clone() for name, tensor in state_of(module).items()}
    with torch.no_grad():
        results = interpret(captured.plan, {**state, **captured.constants, **tensors})
        again = {name: tensor.clone() for name, tensor in state.items()}
        expected = tensor_leaves(torch.func.functional_call(module, state, tuple(inputs)))
        repeated = tensor_leaves(torch.func.functional_call(module, again, tuple(inputs)))
    if not all(_agree(one, other) for one, other in zip(expected, repeated, strict=True)):
        raise Uncaptured("a second call gives another result: the program draws at random or keeps state of its own")
    if len(expected) != len(captured.outputs):
        raise Uncaptured(f"the trace has {len(captured.outputs)} results, the program {len(expected)}")
    for name, value in zip(captured.outputs, expected, strict=True):
        result = results[name]
        if result.shape != value.shape or result.dtype != value.dtype:
            raise Uncaptured(f"the trace returns {tuple(result.shape)}, the program {tuple(value.shape)}")
        if not _agree(result, value):
            raise Uncaptured("the trace computes something else than the program")


def _agree(value: torch.Tensor, other: torch.Tensor) -> bool:
    return value.shape == other.shape and torch.allclose(
        value, other, rtol=1e-3, atol=1e-3 * _scale(other), equal_nan=True
    )


def _scale(value: torch.Tensor) -> float:
    finite = value[torch.isfinite(value)] if value.is_floating_point() else value.new_zeros(0)
    return float(finite.abs().mean()) if finite.numel() else 1.0


@contextmanager
def _quiet() -> Iterator[None]:
    """Tracers warn about what the check afterwards decides."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _first_line(error: BaseException) -> str:
    if isinstance(error, (Uncaptured, LibraryError)):
        return str(error)
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:160] if text else ''}"
