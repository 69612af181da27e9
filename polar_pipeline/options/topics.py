"""ROS topics: names, message types, encodings and element types, as the node publishes and replay records them.

Imports no ROS. Names are relative to the node's namespace. A product is published with every element type that it
offers; products of light as integers only, by default in 8 bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, Set, Tuple

from polar_pipeline.options.products import PRODUCTS, Product

IMAGE = "sensor_msgs/msg/Image"
COMPRESSED = "sensor_msgs/msg/CompressedImage"
CAMERA_INFO = "sensor_msgs/msg/CameraInfo"
FLOAT32 = "std_msgs/msg/Float32"
DIAGNOSTICS = "diagnostic_msgs/msg/DiagnosticArray"

#: The node's inputs: raw frames, their lens calibration, and what SSIM compares with in mode `reference`.
IMAGE_INPUT, CAMERA_INFO_INPUT, REFERENCE_INPUT = "image_raw", "camera_info", "reference"
#: The first two with their types, which a node publishes that reads the camera itself.
CAMERA_TOPICS = {IMAGE_INPUT: IMAGE, CAMERA_INFO_INPUT: CAMERA_INFO}
#: Times and quality of every frame, and the node's report at 1 Hz.
LATENCY, REPORT = "latency", "/diagnostics"
#: Numbers of every frame for plotting, beside the product `ssim` -> topic, as `FLOAT32`: milliseconds from receipt to
#: publication (`total` in `latency`); the ratio of the output's pixels that are saturated, 0 to 1, as in the limits
#: `quality.saturated_warn` and `quality.saturated_error`; and stops of exposure to add, NaN while unknown.
NUMBER_TOPICS = {"total_ms": "latency/total_ms", "saturated": "quality/saturated", "exposure_ev": "quality/exposure_ev"}


@dataclass(frozen=True)
class ProductTopic:
    """Topics and element types of a product.

    Attributes:
        name: Topic.
        message_type: `IMAGE`, or `FLOAT32` for one number per frame.
        dtypes: Element types published, the default first; the parameter `output_depth` chooses among them.
        paired: Second topic, which image_transport pairs with the lens calibration of the product; "" where `name` is.
    """

    name: str
    message_type: str
    dtypes: Tuple[str, ...]
    paired: str = ""

    @property
    def names(self) -> Tuple[str, ...]:
        """Every topic on which the node publishes it."""
        return (self.name, self.paired) if self.paired else (self.name,)

    def dtype(self, output_depth: str) -> str:
        """Return the element type published with `output_depth`, the default if it is not among `dtypes`."""
        return output_depth if output_depth in self.dtypes else self.dtypes[0]


def _product_topic(row: Product) -> ProductTopic:
    in_folder = f"polarization/{row.name}"
    name = row.topic or in_folder
    return ProductTopic(
        name,
        FLOAT32 if row.is_number else IMAGE,
        tuple(dtype for dtype in row.types if not (dtype == "float32" and row.is_light)),
        "" if "/" in name else in_folder,  # beside `name`, `camera_info` is the input's
    )


#: Product -> how it is published.
PRODUCT_TOPICS: Dict[str, ProductTopic] = {name: _product_topic(row) for name, row in PRODUCTS.items()}
#: Product -> topic of its JPEG: where image_transport looks for it.
COMPRESSED_TOPICS = {name: f"{PRODUCT_TOPICS[name].name}/compressed" for name, row in PRODUCTS.items() if row.has_jpeg}


def jpeg_topics(product: str) -> Tuple[str, ...]:
    """Return every topic on which the node publishes a product of `COMPRESSED_TOPICS` as JPEG."""
    return tuple(f"{name}/compressed" for name in PRODUCT_TOPICS[product].names)


def camera_info_beside(image_topic: str) -> str:
    """Return the topic on which image_transport looks for the lens calibration of images."""
    folder, slash, _ = image_topic.rpartition("/")
    return f"{folder}{slash}camera_info"


#: Product -> topic of the lens calibration scaled to it: beside it, but where `camera_info` is the input's.
OUTPUT_CAMERA_INFO = {
    name: beside if beside != CAMERA_INFO_INPUT else "camera_info_out"
    for name, beside in ((name, camera_info_beside(row.name)) for name, row in PRODUCT_TOPICS.items())
}
CAMERA_INFO_TOPICS = tuple(dict.fromkeys(OUTPUT_CAMERA_INFO.values()))

#: Topic of an image, a number or a JPEG -> its product.
PRODUCT_OF_TOPIC = {
    **{topic: name for name, row in PRODUCT_TOPICS.items() for topic in row.names},
    **{topic: name for name in COMPRESSED_TOPICS for topic in jpeg_topics(name)},
}
#: Every topic that the node publishes, but its report -> message type.
OUTPUT_TOPICS = {
    **{topic: row.message_type for row in PRODUCT_TOPICS.values() for topic in row.names},
    **{topic: COMPRESSED for name in COMPRESSED_TOPICS for topic in jpeg_topics(name)},
    **dict.fromkeys(CAMERA_INFO_TOPICS, CAMERA_INFO),
    **dict.fromkeys(NUMBER_TOPICS.values(), FLOAT32),
    LATENCY: DIAGNOSTICS,
}


def image_encoding(product: str, dtype: str, is_color: bool) -> str:
    """Return the `sensor_msgs/Image` encoding of a product with elements of a type, for a kind of sensor."""
    channels = PRODUCTS[product].channels[is_color]
    if dtype == "uint8":
        return {1: "mono8", 3: "rgb8"}[channels]
    return f"{'16U' if dtype == 'uint16' else '32F'}C{channels}"


def jpeg_format(product: str, is_color: bool) -> str:
    """Return the `format` of the `sensor_msgs/CompressedImage` with a product's JPEG, as image_transport writes it.

    It names the encoding of the image, and in color what decoders of the JPEG give.
    """
    encoding = image_encoding(product, "uint8", is_color)
    return f"{encoding}; jpeg compressed {'bgr8' if encoding == 'rgb8' else ''}"


#: Last parts of topics on which image_transport and `compress` send what is on the topic above.
_TRANSPORTS = ("compressed", "compressedDepth", "polar_zstd", "theora", "zstd")


def own_outputs(topics: Iterable[str], is_own: bool = False) -> Set[str]:
    """Return the topics that are outputs of this package: another of its outputs is in the same namespace.

    A lens calibration beside a topic does not count as another output: drivers publish it beside raw images.

    Args:
        topics: The topics of a recording.
        is_own: Whether this package wrote it, so that the name of an output is enough.
    """
    places: Dict[str, Tuple[str, str]] = {}
    names: Dict[str, Set[str]] = {}  # of outputs, by namespace
    for topic in topics:
        whole = f"/{topic.lstrip('/')}"
        above, _, last = whole.rpartition("/")
        whole = above if last in _TRANSPORTS else whole
        name = max((name for name in OUTPUT_TOPICS if whole.endswith(f"/{name}")), key=len, default="")
        if name:
            namespace = whole[: -len(name)]
            places[topic] = namespace, name
            names.setdefault(namespace, set()).update([name] if OUTPUT_TOPICS[name] != CAMERA_INFO else [])
    return {topic for topic, (namespace, name) in places.items() if is_own or names[namespace] - {name}}
