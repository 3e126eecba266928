"""What an object is and holds: refused before it is loaded when it could run by itself, counted by its instructions."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from modelblaster.backends.interface import BuildFailure
from modelblaster.records.codec import RecordError, from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_SCHEMA = 1
_RUNS_BY_ITSELF = (".init", ".fini", ".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors")
_RUNNING_TAGS = ("DT_INIT", "DT_FINI", "DT_INIT_ARRAY", "DT_FINI_ARRAY", "DT_PREINIT_ARRAY", "DT_NEEDED", "DT_TEXTREL")
_WRITABLE_BY_RIGHT = re.compile(r"\.(dynamic|got|data\.rel\.ro|relro_padding|eh_frame)")
_SUPPORT = frozenset({"memcpy", "memmove", "memset", "memcmp"})
_SHF_WRITE, _SHF_ALLOC, _SHF_TLS = 1, 2, 0x400

_VECTOR_REGISTER = re.compile(r"\b([xyz])mm\d")
_REGISTER_BYTES = {"x": 16, "y": 32, "z": 64}
_SCALAR_FLOAT = re.compile(r"v?[a-z0-9]*s[sd]$")
_MOVE_BETWEEN = re.compile(
    r"v?(mov|insert|extract|perm|shuf|unpck|pshuf|punpck|broadcast|pbroadcast|zero|align|palign)"
)
_IDIOM = re.compile(r"v?(p?xor|pcmpeq|pcmpgt|p?sub)")
_JUMP = re.compile(r"j[a-z]+|loop")
_HOT = 8
_MOST_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Inspection:
    """Instructions of an object's functions, each weighed by 8 for every loop around it.

    `data` are arithmetic and memory instructions, `wide` those of them that work on full vector registers,
    `wide_arithmetic` those that compute there, `streaming` non-temporal stores.
    """

    schema: int
    data: int
    wide: int
    wide_arithmetic: int
    streaming: int


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    address: int
    code: bytes


def inspect_object(path: Path, *, vector_bytes: int) -> Inspection:
    """Inspect an object, from the note beside it where there is one.

    Raises:
        BuildFailure: it has undefined symbols, constructors or state of its own.
    """
    note = path.with_suffix(f".{vector_bytes}.json")
    try:
        known = from_json(Inspection, note.read_bytes())
        if known.schema == _SCHEMA:
            return known
    except (OSError, RecordError):
        pass  # no note yet, or one of an older version
    found = _count(_checked_functions(path), vector_bytes)
    draft = note.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    draft.write_text(to_json(found))
    draft.replace(note)
    return found


def properties(inspections: Iterable[Inspection]) -> frozenset[str]:
    """The claims that hold of objects taken together."""
    parts = list(inspections)
    claims = {
        "wide_simd": any(part.wide_arithmetic for part in parts),
        "streaming_stores": any(part.streaming for part in parts),
    }
    return frozenset(name for name, holds in claims.items() if holds)


def vector_fraction(inspections: Iterable[Inspection]) -> float | None:
    """Share of full-width vector instructions among arithmetic and memory ones; None without any."""
    parts = list(inspections)
    data = sum(part.data for part in parts)
    return sum(part.wide for part in parts) / data if data else None


def _checked_functions(path: Path) -> list[_Function]:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as stream:
        try:
            elf = ELFFile(stream)
            _refuse_running(elf)
            _refuse_undefined(elf)
            return _functions(elf)
        except ELFError as error:
            raise BuildFailure(f"the compiler made no ELF object: {error}") from error


def _refuse_running(elf: Any) -> None:
    for section in elf.iter_sections():
        flags, size, name = section["sh_flags"], section["sh_size"], section.name
        if name.startswith(_RUNS_BY_ITSELF) and size:
            raise BuildFailure(f"the object has code that runs by itself ({name}); constructors are not allowed")
        is_state = flags & _SHF_ALLOC and flags & (_SHF_WRITE | _SHF_TLS) and not _WRITABLE_BY_RIGHT.match(name)
        if is_state and size:
            raise BuildFailure(f"the object has writable state ({name}); static variables must be const")
        if section["sh_type"] == "SHT_DYNAMIC":
            tags = {tag.entry.d_tag for tag in section.iter_tags()}
            refused = tags.intersection(_RUNNING_TAGS)
            if refused:
                raise BuildFailure(f"the object has {sorted(refused)[0]}, which is not allowed")
    for segment in elf.iter_segments():
        if segment["p_flags"] & 3 == 3 or segment["p_type"] == "PT_INTERP":
            raise BuildFailure("the object has memory that is writable and executable, or wants an interpreter")


def _refuse_undefined(elf: Any) -> None:
    dynamic = elf.get_section_by_name(".dynsym")
    symbols = list(dynamic.iter_symbols()) if dynamic else []
    for symbol in symbols:
        if symbol.name and symbol["st_shndx"] == "SHN_UNDEF":
            raise BuildFailure(f"undefined symbol {symbol.name!r}: kernels are freestanding and call no library")
        if symbol["st_info"]["type"] in ("STT_GNU_IFUNC", "STT_LOOS"):
            raise BuildFailure(f"the symbol {symbol.name!r} is resolved by code that runs at load time")


def _functions(elf: Any) -> list[_Function]:
    """Functions of the object's own text, without those that every object gets."""
    table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
    text = elf.get_section_by_name(".text")
    if table is None or text is None:
        raise BuildFailure("the object has no code")
    data, start = text.data(), text["sh_addr"]
    found: dict[int, _Function] = {}
    for symbol in table.iter_symbols():
        offset, size = symbol["st_value"] - start, symbol["st_size"]
        is_own = symbol.name not in _SUPPORT and not symbol.name.startswith("__")
        if symbol["st_info"]["type"] == "STT_FUNC" and size and is_own and 0 <= offset < len(data):
            found[offset] = _Function(symbol.name, symbol["st_value"], data[offset : offset + size])
    return list(found.values())


