"""Sums over the frames of a session, so that no more than two frames are in memory at once."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import Sensor

#: Name of the setting of dark frames, and beginnings of the names of settings with constant light and no polarizer.
DARK, FLAT, UNPOLARIZED = "dark", "flat", "unpolarized"
#: Maximum number of frames of a setting: their sum fits in 32 bits.
MAX_FRAMES = 1 << 16
#: Full scale of 16 bits.
_SIXTEEN_BITS = 0xFFFF
#: Differences of a pair beyond this many standard deviations do not count as noise.
_CLIP = 6.0


class NoisePoint(NamedTuple):
    """Noise of the pixels of one polarizer and color in a pair of frames, one point of the photon transfer curve.

    The mean signal is a share of full scale and contains the black level. The variance of one frame is in squares of
    full scale and contains rounding to levels.
    """

    signal: float
    variance: float
    pixels: int


def is_flat(setting: str) -> bool:
    """Return whether a setting is light without a polarizer, in any folder of a session: `flat/1`, `2/flat`."""
    return any(part.lower().startswith((FLAT, UNPOLARIZED)) for part in setting.split("/"))


class FrameSums:
    """Sums over the frames of one setting of the polarizer, or over dark frames, whose mosaic repeats after `period`.

    `variance` can be called if the sums have squares.
    """

    def __init__(self, shape: Tuple[int, int], full_scale: int, period: int, has_squares: bool = False) -> None:
        self.count = 0
        self.full_scale = full_scale
        self.points: List[NoisePoint] = []
        self._sums = np.zeros(shape, np.uint16)
        self._saturated = np.packbits(np.zeros(shape, bool), axis=1)
        self._squares = np.zeros(shape, np.float64) if has_squares else None
        self._period = period

    def add(self, pixels: np.ndarray) -> None:
        """Add a frame, (H, W) uint8 or uint16, at most full scale; more than `MAX_FRAMES` are a ValueError."""
        if self.count == MAX_FRAMES:
            raise ValueError(f"a setting has at most {MAX_FRAMES} frames")
        self.count += 1
        if self.count * self.full_scale > np.iinfo(self._sums.dtype).max:
            self._sums = self._sums.astype(np.uint32, copy=False)
        self._sums += pixels
        if self._squares is not None:
            self._squares += np.square(pixels, dtype=np.float64)
        self._saturated |= np.packbits(pixels == self.full_scale, axis=1)

    @property
    def saturated(self) -> np.ndarray:
        """(H, W) bool, pixels that are saturated in some frame."""
        bits: np.ndarray = np.unpackbits(self._saturated, axis=1)[:, : self._sums.shape[1]]
        return bits.view(bool)

    def mean(self, rows: slice = slice(None)) -> np.ndarray:
        """Return (h, W) float64: mean of each pixel of these rows as a share of full scale."""
        mean: np.ndarray = np.divide(self._sums[rows], self.count * self.full_scale, dtype=np.float64)
        return mean

    def variance(self) -> np.ndarray:
        """Return (H, W) float64: variance of each pixel over the frames, in squares of full scale; 0 of one frame."""
        assert self._squares is not None
        variance = np.square(self._sums, dtype=np.float64)
        variance /= -self.count
        variance += self._squares
        variance /= max(1, self.count - 1) * self.full_scale**2
        return np.maximum(variance, 0, out=variance)

    def add_points(self, first: np.ndarray, second: np.ndarray) -> None:
        """Add half the variance of a pair's difference: noise without fixed differences between pixels."""
        top, saturated = float(self.full_scale), self.saturated
        for row in range(self._period):
            for column in range(self._period):
                site = (slice(row, None, self._period), slice(column, None, self._period))
                a, b = first[site].astype(np.float32), second[site].astype(np.float32)
                difference = (a - b)[~saturated[site]]
                if difference.size < 16:
                    continue
                difference -= difference.mean()  # what the lamp changed in between
                near = np.abs(difference) <= _CLIP * difference.std()
                variance = float(np.var(difference[near], dtype=np.float64)) / 2
                signal = float(a.mean(dtype=np.float64) + b.mean(dtype=np.float64)) / 2
                self.points.append(NoisePoint(signal / top, variance / top**2, int(near.sum())))


