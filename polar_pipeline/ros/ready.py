"""Waits until a live node takes frames, so that what feeds it can be started.

`python3 -m polar_pipeline.ros.ready /front/polar_pipeline`, for launch files.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Sequence

#: Seconds between two looks.
_PERIOD = 0.1


def main(args: Sequence[str]) -> int:
    """Wait without end for a node to take frames.

    Args:
        args: The node's name with its namespace.

    Returns:
        Exit code: 0, `FAILED` if the process that started this one is gone, or `WRONG_USAGE`.
    """
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # launch's Ctrl-C ends it at once, also while it imports

    from polar_pipeline._util.text import quoted
    from polar_pipeline.ros import FAILED, WRONG_USAGE
    from polar_pipeline.ros.rig import RULE, is_name

    full = f"/{'/'.join(filter(None, args[0].split('/')))}" if args else ""
    if len(args) != 1 or not is_name(full):
        print(f"a node's name is needed, of {RULE}; got {quoted(' '.join(args))}", file=sys.stderr)
        return WRONG_USAGE

    import rclpy
    from rclpy.node import Node
    from rclpy.signals import SignalHandlerOptions

    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    node = Node("polar_pipeline_ready", start_parameter_services=False)
    # the last that a node makes, after its subscriptions
    while f"{full}/snapshot" not in (name for name, _ in node.get_service_names_and_types()):
        if os.getppid() != parent:
            return FAILED
        time.sleep(_PERIOD)
    node.destroy_node()
    rclpy.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
