"""Runs any number of units on a cluster, of which only a bounded number is in flight."""

from __future__ import annotations

import queue
import time
from collections import deque
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Tuple

from distributed import Client, Future

#: Units in flight per thread of the cluster: one that runs, and the next ones, so that no thread waits.
UNITS_PER_THREAD = 8
#: Seconds between two looks at the cluster's size and connection.
_LOOK_S = 1.0


class LostSchedulerError(RuntimeError):
    """The scheduler no longer answers."""


@dataclass(frozen=True)
class Unit:
    """A call that a worker makes.

    Attributes:
        function: A function of a module.
        arguments: Its arguments, which can be pickled.
        priority: Higher ones run first.
        tag: For the one who gets the result.
    """

    function: Callable[..., Any]
    arguments: Tuple[Any, ...]
    priority: float = 0.0
    tag: Any = field(default=None, compare=False)


#: Takes a unit and its result, or the error that it ended with; returns units that follow, which go first.
Finished = Callable[[Unit, Any], Iterable[Unit]]


class Loop:
    """Submits units to a cluster and hands on their results.

    Args:
        client: Of the cluster.
        idle: Called about once a second.
    """

    def __init__(self, client: Client, idle: Callable[[], None] = lambda: None) -> None:
        self._client = client
        self._idle = idle
        self._done: Any = queue.SimpleQueue()
        self._active: Dict[Future, Unit] = {}
        self._next: Deque[Unit] = deque()

    def run(self, units: Iterator[Unit], finished: Finished) -> None:
        """Run all units, and those that follow them.

        Args:
            units: Taken one by one, as places become free.
            finished: Called in this thread with every unit and its result, or the exception of a unit that could not
                be run, as when too many workers died with it.

        Raises:
            LostSchedulerError: The scheduler no longer answers; units in flight may be complete or not.
        """
        limit = self._limit()
        looked = time.monotonic()
        is_left = True
        while is_left or self._active or self._next:
            while len(self._active) < limit and (self._next or is_left):
                unit = self._next.popleft() if self._next else next(units, None)
                if unit is None:
                    is_left = False
                    break
                self._submit(unit)
            for unit, result in self._results(self._take()):
                self._next.extend(finished(unit, result))
            if time.monotonic() - looked >= _LOOK_S:
                self._check()
                limit = self._limit()
                self._idle()
                looked = time.monotonic()

    def cancel(self) -> None:
        """Forget all units; those that run are not interrupted."""
        futures = list(self._active)
        self._active.clear()
        if futures and self._client.status == "running":
            self._client.cancel(futures)

    def _limit(self) -> int:
        return UNITS_PER_THREAD * max(1, sum(self._client.nthreads().values()))

    def _submit(self, unit: Unit) -> None:
        future = self._client.submit(unit.function, *unit.arguments, pure=False, priority=unit.priority)
        self._active[future] = unit
        future.add_done_callback(self._done.put)

    def _take(self) -> List[Future]:
        """Units that are done; waits a while for the first."""
        if not self._active:
            return []
        try:
            found = [self._done.get(timeout=_LOOK_S)]
        except queue.Empty:
            return []
        while True:
            try:
                found.append(self._done.get_nowait())
            except queue.Empty:  # noqa: PERF203
                return found

    def _results(self, futures: List[Future]) -> Iterator[Tuple[Unit, Any]]:
        futures = [future for future in futures if future in self._active]
        done = [future for future in futures if future.status == "finished"]
        found: Dict[Future, Any] = {}
        with suppress(Exception):  # then one by one, which says whose fault it is
            found = dict(zip(done, self._client.gather(done) if done else ()))
        for future in futures:
            unit = self._active.pop(future)
            yield unit, found[future] if future in found else self._result(future)

    def _result(self, future: Future) -> Any:
        """The result of a unit, or the error that it ended with."""
        self._check()
        try:
            return future.result()
        except (Exception, CancelledError) as err:  # noqa: BLE001 - handed on
            self._check()
            return err

    def _check(self) -> None:
        """Make sure that the scheduler still answers.

        Raises:
            LostSchedulerError: It does not.
        """
        if self._client.status != "running":
            raise LostSchedulerError(f"the scheduler {self._client.scheduler.address} no longer answers")
