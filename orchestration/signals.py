"""SIGTERM and SIGINT: where work can be left at once they raise, where it ends in a checkpoint they are noted."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from preprocessing.errors import Preempted

AGAIN_S: Final = 15.0  # after a signal has raised: for what it leaves to be cleared away, undisturbed by further ones
BOTH: Final = (signal.SIGTERM, signal.SIGINT)


class Stopped(KeyboardInterrupt):
    """What a signal raises where it arrives: no `except Exception` of a library holds it up."""


@dataclass
class StopRequest:
    """Which signal has asked to stop; 0: none yet."""

    signal: int = 0
    raised_s: float = -AGAIN_S  # when one raised, by the monotonic clock

    def stopped(self, message: str) -> BaseException:
        """What to raise when one has: interrupted (exit code 130), or preempted (75). Further ones are ignored then."""
        _leave()
        return (
            KeyboardInterrupt(f"{message}; the same command goes on")
            if self.signal == signal.SIGINT
            else Preempted(f"{message}; the same command goes on")
        )

    def interrupt(self) -> None:
        """Raise Stopped, unless that was done just now."""
        if time.monotonic() - self.raised_s >= AGAIN_S:
            _leave()
            raise Stopped


_open: Final = list[StopRequest]()  # of the blocks that listen, the innermost last


def _leave() -> None:
    """Something is being left because of a signal: the blocks around it hear none while it is cleared away."""
    for asked in _open:
        asked.raised_s = time.monotonic()


@contextmanager
def signals_raise(what: Callable[[], str] = lambda: "stopped") -> Iterator[None]:
    """Inside the block a signal raises at once; Preempted or KeyboardInterrupt leave it then, and say `what()`.

    Further signals are ignored while what is open is closed.
    """
    asked = StopRequest()

    def end(number: int, frame: object) -> None:
        asked.signal = asked.signal or number
        asked.interrupt()

    with _handled(asked, end):
        try:
            yield
        except Stopped:
            raise asked.stopped(what()) from None


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Take note of the first signal without ending; a second one raises at once."""
    asked = StopRequest()

    def note(number: int, frame: object) -> None:
        if asked.signal:
            asked.interrupt()
        asked.signal = asked.signal or number

    with _handled(asked, note):
        try:
            yield asked
        except Stopped:
            raise asked.stopped("stopped at once, without a checkpoint") from None


def listen_again() -> None:
    """Have Python's handlers called, where a library has put the action of the system in their place in C."""
    if threading.current_thread() is threading.main_thread():
        for number in BOTH:
            signal.signal(number, signal.getsignal(number))


@contextmanager
def _handled(asked: StopRequest, handler: "signal._HANDLER") -> Iterator[None]:
    """Both signals have this handler inside the block, where Python lets this thread handle any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _open.append(asked)
    before = {number: signal.signal(number, handler) for number in BOTH}
    try:
        yield
    finally:
        _open.pop()
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
