"""The correction of a frame by its calibration, in NumPy: for machines without a compiler."""

from __future__ import annotations

import numpy as np

from polar_pipeline.calibration import Correction
from polar_pipeline.cpu.images import reflected
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import ANGLES, Sensor


def correct(frame: RawFrame, sensor: Sensor, correction: Correction) -> np.ndarray:
    """What ideal pixels would have measured: (H, W) float32 in [0, 1]; as `Kernels.correct`.

    Args:
        frame: The mosaic, with its defective pixels replaced.
        sensor: Its layout as seen in the frame.
        correction: Of its pixels.
    """
    black, gain, e1, e2 = correction.parameters("float32")
    z = np.minimum(frame.mosaic, frame.full_scale).astype(np.float32)
    z *= np.float32(1 / frame.full_scale)
    z -= black
    z *= gain
    (top, left), (height, width) = correction.phase, z.shape
    rows, columns = (reflected(size, 2, sensor.period // 2) for size in z.shape)
    bottom, right = height + (height + top) % 2, width + (width + left) % 2
    around = z[np.ix_(rows[2 - top : 2 + bottom], columns[2 - left : 2 + right])]  # complete superpixels
    four = {}
    for dy in range(2):
        for dx in range(2):
            four[ANGLES[sensor.angle_index(dy - top, dx - left)]] = around[dy::2, dx::2]
    for e, first, second in ((e1, 0, 90), (e2, 45, 135)):
        of_superpixels = four[first] - four[second]
        of_pixels = of_superpixels.repeat(2, axis=0).repeat(2, axis=1)[top : top + height, left : left + width]
        z += e * of_pixels
    return np.clip(z, 0, 1, out=z)
