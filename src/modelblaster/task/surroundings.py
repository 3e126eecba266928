"""The state of the process that a problem file may change, kept apart from everybody else's.

A file may print, seed generators, set torch's default type or device, or switch gradients off. What it set while it was
imported holds whenever its own code runs again, and nowhere else.
"""

from __future__ import annotations

import contextlib
import random
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """torch's switches that a problem file may turn for itself."""

    dtype: torch.dtype
    device: torch.device
    gradients: bool
    matmul_precision: str | None
    deterministic: bool

    @classmethod
    def current(cls) -> Settings:
        """As they are now."""
        return cls(
            dtype=torch.get_default_dtype(),
            device=torch.get_default_device(),
            gradients=torch.is_grad_enabled(),
            matmul_precision=_matmul_precision(),
            deterministic=torch.are_deterministic_algorithms_enabled(),
        )

    def apply(self) -> None:
        """Make them so; nothing is touched that is so already."""
        now = Settings.current()
        if now.dtype != self.dtype:
            torch.set_default_dtype(self.dtype)
        if now.device != self.device:
            # A default device of "cpu" would stay as a mode around every call; none at all means the same.
            torch.set_default_device(None if self.device.type == "cpu" else self.device)
        if now.gradients != self.gradients:
            torch.set_grad_enabled(self.gradients)
        if self.matmul_precision is not None and now.matmul_precision != self.matmul_precision:
            torch.set_float32_matmul_precision(self.matmul_precision)
        if now.deterministic != self.deterministic:
            torch.use_deterministic_algorithms(self.deterministic)


def _matmul_precision() -> str | None:
    """torch's word for it; None where somebody set it by backend, which torch refuses to sum up in one word."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


@contextlib.contextmanager
def visiting(folder: Path | None, settings: Settings | None = None) -> Iterator[None]:
    """Run a problem's own code: under its settings, with modules beside it importable, its prints on standard error.

    Settings, import path and generators' states are afterwards as they were before.
    """
    before, path = Settings.current(), list(sys.path)
    if folder is not None:
        sys.path.insert(0, str(folder))
    try:
        with contextlib.redirect_stdout(sys.stderr), _generators_kept():
            if settings is not None:
                settings.apply()
            yield
    finally:
        sys.path[:] = path
        before.apply()


def seed_generators(seed: int) -> None:
    """Seed the generators of torch, numpy and Python; used inside `visiting`, which restores them."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


@contextlib.contextmanager
def _generators_kept() -> Iterator[None]:
    python, numpy, generator = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(generator)
