"""Every KernelBench file of levels 1 to 3 must end in a verdict or be refused with one clear line.

    python benchmarks/kernelbench_sweep.py CHECKOUT [--fit FIT.csv] [--levels 1,2,3] [--seconds 5] [--only 1:23,2:7]

CHECKOUT is the folder that holds level1, level2, level3. FIT.csv has the columns level, id and changed
(space-separated NAME=VALUE), which are passed through --set. Results go on where they stopped: one line of JSON for
each file in benchmarks/results/kernelbench_sweep.jsonl, and the counts in kernelbench_sweep.json.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import queue
import re
import subprocess
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from environment import RESULTS, command, save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--fit", type=Path)
    parser.add_argument("--levels", default="1,2,3")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1, help="files at a time, each on its own part of the processors")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    options = parser.parse_args()
    log = RESULTS / "kernelbench_sweep.jsonl"
    RESULTS.mkdir(exist_ok=True)
    if options.fresh:
        log.unlink(missing_ok=True)
    rows = (
        {(row["level"], row["id"]): row for row in map(json.loads, log.read_text().splitlines())}
        if log.exists()
        else {}
    )
    fit = read_fit(options.fit)
    only = set(filter(None, options.only.split(",")))
    wanted = [
        (level, number, path)
        for level, number, path in problems(options.checkout, options.levels.split(","))
        if (f"{level}:{number}" in only if only else (level, number) not in rows)
    ]
    cpus = sorted(os.sched_getaffinity(0))
    share = len(cpus) // options.jobs
    groups: queue.Queue[list[int]] = queue.Queue()
    for job in range(options.jobs):
        groups.put(cpus[job * share : (job + 1) * share] if options.jobs > 1 else [])

    def work(problem: tuple[int, int, Path]) -> dict[str, Any]:
        level, number, path = problem
        group = groups.get()
        try:
            found = attempt(path, fit.get((level, number), []), options.seconds, home, group)
        finally:
            groups.put(group)
        return {"level": level, "id": number, "name": path.stem, **found}

    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(work, wanted):
            rows[row["level"], row["id"]] = row
            log.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
            words = (row["level"], row["id"], row["outcome"], row.get("speedup"), f"{row['wall_seconds']:.1f} s")
            print(*words, row["detail"][:120], flush=True)
    summarize(list(rows.values()), options.seconds)


def problems(checkout: Path, levels: list[str]) -> list[tuple[int, int, Path]]:
    found = []
    for level in map(int, levels):
        files = (checkout / f"level{level}").glob("*.py")
        found += [(level, int(path.stem.partition("_")[0]), path) for path in files]
    return sorted(found)


def read_fit(path: Path | None) -> dict[tuple[int, int], list[str]]:
    if path is None:
        return {}
    with path.open() as file:
        rows = list(csv.DictReader(file))
    # A value may hold spaces: only those before another NAME= separate.
    return {
        (int(row["level"]), int(row["id"])): re.split(r" (?=\w+=)", row["changed"]) if row["changed"] else []
        for row in rows
    }


def attempt(path: Path, constants: list[str], seconds: float, home: str, cpus: list[int]) -> dict[str, Any]:
    """One file through the command. Anything but a verdict or one refusing line is a failure of ours."""
    settings = [part for constant in constants for part in ("--set", constant)]
    start = time.monotonic()
    try:
        done = command(
            "optimize",
            str(path),
            *settings,
            "--seconds",
            str(seconds),
            "--json",
            home=home,
            timeout=seconds + 120,
            cpus=cpus,
        )
    except subprocess.TimeoutExpired:
        return {"outcome": "hung", "detail": "", "wall_seconds": time.monotonic() - start}
    wall = time.monotonic() - start
    lines = done.stderr.strip().splitlines()
    if "Traceback" in done.stderr or done.returncode not in (0, 1, 2):
        return {"outcome": "traceback", "detail": " | ".join(lines[-3:]), "wall_seconds": wall}
    if done.returncode == 2:
        outcome = "refused" if len(lines) == 1 else "refused in many lines"
        return {"outcome": outcome, "detail": lines[-1] if lines else "", "wall_seconds": wall}
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return {"outcome": "no result", "detail": " | ".join(lines[-3:]), "wall_seconds": wall}
    return {
        "outcome": result["verdict"],
        "detail": result["reason"],
        "wall_seconds": wall,
        "kind": (result["best"] or {}).get("kind"),
        "speedup": result["speedup"]["over_eager"],
        "steps": result["steps"],
    }


def summarize(rows: list[dict[str, Any]], seconds: float) -> None:
    counts = {f"level{level}": Counter(row["outcome"] for row in rows if row["level"] == level) for level in (1, 2, 3)}
    late = [f"{row['level']}:{row['id']}" for row in rows if row["wall_seconds"] > seconds + 15]
    print(counts, "over time:", late)
    save(
        "kernelbench_sweep", {"seconds": seconds, "counts": counts, "files": len(rows), "over_time": late, "rows": rows}
    )


if __name__ == "__main__":
    main()
