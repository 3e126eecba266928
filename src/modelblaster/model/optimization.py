"""One command's work on a run: load, measure, search, prove, keep. The order of everything stands in `result`."""

from __future__ import annotations

import math
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from modelblaster.agents.scripted import ScriptedActor
from modelblaster.errors import ProblemError
from modelblaster.judge.judge import Judge
from modelblaster.judge.reference import ReferenceFailure, ReferenceProcess
from modelblaster.judge.stopwatch import BASELINES
from modelblaster.knowledge.memory import Memory
from modelblaster.knowledge.store import store_at
from modelblaster.knowledge.techniques import seed_techniques
from modelblaster.model.bench import JudgeBench
from modelblaster.model.bounded import bounded
from modelblaster.model.keeping import keep
from modelblaster.model.proof import Prover
from modelblaster.model.reference import load_reference
from modelblaster.model.summary import Findings, summarize
from modelblaster.records.timing import Comparison
from modelblaster.search.budget import Budget
from modelblaster.search.events import (
    BaselineMeasured,
    ProgramVerified,
    RunFinished,
    RunResumed,
    RunStarted,
    fan_out,
)
from modelblaster.search.loop import search
from modelblaster.search.opening import open_slots
from modelblaster.search.parts import Parts

if TYPE_CHECKING:
    from pathlib import Path

    from modelblaster.backends.interface import Backend
    from modelblaster.judge.subject import Subject
    from modelblaster.model.proof import Proof
    from modelblaster.model.reference import Reference
    from modelblaster.records.result import Result
    from modelblaster.runs.run import Run
    from modelblaster.runs.state import RunState
    from modelblaster.search.events import Event, Sink
    from modelblaster.search.progress import SlotProgress
    from modelblaster.task.problem import Problem

# The command ends within its seconds and this much more: the last proof may need it.
GRACE_SECONDS = 11.0
# What the search leaves to the last proof: a part of the budget, and not more than this.
_PROOF_PART, _PROOF_SECONDS = 0.15, 10.0
# A budget that loading has used up is overrun by this much, so that every program sees a candidate.
_LEAST_SEARCH_SECONDS = 3.0
# torch.compile takes 5 to 20 seconds on a small program: a budget below this has no room for it.
_COMPILE_FROM_SECONDS = 40.0
_COMPILE_PART, _COMPILE_SECONDS = 0.25, 90.0
_BASELINE_PART, _BASELINE_SECONDS = 0.1, 3.0
_COMPARE_SECONDS = 10.0
_SLOT_COMPARE_PART, _SLOT_COMPARE_SECONDS = 0.05, 2.0
# Of the budget, for the cases of one subject.
_PREPARATION_PART = 0.25


