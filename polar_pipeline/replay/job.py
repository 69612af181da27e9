"""A recording processed into products, a report and a comparison: what `replay` and `batch` share."""

from __future__ import annotations

import logging
import math
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Tuple

import numpy as np

from polar_pipeline import __version__
from polar_pipeline._util.files import replacing
from polar_pipeline._util.imports import importing
from polar_pipeline._util.stop_flag import signals_held_back
from polar_pipeline._util.text import SHOWN_REASON, printable
from polar_pipeline.options import Options
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.quality.frame_checks import log_warnings
from polar_pipeline.recordings.contents import NOTHING_STATED, Stated
from polar_pipeline.recordings.limits import MAX_BYTES, SourceError
from polar_pipeline.recordings.source import Recorded, open_source, without_progress
from polar_pipeline.replay.compare import Comparison, Golden, ProductComparison, verdict
from polar_pipeline.replay.report import render
from polar_pipeline.replay.results import as_json, as_junit
from polar_pipeline.replay.run import Summary, replay

_LOG = logging.getLogger(__name__)
#: (records, number of records) -> the records, to show progress.
Watch = Callable[[Iterable[Recorded], int], Iterable[Recorded]]


@dataclass(frozen=True)
class Job:
    """A recording, and the outputs to make of it."""

    source: Path
    topic: str = ""  # topic of the raw images; "" for the only one
    rate: Optional[float] = None  # frames per second of pictures; None: they have no times
    max_bytes: int = MAX_BYTES  # largest size of one frame, and of an uncompressed chunk
    products: Optional[Path] = None  # recording to write
    report: Optional[Path] = None  # report to write
    json: Optional[Path] = None  # results of the comparison to write as JSON
    junit: Optional[Path] = None  # results of the comparison to write as JUnit XML
    force: bool = False  # whether files that exist may be replaced
    golden: Optional[Golden] = None  # recording to compare the products with
    reference: Optional[Golden] = None  # recording with the images of SSIM mode `reference`
    tolerances: Mapping[str, float] = field(default_factory=dict)  # product -> largest error, in place of the defaults
    allow_truncated: bool = True  # whether a recording that was cut off is processed up to its last complete chunk
    stated: Stated = NOTHING_STATED  # how to read files that do not state it themselves


def process_recording(
    job: Job, pipeline: Pipeline, watch: Watch = without_progress
) -> Tuple[Summary, List[ProductComparison]]:
    """Process a recording; the outputs are there when this returns, or not at all.

    Returns:
        The summary, and how each product compares with the golden recording; no rows without one.

    Raises:
        SourceError: The recording cannot be read, was cut off where the job takes none that was, or none of its frames
            could be used.
        OSError: An output cannot be written.
        ValueError: A tolerance is not allowed.
    """
    pipeline.reset()
    options = pipeline.options
    comparison = Comparison(job.golden, options.products, job.tolerances) if job.golden else None
    paths = {"html": job.report, "json": job.json, "junit": job.junit}
    opened = open_source(job.source, job.topic, job.rate, job.max_bytes, job.allow_truncated, job.stated)
    with opened as source, ExitStack() as outputs:
        documents = {
            name: outputs.enter_context(replacing(path, job.force)) for name, path in paths.items() if path is not None
        }
        sink = None
        if job.products is not None:
            with importing():
                from polar_pipeline.recordings.sink import open_sink

            sink = outputs.enter_context(open_sink(job.products, metadata(options), job.force))
        total = source.total
        summary = replay(
            watch(source.records, total),
            total,
            pipeline,
            sink,
            comparison,
            job.reference,
            has_times=source.has_times,
        )
        rows = comparison.rows() if comparison else []
        if not summary.stamps:
            causes = [f"{len(errors)} x {cause}, the first: {errors[0]}" for cause, errors in summary.rejected.items()]
            text = "; ".join([f"none of the {total} frames of {job.source} could be used; nothing written", *causes])
            raise SourceError(printable(text, SHOWN_REASON))
        count = len(summary.frames)
        if count != total:
            _LOG.warning("%s states %d images, and has %d: messages may be missing", job.source, total, count)
        log_warnings(summary.warnings)  # before the outputs are complete: with `--strict` it is an error
        result = verdict(rows, job.golden.path) if job.golden else ""
        for name, stream in documents.items():
            if name == "html":
                title = f"Replay of {printable(job.source.name)}"
                text = render(title, _facts(options, summary), summary, rows, options.color_style, result)
            else:
                assert job.golden is not None
                text = (as_json if name == "json" else as_junit)(job.source, job.golden.path, summary, rows)
            stream.write(text.encode())
            stream.flush()  # a disk that is full leaves no file
        with signals_held_back():  # a signal between two outputs would leave a recording without its report
            outputs.close()
    return summary, rows


def late(summary: Summary) -> str:
    """Describe missed deadlines, as in the live node's diagnostics."""
    if math.isinf(summary.period):
        return "n/a, the recording is too short to tell its frame period"
    return f"{summary.late} frames took longer than the {1000 * summary.period:.2f} ms to the next one"


def metadata(options: Options) -> Dict[str, str]:
    """Describe the options as text for the metadata of a recording."""
    texts = {name: str(value) for name, value in options.arguments().items() if name not in ("dtype", "threads")}
    texts.update(sensor=options.sensor.name, tile=str(options.sensor.angles), products=", ".join(options.products))
    texts["calibration"] = options.calibration.digest if options.calibration else ""
    return {"version": __version__, **texts, "dtypes": ", ".join(dict(options.dtype).values())}


def _facts(options: Options, summary: Summary) -> Dict[str, str]:
    """Return the report's list of facts by name."""
    saturated, dark = summary.invalid
    facts = {
        "frames": f"{len(summary.stamps)}, and {summary.rejected_count} that could not be used",
        "sensor": options.sensor.name,
        "resolution": f"{options.resolution}, demosaic {options.interpolation}",
        "calibration": options.calibration.describe() if options.calibration else "none",
        "products": ", ".join(options.products),
        "computed on": summary.device,
        **({"late": late(summary)} if summary.has_times else {}),
        "saturated, dark": f"{100 * saturated:.2f} %, {100 * dark:.2f} % of the pixels",
        "polar_pipeline": __version__,
    }
    if options.geometry is not None:
        facts["geometry"] = options.geometry.describe()
    similarities = [value for value in summary.ssim if not np.isnan(value)]  # a first frame has nothing to compare with
    if similarities:
        lowest = min((row.lowest for row in summary.quality if row.lowest), key=lambda spot: spot.ssim)
        facts["lowest block"] = f"{lowest.ssim:.4f} in the {lowest.place}, at x {lowest.x}, y {lowest.y}"
        facts["similarity"] = f"mean {np.mean(similarities):.4f}, lowest {min(similarities):.4f} ({options.ssim_mode})"
    if summary.repeats > 1:
        facts["frozen"] = f"{summary.repeats} identical frames in a row"
    if summary.layout.fits:
        facts["layout"] = summary.layout.text
    facts.update({f"warning: {row.cause}": row.text for row in summary.warnings})
    return facts
