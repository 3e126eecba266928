"""Capture: what becomes a plan, what is refused, and that the plan computes what the program does."""

import pytest
import torch
from torch import nn

from modelblaster.program.capture import capture, state_of, tensor_leaves
from modelblaster.program.graph import Uncaptured
from modelblaster.program.library import LibraryError, call, interpret, refusal
from modelblaster.records.codec import from_json, to_json
from modelblaster.records.plan import Attribute, Library, Plan, Ref, Role


class Everything(nn.Module):
    """Parameters, both kinds of buffers, attribute tensors, a recurrence, several results, one passed through."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.register_buffer("table", torch.arange(8.0), persistent=False)
        self.mask = torch.ones(8, 8)

    def forward(self, x):
        y = self.norm(self.linear(x))
        z, (hidden, _) = self.lstm(y[:, None, :])
        scaled = torch.softmax(z.transpose(1, 2), 1) + self.table[None, :, None]
        return {"a": scaled, "b": hidden.view(-1), "c": x + self.mask.sum(), "e": torch.max(y, 1), "x": x}


def reproduce(module, inputs):
    captured = capture(module, inputs)
    state = {name: tensor.clone() for name, tensor in state_of(module).items()}
    tensors = dict(zip(captured.inputs, tensor_leaves(inputs), strict=True))
    results = interpret(captured.plan, {**state, **captured.constants, **tensors})
    expected = tensor_leaves(torch.func.functional_call(module, state, tuple(inputs)))
    return captured, results, expected, state


@pytest.mark.parametrize("is_training", [False, True])
def test_the_plan_reproduces_the_program(is_training):
    module = Everything().train(is_training)
    with torch.no_grad():
        captured, results, expected, state = reproduce(module, [torch.randn(4, 8)])
    for name, value in zip(captured.outputs, expected, strict=True):
        torch.testing.assert_close(results[name], value)
    mutated = {buffer.name for buffer in captured.plan.named(Role.MUTATED)}
    assert mutated == ({"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"} if is_training else set())
    for name in mutated:
        torch.testing.assert_close(results[name], state[name])


def test_capturing_leaves_the_module_as_it_was():
    module = Everything().train()
    before = {name: tensor.clone() for name, tensor in state_of(module).items()}
    capture(module, [torch.randn(4, 8)])
    for name, tensor in state_of(module).items():
        assert torch.equal(tensor, before[name]), name


def test_recurrences_attention_and_norms_stay_whole():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    overloads = {step.overload for step in capture(layer, [torch.randn(2, 5, 16)]).plan.steps if step.kind == "library"}
    assert "aten.scaled_dot_product_attention.default" in overloads
    assert "aten.layer_norm.default" in overloads
    lstm = capture(nn.LSTM(4, 4, num_layers=2), [torch.randn(512, 1, 4)])
    assert len(lstm.plan.steps) < 10


def test_a_plan_survives_json():
    plan = capture(Everything().eval(), [torch.randn(4, 8)]).plan
    assert from_json(Plan, to_json(plan)) == plan


def test_the_oracle_is_float64_even_where_the_program_names_a_type():
    class Cast(nn.Module):
        def forward(self, x):
            return torch.full((3,), 0.1, dtype=torch.float32) + x.to(torch.float16).to(torch.float32)

    captured = capture(Cast(), [torch.randn(3)])
    x = torch.rand(3, dtype=torch.float64)
    (result,) = interpret(captured.plan, {captured.inputs[0]: x}, as_double=True).values()
    torch.testing.assert_close(result, x + 0.1, rtol=1e-15, atol=0)


def branches(x):
    return x if x.sum() > 0 else x + 1


def drops(x):
    return nn.functional.dropout(x, 0.5, training=True)


def depends_on_data(x):
    return x[x > 0]


@pytest.mark.parametrize("function", [branches, drops, depends_on_data])
def test_what_is_no_function_of_static_shapes_is_refused_in_one_line(function, capfd):
    class Wrapped(nn.Module):
        def forward(self, x):
            return function(x)

    with pytest.raises(Uncaptured) as refused:
        capture(Wrapped(), [torch.randn(4, 8)])
    assert "\n" not in str(refused.value)
    assert capfd.readouterr() == ("", "")


def test_the_fx_tracer_takes_over_where_export_refuses(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("refused")

    monkeypatch.setattr(torch.export, "export", refuse)
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()).eval()
    with torch.no_grad():
        captured, results, expected, _ = reproduce(module, [torch.randn(5, 4)])
    assert captured.method == "torch.fx"
    torch.testing.assert_close(results[captured.outputs[0]], expected[0])


@pytest.mark.parametrize(
    "step",
    [
        Library("aten.relu_.default", (Ref("x"),), (), ("y",)),
        Library("aten.bernoulli.p", (Ref("x"), 0.5), (), ("y",)),
        Library("aten.nothing.default", (Ref("x"),), (), ("y",)),
        Library("prims.add.default", (Ref("x"),), (), ("y",)),
        Library("os.system.default", ("true",), (), ("y",)),
    ],
)
def test_a_plan_may_call_only_functions_of_aten(step):
    assert refusal(step) is not None
    with pytest.raises(LibraryError):
        call(step, {"x": torch.ones(2)})


def test_a_failing_call_names_its_operator():
    step = Library("aten.view.default", (Ref("x"), (3, 3)), (("dtype", Attribute("dtype", "float32")),), ("y",))
    with pytest.raises(LibraryError, match=r"aten\.view\.default"):
        call(step, {"x": torch.ones(2)})
