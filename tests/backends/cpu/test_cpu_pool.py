from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from cpu_kernels import DOUBLE, map_plan, source

from modelblaster.backends.cpu.pool import Pool, find_parallel
from modelblaster.backends.flatten import flatten
from modelblaster.backends.interface import BuildFailure

COUNT = 100_000


@pytest.fixture(params=["own", "borrowed"])
def pool(request, backend):
    parallel = find_parallel() if request.param == "borrowed" else None
    if request.param == "borrowed" and parallel is None:
        pytest.skip("torch has no OpenMP runtime here")
    pool = Pool(backend.toolchain.pool_library(), backend.threads, parallel=parallel)
    yield pool
    pool.close()


def execute(pool, prepared, x):
    y = torch.full_like(x, float("nan"))
    pool.execute(prepared, [x.data_ptr(), y.data_ptr()])
    return y


def test_kernels_run_in_this_process(pool, backend):
    flat = flatten(map_plan(COUNT), backend.symbols)
    prepared = pool.prepare(flat.steps, backend.build((DOUBLE,)).objects)
    for _ in range(50):
        x = torch.randn(COUNT)
        assert torch.equal(execute(pool, prepared, x), 2 * x)
    prepared.close()
    prepared.close()


def test_scratch_of_the_pool(pool, backend):
    text = """KERNEL(k) { float *t = scratch; const float *x = buffers[0]; float *y = buffers[1];
    for (int64_t i = begin; i < end; i++) t[i - begin] = 3 * x[i];
    for (int64_t i = begin; i < end; i++) y[i] = t[i - begin]; }"""
    flat = flatten(map_plan(COUNT, scratch_bytes=1024), backend.symbols)
    prepared = pool.prepare(flat.steps, backend.build((source(text),)).objects)
    x = torch.randn(COUNT)
    assert torch.equal(execute(pool, prepared, x), 3 * x)


def test_callers_take_turns(pool, backend):
    flat = flatten(map_plan(COUNT), backend.symbols)
    prepared = pool.prepare(flat.steps, backend.build((DOUBLE,)).objects)
    wrong = []

    def work():
        x = torch.randn(COUNT)
        for _ in range(20):
            if not torch.equal(execute(pool, prepared, x), x + x):
                wrong.append(x)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_object_without_the_entry(pool, backend):
    flat = flatten(map_plan(COUNT, entry="other"), backend.symbols)
    with pytest.raises(BuildFailure, match="no object has the entry 'other'"):
        pool.prepare(flat.steps, backend.build((DOUBLE,)).objects)
    with pytest.raises(BuildFailure, match="cannot load /nowhere"):
        pool.prepare(flat.steps, [Path("/nowhere.so")])


def test_a_pool_ends_without_leaving_threads(backend):
    before = len(os.listdir("/proc/self/task"))
    for _ in range(5):
        Pool(backend.toolchain.pool_library(), 3).close()
    assert len(os.listdir("/proc/self/task")) == before


def test_without_torch_there_is_nothing_to_borrow():
    script = "from modelblaster.backends.cpu.pool import find_parallel; print(find_parallel())"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "None"
