"""The units of a batch, as a worker runs them. A unit returns an outcome; it does not raise."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Callable, Iterable, Iterator, Mapping, Sequence, Tuple

from distributed import get_worker

from polar_pipeline._util.files import discard_folder, replacing_folder
from polar_pipeline._util.text import printable
from polar_pipeline.batch import results
from polar_pipeline.batch.overview import thumbnail
from polar_pipeline.batch.pipelines import forget_pipeline, kept_pipeline
from polar_pipeline.batch.recordings import Recording, scheme_of
from polar_pipeline.batch.remote import local_copy
from polar_pipeline.batch.results import Outcome
from polar_pipeline.batch.settings import BatchSettings, golden_of
from polar_pipeline.batch.table import frame_table, table_path, write_table
from polar_pipeline.camera.recorded import OF_THE_CAMERA, with_recorded_state
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.replay.compare import open_golden
from polar_pipeline.replay.job import Job, metadata, process_recording
from polar_pipeline.replay.limits import SourceError, Span, described
from polar_pipeline.replay.segment import can_merge, merge_segments, process_segment, segments
from polar_pipeline.replay.source import Recorded, open_source

#: Errors of data and machines; any other error is a defect of this package, and reported with its class.
_EXPECTED = (SourceError, OSError, RuntimeError, MemoryError, ValueError)


class CancelledError(Exception):
    """Request of Dask to cancel the unit that this thread runs."""


@dataclass(frozen=True)
class Task:
    """A recording of a batch.

    Attributes:
        settings: Settings of the batch.
        described: `BatchSettings.described` of the machine that runs the batch: every worker must have the same.
        recording: The recording.
        folder: Folder of the batch.
        unit: Identity of the result (`unit_of`).
    """

    settings: BatchSettings
    described: Mapping[str, str]
    recording: Recording
    folder: Path
    unit: str

    def failed(self, reason: str) -> Outcome:
        """Return the outcome of a recording that could not be processed."""
        return Outcome(self.recording.name, self.unit, "failed", reason)


def divide(task: Task) -> Tuple[Sequence[Span], int]:
    """Return the segments of a recording, none if it is processed as one, and the number of its images.

    A recording that cannot be read is processed as one, which reports the error.
    """
    settings, location = task.settings, task.recording.location
    if not settings.split_ns or scheme_of(location):  # a recording from a URL is fetched once, by one worker
        return (), 0
    try:
        with open_source(Path(location), settings.topic, settings.rate, settings.max_bytes) as source:
            spans = segments(source, settings.split_ns)
            return (spans if len(spans) > 1 else ()), source.total
    except (SourceError, OSError):
        return (), 0


def segment_unit(task: Task, span: Span) -> Outcome:
    """Process a segment into a folder of its own, unless that or the recording's result is complete."""

    def work(pipeline: Pipeline, job: Job, partial: Path) -> Outcome:
        part = process_segment(replace(job, report=None), span, pipeline, _until_cancelled)
        results.write_part(partial, part)
        return Outcome(task.recording.name, task.unit, "ok", "", thumbnail=thumbnail(part.summary))

    folder = results.segment_folder(task.folder, task.recording.name, task.unit, span)
    complete = Outcome(task.recording.name, task.unit, "ok", "")
    if results.read_part(folder) is not None:
        return complete
    discard_folder(folder)  # one that is not understood
    outcome = _guarded(task, folder, work, force=False)
    # another run may have been faster, and is perhaps reading its segment
    return complete if outcome.status == "failed" and results.read_part(folder) is not None else outcome


