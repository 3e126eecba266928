from __future__ import annotations

import pytest

from modelblaster.backends.cpu import CpuBackend
from modelblaster.backends.cpu.sandbox import Sandbox


@pytest.fixture(scope="session")
def cpu_home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def backend(cpu_home):
    """The backend as this machine has it."""
    return CpuBackend(home=cpu_home)


@pytest.fixture(scope="session", params=["sandboxed", "plain"])
def any_backend(request, cpu_home, backend):
    """With bubblewrap (where it works) and without."""
    if request.param == "plain":
        return CpuBackend(home=cpu_home, sandbox=Sandbox(None))
    if backend.sandbox.bwrap is None:
        pytest.skip("bubblewrap does not work here")
    return backend
