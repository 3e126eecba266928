"""A candidate is data: kernel sources and a plan, never host code."""

from __future__ import annotations

from dataclasses import dataclass

from modelblaster.records.plan import Plan


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel source file. `language` is a word of the backend that builds it (`c`, `opencl-c`, …)."""

    name: str
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """An implementation of one slot (or of a whole program), with where it came from.

    `claims` are the properties that its technique promises to be visible in the built object (`wide_simd`,
    `streaming_stores`); the judge checks them. `schedule` is the emitter's schedule as JSON text, `digest` the
    content hash (`records.codec.digest`) of sources and plan.
    """

    digest: str
    sources: tuple[Source, ...]
    plan: Plan
    author: str
    technique: str | None = None
    parent: str | None = None
    claims: tuple[str, ...] = ()
    schedule: str = ""
