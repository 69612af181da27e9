"""What the functions of this package take: DoLP and AoLP of an image, with their standard deviations."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Union

import numpy as np

#: A `Result` or another mapping of product names to float images, or a Stokes image (H, W, 3).
Images = Union[np.ndarray, Mapping[str, np.ndarray]]


class MeasuredLight(NamedTuple):
    """Polarization of an image: (H, W) float64, NaN where invalid.

    Attributes:
        dolp: Degree of linear polarization, 0 to 1.
        aolp: Angle of linear polarization in rad, counter-clockwise from the image's x axis.
        dolp_sigma: Standard deviation of `dolp`; NaN where not known.
        aolp_sigma: Standard deviation of `aolp` in rad; None if not known.
    """

    dolp: np.ndarray
    aolp: np.ndarray
    dolp_sigma: np.ndarray
    aolp_sigma: Optional[np.ndarray]


def measured_light(images: Images) -> MeasuredLight:
    """Take the polarization from products: `dolp` and `aolp`, or `stokes`; with `dolp_sigma` and `aolp_sigma` if given.

    Raises:
        ValueError: Products are missing, are not of floats, or differ in their shapes.
    """
    given = {"stokes": images} if isinstance(images, np.ndarray) else images
    names = ["dolp", "aolp"] if "dolp" in given and "aolp" in given else ["stokes"]
    names += [name for name in ("dolp_sigma", "aolp_sigma") if name in given]
    if "stokes" in names and "stokes" not in given:
        raise ValueError(f"needs the products dolp and aolp, or stokes; got {', '.join(given) or 'none'}")
    for name in names:
        if given[name].dtype.kind != "f":
            raise ValueError(f"{name} must be of floats (dtype='float32'), got {given[name].dtype}")
    found = {name: np.asarray(given[name], np.float64) for name in names}
    if "stokes" in found:
        vector = found.pop("stokes")
        if vector.ndim != 3 or vector.shape[2] != 3:
            raise ValueError(f"stokes must have the shape (H, W, 3), got {vector.shape}")
        s0, s1, s2 = np.moveaxis(vector, -1, 0)
        s0 = np.where(s0 > 0, s0, np.nan)
        found["dolp"], found["aolp"] = np.minimum(np.hypot(s1, s2) / s0, 1), np.arctan2(s2, s1 + 0 * s0) / 2 % np.pi
    shapes = {name: image.shape for name, image in found.items()}
    if len(set(shapes.values())) > 1 or found["dolp"].ndim != 2:
        raise ValueError(f"images must have one shape (H, W), got {shapes}")
    unknown = np.full(found["dolp"].shape, np.nan)
    return MeasuredLight(found["dolp"], found["aolp"], found.get("dolp_sigma", unknown), found.get("aolp_sigma"))
