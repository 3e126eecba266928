"""What a program has to do at least, counted on shapes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from modelblaster.program.library import interpret, torch_dtype
from modelblaster.program.slots import specs_of
from modelblaster.records.plan import Role
from modelblaster.records.profile import Work

if TYPE_CHECKING:
    from modelblaster.records.plan import Plan


def work_of(plan: Plan) -> Work:
    """Bytes of inputs, parameters and outputs moved once, and the operations of contractions (two for each product)."""
    border = specs_of(plan.named(Role.INPUT, Role.PARAMETER, Role.MUTATED, Role.OUTPUT))
    given = specs_of(plan.named(Role.INPUT, Role.PARAMETER, Role.MUTATED))
    with FakeTensorMode(), FlopCounterMode(display=False) as counter, torch.no_grad():
        interpret(plan, {
            name: torch.empty_strided(spec.shape, spec.strides, dtype=torch_dtype(spec.dtype))
            for name, spec in given.items()
        })  # fmt: skip
    return Work(bytes_moved=sum(spec.nbytes for spec in border.values()), flops=counter.get_total_flops())
