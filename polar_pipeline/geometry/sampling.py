"""Maps from output pixels to positions in the Stokes image; computed once, not for each frame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Tuple
from weakref import WeakValueDictionary

import cv2
import numpy as np

from polar_pipeline.geometry.lens import LensCalibration
from polar_pipeline.geometry.output import Geometry
from polar_pipeline.sensor.frames import FrameError

#: Positions are multiples of this, in pixels: what rounding adds to whole numbers is gone.
STEP = 1 / 1024
#: Directions around the optical axis, and angles from it, at which a distortion model is searched for folds.
_DIRECTIONS, _ANGLES = 72, 512
#: Pixels from the Stokes image beyond which positions are not told apart; behind the camera they are infinite.
_FAR = 1e6
#: Radians from the optical axis up to which a rectified image can show anything: a right angle is at infinity.
_WIDEST = np.pi / 2 - 1e-6


@dataclass(frozen=True)
class SamplingMap:
    """Source positions of an output's pixels, and the rotation of their Stokes vectors.

    An output pixel is the mean of `scale` x `scale` samples. Without `positions` these are the pixels of a square of
    the Stokes image, whose first corner lies at `corner` @ (x, y, 1).

    Attributes:
        size: (height, width) of the output.
        source: (height, width) of the Stokes image.
        scale: Samples along each side.
        rotate: Degrees by which the output is rotated, counter-clockwise.
        corner: (2, 3) whole numbers: column and row of the square of an output pixel.
        positions: (scale * height, scale * width, 2) float32: column and row of every sample; -1 where it is outside.
        turns: (height, width, 2) float32: cosine and sine of twice the local rotation; None if it is `rotate`.
        outside: (height, width) uint8, 1 where a sample is outside the Stokes image; None if there are none.
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
    """Compute the map of an output, or return the one that is in use.

    Args:
        geometry: Geometry of the output over the Stokes image.
        source: (height, width) of the Stokes image.

    Raises:
        FrameError: Nothing is left of it, the region of interest reaches beyond it, or the lens shows none of its
            pixels (cause `output`).
    """
    sampling = _IN_USE.get((geometry, source))
    if sampling is None:
        sampling = _IN_USE[geometry, source] = _make_map(geometry, source)
    return sampling


def _make_map(geometry: Geometry, source: Tuple[int, int]) -> SamplingMap:
    size, scale = geometry.output_size(source), geometry.scale
    matrix = geometry.matrix(source)
    corner = matrix[:2].copy()
    # the first corner in the Stokes image, whichever way the output lies
    corner[:, 2] -= (scale - 1) / 2
    sampling = SamplingMap(size, source, scale, geometry.rotate, np.rint(corner).astype(np.int64))
    if geometry.lens is None:
        return sampling
    # one sample more on each side, which the slopes need
    sides = scale * size[0] + 2, scale * size[1] + 2
    first = (1 / scale - 1) / 2 - 1 / scale
    samples = matrix @ np.array([[1 / scale, 0, first], [0, 1 / scale, first], [0, 0, 1]])
    x, y, is_inside = _positions(geometry, samples, sides)
    across = (y[1:-1, 2:] - y[1:-1, :-2]) - (x[2:, 1:-1] - x[:-2, 1:-1])
    along = (x[1:-1, 2:] - x[1:-1, :-2]) + (y[2:, 1:-1] - y[:-2, 1:-1])
    x, y, is_inside = (values[1:-1, 1:-1] for values in (x, y, is_inside))
    x, y = (np.rint(values / STEP) * STEP for values in (x, y))
    is_inside &= (x >= 0) & (x <= source[1] - 1) & (y >= 0) & (y <= source[0] - 1)
    if not is_inside.any():
        raise FrameError(
            "output", "the lens calibration shows no pixel of the frame in the rectified output: is it right?"
        )
    turn = _means(np.exp((-2j if geometry.is_mirrored else 2j) * np.arctan2(across, along)), scale)
    turn /= np.abs(turn)
    outside = (_means(is_inside.astype(np.float32), scale) < 1).astype(np.uint8)
    positions = np.where(is_inside[..., np.newaxis], np.stack([x, y], -1), -1).astype(np.float32)
    turns = np.stack([turn.real, turn.imag], -1).astype(np.float32)
    return replace(sampling, positions=positions, turns=turns, outside=outside if outside.any() else None)


