"""The demosaic methods: one row each. Backends number them in the order of the tables, and take their reach from here.

A new method is a row here, its function in `reference/demosaicking.py`, and its code in C++ and CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple

from polar_pipeline.polarimetry.coefficients import NOISE_ADAPTIVE, NOISE_LINEAR, NOISE_WEIGHTED


@dataclass(frozen=True)
class Method:
    """An interpolation on the polarizer mosaic, or on the color lattice of a color sensor.

    Attributes:
        reach: Raw pixels on each side that a pixel depends on; on a color sensor both interpolations add up.
        lattice: The method on the color lattice that goes with one on the polarizer mosaic; "" for one on the lattice.
        noise_half: Constants of `coefficients.NOISE_LINEAR`, which noise gains in a flat field leave out, at half
            resolution; of a method on the lattice, where angles are left where they are.
        noise_full: The same at full resolution.
    """

    reach: int
    lattice: str = ""
    noise_half: Tuple[float, float, float, float] = NOISE_LINEAR
    noise_full: Tuple[float, float, float, float] = NOISE_LINEAR


#: Methods on the color lattice, by name.
LATTICE_METHODS: Dict[str, Method] = {
    "bilinear": Method(2),
    "mhc": Method(4),
    "weighted": Method(6, noise_half=NOISE_WEIGHTED),
}
#: Methods on the polarizer mosaic, by name: what the option `demosaic` can be beside `auto`.
METHODS: Dict[str, Method] = {
    "bilinear": Method(1, "bilinear"),
    "gradient": Method(2, "mhc"),
    "adaptive": Method(4, "weighted", NOISE_ADAPTIVE["half"], NOISE_ADAPTIVE["full"]),
}
