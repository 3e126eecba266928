"""Techniques as data: named ways to change code, and in which states they are tried."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from modelblaster.knowledge.states import SeedError, seed_states, seed_text

if TYPE_CHECKING:
    from modelblaster.knowledge.states import StateTree


class Technique(BaseModel):
    """A way to change code.

    `text` is for people and language models, `move` the name of the scripted actor's move (None where it has none),
    `claims` what must be visible in the built object.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    text: Annotated[str, Field(min_length=1)]
    states: Annotated[tuple[str, ...], Field(min_length=1)]
    move: str | None = None
    claims: tuple[str, ...] = ()


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    technique: tuple[Technique, ...]


@dataclass(frozen=True, slots=True)
class Techniques:
    """All techniques, in the order of their file."""

    tree: StateTree
    techniques: tuple[Technique, ...]

    def applicable(self, state: str) -> tuple[Technique, ...]:
        """What may help in a state: its own techniques, then those of the states above it, each once."""
        found: dict[str, Technique] = {}
        for node in self.tree.ancestry(state):
            for technique in self.techniques:
                if node in technique.states:
                    found.setdefault(technique.name, technique)
        return tuple(found.values())


def parse_techniques(text: str, tree: StateTree) -> Techniques:
    """The techniques that a TOML text describes.

    Raises:
        SeedError: malformed, a name twice, or a state that the tree does not have.
    """
    try:
        techniques = _File.model_validate(tomllib.loads(text)).technique
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise SeedError(f"techniques: {error}") from error
    seen: set[str] = set()
    for technique in techniques:
        if technique.name in seen:
            raise SeedError(f"technique {technique.name!r} is there twice")
        seen.add(technique.name)
        unknown = [state for state in technique.states if state not in tree]
        if unknown:
            raise SeedError(f"technique {technique.name!r}: unknown states {', '.join(unknown)}")
    return Techniques(tree, techniques)


def seed_techniques() -> Techniques:
    """The techniques that come with the package, over its state tree."""
    return parse_techniques(seed_text("techniques.toml"), seed_states())
