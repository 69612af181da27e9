"""The correction of frames by a calibration: the parameters of a region, in the order of the frame's pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Callable, Tuple

import numpy as np

from polar_pipeline.calibration.calibration import Calibration, PixelParameters, parameters_of
from polar_pipeline.calibration.quantization import Scale, Scales
from polar_pipeline.sensor.frames import FrameError, RawFrame
from polar_pipeline.sensor.mosaic import Sensor, readout_order

#: Places among the neighbors of a defective pixel are tried in rings up to this many pixels away.
_NEAR = 16
#: Steps to pixels of the same polarizer, shortest first; rows before columns, up before down.
_STEPS = sorted(
    product(range(-_NEAR, _NEAR + 1, 2), repeat=2), key=lambda step: (step[0] ** 2 + step[1] ** 2, abs(step[1]), step)
)[1:]
#: Corrections that a calibration keeps.
_KEPT = 4


@dataclass(frozen=True, eq=False)
class Correction:
    """The parameters of a frame's pixels, and which of its pixels are replaced.

    Equal only to itself, so that backends can keep what they make of it.

    Attributes:
        codes: (H, W) uint32, C-contiguous, by `quantization.FIELDS`; those of a replaced pixel are the other one's.
        scales: Scales of the codes.
        sensor: The mosaic as the frame shows it.
        phase: (row, column), 0 or 1 each: pixels (y, x) of one superpixel have the same ``(y + row) // 2`` and
            ``(x + column) // 2``.
        defects: (rows, columns) of the pixels that are replaced.
        sources: (rows, columns) of the pixels that replace them.
        lost: (rows, columns) of the pixels among `defects` that no other pixel can replace: they become saturated.
    """

    codes: np.ndarray
    scales: Scales
    sensor: Sensor
    phase: Tuple[int, int]
    defects: Tuple[np.ndarray, np.ndarray]
    sources: Tuple[np.ndarray, np.ndarray]
    lost: Tuple[np.ndarray, np.ndarray]

    @property
    def diagonal_scales(self) -> Scales:
        """Scales of terms that multiply the differences along diagonals of a superpixel, of pixels 00 - 11 and 01 - 10.

        Pixels opposite each other have orthogonal polarizers. If angles fall from pixel 00 to 01, all differences that
        belong to the other term have the opposite sign: here its scale has that sign.
        """
        row, column = self.phase
        first, beside = (self.sensor.angle_index(row, column + k) for k in range(2))
        sign = 1 if (beside - first) % 4 == 1 else -1
        black, gain, own, (lowest, step) = self.scales
        return black, gain, own, Scale(sign * lowest, sign * step)

    def parameters(self, dtype: str = "float64") -> PixelParameters:
        """Return the parameters as images of the frame's size."""
        return parameters_of(self.codes, self.scales, self.sensor, dtype)

    def replace_defects(
        self, frame: RawFrame, make: Callable[[Tuple[int, ...], str], np.ndarray] = np.empty
    ) -> RawFrame:
        """Return a copy of the frame with its defective pixels replaced, or the frame itself if it has none.

        Pixels that no other pixel can replace get full scale, so that every product that needs them is invalid.

        Args:
            frame: The mosaic.
            make: Makes an array of a shape and type, for the copy.
        """
        if not self.defects[0].size:
            return frame
        mosaic = make(frame.mosaic.shape, frame.mosaic.dtype.name)
        mosaic[...] = frame.mosaic
        mosaic[self.defects] = frame.mosaic[self.sources]
        mosaic[self.lost] = frame.full_scale
        return replace(frame, mosaic=mosaic)


def correction_for(
    calibration: Calibration, offset: Tuple[int, int], flip: Tuple[bool, bool], shape: Tuple[int, int]
) -> Correction:
    """Return the correction for frames of one region and readout, which the calibration keeps.

    Args:
        calibration: Calibration of the sensor.
        offset: (x, y) of the frame's first pixel in the sensor's own readout, before any flip.
        flip: (ReverseX, ReverseY).
        shape: (height, width) of the frame.

    Raises:
        FrameError: The frame has pixels that the calibration lacks (cause `calibration`).
    """
    corrections, key = calibration.corrections, (offset, flip, shape)
    correction = corrections.get(key)
    if correction is None:
        correction = corrections[key] = _make_correction(calibration, offset, flip, shape)
        for oldest in list(corrections)[:-_KEPT]:
            corrections.pop(oldest, None)  # another thread may have done so
    return correction


def _make_correction(
    calibration: Calibration, offset: Tuple[int, int], flip: Tuple[bool, bool], shape: Tuple[int, int]
) -> Correction:
    """Build the correction of `correction_for`."""
    x, y = offset[0] - calibration.offset[0], offset[1] - calibration.offset[1]
    height, width = shape
    if min(x, y) < 0 or y + height > calibration.shape[0] or x + width > calibration.shape[1]:
        rows, columns = calibration.shape
        raise FrameError(
            "calibration",
            f"the calibration is of {columns}x{rows} pixels from {calibration.offset}, the frame has {width}x{height} "
            f"from {tuple(offset)}",
        )
    region, order = (slice(y, y + height), slice(x, x + width)), readout_order(flip)
    codes = np.ascontiguousarray(calibration.codes[region][order])
    is_defect = np.zeros(calibration.shape, bool)
    is_defect[tuple(calibration.defects.T)] = True
    sensor = calibration.sensor.as_read_out(offset, flip, shape)
    defects, sources = _replacements(is_defect[region][order], sensor)
    lost = defects[(sources == defects).all(1)]
    if len(defects):
        codes = codes.copy() if codes.base is not None else codes
        codes[tuple(defects.T)] = codes[tuple(sources.T)]
    codes.flags.writeable = False
    return Correction(
        codes,
        calibration.scales,
        sensor,
        superpixel_phase(offset, flip, shape),
        (defects[:, 0], defects[:, 1]),
        (sources[:, 0], sources[:, 1]),
        (lost[:, 0], lost[:, 1]),
    )


def superpixel_phase(offset: Tuple[int, int], flip: Tuple[bool, bool], shape: Tuple[int, int]) -> Tuple[int, int]:
    """Return the phase of the sensor's superpixels in a frame; the arguments are those of `correction_for`."""
    x, y = ((start + size if reverse else start) % 2 for start, size, reverse in zip(offset, shape[::-1], flip))
    return y, x


def _replacements(is_defect: np.ndarray, sensor: Sensor) -> Tuple[np.ndarray, np.ndarray]:
    """Find for each defective pixel the nearest good one with the same polarizer and color, as the frame shows them.

    Returns:
        (n, 2) rows and columns of the defective pixels, and of those that replace them: of the defective pixel itself
        if no such pixel is within `_NEAR` pixels.
    """
    defects = np.argwhere(is_defect)
    colors = np.array(sensor.colors or ((0,) * 4,) * 4)
    own = colors[tuple(defects.T % 4)]
    is_good = np.pad(~is_defect, _NEAR)
    sources, missing = defects.copy(), np.arange(len(defects))
    for step in _STEPS:
        near = defects[missing] + step
        fits = is_good[tuple(near.T + _NEAR)] & (colors[tuple(near.T % 4)] == own[missing])
        sources[missing[fits]] = near[fits]
        missing = missing[~fits]
        if not missing.size:
            break
    return defects, sources
