"""The trusted process in which references run: `python -m modelblaster.judge.reference_worker DESCRIPTOR`.

It answers one request after the other on an inherited socket. What references print goes to standard error. Nothing
of a candidate ever comes here.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import socket
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from modelblaster.judge.channel import Closed, receive, send
from modelblaster.judge.hosted import Compiler, Hosted, HostedModule, HostedPlan, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modelblaster.records.plan import Plan

Tensors = dict[str, torch.Tensor]
_WARM_UPS = 2


class _Expired(BaseException):
    """A compilation that takes longer than it may; no `except Exception` on the way swallows it."""


class Host:
    """The subjects of this process, and the requests that can be made about them."""

    def __init__(self) -> None:
        self._subjects: dict[str, Hosted] = {}
        self._compiled: set[str] = set()
        self._flushed: torch.Tensor | None = None

    def answer(self, method: str, arguments: dict[str, Any], tensors: Tensors) -> tuple[object, Tensors]:
        """Call the request's method; gives its plain result and its tensors."""
        handler: Callable[..., tuple[object, Tensors]] = getattr(self, f"on_{method}")
        with torch.no_grad():
            return handler(**arguments, tensors=tensors) if method == "load" else handler(**arguments)

    def on_hello(self, *, threads: int) -> tuple[object, Tensors]:
        """Set the number of threads."""
        torch.set_num_threads(threads)
        return None, {}

    def on_module(self, *, key: str, payload: bytes, **options: Any) -> tuple[object, Tensors]:
        """Host a module, pickled with its class."""
        hosted = HostedModule(pickle.loads(payload), **options)
        self._subjects[key] = hosted
        return hosted.settable(), {}

    def on_plan(self, *, key: str, plan: Plan) -> tuple[object, Tensors]:
        """Host a reference plan."""
        hosted = HostedPlan(plan)
        self._subjects[key] = hosted
        return hosted.settable(), {}

    def on_forget(self, *, key: str) -> tuple[object, Tensors]:
        """Drop a subject and its memory."""
        self._subjects.pop(key, None)
        return None, {}

    def on_load(self, *, key: str, index: int, tensors: Tensors) -> tuple[object, Tensors]:
        """Copy tensors into a set."""
        self._subjects[key].load(index, tensors)
        return None, {}

    def on_eager(self, *, key: str, index: int) -> tuple[object, Tensors]:
        """One call; the plain result is how many seconds it took."""
        torch.manual_seed(0)
        start = time.perf_counter()
        result = self._subjects[key].eager(index)
        return time.perf_counter() - start, result

    def on_oracle(self, *, key: str, index: int) -> tuple[object, Tensors]:
        """One call in float64."""
        torch.manual_seed(0)
        return None, self._subjects[key].oracle(index)

    def on_time(
        self, *, key: str, variant: str, sets: tuple[int, ...], compile_seconds: float, **options: int
    ) -> tuple[object, Tensors]:
        """Time calls: a dictionary with samples, page faults, seconds of compilation, or why it is unavailable."""
        hosted = self._subjects[key]
        with hosted.untouched():
            if variant == "eager":
                return self._samples(hosted.calls(sets, None), **options) | {"compile_seconds": 0.0}, {}
            try:
                start = time.perf_counter()
                with _limited(compile_seconds):
                    calls = hosted.calls(sets, _compiler())
                    for call in calls:
                        call()
                seconds = 0.0 if key in self._compiled else time.perf_counter() - start
                self._compiled.add(key)
                return self._samples(calls, **options) | {"compile_seconds": seconds}, {}
            except _Expired:
                reason = f"torch.compile took more than {compile_seconds:.0f} s"
            except Exception as error:  # noqa: BLE001 - whatever a compiler raises, the answer is that there is none
                reason = f"torch.compile failed: {_first_line(error)}"
            torch._dynamo.reset()
            return {"samples": (), "faults": 0, "compile_seconds": 0.0, "unavailable": reason}, {}

    def _samples(
        self, calls: list[Callable[[], object]], *, samples: int, repeat: int, flush_bytes: int
    ) -> dict[str, object]:
        for index in range(_WARM_UPS):
            calls[index % len(calls)]()
        found: list[float] = []
        turn = 0
        gc.disable()
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        try:
            for _ in range(samples):
                self._flush(flush_bytes)
                start = time.perf_counter_ns()
                for _ in range(repeat):
                    calls[turn]()
                    turn = turn + 1 if turn + 1 < len(calls) else 0
                found.append((time.perf_counter_ns() - start) / repeat)
        finally:
            gc.enable()
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        return {"samples": tuple(found), "faults": faults, "unavailable": ""}

    def _flush(self, nbytes: int) -> None:
        if nbytes <= 0:
            return
        if self._flushed is None or self._flushed.numel() != nbytes:
            self._flushed = torch.empty(nbytes, dtype=torch.uint8)
        self._flushed.fill_(1)


def _compiler() -> Compiler:
    import torch._inductor.config

    # Pools of compiler processes would outlive a deadline, and fork after torch has run threads.
    torch._inductor.config.compile_threads = 1

    def compiled(target: Run) -> Run:
        made: Run = torch.compile(target, dynamic=False)
        return made

    return compiled


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def expire(_number: int, _frame: object) -> None:
        raise _Expired

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _first_line(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:300]}"


def main(descriptor: int) -> None:
    """Answer requests until the other end closes."""
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=descriptor)
    host = Host()
    while True:
        try:
            (method, arguments), tensors = receive(channel)
        except Closed:
            return
        try:
            value, result = host.answer(method, arguments, tensors)
            answer: tuple[bool, object] = (True, value)
        except Exception as error:  # noqa: BLE001 - whatever a reference raises is an answer about it
            answer, result = (False, _first_line(error)), {}
        del tensors
        try:
            send(channel, answer, result)
        except Closed:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]))
