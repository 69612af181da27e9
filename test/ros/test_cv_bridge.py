"""What others read of the node's messages with cv_bridge.

PyPI's `cv-bridge` is the Python part of ROS's package of that name, with its C++ part in Python too. It was written for
OpenCV up to 4: OpenCV 5 has the number of channels in other bits of a type's code, and `rgb8` and `32FC3` seem to have
9 channels. Here this is put right from outside where it is wrong, and nothing else is; ROS's own cv_bridge is right.
"""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import cv2
import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")
pytest.importorskip("cv_bridge")

from cv_bridge import CvBridge
from cv_bridge.boost import cv_bridge_boost
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CompressedImage, Image

from polar_pipeline import Pipeline
from polar_pipeline._util.jpeg import encode_with_opencv
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.options.topics import PRODUCT_TOPICS, jpeg_format
from polar_pipeline.recordings import messages

pytestmark = pytest.mark.ros
IMAGES = [name for name in PRODUCTS if name != "ssim"]
#: Encoding of an image message, by element type and channels.
ENCODINGS = {
    ("uint8", 1): "mono8",
    ("uint8", 3): "rgb8",
    ("float32", 1): "32FC1",
    ("float32", 3): "32FC3",
    ("uint16", 1): "16UC1",
    ("uint16", 3): "16UC3",
}
RAW = np.random.default_rng(0).integers(10, 250, (120, 160)).astype(np.uint8)
CHANNEL_STEP = cv2.CV_8UC2 - cv2.CV_8UC1


@pytest.fixture
def bridge(monkeypatch: pytest.MonkeyPatch) -> CvBridge:
    """cv_bridge's converter, with the type codes of the installed OpenCV.

    The wheel's table (1.13.0.post0) gives 16UC1 and 16UC3 the codes of bytes; ROS's own cv_bridge, in C++, does not.
    """
    found = CvBridge()
    codes = getattr(cv_bridge_boost, "_CV_TYPES", {})
    for encoding, code in (("16UC1", cv2.CV_16UC1), ("16UC3", cv2.CV_16UC3)):
        if encoding in codes:
            monkeypatch.setitem(codes, encoding, code)
    if CHANNEL_STEP != 8:
        monkeypatch.setattr(cv_bridge_boost, "CV_MAT_DEPTHWrap", lambda code: code % CHANNEL_STEP)
        monkeypatch.setattr(cv_bridge_boost, "CV_MAT_CNWrap", lambda code: code // CHANNEL_STEP + 1)
    return found


@pytest.mark.parametrize("depth", ["float32", "uint8", "uint16"])
@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
def test_cv_bridge_reads_every_product(sensor: str, depth: str, bridge: CvBridge) -> None:
    types = {name: PRODUCT_TOPICS[name].dtype(depth) for name in IMAGES}
    products = Pipeline(sensor, IMAGES, dtype=types, backend="cpu")(RAW)
    for name, wanted in products.items():
        _, cdr = messages.product_message(name, wanted, 5, "camera")
        message = deserialize_message(bytes(cdr), Image)
        image = bridge.imgmsg_to_cv2(message)
        assert message.encoding == ENCODINGS[types[name], 1 if wanted.ndim == 2 else wanted.shape[2]], name
        assert (image.dtype, image.shape) == (types[name], wanted.shape), name
        np.testing.assert_array_equal(image, wanted, err_msg=name)
        if message.encoding == "rgb8":  # as OpenCV's functions want it
            np.testing.assert_array_equal(bridge.imgmsg_to_cv2(message, "bgr8"), wanted[..., ::-1], name)


def test_cv_bridge_reads_jpegs(bridge: CvBridge) -> None:
    color = Pipeline(products="aolp_color", backend="cpu")(RAW)["aolp_color"]
    for image in (color, color[..., 0]):
        jpeg = encode_with_opencv(image, 90)
        cdr = messages.encode_compressed(5, "camera", jpeg_format("aolp_color", image.ndim == 3), jpeg)
        found = bridge.compressed_imgmsg_to_cv2(deserialize_message(bytes(cdr), CompressedImage))
        np.testing.assert_array_equal(found, cv2.imdecode(jpeg, cv2.IMREAD_ANYCOLOR))
