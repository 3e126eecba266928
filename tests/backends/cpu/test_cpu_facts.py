from __future__ import annotations

import subprocess
import sys

from modelblaster.backends.cpu import CpuBackend
from modelblaster.backends.cpu.facts import working_sets
from modelblaster.backends.cpu.machine import read_machine


def test_facts_are_measured_once(backend):
    facts = backend.facts()
    machine = backend.machine
    assert facts.device == backend.device()
    assert facts.threads == backend.threads == len(machine.cpus)
    assert 1 < facts.launch_ns < 1e6
    assert 1e8 < facts.peak_flops < 1e14
    assert {row.is_cold for row in facts.ceilings} == {True, False}
    assert all(1e8 < row.bytes_per_second < 1e13 for row in facts.ceilings)
    # A ceiling holds for everything smaller, and cold is never faster than warm.
    for is_cold in (True, False):
        rates = [row.bytes_per_second for row in facts.ceilings if row.is_cold is is_cold]
        assert rates == sorted(rates, reverse=True)
    assert facts.bandwidth(1 << 20, is_cold=False) >= facts.bandwidth(1 << 20, is_cold=True)
    assert CpuBackend(home=backend.home).facts() == facts
    assert CpuBackend(home=backend.home, threads=1).device() != facts.device


def test_working_sets_reach_twice_the_last_level():
    assert working_sets(32 << 20) == (256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
    assert working_sets(300 << 20)[-1] == 1 << 30
    assert working_sets(1 << 10) == (256 << 10,)


def test_the_machine_is_plausible():
    machine = read_machine()
    assert machine.vector_bytes in (16, 32, 64)
    assert machine.l1_bytes < machine.l2_bytes <= machine.last_level_bytes
    assert machine.cpus


def test_environment_and_dialect(backend):
    environment = dict(backend.environment())
    assert environment["device"] == backend.device()
    assert environment["compiler"]
    assert environment["isolation"] == backend.isolation()
    assert backend.dialect().vector_bytes == backend.machine.vector_bytes


def test_the_backend_is_known_without_torch():
    script = "import sys, modelblaster.backends.registry as r; r.get(r.default()); print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
