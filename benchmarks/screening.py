"""How many candidates are built and screened per second on a 16 MB softmax, and whether equal commands agree.

    python benchmarks/screening.py [--seconds 40] [--runs 3]

Runs `optimize` on problems/softmax.py, then `verify` on its artifact as often as asked: the final times of the same
kernel are compared as a ratio with eager, timed in pairs beside it. Each command starts with an empty cache of
objects. Writes benchmarks/results/screening.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from environment import command, save

PROBLEM = Path(__file__).parent.parent / "problems" / "softmax.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        done = command("optimize", str(PROBLEM), "--seconds", str(options.seconds), "--json", home=home, timeout=200)
        result = json.loads(done.stdout)
        (run,) = (Path(home) / "runs").glob("*")
        entries = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
        outcomes = [entry["event"]["outcome"] for entry in entries if entry["type"] == "StepFinished"]
        screened = [outcome["seconds"] for outcome in outcomes if outcome["verdict"]["stage"] == "screen"]
        medians, ratios = [], []
        for _ in range(options.runs):
            again = command("verify", str(PROBLEM), str(run / "best"), "--json", home=home, timeout=200)
            evidence = json.loads(again.stdout)
            medians.append(evidence["evidence"]["comparison"]["candidate"]["median_ns"])
            ratios.append(evidence["over_eager"])
    record = {
        "backend": "cpu",
        "problem": "softmax",
        "result": result["speedup"],
        "candidates": result["candidates"],
        "screened_only": len(screened),
        "screens_per_second": len(screened) / sum(screened) if screened else None,
        "final_median_ns": medians,
        "final_spread": max(medians) / min(medians) - 1,
        "over_eager": ratios,
        "over_eager_spread": max(ratios) / min(ratios) - 1,
    }
    print(json.dumps(record, indent=1))
    print(save("screening", record))


if __name__ == "__main__":
    main()
