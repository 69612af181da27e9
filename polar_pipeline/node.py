"""Entry point of the live node: `ros2 run polar_pipeline polar_pipeline_node` or `python -m polar_pipeline.node`."""

from __future__ import annotations

import signal
import sys
import threading
from typing import List, Optional


def main(args: Optional[List[str]] = None) -> int:
    """Run the node until SIGINT or SIGTERM.

    Args:
        args: Command line, `sys.argv` by default.

    Returns:
        Exit code: 0, or 1 if the node could not start.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    from polar_pipeline.ros.node import run  # slow, so that a signal may arrive meanwhile

    return run(args, stop)


if __name__ == "__main__":
    sys.exit(main())
