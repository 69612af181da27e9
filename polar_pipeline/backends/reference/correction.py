"""The reference of the correction: the values of an ideal sensor."""

from __future__ import annotations

import numpy as np

from polar_pipeline.backends.reference.demosaicking import lattice_reflect, reflect
from polar_pipeline.calibration import Correction
from polar_pipeline.sensor.mosaic import ANGLES


def correct(mosaic: np.ndarray, correction: Correction) -> np.ndarray:
    """Correct the deviations of a mosaic's gains, angles, extinction ratios and black levels, limited to [0, 1].

    Superpixels that the frame cuts are completed by mirroring: about the outermost pixel, in color about the outermost
    of every second one.

    Args:
        mosaic: (H, W) of full scale 1.
        correction: Correction of the mosaic's pixels.
    """
    parameters, sensor, phase = correction.parameters(), correction.sensor, correction.phase
    z = (mosaic - parameters.black) * parameters.gain
    around = (lattice_reflect if sensor.is_color else reflect)(z, 2)
    height, width = mosaic.shape
    rows, columns = (2 * ((np.arange(size) + start) // 2) - start for size, start in zip((height, width), phase))
    four = {}
    for dy in range(2):
        for dx in range(2):
            angle = ANGLES[sensor.angle_index(dy - phase[0], dx - phase[1])]
            four[angle] = around[np.ix_(rows + dy + 2, columns + dx + 2)]
    s1, s2 = four[0] - four[90], four[45] - four[135]
    return np.clip(z + parameters.e1 * s1 + parameters.e2 * s2, 0, 1)
