"""What the launches behind the first one share, which read planes of the Stokes image."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Dict, Tuple

import numpy as np

from polar_pipeline.backends.cuda.launch import Defines, Schedule
from polar_pipeline.backends.cuda.pixels import (
    ANGLE_IMAGES,
    PLANES,
    TYPE_NUMBERS,
    PixelLaunch,
    fill_options,
    image_bytes,
    output_defines,
)
from polar_pipeline.backends.cuda.polarization import PolarizationLaunch
from polar_pipeline.options import Options
from polar_pipeline.polarimetry.coefficients import literals


@dataclass(frozen=True)
class PlaneLaunch(PixelLaunch):
    """A launch that reads planes of the Stokes image.

    Attributes:
        mosaic: The first launch of the frame as it would be if it made the products: its methods, products and noise.
        height: Height of the outputs.
        width: Width of the outputs.
        planes: Element type of the planes.
        stored: (name, element type) of each stored array: products, or planes that the next launch reads.
    """

    mosaic: PolarizationLaunch
    height: int
    width: int
    planes: str
    stored: Tuple[Tuple[str, str], ...]

    @property
    def is_color(self) -> bool:
        """Whether there are planes of three colors."""
        return self.mosaic.is_color

    @property
    @abstractmethod
    def plane_names(self) -> Tuple[str, ...]:
        """The planes of `PLANES` that the launch reads."""

    @property
    def source_size(self) -> Tuple[int, int]:
        """(height, width) of the planes."""
        return self.output_size

    @property
    def needs_excess(self) -> bool:
        """Whether what is stored depends on the third of `PLANES`."""
        return not {PLANES[2], "sums", *ANGLE_IMAGES}.isdisjoint(self.dtypes)

    @property
    def read_bytes(self) -> int:
        """Bytes of the planes of one frame."""
        return image_bytes(self.source_size, ((name, self.planes) for name in self.plane_names), self.is_color)

    def set_up(self, argument: np.ndarray, options: Options, schedule: Schedule) -> Dict[str, np.ndarray]:
        fill_options(argument["frame"], options, self.mosaic.full_scale)
        return {}

    def defines(self) -> Defines:
        return {
            **literals(),
            **output_defines(self.dtypes),
            "WIDTH": self.width,
            "HEIGHT": self.height,
            "SOURCE_WIDTH": self.source_size[1],
            "SOURCE_HEIGHT": self.source_size[0],
            "COLOR": int(self.is_color),
            "HALF_RESOLUTION": 0,
            "HALF_PRECISION": 0,
            "PLANES": TYPE_NUMBERS[self.planes],
        }
