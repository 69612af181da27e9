"""Every operator in plain, slow float64 NumPy: the reference of all tests. Only tests and benchmarks import it.

Intensities are normalised to full scale 1. Angle stacks have shape (4, H, W) for a mono sensor and (4, H, W, 3) for a
colour one, first axis in the order of `sensor.mosaic.ANGLES`, last axis RGB. `run` combines the operators.
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
    normalise,
    own_site,
    polarization_switch,
)
from polar_pipeline.reference.noise import debiased, impulse_gains, uncertainty
from polar_pipeline.reference.operators import (
    aolp,
    block_means,
    display,
    dolp,
    intensity,
    luma,
    preview,
    run,
    saturated,
    shrink,
    ssim_map,
    stokes,
)

__all__ = [
    "DEBAYER",
    "DEMOSAIC",
    "aolp",
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
    "impulse_gains",
    "intensity",
    "luma",
    "normalise",
    "own_site",
    "polarization_switch",
    "preview",
    "run",
    "saturated",
    "shrink",
    "ssim_map",
    "stokes",
    "uncertainty",
]
