"""From C sources to objects: the system's gcc or clang, else the `ziglang` wheel, and a cache keyed by content."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from modelblaster.backends.interface import BuildFailure
from modelblaster.errors import StorageError, ToolchainError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modelblaster.records.candidate import Source

REMEDY = "apt install gcc, or pip install 'modelblaster[compiler]'"
NATIVE = Path(__file__).parent / "native"

_PARALLEL_BUILDS = 2
_DEADLINE_SECONDS = 60.0
_LOWEST_PRIORITY = 19
_MOST_MESSAGE = 8000

_KERNEL_FLAGS = (
    "-std=gnu11", "-O2", "-march=native", "-ffreestanding", "-nostdlib", "-fPIC", "-fvisibility=hidden",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
)  # fmt: skip
_HOST_FLAGS = ("-std=gnu11", "-O2", "-Wall")
_OWN_FLAGS = {
    # The second one keeps loops that copy or fill from becoming calls; the others have it in -ffreestanding.
    "gcc": ("-fno-tree-loop-distribute-patterns", "-fcf-protection=none", "-Wno-psabi"),
    "clang": ("-Wno-psabi",),
    "zig": ("-fno-sanitize=undefined", "-g0", "-Wno-psabi"),
}


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: the words that start it, its family (`gcc`, `clang`, `zig`) and what it says it is."""

    command: tuple[str, ...]
    family: str
    version: str


def find_compiler() -> Compiler:
    """The compiler that `MODELBLASTER_CC` names, else gcc or clang from PATH, else the ziglang wheel.

    Raises:
        ToolchainError: there is none, or the named one does not run.
    """
    wanted = os.environ.get("MODELBLASTER_CC")
    if wanted:
        return _identify(tuple(shlex.split(wanted)), "MODELBLASTER_CC names")
    for name in ("gcc", "clang"):
        found = shutil.which(name)
        if found:
            return _identify((found,), "PATH has")
    if find_spec("ziglang") is not None:
        return _identify((sys.executable, "-m", "ziglang", "cc"), "the ziglang wheel is")
    raise ToolchainError(f"no C compiler was found; {REMEDY}")


