"""Defective pixels: outliers of their black level, noise, gain, angle, extinction ratio or fit."""

from __future__ import annotations

from typing import Dict, Tuple

import numpy as np

from polar_pipeline.tools.calibrate.reductions import robust_deviation

#: Why a pixel cannot be used, in the order of the bits of `find_defects`.
CAUSES = ("saturated", "no reaction", "black level", "dark noise", "gain", "angle", "extinction", "fit")
#: Causes that are also looked for in pixels that are unusable in light.
_DARK = ("black level", "dark noise")
#: A value this many robust standard deviations from the median is an outlier; sensors have spreads of their own.
OUTLIER = 8.0
#: Lowest extinction ratio that counts as a polarizer's.
MIN_EXTINCTION = 10.0
#: Minimum distance of the limits from the median: black level and dark noise in levels, gain, angle in degrees, and the
#: fit's residual relative to noise.
_MIN_REACH = {"black level": 2.5, "dark noise": 2.5, "gain": 0.02, "angle": 2.0, "fit": 3.0}


def find_defects(images: Dict[str, np.ndarray], unusable: Dict[str, np.ndarray], level: float) -> np.ndarray:
    """Find the defects of each pixel.

    Args:
        images: By name in `CAUSES`, those that are there: black level and dark noise (standard deviation) as shares of
            full scale, gain relative to the light nearby, angle's deviation in degrees, extinction ratio, and the
            residual relative to noise.
        unusable: By name in `CAUSES`: pixels whose values mean nothing, (H, W) bool.
        level: One level as a share of full scale.

    Returns:
        (H, W) uint8: bit k is set where cause k holds; 0 where nothing is wrong.
    """
    bad = np.any(list(unusable.values()), axis=0)
    causes = np.zeros(bad.shape, np.uint8)
    for name, mask in unusable.items():
        causes |= mask.astype(np.uint8) << np.uint8(CAUSES.index(name))
    for name, image in images.items():
        if name == "extinction":
            lowest, highest = MIN_EXTINCTION, np.inf
        else:
            lowest, highest = limits(image[~bad], _MIN_REACH[name] * (level if name in _DARK else 1.0))
        outliers = ~((image >= lowest) & (image <= highest))
        if name not in _DARK:
            outliers &= ~bad
        causes |= outliers.astype(np.uint8) << np.uint8(CAUSES.index(name))
    return causes


def limits(values: np.ndarray, min_reach: float) -> Tuple[float, float]:
    """Return the median minus and plus `OUTLIER` robust standard deviations, or minus and plus at least `min_reach`."""
    values = values[np.isfinite(values)]
    middle = float(np.median(values))
    reach = max(OUTLIER * robust_deviation(values - middle), min_reach)
    return middle - reach, middle + reach
