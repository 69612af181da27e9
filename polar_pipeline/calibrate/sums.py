"""Sums over the frames of a session, so that no more than two frames of a setting are in memory at once."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import Sensor

#: Name of the setting of dark frames.
DARK = "dark"
#: Most frames of a setting: their sum fits in 32 bits.
MAX_FRAMES = 1 << 16
#: Differences of a pair beyond this many standard deviations do not count as noise.
_CLIP = 6.0


class NoisePoint(NamedTuple):
    """Noise of the pixels of one polarizer and color in a pair of frames, one point of the photon transfer curve.

    Attributes:
        signal: Mean value as a share of full scale, black level included.
        variance: Variance of one frame, in squares of full scale, rounding to levels included.
        pixels: Number of pixels.
    """

    signal: float
    variance: float
    pixels: int


class FrameSums:
    """Sums over the frames of one setting of the polarizer, or over dark frames.

    Args:
        shape: (height, width) of the frames.
        full_scale: Value of a saturated pixel.
        period: Pixels after which the mosaic repeats.
        has_squares: Whether the variance of each pixel is asked for.

    Attributes:
        count: Number of frames.
        saturated: (H, W) bool, pixels that are saturated in some frame.
        points: Noise of pairs of frames.
    """

    def __init__(self, shape: Tuple[int, int], full_scale: int, period: int, has_squares: bool = False) -> None:
        self.count = 0
        self.full_scale = full_scale
        self.saturated = np.zeros(shape, bool)
        self.points: List[NoisePoint] = []
        self._sums = np.zeros(shape, np.uint32)
        self._squares = np.zeros(shape, np.float64) if has_squares else None
        self._period = period
        self._waiting: Optional[np.ndarray] = None

    def add(self, frame: RawFrame) -> None:
        """Add a frame.

        Raises:
            ValueError: The frame has another size than the frames before, or there are too many.
        """
        if frame.shape != self._sums.shape:
            (height, width), (rows, columns) = frame.shape, self._sums.shape
            raise ValueError(f"all frames must have {columns}x{rows} pixels, got {width}x{height}")
        if self.count == MAX_FRAMES:
            raise ValueError(f"a setting has at most {MAX_FRAMES} frames")
        pixels = np.minimum(frame.mosaic, np.array(frame.full_scale, frame.mosaic.dtype))
        self.count += 1
        self._sums += pixels
        if self._squares is not None:
            self._squares += np.square(pixels, dtype=np.float64)
        self.saturated |= pixels == frame.full_scale
        if self._waiting is None:
            self._waiting = pixels
        else:
            self._add_points(self._waiting, pixels)
            self._waiting = None

    def mean(self, rows: slice = slice(None)) -> np.ndarray:
        """Return (h, W) float64: mean of each pixel of these rows as a share of full scale."""
        mean: np.ndarray = self._sums[rows] / float(self.count * self.full_scale)
        return mean

    def variance(self) -> np.ndarray:
        """Return (H, W) float64: variance of each pixel over the frames, in squares of full scale; 0 of one frame."""
        assert self._squares is not None
        sums = self._sums.astype(np.float64)
        variance = (self._squares - sums**2 / self.count) / max(1, self.count - 1) / self.full_scale**2
        return np.maximum(variance, 0)

    def _add_points(self, first: np.ndarray, second: np.ndarray) -> None:
        """Add half the variance of a pair's difference: noise without fixed differences between pixels."""
        top = float(self.full_scale)
        for row in range(self._period):
            for column in range(self._period):
                site = (slice(row, None, self._period), slice(column, None, self._period))
                a, b = first[site].astype(np.float32), second[site].astype(np.float32)
                difference = (a - b)[~self.saturated[site]]
                if difference.size < 16:
                    continue
                difference -= difference.mean()  # what the lamp changed in between
                near = np.abs(difference) <= _CLIP * difference.std()
                variance = float(np.var(difference[near], dtype=np.float64)) / 2
                signal = float(a.mean(dtype=np.float64) + b.mean(dtype=np.float64)) / 2
                self.points.append(NoisePoint(signal / top, variance / top**2, int(near.sum())))


class SessionSums:
    """Sums over all frames of a session: dark ones, and those of each setting of the polarizer.

    Args:
        sensor: The mosaic of the frames' region, in the order of the sensor's own readout.

    Attributes:
        settings: The sums by setting, in the order of their first frames.
        shape: (height, width) of the frames.
        full_scale: Value of a saturated pixel.
    """

    def __init__(self, sensor: Sensor) -> None:
        self.sensor = sensor
        self.settings: Dict[str, FrameSums] = {}
        self.shape: Tuple[int, int] = (0, 0)
        self.full_scale = 0

    def add(self, setting: str, frame: RawFrame) -> None:
        """Add a frame of a setting, or of `DARK`.

        Raises:
            ValueError: The frame does not fit the frames before.
        """
        if not self.settings:
            self.shape, self.full_scale = frame.shape, frame.full_scale
        if frame.full_scale != self.full_scale:
            raise ValueError(f"all frames must have full scale {self.full_scale}, got {frame.full_scale}")
        if setting not in self.settings:
            self.settings[setting] = FrameSums(self.shape, self.full_scale, self.sensor.period, setting == DARK)
        self.settings[setting].add(frame)

    @property
    def dark(self) -> FrameSums:
        """The dark frames.

        Raises:
            ValueError: There are none.
        """
        if DARK not in self.settings:
            raise ValueError("a session needs dark frames: cover the lens and record some, best 64")
        return self.settings[DARK]

    @property
    def light(self) -> Dict[str, FrameSums]:
        """The settings of the polarizer."""
        return {name: sums for name, sums in self.settings.items() if name != DARK}

    @property
    def bit_depth(self) -> int:
        """Significant bits of a pixel."""
        return bin(self.full_scale).count("1")

    @property
    def level(self) -> float:
        """The step between the values of pixels, as a share of full scale."""
        return (self.full_scale & -self.full_scale) / self.full_scale
