"""SIGTERM and SIGINT: `signals_raise` for work that can stop at once, `stop_signals` if it ends in a checkpoint."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from preprocessing.errors import Preempted

AGAIN_S: Final = 15.0  # further signals are ignored for this time, so that cleanup can finish
BOTH: Final = (signal.SIGTERM, signal.SIGINT)


class Stopped(KeyboardInterrupt):
    """Raised where a signal arrives. No `except Exception` of a library catches it."""


@dataclass
class StopRequest:
    """The signal that has requested a stop; 0 before one arrives."""

    signal: int = 0
    raised_s: float = -AGAIN_S  # time.monotonic() when a signal last raised an exception

    def make_exception(self, message: str) -> BaseException:
        """The exception that ends the work: KeyboardInterrupt (exit code 130) or Preempted (75).

        From now on further signals are ignored for AGAIN_S.
        """
        _ignore_signals()
        message = f"{message}; repeat the command to resume"
        return KeyboardInterrupt(message) if self.signal == signal.SIGINT else Preempted(message)

    def interrupt(self) -> None:
        """Raise Stopped, unless a signal has raised within the last AGAIN_S."""
        if time.monotonic() - self.raised_s >= AGAIN_S:
            _ignore_signals()
            raise Stopped


_open: Final = list[StopRequest]()  # one for each open block that handles signals; the innermost block is last


def _ignore_signals() -> None:
    """Let all open blocks ignore signals for AGAIN_S, so that cleanup after a signal can finish."""
    for request in _open:
        request.raised_s = time.monotonic()


@contextmanager
def signals_raise(describe: Callable[[], str] = lambda: "stopped") -> Iterator[None]:
    """Let a signal stop the block at once. The block then raises Preempted or KeyboardInterrupt.

    The message starts with `describe()`. Further signals are ignored during cleanup.
    """
    request = StopRequest()

    def handle(number: int, frame: object) -> None:
        request.signal = request.signal or number
        request.interrupt()

    with _handle_both(request, handle):
        try:
            yield
        except Stopped:
            raise request.make_exception(describe()) from None


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Record the first signal and continue; a second signal raises at once."""
    request = StopRequest()

    def handle(number: int, frame: object) -> None:
        if request.signal:
            request.interrupt()
        request.signal = request.signal or number

    with _handle_both(request, handle):
        try:
            yield request
        except Stopped:
            raise request.make_exception("stopped at once, without a checkpoint") from None


def listen_again() -> None:
    """Install Python's signal handlers again, after a library has reset them to the system default in C."""
    if threading.current_thread() is threading.main_thread():
        for number in BOTH:
            signal.signal(number, signal.getsignal(number))


@contextmanager
def _handle_both(request: StopRequest, handler: "signal._HANDLER") -> Iterator[None]:
    """Handle both signals with `handler` inside the block. Does nothing outside the main thread: Python forbids it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _open.append(request)
    before = {number: signal.signal(number, handler) for number in BOTH}
    try:
        yield
    finally:
        _open.pop()
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
