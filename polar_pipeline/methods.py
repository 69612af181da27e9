"""The demosaic methods: one row each. Backends number them in the order of the tables, and take their reach from here.

A new method is a row here, its function in `reference/demosaicking.py`, and its code in C++ and CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple

from polar_pipeline.coefficients import NOISE_ADAPTIVE, NOISE_LINEAR, NOISE_WEIGHTED

#: Constants a, b, c, d of `coefficients.NOISE_LINEAR`: what noise gains in a flat field leave out.
NoiseConstants = Tuple[float, float, float, float]


@dataclass(frozen=True)
class LatticeMethod:
    """An interpolation on the color lattice of a color sensor.

    Attributes:
        reach: Raw pixels on each side that a pixel depends on.
        noise: Constants of its noise where angles are left where they are.
    """

    reach: int
    noise: NoiseConstants = NOISE_LINEAR


@dataclass(frozen=True)
class Method:
    """An interpolation on the polarizer mosaic.

    Attributes:
        lattice: The method on the color lattice that goes with it.
        reach: Raw pixels on each side that a pixel depends on; on a color sensor those of the lattice come on top.
        noise_half: Constants of its noise at half resolution.
        noise_full: The same at full resolution.
    """

    lattice: str
    reach: int
    noise_half: NoiseConstants = NOISE_LINEAR
    noise_full: NoiseConstants = NOISE_LINEAR


#: Methods on the color lattice, by name.
LATTICE_METHODS: Dict[str, LatticeMethod] = {
    "bilinear": LatticeMethod(2),
    "mhc": LatticeMethod(4),
    "weighted": LatticeMethod(6, NOISE_WEIGHTED),
}
#: Methods on the polarizer mosaic, by name: what the option `demosaic` can be beside `auto`.
METHODS: Dict[str, Method] = {
    "bilinear": Method("bilinear", 1),
    "gradient": Method("mhc", 2),
    "adaptive": Method("weighted", 4, NOISE_ADAPTIVE["half"], NOISE_ADAPTIVE["full"]),
}