def _count(functions: Sequence[_Function], vector_bytes: int) -> Inspection:
    import platform

    if platform.machine() not in ("x86_64", "AMD64"):
        return Inspection(_SCHEMA, 0, 0, 0, 0)
    import capstone

    engine: Any = cast("Any", capstone).Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    totals = [0, 0, 0, 0]
    for function in functions:
        code = list(engine.disasm_lite(function.code, function.address))
        for weight, (_, _, mnemonic, operands) in zip(_weights(code), code, strict=True):
            for index, holds in enumerate(_classify(mnemonic, operands, vector_bytes)):
                totals[index] += weight * holds
    return Inspection(_SCHEMA, *totals)


def _weights(code: Sequence[tuple[int, int, str, str]]) -> list[int]:
    """8 to the power of the number of loops around each instruction; a backward jump closes a loop."""
    index = {address: position for position, (address, *_) in enumerate(code)}
    changes = [0] * (len(code) + 1)
    heads: dict[int, int] = {}
    for position, (address, _, mnemonic, operands) in enumerate(code):
        if _JUMP.fullmatch(mnemonic) and operands.startswith("0x"):
            target = int(operands, 16)
            if target <= address and target in index:
                heads[index[target]] = position  # several jumps to one head are one loop
    for head, tail in heads.items():
        changes[head] += 1
        changes[tail + 1] -= 1
    weights, depth = [], 0
    for change in changes[:-1]:
        depth += change
        weights.append(_HOT ** min(depth, _MOST_DEPTH))
    return weights


def _classify(mnemonic: str, operands: str, vector_bytes: int) -> tuple[bool, bool, bool, bool]:
    """Whether an instruction is about data, on full vectors, computing on full vectors, a non-temporal store."""
    registers = set(_VECTOR_REGISTER.findall(operands))
    is_streaming = "movnt" in mnemonic and not mnemonic.endswith("movntdqa")
    is_memory = "ptr [" in operands and mnemonic not in ("lea", "nop")
    if not registers:
        return is_memory or is_streaming, False, False, is_streaming
    is_scalar = _SCALAR_FLOAT.match(mnemonic) is not None and "cvt" not in mnemonic and "x" in registers
    widest = max(_REGISTER_BYTES[letter] for letter in registers)
    is_wide = widest >= vector_bytes and not is_scalar
    is_computing = is_wide and not _MOVE_BETWEEN.match(mnemonic) and not _is_idiom(mnemonic, operands)
    is_data = is_memory or is_scalar or not _MOVE_BETWEEN.match(mnemonic)
    return is_data, is_data and is_wide, is_computing, is_streaming


def _is_idiom(mnemonic: str, operands: str) -> bool:
    """Whether this only makes zeros or ones (`vxorps ymm0, ymm0, ymm0`)."""
    return _IDIOM.match(mnemonic) is not None and len({part.strip() for part in operands.split(",")}) == 1
