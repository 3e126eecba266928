"""Torch functions traced to library steps, fused, emitted, compiled by gcc and called through ctypes."""

import ctypes
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from modelblaster.backends.cpu.dialect import CpuDialect
from modelblaster.kernels.builder import NestBuilder
from modelblaster.kernels.emit import emit
from modelblaster.kernels.schedule import default
from modelblaster.records.facts import Ceiling, Facts
from modelblaster.records.plan import Attribute, Buffer, Library, Ref, Role
from modelblaster.records.tensor import DType, TensorSpec

FLAGS = ["-std=gnu11", "-O2", "-march=native", "-ffreestanding", "-nostdlib", "-shared", "-fPIC", "-fvisibility=hidden",
         "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-Wall", "-Wno-psabi",
         "-Wno-unused"]  # fmt: skip
FACTS = Facts("test", 2, 32, 32 << 10, 512 << 10, 32 << 20, 2000.0, 2e11, (Ceiling(1 << 20, True, 2e10),))
DIALECT = CpuDialect(32)


def spec_of(name, tensor):
    dtype = DType(str(tensor.dtype).removeprefix("torch."))
    return TensorSpec(name, dtype, tuple(tensor.shape), tuple(tensor.stride()))


def argument(value):
    if isinstance(value, torch.fx.Node):
        return Ref(value.name)
    if isinstance(value, list | tuple):
        return tuple(argument(v) for v in value)
    if isinstance(value, torch.dtype):
        return Attribute("dtype", str(value).removeprefix("torch."))
    if isinstance(value, torch.memory_format):
        return Attribute("memory_format", str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return Attribute("device", "cpu")
    if isinstance(value, torch.layout):
        return Attribute("layout", "strided")
    return value


@dataclass
class Traced:
    steps: list
    specs: dict
    inputs: dict
    outputs: list
    expected: list


def trace(function, *inputs):
    """Library steps of a function, its inputs by name and its outputs in float64 where they are floating."""
    # through a lambda: tracing refuses default arguments
    module = make_fx(lambda *tensors: function(*tensors))(*inputs)  # noqa: PLW0108
    steps, specs, values, placed = [], {}, {}, {}
    waiting = iter(inputs)
    outputs = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(waiting)
            placed[node.name] = values[node]
            specs[node.name] = spec_of(node.name, values[node])
        elif node.op == "get_attr":
            values[node] = getattr(module, node.target)
            placed[node.name] = values[node]
            specs[node.name] = spec_of(node.name, values[node])
        elif node.op == "call_function":
            if "getitem" in str(node.target):
                values[node] = values[node.args[0]][node.args[1]]
                continue
            args = torch.fx.map_arg(node.args, lambda n: values[n])
            kwargs = torch.fx.map_arg(node.kwargs, lambda n: values[n])
            values[node] = node.target(*args, **kwargs)
            results = values[node] if isinstance(values[node], tuple | list) else (values[node],)
            names = []
            for index, result in enumerate(results):
                user = [u for u in node.users if "getitem" in str(u.target) and u.args[1] == index]
                is_tuple = isinstance(values[node], tuple | list)
                name = node.name if not is_tuple else user[0].name if user else ""
                names.append(name)
                if name:
                    specs[name] = spec_of(name, result)
            overload = str(node.target)
            if not overload.startswith(("aten", "prims")):
                overload = "aten." + overload
            steps.append(Library(overload, tuple(argument(a) for a in node.args),
                                 tuple((k, argument(v)) for k, v in node.kwargs.items()), tuple(names)))  # fmt: skip
        elif node.op == "output":
            found = node.args[0] if isinstance(node.args[0], tuple | list) else [node.args[0]]
            outputs = [n.name for n in found]
    doubled = [t.double() if t.dtype.is_floating_point else t for t in inputs]
    expected = function(*doubled)
    wide = list(expected) if isinstance(expected, tuple | list) else [expected]
    return Traced(steps, specs, placed, outputs, wide)


def fuse(traced):
    """The nest of all steps, or None if one was refused."""
    builder = NestBuilder(traced.specs)
    for step in traced.steps:
        if not builder.try_add(step):
            return None
    return builder.finish(traced.outputs)


def border(traced, nest):
    def buffer(name, role):
        spec = traced.specs[name]
        return Buffer(name, role, spec.dtype, spec.shape, spec.strides)

    return tuple(buffer(n, Role.INPUT) for n in nest.inputs) + tuple(buffer(n, Role.OUTPUT) for n in nest.outputs)


class BodyDialect(CpuDialect):
    """Leaves the head out, so that many kernels can share one."""

    def prelude(self, body, *, lanes, width):
        return f"//GROUP {lanes} {width}"


def compile_text(texts, compiler=("gcc",)):
    """Objects of whole sources, two compilers at a time."""
    folder = Path(tempfile.mkdtemp(prefix="kernels"))
    objects, running = [], []
    for k, text in enumerate(texts):
        source = folder / f"k{k}.c"
        source.write_text(text)
        objects.append(folder / f"k{k}.so")
        command = [*compiler, *FLAGS, str(source), "-o", str(objects[-1])]
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE))
        if len(running) >= 2:
            finish(running.pop(0), text)
    for process in running:
        finish(process, texts[-1])
    return objects


