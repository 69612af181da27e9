"""The products of the pipeline: one table, read by every other module.

A new product is a row here, a function in `reference/`, and a stage in each backend; `plan.py` takes its operator from
the row, `topics.py` derives how it is published.
"""

from __future__ import annotations

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
        types: Element types offered, the default first. `float32` holds physical values, `uint8` the display encoding.
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


_BOTH, _FLOAT, _BYTE = ("float32", "uint8"), ("float32",), ("uint8",)
_SCALE = "full scale"

_TABLE = (
    Product("intensity", (1, 3), _BOTH, _SCALE, "total intensity S0/2", ("angles",)),
    *(
        Product(f"angle_{angle}", (1, 3), _BOTH, _SCALE, f"image behind the {angle} degree polarizer", ("angles",))
        for angle in ANGLES
    ),
    Product("stokes", (3, 3), _FLOAT, _SCALE, "linear Stokes vector S0, S1, S2", ("stokes_planes", "invalid")),
    Product(
        *("dolp", (1, 1), _BOTH, "1", "degree of linear polarization, 0 to 1"),
        needs=("polar", "stokes_planes", "invalid"),
    ),
    Product("aolp", (1, 1), _BOTH, "rad", "angle of linear polarization, 0 to pi", ("polar", "invalid")),
    Product("dolp_sigma", (1, 1), _BOTH, "1", "standard deviation of dolp by noise, 0 to 1", ("noise", "invalid")),
    Product(
        "aolp_sigma", (1, 1), _BOTH, "rad", "standard deviation of aolp by noise, 0 to 0.907", ("noise", "invalid")
    ),
    Product(
        *("preview", (3, 3), _BYTE, "", "RGB: hue AoLP, saturation DoLP, value S0/2"),
        needs=("polar", "stokes_planes", "invalid"),
    ),
    Product(
        *("ssim_map", (1, 1), _BOTH, "1", "structural similarity per pixel, -1 to 1"),
        needs=("ssim_pair",),
        window=True,
        shrinks=True,
    ),
    Product("ssim", (0, 0), _FLOAT, "1", "mean of the similarity map", ("ssim_map",)),
)

#: Every product by name, in the order in which they are listed and stored.
PRODUCTS: Dict[str, Product] = {row.name: row for row in _TABLE}
#: Of what invalid pixels hold in the display encoding, where it is not 0: that would be the smallest deviation.
INVALID_BYTES = {"dolp_sigma": 255, "aolp_sigma": 255}
#: The products that replay and the tools compute by default: what viewers usually show.
DEFAULT_PRODUCTS = ("intensity", "dolp", "aolp", "preview", "ssim_map", "ssim")


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
