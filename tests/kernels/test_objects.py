"""What the compiler makes of the text: no foreign symbols, wide vectors, streaming stores, small sources."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from elftools.elf.elffile import ELFFile
from kernel_harness import DIALECT, FACTS, FLAGS, BodyDialect, border, check_all, compile_text, fuse, trace

from modelblaster.kernels.emit import emit
from modelblaster.kernels.schedule import default

X = torch.randn(7, 1003)


def source_of(function, *inputs, **changes):
    traced = trace(function, *inputs)
    nest = fuse(traced)
    schedule = replace(default(nest, FACTS), **changes)
    sources, plan = emit(nest, schedule, DIALECT, prefix="kernel", buffers=border(traced, nest))
    assert len(sources) == 1
    assert sources[0].language == "c"
    return sources[0].text, plan


def disassembly(path):
    return subprocess.run(["objdump", "-d", str(path)], capture_output=True, text=True, check=True).stdout


FUNCTIONS = {
    "softmax": lambda x: torch.softmax(x, 1),
    "gelu": torch.nn.functional.gelu,
    "argmax": lambda x: x.max(0),
    "copy": lambda x: x.clone(),
    "cast": lambda x: x.half(),
    "bool": lambda x: x > 0,
    "fill": torch.zeros_like,
    "transposed": lambda x: x.t().clone(memory_format=torch.contiguous_format),
    "pow": lambda x: x**1.7,
    "double": lambda x: x.double().exp(),
    "fmod": lambda x: torch.fmod(x, 3.0),
}


def test_no_undefined_symbols_and_one_visible_entry():
    texts = [source_of(f, X) for f in FUNCTIONS.values()]
    for name, path, (_, plan) in zip(FUNCTIONS, compile_text([t for t, _ in texts]), texts, strict=True):
        with path.open("rb") as stream:
            symbols = [s for s in ELFFile(stream).get_section_by_name(".dynsym").iter_symbols() if s.name]
        assert not [s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF"], name
        assert {s.name for s in symbols} == {step.entry for step in plan.steps}, name


def test_wide_vectors_and_streaming_stores_are_in_the_object():
    cases = [source_of(torch.relu, X), source_of(torch.relu, X, stream=True), source_of(FUNCTIONS["softmax"], X)]
    plain, streaming, softmax = (disassembly(path) for path in compile_text([text for text, _ in cases]))
    assert len(re.findall(r"vm(?:ax|ovu|ova)ps.*%ymm", plain)) >= 3
    assert "vmovntps" in streaming
    assert "vmovntps" not in plain
    assert "sfence" in streaming
    assert len(re.findall(r"vfm?n?m?add\d+ps.*%ymm", softmax)) >= 10


def test_a_source_holds_only_the_functions_that_it_uses():
    text, _ = source_of(torch.relu, X)
    assert "exp_f32" not in text
    assert "load_float64" not in text
    assert "#include" not in text
    assert len(text) < 10_000
    longer, _ = source_of(torch.sigmoid, X)
    assert "exp_f32" in longer
    assert "log_f32" not in longer


def test_names_of_a_program_become_identifiers():
    traced = trace(lambda x, y: x + y, X, X + 1)
    renamed = {"args_0_1": "layers.0.weight", "args_1_1": "layers_0.weight"}
    names = list(traced.inputs)
    from modelblaster.kernels.builder import NestBuilder
    from modelblaster.records.plan import Library, Ref
    from modelblaster.records.tensor import TensorSpec

    mapping = dict(zip(names, renamed.values(), strict=True))
    specs = {
        mapping.get(k, k): TensorSpec(mapping.get(k, k), s.dtype, s.shape, s.strides) for k, s in traced.specs.items()
    }
    step = traced.steps[0]
    builder = NestBuilder(specs)
    arguments = tuple(Ref(mapping[a.buffer]) for a in step.arguments)
    assert builder.try_add(Library(step.overload, arguments, (), step.outputs))
    nest = builder.finish(step.outputs)
    sources, plan = emit(nest, default(nest, FACTS), BodyDialect(32), prefix="p", buffers=())
    assert plan.steps[0].reads == ("layers.0.weight", "layers_0.weight")
    assert "in_layers_0_weight_2" in sources[0].text


def test_clang_builds_the_same_sources():
    pytest.importorskip("ziglang")
    texts = [source_of(f, X)[0] for n, f in FUNCTIONS.items() if n in ("softmax", "argmax", "cast", "fmod")]
    (path,) = compile_text(["\n".join(texts[:1])], (sys.executable, "-m", "ziglang", "cc", "-fno-sanitize=all"))
    assert "ymm" in disassembly(path)
    for text in texts[1:]:
        compile_text([text], (sys.executable, "-m", "ziglang", "cc", "-fno-sanitize=all"))


def test_lanes_of_other_widths():
    """128-bit vectors as on a machine without AVX, 512-bit ones lowered by the compiler."""
    check_all([("row", FUNCTIONS["softmax"], (X,)), ("column", lambda x: torch.softmax(x, 0), (X,))],
              lambda n: [replace(default(n, FACTS), lanes=k, block=4096) for k in (4, 16)])  # fmt: skip
    assert len(FLAGS) > 5
