"""Which backends there are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from modelblaster.errors import BackendError

if TYPE_CHECKING:
    from modelblaster.backends.interface import Backend

# In the order of preference, each with the module and class that implements it.
_BACKENDS = {"cpu": ("modelblaster.backends.cpu", "CpuBackend")}


def names() -> tuple[str, ...]:
    """The names that `get` knows, best first."""
    return tuple(_BACKENDS)


def get(name: str) -> Backend:
    """A backend by name, with its defaults.

    Raises:
        BackendError: there is no such backend.
    """
    if name not in _BACKENDS:
        raise BackendError(f"there is no backend {name!r}; known are: {', '.join(_BACKENDS)}")
    module, attribute = _BACKENDS[name]
    return cast("Backend", getattr(import_module(module), attribute)())


def default() -> str:
    """The first backend that can work on this machine.

    Raises:
        BackendError: none can; the message says what to install.
    """
    missing: list[str] = []
    for name in _BACKENDS:
        unmet = [need for need in get(name).requirements() if need.is_required and not need.is_met]
        if not unmet:
            return name
        missing += [f"{name} needs {need.name}: {need.remedy or need.detail}" for need in unmet]
    raise BackendError("no backend can work here; " + "; ".join(missing))
