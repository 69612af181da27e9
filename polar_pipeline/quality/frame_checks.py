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
from polar_pipeline.sensor.frames import (
    FORMATS,
    Frame,
    FrameWarning,
    PackedFrame,
    RawFormat,
    bit_warnings,
    swapped_bytes,
)
from polar_pipeline.sensor.mosaic import SENSORS, Sensor

_LOG = logging.getLogger(__name__)
#: Seconds of a stream between two checks: a check takes some milliseconds, and its result seldom changes.
CHECK_PERIOD = 1.0
#: Share of full scale below which all of a frame is dark.
_DARK = 1 / 8
#: Pixels along which colors and polarizers repeat, at most.
_TILE = 4
#: How much 16-bit pixels differ in the wrong byte order at least (`_columns`), and how many times more than in the
#: right one; and how many times more packed pixels do.
_ROUGH, _ROUGHER, _ROUGHER_PACKED = 0.6, 3.0, 1.5
#: Share of pairs whose lowest four bits differ in noise, and its tolerance; share of pairs whose low byte differs at
#: least, and the largest part of it in which the four bits above it differ. Of 15,600 frames in the right packing, at
#: exposures of 2 to 100 % with noise and without it, mostly of stripes and displays, none fulfills this and is rough.
_NOISE, _NEAR_NOISE, _LOW_BYTE, _HIGH_BITS = 15 / 16, 0.05, 0.8, 0.4
#: Ratio of the means of even and odd columns that no light has: fully polarized light has 5.8.
_POLARIZED = 8.0
#: Sides of the frames that are looked at, and brightness in levels: few pixels or levels tell nothing.
_SIDE, _LEVELS = 128, 16
#: Pixels that some cameras read out of a sensor beyond its size.
_MORE_PIXELS = 16
#: Packings of 12 bits that take the same bytes.
_OF_12_BITS = ("12p", "12Packed")
#: Rows whose bytes are read in both ways, about.
_ROWS = 48


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
    of_bits = bit_warnings(frame, options.bit_depth, options.calibrated_bits)
    of_bytes = [row for row in of_bits if row.cause == "encoding"] or list(_byte_warnings(frame))
    if of_bytes:  # the numbers have no meaning
        return FrameCheck(layout, (*stated, *of_bytes))
    warnings = [*stated, *of_bits, *_size_warnings(frame, options)]
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


def _byte_warnings(frame: Frame) -> Iterator[FrameWarning]:
    """Yield that pixels of the same polarizer are much more alike if their bytes are read in another way."""
    if min(frame.shape) < _SIDE:
        return
    if isinstance(frame, PackedFrame):
        other = {FORMATS[a]: FORMATS[b] for a, b in (_OF_12_BITS, _OF_12_BITS[::-1])}.get(frame.fmt)
        if other is None:
            return
        rows = frame.rows[:: len(frame.rows) // _ROWS | 1]  # even and odd ones
        read, as_other = (_columns(replace(frame, rows=rows, fmt=fmt).unpack().mosaic) for fmt in (frame.fmt, other))
        # of each two pixels, one is read rightly in both packings; the other one becomes noise, or much brighter
        (_, rough), (_, smooth) = read[0], as_other[0]
        is_rough = rough > _ROUGHER_PACKED * smooth or (_contrast(read) > _POLARIZED and _contrast(as_other) < _ROUGHER)
        if min(mean for mean, _ in as_other) > _LEVELS and is_rough and _is_other_packing(rows, frame.fmt):
            yield FrameWarning(
                "encoding",
                f"pixels are more alike in the packing Mono{_name_of(other)} than in Mono{_name_of(frame.fmt)}: the "
                "driver, or --raw, states the wrong one",
            )
    elif frame.mosaic.dtype == np.uint16:
        rows = frame.mosaic[:: len(frame.mosaic) // _ROWS | 1]
        differences = [max(row[1] for row in _columns(numbers)) for numbers in (rows, rows.byteswap())]
        if differences[0] > max(_ROUGH, _ROUGHER * differences[1]):
            yield swapped_bytes()


def _is_other_packing(rows: np.ndarray, fmt: RawFormat) -> bool:
    """Return whether the bits of every other pixel are those of the other packing of 12 bits.

    The first byte of three has its low or its high bits, and half of the second one its high or its low bits. Pairs of
    pixels of the same color and polarizer are compared, as noise changes low bits everywhere.
    """
    groups = rows[:, : rows.shape[1] // 3 * 3].reshape(len(rows), -1, 3)
    parts = groups[..., 0], groups[..., 1] & 0xF
    byte, half = (float(np.mean(part[:, _TILE // 2 :] != part[:, : -_TILE // 2])) for part in parts)
    if fmt == FORMATS["12p"]:
        return abs(half - _NOISE) < _NEAR_NOISE
    return byte > _LOW_BYTE and half < _HIGH_BITS * byte


def _columns(rows: np.ndarray) -> List[Tuple[float, float]]:
    """Return the mean of even and of odd columns, and how much pixels of the same color and polarizer differ there.

    The latter is over the standard deviation: 0.1 to 0.5 in pictures, 1.1 in noise.
    """
    steps = np.abs(rows[:, _TILE:].astype(np.float32) - rows[:, :-_TILE])
    parts = ((rows[:, k::2], steps[:, k::2]) for k in (0, 1))
    return [(float(pixels.mean()), float(step.mean()) / (float(pixels.std()) or 1.0)) for pixels, step in parts]


def _contrast(columns: List[Tuple[float, float]]) -> float:
    """Return the ratio of the means of even and odd columns."""
    (even, _), (odd, _) = columns
    return max(even, odd) / max(min(even, odd), 1.0)


def _name_of(fmt: RawFormat) -> str:
    return next(name for name, row in FORMATS.items() if row == fmt)


def _size_warnings(frame: Frame, options: Options) -> Iterator[FrameWarning]:
    """Yield that a frame has a size as of a picture that was scaled down, or ends beyond the sensor."""
    height, width = options.sensor.size
    starts, period = options.roi_offset[::-1], options.sensor.period
    ends = [start + side for start, side in zip(starts, frame.shape)]
    limits = [side + (0 if start % period else _MORE_PIXELS) for start, side in zip(starts, (height, width))]
    is_outside = any(starts) and (ends[0] > limits[0] or ends[1] > limits[1])
    if is_outside and options.sensor.name in SENSORS:  # the size of other sensors is unknown
        text = (
            f"a frame of {frame.shape[1]}x{frame.shape[0]} pixels from {options.roi_offset} on ends at {ends[1]}x"
            f"{ends[0]}, beyond the {width}x{height} of the {options.sensor.name}: raw.roi_offset (--roi-offset), the "
            "region in camera_info or the sensor (--sensor) is wrong"
        )
        yield FrameWarning("size", text)
    if frame.shape == (width, height) != (height, width):
        text = (
            f"{height}x{width} pixels are the sensor's {width}x{height} turned, so other polarizers are in front of "
            "them: save mosaics as they were read out; a size after --raw is WIDTHxHEIGHT"
        )
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
