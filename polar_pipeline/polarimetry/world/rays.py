"""Viewing rays of a lens, and directions of polarization across them."""

from __future__ import annotations

from typing import Optional, Tuple

import numpy as np

from polar_pipeline._util.text import quoted
from polar_pipeline._util.values import several, whole_number
from polar_pipeline.geometry import Geometry, LensCalibration
from polar_pipeline.polarimetry.world.light import ROUNDING, Images, checked_array, measured_light
from polar_pipeline.stokes import angle_difference

#: Angles from the optical axis at which a lens is tabulated; corrections of the tangential distortion at most, and the
#: distance at a focal length of 1, between a pixel and the image of its ray, from which these have converged.
_ANGLES, _CORRECTIONS, _CONVERGED = 50_001, 50, 1e-6


def viewing_rays(lens: LensCalibration, size: Tuple[int, int], step: int = 1) -> np.ndarray:
    """Compute the direction in which each pixel looks. It depends on the lens only: compute it once.

    Args:
        lens: Calibration of the raw frames.
        size: (height, width) of the images.
        step: Raw pixels per pixel of the images along each side: 2 at half resolution, times the option `scale`.

    Returns:
        (H, W, 3) unit vectors in the camera's axes; NaN where the distortion model folds back and shows nothing.

    Raises:
        ValueError: The lens is not a calibration, the size or the step is not of positive whole numbers, or frames of
            the calibration have images of another size.
    """
    if not isinstance(lens, LensCalibration):
        raise ValueError(f"lens must be a LensCalibration, as load_lens returns it, got {quoted(lens)}")
    step = whole_number("step", step, 1)
    height, width = several(lambda name, side: whole_number(name, side, 1), 2, "(height, width)")("size", size)
    expected = lens.height // step, lens.width // step
    if lens.height and expected != (height, width):
        raise ValueError(f"with a step of {step} images have {expected} rows and columns, got {quoted(size)}")
    to_plane = np.linalg.inv(Geometry(step=step).from_raw() @ lens.matrix("k"))
    row, column = np.mgrid[:height, :width].astype(np.float64)
    x_seen, y_seen, _ = (a * column + b * row + c for a, b, c in to_plane)
    p1, p2 = (0.0, 0.0) if lens.model == "equidistant" else lens.d[2:4]
    angles, radii = _radii(lens)
    x, y = x_seen, y_seen
    for _ in range(_CORRECTIONS):
        seen = np.hypot(x, y)
        angle = np.interp(seen, radii, angles, right=np.nan)
        outward = np.stack([x, y], -1) / np.maximum(seen, 1e-300)[..., np.newaxis]
        u, v = np.moveaxis(outward * np.tan(angle)[..., np.newaxis], -1, 0)
        square = u * u + v * v
        shift_x = 2 * p1 * u * v + p2 * (square + 2 * u * u)
        shift_y = 2 * p2 * u * v + p1 * (square + 2 * v * v)
        distance = np.hypot(x + shift_x - x_seen, y + shift_y - y_seen)
        if not (distance > _CONVERGED).any():
            break
        x, y = x_seen - shift_x, y_seen - shift_y
    angle = np.where(distance <= _CONVERGED, angle, np.nan)  # tangential distortion, too, folds back
    return np.concatenate([outward * np.sin(angle)[..., np.newaxis], np.cos(angle)[..., np.newaxis]], -1)


def _radii(lens: LensCalibration) -> Tuple[np.ndarray, np.ndarray]:
    """Tabulate angles from the optical axis and radii of their images at a focal length of 1, up to the first fold."""
    if lens.model == "equidistant":
        angles = np.linspace(0, np.pi, _ANGLES)
        radii = angles * np.polyval([*lens.d[::-1], 1], angles**2)
    else:
        k1, k2, _, _, k3, k4, k5, k6 = (*lens.d, 0.0, 0.0, 0.0, 0.0)[:8]
        angles = np.linspace(0, np.pi / 2, _ANGLES)[:-1]
        square = np.tan(angles) ** 2
        radii = np.tan(angles) * np.polyval([k3, k2, k1, 1], square) / np.polyval([k6, k5, k4, 1], square)
    count = int(np.argmin(np.append(np.diff(radii) > 0, False))) + 1
    return angles[:count], radii[:count]


