"""A stand-in for `ros2 bag play`, for which there are no wheels: publishes an mcap file as it is, with /clock.

`bag_player.py [--skip INDEX] bag play PATH --clock HZ --rate FACTOR --delay SECONDS`; the image of that index is not
played. It shares no code with the package.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, Dict

import rclpy
from mcap.reader import make_reader
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--skip", type=int, default=-1)
    parser.add_argument("words", nargs=2)
    parser.add_argument("path")
    for name in ("--clock", "--rate", "--delay"):
        parser.add_argument(name, type=float, required=True)
    values = parser.parse_args()
    with Path(values.path).open("rb") as stream:
        rows = [(channel.topic, row.log_time, row.data) for _, channel, row in make_reader(stream).iter_messages()]
    rclpy.init(args=[])
    node = rclpy.create_node("rosbag2_player")
    publishers: Dict[str, Any] = {topic: node.create_publisher(Image, topic, 10) for topic, _, _ in rows}
    clock = node.create_publisher(Clock, "/clock", 10)
    time.sleep(values.delay)
    while not all(publisher.get_subscription_count() for publisher in publishers.values()):
        time.sleep(0.05)  # the real one would not wait, and lose frames on a machine this slow
    start = time.monotonic()
    for index, (topic, stamp, data) in enumerate(rows):
        time.sleep(max(0.0, start + (stamp - rows[0][1]) / 1e9 / values.rate - time.monotonic()))
        message = Clock()
        message.clock.sec, message.clock.nanosec = divmod(stamp, 10**9)
        clock.publish(message)
        if index != values.skip:
            publishers[topic].publish(data)
    time.sleep(1)  # a message that waits is lost when its publisher ends, and readers may be best-effort
    node.destroy_node()
    rclpy.shutdown()


if __name__ == "__main__":
    main()
