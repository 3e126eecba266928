"""What the package can do, as functions: optimize, resume, verify, load."""

from __future__ import annotations

import time
import warnings
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelblaster.backends import registry
from modelblaster.backends.interface import BuildFailure
from modelblaster.errors import ArtifactError, ProblemError
from modelblaster.judge.judge import Judge
from modelblaster.judge.reference import ReferenceFailure, ReferenceProcess
from modelblaster.loaded import LoadedModule
from modelblaster.model.keeping import border_of, constants_of
from modelblaster.model.optimization import Optimization
from modelblaster.model.reference import load_reference
from modelblaster.program.capture import state_of
from modelblaster.program.slots import specs_of
from modelblaster.records.evidence import Evidence
from modelblaster.records.plan import Role
from modelblaster.records.task import Budget, Mode, Precision, Task
from modelblaster.records.timing import Comparison
from modelblaster.runs import artifact as artifacts
from modelblaster.runs.home import home as user_home
from modelblaster.runs.run import Run, create
from modelblaster.runs.state import RunState
from modelblaster.task.problem import Problem, from_module, rebuild

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from modelblaster.backends.interface import Backend
    from modelblaster.records.result import Result
    from modelblaster.runs.artifact import Artifact
    from modelblaster.search.events import Sink

_VERIFY_COMPARE_SECONDS = 10.0


def _nowhere(_: object) -> None:
    """Takes the events of a run that nobody watches."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a person can choose; `backend` None takes the first that works here, `home` None the user's data folder."""

    backend: str | None = None
    precision: Precision = Precision.FP32
    mode: Mode = Mode.EVAL
    budget: Budget = field(default_factory=lambda: Budget(seconds=60.0))
    seed: int = 0
    home: Path | None = None


def require_backend(name: str) -> None:
    """Refuse a backend that does not exist, before anything else is loaded.

    Raises:
        BackendError: there is none of this name; the message lists those there are.
    """
    registry.get(name)


def optimize(
    module: torch.nn.Module,
    example_inputs: Sequence[Any],
    *,
    backend: str | None = None,
    precision: str = "fp32",
    mode: str = "eval",
    seconds: float | None = 60.0,
    steps: int | None = None,
    seed: int = 0,
) -> Result:
    """Search for a faster implementation of a module for inputs of these shapes.

    `seconds` and `steps` bound the search, whichever ends first. Neither module nor inputs are changed. The result
    names the artifact, of which `load(result.artifact, module)` makes a module; None where the reference is kept.

    Raises:
        UserError: the module, the inputs or this machine cannot be used; the message says what to do.
    """
    started = time.monotonic()
    options = Options(backend, Precision(precision), Mode(mode), Budget(seconds, steps), seed)
    return optimize_problem(from_module(module, example_inputs), options, started=started)


def optimize_problem(
    problem: Problem, options: Options, *, sink: Sink = _nowhere, started: float | None = None
) -> Result:
    """Optimize a problem in a new run; events go to the run's journal and to `sink`.

    `started` is the reading of `time.monotonic` that the budget counts from.

    Raises:
        UserError: the problem or this machine cannot be used.
    """
    name = options.backend or registry.default()
    backend = registry.get(name)
    home = options.home or user_home()
    task = Task(problem.source, name, options.precision, options.mode, options.seed, options.budget)
    run = create(home, task)
    began = time.monotonic() if started is None else started
    return Optimization(problem, run, RunState(), backend, home=home, sink=sink, started=began).result()


def resume(
    path: Path, *, module: torch.nn.Module | None = None, example_inputs: Sequence[Any] = (), sink: Sink = _nowhere
) -> Result:
    """Go on with a run where it was interrupted; a finished run's result is returned as it is.

    A run of a module that was given in Python needs `module` and `example_inputs` again.

    Raises:
        UserError: the run cannot be read, or its problem cannot be rebuilt.
    """
    started = time.monotonic()
    run = Run(path)
    state = run.state()
    if state.result is not None:
        return state.result
    task = run.task()
    problem = rebuild(task.problem) if module is None else from_module(module, example_inputs)
    home = path.parent.parent
    backend = registry.get(task.backend)
    return Optimization(problem, run, state, backend, home=home, sink=sink, started=started).result()


