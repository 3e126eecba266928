"""The judge of one run: nothing else may say that a candidate is right or fast.

The order is cheapest first, and the first failure ends it. Whatever a candidate does wrong becomes a verdict; the only
exception that leaves is ReferenceFailure, when the reference itself cannot be asked any more.
"""

from __future__ import annotations

import math
import secrets
import time
from typing import TYPE_CHECKING

from modelblaster.backends.interface import RunFailure
from modelblaster.judge.cases import Case, Kind, derived_seed, secret_cases, standard_cases
from modelblaster.judge.evidence import Evidence, Prepared
from modelblaster.judge.stopwatch import BASELINES, QUICK_SAMPLES, Stopwatch
from modelblaster.judge.timing import Protocol, calls_for, timing
from modelblaster.judge.trial import Trial, failed_case
from modelblaster.records.verdict import CaseResult, Cause, Stage, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch

    from modelblaster.backends.interface import Backend, Build
    from modelblaster.judge.reference import ReferenceProcess
    from modelblaster.judge.subject import Subject
    from modelblaster.records.candidate import Candidate
    from modelblaster.records.facts import Facts
    from modelblaster.records.task import Precision
    from modelblaster.records.timing import Comparison, Timing

# Fewer cases than this and nothing is proved: the reference stays.
FEWEST_CASES = 3
SECRET_CASES = 25
SECRET_SECONDS = 5.0
# A screen's ring is not larger than this: filling it costs more than the kernel takes.
_SCREEN_RING_BYTES = 96 << 20


