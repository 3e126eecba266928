"""What the emitters ask of a backend: how things are spelled in its language, and its limits."""

from __future__ import annotations

from typing import Protocol


class Dialect(Protocol):
    """Spelling and limits of one target of the SIMD emitter.

    The emitter writes loops that are strip-mined by a symbolic vector length with masked tails; a dialect says how a
    vector of a type is declared, loaded, stored and combined. Texts are C.
    """

    name: str
    language: str
    vector_bytes: int

    def prelude(self) -> str:
        """Text at the head of every source: types, loads, stores, selects. Includes nothing."""