def finish(process, text):
    message = process.communicate()[1].decode()
    assert process.returncode == 0, message[:4000]
    assert "warning" not in message, message[:4000]


def compile_bodies(bodies, size=24):
    """For each body the library that holds it: bodies of equal lanes and width share a source."""
    groups = {}
    for number, text in enumerate(bodies):
        mark, body = text.split("\n", 1)
        groups.setdefault(mark, []).append((number, body))
    chunks = [(mark, part[k : k + size]) for mark, part in groups.items() for k in range(0, len(part), size)]
    texts = []
    for mark, part in chunks:
        _, lanes, width = mark.split()
        body = "\n".join(text for _, text in part)
        texts.append(DIALECT.prelude(body, lanes=int(lanes), width=int(width)) + "\n" + body)
    libraries = {}
    for (_, part), path in zip(chunks, compile_text(texts), strict=True):
        library = ctypes.CDLL(str(path))
        libraries.update({number: library for number, _ in part})
    return [libraries[number] for number in range(len(bodies))]


def run(library, plan, inputs, specs, parts=3):
    """Outputs by name; every launch is handed out in a few pieces."""
    memory = {}
    for buffer in plan.buffers:
        if buffer.role is Role.INPUT:
            memory[buffer.name] = inputs[buffer.name]
        elif buffer.role is Role.OUTPUT:
            spec = specs[buffer.name]
            memory[buffer.name] = torch.empty_strided(spec.shape, spec.strides, dtype=getattr(torch, spec.dtype.value))
            poison(memory[buffer.name])
        else:
            memory[buffer.name] = torch.full(tuple(buffer.shape), 99).to(getattr(torch, buffer.dtype.value))
    for step in plan.steps:
        assert set(step.reads) | set(step.writes) == {ref.buffer for ref in step.arguments}
        pointers = (ctypes.c_void_p * len(step.arguments))(*[memory[r.buffer].data_ptr() for r in step.arguments])
        scratch = torch.zeros(step.scratch_bytes + 64, dtype=torch.uint8)
        aligned = scratch.data_ptr() + (-scratch.data_ptr()) % 64
        function = getattr(library, step.entry)
        stride = max(step.grain, -(-step.range // parts // step.grain) * step.grain)
        for begin in reversed(range(0, step.range, stride)):
            end = min(step.range, begin + stride)
            function(pointers, None, ctypes.c_int64(begin), ctypes.c_int64(end), ctypes.c_void_p(aligned))
    return {n: t for n, t in memory.items() if n not in inputs}


def poison(tensor):
    tensor.fill_(float("nan") if tensor.dtype.is_floating_point else 1 if tensor.dtype is torch.bool else 77)


def compare(actual, expected, tolerance=2e-6):
    """Relative to the size of the whole output, and near to each element."""
    assert actual.shape == expected.shape
    if not actual.dtype.is_floating_point:
        assert torch.equal(actual.to(expected.dtype), expected)
        return
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 1.2e-2, torch.float64: 1e-13}.get(actual.dtype, tolerance)
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance / 8, equal_nan=True)


@dataclass
class Emitted:
    name: str
    traced: Traced
    nest: object
    schedule: object
    text: str
    plan: object


def emitted_of(cases, schedules=None):
    """Every (name, function, inputs) under its default schedule or under all that `schedules(nest)` gives."""
    found = []
    for name, function, inputs in cases:
        traced = trace(function, *inputs)
        nest = fuse(traced)
        assert nest is not None, f"{name} was refused: {[s.overload for s in traced.steps]}"
        for schedule in schedules(nest) if schedules else [default(nest, FACTS)]:
            sources, plan = emit(nest, schedule, BodyDialect(32), prefix=f"k{len(found)}", buffers=border(traced, nest))
            found.append(Emitted(name, traced, nest, schedule, sources[0].text, plan))
    return found


def check_all(cases, schedules=None, tolerance=2e-6):
    """Build all, run all, compare with float64; every failure is listed. Returns what was emitted."""
    found = emitted_of(cases, schedules)
    libraries = compile_bodies([e.text for e in found])
    wrong = []
    for e, library in zip(found, libraries, strict=True):
        actual = run(library, e.plan, e.traced.inputs, e.traced.specs)
        for output, expected in zip(e.traced.outputs, e.traced.expected, strict=True):
            try:
                compare(actual[output], expected, tolerance)
            except AssertionError as error:
                wrong.append(f"{e.name} {output} {e.schedule}: {error}")
    assert not wrong, "\n".join(wrong)
    return found
