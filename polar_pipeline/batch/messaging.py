"""What workers and the client tell each other while units run: frames done, and that a run is cancelled."""

from __future__ import annotations

import threading
import time
from collections import Counter as _Counter
from contextlib import contextmanager
from typing import Any, Counter, Dict, Iterable, Iterator, Set, TypeVar

from distributed import get_worker

#: Seconds between two reports of a unit.
REPORT_S = 1.0
#: Runs that were cancelled while this process lives.
_CANCELLED: Set[str] = set()
#: Run -> its units that process frames in this process.
_RUNNING: Counter[str] = _Counter()
_LOCK = threading.Lock()
Item = TypeVar("Item")


class CancelledError(Exception):
    """The run that a unit belongs to was cancelled."""


def topic_of(run: str) -> str:
    """The topic on which workers report the frames of a run."""
    return f"polar_pipeline {run}"


def cancel(run: str) -> None:
    """Make the units of a run in this process stop before their next frame."""
    _CANCELLED.add(run)


@contextmanager
def running(run: str) -> Iterator[None]:
    """Makes `is_running` true while the block lasts.

    Raises:
        CancelledError: The run was cancelled.
    """
    with _LOCK:
        _RUNNING[run] += 1
    try:
        if run in _CANCELLED:
            raise CancelledError
        yield
    finally:
        with _LOCK:
            _RUNNING[run] -= 1


def is_running(run: str) -> bool:
    """Whether a unit of a run still works in this process."""
    return _RUNNING[run] > 0


def worker_address() -> str:
    """The address of the worker that runs this, for errors."""
    try:
        return str(get_worker().address)
    except ValueError:
        return "of this process"


def counted(items: Iterable[Item], run: str, name: str, total: int) -> Iterator[Item]:
    """The items, reported to the client from time to time.

    Args:
        items: Of a recording.
        run: Identifies the run.
        name: Of the recording.
        total: Images in the recording.

    Raises:
        CancelledError: The run was cancelled.
    """
    count, due = 0, time.monotonic()
    try:
        for item in items:
            if run in _CANCELLED:
                raise CancelledError
            count += 1
            if time.monotonic() >= due:
                _report(run, {"name": name, "frames": count, "total": total})
                count, due = 0, time.monotonic() + REPORT_S
            yield item
    finally:
        _report(run, {"name": name, "frames": count, "total": total})


def _report(run: str, message: Dict[str, Any]) -> None:
    try:
        worker = get_worker()
    except ValueError:  # not on a worker, as in the synchronous scheduler
        return
    worker.log_event(topic_of(run), message)
