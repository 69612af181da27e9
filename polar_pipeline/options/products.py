"""The products of the pipeline: one row each, from which every other module takes what it needs to know.

A new product is a row here, its formula in the kernels' header, and its function in `reference/`. `plan.py` takes its
operator from the row; so do topics, viewers, layouts, comparison, reports, documents and tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Optional, Tuple, Union

import numpy as np

from polar_pipeline._util.text import did_you_mean, quoted
from polar_pipeline.polarimetry.coefficients import AOLP_SIGMA_MAX
from polar_pipeline.sensor.mosaic import ANGLES

_ALL, _FLOAT, _BYTE = ("float32", "uint8", "uint16"), ("float32",), ("uint8",)
_SCALE = "full scale"


@dataclass(frozen=True)
class Product:
    """One output of the pipeline.

    Attributes:
        name: Key in the result.
        text: One line of description.
        needs: The values it is computed from: operators in `plan.py`, or products.
        channels: Values per pixel for a mono and for a color sensor; 0 stands for one number per frame.
        types: Element types offered, the default first. `float32` holds physical values, `uint8` and `uint16` levels
            (`full_level`).
        unit: Meaning of one float step; "" for colors.
        values: Smallest and largest float; an angle that reaches pi wraps.
        planes: (name, smallest, largest float) of each channel that is a quantity of its own, as of a Stokes vector.
        shrinks: Whether the option `ssim_stride` divides its height and width.
        shows: What a reader sees in it: `dolp` (the option `debias` changes it), `aolp` (`max_aolp_sigma` does).
        is_invalid_high: Whether invalid pixels hold the highest level rather than 0, which would mean the best value.
        is_default: Whether replay and the tools compute it by default, and layouts show it at first.
        topic: ROS topic, relative to the node's namespace; by default `polarization/NAME`.
        has_jpeg: Whether the node publishes it as JPEG too, for looking at it.
        colors: Color map: `gray`, `viridis`, `phase`, or `hsv`, whose value is brightness.
        span: Values with the first and the last color in viewers; by default `values`.
        contrast: The same in pictures; by default `span`.
        tolerance: Largest error of a backend in the unit, of an angle that wraps in degrees.
        tolerance_levels: Largest error in 8 bits, in levels.
        compared: Pixels that are compared: `all`, `bright`, or `polarized`, which are bright too; others are noise.
    """

    name: str
    text: str
    needs: Tuple[str, ...]
    channels: Tuple[int, int] = (1, 1)
    types: Tuple[str, ...] = _ALL
    unit: str = "1"
    values: Tuple[float, float] = (0.0, 1.0)
    planes: Tuple[Tuple[str, float, float], ...] = ()
    shrinks: bool = False
    shows: Tuple[str, ...] = ()
    is_invalid_high: bool = False
    is_default: bool = False
    topic: str = ""
    has_jpeg: bool = False
    colors: str = "gray"
    span: Optional[Tuple[float, float]] = None
    contrast: Optional[Tuple[float, float]] = None
    tolerance: float = 2e-3
    tolerance_levels: float = 1.0
    compared: str = "all"

    @property
    def is_number(self) -> bool:
        """Whether it is one number per frame."""
        return self.channels == (0, 0)

    @property
    def is_light(self) -> bool:
        """Whether it shows what was measured at invalid pixels too."""
        return self.unit == _SCALE and "invalid" not in self.needs

    @property
    def is_value(self) -> bool:
        """Whether it is one value of a pixel's polarization, which invalid pixels lack; AoLP, which wraps, is not."""
        return "invalid" in self.needs and self.channels == (1, 1) and not self.wraps

    @property
    def wraps(self) -> bool:
        """Whether the largest value means the smallest, as of angles."""
        return self.values[1] == math.pi

    @property
    def legend(self) -> str:
        """Legend of the colors: a `bar`, or a `wheel` of angles; "" for images that need none."""
        if self.is_light or self.is_number or self.planes:
            return ""
        return "wheel" if not self.unit and "aolp" in self.shows else "bar"

    @property
    def viewed(self) -> Tuple[float, float]:
        """Values with the first and the last color in viewers."""
        return self.span or self.values

    @property
    def pictured(self) -> Tuple[float, float]:
        """Values with the first and the last color in pictures."""
        return self.contrast or self.viewed

    def planes_of(self, array: np.ndarray) -> np.ndarray:
        """Scale the planes of an (h, w, planes) array to 0 to 1."""
        low, high = (np.array(ends, np.float32) for ends in zip(*((low, high) for _, low, high in self.planes)))
        scaled: np.ndarray = (array - low) / (high - low)
        return scaled

    def shape(self, size: Tuple[int, int], is_color: bool, stride: int = 1) -> Tuple[int, ...]:
        """Return the shape of the array for an output of `size` = (height, width) and an `ssim_stride`."""
        channels = self.channels[is_color]
        if self.shrinks:
            size = (size[0] // stride, size[1] // stride)
        return () if channels == 0 else size if channels == 1 else (*size, channels)

    def dtype(self, requested: str) -> str:
        """Return the element type closest to the requested one."""
        return requested if requested in self.types else self.types[0]


def _light(name: str, text: str, **more: Any) -> Product:
    """Create a product of light: an image of the sensor's measurement, or of a component of it."""
    return Product(name, text, ("angles",), (1, 3), unit=_SCALE, **more)


def _colors(name: str, text: str, needs: Tuple[str, ...], **more: Any) -> Product:
    """Create a product for viewing: RGB in 8 bits."""
    return Product(name, text, needs, (3, 3), _BYTE, unit="", has_jpeg=True, **more)


#: Components of the light, of every color: what `component` in `kernels/formulas.h` computes, in this order.
_COMPONENTS = (
    _light("unpolarized", "light without glare, (S0 - sqrt(S1^2 + S2^2))/2, at least 0", has_jpeg=True),
    _light("polarized", "polarized light, sqrt(S1^2 + S2^2)", has_jpeg=True),
    _light("polarizer", "image behind a polarizer at `polarizer_angle`, at least 0", has_jpeg=True),
)
_TABLE = (
    _light("intensity", "total intensity S0/2", topic="intensity", has_jpeg=True, is_default=True),
    *(
        _light(f"angle_{angle}", f"image behind the {angle} degree polarizer", topic=f"angles/angle_{angle:03d}")
        for angle in ANGLES
    ),
    *_COMPONENTS,
    Product(
        "stokes",
        "linear Stokes vector S0, S1, S2",
        ("stokes_planes", "invalid"),
        channels=(3, 3),
        types=_FLOAT,
        unit=_SCALE,
        values=(-1.0, 2.0),
        planes=(("s0", 0.0, 2.0), ("s1", -1.0, 1.0), ("s2", -1.0, 1.0)),
    ),
    Product(
        "dolp",
        "degree of linear polarization, 0 to 1",
        ("polar", "stokes_planes", "invalid"),
        shows=("dolp",),
        is_default=True,
        has_jpeg=True,
        colors="viridis",
        compared="bright",
    ),
    Product(
        "aolp",
        "angle of linear polarization, 0 to pi",
        ("polar", "invalid"),
        unit="rad",
        values=(0.0, math.pi),
        shows=("aolp",),
        is_default=True,
        has_jpeg=True,
        colors="phase",
        tolerance=0.5,
        compared="polarized",
    ),
    Product(
        "dolp_sigma",
        "RMS error of debiased dolp by noise, 0 to 1",
        ("noise", "invalid"),
        is_invalid_high=True,
        colors="viridis",
        span=(0.0, 0.1),
        compared="bright",
    ),
    Product(
        "aolp_sigma",
        f"standard deviation of aolp by noise, 0 to {AOLP_SIGMA_MAX:.3f}",
        ("noise", "invalid"),
        unit="rad",
        values=(0.0, AOLP_SIGMA_MAX),
        is_invalid_high=True,
        colors="viridis",
        compared="polarized",
    ),
    Product(
        "significance",
        "chance that noise alone makes such a dolp, 0 to 1",
        ("noise", "invalid"),
        is_invalid_high=True,
        colors="viridis",
        tolerance=0.1,  # half rounds S1 and S2 by up to a quarter of a level, and their noise is some levels
        tolerance_levels=26.0,
        compared="bright",
    ),
    _colors(
        "preview",
        "RGB: hue AoLP, saturation DoLP, value S0/2",
        ("polar", "stokes_planes", "invalid"),
        shows=("dolp", "aolp"),
        is_default=True,
        colors="hsv",
    ),
    _colors(
        "aolp_color",
        "RGB: aolp on a cyclic color map, faded according to `color_style`",
        ("polar", "invalid"),
        shows=("dolp", "aolp"),
        colors="phase",
        tolerance_levels=9.0,  # two steps of the map, as an angle may differ by 0.5 degrees
        compared="polarized",
    ),
    _colors(
        "dolp_color",
        "RGB: dolp on a color map, from violet to yellow",
        ("polar", "invalid"),
        shows=("dolp",),
        colors="viridis",
        tolerance_levels=5.0,  # two steps of the map
        compared="bright",
    ),
    Product(
        "ssim_map",
        "structural similarity per pixel, -1 to 1",
        ("ssim_pair",),
        values=(-1.0, 1.0),
        shrinks=True,
        is_default=True,
        topic="quality/ssim_map",
        has_jpeg=True,
        span=(0.0, 1.0),
        contrast=(0.8, 1.0),
        tolerance=1e-3,
    ),
    Product(
        "ssim",
        "mean of the similarity map",
        ("ssim_map",),
        channels=(0, 0),
        types=_FLOAT,
        values=(-1.0, 1.0),
        is_default=True,
        topic="quality/ssim",
        tolerance=1e-3,
    ),
)

#: Every product by name, in the order in which they are listed and stored.
PRODUCTS: Dict[str, Product] = {row.name: row for row in _TABLE}


def _computed_from(*values: str) -> Tuple[str, ...]:
    """Name the products that need one of the values, or a product that does."""
    needed, products = {*values}, []
    for row in _TABLE:  # needs come first
        if not needed.isdisjoint(row.needs):
            needed.add(row.name)
            products.append(row.name)
    return tuple(products)


#: Products that are components of the light.
COMPONENT_PRODUCTS = tuple(row.name for row in _COMPONENTS)
#: Products that are one value of a pixel's polarization: what `polarization_value` in `kernels/formulas.h` computes, in
#: its order.
VALUE_PRODUCTS = tuple(row.name for row in _TABLE if row.is_value)
#: Products of light, which show what was measured at invalid pixels too.
LIGHT_PRODUCTS = tuple(row.name for row in _TABLE if row.is_light)
#: Products that are computed from the noise of raw pixels.
NOISE_PRODUCTS = _computed_from("noise")
#: Products that depend on which pixels are dark.
DARK_PRODUCTS = _computed_from("invalid")
#: Products that compare two images.
SSIM_PRODUCTS = _computed_from("ssim_pair")
#: The products that replay and the tools compute by default: what viewers usually show.
DEFAULT_PRODUCTS = tuple(row.name for row in _TABLE if row.is_default)


def full_level(dtype: str) -> int:
    """Return the number in an element type for full scale of light, and for a DoLP or similarity of 1.

    1 in `float32`; in `uint8` and `uint16` the highest level, 255 and 65535.
    """
    return {"float32": 1, "uint8": 255, "uint16": 65535}[dtype]


def level_scale(product: str, dtype: str) -> float:
    """Return one unit of a product's float image in levels; pi is 256 or 65536 levels, so that AoLP wraps."""
    if dtype != "float32" and PRODUCTS[product].unit == "rad":
        return (full_level(dtype) + 1) / math.pi
    return full_level(dtype)


def invalid_level(product: str, dtype: str) -> float:
    """Return the value of invalid pixels: NaN, or a level."""
    if dtype == "float32":
        return math.nan
    return full_level(dtype) if PRODUCTS[product].is_invalid_high else 0


#: Name that stands for every product that is an image.
ALL = "all"


def listed_products(names: Union[str, Iterable[str]]) -> Tuple[str, ...]:
    """Validate product names and order them as the table, without repeats; `ALL` stays a name, and comes first.

    Args:
        names: A sequence of names, or text with names that are separated by commas, spaces or both.

    Raises:
        ValueError: A name is unknown, or none is given.
    """
    allowed = f"products must be among {', '.join(PRODUCTS)}, or {ALL!r} for every image"
    try:
        listed = names.replace(",", " ").split() if isinstance(names, str) else list(names)
    except TypeError:
        raise ValueError(f"{allowed}; got {quoted(names)}") from None
    unknown = [name for name in listed if not isinstance(name, str) or (name not in PRODUCTS and name != ALL)]
    if unknown or not listed:
        wrong = quoted(unknown[0] if len(unknown) == 1 else unknown) if unknown else "none"
        hint = did_you_mean(unknown[0], [*PRODUCTS, ALL]) if unknown else ""
        raise ValueError(f"{allowed}; got {wrong}{hint}")
    return tuple(name for name in (ALL, *PRODUCTS) if name in listed)


def get_products(names: Union[str, Iterable[str]], has_geometry: bool = False) -> Tuple[str, ...]:
    """Validate product names as `listed_products`, with the products in place of `ALL`.

    Args:
        names: As for `listed_products`.
        has_geometry: Whether outputs have other pixels than the Stokes image, where noise is not known: `ALL` then
            stands for every image but the `NOISE_PRODUCTS`.

    Raises:
        ValueError: A name is unknown, or none is given.
    """
    listed = listed_products(names)
    images = [name for name, row in PRODUCTS.items() if not row.is_number] if ALL in listed else []
    if has_geometry:
        images = [name for name in images if name not in NOISE_PRODUCTS]
    return tuple(name for name in PRODUCTS if name in listed or name in images)
