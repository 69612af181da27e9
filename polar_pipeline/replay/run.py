"""The loop of replay: every recorded frame through the pipeline, into a recording, a comparison and a summary."""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, Mapping, Optional, Set, Tuple

import numpy as np

from polar_pipeline import messages
from polar_pipeline._util.text import printable
from polar_pipeline.options import Options
from polar_pipeline.output_camera_info import encode_camera_infos
from polar_pipeline.pipeline import Pipeline, Result
from polar_pipeline.quality.latency import Deadline
from polar_pipeline.quality.layout import LayoutCheck, check_layout
from polar_pipeline.quality.statistics import FrameQuality, invalid_ratios, mean_value, measure
from polar_pipeline.replay.compare import Comparison, Golden
from polar_pipeline.replay.source import Recorded
from polar_pipeline.sensor.frames import Frame, FrameError
from polar_pipeline.topics import IMAGE, NUMBER_TOPICS, OUTPUT_CAMERA_INFO, PRODUCT_TOPICS

if TYPE_CHECKING:  # needs the extra `recordings`
    from polar_pipeline.replay.sink import Sink

#: Frames whose products are kept for the report.
SAMPLES = 3


@dataclass(frozen=True)
class FrameProducts:
    """The products of one frame."""

    stamp_ns: int
    products: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ReplayedFrame:
    """One frame of a recording.

    Attributes:
        stamp_ns: Its stamp in nanoseconds; None if it could not be decoded.
        cause: Why it could not be used, as of `FrameError`; "" if it was processed. If it was not, the rest is empty.
        reason: The error's message.
        timings: Stage -> seconds.
        late: Whether it took longer than the recording's frame period.
        ssim: The product of that name; None unless asked for.
        quality: Its quality figures.
        intensity: Mean of the product, 0 to 1; None unless asked for.
        dolp: The same, without invalid pixels.
    """

    stamp_ns: Optional[int]
    cause: str = ""
    reason: str = ""
    timings: Mapping[str, float] = field(default_factory=dict)
    late: bool = False
    ssim: Optional[float] = None
    quality: Optional[FrameQuality] = None
    intensity: Optional[float] = None
    dolp: Optional[float] = None


@dataclass(frozen=True)
class Summary:
    """Results of a replay. Figures per frame are those of processed frames, in the recording's order.

    Attributes:
        frames: Every frame of the recording, in its order.
        period: Frame period of the recording in seconds; infinite while not known.
        samples: The products of a few frames, evenly spread.
        layout: Whether the first frame fits the sensor's parameters; None if undecided.
        device: Description of the device that computed.
    """

    frames: List[ReplayedFrame]
    period: float
    samples: List[FrameProducts]
    layout: LayoutCheck
    device: str

    @cached_property
    def stamps(self) -> List[int]:
        """Stamp of every processed frame, in nanoseconds."""
        return [row.stamp_ns for row in self.frames if row.stamp_ns is not None and not row.cause]

    @cached_property
    def rejected(self) -> Dict[str, List[str]]:
        """Cause -> the error of each frame that could not be used."""
        reasons: Dict[str, List[str]] = {}
        for row in self.frames:
            if row.cause:
                reasons.setdefault(row.cause, []).append(row.reason)
        return reasons

    @property
    def rejected_count(self) -> int:
        """Frames that could not be used."""
        return sum(map(len, self.rejected.values()))

    @cached_property
    def timings(self) -> Dict[str, List[float]]:
        """Stage -> seconds per frame."""
        timings: Dict[str, List[float]] = {}
        for row in self.frames:
            for stage, seconds in row.timings.items():
                timings.setdefault(stage, []).append(seconds)
        return timings

    @property
    def late(self) -> int:
        """Frames that took longer than the recording's frame period."""
        return sum(row.late for row in self.frames)

    @property
    def ssim(self) -> List[float]:
        """Mean similarity per frame; empty unless requested."""
        return [row.ssim for row in self.frames if row.ssim is not None]

    @property
    def quality(self) -> List[FrameQuality]:
        """The quality figures per frame."""
        return [row.quality for row in self.frames if row.quality is not None]

    @property
    def invalid(self) -> Tuple[float, float]:
        """Output pixels that are (saturated, dark), mean per frame, 0 to 1."""
        rows = [(row.saturated, row.dark or 0.0) for row in self.quality]
        saturated, dark = np.mean(rows, axis=0) if rows else (0.0, 0.0)
        return float(saturated), float(dark)

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
    show: Optional[Callable[[int, Result, ReplayedFrame], None]] = None,
    camera_info: Optional[messages.Cdr] = None,
) -> Summary:
    """Process a recording. A frame that cannot be used is counted, and replay goes on with the next one.

    Args:
        records: The raw images.
        count: Number of frames.
        pipeline: Pipeline that computes the products.
        sink: Takes every product, with the stamp of its frame.
        comparison: Compares every product.
        reference: Where SSIM mode `reference` finds the image of the same stamp.
        previous: Stamp of the frame before the first, which the pipeline has processed; None without one.
        show: Takes stamp, products and figures of every frame; its time is not that of a stage.
        camera_info: Lens calibration of the raw images, serialized, for the sink; None if it is not known.
    """
    frames: List[ReplayedFrame] = []
    samples: List[FrameProducts] = []
    layout: Optional[LayoutCheck] = None
    wanted, newest, deadline = sampled(count), previous, Deadline()
    for record in records:
        started = time.perf_counter()
        stamp_ns = None
        try:
            image = record.image()
            stamp_ns = image.stamp_ns
            deadline.arrived(stamp_ns)
            raw, expected = prepared(image, pipeline, reference)
            decoded = time.perf_counter()
            if newest is not None and stamp_ns < newest:
                pipeline.reset()  # time runs backwards: the camera started again
            result = pipeline(raw, reference=expected)
        except FrameError as err:
            frames.append(ReplayedFrame(stamp_ns, err.cause, str(err)))
            continue
        computed = time.perf_counter()
        if sink is not None:
            _write(sink, image, result, invalid_ratios(pipeline, raw, result)[0])
            _write_camera_infos(sink, camera_info, pipeline.options, image, raw)
        stages = {"decode": decoded - started, **result.timings, "write": time.perf_counter() - computed}
        stages["total"] = sum(stages.values())
        is_late = deadline.missed(stages["total"])
        if comparison is not None:
            comparison.add(stamp_ns, result)
        layout = layout or check_layout(raw, pipeline.options)
        newest = stamp_ns
        if len(frames) in wanted:
            samples.append(FrameProducts(stamp_ns, result))
        ssim = float(result["ssim"]) if "ssim" in result else None
        means = (mean_value(result, name) for name in ("intensity", "dolp"))
        frames.append(ReplayedFrame(stamp_ns, "", "", stages, is_late, ssim, measure(pipeline, raw, result), *means))
        if show is not None:
            show(stamp_ns, result, frames[-1])
    layout = layout or LayoutCheck(None, "no frame was looked at")
    return Summary(frames, deadline.period, samples, layout, pipeline.device)


