"""The units of a batch, as a worker runs them. A unit reports what came of it; it does not raise."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, ContextManager, Iterable, List, Mapping, Sequence, Tuple

from polar_pipeline._util.files import discard_folder, replacing_folder
from polar_pipeline._util.text import printable
from polar_pipeline.batch import messaging
from polar_pipeline.batch.overview import thumbnail
from polar_pipeline.batch.pipelines import forget_pipeline, kept_pipeline
from polar_pipeline.batch.results import (
    RESULT,
    SEGMENTS,
    Outcome,
    completed,
    result_folder,
    segment_folder,
)
from polar_pipeline.batch.settings import BatchSettings, golden_of
from polar_pipeline.batch.sources import StorageError
from polar_pipeline.batch.state import PRODUCTS, STATE, read_part, write_part
from polar_pipeline.batch.storage import Recording, local_copy
from polar_pipeline.batch.table import frame_table, table_path, write_table
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.replay.compare import ProductComparison, open_golden
from polar_pipeline.replay.job import Job, metadata, process_recording
from polar_pipeline.replay.limits import SourceError, Span, described
from polar_pipeline.replay.run import Summary
from polar_pipeline.replay.segment import can_merge, merge_segments, process_segment, segments
from polar_pipeline.replay.source import Recorded, open_source
from polar_pipeline.sensor.frames import FrameError

#: What is expected of data and machines; anything else is a defect of this package, and reported with its class.
_EXPECTED = (SourceError, StorageError, OSError, RuntimeError, FrameError, MemoryError, ValueError)


@dataclass(frozen=True)
class Task:
    """A recording of a batch.

    Attributes:
        settings: Those of the batch.
        described: `BatchSettings.described` of the machine that runs the batch: every worker must have the same.
        recording: The recording.
        folder: Of the batch.
        unit: What identifies the result (`unit_of`).
        run: Identifies this run of the batch.
    """

    settings: BatchSettings
    described: Mapping[str, str]
    recording: Recording
    folder: Path
    unit: str
    run: str

    def failed(self, reason: str) -> Outcome:
        """The outcome of a recording that could not be processed."""
        return Outcome(self.recording.name, self.unit, "failed", reason)


@dataclass(frozen=True)
class Division:
    """How a recording is divided.

    Attributes:
        spans: Its segments; empty where it is processed as one.
        total: Images in it.
        reason: Why it cannot be read; "" where it can.
    """

    spans: Sequence[Span]
    total: int
    reason: str = ""


def plan_unit(task: Task) -> Division:
    """Divide a recording into segments."""
    settings = task.settings
    try:
        with _local(task) as path, open_source(path, settings.topic, settings.rate, settings.max_bytes) as source:
            return Division(segments(source, settings.split_ns), source.total)
    except Exception as err:  # noqa: BLE001 - reported to the one who runs the batch
        return Division([], 0, _reason(err))


def recording_unit(task: Task) -> Outcome:
    """Process a recording, unless its result is complete."""

    def work(pipeline: Pipeline) -> Outcome:
        with _local(task) as path:
            return _published(task, path, lambda job: process_recording(job, pipeline, _watch(task)))

    return _small(completed(task.folder, task.recording.name, task.unit) or _guarded(task, work))


def segment_unit(task: Task, span: Span, unit: str) -> Outcome:
    """Process a segment into a folder of its own, unless that or the recording's result is complete.

    Args:
        task: The recording.
        span: Times of recording.
        unit: What identifies the segment.
    """
    folder = segment_folder(task.folder, task.recording.name, unit)

    def work(pipeline: Pipeline) -> Outcome:
        with replacing_folder(folder, force=True) as partial, ExitStack() as stack:
            job = _job(task, stack.enter_context(_local(task)), stack)
            if task.settings.writes_products:
                job = replace(job, products=partial / PRODUCTS)
            part = process_segment(job, span, pipeline, _watch(task))
            write_part(partial, part, _thumbnail(part.summary))
        return _segment_outcome(task, part.summary)

    known = completed(task.folder, task.recording.name, task.unit)
    if known is None and (folder / STATE).is_file():
        return Outcome(task.recording.name, task.unit, "ok", "")
    return _small(known or _guarded(task, work))


def merge_unit(task: Task, plan: Division, units: Sequence[str]) -> Outcome:
    """Merge the segments of a recording, unless its result is complete; then the segments are removed.

    Args:
        task: The recording.
        plan: Its segments.
        units: What identifies each of them.
    """
    name = task.recording.name

    def work(pipeline: Pipeline) -> Outcome:
        found = [read_part(segment_folder(task.folder, name, unit)) for unit in units]
        parts = [part for part, _ in found]
        picture = next((text for _, text in found if text), "")
        with _local(task) as path:
            if can_merge(parts):
                options = pipeline.options
                return _published(task, path, lambda job: merge_segments(job, parts, plan.total, options), picture)
            return _published(task, path, lambda job: process_recording(job, pipeline, _watch(task)))

    known = completed(task.folder, name, task.unit)
    outcome = known or _guarded(task, work)
    if outcome.status == "failed":  # perhaps another run was faster, and removed the segments
        outcome = completed(task.folder, name, task.unit) or outcome
    if outcome.status != "failed":
        shutil.rmtree(task.folder / SEGMENTS / name, ignore_errors=True)
    return _small(outcome)


def _small(outcome: Outcome) -> Outcome:
    """An outcome without its picture, which is in the folder already."""
    return replace(outcome, thumbnail="")


# ------------------------------------------------------------------------------------------------------- parts of units


def _guarded(task: Task, work: Callable[[Pipeline], Outcome]) -> Outcome:
    """Run a unit with this thread's pipeline; what it raises becomes the reason of a failure."""
    try:
        pipeline = kept_pipeline(task.settings.arguments)
        difference = differences(task.described, metadata(pipeline.options))
        if difference:
            return task.failed(f"worker {messaging.worker_address()} differs: {difference}")
        with messaging.running(task.run):
            return work(pipeline)
    except messaging.CancelledError:
        return task.failed("cancelled")
    except Exception as err:  # noqa: BLE001 - the others must go on
        if not isinstance(err, (SourceError, StorageError, OSError)):
            forget_pipeline()
        return task.failed(_reason(err))


