"""Image quality that a robot can act on: figures of a frame, judged by limits with hysteresis. Imports no ROS.

The figures of a frame are the mean similarity, the lowest block and its place, the saturated and dark ratios, and
whether the camera repeats a frame. The effect of each fault on each figure is in `docs/image_quality.md`, and in
`test_faults.py`.
"""

from __future__ import annotations

import enum
import math
import threading
import zlib
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Dict, List, NamedTuple, Optional, Tuple

import cv2
import numpy as np

from polar_pipeline._util.values import whole_number
from polar_pipeline.backends.backend import block_pixels
from polar_pipeline.backends.noise.gains import pair_gains
from polar_pipeline.backends.noise.model import exposure_noise
from polar_pipeline.options import ContradictionError, Options, declare, declared
from polar_pipeline.options.option import validate
from polar_pipeline.options.products import PRODUCTS, full_level
from polar_pipeline.pipeline import Pipeline, Result
from polar_pipeline.polarimetry.coefficients import SSIM_BLOCK, SSIM_C2, gaussian
from polar_pipeline.sensor.frames import Frame, PackedFrame

#: Every 16th row goes into a frame's fingerprint; on a working camera, noise makes every row of every frame different.
FINGERPRINT_ROWS = 16
#: SSIM mode -> causes of a low similarity.
CAUSES = {
    "consistency": "noise, defective pixels or too fine detail",
    "temporal": "motion, fog, focus or a change of light",
    "reference": "dirt, fog, focus or motion",
}


class Level(enum.IntEnum):
    """Levels of `diagnostic_msgs/DiagnosticStatus`."""

    OK = 0
    WARN = 1
    ERROR = 2


def _limit(default: float, text: str, highest: float = 1.0, lowest: float = 0.0) -> float:
    return declare(default, text, limits=(lowest, highest))


def _frozen_frames(name: str, value: object) -> int:
    count = whole_number(name, value, 0, 1000)
    if count == 1:
        raise ValueError(f"{name} must be 0 (never) or at least 2, got 1")
    return count


@dataclass(frozen=True)
class QualityLimits:
    """Limits beyond which quality is bad; ValueError if one is out of range, or an error would precede its warning."""

    ssim_warn: float = _limit(
        0.8, "Warn in /diagnostics if the SSIM of the lowest block is below this; -1: never.", lowest=-1.0
    )
    ssim_error: float = _limit(
        0.5,
        "Report an error in /diagnostics if the SSIM of the lowest block is below this; at most quality.ssim_warn.",
        lowest=-1.0,
    )
    saturated_warn: float = _limit(0.1, "Warn if more than this fraction of the pixels is saturated; 1: never.")
    saturated_error: float = _limit(
        0.5,
        "Report an error if more than this fraction of the pixels is saturated; at least quality.saturated_warn.",
    )
    dark_warn: float = _limit(0.5, "Warn if more than this fraction of the pixels is below min_intensity; 1: never.")
    dark_error: float = _limit(
        0.9,
        "Report an error if more than this fraction of the pixels is below min_intensity; at least quality.dark_warn.",
    )
    hysteresis: float = _limit(
        0.02,
        "Margin by which a value must return below or above a limit before the level in /diagnostics falls.",
        highest=0.5,
    )
    frozen_frames: int = declare(
        10,
        "Identical consecutive raw frames that are an error, at least 2; 0: never.",
        limits=(0, 1000),
        unit="frames",
        check=_frozen_frames,
    )

    strict: bool = declare(False, "Report warnings about raw frames, such as a layout that does not fit, as errors.")

    def __post_init__(self) -> None:
        for name, value in validate(LIMITS, vars(self), attrgetter("parameter")).items():
            object.__setattr__(self, name, value)
        if self.ssim_error > self.ssim_warn:
            raise ContradictionError(
                f"quality.ssim_error must be at most quality.ssim_warn, got {self.ssim_error} > {self.ssim_warn}"
            )
        for name in ("saturated", "dark"):
            warn, error = getattr(self, f"{name}_warn"), getattr(self, f"{name}_error")
            if error < warn:
                raise ContradictionError(
                    f"quality.{name}_error must be at least quality.{name}_warn, got {error} < {warn}"
                )


#: Every limit by name.
LIMITS = declared(QualityLimits, "quality.")


@dataclass(frozen=True)
class Spot:
    """Block of the lowest mean similarity; `x`, `y` is its center in pixels of the output, `place` says it in words."""

    ssim: float
    x: int
    y: int
    place: str


