"""The units of a batch, as a worker runs them. A unit returns an outcome; it does not raise."""

from __future__ import annotations

import base64
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from distributed import get_worker

from polar_pipeline._util.files import discard_folder, replacing_folder
from polar_pipeline._util.text import printable
from polar_pipeline.batch import results
from polar_pipeline.batch.overview import thumbnail
from polar_pipeline.batch.pipelines import forget_pipeline, kept_pipeline
from polar_pipeline.batch.recordings import Recording
from polar_pipeline.batch.remote import local_copy
from polar_pipeline.batch.results import Outcome
from polar_pipeline.batch.settings import BatchSettings, golden_of
from polar_pipeline.batch.table import frame_table, table_path, write_table
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.replay.compare import Golden, ProductComparison, open_golden
from polar_pipeline.replay.job import Job, metadata, process_recording
from polar_pipeline.replay.limits import SourceError, Span, described
from polar_pipeline.replay.run import Summary
from polar_pipeline.replay.segment import can_merge, merge_segments, process_segment, segments
from polar_pipeline.replay.source import Recorded, open_source

#: Seconds between two reports of a unit.
REPORT_S = 1.0
#: Errors of data and machines; any other error is a defect of this package, and reported with its class.
_EXPECTED = (SourceError, OSError, RuntimeError, MemoryError, ValueError)


class CancelledError(Exception):
    """Dask was asked to cancel the unit that this thread runs."""


@dataclass(frozen=True)
class Task:
    """A recording of a batch.

    Attributes:
        settings: Settings of the batch.
        described: `BatchSettings.described` of the machine that runs the batch: every worker must have the same.
        recording: The recording.
        folder: Of the batch.
        unit: Identity of the result (`unit_of`).
        topic: Dask topic on which workers report frames.
    """

    settings: BatchSettings
    described: Mapping[str, str]
    recording: Recording
    folder: Path
    unit: str
    topic: str

    def failed(self, reason: str) -> Outcome:
        """Return the outcome of a recording that could not be processed."""
        return Outcome(self.recording.name, self.unit, "failed", reason)


class Division(NamedTuple):
    """The segments of a recording, empty if it is processed as one; and the number of its images."""

    spans: Sequence[Span]
    total: int


#: Result of a unit; an outcome has no picture, which is in the folder already.
Result = Union[Division, Outcome]


def plan_unit(task: Task) -> Result:
    """Divide a recording into segments, unless its result is complete."""
    settings = task.settings

    def work(_: Pipeline, path: Path) -> Result:
        with open_source(path, settings.topic, settings.rate, settings.max_bytes) as source:
            return Division(segments(source, settings.split_ns), source.total)

    return _guarded(task, work)


def recording_unit(task: Task) -> Result:
    """Process a recording, unless its result is complete."""

    def work(pipeline: Pipeline, path: Path) -> Result:
        return _published(task, path, lambda job: process_recording(job, pipeline, _watch(task)))

    return _guarded(task, work)


def segment_unit(task: Task, span: Span) -> Result:
    """Process a segment into a folder of its own, unless that or the recording's result is complete."""
    folder = results.segment_folder(task.folder, task.recording.name, task.unit, span)

    def work(pipeline: Pipeline, path: Path) -> Result:
        if results.read_part(folder) is None:
            with replacing_folder(folder, force=True) as partial, ExitStack() as stack:
                products = partial / results.PRODUCTS if task.settings.writes_products else None
                job = replace(_job(task, path, stack), products=products)
                part = process_segment(job, span, pipeline, _watch(task))
                results.write_part(partial, part, _thumbnail(part.summary))
        return Outcome(task.recording.name, task.unit, "ok", "")

    return _guarded(task, work)


def merge_unit(task: Task, plan: Division, outcomes: Sequence[Outcome]) -> Result:
    """Merge the segments of a recording, unless its result is complete; then the segments are removed.

    Args:
        task: The recording.
        plan: Its segments.
        outcomes: Outcome of each segment.
    """
    name = task.recording.name

    def work(pipeline: Pipeline, path: Path) -> Result:
        folders = (results.segment_folder(task.folder, name, task.unit, span) for span in plan.spans)
        found = list(map(results.read_part, folders))
        parts = [row[0] for row in found if row]
        if len(parts) < len(plan.spans):
            raise SourceError("its segments were removed; run again")
        if not can_merge(parts):
            return _published(task, path, lambda job: process_recording(job, pipeline, _watch(task)))
        picture = next((row[1] for row in found if row and row[1]), "")
        return _published(task, path, lambda job: merge_segments(job, parts, plan.total, pipeline.options), picture)

    failed = next((outcome for outcome in outcomes if outcome.status == "failed"), None)
    result = failed or _guarded(task, work)
    if result is not failed and isinstance(result, Outcome) and result.status != "failed":
        shutil.rmtree(task.folder / results.SEGMENTS / name, ignore_errors=True)
    return result


