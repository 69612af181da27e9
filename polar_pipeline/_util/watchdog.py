"""Kills a process that does not end when it is asked to, and one whose parent was killed.

A Python process handles SIGINT and SIGTERM between two of its own instructions. Stuck in a C function that holds the
interpreter's lock (a deadlock in a driver or in the middleware), it never does, and no thread of its own can help. So a
small second process waits beside it: the interpreter's C handler writes the number of every signal into a pipe.

A process that was killed cannot end those that it started. On Linux these can ask for a signal in that case; `tied`
makes a command that asks for it and then becomes the command wanted.

This file is also the script that both of these processes run; it needs only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import List, Optional, Sequence

#: Seconds from the first signal until the process is killed.
GRACE = 10.0
#: Seconds within which signals count as one: `timeout` and terminals send the same one twice.
SAME_REQUEST = 0.2
#: Seconds that a process gets to print where it is stuck before it is killed.
_TRACEBACK_S = 2.0
_TIE = "--tie"
_REQUESTS = (signal.SIGINT, signal.SIGTERM)
#: `prctl`'s number for the signal that a process gets when the one that started it ends.
_PR_SET_PDEATHSIG = 1
_started: List[subprocess.Popen[bytes]] = []  # kept, since Popen warns when it is collected


def start() -> None:
    """Start the second process. SIGINT and SIGTERM must have handlers in Python.

    The process that called is killed `GRACE` seconds after the first SIGINT or SIGTERM, or at once with the second one.
    The second process ends with it. If no process can be started, the watchdog is left out.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    command = [sys.executable, "-I", "-S", __file__, str(reader), str(os.getpid())]
    with suppress(OSError):
        _started.append(
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[reader])
        )
    os.close(reader)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)


def tied(command: Sequence[str]) -> List[str]:
    """A command that is sent SIGTERM when the thread that started it ends, even by SIGKILL. Linux only.

    Its process number stays the same, and with it figures that are looked up by that number.
    """
    return [sys.executable, "-I", "-S", __file__, _TIE, str(os.getpid()), *command]


def _tie(parent: int, command: Sequence[str]) -> None:
    """Ask for the signal, then become the command."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before
        sys.exit(1)
    os.execvp(command[0], list(command))


def _watch(reader: int, watched: int) -> None:
    """Wait for signals of the process `watched`, or for its end, which closes the pipe."""
    for number in (*_REQUESTS, signal.SIGHUP):  # they are sent to whole groups of processes
        signal.signal(number, signal.SIG_IGN)
    if not _is_asked(reader, None):
        return
    time.sleep(SAME_REQUEST)
    if select.select([reader], [], [], 0)[0] and not os.read(reader, 4096):
        return
    asked_twice = _is_asked(reader, GRACE - SAME_REQUEST)
    if asked_twice is False or os.getppid() != watched:
        return
    why = "asked a second time to end" if asked_twice else f"still there {GRACE:g} s after it was asked to end"
    print(f"process {watched} is killed: {why}", file=sys.stderr, flush=True)
    if asked_twice is None:
        os.kill(watched, signal.SIGABRT)  # faulthandler then prints what every thread was doing
        if select.select([reader], [], [], _TRACEBACK_S)[0]:
            return
    os.kill(watched, signal.SIGKILL)


def _is_asked(reader: int, seconds: Optional[float]) -> Optional[bool]:
    """Whether the process is asked to end within so many seconds: True, False if it ends before, None if neither."""
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = None if end is None else max(0.0, end - time.monotonic())
        if not select.select([reader], [], [], left)[0]:
            return None
        numbers = os.read(reader, 4096)
        if not numbers:
            return False
        if any(number in _REQUESTS for number in numbers):
            return True


if __name__ == "__main__":
    if sys.argv[1] == _TIE:
        _tie(int(sys.argv[2]), sys.argv[3:])
    else:
        _watch(int(sys.argv[1]), int(sys.argv[2]))
