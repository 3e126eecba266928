"""The fusion rule: a nest grows by one library step at a time, or refuses it and stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelblaster.kernels.graph import Refused
from modelblaster.kernels.ir import Axis, Nest, Store
from modelblaster.kernels.layout import compacted, normalized
from modelblaster.kernels.operators import RULES
from modelblaster.kernels.rules.scope import Scope
from modelblaster.kernels.space import Outside, Space

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelblaster.kernels.space import Dims
    from modelblaster.records.plan import Library
    from modelblaster.records.tensor import TensorSpec


class NestBuilder:
    """Grows one nest. Whether the order of steps is a valid one (convexity) is the caller's business.

    Fused are maps with broadcasting and reductions over one set of axes, with views that only rename. Refused are a
    larger domain, a second set of reduced axes, data movement, operators without a rule, and whatever would change
    the result.
    """

    def __init__(self, specs: Mapping[str, TensorSpec]) -> None:
        self._specs = specs
        self._space = Space()

    def try_add(self, step: Library) -> bool:
        """Add a step; False, and nothing has changed, if it does not fit."""
        rule = RULES.get(step.overload)
        if rule is None:
            return False
        trial = self._space.copy()
        try:
            rule(Scope(trial, step, self._specs))
        except Refused:
            return False
        self._space = trial
        return True

    def finish(self, outputs: Sequence[str]) -> Nest:
        """The nest that computes these tensors, each a result of an added step.

        Raises:
            Refused: an output is a view of an input that lies in no place of the domain.
            KeyError: an output is no result of an added step.
        """
        space = self._space.copy()
        stores = [self._store(space, name) for name in outputs]
        reduced = space.reduced or frozenset()
        axes = tuple(Axis(size, reduced=k in reduced) for k, size in enumerate(space.sizes))
        nest = Nest(axes, tuple(space.graph.nodes), tuple(stores))
        return normalized(compacted(nest))

    def _store(self, space: Space, name: str) -> Store:
        value = space.values[name]
        spec = self._specs[name]
        if isinstance(value, Outside) or value.dims is None:
            fixed = [value] if isinstance(value, Outside) else []
            dims = space.unify(value.shape, fixed)
            number = space.term(value, dims).number
        else:
            dims, number = value.dims, value.number
        return Store(name, spec.dtype, number, _strides(space, dims, spec))


def _strides(space: Space, dims: Dims, spec: TensorSpec) -> tuple[int, ...]:
    strides = [0] * len(space.sizes)
    for axes, stride in zip(dims, spec.strides, strict=True):
        step = stride
        for axis in reversed(axes):
            strides[axis] = step
            step *= space.sizes[axis]
    return tuple(strides)
