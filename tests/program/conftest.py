import pytest

from modelblaster.backends.cpu import CpuBackend


@pytest.fixture(scope="session")
def backend(tmp_path_factory):
    found = CpuBackend(threads=2, home=tmp_path_factory.mktemp("home"))
    yield found
    found.close()
