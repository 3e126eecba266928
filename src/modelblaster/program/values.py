"""Values inside a program: what a slot's inputs are when the program runs on shipped inputs."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import torch

from modelblaster.program.library import interpret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modelblaster.records.plan import Plan

_KEPT_BYTES = 1 << 30


class ProgramValues:
    """Runs a captured program as far as values are asked for; the last answers are kept while they are small."""

    def __init__(self, plan: Plan, shipped: Callable[[int], Mapping[str, torch.Tensor]]) -> None:
        self._plan = plan
        self._shipped = shipped
        self._kept: OrderedDict[tuple[int, tuple[str, ...]], Mapping[str, torch.Tensor]] = OrderedDict()

    def __call__(self, names: tuple[str, ...], seed: int) -> Mapping[str, torch.Tensor]:
        """The buffers of these names when inputs and parameters are those shipped with `seed`."""
        if (seed, names) not in self._kept:
            with torch.no_grad():
                self._kept[seed, names] = interpret(self._plan, self._shipped(seed), results=names)
            while len(self._kept) > 1 and self._held() > _KEPT_BYTES:
                self._kept.popitem(last=False)
        return self._kept[seed, names]

    def _held(self) -> int:
        return sum(tensor.nbytes for values in self._kept.values() for tensor in values.values())
