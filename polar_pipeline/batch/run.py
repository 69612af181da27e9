"""A run of a batch: submits the recordings that are left to Dask, and collects the outcome of every recording."""

from __future__ import annotations

import itertools
import json
import secrets
import sys
import time
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from distributed import Client, Future, KilledWorker, as_completed
from tqdm import tqdm

from polar_pipeline._util.files import replacing
from polar_pipeline.batch.cluster import check_workers
from polar_pipeline.batch.overview import write_overview
from polar_pipeline.batch.recordings import Recording, scheme_of
from polar_pipeline.batch.results import SETTINGS, Outcome, clean, completed, known_names, make_folders
from polar_pipeline.batch.settings import BatchSettings, unit_of
from polar_pipeline.batch.units import Division, Task, merge_unit, plan_unit, recording_unit, segment_unit
from polar_pipeline.replay.limits import SourceError

#: Units in flight per thread of the cluster: one that runs, and the next ones, so that no thread waits.
UNITS_PER_THREAD = 32
#: Seconds in which further units are waited for when one is done: one message then brings the results of all.
_COLLECT_S = 0.01
#: Seconds that workers get to stop after a run was cancelled.
_STOPPING_S = 15.0
#: Seconds between two lines of progress without a terminal.
LINE_S = 60.0


class LostSchedulerError(RuntimeError):
    """The scheduler no longer answers."""


class Runner:
    """Runs any number of recordings on a cluster, with a bounded number in flight.

    Args:
        client: Of the cluster.
        ended: Called with every outcome.
    """

    def __init__(self, client: Client, ended: Callable[[Outcome], None]) -> None:
        self._client = client
        self._ended = ended
        self._done = as_completed(loop=client.loop)
        self._tasks: Dict[Future, Task] = {}
        self._segments: Dict[Future, List[Future]] = {}  # of the merge that waits for them
        self._prefix = secrets.token_hex(8)
        self._numbers = itertools.count()

    def run(self, tasks: Iterator[Task]) -> List[Task]:
        """Process recordings.

        Args:
            tasks: The recordings, taken one by one as places become free.

        Returns:
            The recordings that lost too many workers. The loss of a worker counts for all units that waited at it:
            another run of one recording alone shows whether it is the cause.

        Raises:
            LostSchedulerError: The scheduler no longer answers; units in flight may be complete or not.
        """
        suspects: List[Task] = []
        try:
            self._fill(tasks)
            while self._tasks:
                batch = self._done.next_batch()
                time.sleep(_COLLECT_S)
                batch += self._done.next_batch(block=False)
                finished = [future for future in batch if future.status == "finished"]
                results = dict(zip(finished, self._client.gather(finished)))
                for future in batch:
                    task = self._tasks.pop(future)
                    self._segments.pop(future, None)
                    if future in results:
                        self._finish(task, results[future])
                        continue
                    err = future.exception() if future.status == "error" else CancelledError(future.status)
                    if self._client.status != "running":
                        raise err
                    if isinstance(err, KilledWorker):
                        suspects.append(task)
                    else:
                        self._ended(task.failed(f"could not be run: {type(err).__name__}: {err}"))
                self._fill(tasks)
        except (Exception, CancelledError) as err:
            if self._client.status == "running" and not isinstance(err, OSError):  # an error of the connection
                raise
            raise LostSchedulerError(f"the scheduler {self._client.scheduler.address} no longer answers") from err
        return suspects

    def _fill(self, tasks: Iterator[Task]) -> None:
        """Submit recordings if at most half of the units that may be in flight are."""
        limit = UNITS_PER_THREAD * max(1, sum(self._client.nthreads().values()))
        places = limit - len(self._tasks) - sum(map(len, self._segments.values()))
        taken = list(itertools.islice(tasks, places)) if places >= limit // 2 else []
        for function in (recording_unit, plan_unit):
            # a recording from another machine is fetched once, by one worker
            chosen = [
                task
                for task in taken
                if (task.settings.split_ns > 0 and not scheme_of(task.recording.location)) == (function is plan_unit)
            ]
            self._watch(chosen, self._submit(function, chosen, 0))

    def _watch(self, tasks: List[Task], futures: List[Future]) -> None:
        """Wait for the futures of tasks, too."""
        self._tasks.update(zip(futures, tasks))
        self._done.update(futures)

    def _submit(self, function: Callable[..., Any], tasks: List[Task], priority: int, *arguments: Any) -> List[Future]:
        """Submit a unit for each task; units of a higher priority come first: recordings that were begun are completed.

        Args:
            function: The unit.
            tasks: Its first arguments.
            priority: Higher ones run first.
            arguments: Lists of further arguments.
        """
        keys = [f"{function.__name__}-{self._prefix}-{next(self._numbers)}" for _ in tasks]
        return self._client.map(function, tasks, *arguments, key=keys, priority=priority) if tasks else []

    def _finish(self, task: Task, result: Any) -> None:
        if not isinstance(result, Division):
            self._ended(result)
        elif len(result.spans) < 2:
            self._watch([task], self._submit(recording_unit, [task], 1))
        else:
            segments = self._submit(segment_unit, [task] * len(result.spans), 1, result.spans)
            merge = self._submit(merge_unit, [task], 2, [result], [segments])
            self._watch([task], merge)
            self._segments[merge[0]] = segments

    def cancel(self) -> None:
        """Cancel all units, and wait until workers have stopped."""
        self._client.cancel([*self._tasks, *itertools.chain.from_iterable(self._segments.values())])
        end = time.monotonic() + _STOPPING_S
        while any(self._client.run(_has_units, self._prefix).values()) and time.monotonic() < end:
            time.sleep(0.05)


