"""The linear Stokes vector of images, and arithmetic of angles of polarization, for arrays of NumPy and CuPy.

The definitions are those of the products: S0 = (I0 + I45 + I90 + I135)/2, S1 = I0 - I90, S2 = I45 - I135; angles are in
rad, counter-clockwise from the x axis of the image. NaN marks invalid pixels: it stays NaN, and means leave it out.

Every function returns an array of the library that its argument is of. Its type is float32, or float64 if an array has
integers of more than 16 bits or floats of more than 32. Integers neither overflow nor are truncated.
"""

from __future__ import annotations

from typing import Any, List, Tuple, Union

import numpy as np

__all__ = ["angle_difference", "aolp", "dolp", "dolp_std", "from_angles", "mean_angle", "wrap"]

#: An array of NumPy or CuPy, whose arrays NumPy's functions hand over to CuPy; or a number.
Numbers = Union[np.ndarray, float]
#: Length of a mean direction that rounding leaves of angles without one, in steps of their floating type.
_ROUNDING = 4


def from_angles(i0: np.ndarray, i45: np.ndarray, i90: np.ndarray, i135: np.ndarray, axis: int = -1) -> np.ndarray:
    """Compute the Stokes vector from the light behind polarizers at 0, 45, 90 and 135 degrees.

    Args:
        i0: Image behind the polarizer at 0 degrees, of any shape: products `angle_0`, frames of other cameras.
        i45: Image at 45 degrees, of the same shape.
        i90: Image at 90 degrees.
        i135: Image at 135 degrees.
        axis: Place of the axis with S0, S1 and S2 in the result; by default the last one, as in the product `stokes`.

    Raises:
        ValueError: The shapes differ, or values are not real numbers.
    """
    images = _as_floats(i0, i45, i90, i135)
    shapes = [image.shape for image in images]
    if len(set(shapes)) > 1:
        raise ValueError(f"the four images must have one shape, got {', '.join(map(str, shapes))}")
    i0, i45, i90, i135 = images
    return np.stack([(i0 + i45 + i90 + i135) / 2, i0 - i90, i45 - i135], axis)


def dolp(stokes: np.ndarray, axis: int = -1) -> np.ndarray:
    """Compute the degree of linear polarization, sqrt(S1^2 + S2^2)/S0, limited to 1, which noise can exceed.

    Args:
        stokes: Stokes vectors, such as (H, W, 3).
        axis: Axis with S0, S1 and S2.

    Returns:
        Its other axes; NaN where S0 is not above 0. The product `dolp` is also NaN at saturated pixels, and where S0 is
        below the option `min_intensity`.

    Raises:
        ValueError: The axis does not have three values, or they are not real numbers.
    """
    s0, s1, s2 = _components(stokes, axis)
    return np.minimum(np.hypot(s1, s2) / np.where(s0 > 0, s0, np.nan), 1)


def aolp(stokes: np.ndarray, axis: int = -1) -> np.ndarray:
    """Compute the angle of linear polarization, atan2(S2, S1)/2, in [0, pi).

    Args:
        stokes: Stokes vectors, such as (H, W, 3).
        axis: Axis with S0, S1 and S2.

    Returns:
        Its other axes in rad; NaN where S0 is not above 0, and 0 where S1 and S2 are 0. The product `aolp` is also NaN
        at saturated pixels, and where S0 is below the option `min_intensity`.

    Raises:
        ValueError: The axis does not have three values, or they are not real numbers.
    """
    s0, s1, s2 = _components(stokes, axis)
    return np.where(s0 > 0, wrap(np.arctan2(s2, s1) / 2), np.nan)[()]


def dolp_std(dolp: Numbers, dolp_sigma: Numbers) -> np.ndarray:
    """Compute the standard deviation of the degree of linear polarization by noise.

    With p for `dolp` and s for `dolp_sigma`, it is s sqrt(1 - exp(-p^2/(2 s^2))). The product `dolp_sigma` is the error
    of debiased DoLP. Where noise decides, DoLP as measured scatters less: by 0.66 of the deviation of a component of
    (S1, S2)/S0 in unpolarized light. The root mean square of this function over pixels of one polarization is 1.07 to
    0.98 times their standard deviation; that of `dolp_sigma` is up to 1.36 times it.

    Args:
        dolp: DoLP as measured: the product `dolp` without the option `debias`.
        dolp_sigma: The product `dolp_sigma`, of a shape that is broadcast with that of `dolp`.

    Returns:
        The standard deviation; NaN where an argument is NaN.

    Raises:
        ValueError: The values are levels of an integer product, or not real numbers.
    """
    for array in (dolp, dolp_sigma):
        dtype = getattr(array, "dtype", None)
        if dtype in (np.uint8, np.uint16):
            raise ValueError(f"values must be from 0 to 1, got {dtype}: divide levels of the product by the highest")
    degree, sigma = _as_floats(dolp, dolp_sigma)
    ratio = degree / np.where(sigma > 0, sigma, np.inf)[()]  # where sigma is 0, so is the deviation
    return (sigma * np.sqrt(-np.expm1(-(ratio**2) / 2)))[()]


