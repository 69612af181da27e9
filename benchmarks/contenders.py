"""The nodes that `benchmarks/node.py` compares this package's with.

    python benchmarks/contenders.py relay intensity=1253440 dolp=5013560 --ros-args -r __ns:=/relay
    python benchmarks/contenders.py usual intensity dolp aolp --ros-args -r __ns:=/usual

`relay` takes each frame as bytes and gives bytes of it on every topic, of the given sizes: what the transport alone
costs in Python. `usual` is what a robotics engineer writes from the tutorials: typed messages, polanalyser for the
polarization, scikit-image for SSIM. It shrinks where that is cheapest, right after demosaicing, and fills messages as
cv_bridge does. Both publish on the topics of this package's node.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Dict, List

import cv2
import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args
from sensor_msgs.msg import Image
from std_msgs.msg import Float32

from polar_pipeline._util.malloc import keep_freed_memory
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.options.topics import PRODUCT_TOPICS


def kind(product: str) -> type:
    """Message type of a product."""
    return Float32 if PRODUCTS[product].channels == (0, 0) else Image


class Relay(Node):
    """Bytes in, bytes out; `sizes` is product -> bytes of its message."""

    def __init__(self, sizes: Dict[str, int]) -> None:
        super().__init__("relay")
        keep_freed_memory()  # a floor without page faults
        self.outputs = [
            (self.create_publisher(kind(name), PRODUCT_TOPICS[name].name, 10), size) for name, size in sizes.items()
        ]
        self.create_subscription(Image, "image_raw", self.on_image, qos_profile_sensor_data, raw=True)

    def on_image(self, cdr: bytes) -> None:
        for publisher, size in self.outputs:
            publisher.publish((cdr * -(-size // len(cdr)))[:size])  # no copy where the size is the frame's


class Usual(Node):
    """Image in, images out."""

    def __init__(self, products: List[str]) -> None:
        import polanalyser
        from skimage.metrics import structural_similarity

        super().__init__("usual")
        self.polanalyser = polanalyser
        self.structural_similarity = structural_similarity
        self.angles = np.deg2rad([0, 45, 90, 135])
        self.outputs = {name: self.create_publisher(kind(name), PRODUCT_TOPICS[name].name, 10) for name in products}
        self.create_subscription(Image, "image_raw", self.on_image, qos_profile_sensor_data)

    def on_image(self, message: Image) -> None:
        raw = np.frombuffer(message.data, np.uint8).reshape(message.height, message.width)
        full = self.polanalyser.demosaicing(raw)
        i0, i45, i90, i135 = (cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA) for image in full)
        stokes = self.polanalyser.calcStokes([i0, i45, i90, i135], self.angles)
        if "intensity" in self.outputs:
            self.publish("intensity", message, (stokes[..., 0] / 2).astype(np.uint8), "mono8")
        if "dolp" in self.outputs:
            dolp = self.polanalyser.cvtStokesToDoLP(stokes)
            self.publish("dolp", message, dolp.astype(np.float32), "32FC1")
        if "aolp" in self.outputs:
            aolp = self.polanalyser.cvtStokesToAoLP(stokes)
            self.publish("aolp", message, aolp.astype(np.float32), "32FC1")
        if "ssim_map" in self.outputs or "ssim" in self.outputs:
            first = (i0.astype(np.float32) + i90) / 510
            second = (i45.astype(np.float32) + i135) / 510
            ssim, ssim_map = self.structural_similarity(
                first, second, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1.0, full=True
            )
            if "ssim_map" in self.outputs:
                self.publish("ssim_map", message, ssim_map.astype(np.float32), "32FC1")
            if "ssim" in self.outputs:
                self.outputs["ssim"].publish(Float32(data=float(ssim)))

    def publish(self, name: str, source: Image, image: np.ndarray, encoding: str) -> None:
        message = Image(header=source.header, height=image.shape[0], width=image.shape[1], encoding=encoding)
        message.step = image.strides[0]
        message.data.frombytes(image.tobytes())
        self.outputs[name].publish(message)


def main() -> None:
    _, what, *products = remove_ros_args(sys.argv)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    if what == "relay":
        node: Node = Relay({name: int(size) for name, size in (text.split("=") for text in products)})
    else:
        node = Usual(products)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    while not stop.is_set():
        executor.spin_once(timeout_sec=0.1)
    executor.shutdown()
    node.destroy_node()
    rclpy.shutdown()  # a killed process would leave its shared memory behind


if __name__ == "__main__":
    main()
