"""What fuses into one nest, what it computes then, and what is refused."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from kernel_harness import border, check_all, fuse, trace

from modelblaster.kernels.builder import NestBuilder
from modelblaster.kernels.graph import Refused

G = torch.Generator().manual_seed(0)
X = torch.randn(4, 6, 35, generator=G)
IMAGE = torch.randn(2, 6, 5, 7, generator=G)
CHANNEL = torch.randn(6, generator=G)
ROW = torch.randn(35, generator=G)
SQUARE = torch.randn(9, 9, generator=G)


def rms_norm(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w


def cross_entropy(x, target):
    return -(torch.log_softmax(x, -1) * target).sum(-1)


def scale_shift(x, c):
    return torch.tanh(x * c.view(1, 6, 1, 1) + c.unsqueeze(-1).unsqueeze(-1)).transpose(1, 2)


def grouped_mean(x):
    y = x.view(4, 2, 3, 35)
    return (y - y.mean((2, 3), keepdim=True)).reshape(4, 6, 35)


def several(x, b):
    h = F.gelu(x + b)
    return h, h.sum(-1), h.amax(-1, keepdim=True) * 2, h > 0


CHAINS = [
    ("bias gelu residual", lambda x, b: F.gelu(x + b) + x, (X, ROW)),
    ("rms norm", rms_norm, (X, ROW)),
    ("cross entropy", cross_entropy, (X, torch.softmax(X, -1))),
    ("scale and shift", scale_shift, (IMAGE, CHANNEL)),
    ("grouped mean", grouped_mean, (X,)),
    ("several outputs", several, (X, ROW)),
    ("softmax then map", lambda x: torch.softmax(x * 0.3, 1) * 2 - 1, (X,)),
    ("normalize", lambda x: x / x.norm(dim=1, keepdim=True).clamp(min=1e-3), (X,)),
    ("mean without keepdim", lambda x: x - x.mean(1).unsqueeze(1), (X,)),
    ("mask chain", lambda x: torch.where((x > 0) & (x < 1), x.exp(), torch.zeros_like(x)).masked_fill(x < -1, 2), (X,)),
    ("gelu layer norm", lambda x, w: F.layer_norm(F.gelu(x), (35,), w) + x, (X, ROW)),
    ("flatten and softmax", lambda x: torch.softmax(x.view(4, 210), 1).view(4, 6, 35), (X,)),
    ("pooled", lambda x: torch.sigmoid(x.mean((2, 3))), (IMAGE,)),
    ("channels last", lambda x: F.relu(x.permute(0, 2, 3, 1)) * 2, (IMAGE,)),
    ("standardize all", lambda x: (x - x.mean()) / x.std(), (X,)),
    ("index used", lambda x: x.argmax(1) + 1, (X,)),
    ("square both ways", lambda x: x.t() + 1, (SQUARE,)),
    ("expand", lambda x: x.mean(1, keepdim=True).expand(4, 6, 35) * x, (X,)),
    ("merge over split", lambda x: x.view(4, 2, 3, 5, 7).sum((1, 2)).view(4, 35).relu(), (X,)),
    ("half store", lambda x: (x * 2).half().float() + 1, (X,)),
    ("gate", lambda x, y: torch.sigmoid(x) * torch.tanh(y), (X, X * 0.5)),
]


def test_chains_compute_what_torch_does():
    check_all(CHAINS, tolerance=4e-6)


def test_views_and_broadcasts_add_no_loops():
    traced = trace(lambda x, b: torch.relu(x.view(24, 35).view(4, 6, 35) + b.view(1, 1, 35)), X, ROW)
    nest = fuse(traced)
    assert [axis.size for axis in nest.axes] == [24, 35]
    assert [axis.size for axis in fuse(trace(torch.relu, X)).axes] == [840]


def test_an_input_that_is_used_twice_is_one_load_and_counted_once():
    nest = fuse(trace(lambda x: torch.softmax(x, 2) * x, X))
    assert nest.inputs == ("args_0_1",) or len(nest.inputs) == 1
    assert nest.work().bytes_moved == 2 * 4 * X.numel()
    assert nest.work().flops > 20 * X.numel()
    assert nest.family == "row_reduction"
    assert fuse(trace(torch.relu, X)).family == "map"


def test_the_bytes_of_broadcast_operands_are_those_of_their_elements():
    work = fuse(trace(lambda x, b: x + b, X, ROW)).work()
    assert work.bytes_moved == 2 * 4 * X.numel() + 4 * 35


REFUSED = {
    "two reductions": lambda x: x.sum(1).sum(1),
    "two sets": lambda x: x - x.sum(1, keepdim=True) - x.sum(2, keepdim=True),
    "growth": lambda x: x.relu().unsqueeze(3) + torch.ones(4, 6, 35, 2),
    "transposed onto itself": lambda x: (y := x[:, :, :6].contiguous().relu()) + y.transpose(1, 2),
    "data movement": lambda x: torch.cat([x, x], 1).relu(),
    "flip": lambda x: x.relu().flip(1),
    "uneven view": lambda x: x.relu().view(8, 105).sum(1).view(2, 4) + x.relu().view(7, 120).sum(1)[0],
    "integer division": lambda x: x.int() // 3,
    "empty": lambda x: x[:0].relu() + 1,
    "scan": lambda x: x.relu().cumsum(1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    assert fuse(trace(REFUSED[name], X)) is None


def test_a_refusal_changes_nothing():
    traced = trace(lambda x: torch.softmax(x.relu(), 2).sum(1), X)
    builder = NestBuilder(traced.specs)
    accepted = [builder.try_add(step) for step in traced.steps]
    assert accepted == [True, True, False]
    kept = traced.steps[1].outputs[0]
    before = builder.finish([kept])
    assert not builder.try_add(traced.steps[2])
    assert builder.finish([kept]) == before
    assert hash(before) == hash(builder.finish([kept]))


def test_an_output_without_a_place_in_the_domain_is_refused():
    traced = trace(lambda x, b: (x.relu(), b.view(5, 7)), X, ROW)
    builder = NestBuilder(traced.specs)
    assert all(builder.try_add(step) for step in traced.steps)
    with pytest.raises(Refused):
        builder.finish(traced.outputs)


def test_only_the_named_outputs_are_stored():
    traced = trace(several, X, ROW)
    builder = NestBuilder(traced.specs)
    assert all(builder.try_add(step) for step in traced.steps)
    nest = builder.finish(traced.outputs[1:2])
    assert nest.outputs == (traced.outputs[1],)
    assert len(border(traced, nest)) == 3
