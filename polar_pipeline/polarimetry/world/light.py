"""What the functions of this package take: DoLP and AoLP of an image, with their standard deviations."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Tuple, Union

import numpy as np

from polar_pipeline._util.text import quoted
from polar_pipeline.stokes import aolp, dolp

#: A `Result` or another mapping of product names to float images, or a Stokes image (H, W, 3).
Images = Union[np.ndarray, Mapping[str, np.ndarray]]
#: How far a value can be beyond its range by rounding: float16 rounds pi by 0.0006.
ROUNDING = 1e-3
#: Kinds of `dtype` that are allowed -> what they are called.
_KINDS = {"f": "floats (dtype='float32')", "iuf": "numbers", "b": "bool"}
#: Product -> its largest value, and what values must be.
_RANGES = {"dolp": (1.0, "0 to 1"), "aolp": (np.pi, "in rad, 0 to pi")}


class MeasuredLight(NamedTuple):
    """Polarization of an image: (H, W) float64, NaN where invalid.

    Attributes:
        dolp: Degree of linear polarization, 0 to 1.
        aolp: Angle of linear polarization in rad, counter-clockwise from the image's x axis.
        dolp_sigma: Error of `dolp` by noise, as the product; NaN where not known.
        aolp_sigma: Standard deviation of `aolp` in rad; None if not known.
    """

    dolp: np.ndarray
    aolp: np.ndarray
    dolp_sigma: np.ndarray
    aolp_sigma: Optional[np.ndarray]


def measured_light(images: Images) -> MeasuredLight:
    """Take the polarization from products: `dolp` and `aolp`, or `stokes`; with `dolp_sigma` and `aolp_sigma` if given.

    Raises:
        ValueError: Products are missing, are not arrays of floats, or differ in their shapes; or DoLP or AoLP is not in
            the range of its unit.
    """
    sources = {"stokes": images} if isinstance(images, np.ndarray) else images
    if not isinstance(sources, Mapping):
        raise ValueError(f"images must be a result, a mapping of products or a Stokes array, got {quoted(images)}")
    names = ["dolp", "aolp"] if "dolp" in sources and "aolp" in sources else ["stokes"]
    names += [name for name in ("dolp_sigma", "aolp_sigma") if name in sources]
    if "stokes" in names and "stokes" not in sources:
        raise ValueError(f"needs the products dolp and aolp, or stokes; got {', '.join(sources) or 'none'}")
    arrays = {name: checked_array(name, sources[name], None, *_RANGES.get(name, ())) for name in names}
    if "stokes" in arrays:
        vector = arrays.pop("stokes")
        if vector.ndim != 3 or vector.shape[2] != 3:
            raise ValueError(f"stokes must have the shape (H, W, 3), got {vector.shape}")
        arrays["dolp"], arrays["aolp"] = dolp(vector), aolp(vector)
    shapes = {name: image.shape for name, image in arrays.items()}
    if len(set(shapes.values())) > 1 or arrays["dolp"].ndim != 2:
        raise ValueError(f"images must have one shape (H, W), got {shapes}")
    unknown = np.full(arrays["dolp"].shape, np.nan)
    return MeasuredLight(arrays["dolp"], arrays["aolp"], arrays.get("dolp_sigma", unknown), arrays.get("aolp_sigma"))


def checked_array(
    name: str,
    values: object,
    shape: Optional[Tuple[int, ...]] = None,
    highest: float = np.inf,
    words: str = "",
    kinds: str = "f",
) -> np.ndarray:
    """Return an array as float64.

    Args:
        name: Its name.
        values: The array.
        shape: The shape that it must have; None for any.
        highest: Largest value; with it, the smallest one is 0. NaN is in every range.
        words: What values must be.
        kinds: A key of `_KINDS`.

    Raises:
        ValueError: The values are not such an array.
    """
    if not isinstance(values, np.ndarray) or values.dtype.kind not in kinds:
        got = values.dtype if isinstance(values, np.ndarray) else quoted(values)
        raise ValueError(f"{name} must be an array of {_KINDS[kinds]}, got {got}")
    if shape is not None and values.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {values.shape}")
    if highest < np.inf and ((values < -ROUNDING) | (values > highest + ROUNDING)).any():
        raise ValueError(f"{name} must be {words}, got {np.nanmin(values):.4g} to {np.nanmax(values):.4g}")
    return np.asarray(values, np.float64)
