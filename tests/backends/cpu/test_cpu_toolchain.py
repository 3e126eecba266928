from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
import torch
from cpu_kernels import DOUBLE, HEAD, kernel, map_plan, source

from modelblaster.backends.cpu import CpuBackend, toolchain
from modelblaster.backends.cpu.inspection import inspect_object
from modelblaster.backends.cpu.toolchain import Toolchain, find_compiler
from modelblaster.backends.interface import BuildFailure
from modelblaster.errors import StorageError, ToolchainError
from modelblaster.records.candidate import Source

IFUNC = """static void one(void) { } static void *pick(void) { return one; }
__attribute__((visibility("default"))) void f(void) __attribute__((ifunc("pick"))); KERNEL(k) { }"""
VECTOR = f"typedef float vec __attribute__((vector_size({CpuBackend().machine.vector_bytes})));"


def test_equal_content_is_built_once(backend):
    first = backend.build((DOUBLE,))
    begin = time.monotonic()
    again = backend.build((Source("other_name.c", "c", DOUBLE.text),))
    assert again.objects == first.objects
    assert time.monotonic() - begin < 0.1
    assert backend.build((kernel("y[0] = 1;"),)).objects != first.objects


def test_another_compiler_or_processor_is_another_object(backend):
    compiler, home = backend.toolchain.compiler, backend.home
    paths = {Toolchain(compiler, home, name).objects((DOUBLE,)) for name in ("one", "other")}
    assert len(paths) == 2


def test_a_compile_error_names_file_line_and_text(backend):
    with pytest.raises(BuildFailure, match=r"softmax\.c:\d+:\d+: error.*\n.*wrong"):
        backend.build((source("KERNEL(k) { wrong; }", "softmax.c"),))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("float expf(float); KERNEL(k) { *(float *)buffers[0] = expf(1); }", "expf"),
        ('__attribute__((constructor)) static void go(void) { __asm__ volatile("nop"); } KERNEL(k) { }', "by itself"),
        ('__attribute__((destructor)) static void go(void) { __asm__ volatile("nop"); } KERNEL(k) { }', "by itself"),
        ("static float memory[4]; KERNEL(k) { memory[begin & 3] += 1; *(float *)buffers[0] = memory[0]; }", "state"),
        ("static _Thread_local int n; KERNEL(k) { *(int *)buffers[0] = n++; }", "state|undefined"),
        (IFUNC, "load time"),
    ],
    ids=["undefined", "constructor", "destructor", "state", "thread-state", "ifunc"],
)
def test_what_an_object_may_not_have(backend, body, message):
    with pytest.raises(BuildFailure, match=message):
        backend.build((source(body),))


def test_undefined_symbols_are_refused_without_the_linker_too(backend, tmp_path):
    path = tmp_path / "loose.so"
    (tmp_path / "loose.c").write_text("float expf(float); float f(float x) { return expf(x); }")
    flags = ["-shared", "-fPIC", "-nostdlib", "-o", str(path), str(tmp_path / "loose.c")]
    subprocess.run([*backend.toolchain.compiler.command, *flags], check=True, capture_output=True)
    with pytest.raises(BuildFailure, match="undefined symbol 'expf'"):
        inspect_object(path, vector_bytes=32)


def test_constant_tables_and_aggregates_are_fine(backend):
    body = """static const float table[4] = {1, 2, 3, 4}; struct pair { float values[64]; };
    KERNEL(k) { struct pair one = {{0}}, two; for (int64_t i = begin; i < end; i++) { one.values[i & 63] = table[i & 3];
    two = one; ((float *)buffers[1])[i] = two.values[i & 63]; } }"""
    with backend.open(map_plan(100), backend.build((source(body),)), sets=1) as session:
        session.load(0, {"x": torch.zeros(100)})
        session.run(0)
        assert session.outputs(0)["y"][:5].tolist() == [1, 2, 3, 4, 1]


def test_wide_arithmetic_and_streaming_stores_are_seen(backend):
    wide = source(
        VECTOR + "KERNEL(k) { const vec *x = buffers[0]; vec *y = buffers[1];"
        "for (int64_t i = begin / 8; i < end / 8; i++) y[i] = x[i] * x[i] + x[i]; }"
    )
    narrow = kernel("for (int64_t i = begin; i < end; i++) { volatile float v = x[i]; y[i] = v * v + v; }")
    moving = source(
        VECTOR + "KERNEL(k) { const vec *x = buffers[0]; vec *y = buffers[1];"
        "for (int64_t i = begin; i < end; i++) y[i] = x[i]; }"
    )
    streaming = kernel('for (int64_t i = begin; i < end; i++) __asm__("movnti %1, %0" : "=m"(y[i]) : "r"((int)i));')
    builds = {name: backend.build((text,)) for name, text in locals().items() if isinstance(text, Source)}
    assert builds["wide"].properties == {"wide_simd"}
    assert builds["wide"].vector_fraction > 0.9
    assert builds["narrow"].properties == frozenset()
    assert builds["narrow"].vector_fraction == 0
    assert builds["moving"].properties == frozenset()
    assert builds["moving"].vector_fraction > 0.8
    assert builds["streaming"].properties == {"streaming_stores"}