def turned(vectors: np.ndarray, rays: np.ndarray) -> np.ndarray:
    """Turn (..., 3) vectors by the smallest rotation that takes the optical axis to the (..., 3) rays."""
    (x, y, z), (a, b, c) = np.moveaxis(vectors, -1, 0), np.moveaxis(rays, -1, 0)
    across = a * x + b * y
    along = z - across / (1 + c)
    return np.stack([x + a * along, y + b * along, c * z - across], -1)


def upward(attitude: np.ndarray) -> np.ndarray:
    """Return the upward direction in the camera's axes, a unit vector (3,).

    Args:
        attitude: (3, 3) rotation from the camera's axes to level axes, whose z points up, or (3,) the direction of
            gravity in the camera's axes, of any length.

    Raises:
        ValueError: The attitude is not a rotation or a direction.
    """
    given = np.asarray(attitude, np.float64)
    if given.shape == (3,) and np.isfinite(given).all() and given.any():
        return -given / np.linalg.norm(given)
    if given.shape != (3, 3) or not np.allclose(given @ given.T, np.eye(3), atol=1e-3) or np.linalg.det(given) < 0:
        raise ValueError(f"attitude must be a (3, 3) rotation or a (3,) direction of gravity, got {quoted(attitude)}")
    return given[2]


def level_axes(attitude: np.ndarray) -> np.ndarray:
    """Return the rotation from the camera's axes to level axes, whose z points up.

    Args:
        attitude: Argument of `upward`. With gravity, the level x axis is below the camera's x axis.

    Raises:
        ValueError: The attitude is not a rotation or a direction, or gravity is along the camera's x axis.
    """
    up = upward(attitude)
    if np.ndim(attitude) == 2:
        return np.asarray(attitude, np.float64)
    x = np.array([1.0, 0, 0]) - up[0] * up
    if np.linalg.norm(x) < 1e-6:
        raise ValueError("with gravity along the camera's x axis no heading is defined; give a rotation")
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(up, x), up])


def horizon_angle(images: Images, attitude: np.ndarray, rays: Optional[np.ndarray] = None) -> np.ndarray:
    """Compute the angle from the horizontal direction across the viewing ray to AoLP.

    It is 0 for light that level surfaces such as water and wet ground reflect, and pi/2 or -pi/2 for light that upright
    glass reflects at the height of the camera.

    Args:
        images: Products with AoLP, or a Stokes image.
        attitude: (3, 3) rotation from the camera's axes to axes whose z points up, or (3,) the direction of gravity in
            the camera's axes.
        rays: `viewing_rays` of the images; None for a view along the optical axis in every pixel.

    Returns:
        (H, W) rad in [-pi/2, pi/2), counter-clockwise from the horizontal; NaN where AoLP is invalid, and where the
        ray is vertical.

    Raises:
        ValueError: The images, the attitude or the shape of the rays do not fit.
    """
    aolp = measured_light(images).aolp
    directions = checked_rays(rays, aolp.shape)
    level = np.cross(directions, upward(attitude))
    level = turned(level, directions * np.array([-1.0, -1.0, 1.0]))  # back onto the optical axis
    angle = angle_difference(aolp, np.arctan2(-level[..., 1], level[..., 0]))
    return np.where(np.hypot(level[..., 0], level[..., 1]) > 1e-9, angle, np.nan)


def checked_rays(rays: Optional[np.ndarray], shape: Tuple[int, ...]) -> np.ndarray:
    """Return rays (H, W, 3), or one (3,) along the optical axis for None.

    Raises:
        ValueError: There is not one ray for each pixel, no pixel has one, or they are not unit vectors most of which
            point forward.
    """
    if rays is None:
        return np.array([0.0, 0.0, 1.0])
    rays = checked_array("rays", rays, (*shape, 3))
    own = rays[np.isfinite(rays).all(-1)]
    if not own.size or np.abs(np.linalg.norm(own, axis=-1) - 1).max() > ROUNDING or np.median(own[:, 2]) < 0:
        raise ValueError(
            "rays must be unit vectors from the camera to the scene, z forward, as viewing_rays returns them"
        )
    return rays
