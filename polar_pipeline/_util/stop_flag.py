"""Flags that a signal handler can set: of a task, and of this process."""

from __future__ import annotations


class StopFlag:
    """Whether a process was asked to end.

    A handler of signals may set it, even while it interrupts itself: `threading.Event` would then wait for a lock that
    the interrupted call holds, for ever.
    """

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Ask for the end."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether the end was asked for."""
        return self._is_set


#: Set by the live node's handlers of signals. What takes seconds looks at it, such as a compiler.
PROCESS_STOP = StopFlag()


class StoppedError(RuntimeError):
    """Something was given up because the process was asked to end."""
