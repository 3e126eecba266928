"""ModelBlaster makes PyTorch programs faster and proves that they still compute the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modelblaster.api import load, optimize

__all__ = ["load", "optimize"]


def __getattr__(name: str) -> Any:
    # torch takes seconds to import; commands that do not need it must not pay for it.
    if name in __all__:
        from modelblaster import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
