"""A run of a batch: submits the recordings that are left to Dask, and collects the outcome of every recording."""

from __future__ import annotations

import json
import sys
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Callable, Dict, List, Sequence

from distributed import Client, Future, KilledWorker, as_completed

from polar_pipeline._util.files import replacing
from polar_pipeline._util.progress import import_tqdm
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.tools.batch import results
from polar_pipeline.tools.batch.cluster import ClusterError, check_workers
from polar_pipeline.tools.batch.overview import write_overview
from polar_pipeline.tools.batch.recordings import Recording
from polar_pipeline.tools.batch.results import Outcome, clean, completed, set_table_aside
from polar_pipeline.tools.batch.settings import BatchSettings, result_key
from polar_pipeline.tools.batch.units import Task, run_task

#: Seconds between two lines of progress without a terminal.
LINE_S = 60.0
#: Tasks of one message to the scheduler.
_MESSAGE_TASKS = 1000
_KILLED = "could not be run: its workers were killed, as when it needs too much memory"


class Batch:
    """Processing of recordings on a cluster: `run`, if any are `left`, then `write_overview`.

    Attributes:
        outcomes: Name of a recording -> its outcome.
        skipped: Number of recordings that were complete already.
        left: Recordings that are to be processed.

    Args:
        settings: Settings by which to process the recordings.
        recordings: The recordings.
        folder: Where results go; every worker sees it.
        is_strict: Whether a recording fails if something about its frames looks wrong.

    Raises:
        ValueError: An option is not allowed.
        OSError: The folder cannot be made or changed.
    """

    def __init__(
        self, settings: BatchSettings, recordings: Sequence[Recording], folder: Path, is_strict: bool = False
    ) -> None:
        self.outcomes: Dict[str, Outcome] = {}
        self.left: List[Task] = []
        self._settings = settings
        self._described = settings.described()
        self._recordings = recordings
        self._is_strict = is_strict
        self._folder = folder.resolve()
        results.make_folders(self._folder)
        self._write_settings()
        for recording in recordings:
            try:
                unit = result_key(settings, self._described, recording)
            except (SourceError, OSError) as err:
                self.outcomes[recording.name] = Outcome(recording.name, "", "failed", str(err))
                set_table_aside(self._folder, recording.name)
                continue
            outcome = completed(self._folder, recording.name, unit)
            if outcome is None:
                set_table_aside(self._folder, recording.name)
                self.left.append(Task(settings, self._described, recording, self._folder, unit))
            else:
                self.outcomes[recording.name] = self._judged(outcome)
        self.skipped = sum(outcome.status != "failed" for outcome in self.outcomes.values())

    def run(self, client: Client) -> None:
        """Process the remaining recordings.

        Raises:
            ClusterError: A worker differs from this process, or the scheduler no longer answers.
        """
        check_workers(client, self._settings, self._described, self._folder)
        is_terminal = sys.stderr.isatty()
        size = sum(task.recording.size for task in self.left)
        interval = 0.1 if is_terminal else LINE_S
        with import_tqdm()(total=size, unit="B", unit_scale=True, mininterval=interval, miniters=1) as progress:

            def end(task: Task, outcome: Outcome) -> None:
                self.outcomes[outcome.name] = self._judged(outcome)
                progress.set_postfix_str(f"{len(self.outcomes)} of {len(self._recordings)} recordings", refresh=False)
                progress.update(task.recording.size)

            for suspect in process_tasks(client, self.left, end):
                for task in process_tasks(client, [suspect], end):
                    end(task, task.failed(_KILLED))
        clean(self._folder)

    def _judged(self, outcome: Outcome) -> Outcome:
        """Return an outcome; as failed, its table set aside, if it has warnings and they are errors."""
        if not self._is_strict or not outcome.warnings:
            return outcome
        set_table_aside(self._folder, outcome.name)
        return replace(outcome, status="failed", reason=f"{outcome.warnings} (an error with --strict)", warnings="")

    def _write_settings(self) -> None:
        settings = {
            **self._described,
            "topic": self._settings.topic,
            "compare": str(self._settings.compare or ""),
            "reference": str(self._settings.reference or ""),
            "tolerances": dict(self._settings.tolerances),
            "names": {**results.recorded_names(self._folder), **{row.location: row.name for row in self._recordings}},
        }
        with replacing(self._folder / results.SETTINGS, force=True) as stream:
            stream.write(json.dumps(settings, indent=1).encode())

    def write_overview(self) -> None:
        """Write the page with all recordings."""
        names = ("version", "sensor", "products", "resolution", "calibration")
        facts = {name: self._described[name] or "none" for name in names}
        write_overview(self._folder, [self.outcomes[row.name] for row in self._recordings], facts)


def process_tasks(client: Client, tasks: Sequence[Task], end: Callable[[Task, Outcome], None]) -> List[Task]:
    """Process recordings on a cluster; `end` is called with every recording and its outcome.

    Returns:
        The recordings that lost too many workers. The loss of a worker counts for all units that waited at it:
        another run of one recording alone shows whether it is the cause.

    Raises:
        ClusterError: The scheduler no longer answers; units in flight may be complete or not.
    """
    suspects: List[Task] = []
    running: Dict[Future, Task] = {}
    try:
        running.update(zip(client.map(run_task, tasks, pure=False, batch_size=_MESSAGE_TASKS), tasks))
        for future, outcome in as_completed([*running], loop=client.loop, with_results=True, raise_errors=False):
            task = running.pop(future)
            if future.status == "finished":
                end(task, outcome)
                continue
            err = future.exception() if future.status == "error" else CancelledError(future.status)
            if client.status != "running":
                raise err
            if isinstance(err, KilledWorker):
                suspects.append(task)
            else:
                end(task, task.failed(f"could not be run: {type(err).__name__}: {err}"))
    except BaseException as err:
        if isinstance(err, OSError) or (isinstance(err, Exception) and client.status != "running"):
            raise ClusterError(f"the scheduler {client.scheduler.address} no longer answers") from err
        with suppress(Exception):  # the cause is raised, not what follows from it
            client.cancel([*running])
        raise
    return suspects
