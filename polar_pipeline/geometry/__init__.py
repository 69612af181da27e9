"""The geometry of the outputs: from a pixel of the output to a position in the Stokes image, and the lens behind it."""

from __future__ import annotations

from polar_pipeline.geometry.camera import of_the_frame, of_the_output
from polar_pipeline.geometry.lens import CameraNumbers, LensCalibration, make_lens
from polar_pipeline.geometry.output import Geometry
from polar_pipeline.geometry.sampling import SamplingMap, make_map

__all__ = [
    "CameraNumbers",
    "Geometry",
    "LensCalibration",
    "SamplingMap",
    "make_lens",
    "make_map",
    "of_the_frame",
    "of_the_output",
]
