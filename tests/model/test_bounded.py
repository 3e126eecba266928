import threading

import pytest

from modelblaster.errors import ProblemError
from modelblaster.model.bounded import bounded


def test_results_and_errors_pass_through():
    assert bounded(5.0, "a call", lambda: 3) == 3
    assert bounded(None, "a call", lambda: 4) == 4
    assert bounded(float("inf"), "a call", lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        bounded(5.0, "a call", lambda: 1 // 0)


def test_a_late_call_is_left_behind():
    gate = threading.Event()
    with pytest.raises(ProblemError, match="a call takes longer"):
        bounded(0.05, "a call", gate.wait)
    gate.set()
