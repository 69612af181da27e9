"""A recording in segments: each processed alone, then merged into what the complete recording gives, bit by bit."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Deque, Iterator, List, Mapping, Optional, Sequence, Tuple

from mcap.reader import SeekingReader
from mcap.records import Channel, Message

from polar_pipeline.options import Options
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.quality.latency import Deadline
from polar_pipeline.replay.compare import ProductComparison, Tally, open_golden
from polar_pipeline.replay.job import Job, Watch, finish
from polar_pipeline.replay.limits import Span, reading
from polar_pipeline.replay.run import FrameProducts, ReplayedFrame, Summary, prepared, replay, sampled
from polar_pipeline.replay.source import Recorded, Source, open_source
from polar_pipeline.sensor.frames import FrameError

#: Records before a segment that are held to find the frame before it; all are read only where none can be used.
_HELD = 8
#: Time before a segment in which these records are looked for, in nanoseconds.
_BEFORE_NS = 2_000_000_000


@dataclass(frozen=True)
class Part:
    """A processed segment.

    Attributes:
        summary: What was found; without samples but for the first frame's.
        tallies: Product -> how it compares with the golden recording; empty without one.
        products: The recording that was written; None for none.
    """

    summary: Summary
    tallies: Mapping[str, Tally]
    products: Optional[Path]


def segments(source: Source, length_ns: int) -> List[Span]:
    """The spans of `length_ns` that a recording is processed in; a single one where it cannot be divided.

    It cannot where its files overlap in time or are compressed, or where its index states times that its number of
    images does not explain.
    """
    spans = source.spans() or []
    if not spans or any(later[0] < earlier[1] for earlier, later in zip(spans, spans[1:])):
        return []
    start, end = spans[0][0], spans[-1][1]
    count = -(-(end - start) // length_ns)
    if not 1 < count <= source.total:
        return []
    return [(start + k * length_ns, min(start + (k + 1) * length_ns, end)) for k in range(count)]


def process_segment(job: Job, span: Span, pipeline: Pipeline, watch: Watch) -> Part:
    """Process the images of a span; the products are there when this returns, or not at all.

    In SSIM mode `temporal` the last frame before the span that can be used is processed too, and neither written nor
    counted.

    Args:
        job: The recording; its `products` are those of the segment, and no report is made.
        span: Times of recording.
        pipeline: What to compute.
        watch: Shows how far it is; the number it gets is that of the complete recording.

    Raises:
        SourceError: The recording cannot be read.
        OSError: The products cannot be written.
    """
    options = pipeline.options
    pipeline.reset()
    previous = _prime(job, span[0], pipeline) if options.ssim_mode == "temporal" else None
    comparison = job.comparison(options)
    opened = open_source(job.source, job.topic, job.rate, job.max_bytes, span)
    with opened as source, job.outputs(options) as (sink, _):
        records = watch(source.records, source.total)
        camera_info = job.camera_info(source.topic)
        summary = replay(records, 1, pipeline, sink, comparison, job.reference, previous, camera_info=camera_info)
    return Part(summary, comparison.tallies if comparison else {}, job.products)


def _prime(job: Job, start_ns: int, pipeline: Pipeline) -> Optional[int]:
    """Process the last frame before a time that can be used; returns its stamp, None where there is none."""
    with open_source(job.source, job.topic, job.rate, job.max_bytes, (start_ns - _BEFORE_NS, start_ns)) as source:
        newest: Deque[Recorded] = deque(source.records, _HELD)
    for record in reversed(newest):
        stamp_ns = _try(job, record, pipeline)
        if stamp_ns is not None:
            return stamp_ns
    found: Optional[int] = None
    with open_source(job.source, job.topic, job.rate, job.max_bytes, (-(1 << 63), start_ns)) as source:
        for record in source.records:
            stamp_ns = _try(job, record, pipeline)
            found = found if stamp_ns is None else stamp_ns
    return found


def _try(job: Job, record: Recorded, pipeline: Pipeline) -> Optional[int]:
    """Process a record; returns its stamp, None where it cannot be used."""
    try:
        image = record.image()
        raw, expected = prepared(image, pipeline, job.reference)
        pipeline(raw, reference=expected)
    except FrameError:
        return None
    return image.stamp_ns


# -------------------------------------------------------------------------------------------------------------- merging


def can_merge(parts: Sequence[Part]) -> bool:
    """Whether segments can be merged.

    Frames of equal stamps are compared in their order in the recording; where a comparison meets a stamp in several
    segments, the recording must be processed as one.
    """
    if not any(part.tallies for part in parts):
        return True
    seen = Counter(stamp for part in parts for stamp in set(part.summary.stamps))
    return all(count == 1 for count in seen.values())


def merge_segments(
    job: Job, parts: Sequence[Part], total: int, options: Options
) -> Tuple[Summary, List[ProductComparison]]:
    """Merge the segments of a recording into what `process_recording` gives; the outputs are complete or not there.

    Args:
        job: The recording, and what is made of it.
        parts: Its segments in their order, with products where the job wants them.
        total: Images in the recording, as its index states.
        options: Those of the pipeline that processed them.

    Raises:
        SourceError: Products of a segment are damaged, or none of the frames could be used.
        OSError: An output cannot be written.
    """
    summary = _merged([part.summary for part in parts])
    comparison = job.comparison(options)
    if comparison is not None:
        for part in parts:
            for name, tally in part.tallies.items():
                comparison.tallies[name].add(tally)
    with job.outputs(options) as (sink, html):
        if sink is not None:
            for part in parts:
                for schema, channel, message in _written(part):
                    sink.write(channel.topic, schema.name, message.log_time, message.data)
            summary = replace(summary, samples=_samples(job, parts, summary, total, options.products))
        rows = finish(job, summary, total, options, comparison, html)
    return summary, rows


def _merged(summaries: Sequence[Summary]) -> Summary:
    """The summary of a recording from those of its segments, in their order; samples are those of the first frame."""
    deadline = Deadline()
    frames: List[ReplayedFrame] = []
    for frame in (frame for row in summaries for frame in row.frames):
        if frame.stamp_ns is not None:
            deadline.arrived(frame.stamp_ns)
        frames.append(frame if frame.cause else replace(frame, late=deadline.missed(frame.timings["total"])))
    first = next((row for row in summaries if row.stamps), summaries[0])
    return replace(first, frames=frames, period=deadline.period)


def _written(part: Part) -> Iterator[Tuple[Any, Channel, Message]]:
    """Types, channels and messages of a segment's products, in the order in which they were written.

    Raises:
        SourceError: The recording is damaged.
    """
    if part.products is not None:
        with reading(part.products), part.products.open("rb") as stream:
            yield from SeekingReader(stream).iter_messages(log_time_order=False)


def _samples(
    job: Job, parts: Sequence[Part], summary: Summary, total: int, products: Sequence[str]
) -> List[FrameProducts]:
    """The products of the frames that the report of the complete recording shows, from those of its segments."""
    places = sampled(total)
    used = [place for place, row in enumerate(summary.frames) if not row.cause]
    wanted = {frame for frame, place in enumerate(used) if place in places}
    samples: List[FrameProducts] = []
    first = 0
    for part in parts:
        stamps = part.summary.stamps
        chosen = [k for k in range(len(stamps)) if first + k in wanted]
        first += len(stamps)
        if not chosen or part.products is None:
            continue
        with open_golden(part.products, job.max_bytes) as written:
            for k in chosen:
                before = stamps[:k].count(stamps[k])
                loaded = {name: written.load(name, stamps[k], before) for name in products}
                arrays = {name: array for name, array in loaded.items() if array is not None}
                samples.append(FrameProducts(stamps[k], arrays))
    return samples
