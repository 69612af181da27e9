"""The loop of replay: every recorded frame through the pipeline, into a recording, a comparison and a summary."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field, replace
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

import numpy as np

from polar_pipeline import messages
from polar_pipeline.options import Options
from polar_pipeline.pipeline import Pipeline, Result
from polar_pipeline.quality.latency import Deadline
from polar_pipeline.quality.layout import LayoutCheck, check_layout
from polar_pipeline.quality.statistics import FrameQuality, measure
from polar_pipeline.replay.compare import Comparison, Golden
from polar_pipeline.replay.sink import Sink
from polar_pipeline.replay.source import Recorded
from polar_pipeline.sensor.frames import Frame, FrameError
from polar_pipeline.topics import PRODUCT_TOPICS

#: Frames whose products are kept for the report.
SAMPLES = 3


@dataclass(frozen=True)
class Rejected:
    """Frames that could not be used for one cause: how many, and the message of the first one's error."""

    frames: int
    reason: str


@dataclass(frozen=True)
class FrameProducts:
    """The products of one frame."""

    stamp_ns: int
    products: Mapping[str, np.ndarray]


class ReplayedRecord(NamedTuple):
    """What became of one record.

    Attributes:
        stamp_ns: Its stamp in nanoseconds; None where it could not be decoded.
        seconds: How long it took; None where it could not be used.
    """

    stamp_ns: Optional[int]
    seconds: Optional[float]


@dataclass(frozen=True)
class Summary:
    """What a replay did.

    Attributes:
        stamps: Stamp of every processed frame, in nanoseconds.
        rejected: Cause -> frames that could not be used.
        timings: Stage -> seconds per frame.
        late: Frames that took longer than the recording's frame period.
        period: Frame period of the recording in seconds; infinite while not known.
        ssim: Mean similarity per frame; empty unless asked for.
        invalid: Output pixels that are (saturated, dark), mean per frame, 0 to 1.
        samples: The products of a few frames, evenly spread.
        quality: The quality figures of every frame.
        layout: Whether the first frame fits the sensor's parameters, as far as it tells.
        device: What the pipeline ran on.
        arrivals: What became of every record, in their order.
    """

    stamps: List[int]
    rejected: Dict[str, Rejected]
    timings: Dict[str, List[float]]
    late: int
    period: float
    ssim: List[float]
    invalid: Tuple[float, float]
    samples: List[FrameProducts]
    quality: List[FrameQuality]
    layout: LayoutCheck
    device: str
    arrivals: List[ReplayedRecord] = field(default_factory=list)

    @property
    def rejected_count(self) -> int:
        """Frames that could not be used."""
        return sum(row.frames for row in self.rejected.values())

    @property
    def repeats(self) -> int:
        """The most identical frames in a row; 0 where frames have no fingerprint."""
        runs = itertools.groupby(row.fingerprint for row in self.quality)
        return max((len(list(run)) for mark, run in runs if mark is not None), default=0)


def replay(
    records: Iterable[Recorded],
    count: int,
    pipeline: Pipeline,
    sink: Optional[Sink] = None,
    comparison: Optional[Comparison] = None,
    reference: Optional[Golden] = None,
    previous: Optional[int] = None,
) -> Summary:
    """Process a recording. A frame that cannot be used is counted, and replay goes on with the next one.

    Args:
        records: The raw images.
        count: How many.
        pipeline: What to compute.
        sink: Takes every product, with the stamp of its frame.
        comparison: Compares every product.
        reference: Where SSIM mode `reference` finds the image of the same stamp.
        previous: Stamp of the frame before the first, which the pipeline has processed; None without one.
    """
    figures = _Figures(pipeline, count, previous)
    deadline = Deadline()
    for index, record in enumerate(records):
        started = time.perf_counter()
        stamp_ns: Optional[int] = None
        try:
            image = record.image()
            stamp_ns = image.stamp_ns
            deadline.arrived(stamp_ns)
            raw, expected = prepared(image, pipeline, reference)
            decoded = time.perf_counter()
            if figures.is_restart(stamp_ns):
                pipeline.reset()
            result = pipeline(raw, reference=expected)
        except FrameError as err:
            figures.reject(err, stamp_ns)
            continue
        computed = time.perf_counter()
        if sink is not None:
            _write(sink, image, result)
        stages = {"decode": decoded - started, **result.timings, "write": time.perf_counter() - computed}
        stages["total"] = sum(stages.values())
        figures.late += deadline.missed(stages["total"])
        if comparison is not None:
            comparison.add(stamp_ns, result)
        figures.add(index, stamp_ns, raw, result, stages)
    return figures.summary(deadline.period)


