"""What this backend needs on a machine, and what to install where it is missing."""

from __future__ import annotations

import ctypes
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from modelblaster.backends.cpu.toolchain import REMEDY, find_compiler
from modelblaster.backends.interface import Requirement
from modelblaster.errors import ToolchainError

if TYPE_CHECKING:
    from modelblaster.backends.cpu.sandbox import Sandbox

_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION_FLAG = 1


def requirements(sandbox: Sandbox) -> tuple[Requirement, ...]:
    """Each thing with its state. Only the compiler and torch are needed; the rest keeps candidates apart better."""
    return (_compiler(), _bubblewrap(sandbox), _landlock(), _seccomp(), _torch())


def _compiler() -> Requirement:
    try:
        detail, is_met = find_compiler().version, True
    except ToolchainError as error:
        detail, is_met = str(error), False
    return Requirement("compiler", is_met, is_required=True, detail=detail, remedy="" if is_met else REMEDY)


def _bubblewrap(sandbox: Sandbox) -> Requirement:
    is_met = sandbox.bwrap is not None
    detail = sandbox.bwrap or "not on PATH, or user namespaces are off: candidates see the machine's name and processes"
    remedy = "" if is_met else "apt install bubblewrap"
    return Requirement("bubblewrap", is_met, is_required=False, detail=detail, remedy=remedy)


def _landlock() -> Requirement:
    library = ctypes.CDLL(None, use_errno=True)
    found = library.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_VERSION_FLAG)
    detail = f"version {found}" if found > 0 else "the kernel does not have it or it is switched off"
    remedy = "" if found > 0 else "a kernel from 5.13 on with landlock in its list of security modules"
    return Requirement("landlock", found > 0, is_required=False, detail=detail, remedy=remedy)


def _seccomp() -> Requirement:
    try:
        actions = Path("/proc/sys/kernel/seccomp/actions_avail").read_text().split()
    except OSError:
        actions = []
    is_met = "kill_process" in actions
    detail = "filters with kill_process" if is_met else "the kernel has no system call filters"
    return Requirement(
        "seccomp",
        is_met,
        is_required=False,
        detail=detail,
        remedy="" if is_met else "a kernel with CONFIG_SECCOMP_FILTER",
    )


def _torch() -> Requirement:
    try:
        return Requirement("torch", is_met=True, is_required=True, detail=version("torch"))
    except PackageNotFoundError:
        return Requirement("torch", is_met=False, is_required=True, detail="not installed", remedy="pip install torch")
