"""What a figure needs beside it: the machine, the versions, the date."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).parent / "results"


def environment() -> dict[str, Any]:
    """Machine, versions and date of this run."""
    import torch

    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit,
    }


def save(name: str, record: dict[str, Any]) -> Path:
    """Write a result with its environment."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"environment": environment(), **record}, indent=1) + "\n")
    return path


def command(*arguments: str, home: str, timeout: float, cpus: Sequence[int] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command as a person would, in a home of its own; on these processors only, where some are given."""
    pinned = ["taskset", "-c", ",".join(map(str, cpus))] if cpus else []
    return subprocess.run(
        [*pinned, sys.executable, "-m", "modelblaster", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "MODELBLASTER_HOME": home},
    )
