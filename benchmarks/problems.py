"""The problems of this repository, each optimized with a budget, as one table.

    python benchmarks/problems.py [--seconds 60] [--only softmax,lstm]

Writes benchmarks/results/problems.json. Every problem counts: a kept reference is 1.0, a failure is a row.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from typing import Any

from environment import command, save

PROBLEMS = Path(__file__).parent.parent / "problems"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    rows = []
    with tempfile.TemporaryDirectory() as home:
        for path in sorted(PROBLEMS.glob("*.py")):
            if not wanted or path.stem in wanted:
                rows.append(attempt(path, options.seconds, home))
                print(json.dumps(rows[-1]), flush=True)
    strongest = [row["over_strongest"] or 1.0 for row in rows]
    summary = {
        "backend": "cpu",
        "precision": "fp32",
        "seconds": options.seconds,
        "count": len(rows),
        "verified": sum(row["verdict"] == "passed" for row in rows),
        "geomean_over_strongest": math.exp(sum(map(math.log, strongest)) / len(rows)),
        "at_least_1.5": sum(value >= 1.5 for value in strongest),
        "below_1": sum(value < 1.0 for value in strongest),
        "rows": rows,
    }
    print(save("problems", summary))


def attempt(path: Path, seconds: float, home: str) -> dict[str, Any]:
    done = command("optimize", str(path), "--seconds", str(seconds), "--json", home=home, timeout=seconds + 120)
    if done.returncode == 2:
        return {"problem": path.stem, "verdict": done.stderr.strip(), "over_eager": 1.0, "over_strongest": 1.0}
    result = json.loads(done.stdout)
    return {
        "problem": path.stem,
        "verdict": result["verdict"],
        "kind": result["best"]["kind"],
        "over_eager": result["speedup"]["over_eager"],
        "over_eager_ci95": result["speedup"]["over_eager_ci95"],
        "over_strongest": result["speedup"]["over_strongest"],
        "roofline_fraction": result["roofline_fraction"],
        "baselines": result["baselines"],
        "best": result["best"],
        "candidates": result["candidates"],
        "seconds": result["seconds"],
    }


if __name__ == "__main__":
    main()
