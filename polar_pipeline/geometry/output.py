"""Geometry by `scale`, `rotate`, `roi` and `rectify`: sizes of outputs, and mappings of their pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

import numpy as np

from polar_pipeline.geometry.lens import LensCalibration
from polar_pipeline.sensor.frames import FrameError


@dataclass(frozen=True)
class Geometry:
    """Geometry of outputs over the Stokes image: rectified, then scaled, then rotated, then cut.

    Attributes:
        scale: Side of the squares of which means are taken, 1, 2, 4 or 8 pixels; what is left at the right and at the
            bottom is dropped.
        rotate: 0, 90, 180 or 270 degrees, counter-clockwise.
        roi: (x, y, width, height) in pixels of the output; a width or height of 0 reaches to its border.
        lens: Calibration of the lens by which images are rectified; None to leave them as they are.
        step: Raw pixels per pixel of the Stokes image: 2 at half resolution.
        is_mirrored: Whether frames are mirror images of the scene, as after one flip. Stokes vectors are those of the
            scene, so that they turn against the image.
    """

    scale: int = 1
    rotate: int = 0
    roi: Tuple[int, int, int, int] = (0, 0, 0, 0)
    lens: Optional[LensCalibration] = None
    step: int = 1
    is_mirrored: bool = False

    def describe(self) -> str:
        """Describe the differences from the Stokes image."""
        x, y, width, height = self.roi
        parts = [
            f"rectified ({self.lens.describe()})" if self.lens is not None else "",
            f"means of {self.scale}x{self.scale}" if self.scale > 1 else "",
            f"rotated by {self.rotate} degrees" if self.rotate else "",
            f"{width or 'all'}x{height or 'all'} pixels from ({x}, {y})" if any(self.roi) else "",
        ]
        return ", ".join(filter(None, parts))

    def output_size(self, size: Tuple[int, int]) -> Tuple[int, int]:
        """Return (height, width) of the output of a Stokes image of (height, width).

        Raises:
            FrameError: Nothing is left of it, or the region of interest reaches beyond it (cause `output`).
        """
        height, width = size[0] // self.scale, size[1] // self.scale
        if self.rotate % 180:
            height, width = width, height
        if not height or not width:
            raise FrameError(
                "output", f"of {size[1]}x{size[0]} pixels nothing is left in means of {self.scale}x{self.scale}"
            )
        x, y, columns, rows = self.roi
        columns, rows = columns or width - x, rows or height - y
        if x + columns > width or y + rows > height or columns < 1 or rows < 1:
            raise FrameError(
                "output", f"the region of interest {self.roi} reaches beyond the output of {width}x{height} pixels"
            )
        return rows, columns

    def matrix(self, size: Tuple[int, int]) -> np.ndarray:
        """Return (3, 3): from (x, y, 1) of an output pixel to the (rectified) Stokes image of (height, width)."""
        height, width = size[0] // self.scale, size[1] // self.scale
        turn = {
            0: ((1, 0, 0), (0, 1, 0)),
            90: ((0, -1, width - 1), (1, 0, 0)),
            180: ((-1, 0, width - 1), (0, -1, height - 1)),
            270: ((0, 1, 0), (-1, 0, height - 1)),
        }[self.rotate]
        center = (self.scale - 1) / 2
        enlarge = np.array([[self.scale, 0, center], [0, self.scale, center], [0, 0, 1]])
        shift = np.array([[1, 0, self.roi[0]], [0, 1, self.roi[1]], [0, 0, 1.0]])
        matrix: np.ndarray = enlarge @ np.array([*turn, (0, 0, 1)]) @ shift
        return matrix

    def from_raw(self) -> np.ndarray:
        """Return (3, 3): from (x, y, 1) of a raw pixel to that of the Stokes image."""
        offset = 0.5 / self.step - 0.5
        return np.array([[1 / self.step, 0, offset], [0, 1 / self.step, offset], [0, 0, 1]])
