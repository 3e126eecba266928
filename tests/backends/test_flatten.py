from __future__ import annotations

import pytest

from modelblaster.backends import registry
from modelblaster.backends.flat import FlatCopy, FlatFill, FlatLaunch, FlatLibrary
from modelblaster.backends.flatten import PlanError, flatten
from modelblaster.errors import BackendError
from modelblaster.records.plan import Buffer, Copy, Fill, Launch, Library, Plan, Ref, Repeat, Role, View
from modelblaster.records.tensor import DType

F32 = DType.FLOAT32
X = Buffer("x", Role.INPUT, F32, (8, 4))
W = Buffer("w", Role.PARAMETER, F32, (4,))
D = Buffer("d", Role.DERIVED, F32, (4,))
S = Buffer("s", Role.SCRATCH, F32, (8, 4))
Y = Buffer("y", Role.OUTPUT, F32, (8, 4))


def launch(reads=("x",), writes=("y",), **changes):
    arguments = tuple(Ref(name) for name in (*reads, *writes))
    fields = {"sizes": (), "range": 8, "grain": 1, "reads": reads, "writes": writes, **changes}
    return Launch("k", fields.pop("arguments", arguments), **fields)


def test_expressions_see_symbols_facts_and_the_repeat_variable():
    step = launch(
        arguments=(Ref("x", "i * n"), Ref("y", "i * n")), sizes=("n", "threads * 2"), range="threads", grain="max(1, i)"
    )
    plan = Plan(
        (Buffer("x", Role.INPUT, F32, ("m", "n")), Y), (Repeat("i", "m // 4", (step,)),), symbols=(("m", 8), ("n", 4))
    )
    first, second = flatten(plan, {"threads": 3}).steps
    assert isinstance(first, FlatLaunch)
    assert isinstance(second, FlatLaunch)
    assert (first.sizes, first.range, first.grain) == ((4, 6), 3, 1)
    assert [address.offset for address in second.arguments] == [16, 16]


def test_views_are_offsets_into_memory_that_exists():
    pool = Buffer("pool", Role.SCRATCH, DType.UINT8, (256,))
    v = Buffer("v", Role.SCRATCH, F32, (2, 4))
    plan = Plan((X, Y, pool, v), (View("v", "pool", 64), Fill("v", 1.0), View("v", "y", 8), Fill("v", 2.0)))
    flat = flatten(plan, {})
    assert [region.name for region in flat.regions] == ["x", "y", "pool"]
    first, second = flat.steps
    assert isinstance(first, FlatFill)
    assert isinstance(second, FlatFill)
    assert (first.target.address.region, first.target.address.offset) == (2, 64)
    assert (second.target.address.region, second.target.address.offset) == (1, 32)


def test_an_output_may_be_a_view():
    plan = Plan((X, Buffer("all", Role.SCRATCH, F32, (16, 4)), Y), (View("y", "all", 32), Copy("x", "y")))
    flat = flatten(plan, {})
    assert flat.results["y"].address.offset == 128
    assert isinstance(flat.steps[0], FlatCopy)


def test_library_steps_say_where_their_tensors_lie():
    plan = Plan((X, Y), (Library("aten.relu.default", (Ref("x"),), (), ("y",)),))
    (step,) = flatten(plan, {}).steps
    assert isinstance(step, FlatLibrary)
    assert step.tensors["x"].address.region == 0
    assert step.tensors["y"].shape == (8, 4)


def test_derived_memory_is_written_by_the_setup():
    setup = (launch(("w",), ("d",)),)
    flat = flatten(Plan((X, W, D, Y), (launch(("x", "d")),), setup=setup), {})
    assert len(flat.setup) == len(flat.steps) == 1


@pytest.mark.parametrize(
    ("buffers", "steps", "setup", "message"),
    [
        ((X, Y), (launch(("x",), ("x",)),), (), "'x' is input memory and may not be written"),
        ((X, W, Y), (launch(writes=("w",)),), (), "'w' is parameter memory"),
        ((X, D, Y), (Fill("d", 0.0),), (), "only the setup may write it"),
        ((X, D, Y), (), (launch(("x",), ("d",)),), "the setup sees parameters only"),
        ((X, D, Y), (), (launch((), ("d",), arguments=(Ref("x"), Ref("d"))),), "the setup sees parameters only"),
        ((X, Y), (launch(("z",)),), (), "no buffer 'z'"),
        ((X, X), (), (), "same name"),
        ((X, Y), (launch(range="k * 2"),), (), "unknown symbol 'k'"),
        ((X, Y), (launch(range="8 // 0"),), (), "division by zero"),
        ((X, Y), (launch(grain=0),), (), "make no sense"),
        ((X, Y), (launch(arguments=(Ref("x", 33),)),), (), "outside the buffer 'x'"),
        ((X, Y), (launch(arguments=(Ref("x", -1),)),), (), "outside the buffer 'x'"),
        ((X, Y), (View("y", "x", 1),), (), "reaches outside"),
        ((X, Y), (Copy("y", "x"),), (), "may not be written"),
        ((X, W, Y), (Copy("w", "y"),), (), "is not"),
        ((X, Y, S), (Fill("s", 0.0), View("s", "y")), (), "used before the view"),
        ((X, Y), (Repeat("i", 2_000_000, (Fill("y", 0.0),)),), (), "over 100000 steps"),
        ((X, Y), (Repeat("i", 2, (Repeat("i", 2, (Fill("y", 0.0),)),)),), (), "already a symbol"),
        ((X, Y, Buffer("b", Role.SCRATCH, F32, (2, -1))), (), (), "do not fit"),
        ((X, Y, Buffer("b", Role.SCRATCH, F32, (2, 2), (1,))), (), (), "do not fit"),
    ],
)
def test_what_a_plan_may_not_do(buffers, steps, setup, message):
    with pytest.raises(PlanError, match=message):
        flatten(Plan(buffers, steps, setup=setup), {})


def test_the_registry_knows_its_backends():
    assert registry.get("cpu").name == "cpu"
    assert registry.default() in registry.names()
    with pytest.raises(BackendError, match="known are: cpu"):
        registry.get("abacus")
