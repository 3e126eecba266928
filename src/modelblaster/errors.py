"""What a person can do wrong, one class each; the message says what to do next. Commands exit with code 2."""

from __future__ import annotations


class UserError(Exception):
    """Wrong use: reported as one clear line, exit code 2, no traceback."""


class ProblemError(UserError):
    """The problem file or module cannot be used as it is."""


class OverrideError(UserError):
    """A `--set name=value` that does not fit the file."""


class BackendError(UserError):
    """The chosen backend is unknown or cannot work on this machine."""


class ToolchainError(UserError):
    """No compiler that can build kernels was found."""


class StorageError(UserError):
    """The home or run folder cannot be read or written (missing rights, full disk)."""


class ArtifactError(UserError):
    """An artifact that is damaged, tampered with, or of another program."""


class RunError(UserError):
    """A run that does not exist or cannot be resumed."""
