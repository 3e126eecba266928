"""Statistics, rings, paired blocks and physics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from judge_fakes import FakeBackend

from modelblaster.judge import physics, statistics
from modelblaster.judge.timing import Protocol, calls_for, paired, sets_for, timing
from modelblaster.records.facts import Ceiling, Facts
from modelblaster.records.profile import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelblaster.records.timing import Comparison, Timing


def test_interval_covers_the_median_and_repeats() -> None:
    samples = list(np.random.default_rng(0).normal(100, 5, size=200))
    low, high = statistics.interval(samples, seed=1)
    assert low < statistics.median(samples) < high
    assert high - low < 5
    assert statistics.interval(samples, seed=1) == (low, high)
    with pytest.raises(ValueError, match="no samples"):
        statistics.median([])


def test_ratio_of_pairs_survives_a_drift_that_ruins_medians() -> None:
    """The machine slows down fourfold in the middle; each pair sees the same machine."""
    generator = np.random.default_rng(0)
    speeds = [1.0] * 7 + [4.0] * 6
    base = [list(200 * s * generator.normal(1, 0.01, 5)) for s in speeds]
    fast = [list(100 * s * generator.normal(1, 0.01, 5)) for s in speeds]
    value, (low, high) = statistics.ratio(base, fast)
    assert 1.97 < low <= value <= high < 2.03
    value, (low, high) = statistics.ratio(base[:1], fast[:1])
    assert low <= value <= high
    with pytest.raises(ValueError, match="both sides"):
        statistics.ratio(base, fast[:-1])


class Machine:
    """A clock that moves only when something is timed."""

    def __init__(self, noise: float = 0.01) -> None:
        self.now = 0.0
        self.order: list[str] = []
        self._noise = noise
        self._random = np.random.default_rng(0)

    def side(self, name: str, nanoseconds: float) -> Callable[[int, int], list[float]]:
        def take(samples: int, calls: int) -> list[float]:
            self.order.append(name)
            drawn = nanoseconds * self._random.normal(1.0, self._noise, samples)
            self.now += float(drawn.sum()) * calls * 1e-9
            return list(drawn)

        return take


def compared(machine: Machine, base: float, fast: float, seconds: float) -> Comparison:
    protocol = Protocol("paired", (("device", "fake"),))
    return paired(machine.side("a", base), machine.side("b", fast), seconds=seconds, protocol=protocol,
                  clock=lambda: machine.now)  # fmt: skip


def test_pairs_alternate_and_a_win_is_a_win() -> None:
    machine = Machine()
    found = compared(machine, 3e6, 2e6, 10.0)
    assert found.is_win
    assert 1.48 < found.speedup < 1.52
    assert machine.now < 10.0
    blocks = "".join(machine.order[4:])
    assert blocks.startswith("abbaabba")
    assert not compared(Machine(), 2e6, 2e6, 10.0).is_win


def test_the_limit_of_time_is_kept_even_for_slow_calls() -> None:
    for duration in (0.2e9, 1e9, 4e9):
        machine = Machine(noise=0.2)
        found = compared(machine, duration, duration, 10.0)
        assert machine.now < 10.0 + 8 * duration * 1e-9
        assert found.candidate.samples_ns


def test_short_calls_are_timed_several_at_once() -> None:
    assert calls_for(1e6) == 1
    assert calls_for(5_000) == 10
    assert calls_for(0.0) == 1000


def test_rings_exceed_the_cache_and_fit_memory() -> None:
    facts = FakeBackend({}, last_level_bytes=32 << 20).facts()
    assert sets_for(32 << 20, facts) == 2
    assert sets_for(8 << 20, facts) == 8
    assert sets_for(4096, facts) == 32
    assert sets_for(2 << 30, facts) == 1
    assert sets_for(0, facts) == 1
    assert sets_for(32 << 20, facts, max_bytes=40 << 20) == 1


def simple(nanoseconds: float) -> Timing:
    return timing([nanoseconds] * 3, Protocol("screen", ()))


def test_physics_bounds_by_bytes_and_by_arithmetic() -> None:
    facts = Facts(
        "fake", 1, 32, 1 << 15, 1 << 19, 1 << 25, 0.0, 1e11, (Ceiling(1, False, 2e10), Ceiling(1, True, 1e10))
    )
    work = Work(bytes_moved=2 * 10**7, flops=10**7)
    assert physics.lower_bound_ns(work, facts) == pytest.approx(1e6)
    assert physics.lower_bound_ns(work, facts, is_cold=True) == pytest.approx(2e6)
    assert physics.lower_bound_ns(Work(0, 10**9), facts) == pytest.approx(1e7)
    assert physics.roofline_fraction(simple(2e6), work, facts) == pytest.approx(0.5)
    assert not physics.is_suspect(simple(0.9e6), work, facts)
    assert physics.is_suspect(simple(0.5e6), work, facts)


def best(call: Callable[[], object]) -> float:
    times = []
    for _ in range(9):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return float(min(times))


def ceilings(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> Facts:
    """Ceilings measured as a backend does: the best of copying and reading, and of multiplying."""
    n = x.numel()
    moves = ((8 * n, lambda: out.copy_(x)), (4 * n, x.sum), (12 * n, lambda: torch.add(x, y, out=out)))
    rate = max(nbytes / best(call) for nbytes, call in moves)
    peak = 0.0
    for size in (256, 512, 1024):
        a, b = x[: size * size].view(size, size), y[: size * size].view(size, size)
        peak = max(peak, 2 * size**3 / best(lambda a=a, b=b: a @ b))  # type: ignore[misc]
    return Facts("here", 1, 32, 1 << 15, 1 << 19, 1 << 25, 0.0, peak * 1e9, (Ceiling(1, False, rate * 1e9),))


def test_no_eager_time_is_refused() -> None:
    """Eager operations with their least bytes and operations, against ceilings of this machine.

    As the judge does, the ceilings are measured anew before a time is refused: others use this machine too.
    """
    n = 1 << 21
    x, y, out = torch.rand(n), torch.rand(n), torch.empty(n)
    table = x.view(2048, 1024)
    eager: dict[str, tuple[Callable[[], object], Work]] = {
        "copy": (lambda: out.copy_(x), Work(8 * n, 0)),
        "read": (x.amax, Work(4 * n, 0)),
        "add": (lambda: torch.add(x, y, out=out), Work(12 * n, n)),
        "gelu": (lambda: torch.nn.functional.gelu(x), Work(8 * n, n)),
        "softmax": (lambda: torch.softmax(table, -1), Work(8 * n, 3 * n)),
        "norm": (lambda: torch.nn.functional.layer_norm(table, (1024,)), Work(8 * n, 4 * n)),
        "matmul": (lambda: table[:512] @ table[:512].t(), Work(3 << 20, 2 * 512 * 512 * 1024)),
    }
    facts = [ceilings(x, y, out)]
    for name, (call, work) in eager.items():
        taken = simple(best(call))
        while len(facts) < 4 and all(physics.is_suspect(taken, work, found) for found in facts):
            facts.append(ceilings(x, y, out))
        assert not all(physics.is_suspect(taken, work, found) for found in facts), name
