"""What others read of the node and send to it with cv_bridge, through the real executable.

PyPI's `cv-bridge` is the Python part of ROS's package of that name, with its C++ part in Python too. It was written for
OpenCV up to 4 and NumPy up to 2.2, and two things fail with newer ones, whatever the message:

- OpenCV 5 has the number of channels in other bits of a type's code: `rgb8` and `32FC3` seem to have 9 channels.
- NumPy 2.3 has no `ndarray.tostring`: `cv2_to_imgmsg` raises AttributeError.

Here both are put right from outside where they are wrong, and nothing else is; ROS's own cv_bridge needs neither.
"""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Set

import cv2
import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")
pytest.importorskip("cv_bridge")

import drill
from cv_bridge import CvBridge
from cv_bridge.boost import cv_bridge_boost
from scenes import synthetic
from sensor_msgs.msg import CompressedImage, Image
from support import real_frame, representative, wait_for

from polar_pipeline import Pipeline
from polar_pipeline.products import PRODUCTS
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import SENSORS
from polar_pipeline.topics import COMPRESSED_TOPICS, PRODUCT_TOPICS, jpeg_topics

pytestmark = pytest.mark.ros
#: Sends of one frame do not follow each other faster than this, in seconds.
PAUSE = 0.5
IMAGES = [name for name in PRODUCTS if name != "ssim"]
JPEG_QUALITY = 90  # the node's default
#: Encoding of an image message, by element type and channels.
ENCODINGS = {
    ("uint8", 1): "mono8",
    ("uint8", 3): "rgb8",
    ("float32", 1): "32FC1",
    ("float32", 3): "32FC3",
    ("uint16", 1): "16UC1",
    ("uint16", 3): "16UC3",
}
CHANNEL_STEP = cv2.CV_8UC2 - cv2.CV_8UC1


def raw_frame(sensor: str, encoding: str) -> np.ndarray:
    """A frame of that sensor, cut out of a real one where there is one, with all bits of the encoding in use.

    It is small, so that all images of it fit the middleware's shared memory as it is by default: 0.5 MB.
    """
    if sensor == "IMX250MZR":
        raw = real_frame("imx250mzr_fruits.png")[850:970, 900:1060]
    else:
        raw = expose(synthetic("spheres", (120, 160), is_color=True), SENSORS[sensor])
    if encoding == "mono16":
        return raw.astype(np.uint16) * 256 + np.random.default_rng(0).integers(0, 256, raw.shape).astype(np.uint16)
    return np.ascontiguousarray(raw)


class _WithToString(np.ndarray):
    """An array as it was before NumPy 2.3."""

    def tostring(self) -> bytes:
        return self.tobytes()


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


def image_message(bridge: CvBridge, raw: np.ndarray, encoding: str) -> Any:
    array = raw if hasattr(raw, "tostring") else raw.view(_WithToString)
    return bridge.cv2_to_imgmsg(array, encoding)


class Viewer:
    """A peer that plays camera, and keeps the newest message of every image topic of the node."""

    def __init__(self) -> None:
        self.heard: Dict[str, Any] = {}
        self._peer = drill.Peer()
        self._stamp = 0
        self._camera = self._peer.node.create_publisher(Image, "image_raw", 10)
        topics = {topic: Image for name in IMAGES for topic in PRODUCT_TOPICS[name].names}
        topics.update({topic: CompressedImage for name in COMPRESSED_TOPICS for topic in jpeg_topics(name)})
        for topic, kind in topics.items():

            def keep(message: Any, topic: str = topic) -> None:
                self.heard[topic] = message

            self._peer.node.create_subscription(kind, topic, keep, 10)
        self.topics = topics

    def close(self) -> None:
        self._peer.close()

    def image_topics_of_the_node(self) -> Set[str]:
        """Every topic of type Image or CompressedImage that the node offers."""
        found = self._peer.node.get_publisher_names_and_types_by_node("polar_pipeline", "/")
        return {topic.lstrip("/") for topic, kinds in found if kinds[0].endswith("Image")}

    def see(self, message: Any) -> Dict[str, Any]:
        """Send an image message until everything has come of it; the messages by topic."""
        self._stamp += 1
        message.header.stamp.sec, message.header.frame_id = self._stamp, "camera"
        sent = 0.0

        def came() -> bool:
            nonlocal sent
            if time.monotonic() > sent + PAUSE:
                sent = time.monotonic()
                self._camera.publish(message)
            heard = dict(self.heard)
            return len(heard) == len(self.topics) and all(row.header.stamp.sec == self._stamp for row in heard.values())

        wait_for(came, f"all of {sorted(self.topics)} for a frame")
        return dict(self.heard)


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    made = Viewer()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("sensor", "depth"),
    representative(
        list(itertools.product(("IMX250MZR", "IMX250MYR"), ("float32", "uint8", "uint16"))), lambda row: row
    ),
)
def test_cv_bridge_reads_every_image_topic_of_frames_that_it_made(
    sensor: str, depth: str, bridge: CvBridge, viewer: Viewer, tmp_path: Path
) -> None:
    types = {name: PRODUCT_TOPICS[name].dtype(depth) for name in IMAGES}
    parameters = ("-p", f"sensor:={sensor}", "-p", f"output_depth:={depth}")
    node = drill.start_node(tmp_path / "node", *parameters, is_forked=True)
    try:
        for encoding in ("mono8", "mono16", "bayer_rggb8"):
            raw = raw_frame(sensor, encoding)
            heard = viewer.see(image_message(bridge, raw, encoding))
            expected = Pipeline(sensor, IMAGES, dtype=types, backend="cpu")(raw)
            for name, topic in ((row, topic) for row in IMAGES for topic in PRODUCT_TOPICS[row].names):
                message, wanted = heard[topic], expected[name]
                where = f"{topic} of {encoding}"
                image = bridge.imgmsg_to_cv2(message)
                channels = 1 if wanted.ndim == 2 else wanted.shape[2]
                assert message.encoding == ENCODINGS[types[name], channels], where
                assert (image.dtype, image.shape) == (types[name], wanted.shape), where
                np.testing.assert_array_equal(image, wanted, err_msg=where)
                if message.encoding == "rgb8":  # as OpenCV's functions want it
                    np.testing.assert_array_equal(bridge.imgmsg_to_cv2(message, "bgr8"), wanted[..., ::-1], where)
            shown = Pipeline(sensor, tuple(COMPRESSED_TOPICS), dtype="uint8", backend="cpu")(raw)
            for name, topic in ((row, topic) for row in COMPRESSED_TOPICS for topic in jpeg_topics(row)):
                wanted = shown[name][..., ::-1] if shown[name].ndim == 3 else shown[name]
                _, jpeg = cv2.imencode(".jpg", np.ascontiguousarray(wanted), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
                image = bridge.compressed_imgmsg_to_cv2(heard[topic])
                difference = np.abs(image.astype(int) - cv2.imdecode(jpeg, cv2.IMREAD_ANYCOLOR))
                # bytes are made of float32 or uint16 after the computation: a level at few pixels, which JPEG spreads
                assert difference.mean() <= (0 if PRODUCT_TOPICS[name].dtype(depth) == "uint8" else 0.5), name
        offered = wait_for(viewer.image_topics_of_the_node, "the node's topics")  # which ROS tells a viewer late
        assert offered == set(viewer.topics), "a topic that this test does not read"
    finally:
        node.close()
