"""A bound on work that runs in this process and cannot be sent elsewhere: tracing, and a problem's own code."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from modelblaster.errors import ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator


_LONGEST = 1e8
_AGAIN = 0.25


class _Rang(BaseException):
    """Not an Exception, so that code which catches those does not swallow it."""


@contextmanager
def time_limit(seconds: float | None, what: str) -> Iterator[None]:
    """Interrupt the block after so many seconds. Only the main thread can be interrupted; elsewhere there is no bound.

    Raises:
        ProblemError: the time was up.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise _Rang

    def unheard(args: sys.UnraisableHookArgs) -> None:
        if args.exc_type is not _Rang:
            hook(args)

    # An alarm that falls into a finalizer is lost, and would be printed: it rings again until it is heard.
    hook, sys.unraisablehook = sys.unraisablehook, unheard
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, min(seconds, _LONGEST)), _AGAIN)
    try:
        yield
    except _Rang:
        signal.setitimer(signal.ITIMER_REAL, 0)
        message = f"{what} takes longer than the budget allows; raise --seconds, or make it smaller with --set"
        raise ProblemError(message) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
