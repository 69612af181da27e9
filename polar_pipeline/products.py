"""What can be asked for: one table of products, read by every other room.

A new product is a row here, a function of the same name in `reference/`, and a stage in each backend.
"""

from __future__ import annotations

from typing import Dict, Iterable, NamedTuple, Tuple, Union

from polar_pipeline._util.text import quoted
from polar_pipeline.sensor.mosaic import ANGLES


class Product(NamedTuple):
    """One output of the pipeline.

    Attributes:
        name: Key in the result.
        topic: ROS topic, relative to the node's namespace.
        channels: Values per pixel for a mono and for a colour sensor; 0 stands for one number per frame.
        types: Element types offered, the default first. `float32` holds physical values, `uint8` the display encoding.
        ros_types: The types published in ROS, the default first; more than one leaves the choice to `output_depth`.
        unit: What one float step means.
        text: One line for people.
        shrinks: Whether the option `ssim_stride` divides its height and width.
    """

    name: str
    topic: str
    channels: Tuple[int, int]
    types: Tuple[str, ...]
    ros_types: Tuple[str, ...]
    unit: str
    text: str
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

    def encoding(self, dtype: str, is_color: bool) -> str:
        """`sensor_msgs/Image` encoding for an element type."""
        channels = self.channels[is_color]
        if dtype == "uint8":
            return {1: "mono8", 3: "rgb8"}[channels]
        return f"32FC{channels}"


_BOTH, _FLOAT, _BYTE = ("float32", "uint8"), ("float32",), ("uint8",)

_TABLE = (
    Product("intensity", "intensity", (1, 3), _BOTH, _BYTE, "full scale", "total intensity S0/2"),
    *(
        Product(
            f"angle_{angle}",
            f"angles/angle_{angle:03d}",
            (1, 3),
            _BOTH,
            _BYTE,
            "full scale",
            f"image behind the {angle} degree polarizer",
        )
        for angle in ANGLES
    ),
    Product("stokes", "polarization/stokes", (3, 3), _FLOAT, _FLOAT, "full scale", "linear Stokes vector S0, S1, S2"),
    Product("dolp", "polarization/dolp", (1, 1), _BOTH, _BOTH, "1", "degree of linear polarization, 0 to 1"),
    Product("aolp", "polarization/aolp", (1, 1), _BOTH, _BOTH, "rad", "angle of linear polarization, 0 to pi"),
    Product("preview", "polarization/preview", (3, 3), _BYTE, _BYTE, "", "RGB: hue AoLP, saturation DoLP, value S0/2"),
    Product(
        "ssim_map", "quality/ssim_map", (1, 1), _BOTH, _BOTH, "1", "structural similarity per pixel, -1 to 1", True
    ),
    Product("ssim", "quality/ssim", (0, 0), _FLOAT, _FLOAT, "1", "mean of the similarity map"),
)

#: Every product by name, in the order in which they are listed and stored.
PRODUCTS: Dict[str, Product] = {row.name: row for row in _TABLE}
#: What the live node makes of a camera, and what people look at.
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