def test_inspection_is_quick_and_kept(backend):
    (path,) = backend.build((DOUBLE,)).objects
    note = next(path.parent.glob(f"{path.stem}.*.json"))
    text = note.read_text()
    note.write_text("not ours")
    begin = time.monotonic()
    backend.build((DOUBLE,))
    assert time.monotonic() - begin < 0.1
    assert note.read_text() == text


def test_many_sources_in_order(backend):
    sources = tuple(kernel(f"y[0] = {index};", f"k{index}") for index in range(5))
    objects = backend.build(sources).objects
    for index, path in enumerate(objects):
        assert f"k{index}".encode() in path.read_bytes()


def test_two_processes_share_one_home(backend, tmp_path):
    script = (
        "import sys; from pathlib import Path; from modelblaster.backends.cpu import CpuBackend; "
        "from modelblaster.records.candidate import Source; "
        "sources = tuple(Source(f'{i}.c', 'c', sys.argv[2] + f'KERNEL(k{i}) {{ }}') for i in range(4)); "
        "print(*CpuBackend(home=Path(sys.argv[1])).build(sources).objects)"
    )
    command = [sys.executable, "-c", script, str(tmp_path), HEAD]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=60)[0] for process in both]
    assert answers[0] == answers[1] != ""
    assert not list(tmp_path.rglob(".build-*"))


def test_low_priority_builds(backend):
    build = backend.build((kernel("y[0] = 12345;"),), low_priority=True)
    assert build.objects[0].exists()


def test_a_compiler_that_never_ends_is_stopped(tmp_path, monkeypatch):
    slow = tmp_path / "cc"
    slow.write_text("#!/bin/sh\n[ $1 = --version ] && echo gcc 1 && exit 0\nsleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("MODELBLASTER_CC", str(slow))
    monkeypatch.setattr(toolchain, "_DEADLINE_SECONDS", 0.3)
    with pytest.raises(BuildFailure, match="took over"):
        CpuBackend(home=tmp_path / "home").build((DOUBLE,))


def test_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MODELBLASTER_CC", raising=False)
    monkeypatch.setattr(toolchain, "find_spec", lambda _: None)
    with pytest.raises(ToolchainError, match="apt install gcc"):
        CpuBackend(home=tmp_path).build((DOUBLE,))
    needs = {need.name: need for need in CpuBackend(home=tmp_path).requirements()}
    assert not needs["compiler"].is_met
    assert needs["compiler"].is_required
    assert not needs["bubblewrap"].is_met
    assert needs["bubblewrap"].remedy == "apt install bubblewrap"
    assert needs["torch"].is_met


@pytest.mark.parametrize("named", ["/nowhere/cc", "false"])
def test_a_named_compiler_that_does_not_work(tmp_path, monkeypatch, named):
    monkeypatch.setenv("MODELBLASTER_CC", named)
    with pytest.raises(ToolchainError, match="MODELBLASTER_CC names"):
        CpuBackend(home=tmp_path).build((DOUBLE,))


def test_a_home_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        CpuBackend(home=tmp_path / "file").build((DOUBLE,))


@pytest.mark.slow
def test_the_wheel_takes_the_place_of_a_missing_compiler(tmp_path_factory, monkeypatch):
    pytest.importorskip("ziglang")
    monkeypatch.setenv("MODELBLASTER_CC", f"{sys.executable} -m ziglang cc")
    assert find_compiler().family == "zig"
    backend = CpuBackend(home=tmp_path_factory.getbasetemp() / "wheel")
    build = backend.build((DOUBLE,))
    with backend.open(map_plan(1000), build, sets=1) as session:
        session.load(0, {"x": torch.ones(1000)})
        session.run(0)
        assert (session.outputs(0)["y"] == 2).all()


def test_threads_may_build_at_once(backend):
    failures = []

    def work(index):
        try:
            backend.build((kernel(f"y[0] = {index} + 0.5f;"),))
        except BuildFailure as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index % 2,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
