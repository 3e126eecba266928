"""The state of a slot: the deepest node of the tree whose predicates hold for its profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelblaster.knowledge.states import ROOT
from modelblaster.records.profile import Profile

if TYPE_CHECKING:
    from modelblaster.knowledge.states import StateTree

UNKNOWN = Profile()


def classify(tree: StateTree, family: str, profile: Profile | None) -> str:
    """The state's id; of equally deep nodes the first in the tree's order, and the root's empty id if none holds.

    Without a profile only the family is known.
    """
    return _deepest(tree, ROOT, family, profile or UNKNOWN)[1]


def _deepest(tree: StateTree, node: str, family: str, profile: Profile) -> tuple[int, str]:
    below = [_deepest(tree, child.id, family, profile) for child in tree.children(node) if child.holds(family, profile)]
    depth, state = max(below, key=lambda found: found[0], default=(-1, node))
    return depth + 1, state
