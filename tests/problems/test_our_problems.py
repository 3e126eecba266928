from __future__ import annotations

from pathlib import Path

import pytest
import torch

from modelblaster.task.arguments import tensors_in
from modelblaster.task.problem import load_problem

FOLDER = Path(__file__).parents[2] / "problems"
FILES = sorted(FOLDER.glob("*.py"))


def test_there_are_twelve() -> None:
    assert len(FILES) == 12


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_problem_is_worth_solving(path: Path) -> None:
    """It loads, runs, is finite, not constant, not degenerate, small enough and the same for the same seed."""
    problem = load_problem(str(path))
    assert (problem.source.text.split('"""')[1]).strip().endswith(".")
    module, inputs = problem.module(), problem.inputs(1)
    with torch.no_grad():
        outputs = list(tensors_in(module(*inputs)))
        other = list(tensors_in(module(*problem.inputs(2))))
        again = list(tensors_in(problem.module()(*problem.inputs(1))))
    tensors = [*tensors_in(inputs), *module.parameters(), *outputs]
    assert sum(tensor.nbytes for tensor in tensors) < 200e6
    for output, repeated, different in zip(outputs, again, other, strict=True):
        assert output.isfinite().all()
        assert output.numel() == 1 or output.double().std() > 0
        assert torch.allclose(output, repeated)
        assert not torch.equal(output, different)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_input_matters(path: Path) -> None:
    problem = load_problem(str(path))
    module, inputs = problem.module(), problem.inputs(1)
    with torch.no_grad():
        expected = list(tensors_in(module(*inputs)))
        for position, fresh in enumerate(problem.inputs(2)):
            changed = [*inputs[:position], fresh, *inputs[position + 1 :]]
            results = zip(expected, tensors_in(module(*changed)), strict=True)
            assert any(not torch.allclose(before, after) for before, after in results), position
