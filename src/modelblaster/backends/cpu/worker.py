"""A worker process that answers framed messages, and what its death means.

A message is a length (four bytes, little endian) and text. The parent owns the deadline: whatever the worker does,
every call ends with an answer or a RunFailure.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import subprocess
import time
from typing import TYPE_CHECKING

from modelblaster.backends.interface import RunFailure
from modelblaster.records.verdict import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_HEADER = struct.Struct("<I")
_LONGEST_ANSWER = 1 << 24
_PATIENCE_SECONDS = 0.5
_SHELL_SIGNAL = 128


class Worker:
    """One process with pipes. Not thread-safe."""

    def __init__(self, command: Sequence[str], *, descriptors: Sequence[int], environment: Mapping[str, str]) -> None:
        """Start the process.

        Raises:
            RunFailure: it cannot be started.
        """
        self._errors = os.memfd_create("stderr", os.MFD_CLOEXEC)
        self._pending = b""
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=descriptors,
                env=dict(environment),
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            os.close(self._errors)
            raise RunFailure(Cause.CRASHED, f"cannot start {command[0]}: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        self._is_open = True

    @property
    def process(self) -> int:
        """The number of the process that was started."""
        return self._process.pid

    @property
    def is_open(self) -> bool:
        """Whether the process has not been ended, by `close` or by a failure."""
        return self._is_open

    def ask(self, text: str, deadline_seconds: float) -> str:
        """Send a message and wait for the answer.

        Raises:
            RunFailure: no answer in time, a fault, or a worker that ended; the worker is gone then.
        """
        if not self._is_open:
            raise RunFailure(Cause.CRASHED, "the session is closed")
        payload = text.encode()
        until = time.monotonic() + deadline_seconds
        if self._pending or select.select([self._output], [], [], 0)[0]:
            raise self._end(lambda: self._explain("spoke out of turn"))
        self._send(_HEADER.pack(len(payload)) + payload, until, deadline_seconds)
        answer = self._receive(until, deadline_seconds)
        if answer.startswith("fault "):
            raise self._end(lambda: _explain_fault(answer))
        if answer.startswith("error "):
            raise self._end(lambda: _explain_error(answer.removeprefix("error ")))
        return answer

    def close(self) -> None:
        """Let the process end, and end it if it does not."""
        if not self._is_open:
            return
        self._is_open = False
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
        os.close(self._errors)

    def _send(self, frame: bytes, until: float, deadline_seconds: float) -> None:
        rest = memoryview(frame)
        while rest:
            _, writable, _ = select.select([], [self._input], [], max(0.0, until - time.monotonic()))
            if not writable:
                raise self._end(lambda: _late(deadline_seconds))
            try:
                rest = rest[os.write(self._input, rest) :]
            except BrokenPipeError:
                return

    def _receive(self, until: float, deadline_seconds: float) -> str:
        header = self._read(_HEADER.size, until, deadline_seconds)
        (length,) = _HEADER.unpack(header)
        if length > _LONGEST_ANSWER:
            raise self._end(lambda: RunFailure(Cause.CRASHED, "the worker's answer is not one of ours"))
        return self._read(length, until, deadline_seconds).decode(errors="replace")

    def _read(self, count: int, until: float, deadline_seconds: float) -> bytes:
        while len(self._pending) < count:
            ready, _, _ = select.select([self._output], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise self._end(lambda: _late(deadline_seconds))
            chunk = os.read(self._output, 1 << 16)
            if not chunk:
                raise self._end(lambda: self._explain("ended in the middle of a run"))
            self._pending += chunk
        taken, self._pending = self._pending[:count], self._pending[count:]
        return taken

    def _explain(self, what: str) -> RunFailure:
        """What an exit without an answer means."""
        try:
            code = self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            return RunFailure(Cause.CRASHED, f"the worker {what}")
        number = -code if code < 0 else code - _SHELL_SIGNAL
        if number == signal.SIGSYS:
            return RunFailure(Cause.FORBIDDEN, "the candidate made a system call")
        if number == signal.SIGKILL:
            return RunFailure(Cause.OUT_OF_MEMORY, "the worker was killed, most likely for the memory it took")
        if number == signal.SIGXCPU:
            return RunFailure(Cause.TIMEOUT, "the worker used up its processor time")
        ending = f"by {signal.Signals(number).name}" if number in set(signal.Signals) else f"with exit code {code}"
        return RunFailure(Cause.CRASHED, f"the worker {what}, {ending}{self._last_words()}")

    def _last_words(self) -> str:
        text = os.pread(self._errors, 2000, 0).decode(errors="replace").strip()
        return f": {text}" if text else ""

    def _end(self, explain: Callable[[], RunFailure]) -> RunFailure:
        """Kill the process. Returns what to raise."""
        failure = explain()
        self._kill()
        self.close()
        return failure

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()


def _late(deadline_seconds: float) -> RunFailure:
    return RunFailure(Cause.TIMEOUT, f"no answer within {deadline_seconds:g} s")


def _explain_error(text: str) -> RunFailure:
    if text.startswith("memory"):
        return RunFailure(Cause.OUT_OF_MEMORY, f"the worker lacks {text}")
    return RunFailure(Cause.BUILD_FAILED, text)


def _explain_fault(answer: str) -> RunFailure:
    """A fault that the worker's own handler has reported: signal number, place, address."""
    _, number, place, address, *_ = (*answer.split(), "0", "elsewhere", "0x0")
    name = signal.Signals(int(number)).name if number.isdigit() and int(number) in set(signal.Signals) else number
    known = {
        "input": (Cause.INPUT_WRITTEN, "the candidate wrote to an input or parameter"),
        "derived": (Cause.INPUT_WRITTEN, "the candidate wrote to derived memory outside its setup"),
        "guard": (Cause.OUT_OF_BOUNDS, "the candidate reached outside all buffers"),
        "stack": (Cause.CRASHED, "the candidate's stack overflowed"),
    }
    if name == "SIGBUS" and place != "elsewhere":
        return RunFailure(Cause.OUT_OF_MEMORY, "the machine has no memory for the buffers")
    if name == "SIGSEGV" and place in known:
        return RunFailure(*known[place])
    hints = {
        "SIGFPE": "an integer division by zero",
        "SIGILL": "an instruction that this processor does not have",
        "SIGSEGV": "a wild pointer or a misaligned vector access",
    }
    return RunFailure(Cause.CRASHED, f"{name} at {address}: {hints.get(name, 'a trap')}")