class Judge:
    """Verdicts and timings for one run, on one backend and in one precision tier.

    `seed` decides the cases of screens and verifications; finalists also meet cases from a secret seed that is drawn
    here. `remeasure` measures the ceilings anew: it is asked before a time is refused as impossible. Once the cases of
    a subject took `preparation_seconds` (float64 is slow on large programs), the rest is set aside, but for the fewest
    that prove anything; `until` is the moment of the clock at which even those are.
    """

    def __init__(
        self,
        backend: Backend,
        reference: ReferenceProcess,
        precision: Precision,
        seed: int,
        *,
        remeasure: Callable[[], Facts] | None = None,
        compile_seconds: float = 60.0,
        preparation_seconds: float = math.inf,
        until: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._seed = seed
        self._secret = secrets.randbits(62)
        self._clock = clock
        self._cases = standard_cases(seed)
        self._preparation_seconds = preparation_seconds
        self._until = until
        self._spent: dict[str, float] = {}
        self._skipped: dict[str, set[Case]] = {}
        self._evidence = Evidence(reference, precision, seed)
        self._watch = Stopwatch(
            backend, reference, self._evidence, seed, remeasure=remeasure, compile_seconds=compile_seconds
        )

    def screen(self, subject: Subject, candidate: Candidate, build: Build) -> tuple[Verdict, Timing | None]:
        """Claims, one case, and a quick timing (protocol `screen`) if that passes.

        Raises:
            ReferenceFailure: the reference cannot be asked.
        """
        refused = _refusal(subject, candidate, build, Stage.SCREEN)
        if refused is not None:
            return refused, None
        usable = next((p for p in self._prepared(subject) if p.set_aside is None), None)
        if usable is None:
            return self._unjudgeable(subject, Stage.SCREEN), None
        sets = self._watch.sets(subject, max_bytes=_SCREEN_RING_BYTES)
        results: list[CaseResult] = []
        try:
            with self._trial(subject, candidate, build, usable, sets=sets) as trial:
                result, outputs = trial.judge(usable)
                results.append(result)
                if result.cause is not Cause.PASSED:
                    return _verdict(result.cause, Stage.SCREEN, results), None
                return self._quick(subject, trial, usable, _copied(outputs), results)
        except RunFailure as failure:
            results.append(failed_case(usable, failure))
            return _verdict(failure.cause, Stage.SCREEN, results), None

    def verify(self, subject: Subject, candidate: Candidate, build: Build, *, final: bool) -> Verdict:
        """Every case, equal calls, other contents at the same place; finalists also meet secret seeds.

        Raises:
            ReferenceFailure: the reference cannot be asked.
        """
        stage = Stage.FINAL if final else Stage.FULL
        refused = _refusal(subject, candidate, build, stage)
        if refused is not None:
            return refused
        first = next((p for p in self._prepared(subject) if p.set_aside is None), None)
        if first is None:
            return self._unjudgeable(subject, stage)
        results: list[CaseResult] = []
        try:
            with self._trial(subject, candidate, build, first, sets=1) as trial:
                return self._verified(subject, candidate, trial, stage, results)
        except RunFailure as failure:
            # Not in a case: the worker did not come up.
            results.append(failed_case(first, failure))
            return _verdict(failure.cause, stage, results)

    def compare(
        self,
        subject: Subject,
        candidate: Candidate,
        build: Build,
        *,
        final: bool,
        seconds: float = 10.0,
        exclusive: bool = False,
        baseline: str = "eager",
    ) -> Comparison | Verdict:
        """Paired timing of a verified candidate against `eager` or `compile`; a verdict where it fails while timed.

        `seconds` bound both sides together. Finals flush the caches before each sample. `exclusive` says that the
        caller keeps the machine free of other work; it is noted in the timing.

        Raises:
            ReferenceFailure: the reference cannot be asked, or there is no such baseline.
        """
        stage = Stage.FINAL if final else Stage.FULL
        first = next((p for p in self._prepared(subject) if p.set_aside is None), None)
        if first is None:
            return self._unjudgeable(subject, stage)
        sets = self._watch.sets(subject)
        try:
            with self._trial(subject, candidate, build, first, sets=sets, extra_seconds=seconds) as trial:
                found = self._watch.compare(
                    subject, trial, final=final, seconds=seconds, exclusive=exclusive, baseline=baseline
                )
        except RunFailure as failure:
            return Verdict(failure.cause, stage, f"while timed: {failure.detail}")
        return found if not isinstance(found, str) else Verdict(_timed_cause(found), stage, found)

    def baselines(
        self, subject: Subject, names: Sequence[str] = BASELINES, *, seconds: float = 3.0
    ) -> dict[str, Timing]:
        """Timings of what this subject is compared with, by name; those that are missing are in `unavailable`.

        Raises:
            ReferenceFailure: the reference cannot be asked.
        """
        return self._watch.baselines(subject, names, seconds=seconds)

    def eager(self, subject: Subject, *, seconds: float) -> Timing:
        """The time of the reference alone, on the ring that candidates are screened on.

        Raises:
            ReferenceFailure: the reference cannot be asked.
        """
        return self._watch.eager(subject, seconds=seconds, max_ring_bytes=_SCREEN_RING_BYTES)

    def ring_bytes(self, subject: Subject) -> int:
        """Bytes that screens walk over."""
        return self._watch.sets(subject, max_bytes=_SCREEN_RING_BYTES) * subject.set_bytes

    def unavailable(self, subject: Subject) -> Mapping[str, str]:
        """Baselines that could not be had, with the reason."""
        return self._watch.unavailable(subject)

    def set_aside(self, subject: Subject) -> tuple[CaseResult, ...]:
        """The cases that cannot be used for this subject, with the reason.

        Raises:
            ReferenceFailure: the reference cannot be asked.
        """
        return tuple(_aside(prepared) for prepared in self._prepared(subject) if prepared.set_aside is not None)

    def _prepared(self, subject: Subject) -> Iterator[Prepared]:
        """Every case in order; those for which there was no time once stay set aside."""
        skipped = self._skipped.setdefault(subject.key, set())
        usable = 0
        for case in self._cases:
            is_late = self._spent.get(subject.key, 0.0) > self._preparation_seconds and usable >= FEWEST_CASES
            is_late = is_late or self._clock() > self._until
            if case in skipped or (is_late and not self._evidence.has(subject, case)):
                skipped.add(case)
                yield Prepared(case, set_aside="there was no time to prepare it")
                continue
            start = self._clock()
            prepared = self._evidence.prepared(subject, case)
            self._spent[subject.key] = self._spent.get(subject.key, 0.0) + self._clock() - start
            usable += prepared.set_aside is None
            yield prepared

    def _trial(
        self,
        subject: Subject,
        candidate: Candidate,
        build: Build,
        first: Prepared,
        *,
        sets: int,
        extra_seconds: float = 0.0,
    ) -> Trial:
        deadline = min(30.0, 5.0 + 100.0 * first.eager_seconds) + extra_seconds
        return Trial(self._backend, subject, candidate.plan, build, sets=sets, deadline_seconds=deadline)

    def _quick(
        self,
        subject: Subject,
        trial: Trial,
        prepared: Prepared,
        outputs: Mapping[str, torch.Tensor],
        results: list[CaseResult],
    ) -> tuple[Verdict, Timing | None]:
        """A handful of samples around the ring."""
        trial.fill_ring(prepared.tensors)
        calls = calls_for(min(trial.session.time(2)))
        samples = trial.session.time(QUICK_SAMPLES, calls=calls)
        walked = min(trial.sets, 2 + QUICK_SAMPLES * calls)
        problem = trial.after_timing(outputs, (0, trial.sets - 1) if walked == trial.sets else (0,))
        if problem is not None:
            return Verdict(Cause.NONDETERMINISTIC, Stage.SCREEN, problem, tuple(results)), None
        environment = (*self._backend.environment(), ("sets", str(trial.sets)), ("calls", str(calls)))
        found = timing(samples, Protocol("screen", environment, self._seed))
        suspicion = self._watch.suspicion(subject, found, trial.sets, is_cold=False)
        if suspicion is not None:
            return Verdict(Cause.SUSPECT, Stage.SCREEN, suspicion, tuple(results)), None
        return _verdict(Cause.PASSED, Stage.SCREEN, results), found

    def _verified(
        self, subject: Subject, candidate: Candidate, trial: Trial, stage: Stage, results: list[CaseResult]
    ) -> Verdict:
        first: tuple[Prepared, Mapping[str, torch.Tensor]] | None = None
        kinds: list[Kind] = []
        for prepared in self._prepared(subject):
            if prepared.set_aside is not None:
                results.append(_aside(prepared))
                continue
            outputs = _judge_into(results, trial, prepared)
            if outputs is None:
                return _verdict(results[-1].cause, stage, results)
            kinds.append(prepared.case.kind)
            if first is None:
                first = (prepared, _copied(outputs))
                problem = _repeated(trial, first, 2)
                if problem is not None:
                    return _unsteady(problem, stage, results)
        if first is None or len(kinds) < FEWEST_CASES:
            return _too_few(stage, results)
        problem = _repeated(trial, first, 1)
        if problem is not None:
            return _unsteady(f"after other inputs, {problem}", stage, results)
        if stage is Stage.FINAL and not self._survives_secrets(subject, candidate, trial, kinds, results):
            return _verdict(results[-1].cause, stage, results)
        return _verdict(Cause.PASSED, stage, results)

    def _survives_secrets(
        self, subject: Subject, candidate: Candidate, trial: Trial, kinds: list[Kind], results: list[CaseResult]
    ) -> bool:
        """Cases that nobody could know, as many as fit the time; sizes are part of the plan and stay as they are."""
        end = self._clock() + SECRET_SECONDS
        distinct = tuple(dict.fromkeys(kinds))
        for case in secret_cases(derived_seed(self._secret, candidate.digest), distinct, SECRET_CASES):
            if self._clock() > end:
                break
            prepared = self._evidence.prepared(subject, case, keep=False)
            if prepared.set_aside is not None:
                results.append(_aside(prepared))
            elif _judge_into(results, trial, prepared) is None:
                return False
        return True

    def _unjudgeable(self, subject: Subject, stage: Stage) -> Verdict:
        return _too_few(stage, list(self.set_aside(subject)))


def _refusal(subject: Subject, candidate: Candidate, build: Build, stage: Stage) -> Verdict | None:
    """What needs no run: another border than the subject's, and claims that the built code does not keep."""
    problem = subject.border_problem(candidate.plan)
    if problem is not None:
        return Verdict(Cause.WRONG, stage, problem)
    unmet = [claim for claim in candidate.claims if claim not in build.properties]
    if unmet:
        return Verdict(Cause.CLAIM_UNMET, stage, f"the built code does not show {', '.join(unmet)}")
    return None


def _judge_into(results: list[CaseResult], trial: Trial, prepared: Prepared) -> Mapping[str, torch.Tensor] | None:
    """Judge one case and note the result; the outputs, or None if it is not passed."""
    try:
        result, outputs = trial.judge(prepared)
    except RunFailure as failure:
        results.append(failed_case(prepared, failure))
        return None
    results.append(result)
    return outputs if result.cause is Cause.PASSED else None


def _repeated(trial: Trial, first: tuple[Prepared, Mapping[str, torch.Tensor]], times: int) -> str | None:
    return trial.repeats(first[0], first[1], times)


def _unsteady(problem: str, stage: Stage, results: list[CaseResult]) -> Verdict:
    return Verdict(Cause.NONDETERMINISTIC, stage, problem, tuple(results))


def _too_few(stage: Stage, results: list[CaseResult]) -> Verdict:
    reasons = [f"{result.case}: {result.set_aside}" for result in results if result.set_aside is not None]
    detail = f"fewer than {FEWEST_CASES} cases can be judged ({'; '.join(reasons)})"
    return Verdict(Cause.UNJUDGEABLE, stage, detail, tuple(results))


def _verdict(cause: Cause, stage: Stage, results: list[CaseResult]) -> Verdict:
    failed = next((result for result in results if result.cause is not Cause.PASSED and not result.set_aside), None)
    detail = f"case {failed.case}: {failed.detail}" if failed is not None else ""
    return Verdict(cause, stage, detail, tuple(results))


def _aside(prepared: Prepared) -> CaseResult:
    case: Case = prepared.case
    return CaseResult(case.name, case.seed, Cause.UNJUDGEABLE, set_aside=prepared.set_aside)


def _timed_cause(problem: str) -> Cause:
    return Cause.SUSPECT if "physics" in problem else Cause.NONDETERMINISTIC


def _copied(outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in outputs.items()}
