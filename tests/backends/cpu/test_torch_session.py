"""Plans with library steps: the sandboxed torch process answers as the compiled runner does."""

from pathlib import Path

import pytest
import torch

from modelblaster.backends.cpu import CpuBackend
from modelblaster.backends.cpu.sandbox import Sandbox
from modelblaster.backends.interface import RunFailure
from modelblaster.records.candidate import Source
from modelblaster.records.plan import Buffer, Copy, Launch, Library, Plan, Ref, Role
from modelblaster.records.tensor import DType
from modelblaster.records.verdict import Cause

ROWS, COLUMNS = 64, 48
FLOAT = DType.FLOAT32

KERNEL = """
__attribute__((visibility("default")))
void double_it(void *const *buffers, const long *sizes, long begin, long end, void *scratch) {{
    const float *x = buffers[0];
    float *y = buffers[1];
    (void)sizes; (void)scratch;
    for (long i = begin; i < end; i++) {body}
}}
"""


@pytest.fixture(scope="module", params=["bwrap", "alone"])
def backend(request, tmp_path_factory):
    sandbox = Sandbox(None) if request.param == "alone" else None
    found = CpuBackend(threads=2, home=tmp_path_factory.mktemp("home"), sandbox=sandbox)
    yield found
    found.close()


def plan(*, mutated=False):
    """relu in the library, doubled by a kernel, times a weight in the library; the count of calls is state."""
    shape = (ROWS, COLUMNS)
    buffers = [
        Buffer("x", Role.INPUT, FLOAT, shape),
        Buffer("w", Role.PARAMETER, FLOAT, (COLUMNS, COLUMNS)),
        Buffer("wt", Role.DERIVED, FLOAT, (COLUMNS, COLUMNS), (1, COLUMNS)),
        Buffer("r", Role.SCRATCH, FLOAT, shape),
        Buffer("d", Role.SCRATCH, FLOAT, shape),
        Buffer("y", Role.OUTPUT, FLOAT, shape),
    ]
    steps = [
        Library("aten.relu.default", (Ref("x"),), (), ("r",)),
        Launch("double_it", (Ref("r"), Ref("d")), (), ROWS * COLUMNS, 100, ("r",), ("d",)),
        Library("aten.mm.default", (Ref("d"), Ref("wt")), (), ("y",)),
    ]
    if mutated:
        buffers += [Buffer("n", Role.MUTATED, FLOAT, ()), Buffer("m", Role.SCRATCH, FLOAT, ())]
        steps += [Library("aten.add.Tensor", (Ref("n"), 1), (), ("m",)), Copy("m", "n")]
    return Plan(tuple(buffers), tuple(steps), setup=(Library("aten.t.default", (Ref("w"),), (), ("wt",)),))


def build(backend, body="y[i] = 2 * x[i];"):
    return backend.build((Source("k.c", "c", KERNEL.format(body=body)),))


def tensors(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(ROWS, COLUMNS, generator=generator),
        "w": torch.randn(COLUMNS, COLUMNS, generator=generator),
    }


def run_once(backend, wanted, built, given, **options):
    with backend.open(wanted, built, sets=1, **options) as session:
        session.load(0, given)
        session.setup()
        session.run(0)


def expected(given):
    return 2 * torch.relu(given["x"]) @ given["w"].t()


def test_library_steps_and_kernels_in_turn(backend):
    with backend.open(plan(), build(backend), sets=3) as session:
        for index in range(3):
            session.load(index, tensors(index))
        session.setup()
        for index in range(3):
            session.run(index)
            given = {"x": tensors(index)["x"], "w": tensors(2)["w"]}
            torch.testing.assert_close(session.outputs(index)["y"], expected(given), rtol=1e-4, atol=1e-4)


def test_state_is_written_in_place_and_the_setup_sees_new_weights(backend):
    with backend.open(plan(mutated=True), build(backend), sets=1) as session:
        for seed in (1, 2):
            session.load(0, {**tensors(seed), "n": torch.tensor(5.0)})
            session.setup()
            session.run(0)
            session.run(0)
            assert session.outputs(0)["n"].item() == 7.0
            torch.testing.assert_close(session.outputs(0)["y"], expected(tensors(seed)), rtol=1e-4, atol=1e-4)


def test_timed_calls_leave_their_results(backend):
    with backend.open(plan(), build(backend), sets=3) as session:
        for index in range(3):
            session.load(index, tensors(0))
        session.setup()
        session.run(0)
        first = session.outputs(0)["y"].clone()
        times = session.time(5, calls=3, flush=True)
        assert len(times) == 5
        assert all(0 < time < 1e9 for time in times)
        assert torch.equal(session.outputs(0)["y"], first)
        assert torch.equal(session.outputs(2)["y"], first)


def test_a_kernel_that_writes_nothing_leaves_no_stale_result(backend):
    with backend.open(plan(), build(backend), sets=1) as session:
        session.load(0, tensors())
        session.setup()
        session.run(0)
    with backend.open(plan(), build(backend, "(void)x, (void)y;"), sets=1) as session:
        session.load(0, tensors())
        session.setup()
        session.run(0)
        assert session.outputs(0)["y"].isnan().any()


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        ("for (volatile int z = 0; z == 0;) {}", {Cause.TIMEOUT}),
        ("*(volatile float *)8 = y[i] + x[i];", {Cause.CRASHED}),
    ],
)
def test_a_kernel_that_hangs_or_crashes_is_a_failure_and_the_next_session_works(backend, body, causes):
    built = build(backend, body)
    with pytest.raises(RunFailure) as failed:
        run_once(backend, plan(), built, tensors(), deadline_seconds=2.0)
    assert failed.value.cause in causes
    test_library_steps_and_kernels_in_turn(backend)


def test_a_library_step_that_fails_is_told(backend):
    wrong = Plan(
        (Buffer("x", Role.INPUT, FLOAT, (4, 5)), Buffer("y", Role.OUTPUT, FLOAT, (4, 4))),
        (Library("aten.mm.default", (Ref("x"), Ref("x")), (), ("y",)),),
    )
    with pytest.raises(RunFailure, match=r"aten\.mm\.default"):
        run_once(backend, wrong, backend.build(()), {"x": torch.ones(4, 5)})


def test_a_plan_may_not_call_what_is_no_function_of_aten(backend):
    forbidden = Plan(
        (Buffer("x", Role.INPUT, FLOAT, (4,)), Buffer("y", Role.OUTPUT, FLOAT, (4,))),
        (Library("aten.bernoulli.p", (Ref("x"), 0.5), (), ("y",)),),
    )
    with pytest.raises(RunFailure, match="random"):
        backend.open(forbidden, backend.build(()), sets=1)


def test_the_process_locks_itself(backend):
    if backend.sandbox.bwrap is not None:
        pytest.skip("bubblewrap's child has no number that is seen from outside")
    with backend.open(plan(), build(backend), sets=1):
        status = Path(f"/proc/{backend.torch_host.process}/status").read_text()
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
