"""The loop of replay: every recorded frame through the pipeline, into a recording, a comparison and a summary."""

from __future__ import annotations

import itertools
import time
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline import messages
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.quality import statistics as quality
from polar_pipeline.quality.latency import Deadline
from polar_pipeline.quality.layout import LayoutCheck, check_layout
from polar_pipeline.replay.compare import Comparison, Golden
from polar_pipeline.replay.sink import Sink
from polar_pipeline.replay.source import Recorded
from polar_pipeline.sensor.frames import FrameError
from polar_pipeline.topics import PRODUCT_TOPICS

#: Frames whose products are kept for the report.
SAMPLES = 3


class Rejected(NamedTuple):
    """Frames that could not be used, by cause: how many, and what the first one suffered from."""

    frames: int
    reason: str


class Sample(NamedTuple):
    """The products of one frame."""

    stamp_ns: int
    products: Mapping[str, np.ndarray]


class Summary(NamedTuple):
    """What a replay did.

    Attributes:
        stamps: Stamp of every frame that came through, in nanoseconds.
        rejected: Cause -> frames that did not.
        timings: Stage -> seconds per frame.
        late: Frames that took longer than the recording's frame period.
        period: That, in seconds; infinite while not known.
        ssim: Mean similarity per frame; empty unless asked for.
        invalid: Output pixels that are (saturated, dark), mean per frame, 0 to 1.
        samples: A few frames, evenly spread.
        quality: The figures of every frame.
        layout: Whether the first frame fits the sensor's parameters, as far as it tells.
        device: What the pipeline ran on.
    """

    stamps: List[int]
    rejected: Dict[str, Rejected]
    timings: Dict[str, List[float]]
    late: int
    period: float
    ssim: List[float]
    invalid: Tuple[float, float]
    samples: List[Sample]
    quality: List[quality.FrameQuality]
    layout: LayoutCheck
    device: str

    @property
    def rejected_count(self) -> int:
        """Frames that did not come through."""
        return sum(row.frames for row in self.rejected.values())

    @property
    def repeats(self) -> int:
        """The most identical frames in a row; 0 where frames have nothing to tell them by."""
        runs = itertools.groupby(row.fingerprint for row in self.quality)
        return max((len(list(run)) for mark, run in runs if mark is not None), default=0)


def replay(
    records: Iterable[Recorded],
    count: int,
    pipeline: Pipeline,
    sink: Optional[Sink] = None,
    comparison: Optional[Comparison] = None,
    reference: Optional[Golden] = None,
) -> Summary:
    """Process a recording. A frame that cannot be used is counted, and the next one gets its chance.

    Args:
        records: The raw images.
        count: How many.
        pipeline: What to compute.
        sink: Takes every product, with the stamp of its frame.
        comparison: Compares every product.
        reference: Where SSIM mode `reference` finds the image of the same stamp.
    """
    options = pipeline.options
    stamps: List[int] = []
    rejected: Dict[str, Rejected] = {}
    timings: Dict[str, List[float]] = {}
    invalid: List[Tuple[float, float]] = []
    ssim: List[float] = []
    samples: List[Sample] = []
    figures: List[quality.FrameQuality] = []
    layout = LayoutCheck(None, "no frame was looked at")
    deadline, late = Deadline(), 0
    wanted = {round((count - 1) * k / max(1, SAMPLES - 1)) for k in range(SAMPLES)}
    for index, record in enumerate(records):
        started = time.perf_counter()
        try:
            image = record.image()
            deadline.arrived(image.stamp_ns)
            raw = messages.to_raw(image, options.bit_depth, options.alignment)
            expected = None
            if options.ssim_mode == "reference":
                expected = _reference(reference, image.stamp_ns, options.output_size(raw.shape))
            decoded = time.perf_counter()
            if stamps and image.stamp_ns < stamps[-1]:
                pipeline.reset()  # a camera that started again, as in the live node
            result = pipeline(raw, reference=expected)
        except FrameError as err:
            before = rejected.get(err.cause, Rejected(0, str(err)))
            rejected[err.cause] = before._replace(frames=before.frames + 1)
            continue
        computed = time.perf_counter()
        if sink is not None:
            for name, array in result.items():
                kind, cdr = messages.product_message(name, array, image.stamp_ns, image.frame_id)
                sink.write(f"/{PRODUCT_TOPICS[name].name}", kind, image.stamp_ns, cdr)
        stages = {"decode": decoded - started, **result.timings, "write": time.perf_counter() - computed}
        stages["total"] = sum(stages.values())
        late += deadline.missed(stages["total"])
        for stage, seconds in stages.items():
            timings.setdefault(stage, []).append(seconds)
        if comparison is not None:
            comparison.add(image.stamp_ns, result)
        if not stamps:
            layout = check_layout(raw, options)
        stamps.append(image.stamp_ns)
        pixels = float(np.prod(options.output_size(raw.shape)))
        invalid.append((result.invalid[0] / pixels, result.invalid[1] / pixels))
        figures.append(quality.measure(pipeline, raw, result))
        if "ssim" in result:
            ssim.append(float(result["ssim"]))
        if index in wanted:
            samples.append(Sample(image.stamp_ns, result))
    saturated, dark = np.mean(invalid, axis=0) if invalid else (0.0, 0.0)
    mean_invalid = (float(saturated), float(dark))
    return Summary(
        stamps,
        rejected,
        timings,
        late,
        deadline.period,
        ssim,
        mean_invalid,
        samples,
        figures,
        layout,
        pipeline.device,
    )


def _reference(golden: Optional[Golden], stamp_ns: int, size: Tuple[int, int]) -> np.ndarray:
    """The reference image of a frame.

    Raises:
        FrameError: There is none, or it has another size (cause `reference`).
    """
    image = None if golden is None else golden.intensity(stamp_ns)
    if image is None or image.shape != size:
        got = "none" if image is None else f"{image.shape[1]}x{image.shape[0]}"
        raise FrameError("reference", f"needs a reference of {size[1]}x{size[0]} with stamp {stamp_ns}, got {got}")
    return image
