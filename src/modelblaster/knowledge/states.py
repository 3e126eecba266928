"""The state tree as data: nodes with predicates over a profile's metrics and a slot's family."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import resources
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from modelblaster.records.profile import Profile

ROOT = ""
_METRICS = frozenset(field.name for field in fields(Profile))


class SeedError(ValueError):
    """Seed data that makes no sense: which entry, and why."""


class Predicate(BaseModel):
    """One condition: a metric within [`at_least`, `below`), or the slot's family is a word."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: str | None = None
    at_least: float | None = None
    below: float | None = None
    fact: Literal["family"] | None = None
    equals: Annotated[str | None, Field(alias="is")] = None

    @model_validator(mode="after")
    def _is_whole(self) -> Predicate:
        if (self.metric is None) == (self.fact is None):
            raise ValueError("a predicate is about either a metric or a fact")
        if self.metric is not None:
            if self.metric not in _METRICS:
                raise ValueError(f"unknown metric {self.metric!r}")
            if self.equals is not None or (self.at_least is None and self.below is None):
                raise ValueError("a metric needs at_least or below")
        elif self.equals is None or self.at_least is not None or self.below is not None:
            raise ValueError("a fact needs is")
        return self

    def holds(self, family: str, profile: Profile) -> bool:
        """Whether it holds; a metric that is unknown fulfils nothing."""
        if self.metric is None:
            return family == self.equals
        value = getattr(profile, self.metric)
        if value is None:
            return False
        return (self.at_least is None or value >= self.at_least) and (self.below is None or value < self.below)


class State(BaseModel):
    """A node of the tree. `parent` is the root's empty id for families."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(min_length=1)]
    text: Annotated[str, Field(min_length=1)]
    parent: str = ROOT
    when: Annotated[tuple[Predicate, ...], Field(min_length=1)]

    def holds(self, family: str, profile: Profile) -> bool:
        """Whether all of its own predicates hold."""
        return all(predicate.holds(family, profile) for predicate in self.when)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    state: tuple[State, ...]


@dataclass(frozen=True)
class StateTree:
    """All states, in the order of their file."""

    states: tuple[State, ...]

    @cached_property
    def _by_id(self) -> dict[str, State]:
        return {state.id: state for state in self.states}

    def children(self, state: str) -> tuple[State, ...]:
        """The states right below one (below the root: the families), in order."""
        return tuple(node for node in self.states if node.parent == state)

    def ancestry(self, state: str) -> tuple[str, ...]:
        """A state's id and those above it, itself first; empty for the root and for unknown ids."""
        chain: list[str] = []
        while state in self._by_id:
            chain.append(state)
            state = self._by_id[state].parent
        return tuple(chain)

    def __contains__(self, state: str) -> bool:
        """Whether there is a state of this id."""
        return state in self._by_id


def parse_states(text: str) -> StateTree:
    """The tree that a TOML text describes.

    Raises:
        SeedError: malformed, an unknown metric or parent, an id twice, or parents in a circle.
    """
    try:
        states = _File.model_validate(tomllib.loads(text)).state
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise SeedError(f"states: {error}") from error
    seen: set[str] = set()
    for state in states:
        if state.id in seen:
            raise SeedError(f"state {state.id!r} is there twice")
        if state.parent != ROOT and state.parent not in seen:
            raise SeedError(f"state {state.id!r}: its parent {state.parent!r} does not come before it")
        seen.add(state.id)
    return StateTree(states)


def seed_text(name: str) -> str:
    """A file of the seed data."""
    return (resources.files("modelblaster.knowledge.seed") / name).read_text(encoding="utf-8")


def seed_states() -> StateTree:
    """The tree that comes with the package."""
    return parse_states(seed_text("states.toml"))
