"""The judge and the processor backend together: a softmax in C, right and wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from judge_fakes import spec, uniform
from torch import nn

from modelblaster.backends import registry
from modelblaster.judge.judge import Judge
from modelblaster.judge.reference import ReferenceProcess
from modelblaster.judge.subject import Subject
from modelblaster.records.candidate import Candidate, Source
from modelblaster.records.codec import digest
from modelblaster.records.plan import Buffer, Launch, Plan, Ref, Role
from modelblaster.records.profile import Work
from modelblaster.records.task import Precision
from modelblaster.records.tensor import DType
from modelblaster.records.timing import Comparison
from modelblaster.records.verdict import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelblaster.backends.interface import Backend

ROWS, COLUMNS = 512, 1024

# exp by range reduction to 2^k * p(f): freestanding code has no library to ask.
SOFTMAX = """
typedef long long i64;
static inline float expf_(float x) {
    if (x < -87.0f) return 0.0f;
    float k = (float)(int)(x * 1.44269504f + (x < 0 ? -0.5f : 0.5f));
    float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f; p = p * r + 8.3334519073e-3f; p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f; p = p * r + 5.0000001201e-1f; p = p * r * r + r + 1.0f;
    union { int i; float f; } two = { .i = ((int)k + 127) << 23 };
    return p * two.f;
}
static inline float rounded(float x) {
    union { float f; unsigned i; } bits = { .f = x };
    bits.i = (bits.i + 0x8000u) & 0xffff0000u;
    return LOW ? bits.f : x;
}
__attribute__((visibility("default")))
void softmax(void *const *buffers, const i64 *sizes, i64 begin, i64 end, void *scratch) {
    const i64 n = sizes[0];
    for (i64 row = begin; row < end; row++) {
        const float *x = (const float *)buffers[0] + row * n;
        float *y = (float *)buffers[1] + row * n;
        float top = rounded(x[0]), sums[8] = {0};
        for (i64 i = 1; i < n; i++) top = rounded(x[i]) > top ? rounded(x[i]) : top;
        for (i64 i = 0; i < n; i++) { y[i] = expf_(rounded(x[i]) - top); sums[i % 8] += y[i]; }
        float sum = 0;
        for (int i = 0; i < 8; i++) sum += sums[i];
        for (i64 i = 0; i < n; i++) y[i] = y[i] / sum;
        FINISH
    }
}
"""
VARIANTS = {
    "right": (0, ";", Cause.PASSED),
    "low precision": (1, ";", Cause.WRONG),
    "zeros": (0, "for (i64 i = 0; i < n; i++) y[i] = 0;", Cause.WRONG),
    "wrong row": (0, "if (row == 77) for (i64 i = 0; i < n; i++) y[i] = (y - n)[i];", Cause.WRONG),
    "one NaN": (0, "if (row == 77) y[5] = 0.0f / 0.0f;", Cause.NONFINITE),
    "out of bounds": (0, "if (row == 511) y[n] = 1;", Cause.OUT_OF_BOUNDS),
    "crash": (0, "if (row == 77) *(volatile int *)8 = 1;", Cause.CRASHED),
}


class Softmax(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)


def subject() -> Subject:
    shape = (ROWS, COLUMNS)
    x = spec("x", shape)
    work = Work(bytes_moved=8 * ROWS * COLUMNS, flops=5 * ROWS * COLUMNS)
    return Subject("softmax", (x,), (), (spec("y", shape),), uniform(x), module=Softmax(), work=work)


def candidate(low: int, finish: str, *, rows: int = ROWS) -> Candidate:
    text = SOFTMAX.replace("LOW", str(low)).replace("FINISH", finish)
    shape = (ROWS, COLUMNS)
    buffers = (Buffer("x", Role.INPUT, DType.FLOAT32, shape), Buffer("y", Role.OUTPUT, DType.FLOAT32, shape))
    launch = Launch("softmax", (Ref("x"), Ref("y")), (COLUMNS,), rows, 16, ("x",), ("y",))
    sources, plan = (Source("softmax.c", "c", text),), Plan(buffers, (launch,))
    return Candidate(digest(text, plan), sources, plan, "test")


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Backend:
    found = registry.get("cpu")
    home = tmp_path_factory.mktemp("home")
    return type(found)(threads=2, home=Path(home))  # type: ignore[call-arg]


@pytest.fixture(scope="module")
def judge(backend: Backend) -> Iterator[Judge]:
    with ReferenceProcess(threads=2) as reference:
        yield Judge(backend, reference, Precision.FP32, 11, compile_seconds=0.01)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_of_a_kernel(judge: Judge, backend: Backend, name: str) -> None:
    low, finish, cause = VARIANTS[name]
    made = candidate(low, finish)
    build = backend.build(made.sources)
    verdict = judge.verify(subject(), made, build, final=False)
    assert verdict.cause is cause, verdict.detail
    screened, timing = judge.screen(subject(), made, build)
    assert screened.passed == verdict.passed
    assert (timing is not None) == verdict.passed


def test_rows_that_nobody_computes(judge: Judge, backend: Backend) -> None:
    made = candidate(0, ";", rows=ROWS - 16)
    assert judge.verify(subject(), made, backend.build(made.sources), final=False).cause is Cause.NONFINITE


def test_a_finalist_is_compared(judge: Judge, backend: Backend) -> None:
    made = candidate(0, ";")
    build = backend.build(made.sources)
    final = judge.verify(subject(), made, build, final=True)
    assert final.passed, final.detail
    for is_final in (False, True):
        found = judge.compare(subject(), made, build, final=is_final, seconds=2.0)
        assert isinstance(found, Comparison)
        assert found.ci95[0] <= found.speedup <= found.ci95[1]
    assert set(judge.baselines(subject(), seconds=0.5)) == {"eager"}
