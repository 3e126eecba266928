"""Every operator that nests cover: the tables of `kernels.rules`, joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelblaster.kernels.rules import activations, maps, norms, reductions, views

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelblaster.kernels.rules.scope import Rule

RULES: Mapping[str, Rule] = {
    **maps.RULES,
    **activations.RULES,
    **reductions.RULES,
    **norms.RULES,
    **views.RULES,
}

VIEWS = frozenset(views.RULES)
"""Operators that only rename dimensions: free in a nest, and nothing to do by themselves."""


def covers(overload: str) -> bool:
    """Whether a nest may hold this ATen overload; its arguments can still make it refuse."""
    return overload in RULES