@dataclass(frozen=True)
class FrameQuality:
    """The quality of one frame.

    Attributes:
        ssim: Mean similarity; None if nothing was compared.
        lowest: The lowest block; None if nothing was compared.
        saturated: Ratio of the output's pixels that are saturated, 0 to 1.
        dark: Ratio of the output's pixels that are dark; None if no product needs their number.
        fingerprint: Checksum, equal for equal frames.
        expected: Similarity that noise alone leaves in the lowest block (`expected_similarity`), relative to which the
            block is judged; 1 in other modes than `consistency`.
    """

    ssim: Optional[float]
    lowest: Optional[Spot]
    saturated: float
    dark: Optional[float]
    fingerprint: Optional[int]
    expected: float = 1.0

    def values(self) -> Dict[str, str]:
        """Format the figures as text, by name."""
        spot = self.lowest
        return {
            "ssim": _text(self.ssim, 1, 4),
            "lowest": _text(spot.ssim if spot else None, 1, 4),
            "lowest x": str(spot.x) if spot else "n/a",
            "lowest y": str(spot.y) if spot else "n/a",
            "lowest with noise alone": _text(self.expected if spot else None, 1, 4),
            "saturated [%]": _text(self.saturated, 100, 3),
            "dark [%]": _text(self.dark, 100, 3),
        }


def _text(value: Optional[float], scale: float, digits: int) -> str:
    return "n/a" if value is None else f"{scale * value:.{digits}f}"


def measure(pipeline: Pipeline, frame: Frame, result: Result) -> FrameQuality:
    """Measure the quality of a frame by its products; with `ssim` or `ssim_map` there is a similarity."""
    options = pipeline.options
    size = options.output_size(frame.shape)
    height, width = size[0] // options.ssim_stride, size[1] // options.ssim_stride
    mean, spot = None, None
    if result.blocks is not None and not np.isnan(result.blocks).all():
        is_compared = ~np.isnan(result.blocks)  # of a rectified image, blocks can lie outside the frame
        mean = float(np.average(result.blocks[is_compared], weights=block_pixels(height, width)[is_compared]))
        spot = lowest_block(result.blocks, (height, width), options.ssim_stride)
    saturated, dark = (count / (size[0] * size[1]) for count in result.invalid)
    expected = 1.0
    if spot is not None and options.ssim_mode == "consistency":
        x, y = spot.x, spot.y
        if options.geometry is not None:
            x, y, _ = map(int, options.geometry.matrix(options.stokes_size(frame.shape)) @ (x, y, 1))
        expected = expected_similarity(options, frame, x, y)
    return FrameQuality(mean, spot, saturated, dark if options.counts_dark else None, fingerprint(frame), expected)


