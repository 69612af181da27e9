"""Every operator in plain, slow float64 NumPy: the reference of all tests.

The CPU backend computes with it on machines where no kernels could be compiled, and `noise` takes the gains of methods
from it; nothing else in the package imports it.

Intensities are normalized to full scale 1. Angle stacks have shape (4, H, W) for a mono sensor and (4, H, W, 3) for a
color one, first axis in the order of `sensor.mosaic.ANGLES`, last axis RGB. `run` combines the operators.
"""

from polar_pipeline.backends.reference.demosaicking import (
    DEMOSAIC,
    debayer_bilinear,
    debayer_mhc,
    debayer_weighted,
    demosaic,
    demosaic_adaptive,
    demosaic_bilinear,
    demosaic_gradient,
    polarization_switch,
)
from polar_pipeline.backends.reference.operators import (
    aolp,
    aolp_color,
    block_means,
    display,
    dolp,
    intensity,
    luma,
    preview,
    run,
    shrink,
    ssim_map,
    stokes,
)

__all__ = [
    "DEMOSAIC",
    "aolp",
    "aolp_color",
    "block_means",
    "debayer_bilinear",
    "debayer_mhc",
    "debayer_weighted",
    "demosaic",
    "demosaic_adaptive",
    "demosaic_bilinear",
    "demosaic_gradient",
    "display",
    "dolp",
    "intensity",
    "luma",
    "polarization_switch",
    "preview",
    "run",
    "shrink",
    "ssim_map",
    "stokes",
]
