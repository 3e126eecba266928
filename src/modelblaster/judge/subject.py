"""What candidates are compared with: a slot's reference plan or a whole module, and how its inputs are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelblaster.records.plan import Ref, Role
from modelblaster.records.task import Mode

if TYPE_CHECKING:
    import torch

    from modelblaster.records.plan import Plan
    from modelblaster.records.profile import Work
    from modelblaster.records.tensor import TensorSpec

Shipped = Callable[[int], Mapping[str, "torch.Tensor"]]


@dataclass(frozen=True, slots=True)
class Subject:
    """One reference and its border.

    `shipped(seed)` gives a value for every input, parameter and mutated buffer, as the problem makes them; parameters
    may be equal for every seed.

    The reference is `module` where there is one, called with `arguments` (a pytree in which `Ref(name)` stands for an
    input; by default the inputs in order), else `plan`. `returns` names the tensors that the module returns, in
    pytree order (a name may come twice; by default the outputs in order). A `plan` beside a module is the captured
    program: it serves where the module cannot run in float64 and to judge index outputs.

    `frozen` names parameters whose shipped values are part of the program and are never redrawn. `work` is what the
    subject must do at least; without it the gate of physics stays open.
    """

    key: str
    inputs: tuple[TensorSpec, ...]
    parameters: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    shipped: Shipped
    mutated: tuple[TensorSpec, ...] = ()
    plan: Plan | None = None
    module: torch.nn.Module | None = None
    arguments: tuple[object, ...] | None = None
    returns: tuple[str, ...] | None = None
    mode: Mode = Mode.EVAL
    frozen: frozenset[str] = frozenset()
    work: Work | None = None

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        """Outputs and mutated buffers: everything that a candidate has to get right."""
        return self.outputs + self.mutated

    @property
    def state(self) -> tuple[TensorSpec, ...]:
        """Parameters and mutated buffers: everything that exists once for all sets of inputs."""
        return self.parameters + self.mutated

    @property
    def set_bytes(self) -> int:
        """Bytes of one set of inputs and outputs."""
        return sum(spec.nbytes for spec in self.inputs + self.outputs)

    def call_arguments(self) -> tuple[object, ...]:
        """The module's positional arguments, with `Ref` in the place of inputs."""
        return self.arguments if self.arguments is not None else tuple(Ref(spec.name) for spec in self.inputs)

    def returned_names(self) -> tuple[str, ...]:
        """Names of the tensors that the module returns, in pytree order."""
        return self.returns if self.returns is not None else tuple(spec.name for spec in self.outputs)

    def border_problem(self, plan: Plan) -> str | None:
        """Why a candidate's plan is not an implementation of this subject, or None if its border is the same."""
        for role, specs in (
            (Role.INPUT, self.inputs),
            (Role.PARAMETER, self.parameters),
            (Role.OUTPUT, self.outputs),
            (Role.MUTATED, self.mutated),
        ):
            wanted = {spec.name: (spec.dtype, spec.shape) for spec in specs}
            found = {buffer.name: (buffer.dtype, buffer.shape) for buffer in plan.named(role)}
            for name, (dtype, shape) in found.items():
                if name not in wanted:
                    return f"the plan has a buffer {name!r} as {role.value}, the reference does not"
                if wanted[name] != (dtype, tuple(shape)) and all(isinstance(size, int) for size in shape):
                    (right, sizes) = wanted[name]
                    return f"{role.value} {name!r} is {dtype.value} {tuple(shape)}, not {right.value} {sizes}"
            missing = wanted.keys() - found.keys()
            if missing and role in (Role.OUTPUT, Role.MUTATED):
                return f"the plan lacks the {role.value} {sorted(missing)[0]!r}"
        return None
