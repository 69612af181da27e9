"""The products of the pipeline: one table, read by every other module.

A new product is a row here, a function in `reference/`, and a stage in each backend; `plan.py` takes its operator from
the row, `topics.py` derives how it is published.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, Iterable, Tuple, Union

from polar_pipeline._util.text import quoted
from polar_pipeline.sensor.mosaic import ANGLES


@dataclass(frozen=True)
class Product:
    """One output of the pipeline.

    Attributes:
        name: Key in the result.
        channels: Values per pixel for a mono and for a colour sensor; 0 stands for one number per frame.
        types: Element types offered, the default first. `float32` holds physical values, `uint8` and `uint16` levels
            (`full_level`).
        unit: What one float step means.
        text: One line of description.
        needs: The values it is computed from: operators in `plan.py`, or products.
        window: Whether it looks at neighbours of what it needs, rather than at the same pixel only.
        shrinks: Whether the option `ssim_stride` divides its height and width.
    """

    name: str
    channels: Tuple[int, int]
    types: Tuple[str, ...]
    unit: str
    text: str
    needs: Tuple[str, ...]
    window: bool = False
    shrinks: bool = False

    def shape(self, size: Tuple[int, int], is_color: bool, stride: int = 1) -> Tuple[int, ...]:
        """Shape of the array for an output of `size` = (height, width) and an `ssim_stride`."""
        channels = self.channels[is_color]
        if self.shrinks:
            size = (size[0] // stride, size[1] // stride)
        return () if channels == 0 else size if channels == 1 else (*size, channels)

    def dtype(self, wanted: str) -> str:
        """The element type closest to the wanted one."""
        return wanted if wanted in self.types else self.types[0]


_ALL, _FLOAT, _BYTE = ("float32", "uint8", "uint16"), ("float32",), ("uint8",)
_SCALE = "full scale"

_TABLE = (
    Product("intensity", (1, 3), _ALL, _SCALE, "total intensity S0/2", ("angles",)),
    *(
        Product(f"angle_{angle}", (1, 3), _ALL, _SCALE, f"image behind the {angle} degree polarizer", ("angles",))
        for angle in ANGLES
    ),
    Product(
        *("unpolarized", (1, 3), _ALL, _SCALE, "light without glare, (S0 - sqrt(S1^2 + S2^2))/2, at least 0"),
        needs=("angles",),
    ),
    Product("polarized", (1, 3), _ALL, _SCALE, "polarized light, sqrt(S1^2 + S2^2)", ("angles",)),
    Product(
        *("polarizer", (1, 3), _ALL, _SCALE, "image behind a polarizer at `polarizer_angle`, at least 0"),
        needs=("angles",),
    ),
    Product("stokes", (3, 3), _FLOAT, _SCALE, "linear Stokes vector S0, S1, S2", ("stokes_planes", "invalid")),
    Product(
        *("dolp", (1, 1), _ALL, "1", "degree of linear polarization, 0 to 1"),
        needs=("polar", "stokes_planes", "invalid"),
    ),
    Product("aolp", (1, 1), _ALL, "rad", "angle of linear polarization, 0 to pi", ("polar", "invalid")),
    Product("dolp_sigma", (1, 1), _ALL, "1", "standard deviation of dolp by noise, 0 to 1", ("noise", "invalid")),
    Product("aolp_sigma", (1, 1), _ALL, "rad", "standard deviation of aolp by noise, 0 to 0.907", ("noise", "invalid")),
    Product(
        *("preview", (3, 3), _BYTE, "", "RGB: hue AoLP, saturation DoLP, value S0/2"),
        needs=("polar", "stokes_planes", "invalid"),
    ),
    Product(
        *("aolp_color", (3, 3), _BYTE, "", "RGB: aolp on a cyclic colour map, faded as `color_style` says"),
        needs=("polar", "invalid"),
    ),
    Product("dolp_color", (3, 3), _BYTE, "", "RGB: dolp on a colour map, from violet to yellow", ("polar", "invalid")),
    Product(
        *("ssim_map", (1, 1), _ALL, "1", "structural similarity per pixel, -1 to 1"),
        needs=("ssim_pair",),
        window=True,
        shrinks=True,
    ),
    Product("ssim", (0, 0), _FLOAT, "1", "mean of the similarity map", ("ssim_map",)),
)

#: Every product by name, in the order in which they are listed and stored.
PRODUCTS: Dict[str, Product] = {row.name: row for row in _TABLE}
#: Products of light, which show what was measured at invalid pixels too.
LIGHT_PRODUCTS = tuple(row.name for row in _TABLE if row.unit == _SCALE and row.name != "stokes")
#: Products that are computed from the noise of raw pixels.
NOISE_PRODUCTS = ("dolp_sigma", "aolp_sigma")
#: Products that compare two images.
SSIM_PRODUCTS = ("ssim_map", "ssim")
#: The products that replay and the tools compute by default: what viewers usually show.
DEFAULT_PRODUCTS = ("intensity", "dolp", "aolp", "preview", "ssim_map", "ssim")


def full_level(dtype: str) -> int:
    """The number in an element type for full scale of light, and for a DoLP, its deviation or a similarity of 1.

    1 in `float32`; in `uint8` and `uint16` the highest level, 255 and 65535.
    """
    return {"float32": 1, "uint8": 255, "uint16": 65535}[dtype]


def level_scale(product: str, dtype: str) -> float:
    """What one unit of a product's float image is in an element type; pi is 256 or 65536 levels, so that AoLP wraps."""
    if dtype != "float32" and PRODUCTS[product].unit == "rad":
        return (full_level(dtype) + 1) / math.pi
    return full_level(dtype)


def invalid_level(product: str, dtype: str) -> float:
    """What invalid pixels hold: NaN, or level 0; of deviations the highest level, since 0 would be the smallest."""
    if dtype == "float32":
        return math.nan
    return full_level(dtype) if product in NOISE_PRODUCTS else 0


def get_products(names: Union[str, Iterable[str]]) -> Tuple[str, ...]:
    """Product names, validated, without repeats, in the table's order; a string may hold several with commas.

    Raises:
        ValueError: A name is unknown, or none is given.
    """
    allowed = f"products must be among {', '.join(PRODUCTS)}"
    try:
        listed = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
    except TypeError:
        raise ValueError(f"{allowed}; got {quoted(names)}") from None
    unknown = [name for name in listed if not isinstance(name, str) or name not in PRODUCTS]
    if unknown or not listed:
        raise ValueError(f"{allowed}; got {quoted(unknown) if unknown else 'none'}")
    return tuple(name for name in PRODUCTS if name in listed)
