"""A recording processed into products, a report and a comparison: what `replay` and `batch` share."""

from __future__ import annotations

import logging
import math
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from polar_pipeline import __version__
from polar_pipeline._util.files import replacing
from polar_pipeline._util.imports import importing
from polar_pipeline._util.stop_flag import signals_held_back
from polar_pipeline._util.text import printable
from polar_pipeline.options import Options
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.replay.compare import Comparison, Golden, ProductComparison
from polar_pipeline.replay.limits import MAX_BYTES, SourceError, Span
from polar_pipeline.replay.report import render
from polar_pipeline.replay.run import Summary, replay
from polar_pipeline.replay.source import DEFAULT_RATE, Recorded, open_source, recorded_camera_info, unwatched

if TYPE_CHECKING:  # needs the extra `recordings`
    from polar_pipeline.replay.sink import Sink

_LOG = logging.getLogger(__name__)
#: Takes the records and their number, and yields the records: shows how far a replay is.
Watch = Callable[[Iterable[Recorded], int], Iterable[Recorded]]
#: Characters of a frame's error in a report.
MAX_REASON = 1000


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
    force: bool = False
    golden: Optional[Golden] = None
    reference: Optional[Golden] = None
    tolerances: Mapping[str, float] = field(default_factory=dict)
    takes_cut: bool = True

    @contextmanager
    def outputs(self, options: Options) -> Iterator[Tuple[Optional[Sink], Optional[BinaryIO]]]:
        """Open the recording and the report to write; they are there when the block ends without an error.

        Raises:
            OSError: An output cannot be written.
        """
        with ExitStack() as stack:
            html = stack.enter_context(replacing(self.report, self.force)) if self.report is not None else None
            sink = None
            if self.products is not None:
                with importing():
                    from polar_pipeline.replay.sink import open_sink

                sink = stack.enter_context(open_sink(self.products, metadata(options), self.force))
            yield sink, html
            with signals_held_back():  # a signal between the two would leave a recording without its report
                stack.close()

    def comparison(self, options: Options) -> Optional[Comparison]:
        """Make a new comparison with the golden recording, or return None without one.

        Raises:
            ValueError: A tolerance is negative, or is for a product that is not compared.
        """
        return Comparison(self.golden, options.products, self.tolerances) if self.golden else None


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
    summary, comparison = process(job, pipeline, watch)
    return summary, comparison.rows() if comparison else []


def process(
    job: Job, pipeline: Pipeline, watch: Watch, span: Optional[Span] = None, previous: Optional[int] = None
) -> Tuple[Summary, Optional[Comparison]]:
    """Process the images of a recording, or those of a span without a report; it raises what `process_recording` does.

    Args:
        job: Recording, and the outputs to make of it.
        pipeline: Pipeline that computes the products.
        watch: Shows how far it is; the number it gets is that of the complete recording.
        span: Times of recording; None for all.
        previous: Stamp of the frame before the first, which the pipeline has processed; None without one.

    Returns:
        The summary, which has the first frame as the only sample of a span; and the comparison, None without one.
    """
    options, topic = pipeline.options, job.topic
    comparison = job.comparison(options)
    with open_source(job.source, topic, job.rate, job.max_bytes, span) as source, job.outputs(options) as (sink, html):
        if source.is_cut and not job.takes_cut:
            raise SourceError(f"{job.source} was cut off; `polar-pipeline replay` reads what it has")
        records, count = watch(source.records, source.total), 1 if span else source.total
        camera_info = recorded_camera_info(job.source, source.topic, job.max_bytes) if sink is not None else None
        summary = replay(records, count, pipeline, sink, comparison, job.reference, previous, camera_info=camera_info)
        if span is None:
            finish(job, summary, source.total, options, comparison, html)
    return summary, comparison


def finish(
    job: Job,
    summary: Summary,
    total: int,
    options: Options,
    comparison: Optional[Comparison],
    html: Optional[BinaryIO],
) -> None:
    """Write the report of a recording of `total` frames, as it states; warn if it has another number.

    Raises:
        SourceError: None of the frames could be used.
    """
    if not summary.stamps:
        causes = [f"{len(rows)} x {cause}, the first: {rows[0]}" for cause, rows in summary.rejected.items()]
        text = "; ".join([f"none of the {total} frames of {job.source} could be used; nothing written", *causes])
        raise SourceError(printable(text, MAX_REASON))
    if len(summary.frames) != total:
        _LOG.warning("%s states %d images, and has %d: messages may be missing", job.source, total, len(summary.frames))
    if html is not None:
        first = summary.stamps[0]
        report = render(
            f"Replay of {printable(job.source.name)}",
            _facts(options, summary),
            summary.samples,
            [((stamp - first) / 1e9, value) for stamp, value in zip(summary.stamps, summary.ssim)],
            summary.timings,
            [(cause, len(rows), printable(rows[0], MAX_REASON)) for cause, rows in summary.rejected.items()],
            comparison.rows() if comparison else [],
            options.color_style,
        )
        html.write(report.encode())
        html.flush()  # a disk that is full leaves neither file


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
    known = [value for value in summary.ssim if not np.isnan(value)]  # a first frame has nothing to compare with
    if known:
        lowest = min((row.lowest for row in summary.quality if row.lowest), key=lambda spot: spot.ssim)
        facts["lowest block"] = f"{lowest.ssim:.4f} in the {lowest.place}, at x {lowest.x}, y {lowest.y}"
        facts["similarity"] = f"mean {np.mean(known):.4f}, lowest {min(known):.4f} ({options.ssim_mode})"
    if summary.repeats > 1:
        facts["frozen"] = f"{summary.repeats} identical frames in a row"
    if summary.layout.fits is not None:
        facts["layout"] = summary.layout.text
    return facts
