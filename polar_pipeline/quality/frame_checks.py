"""What looks wrong in a raw frame: warnings that name the option that corrects it. Imports no ROS."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, List, Tuple

from polar_pipeline.options import Options
from polar_pipeline.quality.broken import broken_warnings
from polar_pipeline.quality.layout import LayoutCheck, check_layout
from polar_pipeline.quality.sample import Sample, take_sample
from polar_pipeline.quality.superpixels import light_warnings, superpixel_means
from polar_pipeline.sensor.frames import Frame, FrameWarning, bit_warnings
from polar_pipeline.sensor.mosaic import Sensor

_LOG = logging.getLogger(__name__)
#: Seconds of a stream between two checks: a check takes some milliseconds, and its result seldom changes.
CHECK_PERIOD = 1.0
#: Share of full scale below which all of a frame is dark.
_DARK = 1 / 8


@dataclass(frozen=True)
class FrameCheck:
    """Result of all checks of a frame; the warnings include a layout that does not fit."""

    layout: LayoutCheck
    warnings: Tuple[FrameWarning, ...]


#: Result for a stream without a frame.
NO_FRAME = FrameCheck(LayoutCheck(None, "no frame was looked at"), ())


def check_frame(frame: Frame, options: Options, stated: Iterable[FrameWarning] = ()) -> FrameCheck:
    """Check a raw frame; `stated` has warnings about its file or message (`ImageMessage.warnings`)."""
    sample = take_sample(frame)
    layout = check_layout(frame, options, sample)
    if frame.exposures is not None:  # bits and brightness are not the camera's
        misfit = frame.exposures.misfit
        return FrameCheck(layout, (*stated, *([FrameWarning("exposures", misfit)] if misfit else [])))
    warnings = [*stated, *bit_warnings(frame, options.bit_depth), *_size_warnings(frame, options)]
    return FrameCheck(layout, (*warnings, *_pixel_warnings(sample, options.read_out(frame.shape), layout, warnings)))


def _pixel_warnings(
    sample: Sample, sensor: Sensor, layout: LayoutCheck, before: List[FrameWarning]
) -> List[FrameWarning]:
    """Return what looks wrong about the pixels of a frame, only the first cause of those that hide others."""
    lowest, highest = int(sample.rows.min()), int(sample.rows.max())
    if highest < _DARK * sample.full_scale:
        text = (
            f"nothing is brighter than {highest / sample.full_scale:.1%} of full scale: a longer exposure, or "
            "raw.bit_depth and raw.alignment (--bit-depth, --alignment) are wrong"
        )
        return [] if any(row.cause == "bits" for row in before) else [FrameWarning("dark", text)]
    if lowest == highest < sample.full_scale:
        return [FrameWarning("dead", f"every pixel is {highest}: this is a test picture, or the camera failed")]
    light = list(light_warnings(superpixel_means(sample, sensor)))
    if any(row.cause == "mosaic" for row in light):
        return light
    broken = list(broken_warnings(sample, sensor.period))
    if any(row.cause == "lines" for row in broken):  # the light of such tiles has no meaning
        return broken
    return [*broken, *light, *([FrameWarning("layout", layout.text)] if layout.fits is False else [])]


def _size_warnings(frame: Frame, options: Options) -> Iterator[FrameWarning]:
    """Yield that a frame has a size as of a picture that was scaled down."""
    height, width = options.sensor.size
    parts = {(height // 2, width // 2): "half", (height // 4, width // 4): "a quarter of"}
    part = parts.get(frame.shape)
    if part and options.roi_offset == (0, 0) and not frame.is_split:
        yield FrameWarning(
            "size",
            f"{frame.shape[1]}x{frame.shape[0]} pixels are {part} the sensor's {width}x{height}: binning and scaled "
            "pictures mix polarizers; of a region of the sensor, set raw.roi_offset (--roi-offset)",
        )


def first_warnings(checks: Iterable[Iterable[FrameWarning]]) -> List[FrameWarning]:
    """Return the first warning of each cause."""
    first: Dict[str, FrameWarning] = {}
    for warning in (warning for warnings in checks for warning in warnings):
        first.setdefault(warning.cause, warning)
    return list(first.values())


def log_warnings(warnings: Iterable[FrameWarning]) -> None:
    """Log warnings; the command line shows them, and with `--strict` raises the first one as an error."""
    for row in warnings:
        _LOG.warning("%s: %s", row.cause, row.text)
