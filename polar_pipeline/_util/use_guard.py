"""A guard against use of an object by two threads, or after it was closed."""

from __future__ import annotations

import threading


class UseGuard:
    """Guard against uses that would hang, fail without a reason, or mix two streams of frames; a context manager.

    Attributes:
        is_closed: Whether the pipeline was closed.
    """

    def __init__(self, is_closed: bool = False) -> None:
        self._lock = threading.Lock()
        self.is_closed = is_closed

    def check(self) -> None:
        """Refuse use after closing.

        Raises:
            RuntimeError: The pipeline is closed.
        """
        if self.is_closed:
            raise RuntimeError("this pipeline is closed")

    def __enter__(self) -> None:
        """Refuse a second thread while the first is inside.

        Raises:
            RuntimeError: Another thread uses the pipeline, or it is closed.
        """
        self.check()
        if not self._lock.acquire(False):
            raise RuntimeError("a pipeline serves one thread at a time: make one for each thread")

    def __exit__(self, *_: object) -> None:
        self._lock.release()
