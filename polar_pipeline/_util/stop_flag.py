"""Flags that a signal handler can set, and the signals that end a process."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import Iterator, List

from polar_pipeline._util.streams import open_standard_streams

#: Signals that ask a process to end: of Ctrl-C, of a supervisor, and of a terminal that is closed.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds from the first signal until the process is killed.
GRACE = 10.0
#: Seconds within which signals count as one: `timeout` and terminals send the same one twice.
SAME_REQUEST = 0.2


class StopFlag:
    """Flag that tells whether a process was asked to end.

    A handler of signals may set it, even while it interrupts itself: `threading.Event` would then wait for a lock that
    the interrupted call holds, for ever.

    Attributes:
        since: When the end was asked for, by `time.monotonic`.
    """

    def __init__(self) -> None:
        self._is_set = False
        self.since = 0.0

    def set(self) -> None:
        """Ask for the end."""
        self.since = time.monotonic()
        self._is_set = True

    def is_set(self) -> bool:
        """Return whether the end was requested."""
        return self._is_set


#: Set by the live node's handlers of signals. What takes seconds looks at it, such as a compiler.
PROCESS_STOP = StopFlag()


class StoppedError(RuntimeError):
    """Interruption of work because the process was asked to end."""


def stop_on_signals() -> StopFlag:
    """Have SIGINT, SIGTERM and SIGHUP set `PROCESS_STOP`, which is returned; `nohup` has SIGHUP ignored.

    A second signal kills the process. So does a timer of faulthandler `GRACE` seconds after the first one, even if a
    deadlock holds the interpreter's lock; it first prints what every thread was doing.
    """
    open_standard_streams()  # faulthandler needs one
    faulthandler.enable()

    def stop(*_: object) -> None:
        if not PROCESS_STOP.is_set():
            PROCESS_STOP.set()
            faulthandler.dump_traceback_later(GRACE, exit=True)
        elif time.monotonic() > PROCESS_STOP.since + SAME_REQUEST:
            print(f"process {os.getpid()} is killed: asked a second time to end", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    for number in _SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
    return PROCESS_STOP


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Handle signals after the block that would end a process in it: for last steps of outputs that belong together.

    Signals interrupt the main thread alone; in other threads there is nothing to hold back.
    """
    received: List[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS} if is_main else {}
    try:
        for number, handler in handlers.items():
            if handler not in (None, signal.SIG_IGN):  # None: not a handler of Python's
                signal.signal(number, lambda given, _: received.append(given))
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])
