"""ROS topics: names, message types, encodings and element types, as the node publishes and replay records them.

Imports no ROS. Names are relative to the node's namespace. A product that is named nowhere here is published as
`polarization/NAME`, with every element type that it offers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple

from polar_pipeline.products import PRODUCTS, Product
from polar_pipeline.sensor.mosaic import ANGLES

IMAGE = "sensor_msgs/msg/Image"
COMPRESSED = "sensor_msgs/msg/CompressedImage"
CAMERA_INFO = "sensor_msgs/msg/CameraInfo"
FLOAT32 = "std_msgs/msg/Float32"
DIAGNOSTICS = "diagnostic_msgs/msg/DiagnosticArray"

#: The node's inputs: raw frames, their lens calibration, and what SSIM compares with in mode `reference`.
IMAGE_INPUT, CAMERA_INFO_INPUT, REFERENCE_INPUT = "image_raw", "camera_info", "reference"
#: Times and quality of every frame, and the node's report at 1 Hz.
LATENCY, REPORT = "latency", "/diagnostics"

_ANGLE_TOPICS = {f"angle_{angle}": f"angles/angle_{angle:03d}" for angle in ANGLES}
_NAMES = {"intensity": "intensity", **_ANGLE_TOPICS, "ssim_map": "quality/ssim_map", "ssim": "quality/ssim"}
#: Products published in 8 bit only, although they are offered as float32 too.
_ONLY_8_BIT = ("intensity", *_ANGLE_TOPICS)


@dataclass(frozen=True)
class ProductTopic:
    """How a product is published.

    Attributes:
        name: Topic.
        message_type: `IMAGE`, or `FLOAT32` for one number per frame.
        dtypes: Element types published, the default first; of more than one the parameter `output_depth` chooses.
    """

    name: str
    message_type: str
    dtypes: Tuple[str, ...]

    def dtype(self, output_depth: str) -> str:
        """The element type published with the parameter `output_depth`."""
        return output_depth if len(self.dtypes) > 1 else self.dtypes[0]


def _product_topic(product: Product) -> ProductTopic:
    return ProductTopic(
        _NAMES.get(product.name, f"polarization/{product.name}"),
        FLOAT32 if product.channels == (0, 0) else IMAGE,
        ("uint8",) if product.name in _ONLY_8_BIT else product.types,
    )


#: Product -> how it is published.
PRODUCT_TOPICS: Dict[str, ProductTopic] = {name: _product_topic(product) for name, product in PRODUCTS.items()}
#: Products published as JPEG too -> topic.
COMPRESSED_TOPICS = {name: f"{PRODUCT_TOPICS[name].name}/compressed" for name in ("intensity", "preview")}
#: Topics of the lens calibration scaled to the outputs: beside `intensity`, where `camera_info` is the input's, and in
#: each folder of images, where viewers look for it.
CAMERA_INFO_TOPICS = (
    "camera_info_out",
    *sorted({f"{row.name.rsplit('/', 1)[0]}/camera_info" for row in PRODUCT_TOPICS.values() if "/" in row.name}),
)


def image_encoding(product: str, dtype: str, is_color: bool) -> str:
    """`sensor_msgs/Image` encoding of a product with elements of type `uint8` or `float32`, for a kind of sensor."""
    channels = PRODUCTS[product].channels[is_color]
    if dtype == "uint8":
        return {1: "mono8", 3: "rgb8"}[channels]
    return f"32FC{channels}"