def wrap(angle: Numbers) -> np.ndarray:
    """Turn angles in rad by multiples of pi into [0, pi).

    Raises:
        ValueError: The values are levels of an integer product, or not real numbers.
    """
    (angle,) = _angles(angle)
    wrapped = _modulo_pi(angle.astype(np.float64)).astype(angle.dtype)
    return np.where(wrapped >= np.pi, 0, wrapped).astype(angle.dtype)[()]  # rounded up from just below pi


def mean_angle(angle: Numbers, axis: Union[int, Tuple[int, ...], None] = None) -> np.ndarray:
    """Compute the mean of angles in rad that are equal after a turn by pi: the mean of 1 and 179 degrees is 0.

    Every angle counts the same. The AoLP of the mean Stokes vector, which bright and polarized pixels determine, has
    less noise.

    Args:
        angle: Angles in rad; NaN does not count.
        axis: Axis or axes to average over; None for all.

    Returns:
        The other axes, in [0, pi); NaN without an angle, and where angles have no mean, as 0 and 90 degrees.

    Raises:
        ValueError: The values are levels of an integer product, or not real numbers.
    """
    (angle,) = _angles(angle)
    turn = 2 * angle.astype(np.float64)
    is_known = ~np.isnan(turn)
    count = is_known.sum(axis)
    cosine, sine = (
        np.where(is_known, part, 0).sum(axis) / np.maximum(count, 1) for part in (np.cos(turn), np.sin(turn))
    )
    has_mean = np.hypot(cosine, sine) > _ROUNDING * np.finfo(angle.dtype).eps
    return wrap(np.where(has_mean, np.arctan2(sine, cosine) / 2, np.nan).astype(angle.dtype))


def angle_difference(first: Numbers, second: Numbers) -> np.ndarray:
    """Compute the difference of angles in rad, first minus second, by the shorter way: in [-pi/2, pi/2).

    Shapes are broadcast. Angles are equal after a turn by pi, so no difference is larger than 90 degrees.

    Raises:
        ValueError: The values are levels of an integer product, or not real numbers.
    """
    first, second = _angles(first, second)
    half, dtype = np.pi / 2, first.dtype
    turned = (_modulo_pi(first.astype(np.float64) - second + half) - half).astype(dtype)
    return np.where(turned >= half, -half, turned).astype(dtype)[()]  # rounded up from just below pi/2


def _modulo_pi(angle: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # older versions of NumPy warn of NaN
        return np.mod(angle, np.pi)


def _as_floats(*arrays: Numbers) -> List[np.ndarray]:
    """Convert arrays to float32, or to float64 if one of them needs it; numbers take the type of the arrays.

    Raises:
        ValueError: The values are not real numbers.
    """
    # NumPy's functions compute arrays that have this method in their own library
    inputs: List[Any] = [row if hasattr(row, "__array_function__") else np.asarray(row) for row in arrays]
    for row in inputs:
        if row.dtype.kind not in "iuf":
            raise ValueError(f"values must be real numbers, got {row.dtype}")
    images = [row for row in inputs if row.ndim] or inputs
    dtype = np.result_type(np.float32, *(image.dtype for image in images))
    return [row.astype(dtype)[()] for row in inputs]  # numbers as NumPy's scalars, which CuPy takes too


def _angles(*arrays: Numbers) -> List[np.ndarray]:
    """Convert arrays of angles in rad as `_as_floats`.

    Raises:
        ValueError: The values are levels of an integer product, or not real numbers.
    """
    for array in arrays:
        dtype = getattr(array, "dtype", None)
        if dtype in (np.uint8, np.uint16):
            raise ValueError(
                f"angles must be in rad, got {dtype}: one level of the product is pi/{1 << 8 * dtype.itemsize}"
            )
    return _as_floats(*arrays)


def _components(stokes: np.ndarray, axis: int) -> List[np.ndarray]:
    """Return S0, S1 and S2 as floats.

    Raises:
        ValueError: The axis does not have three values, or they are not real numbers.
    """
    (vector,) = _as_floats(stokes)
    if not -vector.ndim <= axis < vector.ndim or vector.shape[axis] != 3:
        raise ValueError(f"stokes must have S0, S1 and S2 along axis {axis}, got shape {vector.shape}")
    return list(np.moveaxis(vector, axis, 0))
