"""Kill a run with SIGKILL at random moments, resume it each time: nothing finished may be lost.

    python benchmarks/kill_and_resume.py [--kills 30] [--problem FILE] [--seed 0]

After every kill the journal must still hold every step that it held before, unchanged, and every candidate that it
names must be readable; at the end the run is resumed without being killed and must finish with a verdict that passed.
Writes benchmarks/results/kill_and_resume.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from environment import save

PROBLEM = Path(__file__).parent.parent / "problems" / "row_extremes.py"
COMMAND = str(Path(sys.executable).with_name("modelblaster"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--problem", type=Path, default=PROBLEM)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as home:
        os.environ["MODELBLASTER_HOME"] = home
        words = ["optimize", str(options.problem), "--steps", str(3 * options.kills)]
        known: list[str] = []
        lost = mid_step = 0
        for kill in range(options.kills):
            before = journal_size(home)
            child = subprocess.Popen([COMMAND, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            # Loading torch takes seconds and touches nothing; the moments of interest come after it.
            while journal_size(home) == before and child.poll() is None:
                time.sleep(0.01)
            started = time.monotonic()
            moment = draw.uniform(0.0, 15.0)
            while time.monotonic() - started < moment and child.poll() is None:
                time.sleep(0.01)
            child.send_signal(signal.SIGKILL)
            _, errors = child.communicate()
            assert "Traceback" not in errors, errors
            run = next(iter(sorted((Path(home) / "runs").glob("*"))), None)
            if run is None or not (run / "task.json").exists():
                continue
            words = ["runs", "resume", run.name]
            steps = finished_steps(run)
            lost += steps[: len(known)] != known
            mid_step += is_in_a_step(run)
            known = steps
            print(f"kill {kill + 1} after {moment:.1f} s: {len(known)} steps finished", flush=True)
        done = subprocess.run([COMMAND, *words, "--json"], capture_output=True, text=True)
        result = json.loads(done.stdout)
        final = finished_steps(run)
        lost += final[: len(known)] != known
    record = {
        "problem": options.problem.stem,
        "kills": options.kills,
        "kills_inside_a_step": mid_step,
        "steps_finished_before_the_last_kill": len(known),
        "steps_in_the_end": len(final),
        "times_something_finished_was_lost": lost,
        "verdict": result["verdict"],
    }
    print(json.dumps(record))
    print(save("kill_and_resume", record))


def journal_size(home: str) -> int:
    return sum(path.stat().st_size for path in (Path(home) / "runs").glob("*/journal.jsonl"))


def finished_steps(run: Path) -> list[str]:
    """The finished steps of a journal as text; each one's candidate must be whole."""
    steps = []
    for line in (run / "journal.jsonl").read_text().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # the line that the kill cut
        if entry["type"] == "StepFinished":
            digest = entry["event"]["outcome"]["candidate"]
            assert json.loads((run / "candidates" / f"{digest}.json").read_text())["digest"] == digest
            steps.append(line)
    return steps


def is_in_a_step(run: Path) -> bool:
    kinds = [line.split('"', 4)[3] for line in (run / "journal.jsonl").read_text().splitlines() if line.count('"') > 4]
    return bool(kinds) and kinds[-1] == "StepStarted"


if __name__ == "__main__":
    main()