def _guarded(task: Task, work: Callable[[Pipeline, Path], Result]) -> Result:
    """Run a unit with this thread's pipeline and the recording on this machine, unless the result is complete.

    An error becomes the reason of a failure.
    """
    settings = task.settings
    known = results.completed(task.folder, task.recording.name, task.unit)
    if known is not None:
        return replace(known, thumbnail="")
    try:
        pipeline = kept_pipeline(settings.arguments)
        difference = differences(task.described, metadata(pipeline.options))
        if difference:
            return task.failed(f"worker {get_worker().address} differs: {difference}")
        with local_copy(task.recording, settings.spool, settings.spool_bytes) as path:
            return work(pipeline, path)
    except CancelledError:
        return task.failed("cancelled")
    except Exception as err:  # noqa: BLE001 - the others must go on
        if not isinstance(err, (SourceError, OSError)):
            forget_pipeline()
        # perhaps another run was faster, and removed the segments
        known = results.completed(task.folder, task.recording.name, task.unit)
        is_text = isinstance(err, _EXPECTED) and str(err)
        return (
            replace(known, thumbnail="") if known else task.failed(printable(str(err)) if is_text else described(err))
        )


def _published(
    task: Task,
    path: Path,
    process: Callable[[Job], Tuple[Summary, List[ProductComparison]]],
    picture: str = "",
) -> Outcome:
    """Compute the results of a recording, and replace older ones when all are complete.

    Args:
        task: The recording.
        path: Its path on this machine.
        process: Writes products and report.
        picture: Its picture if `process` returns no samples.
    """
    name, settings, started = task.recording.name, task.settings, time.monotonic()
    folder = results.result_folder(task.folder, name)
    with replacing_folder(folder, force=True) as partial, ExitStack() as stack:
        job = _job(task, path, stack)
        if settings.writes_products:
            job = replace(job, products=partial / results.PRODUCTS, report=partial / "report.html")
        summary, rows = process(job)
        differing = [row for row in rows if not row.passed]
        outcome = Outcome(
            name,
            task.unit,
            "differs" if differing else "ok",
            "; ".join(f"{row.name}: error {row.error:.4g} {row.unit}, {row.missing} missing" for row in differing),
            len(summary.stamps),
            summary.rejected_count,
            summary.device,
            time.monotonic() - started,
            _thumbnail(summary) or picture,
            settings.writes_products,
        )
        (partial / results.RESULT).write_bytes(outcome.encoded())
        older = results.completed(task.folder, name, None)
        if older is not None and older.unit != task.unit:
            discard_folder(folder)  # first: its table is about to be replaced
        write_table(frame_table(name, summary), table_path(task.folder, name))
    return replace(outcome, thumbnail="")


def _job(task: Task, path: Path, stack: ExitStack) -> Job:
    """Return the work on a recording, without outputs."""
    settings = task.settings

    def golden(folder: Optional[Path]) -> Optional[Golden]:
        if folder is None:
            return None
        return stack.enter_context(open_golden(golden_of(folder, task.recording.name), settings.max_bytes))

    inputs = (path, settings.topic, settings.rate, settings.max_bytes)
    return Job(
        *inputs, golden=golden(settings.compare), reference=golden(settings.reference), tolerances=settings.tolerances
    )


def _thumbnail(summary: Summary) -> str:
    return base64.b64encode(thumbnail(summary)).decode()


def _watch(task: Task) -> Callable[[Iterable[Recorded], int], Iterator[Recorded]]:
    """Report the records of a recording to the process that runs the batch, and stop if Dask cancels the unit."""

    def watched(records: Iterable[Recorded], total: int) -> Iterator[Recorded]:
        worker = get_worker()
        state = worker.state.tasks[worker.get_current_task()]
        count, due = 0, time.monotonic()
        for record in records:
            if state.state == "cancelled":
                raise CancelledError
            yield record
            count += 1
            if time.monotonic() >= due:
                worker.log_event(task.topic, (task.recording.name, count, total))
                count, due = 0, time.monotonic() + REPORT_S
        worker.log_event(task.topic, (task.recording.name, count, total))

    return watched


def differences(expected: Mapping[str, str], got: Mapping[str, str]) -> str:
    """Return the options and versions that differ between two machines as text; "" if none does."""
    names = sorted(name for name in {*expected, *got} if expected.get(name) != got.get(name))
    return "; ".join(f"{name} is {got.get(name)!r}, not {expected.get(name)!r}" for name in names)
