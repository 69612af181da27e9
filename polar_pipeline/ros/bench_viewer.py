"""The viewer of a benchmark: a process that subscribes to products and notes when they arrive."""

from __future__ import annotations

import signal
import time
from multiprocessing.connection import Connection
from typing import Dict

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions

from polar_pipeline import messages
from polar_pipeline._util.malloc import keep_freed_memory
from polar_pipeline.ros.bench_block import Arrival
from polar_pipeline.ros.endpoints import MESSAGE_CLASSES

#: Bytes of a message that hold the stamp of its header.
_STAMP_BYTES = 12


def view(pipe: Connection, topics: Dict[str, str]) -> None:
    """Take every message as bytes and pass on when it arrived, until the pipe is closed; runs in a process of its own.

    Args:
        pipe: Takes an `Arrival` per message.
        topics: Topic -> message type.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    keep_freed_memory()
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = Node("viewer")

    def subscribe(topic: str, kind: str) -> None:
        size = _STAMP_BYTES if kind == messages.IMAGE else None

        def arrived(cdr: bytes) -> None:
            pipe.send(Arrival(topic, time.time_ns(), cdr[:size]))

        node.create_subscription(MESSAGE_CLASSES[kind], topic, arrived, qos_profile_sensor_data, raw=True)

    for topic, kind in topics.items():
        subscribe(topic, kind)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        while not pipe.poll():
            executor.spin_once(timeout_sec=0.1)
    except OSError:  # closed while sending
        pass
    executor.shutdown()
    node.destroy_node()
    rclpy.shutdown()
