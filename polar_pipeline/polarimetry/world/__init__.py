"""Geometry of the world from polarization: surface normals, the horizon, and the direction of the sun.

Functions take the `Result` of a pipeline, another mapping of product names to float32 images, or a Stokes image
(H, W, 3). Angles are in rad. Axes of the camera are those of ROS's optical frames: x to the right of the image, y down,
z along the optical axis. The images may not be mirrored. Computed in float64 on the CPU.

A lens is taken to turn each ray onto the optical axis without a turn about it, so that AoLP at the sensor is the
direction of E across the ray: true of lenses that are telecentric toward the sensor.
"""

from __future__ import annotations

from polar_pipeline.polarimetry.world.fresnel import diffuse_dolp, diffuse_zenith, specular_dolp, specular_zeniths
from polar_pipeline.polarimetry.world.normals import NormalCandidates, normal_candidates
from polar_pipeline.polarimetry.world.rays import horizon_angle, viewing_rays
from polar_pipeline.polarimetry.world.sky import SunFit, sky_compass

__all__ = [
    "NormalCandidates",
    "SunFit",
    "diffuse_dolp",
    "diffuse_zenith",
    "horizon_angle",
    "normal_candidates",
    "sky_compass",
    "specular_dolp",
    "specular_zeniths",
    "viewing_rays",
]