class Toolchain:
    """Compiles into `<home>/cache`. Several processes and threads may use one home."""

    def __init__(self, compiler: Compiler, home: Path, fingerprint: str) -> None:
        self.compiler = compiler
        self._cache = home / "cache"
        self._fingerprint = fingerprint

    def objects(self, sources: Sequence[Source], *, low_priority: bool = False) -> tuple[Path, ...]:
        """One loadable object for each source, in order.

        With `low_priority` the compiler gets only processor time that nobody else wants.

        Raises:
            BuildFailure: the compiler refused, with its message.
            StorageError: the cache cannot be written.
        """
        support = (str(self._support()),)

        def build(source: Source) -> Path:
            return self._kernel(source, support, low_priority)

        if len(sources) == 1:
            return (build(sources[0]),)
        with ThreadPoolExecutor(_PARALLEL_BUILDS) as pool:
            return tuple(pool.map(build, sources))

    def runner(self) -> Path:
        """The executable that candidates run in."""
        names = ("runner.c", "guard.c", "pool.c", "program.c", "text.c")
        return self._native("runner", names, ("-fPIE", "-pie", "-ldl", "-lpthread"))

    def pool_library(self) -> Path:
        """The thread pool as a shared library."""
        flags = ("-shared", "-fPIC", "-fvisibility=hidden", "-ldl", "-lpthread")
        return self._native("pool.so", ("pool.c", "program.c", "text.c", "guard.c", "lock.c"), flags)

    def _kernel(self, source: Source, support: tuple[str, ...], low_priority: bool) -> Path:
        flags = [*_KERNEL_FLAGS, *_OWN_FLAGS[self.compiler.family], "-shared", "-Wl,-z,defs"]
        libraries = ["-lgcc"] if self.compiler.family == "gcc" else []
        name = f"{Path(source.name).stem}.c"

        def compile_in(folder: Path, target: Path) -> None:
            (folder / name).write_text(source.text)
            self._run([*flags, name, *support, *libraries, "-o", str(target)], folder, low_priority)

        return self._cached("objects", self._key("kernel", *flags, source.text), ".so", compile_in)

    def _support(self) -> Path:
        text = (NATIVE / "freestanding.c").read_text()
        flags = [*_KERNEL_FLAGS, *_OWN_FLAGS[self.compiler.family], "-c"]

        def compile_in(folder: Path, target: Path) -> None:
            (folder / "freestanding.c").write_text(text)
            self._run([*flags, "freestanding.c", "-o", str(target)], folder, low_priority=False)

        return self._cached("native", self._key("support", *flags, text), ".o", compile_in)

    def _native(self, suffix: str, names: tuple[str, ...], flags: tuple[str, ...]) -> Path:
        texts = [path.read_text() for path in sorted(NATIVE.glob("*.[ch]"))]
        files = [str(NATIVE / name) for name in names]

        def compile_in(folder: Path, target: Path) -> None:
            own = ("-fno-sanitize=undefined",) if self.compiler.family == "zig" else ()
            self._run([*_HOST_FLAGS, *own, *files, *flags, "-o", str(target)], folder, low_priority=False)

        return self._cached("native", self._key(suffix, *flags, *texts), f"-{suffix}", compile_in)

    def _key(self, *parts: str) -> str:
        state = hashlib.sha256()
        for part in (*self.compiler.command, self.compiler.version, self._fingerprint, *parts):
            state.update(f"{len(part)}:{part}".encode())
        return state.hexdigest()[:32]

    def _cached(self, kind: str, key: str, suffix: str, make: Callable[[Path, Path], None]) -> Path:
        """The file of this key, made where nobody sees it half done."""
        folder = self._cache / kind / key[:2]
        path = folder / f"{key}{suffix}"
        if path.exists():
            return path
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as draft:
                target = Path(draft) / f"out{suffix}"
                make(Path(draft), target)
                os.replace(target, path)
        except OSError as error:
            raise StorageError(f"cannot write the cache {folder}: {error.strerror}") from error
        return path

    def _run(self, arguments: Sequence[str], folder: Path, low_priority: bool) -> None:
        command = [*self.compiler.command, *arguments]
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": os.environ.get("HOME", str(self._cache)),
            "TMPDIR": str(folder),
            "LC_ALL": "C",
            "ZIG_GLOBAL_CACHE_DIR": str(self._cache / "zig"),
            "ZIG_LOCAL_CACHE_DIR": str(self._cache / "zig"),
        }
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        )
        if low_priority:
            _make_low(process.pid)
        try:
            message, _ = process.communicate(timeout=_DEADLINE_SECONDS)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise BuildFailure(f"the compiler took over {_DEADLINE_SECONDS:g} s") from error
        if process.returncode != 0:
            raise BuildFailure(message.strip()[:_MOST_MESSAGE] or f"the compiler ended with {process.returncode}")


def _make_low(group: int) -> None:
    """Give a session its lowest weight. The autogroup counts, nice alone acts within one only (sched(7))."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, group, _LOWEST_PRIORITY)
    with contextlib.suppress(OSError):
        Path(f"/proc/{group}/autogroup").write_text(str(_LOWEST_PRIORITY))


def _identify(command: tuple[str, ...], origin: str) -> Compiler:
    try:
        answer = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=_DEADLINE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{origin} {shlex.join(command)}, which does not run: {error}; {REMEDY}") from error
    first = answer.stdout.splitlines()[:1]
    if answer.returncode != 0 or not first:
        raise ToolchainError(f"{origin} {shlex.join(command)}, which is no C compiler; {REMEDY}")
    if "ziglang" in command or Path(command[0]).name == "zig":
        family = "zig"
    else:
        family = "clang" if "clang" in first[0].lower() else "gcc"
    return Compiler(command, family, first[0])