def _has_units(prefix: str, dask_worker: Any) -> bool:
    return any(prefix in str(key) for key in list(dask_worker.state.tasks))


class Progress:
    """Shows how many recordings and frames are done: bars in a terminal, otherwise a line a minute.

    The number of frames is estimated from the sizes of the recordings, until each is known.

    Args:
        recordings: How many there are.
        sizes: Name -> bytes of the recordings that are to be processed.
    """

    def __init__(self, recordings: int, sizes: Dict[str, int]) -> None:
        self._total, self._sizes = recordings, sizes
        self._done = recordings - len(sizes)
        self._known: Dict[str, int] = {}  # recording -> images in it
        self._frames = 0
        units = ("recording", "frame") if sys.stderr is not None and sys.stderr.isatty() else ()
        self._bars = [tqdm(unit=unit, position=position) for position, unit in enumerate(units)]
        self._started = self._shown = time.monotonic()

    def report(self, name: str, frames: int, total: int) -> None:
        """Count frames of a recording that has `total` images, and show the state."""
        self._known[name] = total
        self._frames += frames
        self.show()

    def show(self, recordings: int = 0) -> None:
        """Count recordings, and show the state if it is time for that."""
        self._done += recordings
        known, size = sum(self._known.values()), sum(self._sizes.get(name, 0) for name in self._known)
        expected = max(self._frames, round(known * sum(self._sizes.values()) / size) if size else known)
        for bar, value, total in zip(self._bars, (self._done, self._frames), (self._total, expected)):
            bar.total = total
            bar.update(value - bar.n)
        now = time.monotonic()
        if not self._bars and now - self._shown >= LINE_S:
            self._shown = now
            rate = self._frames / (now - self._started)
            rest = f", about {tqdm.format_interval((expected - self._frames) / rate)} to go" if rate else ""
            done = f"{self._done} of {self._total} recordings, {self._frames} of about {expected} frames"
            print(f"{done}, {rate:.1f} frames/s{rest}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the bars."""
        for bar in self._bars:
            bar.close()


class Batch:
    """Processes recordings on a cluster into a folder: `run`, if any are `left`, then `write_overview`.

    Attributes:
        outcomes: Name of a recording -> its outcome.
        skipped: Recordings that were complete already.
        left: Recordings that are to be processed, and the identity of the result of each (`unit_of`).

    Args:
        settings: How to process them.
        recordings: The recordings.
        folder: Where results go; every worker sees it.

    Raises:
        ValueError: An option is not allowed.
        OSError: The folder cannot be made.
    """

    def __init__(self, settings: BatchSettings, recordings: Sequence[Recording], folder: Path) -> None:
        self.outcomes: Dict[str, Outcome] = {}
        self.left: List[Tuple[Recording, str]] = []
        self._settings = settings
        self._described = settings.described()
        self._recordings = recordings
        self._folder = folder.resolve()
        make_folders(self._folder)
        self._write_settings()
        for recording in recordings:
            try:
                unit = unit_of(settings, self._described, recording)
            except (SourceError, OSError) as err:
                self.outcomes[recording.name] = Outcome(recording.name, "", "failed", str(err))
                continue
            known = completed(self._folder, recording.name, unit)
            if known is None:
                self.left.append((recording, unit))
            else:
                self.outcomes[recording.name] = replace(known, thumbnail="")
        self.skipped = sum(outcome.status != "failed" for outcome in self.outcomes.values())

    def run(self, client: Client, threads: int = 1) -> None:
        """Process what is left.

        Args:
            client: Of the cluster.
            threads: CPU threads of each pipeline, if the settings name no number.

        Raises:
            WorkerError: A worker differs from this process.
            LostSchedulerError: The scheduler no longer answers.
            OSError: The folder cannot be written to.
        """
        arguments = self._settings.arguments
        settings = replace(self._settings, arguments={**arguments, "threads": arguments.get("threads") or threads})
        check_workers(client, settings, self._described, self._folder)
        topic = f"polar_pipeline {secrets.token_hex(8)}"
        progress = Progress(len(self._recordings), {recording.name: recording.size for recording, _ in self.left})

        def ended(outcome: Outcome) -> None:
            self.outcomes[outcome.name] = outcome
            progress.show(recordings=1)

        runner = Runner(client, ended)
        tasks = (Task(settings, self._described, row, self._folder, unit, topic) for row, unit in self.left)
        try:
            client.subscribe_topic(topic, lambda event: progress.report(*event[1]))
            for suspect in runner.run(tasks):
                for task in runner.run(iter([suspect])):
                    ended(task.failed("could not be run: its workers were killed, as when it needs too much memory"))
        except LostSchedulerError:
            raise
        except BaseException:
            with suppress(Exception):  # the cause is raised, not what follows from it
                runner.cancel()
            raise
        finally:
            progress.close()
            with suppress(Exception):  # of a scheduler that is gone
                client.unsubscribe_topic(topic)
            clean(self._folder)

    def _write_settings(self) -> None:
        settings = {
            **self._described,
            "topic": self._settings.topic,
            "compare": str(self._settings.compare or ""),
            "reference": str(self._settings.reference or ""),
            "tolerances": dict(self._settings.tolerances),
            "split_s": self._settings.split_ns / 1e9,
            "names": {**known_names(self._folder), **{row.location: row.name for row in self._recordings}},
        }
        with replacing(self._folder / SETTINGS, force=True) as stream:
            stream.write(json.dumps(settings, indent=1).encode())

    def write_overview(self) -> None:
        """Write the page with all recordings.

        Raises:
            OSError: It cannot be written.
        """
        names = ("version", "sensor", "products", "resolution", "calibration")
        facts = {name: self._described[name] or "none" for name in names}
        outcomes = (self.outcomes[row.name] for row in self._recordings)
        # pictures are read one by one
        write_overview(self._folder, (completed(self._folder, row.name, row.unit) or row for row in outcomes), facts)
