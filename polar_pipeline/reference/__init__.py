"""Every operator in plain, slow float64 NumPy: the reference of all tests.

The CPU backend computes with it on machines where no kernels could be compiled; nothing else in the package imports it.

Intensities are normalized to full scale 1. Angle stacks have shape (4, H, W) for a mono sensor and (4, H, W, 3) for a
color one, first axis in the order of `sensor.mosaic.ANGLES`, last axis RGB. `run` combines the operators.
"""

from polar_pipeline.reference.correction import correct
from polar_pipeline.reference.demosaicking import (
    DEBAYER,
    DEMOSAIC,
    co_site,
    debayer_bilinear,
    debayer_mhc,
    debayer_weighted,
    demosaic,
    demosaic_adaptive,
    demosaic_bilinear,
    demosaic_gradient,
    normalize,
    own_site,
    polarization_switch,
)
from polar_pipeline.reference.geometry import transform
from polar_pipeline.reference.noise import debiased, impulse_gains, uncertainty
from polar_pipeline.reference.operators import (
    aolp,
    aolp_color,
    block_means,
    display,
    dolp,
    dolp_color,
    intensity,
    luma,
    polarized,
    polarizer,
    preview,
    run,
    saturated,
    shrink,
    ssim_map,
    stokes,
    unpolarized,
)

__all__ = [
    "DEBAYER",
    "DEMOSAIC",
    "aolp",
    "aolp_color",
    "block_means",
    "co_site",
    "correct",
    "debayer_bilinear",
    "debayer_mhc",
    "debayer_weighted",
    "debiased",
    "demosaic",
    "demosaic_adaptive",
    "demosaic_bilinear",
    "demosaic_gradient",
    "display",
    "dolp",
    "dolp_color",
    "impulse_gains",
    "intensity",
    "luma",
    "normalize",
    "own_site",
    "polarization_switch",
    "polarized",
    "polarizer",
    "preview",
    "run",
    "saturated",
    "shrink",
    "ssim_map",
    "stokes",
    "transform",
    "uncertainty",
    "unpolarized",
]