def expected_similarity(options: Options, frame: Frame, x: int, y: int) -> float:
    """Compute the similarity that noise alone leaves between I0+I90 and I45+I135 of a block of unpolarized light.

    The flat block, with its center at column x and row y of the Stokes image, is as bright as the raw frame there.
    """
    is_half = options.resolution == "half"
    method = options.for_frame(frame).method_on(options.sensor)
    variance, covariance = pair_gains(*method, options.ssim_stride)
    exposure, step = 0, 1 if is_half else 2
    if frame.exposures is not None:
        exposure = int(frame.exposures.index[y // step, x // step])
    shot, floor = exposure_noise(options, frame)[exposure]
    raw = shot * _brightness(frame, x, y, options.ssim_stride, 2 if is_half else 1) + floor
    # a window's own mean is subtracted from its pixels
    taps = gaussian(options.ssim_window, options.ssim_sigma)
    seen = raw * (1 - math.fsum(tap**2 for tap in taps) ** 2)
    return (2 * covariance * seen + SSIM_C2) / (2 * variance * seen + SSIM_C2)


def _brightness(frame: Frame, x: int, y: int, stride: int, step: int) -> float:
    """Compute the mean of a block's raw pixels as a share of full scale."""
    reach = SSIM_BLOCK * stride * step // 2
    rows = slice(max(0, step * y - reach), step * y + reach)
    if isinstance(frame, PackedFrame):
        frame = replace(frame, rows=frame.rows[rows]).unpack()
        rows = slice(None)
    columns = slice(max(0, step * x - reach), step * x + reach)
    return min(float(np.mean(frame.mosaic[rows, columns])) / frame.full_scale, 1.0)


def mean_value(result: Result, name: str) -> Optional[float]:
    """Return the mean of `intensity` or `dolp`, 0 to 1, or None without the product or valid pixels.

    Saturated and dark pixels of `dolp`, which are NaN or level 0, do not count.
    """
    if name not in result:
        return None
    array = result[name].reshape(result[name].shape[0], -1)
    count = array.size - (0 if PRODUCTS[name].is_light else sum(result.invalid))
    total = cv2.sumElems(array)[0]
    if np.isnan(total):
        total = cv2.sumElems(cv2.patchNaNs(array.copy(), 0))[0]
    return total / count / full_level(str(array.dtype)) if count else None


def lowest_block(blocks: np.ndarray, size: Tuple[int, int], stride: int = 1) -> Spot:
    """Find the lowest block of a similarity map of `size` = (height, width)."""
    row, column = np.unravel_index(int(np.nanargmin(blocks)), blocks.shape)
    # the last block of a row or column may be partial
    y, x = ((first * SSIM_BLOCK + min((first + 1) * SSIM_BLOCK, end)) / 2 for first, end in zip((row, column), size))
    return Spot(float(blocks[row, column]), int(x * stride), int(y * stride), place(x / size[1], y / size[0]))


def place(x: float, y: float) -> str:
    """Name a place in an image whose sides are 1, by thirds: `lower left`, `upper middle`, `center`."""
    row, column = ("upper", "middle", "lower")[min(2, int(3 * y))], ("left", "middle", "right")[min(2, int(3 * x))]
    return "center" if row == column else f"{row} {column}"


def fingerprint(frame: Frame) -> Optional[int]:
    """Compute a checksum over rows of the raw frame, or None if they have one value, as with a covered lens."""
    rows = frame.rows if isinstance(frame, PackedFrame) else frame.mosaic
    some = np.ascontiguousarray(rows[::FINGERPRINT_ROWS])
    return None if some.min() == some.max() else zlib.crc32(some.tobytes())


def level_with_hysteresis(before: Level, value: float, warn: float, error: float, hysteresis: float) -> Level:
    """Return the level of a value that is bad below the limits `warn` and `error`, by the level `before`.

    The level rises as soon as a limit is passed and falls once the value is `hysteresis` above it. A limit of -1, the
    lowest value there is, is never passed.
    """

    def is_below(limit: float, level: Level) -> bool:
        return limit > -1 and value < limit + (hysteresis if before >= level else 0.0)

    if is_below(error, Level.ERROR):
        return Level.ERROR
    return Level.WARN if is_below(warn, Level.WARN) else Level.OK


class Finding(NamedTuple):
    """Level of one figure, and a message."""

    level: Level
    text: str


_FINE = Finding(Level.OK, "")


class Quality:
    """Judge of every frame by `limits`, which may be replaced between frames; `report` has the worst. Thread-safe."""

    def __init__(self, limits: QualityLimits) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._now: Dict[str, Finding] = {}
        self._worst: Dict[str, Finding] = {}
        self._newest: Optional[FrameQuality] = None
        self._fingerprint: Optional[int] = None
        self._repeats = 1

    def add(self, sample: FrameQuality, mode: str) -> None:
        """Judge a frame whose similarity was computed in this `ssim_mode`."""
        with self._lock:
            limits, spot = self.limits, sample.lowest
            same = sample.fingerprint is not None and sample.fingerprint == self._fingerprint
            self._repeats = self._repeats + 1 if same else 1
            self._fingerprint, self._newest = sample.fingerprint, sample
            text = f"camera frozen: {self._repeats} identical frames"
            self._note("frozen", Level.ERROR if 0 < limits.frozen_frames <= self._repeats else Level.OK, text)
            if spot is None:
                self._note("ssim", Level.OK, "")
            else:
                noise = f", with noise alone {sample.expected:.2f}" if sample.expected < 0.995 else ""
                text = f"image quality low: SSIM {spot.ssim:.2f} in the {spot.place}{noise}: {CAUSES[mode]}"
                self._judge("ssim", spot.ssim / sample.expected, limits.ssim_warn, limits.ssim_error, text)
            for name, ratio, warn, error in (
                ("saturated", sample.saturated, limits.saturated_warn, limits.saturated_error),
                ("dark", sample.dark or 0.0, limits.dark_warn, limits.dark_error),
            ):
                self._judge(name, -ratio, -warn, -error, f"{100 * ratio:.1f} % of the pixels are {name}")

    def _judge(self, name: str, value: float, warn: float, error: float, text: str) -> None:
        """Judge a figure that is bad when low."""
        before = self._now.get(name, _FINE).level
        self._note(name, level_with_hysteresis(before, value, warn, error, self.limits.hysteresis), text)

    def _note(self, name: str, level: Level, text: str) -> None:
        self._now[name] = Finding(level, text)
        if level >= self._worst.get(name, _FINE).level:
            self._worst[name] = self._now[name]

    def restart(self) -> None:
        """Forget the previous frames, as after a jump in time."""
        with self._lock:
            self._fingerprint = None

    def report(self) -> Tuple[Finding, Dict[str, str]]:
        """Return the worst finding since the last report, and the newest frame's figures."""
        with self._lock:
            findings: List[Finding] = [finding for finding in self._worst.values() if finding.level]
            newest, self._newest, self._worst = self._newest, None, {}
        if newest is None:
            return Finding(Level.OK, "no frame was looked at"), {}
        if not findings:
            text = "good" if newest.ssim is not None else "no similarity is computed"
            return Finding(Level.OK, text), newest.values()
        text = "; ".join(finding.text for finding in sorted(findings, key=lambda finding: -finding.level))
        return Finding(max(finding.level for finding in findings), text), newest.values()
