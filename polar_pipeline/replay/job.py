"""A recording processed into products, a report and a comparison: what `replay` and `batch` share."""

from __future__ import annotations

import logging
import math
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from polar_pipeline import __version__
from polar_pipeline._util.files import replacing
from polar_pipeline._util.imports import importing
from polar_pipeline._util.stop_flag import signals_held_back
from polar_pipeline._util.text import SHOWN_REASON, printable
from polar_pipeline.options import Options
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.quality.frame_checks import log_warnings
from polar_pipeline.recordings.limits import MAX_BYTES, SourceError
from polar_pipeline.recordings.source import DEFAULT_RATE, Recorded, open_source, unwatched
from polar_pipeline.replay.compare import Comparison, Golden, ProductComparison, verdict
from polar_pipeline.replay.report import render
from polar_pipeline.replay.results import as_json, as_junit
from polar_pipeline.replay.run import Summary, replay

if TYPE_CHECKING:  # needs the extra `recordings`
    from polar_pipeline.recordings.sink import Sink

_LOG = logging.getLogger(__name__)
#: Takes the records and their number, and yields the records: shows how far a replay is.
Watch = Callable[[Iterable[Recorded], int], Iterable[Recorded]]


@dataclass(frozen=True)
class Job:
    """A recording, and the outputs to make of it.

    Attributes:
        source: The recording.
        topic: Topic of the raw images; "" for the only one.
        rate: Frames per second of pictures.
        max_bytes: Largest size of one frame, and of an uncompressed chunk.
        products: The recording to write; None for none.
        report: The report to write; None for none.
        json, junit: Results of the comparison to write, as JSON and as JUnit XML; None for none.
        force: Whether files of these names may be replaced.
        golden: What the products are compared with; None for nothing.
        reference: Where SSIM mode `reference` finds its images.
        tolerances: Product -> largest error, in place of the defaults.
        takes_cut: Whether a recording that was cut off is processed up to its last complete chunk.
    """

    source: Path
    topic: str = ""
    rate: float = DEFAULT_RATE
    max_bytes: int = MAX_BYTES
    products: Optional[Path] = None
    report: Optional[Path] = None
    json: Optional[Path] = None
    junit: Optional[Path] = None
    force: bool = False
    golden: Optional[Golden] = None
    reference: Optional[Golden] = None
    tolerances: Mapping[str, float] = field(default_factory=dict)
    takes_cut: bool = True

    @contextmanager
    def outputs(self, options: Options) -> Iterator[Tuple[Optional[Sink], Dict[str, BinaryIO]]]:
        """Open the recording, and the documents by format; they are there when the block ends without an error.

        Raises:
            OSError: An output cannot be written.
        """
        with ExitStack() as stack:
            paths = {"html": self.report, "json": self.json, "junit": self.junit}
            documents = {
                name: stack.enter_context(replacing(path, self.force))
                for name, path in paths.items()
                if path is not None
            }
            sink = None
            if self.products is not None:
                with importing():
                    from polar_pipeline.recordings.sink import open_sink

                sink = stack.enter_context(open_sink(self.products, metadata(options), self.force))
            yield sink, documents
            with signals_held_back():  # a signal between two of them would leave a recording without its report
                stack.close()


def process_recording(
    job: Job, pipeline: Pipeline, watch: Watch = unwatched
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
    opened = open_source(job.source, job.topic, job.rate, job.max_bytes, job.takes_cut)
    with opened as source, job.outputs(options) as (sink, documents):
        total = source.total
        records = watch(source.records, total)
        summary = replay(records, total, pipeline, sink, comparison, job.reference, camera_info=source.camera_info)
        rows = comparison.rows() if comparison else []
        if not summary.stamps:
            causes = [f"{len(errors)} x {cause}, the first: {errors[0]}" for cause, errors in summary.rejected.items()]
            text = "; ".join([f"none of the {total} frames of {job.source} could be used; nothing written", *causes])
            raise SourceError(printable(text, SHOWN_REASON))
        count = len(summary.frames)
        if count != total:
            _LOG.warning("%s states %d images, and has %d: messages may be missing", job.source, total, count)
        log_warnings(summary.warnings)  # before the outputs are complete: with `--strict` it is an error
        texts: Dict[str, Callable[[], str]] = {"html": lambda: _report(job, options, summary, rows)}
        if job.golden is not None:
            results = job.source, job.golden.path, summary, rows
            texts.update(json=lambda: as_json(*results), junit=lambda: as_junit(*results))
        for name, stream in documents.items():
            stream.write(texts[name]().encode())
            stream.flush()  # a disk that is full leaves no file
    return summary, rows


def _report(job: Job, options: Options, summary: Summary, rows: Sequence[ProductComparison]) -> str:
    title = f"Replay of {printable(job.source.name)}"
    result = verdict(rows, job.golden.path) if job.golden else ""
    return render(title, _facts(options, summary), summary, rows, options.color_style, result)


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
        "late": late(summary),
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
