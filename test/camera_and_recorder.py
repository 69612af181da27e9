"""A process beside the live node: plays camera, frame by frame, and records what the node publishes.

python camera_and_recorder.py SOURCE OUT.npz PRODUCT...
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Dict, List

import numpy as np
import rclpy
from rclpy.qos import QoSPresetProfiles, QoSProfile
from sensor_msgs.msg import Image
from std_msgs.msg import Float32

from polar_pipeline import messages
from polar_pipeline.products import PRODUCTS
from polar_pipeline.replay.source import open_source
from polar_pipeline.topics import PRODUCT_TOPICS

TIMEOUT = 60.0  # seconds; only how long a failing test takes


def main() -> None:
    source, out, *names = sys.argv[1:]
    rclpy.init()
    node = rclpy.create_node("camera_and_recorder")
    heard: Dict[str, bytes] = {}
    sent: List[int] = []  # the stamp of the frame that was sent last
    recorded: Dict[str, np.ndarray] = {}

    def wait_for(what: str, condition) -> None:
        end = time.monotonic() + TIMEOUT
        while not condition():
            if time.monotonic() > end:
                raise SystemExit(f"waited {TIMEOUT} s in vain for {what}; heard {sorted(heard)}")
            rclpy.spin_once(node, timeout_sec=0.1)

    def keep(name: str, kind: type, cdr: bytes) -> None:
        """A product of the present frame; those of a repeated former one may still come."""
        if kind is not Image or messages.decode_image(cdr).stamp_ns in sent:
            heard[name] = cdr

    for name in names:
        row = PRODUCTS[name]
        kind = Float32 if row.channels == (0, 0) else Image
        node.create_subscription(
            kind,
            PRODUCT_TOPICS[name].name,
            lambda cdr, name=name, kind=kind: keep(name, kind, cdr),
            QoSProfile(depth=5),
            raw=True,
        )
    camera = node.create_publisher(Image, "image_raw", QoSPresetProfiles.get_from_short_key("sensor_data"))
    wait_for(
        "the node",
        lambda: (
            camera.get_subscription_count() and all(node.count_publishers(PRODUCT_TOPICS[name].name) for name in names)
        ),
    )
    time.sleep(1.0)  # the node's side of the match lags behind ours
    with open_source(Path(source)) as recording:
        for index, record in enumerate(recording.records):
            cdr, again, repeats = record.cdr(), 0.0, -1
            sent[:] = [messages.decode_image(cdr).stamp_ns]
            heard.clear()

            def complete(cdr: bytes = cdr) -> bool:
                """The node makes what it has learned of and compiled: until that is all, the frame comes again."""
                nonlocal again, repeats
                if len(heard) < len(names) and time.monotonic() > again:
                    again = time.monotonic() + 2.0
                    camera.publish(cdr)
                    repeats += 1
                return len(heard) == len(names)

            wait_for(f"the products of frame {index}", complete)
            recorded.update({f"{index}/{name}": np.frombuffer(cdr, np.uint8) for name, cdr in heard.items()})
            quiet = time.monotonic() + 2.0 * repeats  # what has no stamp must not be taken for the next frame's
            while time.monotonic() < quiet:
                rclpy.spin_once(node, timeout_sec=0.1)
    np.savez(out, **recorded)
    rclpy.shutdown()


if __name__ == "__main__":
    main()
