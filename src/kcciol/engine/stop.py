"""Ctrl-C, SIGTERM and the closing of the terminal (SIGHUP) end a run at the next step, not in the middle of one."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

HANG_UP = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has none


class Stopped(Exception):
    """The run was asked to end; its state is saved."""

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


@contextlib.contextmanager
def with_resume_hint(how: str) -> Iterator[None]:
    """Say how a run that is stopped in the block goes on."""
    try:
        yield
    except Stopped as stopped:
        raise Stopped(stopped.exit_code - 128, f"{stopped} {how}") from None


class StopRequest:
    """Which signal has come, if any."""

    signal_number: int | None = None


@contextlib.contextmanager
def watch_signals() -> Iterator[StopRequest]:
    """While the block runs, the first signal is noted; a second one acts as usual."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, HANG_UP)}
    if handlers[HANG_UP] is signal.SIG_IGN:  # behind nohup a run goes on without its terminal
        del handlers[HANG_UP]
    old = {number: handler for number, handler in handlers.items() if handler is not None}  # None: set by C code

    def note(number: int, frame: FrameType | None) -> None:
        request.signal_number = number
        signal.signal(number, old[signal.Signals(number)])

    for number in old:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
