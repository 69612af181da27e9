"""The geometry of the outputs, in float64: rectified, means over squares, turned and cut, one step after the other."""

from __future__ import annotations

from typing import NamedTuple, Tuple

import numpy as np

from polar_pipeline.geometry import Geometry, LensCalibration

#: Positions are rounded to this share of a pixel, as `SamplingMap` defines.
_STEPS = 1024
#: Steps from the optical axis to a pixel in which a fold of the lens model is searched.
_FOLD_STEPS = 200


class Transformed(NamedTuple):
    """A transformed image: (4, h, w) or (4, h, w, 3) angles, and (h, w) masks."""

    angles: np.ndarray
    saturated: np.ndarray
    dark: np.ndarray
    outside: np.ndarray


def transform(angles: np.ndarray, saturated: np.ndarray, dark: np.ndarray, geometry: Geometry) -> Transformed:
    """Return what a camera with this geometry would have measured.

    Means are taken of I0 + I90, I45 + I135, S1 and S2, which then turn with the image. An output pixel that a saturated
    or a dark pixel contributes to is one too; outside the image intensities are 0.

    Args:
        angles: (4, H, W) or (4, H, W, 3).
        saturated: (H, W).
        dark: (H, W), not saturated.
        geometry: Geometry of the outputs over the Stokes image.
    """
    i0, i45, i90, i135 = angles
    linear = np.stack([i0 + i90, i45 + i135, i0 - i90, i45 - i135])
    flags = np.stack([saturated, dark, np.zeros(saturated.shape, bool)])
    turn = np.zeros(saturated.shape)
    if geometry.lens is not None:
        linear, flags, turn = _rectified(linear, flags, geometry.lens, geometry.step)
        turn = -turn if geometry.is_mirrored else turn  # in the scene
    linear = _shrink(linear, geometry.scale).mean((2, 4))
    flags = _shrink(flags, geometry.scale).max((2, 4))
    direction = np.angle(_shrink(np.exp(2j * turn)[np.newaxis], geometry.scale).mean((2, 4))[0])
    turns, (x, y, width, height) = geometry.rotate // 90, geometry.roi
    linear, flags = np.rot90(linear, turns, (1, 2)), np.rot90(flags, turns, (1, 2))
    direction = np.rot90(direction, turns) + np.pi * turns  # a quarter turn is half a turn of the Stokes vector
    rows, columns = slice(y, y + height if height else None), slice(x, x + width if width else None)
    linear, (is_saturated, is_dark, outside) = linear[:, rows, columns], flags[:, rows, columns]
    linear = np.where(outside.reshape(outside.shape + (1,) * (linear.ndim - 3)), 0, linear)
    straight, diagonal, s1, s2 = linear
    direction = direction[rows, columns].reshape(outside.shape + (1,) * (linear.ndim - 3))
    s1, s2 = np.cos(direction) * s1 - np.sin(direction) * s2, np.sin(direction) * s1 + np.cos(direction) * s2
    turned = np.stack([straight + s1, diagonal + s2, straight - s1, diagonal - s2]) / 2
    is_saturated = is_saturated & ~outside
    return Transformed(turned, is_saturated, is_dark & ~outside & ~is_saturated, outside)


