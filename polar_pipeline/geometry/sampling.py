"""From output pixels to positions in the Stokes image, as the backends read them; made outside the path of frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple
from weakref import WeakValueDictionary

import cv2
import numpy as np

from polar_pipeline.geometry.output import Geometry

#: Positions are multiples of this, in pixels: what rounding adds to whole numbers is gone.
STEP = 1 / 1024


@dataclass(frozen=True)
class SamplingMap:
    """Where the pixels of an output come from, and how far the Stokes vector turns on the way.

    An output pixel is the mean of `scale` x `scale` samples. Without `positions` these are the pixels of a square of
    the Stokes image, whose first corner lies at `corner` @ (x, y, 1).

    Attributes:
        size: (height, width) of the output.
        source: (height, width) of the Stokes image.
        scale: Samples along each side.
        rotate: Degrees by which the output is rotated, counter-clockwise.
        corner: (2, 3) whole numbers: column and row of the square of an output pixel.
        positions: (scale * height, scale * width, 2) float32: column and row of every sample; -1 where it is outside.
        turns: (height, width, 2) float32: cosine and sine of twice the local rotation; None where it is `rotate`.
        outside: (height, width) uint8, 1 where a sample is outside the Stokes image; None where there are none.
    """

    size: Tuple[int, int]
    source: Tuple[int, int]
    scale: int
    rotate: int
    corner: np.ndarray
    positions: Optional[np.ndarray] = None
    turns: Optional[np.ndarray] = None
    outside: Optional[np.ndarray] = None

    @property
    def turn(self) -> float:
        """Factor of S1 and S2 where there are no `turns`."""
        return -1.0 if self.rotate % 180 else 1.0


#: Maps that something uses, by geometry and (height, width) of the Stokes image.
_IN_USE: WeakValueDictionary[Tuple[Geometry, Tuple[int, int]], SamplingMap] = WeakValueDictionary()


def make_map(geometry: Geometry, source: Tuple[int, int]) -> SamplingMap:
    """The map of an output, not computed again while the same one is in use.

    Args:
        geometry: How it lies over the Stokes image.
        source: (height, width) of the Stokes image.

    Raises:
        FrameError: Nothing is left of it, or the region of interest reaches beyond it (cause `output`).
    """
    found = _IN_USE.get((geometry, source))
    if found is None:
        found = _IN_USE[geometry, source] = _make_map(geometry, source)
    return found


def _make_map(geometry: Geometry, source: Tuple[int, int]) -> SamplingMap:
    size, scale = geometry.output_size(source), geometry.scale
    matrix = geometry.matrix(source)
    corner = matrix[:2].copy()
    # the first corner in the Stokes image, whichever way the output lies
    corner[:, 2] -= (scale - 1) / 2
    found = SamplingMap(size, source, scale, geometry.rotate, np.rint(corner).astype(np.int64))
    if geometry.lens is None:
        return found
    sides = scale * size[0], scale * size[1]
    shift = np.array([[1 / scale, 0, (1 / scale - 1) / 2], [0, 1 / scale, (1 / scale - 1) / 2], [0, 0, 1]])
    x, y = _positions(geometry, matrix @ shift, sides)
    (y_v, y_u), (x_v, x_u) = _slopes(y), _slopes(x)
    is_inside = x_u * y_v - x_v * y_u > 0  # beyond its range a distortion model folds back
    x, y = (np.rint(values / STEP) * STEP for values in (x, y))
    is_inside &= (x >= 0) & (x <= source[1] - 1) & (y >= 0) & (y <= source[0] - 1)
    across, along = y_u - x_v, x_u + y_v
    turn = _means(np.exp(2j * np.arctan2(across, along)), scale)
    turn /= np.abs(turn)
    outside = (_means(is_inside.astype(np.float32), scale) < 1).astype(np.uint8)
    positions = np.where(is_inside[..., np.newaxis], np.stack([x, y], -1), -1).astype(np.float32)
    turns = np.stack([turn.real, turn.imag], -1).astype(np.float32)
    return SamplingMap(
        *(size, source, scale, geometry.rotate, found.corner),
        *(positions, turns, outside if outside.any() else None),
    )


def _positions(geometry: Geometry, matrix: np.ndarray, size: Tuple[int, int]) -> Tuple[np.ndarray, np.ndarray]:
    """Column and row in the Stokes image of every sample of a rectified image, (height, width) each.

    Args:
        geometry: With a lens.
        matrix: (3, 3): from samples to the rectified Stokes image.
        size: (height, width) of the samples.
    """
    lens = geometry.lens
    assert lens is not None
    from_raw = geometry.from_raw()
    camera = from_raw @ lens.matrix("k")
    projection = np.linalg.inv(matrix) @ from_raw @ lens.matrix("p")[:, :3]
    arguments = (camera, np.array(lens.d), lens.matrix("r"), projection, size[::-1], cv2.CV_32FC1)
    module = cv2.fisheye if lens.model == "equidistant" else cv2
    x, y = module.initUndistortRectifyMap(*arguments)
    return np.nan_to_num(x, nan=-1e6), np.nan_to_num(y, nan=-1e6)


def _slopes(values: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Derivatives along rows and columns."""
    if min(values.shape) < 2:
        padded = np.pad(values, 1, "edge")
        return np.gradient(padded, axis=0)[1:-1, 1:-1], np.gradient(padded, axis=1)[1:-1, 1:-1]
    return np.gradient(values, axis=0), np.gradient(values, axis=1)


def _means(values: np.ndarray, scale: int) -> np.ndarray:
    """Means over squares of scale x scale."""
    height, width = values.shape
    found: np.ndarray = values.reshape(height // scale, scale, width // scale, scale).mean((1, 3))
    return found
