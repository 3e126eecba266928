"""Why a result may be believed."""

from __future__ import annotations

from dataclasses import dataclass

from modelblaster.records.timing import Comparison
from modelblaster.records.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Evidence:
    """The final verdict with its cases and seeds, and the paired timing; None where nothing was measured."""

    verdict: Verdict
    comparison: Comparison | None