def prepared(
    image: messages.ImageMessage, pipeline: Pipeline, reference: Optional[Golden]
) -> Tuple[Frame, Optional[np.ndarray]]:
    """Decode the raw frame of a message, and load the image that SSIM mode `reference` compares it with.

    Raises:
        FrameError: The message holds no raw frame, or the reference is missing.
    """
    options = pipeline.options
    raw = messages.to_raw(image, options)
    if options.ssim_mode != "reference":
        return raw, None
    size = options.output_size(raw.shape)
    expected = None if reference is None else reference.intensity(image.stamp_ns)
    if expected is None or expected.shape != size:
        got = "none" if expected is None else f"{expected.shape[1]}x{expected.shape[0]}"
        text = f"needs a reference of {size[1]}x{size[0]} with stamp {image.stamp_ns}, got {got}"
        raise FrameError("reference", text)
    return raw, expected


def sampled(count: int) -> Set[int]:
    """Choose the places of the frames that the report of a recording of `count` frames shows."""
    return {round((count - 1) * k / max(1, SAMPLES - 1)) for k in range(SAMPLES)}


def _write(sink: Sink, image: messages.ImageMessage, result: Result, saturated: float) -> None:
    """Write every product of a frame, with the frame's stamp and frame_id, then the ratio of saturated pixels."""
    frame_id = printable(image.frame_id, messages.MAX_NAME)
    for name, array in result.items():
        kind, cdr = messages.product_message(name, array, image.stamp_ns, frame_id)
        sink.write(f"/{PRODUCT_TOPICS[name].name}", kind, image.stamp_ns, cdr)
    sink.write(f"/{NUMBER_TOPICS['saturated']}", messages.FLOAT32, image.stamp_ns, messages.encode_float32(saturated))


def _write_camera_infos(
    sink: Sink,
    camera_info: Optional[messages.Cdr],
    options: Options,
    image: messages.ImageMessage,
    raw: Frame,
) -> None:
    """Write the lens calibrations of a frame's products; none if the calibration of the raw frame does not fit."""
    topics = {OUTPUT_CAMERA_INFO[name] for name in options.products if PRODUCT_TOPICS[name].message_type == IMAGE}
    with suppress(FrameError):
        infos = encode_camera_infos(camera_info, options, raw, sorted(topics), image.stamp_ns, image.frame_id)
        for topic, cdr in infos.items():
            sink.write(f"/{topic}", messages.CAMERA_INFO, image.stamp_ns, cdr)