def _shrink(images: np.ndarray, scale: int) -> np.ndarray:
    """Convert (n, H, W, ...) to (n, H // scale, scale, W // scale, scale, ...); the rest right and below is dropped."""
    size: Tuple[int, int] = (images.shape[1] // scale, images.shape[2] // scale)
    cut = images[:, : size[0] * scale, : size[1] * scale]
    return cut.reshape(len(images), size[0], scale, size[1], scale, *images.shape[3:])


# -------------------------------------------------------------------------------------------------------- rectification


def lens_positions(lens: LensCalibration, x: np.ndarray, y: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Return the positions in the raw image of (x, y) in the rectified image, in pixels of both."""
    u, v = _distorted(lens, *_rays(lens, x, y))
    k = lens.matrix("k")
    return k[0, 0] * u + k[0, 1] * v + k[0, 2], k[1, 1] * v + k[1, 2]


def _rays(lens: LensCalibration, x: np.ndarray, y: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Return where the rays of a rectified pixel meet the plane z = 1 in the camera's axes; NaN behind the camera."""
    rays = np.linalg.inv(lens.matrix("p")[:, :3] @ lens.matrix("r")) @ np.stack([x.ravel(), y.ravel(), np.ones(x.size)])
    a, b = rays[:2] / np.where(rays[2] > 0, rays[2], np.nan)
    return a.reshape(x.shape), b.reshape(x.shape)


def _distorted(lens: LensCalibration, a: np.ndarray, b: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Return where the lens shows the point (a, b) of the plane z = 1, at a focal length of 1."""
    square = a * a + b * b
    d = lens.d
    if lens.model == "equidistant":
        radius = np.sqrt(square)
        theta = np.arctan(radius)
        bent = theta * (1 + sum(k * theta ** (2 * n + 2) for n, k in enumerate(d)))
        factor = np.where(radius > 0, bent / np.where(radius > 0, radius, 1), 1)
        return factor * a, factor * b
    k1, k2, p1, p2, k3, k4, k5, k6 = (*d, *(0.0,) * (8 - len(d)))
    radial = (1 + square * (k1 + square * (k2 + square * k3))) / (1 + square * (k4 + square * (k5 + square * k6)))
    u = radial * a + 2 * p1 * a * b + p2 * (square + 2 * a * a)
    v = radial * b + p1 * (square + 2 * b * b) + 2 * p2 * a * b
    return u, v


def _is_unfolded(lens: LensCalibration, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return whether the lens model is one to one from the optical axis to points of the plane z = 1."""
    is_unfolded, h = np.isfinite(a), 1e-5
    for share in np.linspace(0, 1, _FOLD_STEPS + 1):
        at, beside = share * a, share * b
        u_a, v_a = (far - near for far, near in zip(_distorted(lens, at + h, beside), _distorted(lens, at - h, beside)))
        u_b, v_b = (far - near for far, near in zip(_distorted(lens, at, beside + h), _distorted(lens, at, beside - h)))
        is_unfolded &= u_a * v_b - u_b * v_a > 0
    return is_unfolded


def _rectified(
    linear: np.ndarray, flags: np.ndarray, lens: LensCalibration, step: int
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rectify the planes and flags (the last of which is `outside`), and return the local rotation in radians."""
    height, width = flags.shape[1:]

    def positions(x: np.ndarray, y: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        raw_x, raw_y = lens_positions(lens, (x + 0.5) * step - 0.5, (y + 0.5) * step - 0.5)
        return (raw_x + 0.5) / step - 0.5, (raw_y + 0.5) / step - 0.5

    y, x = np.mgrid[:height, :width].astype(float)
    h = 1e-4
    x_u, y_u = ((far - near) / (2 * h) for far, near in zip(positions(x + h, y), positions(x - h, y)))
    x_v, y_v = ((far - near) / (2 * h) for far, near in zip(positions(x, y + h), positions(x, y - h)))
    turn = np.arctan2(y_u - x_v, x_u + y_v)
    source_x, source_y = (np.rint(values * _STEPS) / _STEPS for values in positions(x, y))
    inside = (source_x >= 0) & (source_x <= width - 1) & (source_y >= 0) & (source_y <= height - 1)
    inside &= _is_unfolded(lens, *_rays(lens, (x + 0.5) * step - 0.5, (y + 0.5) * step - 0.5))
    left, top = np.floor(np.where(inside, source_x, 0)), np.floor(np.where(inside, source_y, 0))
    rectified, marks = np.zeros_like(linear), np.zeros_like(flags)
    for dy in (0, 1):
        for dx in (0, 1):
            weight = (1 - np.abs(source_x - left - dx)) * (1 - np.abs(source_y - top - dy))
            rows, columns = np.minimum(top + dy, height - 1).astype(int), np.minimum(left + dx, width - 1).astype(int)
            rectified += weight.reshape(weight.shape + (1,) * (linear.ndim - 3)) * linear[:, rows, columns]
            marks |= flags[:, rows, columns] & (weight > 0)
    marks &= inside
    marks[2] = ~inside
    return rectified, marks, np.where(inside, turn, 0)
