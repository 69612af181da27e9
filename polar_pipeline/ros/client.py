"""A node beside the live node: of commands and measurements that publish or subscribe."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, Tuple

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions


@contextmanager
def open_node(name: str) -> Iterator[Tuple[Node, SingleThreadedExecutor]]:
    """Make a node in a context of its own, and the executor that runs its callbacks.

    Signals stay with the caller, whose exceptions end the block wherever it is.
    """
    context = rclpy.Context()
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    node, executor = Node(name, context=context), SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        yield node, executor
    finally:
        executor.shutdown()
        node.destroy_node()
        context.shutdown()
