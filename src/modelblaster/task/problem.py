"""A reference program to optimize: from a problem file, from an attribute of a module, or from a live module.

A problem file is KernelBench's form: a class `Model`, `get_inputs()` and, where the class takes arguments,
`get_init_inputs()`. `module:attribute` names a module object, or a class or function that makes one without arguments,
in an importable module that also has `get_inputs()`; `module:Model` is made as in a problem file.
"""

from __future__ import annotations

import copy
import importlib
import os
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from modelblaster.errors import OverrideError, ProblemError
from modelblaster.records.task import Mode, ProblemSource, SourceKind
from modelblaster.task.arguments import checked_inputs, checked_module, copied, kind_of
from modelblaster.task.execution import Executed, execute, guarded
from modelblaster.task.overrides import apply_overrides, parse_overrides
from modelblaster.task.surroundings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Problem:
    """A reference program that can be made again and again, each time the same for the same seed.

    `source` says how to rebuild it in another process. `construct` and `generate` are the problem's own code; use
    `module` and `inputs`, which run it seeded and restore the process behind it.
    """

    source: ProblemSource
    construct: Callable[[], object]
    generate: Callable[[], object]
    settings: Settings | None
    folder: Path | None

    def module(self, mode: Mode = Mode.EVAL, seed: int = 0) -> nn.Module:
        """A new reference module, its parameters drawn with this seed. A live module's copy keeps its weights.

        Raises:
            ProblemError: constructing it failed, or what came is no `torch.nn.Module` on the CPU.
        """
        made = guarded("making the model", self.source.location, self.folder, self.settings, self.construct, seed)
        return checked_module(made, self.source.location).train(mode is Mode.TRAIN)

    def inputs(self, seed: int = 0) -> list[Any]:
        """Positional arguments of one call, drawn with this seed: tensors, and anything else as it is given.

        Raises:
            ProblemError: `get_inputs()` failed or did not return a list or tuple of CPU values.
        """
        made = guarded("get_inputs()", self.source.location, self.folder, self.settings, self.generate, seed)
        return checked_inputs(made, self.source.location)


def load_problem(target: str, overrides: Sequence[str] = ()) -> Problem:
    """The problem that a person names: a path of a problem file, or `module:attribute`.

    Raises:
        ProblemError: there is no such file or attribute, or it cannot be used as a problem.
        OverrideError: a `--set` that does not fit.
    """
    pairs = parse_overrides(overrides)
    if not _is_attribute(target):
        location = os.path.abspath(os.path.expanduser(target))
        text = apply_overrides(_read(location, target), pairs, location=location)
        return rebuild(ProblemSource(SourceKind.FILE, location, text, pairs))
    if pairs:
        raise OverrideError(f"--set {pairs[0][0]}: only the constants of a problem file can be set, not of {target}")
    return rebuild(ProblemSource(SourceKind.ATTRIBUTE, target))


def rebuild(source: ProblemSource) -> Problem:
    """The problem of a run or artifact, from what its record says. A file's text is taken from the record.

    Raises:
        ProblemError: it does not load, or it was a live module, which only the program that made it can give.
    """
    if source.kind is SourceKind.FILE:
        return _from_file(source)
    if source.kind is SourceKind.ATTRIBUTE:
        return _from_attribute(source)
    raise ProblemError(
        f"{source.location} was given as a live module and cannot be rebuilt from its record; pass the module itself"
    )


def from_module(module: nn.Module, example_inputs: Sequence[Any]) -> Problem:
    """The problem of a live module and one call's positional arguments; both are copied, the originals stay untouched.

    Every seed gives the same weights and inputs: those that were passed.

    Raises:
        ProblemError: not a module, not a list or tuple of arguments, not on the CPU, or not to be copied.
    """
    name = f"{type(module).__module__}.{type(module).__qualname__}"
    checked_module(module, name)
    inputs = copied(checked_inputs(example_inputs, name), name)
    return Problem(
        source=ProblemSource(SourceKind.PYTHON, name),
        construct=lambda: copied(module, name),
        generate=lambda: copy.deepcopy(inputs),
        settings=None,
        folder=None,
    )


def _is_attribute(target: str) -> bool:
    module, colon, attribute = target.partition(":")
    if not colon or os.path.exists(target):
        return False
    if module.endswith(".py"):
        raise ProblemError(
            f"{target}: an attribute is named by its module, as in package.module:{attribute or 'Model'}"
        )
    return all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def _read(path: str, target: str) -> str:
    # Unlike pathlib's, these questions never raise, whatever a person types.
    if os.path.isdir(path):
        raise ProblemError(f"{target} is a folder; name a problem file in it")
    if not os.path.exists(path):
        raise ProblemError(f"{target}: no such file; name a problem file or MODULE:ATTRIBUTE")
    if not os.path.isfile(path):
        raise ProblemError(f"{target} is not a regular file")
    try:
        with tokenize.open(path) as file:
            return file.read()
    except OSError as error:
        raise ProblemError(f"{target}: {error.strerror}") from error
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ProblemError(f"{target}: not a Python file: {error}") from error


def _from_file(source: ProblemSource) -> Problem:
    executed = execute(source.text, source.location)
    location, names = source.location, vars(executed.module)
    model = names.get("Model")
    if not isinstance(model, type) or not issubclass(model, nn.Module):
        is_missing = model is None
        raise ProblemError(
            f"{location}: {'no class Model' if is_missing else 'Model is no subclass of torch.nn.Module'}; "
            "a problem file has a class Model, get_inputs() and, where Model takes arguments, get_init_inputs()"
        )
    return _composed(source, model, executed, takes_arguments=True)


def _composed(
    source: ProblemSource, made_by: Callable[..., object] | nn.Module, executed: Executed, *, takes_arguments: bool
) -> Problem:
    names = vars(executed.module)
    generate = names.get("get_inputs")
    if not callable(generate):
        raise ProblemError(f"{executed.location}: no function get_inputs() that returns the list of the model's inputs")
    initial = names.get("get_init_inputs")

    def construct() -> object:
        if isinstance(made_by, nn.Module):
            return copied(made_by, executed.location)
        arguments = initial() if takes_arguments and callable(initial) else ()
        if not isinstance(arguments, list | tuple):
            what = f"get_init_inputs() returned {kind_of(arguments)}, not a list"
            raise ProblemError(f"{executed.location}: {what}")
        return made_by(*arguments)

    return Problem(source, construct, generate, executed.settings, executed.folder)


def _from_attribute(source: ProblemSource) -> Problem:
    module_name, _, attribute = source.location.partition(":")
    here = Path.cwd()

    def run() -> Executed:
        module = importlib.import_module(module_name)
        return Executed(module, Settings.current(), source.location, here)

    try:
        executed = guarded(f"importing {module_name}", source.location, here, None, run)
    except ProblemError as error:
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and module_name.startswith(missing.name or "?"):
            raise ProblemError(
                f"{source.location}: no module {missing.name} here or among the packages of {sys.executable}"
            ) from error
        raise
    value: object = executed.module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise ProblemError(f"{source.location}: {module_name} has no attribute {attribute}")
        value = getattr(value, part)
    if not callable(value):
        raise ProblemError(
            f"{source.location}: {attribute} is {kind_of(value)}, no torch.nn.Module nor a way to make one"
        )
    return _composed(source, value, executed, takes_arguments=attribute == "Model")