def prepared(
    image: messages.ImageMessage, pipeline: Pipeline, reference: Optional[Golden]
) -> Tuple[Frame, Optional[np.ndarray]]:
    """The raw frame of a message, and what SSIM mode `reference` compares it with.

    Raises:
        FrameError: The message holds no raw frame, or the reference is missing.
    """
    raw = messages.to_raw(image, pipeline.options.bit_depth, pipeline.options.alignment)
    return raw, _reference(pipeline.options, reference, image.stamp_ns, raw.shape)


def sampled(count: int) -> Set[int]:
    """Places of the frames whose products the report of a recording of `count` frames shows."""
    return {round((count - 1) * k / max(1, SAMPLES - 1)) for k in range(SAMPLES)}


class _Figures:
    """The running figures of a replay.

    Args:
        pipeline: What processes the frames.
        count: Frames in the recording.
        previous: Stamp of the frame before the first; None without one.
    """

    def __init__(self, pipeline: Pipeline, count: int, previous: Optional[int] = None) -> None:
        self.late = 0
        self._newest = previous
        self._arrivals: List[ReplayedRecord] = []
        self._pipeline = pipeline
        self._wanted = sampled(count)
        self._stamps: List[int] = []
        self._rejected: Dict[str, Rejected] = {}
        self._timings: Dict[str, List[float]] = {}
        self._invalid: List[Tuple[float, float]] = []
        self._ssim: List[float] = []
        self._samples: List[FrameProducts] = []
        self._quality: List[FrameQuality] = []
        self._layout = LayoutCheck(None, "no frame was looked at")

    def is_restart(self, stamp_ns: int) -> bool:
        """Whether time runs backwards: the camera started again, and nothing before may be compared with."""
        return self._newest is not None and stamp_ns < self._newest

    def reject(self, err: FrameError, stamp_ns: Optional[int]) -> None:
        """Count a frame that could not be used; its stamp is None where it could not be decoded."""
        self._arrivals.append(ReplayedRecord(stamp_ns, None))
        before = self._rejected.get(err.cause, Rejected(0, str(err)))
        self._rejected[err.cause] = replace(before, frames=before.frames + 1)

    def add(self, index: int, stamp_ns: int, raw: Frame, result: Result, stages: Mapping[str, float]) -> None:
        """Take in a processed frame.

        Args:
            index: Its place in the recording.
            stamp_ns: Its stamp.
            raw: The mosaic.
            result: Its products.
            stages: Stage -> seconds.
        """
        for stage, seconds in stages.items():
            self._timings.setdefault(stage, []).append(seconds)
        if not self._stamps:
            self._layout = check_layout(raw, self._pipeline.options)
        self._stamps.append(stamp_ns)
        self._newest = stamp_ns
        self._arrivals.append(ReplayedRecord(stamp_ns, stages["total"]))
        pixels = float(np.prod(self._pipeline.options.output_size(raw.shape)))
        self._invalid.append((result.invalid[0] / pixels, result.invalid[1] / pixels))
        self._quality.append(measure(self._pipeline, raw, result))
        if "ssim" in result:
            self._ssim.append(float(result["ssim"]))
        if index in self._wanted:
            self._samples.append(FrameProducts(stamp_ns, result))

    def summary(self, period: float) -> Summary:
        """All figures; `period` is the recording's frame period in seconds."""
        saturated, dark = np.mean(self._invalid, axis=0) if self._invalid else (0.0, 0.0)
        return Summary(
            self._stamps,
            self._rejected,
            self._timings,
            self.late,
            period,
            self._ssim,
            (float(saturated), float(dark)),
            self._samples,
            self._quality,
            self._layout,
            self._pipeline.device,
            self._arrivals,
        )


def _write(sink: Sink, image: messages.ImageMessage, result: Result) -> None:
    """Every product of a frame, with the frame's stamp and frame_id."""
    for name, array in result.items():
        kind, cdr = messages.product_message(name, array, image.stamp_ns, image.frame_id)
        sink.write(f"/{PRODUCT_TOPICS[name].name}", kind, image.stamp_ns, cdr)


def _reference(
    options: Options, golden: Optional[Golden], stamp_ns: int, shape: Tuple[int, int]
) -> Optional[np.ndarray]:
    """The image that SSIM mode `reference` compares a frame with; None in the other modes.

    Args:
        options: Those of the pipeline.
        golden: Where the image is.
        stamp_ns: Stamp of the frame.
        shape: (height, width) of the raw frame.

    Raises:
        FrameError: There is no such image, or it has another size (cause `reference`).
    """
    if options.ssim_mode != "reference":
        return None
    size = options.output_size(shape)
    image = None if golden is None else golden.intensity(stamp_ns)
    if image is None or image.shape != size:
        got = "none" if image is None else f"{image.shape[1]}x{image.shape[0]}"
        raise FrameError("reference", f"needs a reference of {size[1]}x{size[0]} with stamp {stamp_ns}, got {got}")
    return image
