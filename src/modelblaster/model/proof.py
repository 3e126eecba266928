"""The whole program with its slots' best: assembled, proved, timed against the reference; bisected where it loses.

A slot keeps a candidate on its own timing, but what is handed out is a program, and only its own time counts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelblaster.backends.interface import BuildFailure
from modelblaster.judge.reference import ReferenceFailure
from modelblaster.program.assemble import assemble
from modelblaster.records.evidence import Evidence
from modelblaster.records.timing import Comparison
from modelblaster.records.verdict import Cause, Stage, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelblaster.backends.interface import Backend, Build
    from modelblaster.judge.judge import Judge
    from modelblaster.model.reference import Reference
    from modelblaster.records.candidate import Candidate

AUTHOR = "assembly"
# Time that one more assembly needs to be worth starting.
_LEAST_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Proof:
    """One assembled program and what the judge says of it. `comparison` is with eager, None where it was refused."""

    candidate: Candidate
    build: Build | None
    verdict: Verdict
    comparison: Comparison | None

    @property
    def is_win(self) -> bool:
        """Whether it is right and surely faster than the reference."""
        return self.verdict.passed and self.comparison is not None and self.comparison.is_win

    @property
    def evidence(self) -> Evidence:
        """What an artifact carries."""
        return Evidence(self.verdict, self.comparison)


class Prover:
    """Assembles and judges whole programs until a moment (`until`, of `time.monotonic`; None for no bound)."""

    def __init__(
        self, reference: Reference, judge: Judge, backend: Backend, *, until: float | None, compare_seconds: float
    ) -> None:
        self._reference = reference
        self._judge = judge
        self._backend = backend
        self._until = until
        self._compare_seconds = compare_seconds

    def best(self, chosen: Mapping[str, Candidate], gains_ns: Mapping[str, float]) -> Proof | None:
        """The program with all chosen candidates, or with the half of them that gains most while it does not win.

        `gains_ns` is what each slot saves on its own. None where there is nothing to assemble.
        """
        ranked = sorted(chosen, key=lambda key: -gains_ns.get(key, 0.0))
        proof: Proof | None = None
        while ranked:
            proof = self._prove({key: chosen[key] for key in ranked})
            if proof.is_win or len(ranked) == 1 or self._left() < _LEAST_SECONDS:
                return proof
            ranked = ranked[: len(ranked) // 2]
        return proof

    def _prove(self, chosen: Mapping[str, Candidate]) -> Proof:
        reference = self._reference
        assert reference.captured is not None
        assert reference.subject is not None
        candidate = assemble(reference.captured.plan, reference.slots, chosen, author=AUTHOR)
        try:
            build = self._backend.build(candidate.sources)
        except BuildFailure as failure:
            return Proof(candidate, None, Verdict(Cause.BUILD_FAILED, Stage.FINAL, str(failure)), None)
        try:
            verdict = self._judge.verify(reference.subject, candidate, build, final=True)
            if not verdict.passed:
                return Proof(candidate, build, verdict, None)
            seconds = min(self._compare_seconds, max(0.5, self._left()))
            found = self._judge.compare(
                reference.subject, candidate, build, final=True, seconds=seconds, exclusive=True
            )
        except ReferenceFailure as failure:
            return Proof(candidate, build, Verdict(Cause.UNJUDGEABLE, Stage.FINAL, str(failure)), None)
        if isinstance(found, Comparison):
            return Proof(candidate, build, verdict, found)
        return Proof(candidate, build, found, None)

    def _left(self) -> float:
        return float("inf") if self._until is None else self._until - time.monotonic()
