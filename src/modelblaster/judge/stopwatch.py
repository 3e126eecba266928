"""Loads rings of inputs on both sides and times them; refuses what physics does not allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelblaster.judge import physics, statistics
from modelblaster.judge.cases import Case, Kind, derived_seed
from modelblaster.judge.evidence import CASE_SET, Evidence
from modelblaster.judge.reference import ReferenceFailure, ReferenceProcess
from modelblaster.judge.timing import Protocol, calls_for, paired, sets_for, timing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from modelblaster.backends.interface import Backend
    from modelblaster.judge.subject import Subject
    from modelblaster.judge.trial import Trial
    from modelblaster.records.facts import Facts
    from modelblaster.records.timing import Comparison, Timing

QUICK_SAMPLES = 7
BASELINES = ("eager", "compile")
# Before each sample of a final timing, so many last-level caches are written over.
_FLUSH_CACHES = 2
_FEWEST_SAMPLES = 3
_MOST_SAMPLES = 50


class Stopwatch:
    """The timings of one run."""

    def __init__(
        self,
        backend: Backend,
        reference: ReferenceProcess,
        evidence: Evidence,
        seed: int,
        *,
        remeasure: Callable[[], Facts] | None,
        compile_seconds: float,
    ) -> None:
        self._backend = backend
        self._reference = reference
        self._evidence = evidence
        self._seed = seed
        self._remeasure = remeasure
        self._compile_seconds = compile_seconds
        self._facts: Facts | None = None
        self._ring: tuple[object, ...] = ()
        self._unavailable: dict[str, dict[str, str]] = {}

    def sets(self, subject: Subject, *, max_bytes: int | None = None) -> int:
        """Sets in the subject's ring."""
        limit = {} if max_bytes is None else {"max_bytes": max_bytes}
        return sets_for(subject.set_bytes, self._ceilings(), **limit)

    def unavailable(self, subject: Subject) -> Mapping[str, str]:
        """Baselines that could not be had, with the reason."""
        return self._unavailable.get(subject.key, {})

    def suspicion(self, subject: Subject, found: Timing, sets: int, *, is_cold: bool) -> str | None:
        """Why a time is below physics, measured anew before it is refused; None if it is possible."""
        if subject.work is None:
            return None
        reach = sets * subject.set_bytes
        facts = self._ceilings()
        if not physics.is_suspect(found, subject.work, facts, working_set_bytes=reach, is_cold=is_cold):
            return None
        if self._remeasure is not None:
            facts = self._facts = self._remeasure()
            if not physics.is_suspect(found, subject.work, facts, working_set_bytes=reach, is_cold=is_cold):
                return None
        bound = physics.lower_bound_ns(subject.work, facts, working_set_bytes=reach, is_cold=is_cold)
        return f"{found.median_ns:.0f} ns is below physics: {bound:.0f} ns are needed at least"

    def baselines(self, subject: Subject, names: Sequence[str], *, seconds: float) -> dict[str, Timing]:
        """These comparators, each alone, for up to an equal part of the time."""
        sets = self.sets(subject)
        self._load_ring(subject, sets)
        found: dict[str, Timing] = {}
        for name in names:
            if name != "eager" and self._compile_seconds <= 0.0:
                self._unavailable.setdefault(subject.key, {})[name] = "the budget has no room for torch.compile"
                continue
            samples, environment = self._alone(subject, name, sets, seconds / len(names))
            if samples:
                found[name] = timing(samples, Protocol("alone", (*self._environment(sets), *environment), self._seed))
        return found

    def eager(self, subject: Subject, *, seconds: float, max_ring_bytes: int) -> Timing:
        """Eager alone, on a ring of this size."""
        sets = self.sets(subject, max_bytes=max_ring_bytes)
        self._load_ring(subject, sets)
        samples, environment = self._alone(subject, "eager", sets, seconds)
        return timing(samples, Protocol("alone", (*self._environment(sets), *environment), self._seed))

    def compare(
        self, subject: Subject, trial: Trial, *, final: bool, seconds: float, exclusive: bool, baseline: str
    ) -> Comparison | str:
        """Paired timing of a trial; a sentence where its timed calls are not the ones that were checked."""
        sets = trial.sets
        tensors = self._load_ring(subject, sets)
        first = {name: tensor.clone() for name, tensor in trial.run(tensors).items()}
        trial.fill_ring(tensors)
        flush_bytes = _FLUSH_CACHES * self._ceilings().last_level_bytes if final else 0
        ring = tuple(range(CASE_SET + 1, CASE_SET + 1 + sets))
        walked = 0

        def reference_side(samples: int, calls: int) -> Sequence[float]:
            found = self._reference.time(
                subject.key, baseline, samples, sets=ring, calls=calls, flush_bytes=flush_bytes,
                compile_seconds=self._compile_seconds,
            )  # fmt: skip
            if found.unavailable:
                raise ReferenceFailure(found.unavailable, is_alive=True)
            return found.samples_ns

        def candidate_side(samples: int, calls: int) -> Sequence[float]:
            nonlocal walked
            walked += samples * calls
            return trial.session.time(samples, calls=calls, flush=final)

        notes = (("exclusive", str(exclusive).lower()), ("flush", str(final).lower()))
        protocol = Protocol("final" if final else "paired", (*self._environment(sets), *notes), self._seed)
        found = paired(
            reference_side, candidate_side, seconds=seconds, protocol=protocol,
            baseline_environment=(("baseline", baseline),),
        )  # fmt: skip
        problem = trial.after_timing(first, (0, sets - 1) if walked >= sets else (0,))
        return problem or self.suspicion(subject, found.candidate, sets, is_cold=final) or found

    def _alone(
        self, subject: Subject, name: str, sets: int, seconds: float
    ) -> tuple[tuple[float, ...], tuple[tuple[str, str], ...]]:
        ring = tuple(range(CASE_SET + 1, CASE_SET + 1 + sets))
        first = self._reference.time(subject.key, name, 2, sets=ring, compile_seconds=self._compile_seconds)
        if first.unavailable:
            self._unavailable.setdefault(subject.key, {})[name] = first.unavailable
            return (), ()
        once = statistics.median(first.samples_ns)
        calls = calls_for(once)
        samples = int(seconds * 1e9 / (once * calls))
        if samples <= _FEWEST_SAMPLES:
            more: tuple[float, ...] = first.samples_ns
        else:
            count = min(samples, _MOST_SAMPLES)
            more = self._reference.time(subject.key, name, count, sets=ring, calls=calls).samples_ns
        notes = (("baseline", name), ("calls", str(calls)), ("compile_seconds", f"{first.compile_seconds:.1f}"))
        return more, notes

    def _load_ring(self, subject: Subject, sets: int) -> Mapping[str, torch.Tensor]:
        """The shipped inputs and parameters in every set of the reference's ring (where they are not there yet)."""
        case = Case(Kind.SHIPPED, derived_seed(self._seed, "shipped", 1), keeps_parameters=True)
        tensors = self._evidence.drawer(subject).draw(case)
        ring = (subject.key, sets, self._reference.generation, self._evidence.writes)
        if ring != self._ring:
            inputs = {spec.name: tensors[spec.name] for spec in subject.inputs}
            for index in range(CASE_SET + 1, CASE_SET + 1 + sets):
                self._reference.load(subject.key, index, tensors if index == CASE_SET + 1 else inputs)
            self._ring = (subject.key, sets, self._reference.generation, self._evidence.writes)
        return tensors

    def _environment(self, sets: int) -> tuple[tuple[str, str], ...]:
        return (*self._backend.environment(), ("sets", str(sets)))

    def _ceilings(self) -> Facts:
        if self._facts is None:
            self._facts = self._backend.facts()
        return self._facts