class SessionSums:
    """Sums over all frames of a session: dark ones, and those of each setting of the polarizer.

    The mosaic `sensor` of the frames' region is in the order of the sensor's own readout.
    """

    def __init__(self, sensor: Sensor) -> None:
        self.sensor = sensor
        self.settings: Dict[str, FrameSums] = {}  # in the order of their first frames
        self.shape: Tuple[int, int] = (0, 0)
        self.full_scale = 0  # value of a saturated pixel
        self._bits = 0
        self._unpaired: Optional[Tuple[str, np.ndarray]] = None

    def add(self, setting: str, frame: RawFrame) -> None:
        """Add a frame of a setting, or of `DARK`. Frames of one setting that follow each other show the noise in pairs.

        Raises:
            ValueError: The frame does not fit the frames before, or has numbers above full scale.
        """
        if not self.settings:
            self.shape, self.full_scale = frame.shape, frame.full_scale
        if frame.full_scale != self.full_scale:
            raise ValueError(f"all frames must have full scale {self.full_scale}, got {frame.full_scale}")
        if frame.shape != self.shape:
            (height, width), (rows, columns) = frame.shape, self.shape
            raise ValueError(f"all frames must have {columns}x{rows} pixels, got {width}x{height}")
        largest, bits = int(frame.mosaic.max()), int(np.bitwise_or.reduce(frame.mosaic, axis=None))
        if largest > (self.full_scale | (self.full_scale & -self.full_scale) - 1):  # low bits may be set
            is_high = bits % ((_SIXTEEN_BITS + 1) // (self.full_scale + 1)) == 0
            depth = (largest.bit_length() + 1) // 2 * 2  # cameras have 8, 10, 12, 14 or 16 bits
            advice = "--alignment msb" if is_high else f"the camera's --bit-depth, {depth} or more"
            raise ValueError(f"a pixel reads {largest}, above full scale {self.full_scale}: give {advice}")
        self._bits |= bits
        pixels = np.minimum(frame.mosaic, np.array(frame.full_scale, frame.mosaic.dtype))
        if setting not in self.settings:
            self.settings[setting] = FrameSums(self.shape, self.full_scale, self.sensor.period, setting == DARK)
        sums = self.settings[setting]
        sums.add(pixels)
        before, self._unpaired = self._unpaired, (setting, pixels)
        if before is not None and before[0] == setting:
            sums.add_points(before[1], pixels)
            self._unpaired = None

    def check_alignment(self) -> None:
        """Check after the last frame that frames of 16 bits use their low bits.

        Raises:
            ValueError: All numbers are multiples of a power of 2, which means that full scale is wrong.
        """
        unused = (self._bits & -self._bits).bit_length() - 1
        if self.full_scale == _SIXTEEN_BITS and unused > 0:
            raise ValueError(
                f"all numbers are multiples of {1 << unused}: give the bit depth of the camera, which seems to be "
                f"{16 - unused}, and its alignment (--bit-depth {16 - unused} --alignment msb)"
            )

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
        return {name: sums for name, sums in self.settings.items() if name != DARK and not is_flat(name)}

    @property
    def flat(self) -> Dict[str, FrameSums]:
        """The settings of constant light without a polarizer."""
        return {name: sums for name, sums in self.settings.items() if is_flat(name)}

    @property
    def bit_depth(self) -> int:
        """Significant bits of a pixel."""
        return bin(self.full_scale).count("1")

    @property
    def level(self) -> float:
        """The step between the values of pixels, as a share of full scale."""
        return (self.full_scale & -self.full_scale) / self.full_scale
