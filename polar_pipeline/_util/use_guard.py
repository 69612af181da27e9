"""A guard against use of an object by two threads, in a forked process, or after it was closed."""

from __future__ import annotations

import os
import threading


class UseGuard:
    """Guard against uses that would hang, fail without a reason, or mix two streams of frames; a context manager.

    Attributes:
        is_closed: Whether the pipeline was closed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self.is_closed = False

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that made the pipeline."""
        return os.getpid() != self._process

    def check(self) -> None:
        """Refuse use after a fork or after closing.

        Raises:
            RuntimeError: The pipeline is closed, or this process is a fork of the one that made it.
        """
        if self.is_forked:
            raise RuntimeError(
                "this pipeline was made before a fork, which copies neither its threads nor the GPU: make one in each "
                "process, and start processes with multiprocessing's method 'spawn'"
            )
        if self.is_closed:
            raise RuntimeError("this pipeline is closed")

    def __enter__(self) -> None:
        """Refuse a second thread while the first is inside.

        Raises:
            RuntimeError: Another thread uses the pipeline, or see `check`.
        """
        if self.is_closed or os.getpid() != self._process:
            self.check()  # first: after a fork the lock may be held by a thread that no longer exists
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("a pipeline serves one thread at a time: make one for each thread")

    def __exit__(self, *_: object) -> None:
        self._lock.release()