def verify(problem: Problem, path: Path) -> tuple[Artifact, Evidence]:
    """Judge an artifact against a problem, with all cases and fresh secret seeds, and time it beside eager.

    Raises:
        ArtifactError: it is damaged, or an artifact of another program.
        ProblemError: the reference does not run or cannot be captured.
    """
    artifact = artifacts.read(path)
    task = artifact.manifest.task
    backend = registry.get(task.backend)
    reference = load_reference(
        problem, Task(problem.source, task.backend, task.precision, task.mode, task.seed, task.budget)
    )
    if reference.captured is None or reference.subject is None:
        raise ProblemError(f"nothing can be compared with this problem: {reference.refusal}")
    difference = reference.subject.border_problem(artifact.candidate.plan)
    if difference is not None or border_of(reference.captured) != artifact.manifest.border:
        raise ArtifactError(
            f"{path} is an artifact of another program ({artifact.manifest.task.problem.location}): "
            f"{difference or 'its inputs, outputs or constants differ'}"
        )
    try:
        build = backend.build(artifact.candidate.sources)
        with closing(backend), ReferenceProcess(threads=backend.facts().threads) as process:
            judge = Judge(backend, process, task.precision, task.seed, remeasure=backend.remeasure)
            verdict = judge.verify(reference.subject, artifact.candidate, build, final=True)
            if not verdict.passed:
                return artifact, Evidence(verdict, None)
            found = judge.compare(
                reference.subject, artifact.candidate, build, final=True, seconds=_VERIFY_COMPARE_SECONDS
            )
    except BuildFailure as failure:
        raise ArtifactError(f"{path} does not build here: {failure}") from failure
    except ReferenceFailure as failure:
        raise ProblemError(f"the reference does not run: {failure}") from failure
    return artifact, Evidence(verdict, found) if isinstance(found, Comparison) else Evidence(found, None)


def load(path: str | Path, module: torch.nn.Module | None = None) -> LoadedModule:
    """The optimized program as a module, with the reference inside for everything outside its guards.

    The reference is rebuilt from the artifact's own record; `module` gives it instead (needed where a module was
    optimized in Python). On another device than it was proved on, kernels are built from source and checked again.

    Raises:
        ArtifactError: it is damaged, or of another program than `module`.
        ProblemError: the reference cannot be rebuilt.
    """
    artifact = artifacts.read(Path(path))
    manifest = artifact.manifest
    problem = rebuild(manifest.task.problem) if module is None else None
    reference = problem.module(manifest.task.mode, manifest.task.seed) if problem is not None else module
    assert reference is not None
    _require_state(reference, artifact)
    backend = registry.get(manifest.task.backend)
    objects = artifacts.objects_for(artifact, backend.device())
    is_new_device = objects is None
    if objects is None:
        objects = _rebuilt(artifact, backend)
    constants = constants_of(manifest.border, artifact.constants)
    plan = artifact.candidate.plan
    reload = partial(load, str(artifact.path.absolute()))
    loaded = LoadedModule(reference, plan, manifest.border, constants, backend.load(plan, objects), reload)
    if is_new_device:
        _check_again(problem, artifact, backend)
    return loaded


def _require_state(module: torch.nn.Module, artifact: Artifact) -> None:
    """The module must have the parameters that the plan reads."""
    state = state_of(module)
    constants = {spec.name for spec in artifact.manifest.border.constants}
    for name, spec in specs_of(artifact.candidate.plan.named(Role.PARAMETER, Role.MUTATED)).items():
        if name in constants:
            continue
        found = state.get(name)
        if found is None or tuple(found.shape) != spec.shape:
            what = "lacks it" if found is None else f"has it as {tuple(found.shape)}"
            raise ArtifactError(
                f"{artifact.path} is an artifact of another program: it reads {name} {spec.shape}, the module {what}"
            )


def _rebuilt(artifact: Artifact, backend: Backend) -> tuple[Path, ...]:
    try:
        return backend.build(artifact.candidate.sources).objects
    except BuildFailure as failure:
        raise ArtifactError(f"{artifact.path} does not build on this device: {failure}") from failure


def _check_again(problem: Problem | None, artifact: Artifact, backend: Backend) -> None:
    """A device that the artifact was not proved on: compare with the reference on the problem's inputs, and say so."""
    what = f"{artifact.path} was proved on {artifact.manifest.device}, this is {backend.device()}"
    if problem is None:
        warnings.warn(f"modelblaster: {what}; check its results here", stacklevel=3)
        return
    _, evidence = verify(problem, artifact.path)
    if not evidence.verdict.passed:
        raise ArtifactError(
            f"{what}, and here it is refused: {evidence.verdict.cause.value}, {evidence.verdict.detail}"
        )
    warnings.warn(f"modelblaster: {what}; it was built and proved again, its speed may differ", stacklevel=3)
