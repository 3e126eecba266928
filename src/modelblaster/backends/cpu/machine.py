"""What processor this is: cores to use, caches, vector width, and a fingerprint."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_FALLBACK_CACHES = (32 << 10, 512 << 10, 8 << 20)
_WIDTHS = (("avx512f", 64), ("avx2", 32))
_NOTED_FLAGS = ("sse4_2", "avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_fp16", "asimd", "sve")
_SCALES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Machine:
    """`cpus` are one logical processor for each core that this process may use, `flags` the instruction sets noted."""

    model: str
    cpus: tuple[int, ...]
    flags: tuple[str, ...]
    vector_bytes: int
    l1_bytes: int
    l2_bytes: int
    last_level_bytes: int

    def device(self, threads: int) -> str:
        """The fingerprint that facts, objects and timings are kept under."""
        return f"{self.model}, {threads} threads, {self.last_level_bytes >> 20} MB, {'+'.join(self.flags)}"


def read_machine() -> Machine:
    """The machine as the kernel describes it."""
    fields = _cpuinfo()
    present = set((fields.get("flags") or fields.get("Features") or "").split())
    family = "/".join(fields[key] for key in ("cpu family", "model", "stepping") if key in fields)
    name = fields.get("model name") or platform.machine()
    width = next((nbytes for flag, nbytes in _WIDTHS if flag in present), 16)
    level1, level2, last = _caches()
    return Machine(
        model=f"{name} ({family})" if family else name,
        cpus=_cores(),
        flags=tuple(flag for flag in _NOTED_FLAGS if flag in present),
        vector_bytes=width,
        l1_bytes=level1,
        l2_bytes=level2,
        last_level_bytes=last,
    )


def _cpuinfo() -> dict[str, str]:
    """The fields of the first processor."""
    text = _text(Path("/proc/cpuinfo"))
    pairs = (line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _cores() -> tuple[int, ...]:
    """Allowed logical processors, the first of each core; as many as the control group grants."""
    allowed = sorted(os.sched_getaffinity(0))
    cores: dict[str, int] = {}
    for cpu in allowed:
        siblings = _text(_CPUS / f"cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(siblings or str(cpu), cpu)
    return tuple(cores.values())[: _granted()]


def _granted() -> int | None:
    """Whole processors of time that a version 2 control group grants, None without a limit."""
    words = _text(Path("/sys/fs/cgroup/cpu.max")).split()
    if len(words) != 2 or words[0] == "max":
        return None
    return max(1, int(words[0]) // int(words[1]))


def _caches() -> tuple[int, int, int]:
    """Bytes of the first core's first, second and last level of data cache."""
    levels: dict[int, int] = {}
    for folder in sorted((_CPUS / "cpu0/cache").glob("index*")):
        level, kind = _text(folder / "level"), _text(folder / "type")
        size = re.fullmatch(r"(\d+)([KMG]?)", _text(folder / "size"))
        if level.isdigit() and kind != "Instruction" and size:
            levels[int(level)] = int(size[1]) * _SCALES[size[2]]
    first, second, last = _FALLBACK_CACHES
    if not levels:
        return first, second, last
    return levels.get(1, first), levels.get(2, second), levels[max(levels)]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
