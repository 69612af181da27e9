"""The units of a batch, as a worker runs them. A unit returns an outcome; it does not raise.

Dask calls `dask_setup` in every worker on this machine, of which this module is the `preload`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Iterable, Iterator, Mapping

import cv2
from distributed import Worker, get_worker

from polar_pipeline._util.files import discard_folder, replacing_folder
from polar_pipeline._util.malloc import keep_freed_memory, use_one_heap
from polar_pipeline._util.text import described, failure
from polar_pipeline.camera.recorded import OF_THE_CAMERA, with_recorded_state
from polar_pipeline.quality import frame_checks
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.source import Recorded
from polar_pipeline.replay.compare import open_golden
from polar_pipeline.replay.job import Job, metadata, process_recording
from polar_pipeline.tools.batch import results
from polar_pipeline.tools.batch.copies import local_copy
from polar_pipeline.tools.batch.overview import thumbnail
from polar_pipeline.tools.batch.pipelines import forget_pipeline, kept_pipeline
from polar_pipeline.tools.batch.recordings import Recording
from polar_pipeline.tools.batch.results import Outcome
from polar_pipeline.tools.batch.settings import BatchSettings, golden_of
from polar_pipeline.tools.batch.table import frame_table, table_path, write_table

#: Environment variables with the number of CPU threads of a worker, and the names of the GPUs that all workers share.
THREADS_VARIABLE, GPUS_VARIABLE = "POLAR_PIPELINE_THREADS", "POLAR_PIPELINE_GPUS"


def dask_setup(worker: Worker) -> None:
    """Set a worker's memory, threads and GPU, and leave Ctrl-C to the process that runs the batch.

    Nothing has used CUDA before, so that the worker sees its GPU alone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes
    logging.getLogger(frame_checks.__name__).setLevel(logging.ERROR)  # outcomes have the warnings
    keep_freed_memory()
    use_one_heap()
    cv2.setNumThreads(_threads())
    gpus = [name for name in os.environ.get(GPUS_VARIABLE, "").split(",") if name]
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[int(worker.name) % len(gpus)]


def _threads() -> int:
    """Return the CPU threads of a worker; a thread of a worker in a cluster that others started is one core."""
    return int(os.environ.get(THREADS_VARIABLE, "1"))


@dataclass(frozen=True)
class Task:
    """A recording of a batch.

    Attributes:
        settings: Settings of the batch.
        described: `BatchSettings.described` of the machine that runs the batch: every worker must have the same.
        recording: The recording.
        folder: Folder of the batch.
        unit: Key of the result (`result_key`).
    """

    settings: BatchSettings
    described: Mapping[str, str]
    recording: Recording
    folder: Path
    unit: str

    def failed(self, reason: str) -> Outcome:
        """Return the outcome of a recording that could not be processed."""
        return Outcome(self.recording.name, self.unit, "failed", reason)


def run_task(task: Task) -> Outcome:
    """Process a recording, unless its result is complete; an error becomes the reason of a failure."""
    result = results.completed(task.folder, task.recording.name, task.unit)
    if result is not None:
        return result
    try:
        return _processed(task)
    except Exception as err:  # noqa: BLE001 - the others must go on
        if not isinstance(err, (SourceError, OSError)):
            forget_pipeline()
        reason = failure(err) if isinstance(err, OSError) else described(err)
        # perhaps another run was faster
        result = results.completed(task.folder, task.recording.name, task.unit)
        return result or task.failed(reason)


def _processed(task: Task) -> Outcome:
    """Process a recording; its results are there when this returns, or not at all.

    A folder in the place of the result that is not a result is not replaced: it may be the recording.
    """
    settings, name, started = task.settings, task.recording.name, time.monotonic()
    folder = results.result_folder(task.folder, name)
    if folder.exists() and not (folder / results.RESULT).exists():
        raise SourceError(f"{folder} is not a result of a batch, and would be replaced; choose another -o DIR")
    with ExitStack() as stack:
        path = stack.enter_context(local_copy(task.recording, settings.spool, settings.spool_bytes))
        arguments = {**settings.arguments, "threads": settings.arguments.get("threads") or _threads()}
        arguments = with_recorded_state(arguments, [path], settings.topic, settings.max_bytes)
        pipeline = kept_pipeline(arguments)
        of_the_camera = {name: task.described[name] for name in (*OF_THE_CAMERA, "tile")}
        difference = differences(task.described, {**metadata(pipeline.options), **of_the_camera})
        if difference:
            return task.failed(f"worker {get_worker().address} differs: {difference}")
        partial = stack.enter_context(replacing_folder(folder, force=True))
        golden, reference = (
            stack.enter_context(open_golden(golden_of(place, name), settings.max_bytes)) if place else None
            for place in (settings.compare, settings.reference)
        )
        job = Job(
            path,
            settings.topic,
            settings.rate,
            settings.max_bytes,
            partial / results.PRODUCTS if settings.writes_products else None,
            partial / "report.html" if settings.writes_products else None,
            golden=golden,
            reference=reference,
            tolerances=settings.tolerances,
            allow_truncated=False,  # its frames would pass for all of the recording
        )
        summary, rows = process_recording(job, pipeline, _until_cancelled)
        differing = [row for row in rows if not row.passed]
        outcome = Outcome(
            name,
            task.unit,
            "differs" if differing else "ok",
            "; ".join(f"{row.name}: {row.reason}" for row in differing),
            len(summary.stamps),
            summary.rejected_count,
            summary.device,
            time.monotonic() - started,
            thumbnail(summary),
            settings.writes_products,
            "; ".join(f"{row.cause}: {row.text}" for row in summary.warnings),
        )
        (partial / results.RESULT).write_text(json.dumps(asdict(outcome), indent=1), encoding="utf-8")
        discard_folder(folder)  # first: its table is about to be replaced
        write_table(frame_table(summary), table_path(task.folder, name))
        return outcome


def _until_cancelled(records: Iterable[Recorded], _: int) -> Iterator[Recorded]:
    """Yield the records of a recording, and stop if Dask cancels the unit."""
    worker = get_worker()
    state = worker.state.tasks[worker.get_current_task()]
    for record in records:
        if state.state == "cancelled":
            raise CancelledError
        yield record


def differences(expected: Mapping[str, str], actual: Mapping[str, str]) -> str:
    """Return the options and versions that differ between two machines as text; "" if none does."""
    names = sorted(name for name in {*expected, *actual} if expected.get(name) != actual.get(name))
    return "; ".join(f"{name} is {actual.get(name)!r}, not {expected.get(name)!r}" for name in names)
