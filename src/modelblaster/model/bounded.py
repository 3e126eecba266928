"""A bound on work that runs in this process and cannot be sent elsewhere: tracing, and a problem's own code."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, TypeVar

from modelblaster.errors import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def bounded(seconds: float | None, what: str, call: Callable[[], T]) -> T:
    """The result of a call that may take so many seconds; what it raises is raised here.

    The call runs in a thread of its own. One that is late is left behind, for nothing can stop it safely: an exception
    thrown into torch's tracing ends the whole process. The thread is a daemon.

    Raises:
        ProblemError: the time was up.
    """
    if seconds is None:
        return call()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - handed on to the caller
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name=what)
    streams = sys.stdout, sys.stderr
    thread.start()
    thread.join(min(max(0.001, seconds), threading.TIMEOUT_MAX))
    if errors:
        raise errors[0]
    if not results:
        # Whatever the late call had them redirected to, the refusal has to be heard.
        sys.stdout, sys.stderr = streams
        raise ProblemError(
            f"{what} takes longer than the budget allows; raise --seconds, or make it smaller with --set"
        )
    return results[0]
