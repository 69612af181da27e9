"""What looks wrong in a raw frame: warnings that name the option that corrects it. Imports no ROS."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Dict, Iterable, Iterator, List, Tuple

import numpy as np

from polar_pipeline.options import Options
from polar_pipeline.quality.broken import broken_warnings
from polar_pipeline.quality.layout import LayoutCheck, check_layout
from polar_pipeline.quality.sample import Sample, take_sample
from polar_pipeline.quality.superpixels import light_warnings, superpixel_means
from polar_pipeline.sensor.frames import FORMATS, Frame, FrameWarning, PackedFrame, RawFormat, bit_warnings
from polar_pipeline.sensor.mosaic import Sensor

_LOG = logging.getLogger(__name__)
#: Seconds of a stream between two checks: a check takes some milliseconds, and its result seldom changes.
CHECK_PERIOD = 1.0
#: Share of full scale below which all of a frame is dark.
_DARK = 1 / 8
#: Pixels along which colors and polarizers repeat, at most.
_TILE = 4
#: Ratio of the roughness of two readings above which one of them is wrong, and that of even and odd pixels if one of
#: two is. In real frames the latter is 1.5 at most.
_ROUGHER, _MUCH_ROUGHER = 2.0, 4.0
#: Roughness over the standard deviation above which pixels are no picture, but for noise; it is 0.1 to 0.5 in pictures.
_ROUGH = 0.25
_PACKINGS = ("p", "packed")
#: Rows of packed pixels that are read in both ways, about.
_ROWS = 128


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
    of_bytes = list(_byte_warnings(frame, sample))
    if of_bytes:  # the numbers have no meaning
        return FrameCheck(layout, (*stated, *of_bytes))
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


def _byte_warnings(frame: Frame, sample: Sample) -> Iterator[FrameWarning]:
    """Yield that pixels of the same polarizer are much more alike if their bytes are read in another way."""
    if isinstance(frame, PackedFrame):
        names = [name for name, fmt in FORMATS.items() if fmt.bits == frame.fmt.bits and fmt.packing in _PACKINGS]
        other = FORMATS[next((name for name in names if FORMATS[name].packing != frame.fmt.packing), names[0])]
        rows, width = frame.rows[:: len(frame.rows) // _ROWS | 1], frame.width  # even and odd ones
        if other.row_bytes(width) > rows.shape[1]:
            return
        read, as_other = (_roughness(replace(frame, rows=rows, fmt=fmt).unpack().mosaic) for fmt in (frame.fmt, other))
        # only one of each two pixels is read wrongly
        if max(read) > _MUCH_ROUGHER * min(read) and max(as_other) < _ROUGHER * min(as_other):
            yield FrameWarning(
                "encoding",
                f"pixels are more alike in the packing {_name_of(other)} than in {_name_of(frame.fmt)}: the driver, or "
                "--raw, states the wrong one",
            )
    elif frame.mosaic.dtype == np.uint16 and not frame.is_split:
        bands = sample.bands.reshape(-1, sample.bands.shape[-1])
        shares = [max(_roughness(rows)) / (float(rows.std()) or 1.0) for rows in (bands, bands.byteswap())]
        if shares[0] > _ROUGH and shares[0] > _ROUGHER * shares[1]:
            yield FrameWarning(
                "encoding",
                "pixels are more alike with their two bytes in the other order: the driver states the wrong one "
                "(is_bigendian), or a file without a header is big-endian",
            )


def _roughness(rows: np.ndarray) -> Tuple[float, float]:
    """Return the mean differences of pixels of the same color and polarizer, in even and in odd columns."""
    steps = np.abs(rows[:, _TILE:].astype(np.float32) - rows[:, :-_TILE])
    return float(steps[:, ::2].mean()), float(steps[:, 1::2].mean())


def _name_of(fmt: RawFormat) -> str:
    """Return the name of a packed format, as PFNC has it."""
    return f"Mono{next(name for name, row in FORMATS.items() if row == fmt)}"


def _size_warnings(frame: Frame, options: Options) -> Iterator[FrameWarning]:
    """Yield that a frame has a size as of a picture that was scaled down."""
    height, width = options.sensor.size
    if frame.shape == (width, height) != (height, width):
        text = f"{height}x{width} pixels are the sensor's {width}x{height} turned: a size is WIDTHxHEIGHT (--raw)"
        yield FrameWarning("size", text)
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