def _positions(
    geometry: Geometry, matrix: np.ndarray, size: Tuple[int, int]
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return column and row in the Stokes image of every sample of a rectified image, and whether the lens shows it.

    Args:
        geometry: With a lens.
        matrix: (3, 3): from samples to the rectified Stokes image.
        size: (height, width) of the samples, as of each of the results.
    """
    lens = geometry.lens
    assert lens is not None
    from_raw = geometry.from_raw()
    camera = from_raw @ lens.matrix("k")
    projection = np.linalg.inv(matrix) @ from_raw @ lens.matrix("p")[:, :3]
    arguments = (camera, np.array(lens.d), lens.matrix("r"), projection, size[::-1], cv2.CV_32FC1)
    module = cv2.fisheye if lens.model == "equidistant" else cv2
    x, y = module.initUndistortRectifyMap(*arguments)
    is_shown = _is_shown(lens, np.linalg.inv(projection @ lens.matrix("r")), size)
    x, y = (np.clip(np.nan_to_num(values, nan=-_FAR), -_FAR, _FAR) for values in (x, y))
    return x, y, is_shown


def _is_shown(lens: LensCalibration, to_rays: np.ndarray, size: Tuple[int, int]) -> np.ndarray:
    """Return whether the lens can show samples: in front of the camera, and within the first fold of its model.

    Args:
        lens: The lens.
        to_rays: (3, 3): from (column, row, 1) of a sample to its direction in the camera's axes.
        size: (height, width) of the samples.
    """

    def directions(column: np.ndarray, row: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Return angles from the optical axis, and around it."""
        x, y, z = (a * column + (b * row + c) for a, b, c in to_rays)
        return np.arctan2(np.hypot(x, y), z), np.arctan2(y, x)

    row, column = np.ogrid[: size[0], : size[1]]
    at_corners = float(directions(column[:, [0, -1]], row[[0, -1]])[0].max())  # the largest of all
    widest = min(at_corners, _WIDEST)
    folds = _first_folds(lens, widest)
    if at_corners <= widest < folds.min():
        return np.ones(size, bool)
    angle, turn = directions(column, row)
    places = (turn / (2 * np.pi)) % 1 * _DIRECTIONS
    return np.asarray((angle <= widest) & (angle < np.interp(places, np.arange(_DIRECTIONS + 1), folds)))


@np.errstate(all="ignore")  # coefficients may be any numbers
def _first_folds(lens: LensCalibration, widest: float) -> np.ndarray:
    """Find where a distortion model first folds back, from the optical axis outwards.

    There the determinant of its Jacobian reaches 0. What it states beyond is meaningless, also where the determinant
    is positive again.

    Returns:
        (_DIRECTIONS + 1,) radians from the optical axis, once around it; above `widest` where there is no fold.
    """
    turns = np.arange(-1, _DIRECTIONS + 2)[:, np.newaxis] * (2 * np.pi / _DIRECTIONS)
    angles = np.linspace(0, widest, _ANGLES + 1)
    radius = np.tan(angles[1:])
    rays = np.stack([np.cos(turns) * radius, np.sin(turns) * radius, np.ones((len(turns), _ANGLES))], -1)
    project = cv2.fisheye.projectPoints if lens.model == "equidistant" else cv2.projectPoints
    seen, _ = project(rays.reshape(-1, 1, 3), np.zeros(3), np.zeros(3), np.eye(3), np.array(lens.d))
    x, y = np.moveaxis(seen.reshape(len(turns), _ANGLES, 2), -1, 0)
    (x_turn, x_angle), (y_turn, y_angle) = np.gradient(x), np.gradient(y)
    determinant = (x_angle * y_turn - x_turn * y_angle)[1:-1]
    is_folded = ~(determinant > 0)
    place = np.maximum(np.argmax(is_folded, axis=1), 1)
    before, after = (np.take_along_axis(determinant, (place - k)[:, np.newaxis], 1)[:, 0] for k in (1, 0))
    folds = angles[place] + (angles[1] - angles[0]) * before / (before - after)
    folds = np.where(is_folded.any(1), folds, 2 * widest)
    # a fold can end between two directions
    beside = np.minimum(np.append(folds[-2], folds[:-1]), np.append(folds[1:], folds[1]))
    return np.asarray(np.where(folds > widest, beside, folds))


def _means(values: np.ndarray, scale: int) -> np.ndarray:
    """Compute means over squares of scale x scale."""
    height, width = values.shape
    means: np.ndarray = values.reshape(height // scale, scale, width // scale, scale).mean((1, 3))
    return means