def _published(
    task: Task,
    path: Path,
    process: Callable[[Job], Tuple[Summary, List[ProductComparison]]],
    picture: str = "",
) -> Outcome:
    """Make the results of a recording, and put them in place of older ones when all are complete.

    Args:
        task: The recording.
        path: Where it is on this machine.
        process: Writes products and report.
        picture: Its picture where `process` returns no samples.
    """
    name, started = task.recording.name, time.monotonic()
    folder = result_folder(task.folder, name)
    with replacing_folder(folder, force=True) as partial, ExitStack() as stack:
        job = _job(task, path, stack)
        if task.settings.writes_products:
            job = replace(job, products=partial / "products.mcap", report=partial / "report.html")
        summary, rows = process(job)
        seconds = time.monotonic() - started
        outcome = _outcome(task, summary, rows, seconds, _thumbnail(summary) or picture)
        (partial / RESULT).write_bytes(outcome.encoded())
        older = completed(task.folder, name, None)
        if older is not None and older.unit != task.unit:
            discard_folder(folder)  # first: its table is about to be replaced
        table = table_path(task.folder, name)
        write_table(frame_table(name, summary), table)
    return outcome


def _job(task: Task, path: Path, stack: ExitStack) -> Job:
    """What is made of a recording, without outputs."""
    settings = task.settings
    golden, reference = (
        stack.enter_context(open_golden(golden_of(folder, task.recording.name), settings.max_bytes))
        if folder is not None
        else None
        for folder in (settings.compare, settings.reference)
    )
    return Job(
        path,
        settings.topic,
        settings.rate,
        settings.max_bytes,
        golden=golden,
        reference=reference,
        tolerances=settings.tolerances,
    )


def _outcome(task: Task, summary: Summary, rows: Sequence[ProductComparison], seconds: float, picture: str) -> Outcome:
    differing = [row for row in rows if not row.passed]
    return Outcome(
        task.recording.name,
        task.unit,
        "differs" if differing else "ok",
        "; ".join(f"{row.name}: error {row.error:.4g} {row.unit}, {row.missing} missing" for row in differing),
        len(summary.stamps),
        summary.rejected_count,
        summary.device,
        seconds,
        picture,
        task.settings.writes_products,
    )


def _segment_outcome(task: Task, summary: Summary) -> Outcome:
    return Outcome(task.recording.name, task.unit, "ok", "", len(summary.stamps), summary.rejected_count)


def _thumbnail(summary: Summary) -> str:
    """A picture of a recording as PNG in Base64; "" without any."""
    return base64.b64encode(thumbnail(summary)).decode()


def _watch(task: Task) -> Callable[[Iterable[Recorded], int], Iterable[Recorded]]:
    """Counts the records of a recording for the one who runs the batch, and stops where that one cancels."""
    return lambda records, total: messaging.counted(records, task.run, task.recording.name, total)


def _local(task: Task) -> ContextManager[Path]:
    """The recording on this machine, as it was when it was listed."""
    return local_copy(task.recording, _spool(task), task.settings.spool_bytes)


def _spool(task: Task) -> Path:
    """Folder for copies of remote recordings, on a disk of this machine."""
    return task.settings.spool or Path(tempfile.gettempdir()) / f"polar_pipeline_spool_{os.getuid()}"


def differences(expected: Mapping[str, str], got: Mapping[str, str]) -> str:
    """What differs between the options and version of two machines, as text; "" where nothing does."""
    names = sorted(name for name in {*expected, *got} if expected.get(name) != got.get(name))
    return "; ".join(f"{name} is {got.get(name)!r}, not {expected.get(name)!r}" for name in names)


def _reason(err: BaseException) -> str:
    """An error as one line."""
    if isinstance(err, OSError) and err.filename is not None:
        return printable(str(err))
    return printable(str(err)) if isinstance(err, _EXPECTED) and str(err) else described(err)
