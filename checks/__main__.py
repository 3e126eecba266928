"""Runs every house rule over the package: `python -m checks`, with `--record` to write down the ratchet's counts."""

from __future__ import annotations

import sys
from pathlib import Path

from checks.backend_names import named_backends
from checks.ratchet import counts, risen, write
from checks.rooms import broken_imports
from checks.sizes import too_large
from checks.source import read_package

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_name("ratchet.toml")


def main(arguments: list[str]) -> int:
    """Print what is broken; 1 if anything is."""
    package, own = read_package(ROOT / "src"), read_package(ROOT / "checks")
    if "--record" in arguments:
        write(RECORD, counts(package))
    findings = [
        *broken_imports(package),
        *too_large((*package, *own)),
        *named_backends(package),
        *risen(package, RECORD),
    ]
    for finding in findings:
        print(finding)
    print(f"house rules: {len(package)} modules, {len(findings)} findings")
    return 1 if findings else 0


sys.exit(main(sys.argv[1:]))
