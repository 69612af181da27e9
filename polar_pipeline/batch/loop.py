"""Runs any number of units on a cluster, of which only a bounded number is in flight."""

from __future__ import annotations

import queue
import secrets
import time
from collections import deque
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, groupby, islice
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Tuple

from distributed import Client, Future, KilledWorker

#: Units in flight per thread of the cluster: one that runs, and the next ones, so that no thread waits. New ones are
#: submitted when half of them are done: a message with many units costs little more than one with a single unit.
UNITS_PER_THREAD = 32
#: Seconds between two looks at the cluster's size and connection.
_LOOK_S = 1.0
#: Seconds in which further units are waited for when one is done, so that one message brings the results of all.
_COLLECT_S = 0.01


class LostSchedulerError(RuntimeError):
    """The scheduler no longer answers."""


@dataclass(frozen=True)
class Unit:
    """A call that a worker makes.

    Attributes:
        function: A function of a module.
        arguments: Its arguments, at least one, which can be pickled.
        priority: Higher ones run first; of the same priority, those that were handed in first.
        tag: For the one who gets the result.
    """

    function: Callable[..., Any]
    arguments: Tuple[Any, ...]
    priority: int = 0
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
        self._suspects: Deque[Unit] = deque()
        self._is_alone = False
        self._name = secrets.token_hex(4)
        self._numbers = count()

    def run(self, units: Iterator[Unit], finished: Finished) -> None:
        """Run all units, and those that follow them.

        A worker that is lost takes with it the unit that it ran, and those that waited at it. Units for which this
        happened too often are run again one at a time at the end, which shows whose fault it was.

        Args:
            units: Taken one by one, as places become free.
            finished: Called in this thread with every unit and its result, or the exception of a unit that could not
                be run, as when too many workers were lost with it alone.

        Raises:
            LostSchedulerError: The scheduler no longer answers; units in flight may be complete or not.
        """
        limit = self._limit()
        looked = time.monotonic()
        is_left = True
        while is_left or self._active or self._next or self._suspects:
            if not (is_left or self._active or self._next):
                self._is_alone = True
                self._submit([self._suspects.popleft()])
            elif self._next or len(self._active) <= limit // 2:
                free = max(0, limit - len(self._active))
                taken = [self._next.popleft() for _ in range(min(free, len(self._next)))]
                if is_left:
                    taken += islice(units, free - len(taken))
                    is_left = len(taken) == free
                self._is_alone = self._is_alone and not taken
                self._submit(taken)
            for unit, result in self._results(self._take()):
                if isinstance(result, KilledWorker) and not self._is_alone:
                    self._suspects.append(unit)
                else:
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

    def _submit(self, units: Iterable[Unit]) -> None:
        for (function, priority), group in groupby(units, lambda unit: (unit.function, unit.priority)):
            same = list(group)
            keys = [f"{function.__name__}-{self._name}-{number}" for number, _ in zip(self._numbers, same)]
            columns = zip(*(unit.arguments for unit in same))
            futures = self._client.map(function, *map(list, columns), key=keys, pure=False, priority=priority)
            for future, unit in zip(futures, same):
                self._active[future] = unit
                future.add_done_callback(self._done.put)

    def _take(self) -> List[Future]:
        """Units that are done; waits a while for the first."""
        found: List[Future] = []
        end = time.monotonic() + _LOOK_S
        while len(found) < len(self._active):
            try:
                found.append(self._done.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                break
            if len(found) == 1:
                end = time.monotonic() + _COLLECT_S
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