def recording_unit(task: Task, spans: Sequence[Span] = (), total: int = 0, segments: Sequence[Outcome] = ()) -> Outcome:
    """Process a recording or merge its segments, unless its result is complete.

    Args:
        task: The recording.
        spans: Its segments, which are removed afterwards.
        total: Number of its images.
        segments: Outcome of each segment.
    """
    name = task.recording.name
    folders = [results.segment_folder(task.folder, name, task.unit, span) for span in spans]

    def work(pipeline: Pipeline, job: Job, partial: Path) -> Outcome:
        started = time.monotonic()
        parts = list(filter(None, map(results.read_part, folders)))
        if len(parts) < len(folders):
            raise SourceError("its segments were removed; run again")
        if parts and can_merge(parts):
            summary, rows = merge_segments(job, parts, total, pipeline.options)
        else:
            summary, rows = process_recording(job, pipeline, _until_cancelled)
        differing = [row for row in rows if not row.passed]
        pictures = [thumbnail(summary), *(outcome.thumbnail for outcome in segments)]
        outcome = Outcome(
            name,
            task.unit,
            "differs" if differing else "ok",
            "; ".join(f"{row.name}: error {row.error:.4g} {row.unit}, {row.missing} missing" for row in differing),
            len(summary.stamps),
            summary.rejected_count,
            summary.device,
            time.monotonic() - started,
            next(filter(None, pictures), ""),
            task.settings.writes_products,
        )
        (partial / results.RESULT).write_text(json.dumps(asdict(outcome), indent=1), encoding="utf-8")
        discard_folder(results.result_folder(task.folder, name))  # first: its table is about to be replaced
        write_table(frame_table(summary), table_path(task.folder, name))
        return outcome

    failed = next((outcome for outcome in segments if outcome.status == "failed"), None)
    outcome = failed or _guarded(task, results.result_folder(task.folder, name), work, force=True)
    if folders and outcome.status != "failed":
        for segment in results.segment_folders(task.folder, name):
            shutil.rmtree(segment, ignore_errors=True)
    return outcome


def _guarded(task: Task, folder: Path, work: Callable[[Pipeline, Job, Path], Outcome], force: bool) -> Outcome:
    """Run a unit, unless the recording's result is complete; an error becomes the reason of a failure.

    A folder in the place of the recording's result that is not a result is not replaced: it may be the recording.

    Args:
        task: The recording.
        folder: Folder of the unit's results, which is complete or not there.
        work: Gets this thread's pipeline, the job, and the folder under its temporary name.
        force: Whether a folder of that name may be replaced.
    """
    settings, name = task.settings, task.recording.name
    known = results.completed(task.folder, name, task.unit)
    if known is not None:
        return known
    try:
        own = results.result_folder(task.folder, name)
        if own.exists() and not (own / results.RESULT).exists():
            raise SourceError(f"{own} is not a result of a batch, and would be replaced; choose another -o DIR")
        with ExitStack() as stack:
            path = stack.enter_context(local_copy(task.recording, settings.spool, settings.spool_bytes))
            pipeline = kept_pipeline(with_recorded_state(dict(settings.arguments), path))
            of_the_camera = {name: task.described[name] for name in (*OF_THE_CAMERA, "tile")}
            difference = differences(task.described, {**metadata(pipeline.options), **of_the_camera})
            if difference:
                return task.failed(f"worker {get_worker().address} differs: {difference}")
            partial = stack.enter_context(replacing_folder(folder, force))
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
                takes_cut=False,  # its frames would pass for all of the recording
            )
            return work(pipeline, job, partial)
    except CancelledError:
        return task.failed("cancelled")
    except Exception as err:  # noqa: BLE001 - the others must go on
        if not isinstance(err, (SourceError, OSError)):
            forget_pipeline()
        is_text = isinstance(err, _EXPECTED) and str(err)
        # perhaps another run was faster, and removed the segments
        known = results.completed(task.folder, name, task.unit)
        return known or task.failed(printable(str(err)) if is_text else described(err))


def _until_cancelled(records: Iterable[Recorded], _: int) -> Iterator[Recorded]:
    """Yield the records of a recording, and stop if Dask cancels the unit."""
    worker = get_worker()
    state = worker.state.tasks[worker.get_current_task()]
    for record in records:
        if state.state == "cancelled":
            raise CancelledError
        yield record


def differences(expected: Mapping[str, str], got: Mapping[str, str]) -> str:
    """Return the options and versions that differ between two machines as text; "" if none does."""
    names = sorted(name for name in {*expected, *got} if expected.get(name) != got.get(name))
    return "; ".join(f"{name} is {got.get(name)!r}, not {expected.get(name)!r}" for name in names)
