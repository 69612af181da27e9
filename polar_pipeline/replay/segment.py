"""A recording in segments: each processed alone, then merged into what the complete recording gives, bit by bit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np
from mcap.reader import SeekingReader

from polar_pipeline.options import Options
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.quality.latency import Deadline
from polar_pipeline.replay.compare import ProductComparison, Tally, product_array
from polar_pipeline.replay.job import Job, Watch, finish, process
from polar_pipeline.replay.limits import Span, reading
from polar_pipeline.replay.run import FrameProducts, ReplayedFrame, Summary, replay, sampled
from polar_pipeline.replay.sink import Sink
from polar_pipeline.replay.source import Source, open_source
from polar_pipeline.topics import NUMBER_TOPICS, PRODUCT_TOPICS

#: Times before a segment in nanoseconds in which the frame before it is looked for, one after the other.
_BEFORE_NS = (500_000_000, 30_000_000_000, 1 << 63)


@dataclass(frozen=True)
class Part:
    """A processed segment.

    Attributes:
        summary: The summary, with the first frame as its only sample.
        tallies: Product -> how it compares with the golden recording; empty without one.
        products: The recording that was written; None for none.
    """

    summary: Summary
    tallies: Mapping[str, Tally]
    products: Optional[Path]


def segments(source: Source, length_ns: int) -> List[Span]:
    """Divide a recording into spans of `length_ns`; returns none if it cannot be divided.

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
        pipeline: Pipeline that computes the products.
        watch: Shows how far it is; the number it gets is that of the complete recording.

    Raises:
        SourceError: The recording cannot be read.
        OSError: The products cannot be written.
    """
    pipeline.reset()
    previous = _prime(job, span[0], pipeline) if pipeline.options.ssim_mode == "temporal" else None
    summary, comparison = process(job, pipeline, watch, span, previous)
    return Part(summary, comparison.tallies if comparison else {}, job.products)


def _prime(job: Job, start_ns: int, pipeline: Pipeline) -> Optional[int]:
    """Process frames before a time, at least the last that can be used; returns its stamp, None if there is none."""
    for before_ns in _BEFORE_NS:
        span = (start_ns - before_ns, start_ns)
        with open_source(job.source, job.topic, job.rate, job.max_bytes, span) as source:
            stamps = replay(source.records, 1, pipeline, reference=job.reference).stamps
        if stamps:
            return stamps[-1]
    return None


# -------------------------------------------------------------------------------------------------------------- merging


def can_merge(parts: Sequence[Part]) -> bool:
    """Return whether segments can be merged.

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
    """Merge the segments of a recording into what `process_recording` gives; the outputs are complete or absent.

    Args:
        job: Recording, and the outputs to make of it.
        parts: Segments in their order, with products where the job wants them.
        total: Images in the recording, as its index states.
        options: Options of the pipeline that processed the segments.

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
            samples = _copy_products(parts, sink, summary, sampled(total), options.products)
            summary = replace(summary, samples=samples)
        finish(job, summary, total, options, comparison, html)
    return summary, comparison.rows() if comparison else []


def _merged(summaries: Sequence[Summary]) -> Summary:
    """Merge the summaries of segments, in their order; the only sample is the first frame."""
    deadline = Deadline()
    frames: List[ReplayedFrame] = []
    for frame in (frame for row in summaries for frame in row.frames):
        if frame.stamp_ns is not None:
            deadline.arrived(frame.stamp_ns)
        frames.append(frame if frame.cause else replace(frame, late=deadline.missed(frame.timings["total"])))
    first = next((row for row in summaries if row.stamps), summaries[0])
    return replace(first, frames=frames, period=deadline.period)


def _copy_products(
    parts: Sequence[Part], sink: Sink, summary: Summary, places: Set[int], products: Sequence[str]
) -> List[FrameProducts]:
    """Copy the products of segments, in the order in which they were written.

    Args:
        parts: The segments.
        sink: Takes the products.
        summary: Summary of the recording.
        places: Places of the frames, in the recording, whose products are returned.
        products: The products of a frame.

    Raises:
        SourceError: The products of a segment are damaged.
    """
    names = {f"/{PRODUCT_TOPICS[name].name}": name for name in products}
    end = f"/{NUMBER_TOPICS['saturated']}"  # the last of a frame's messages with figures
    used = iter([place for place, row in enumerate(summary.frames) if not row.cause])
    place = next(used, -1)
    samples: Dict[int, Tuple[int, Dict[str, np.ndarray]]] = {}
    for part in parts:
        if part.products is None:
            continue
        with reading(part.products), part.products.open("rb") as stream:
            for schema, channel, message in SeekingReader(stream).iter_messages(log_time_order=False):
                kind, name = schema.name if schema else "", names.get(channel.topic)
                sink.write(channel.topic, kind, message.log_time, message.data)
                if name is not None and place in places:
                    _, arrays = samples.setdefault(place, (message.log_time, {}))
                    arrays[name] = product_array(kind, message.data)
                elif channel.topic == end:
                    place = next(used, -1)
    return [FrameProducts(stamp_ns, arrays) for stamp_ns, arrays in samples.values()]