class Optimization:
    """The work on one run, from where `state` says that an earlier command left it."""

    def __init__(
        self, problem: Problem, run: Run, state: RunState, backend: Backend, *, home: Path, sink: Sink, started: float
    ) -> None:
        self._problem = problem
        self._run = run
        self._task = run.task()
        self._state = state
        self._backend = backend
        self._home = home
        self._sink = sink
        self._started = started
        self._facts = backend.facts()

    def result(self) -> Result:
        """Do everything.

        Raises:
            UserError: the problem, the machine or the storage cannot be used.
        """
        budget = self._budget(leaves_proof=False)
        with (
            closing(self._backend),
            self._run.open_journal(budget.elapsed) as journal,
            ReferenceProcess(threads=self._facts.threads, deadline_seconds=self._patience()) as process,
        ):
            emit = fan_out(journal.append, self._sink)
            emit(self._opening())
            reference = bounded(
                self._left(),
                "loading and tracing the program",
                lambda: load_reference(self._problem, self._task),
            )
            findings = Findings(self._run, self._task, reference, self._facts, self._backend.isolation())
            if reference.subject is not None:
                self._optimize(reference, reference.subject, process, findings, emit)
            result = summarize(findings, seconds=budget.elapsed())
            emit(RunFinished(result))
        return result

    def _optimize(
        self, reference: Reference, subject: Subject, process: ReferenceProcess, findings: Findings, emit: Sink
    ) -> None:
        judge = Judge(
            self._backend,
            process,
            self._task.precision,
            self._task.seed,
            remeasure=self._backend.remeasure,
            compile_seconds=self._compile_seconds(),
            preparation_seconds=_PREPARATION_PART * (self._task.budget.seconds or math.inf),
            until=time.monotonic() + (self._left() or math.inf),
        )
        try:
            self._measure_baselines(judge, subject, findings, emit)
        except ReferenceFailure as failure:
            raise ProblemError(f"the reference does not run: {failure}") from failure
        findings.slots = self._search(reference, judge, findings, emit)
        findings.proof = self._prove(reference, judge, findings)
        if findings.proof is not None:
            emit(ProgramVerified(findings.proof.candidate.digest, findings.proof.verdict, findings.proof.comparison))
            self._run.save(findings.proof.candidate)
            if findings.proof.is_win:
                findings.over_compiled = self._against_compiled(judge, subject, findings)
                if findings.is_win:
                    findings.artifact = keep(self._run, self._task, reference, findings.proof, self._backend)

    def _opening(self) -> Event:
        if self._state.task is not None:
            return RunResumed(self._run.name, self._state.seconds, self._state.steps)
        return RunStarted(self._run.name, self._task, self._backend.device(), self._backend.isolation())

    def _measure_baselines(self, judge: Judge, subject: Subject, findings: Findings, emit: Sink) -> None:
        known = dict(self._state.baselines)
        seconds = max(0.25, min(_BASELINE_SECONDS, _BASELINE_PART * (self._task.budget.seconds or math.inf)) / 2)
        for name in BASELINES:
            if name not in known:
                timing = judge.baselines(subject, (name,), seconds=seconds).get(name)
                known[name] = BaselineMeasured(name, timing, judge.unavailable(subject).get(name, ""))
                emit(known[name])
        findings.eager, findings.compiled = known["eager"].timing, known["compile"].timing

    def _search(self, reference: Reference, judge: Judge, findings: Findings, emit: Sink) -> list[SlotProgress]:
        budget = self._budget(leaves_proof=True)

        def counted(event: Event) -> None:
            emit(event)
            findings.count(event)

        findings.counts = self._state.counts
        with store_at(self._home) as store:
            parts = Parts(
                actor=ScriptedActor(self._backend.dialect(), self._facts),
                bench=JudgeBench(reference, judge, self._backend, compare_seconds=self._compare_seconds()),
                memory=Memory(store, run=self._run.name, backend=self._task.backend, device=self._backend.device()),
                archive=self._run,
                techniques=seed_techniques(),
                emit=counted,
                device=self._backend.device(),
                seed=self._task.seed,
            )
            slots = open_slots(parts, reference.slots, budget, self._state if self._state.task else None)
            search(parts, slots, budget)
        findings.steps = budget.steps
        return slots

    def _prove(self, reference: Reference, judge: Judge, findings: Findings) -> Proof | None:
        kept = {slot.key: slot for slot in findings.slots if slot.best is not None}
        if not kept:
            return None
        gains = {
            key: slot.occurrences * (slot.reference.median_ns if slot.reference else 0.0) * (1.0 - 1.0 / slot.speedup)
            for key, slot in kept.items()
        }
        left = self._left()
        until = None if left is None else time.monotonic() + left
        seconds = _COMPARE_SECONDS if left is None else min(_COMPARE_SECONDS, max(1.0, left / 3))
        prover = Prover(reference, judge, self._backend, until=until, compare_seconds=seconds)
        return prover.best({key: slot.best.candidate for key, slot in kept.items() if slot.best}, gains)

    def _against_compiled(self, judge: Judge, subject: Subject, findings: Findings) -> float | None:
        """The speedup over torch.compile, where that is the strongest; timed in pairs while there is time."""
        proof = findings.proof
        eager, compiled = findings.eager, findings.compiled
        if compiled is None or eager is None or compiled.median_ns >= eager.median_ns:
            return None
        assert proof is not None
        assert proof.build is not None
        assert proof.comparison is not None
        left = self._left()
        if left is None or left > _COMPARE_SECONDS / 2:
            seconds = _COMPARE_SECONDS / 2
            found = judge.compare(
                subject, proof.candidate, proof.build, final=True, seconds=seconds, exclusive=True, baseline="compile"
            )
            if isinstance(found, Comparison):
                return found.speedup
        return proof.comparison.speedup * compiled.median_ns / eager.median_ns

    def _budget(self, *, leaves_proof: bool) -> Budget:
        granted = self._task.budget
        if leaves_proof and granted.seconds is not None:
            reserve = min(_PROOF_PART * granted.seconds, _PROOF_SECONDS)
            used = self._state.seconds + time.monotonic() - self._started
            least = min(used + _LEAST_SEARCH_SECONDS, granted.seconds + GRACE_SECONDS / 2)
            granted = replace(granted, seconds=max(granted.seconds - reserve, least))
        return Budget(
            granted,
            time.monotonic,
            started=self._started,
            seconds_before=self._state.seconds,
            steps_before=self._state.steps,
        )

    def _left(self) -> float | None:
        """Seconds until the command has to come to its end; None without a bound."""
        if self._task.budget.seconds is None:
            return None
        used = self._state.seconds + time.monotonic() - self._started
        return max(0.5, self._task.budget.seconds + GRACE_SECONDS - used)

    def _patience(self) -> float:
        """How long a single call of the reference may take."""
        return min(120.0, self._left() or 120.0)

    def _compare_seconds(self) -> float:
        """For one comparison of a slot's candidate with its reference."""
        part = _SLOT_COMPARE_PART * (self._task.budget.seconds or math.inf)
        return min(_SLOT_COMPARE_SECONDS, max(0.5, part))

    def _compile_seconds(self) -> float:
        seconds = self._task.budget.seconds
        if seconds is None:
            return _COMPILE_SECONDS
        return 0.0 if seconds < _COMPILE_FROM_SECONDS else min(_COMPILE_SECONDS, _COMPILE_PART * seconds)
