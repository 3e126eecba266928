"""How a worker is kept apart: bubblewrap where it works, and what the worker locks by itself in any case."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TRIAL_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Starts commands in an empty root. Without `bwrap` (a path) commands start as they are."""

    bwrap: str | None

    def command(
        self,
        command: Sequence[str],
        *,
        readable: Sequence[Path],
        has_proc: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The argument list that runs `command` where only `readable` paths exist, under their own names.

        With `has_proc` there are /proc, a small /dev and an empty /tmp as well, for runtimes that need them.
        `environment` is all that the command finds set; without bubblewrap the caller starts it so.
        The process dies with the thread that started it. Inherited descriptors stay open.
        """
        if self.bwrap is None:
            return list(command)
        words = [self.bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
        for name, value in (environment or {}).items():
            words += ["--setenv", name, value]
        if has_proc:
            words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        for path in dict.fromkeys(map(str, readable)):
            words += ["--ro-bind", path, path]
        return [*words, "--chdir", "/", "--", *command]

    def describe(self) -> str:
        """What surrounds a worker, in words for the result."""
        return "bubblewrap" if self.bwrap else "no bubblewrap"


def find_sandbox() -> Sandbox:
    """Bubblewrap from PATH, if a trial shows that it works here (user namespaces may be off)."""
    bwrap = shutil.which("bwrap")
    return Sandbox(bwrap if bwrap and _works(bwrap) else None)


def libraries_of(executable: Path) -> tuple[Path, ...]:
    """The dynamic loader and the shared libraries that an executable starts with."""
    listing = subprocess.run(["ldd", str(executable)], capture_output=True, text=True, timeout=_TRIAL_SECONDS)
    words = [word for line in listing.stdout.splitlines() for word in line.split() if word.startswith("/")]
    return tuple(Path(word) for word in words if word != str(executable))


def _works(bwrap: str) -> bool:
    root = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--"]
    try:
        trial = subprocess.run([*root, "true"], capture_output=True, timeout=_TRIAL_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return trial.returncode == 0
