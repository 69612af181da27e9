"""The loop of replay: every recorded frame through the pipeline, into a recording, a comparison and a summary."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

import numpy as np

from polar_pipeline._util.text import printable
from polar_pipeline.options import Options
from polar_pipeline.options.topics import IMAGE, NUMBER_TOPICS, OUTPUT_CAMERA_INFO, PRODUCT_TOPICS
from polar_pipeline.pipeline import Pipeline, Result
from polar_pipeline.quality.frame_checks import CHECK_PERIOD, NO_FRAME, check_frame, first_warnings
from polar_pipeline.quality.latency import Deadline
from polar_pipeline.quality.layout import LayoutCheck
from polar_pipeline.quality.statistics import FrameQuality, mean_value, measure
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.source import Recorded
from polar_pipeline.replay.compare import Comparison, Golden
from polar_pipeline.sensor.frames import Frame, FrameError, FrameWarning

if TYPE_CHECKING:  # needs the extra `recordings`
    from polar_pipeline.recordings.sink import Sink

#: Frames whose products are kept for the report.
SAMPLES = 3


@dataclass(frozen=True)
class FrameProducts:
    """The products of one frame."""

    stamp_ns: int
    products: Mapping[str, np.ndarray]
    name: str = ""  # of the file, or frame_id


@dataclass(frozen=True)
class ReplayedFrame:
    """One frame of a recording."""

    stamp_ns: Optional[int]  # its stamp in nanoseconds; None if it could not be decoded
    #: Cause of the `FrameError` of a frame that could not be used, whose figures are empty; "" if processed.
    cause: str = ""
    reason: str = ""  # message of the error
    timings: Mapping[str, float] = field(default_factory=dict)  # stage -> seconds
    late: bool = False  # whether it took longer than the recording's frame period
    ssim: Optional[float] = None  # the product of that name; None unless requested
    quality: Optional[FrameQuality] = None
    intensity: Optional[float] = None  # mean of the product, 0 to 1; None unless requested
    dolp: Optional[float] = None  # mean of the product without invalid pixels; None unless requested
    warnings: Tuple[FrameWarning, ...] = ()  # warnings about the frame, if it was checked


@dataclass(frozen=True)
class Summary:
    """Results of a replay. Figures per frame are those of processed frames, in the recording's order."""

    frames: List[ReplayedFrame]  # every frame of the recording, in its order
    period: float  # frame period of the recording in seconds; infinite while not known
    samples: List[FrameProducts]  # the products of a few frames, evenly spread
    layout: LayoutCheck  # whether the first frame fits the sensor's parameters; None if undecided
    device: str  # description of the device
    has_times: bool = True  # whether stamps mean something (`Source.has_times`)

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

    @cached_property
    def warnings(self) -> List[FrameWarning]:
        """The first warning of each cause."""
        return first_warnings(row.warnings for row in self.frames)

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
        """The product of that name per frame; empty unless requested."""
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
    show: Optional[Callable[[int, Result, ReplayedFrame], None]] = None,
    has_times: bool = True,
) -> Summary:
    """Process a recording. A frame that cannot be used is counted, and replay goes on with the next one.

    Products go to `sink` and `comparison`, and with stamp and figures of their frame to `show`, whose time is not part
    of a stage. `reference` has the images of SSIM mode `reference`. `has_times` is whether stamps mean something
    (`Source.has_times`); without them no frame is late.
    """
    options = pipeline.options
    frames: List[ReplayedFrame] = []
    samples: List[FrameProducts] = []
    check, check_due = NO_FRAME, -math.inf
    # the frames that the report shows
    places = {round((count - 1) * k / max(1, SAMPLES - 1)) for k in range(SAMPLES)}
    newest: Optional[int] = None
    deadline = Deadline()
    for record in records:
        started = time.perf_counter()
        stamp_ns = None
        try:
            image = record.image()
            stamp_ns = image.stamp_ns
            deadline.arrived(stamp_ns)
            raw = messages.to_raw(image, options, record.camera_info)
            expected = None
            if reference is not None and options.ssim_mode == "reference":
                expected = reference.intensity(stamp_ns, options.output_size(raw.shape))
            decoded = time.perf_counter()
            if newest is not None and stamp_ns < newest:
                pipeline.reset()  # time runs backwards: the camera started again
            result = pipeline(raw, reference=expected)
        except FrameError as err:
            frames.append(ReplayedFrame(stamp_ns, err.cause, str(err)))
            continue
        quality = measure(pipeline, raw, result)
        measured = time.perf_counter()
        warnings: Tuple[FrameWarning, ...] = ()
        if sink is not None:
            warnings = _write(sink, options, image, raw, result, quality.saturated, record.camera_info)
        stages = {"decode": decoded - started, **result.timings, "write": time.perf_counter() - measured}
        stages["total"] = sum(stages.values())
        is_late = deadline.missed(stages["total"]) and has_times
        if comparison is not None:
            comparison.add(stamp_ns, result, len(frames))
        if not check_due - CHECK_PERIOD <= stamp_ns / 1e9 < check_due:
            frame_check = check_frame(raw, options, image.warnings)
            check, check_due = (frame_check if check is NO_FRAME else check), stamp_ns / 1e9 + CHECK_PERIOD
            warnings += frame_check.warnings
        newest = stamp_ns
        if len(frames) in places:
            samples.append(FrameProducts(stamp_ns, result, printable(image.frame_id, messages.MAX_NAME)))
        ssim = float(result["ssim"]) if "ssim" in result else None
        means = {name: mean_value(result, name) for name in ("intensity", "dolp")}
        frames.append(ReplayedFrame(stamp_ns, "", "", stages, is_late, ssim, quality, warnings=warnings, **means))
        if show is not None:
            show(stamp_ns, result, frames[-1])
    return Summary(frames, deadline.period, samples, check.layout, pipeline.device, has_times)


def _write(
    sink: Sink,
    options: Options,
    image: messages.ImageMessage,
    raw: Frame,
    result: Result,
    saturated: float,
    camera_info: Optional[messages.CameraInfo],
) -> Tuple[FrameWarning, ...]:
    """Write products, ratio of saturated pixels and lens calibrations of a frame; return why the last do not fit."""
    stamp_ns, frame_id = image.stamp_ns, printable(image.frame_id, messages.MAX_NAME)
    for name, array in result.items():
        message_type, cdr = messages.product_message(name, array, stamp_ns, frame_id)
        sink.write(f"/{PRODUCT_TOPICS[name].name}", message_type, stamp_ns, cdr)
    sink.write(f"/{NUMBER_TOPICS['saturated']}", messages.FLOAT32, stamp_ns, messages.encode_float32(saturated))
    topics = {OUTPUT_CAMERA_INFO[name] for name in options.products if PRODUCT_TOPICS[name].message_type == IMAGE}
    try:
        infos = messages.encode_camera_infos(camera_info, options, raw, sorted(topics), stamp_ns, image.frame_id)
    except FrameError as err:
        return (FrameWarning("camera_info", f"products have no camera_info beside them: {err}"),)
    for topic, cdr in infos.items():
        sink.write(f"/{topic}", messages.CAMERA_INFO, stamp_ns, cdr)
    return ()
