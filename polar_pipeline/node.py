"""Entry points of the live node, for one camera and for a rig.

`ros2 run polar_pipeline polar_pipeline_node` or `python -m polar_pipeline.node`;
`ros2 run polar_pipeline polar_pipeline_rig RIG.yaml`. With `--lifecycle` they are managed nodes.
"""

from __future__ import annotations

import gc
import sys
from typing import List, Optional

from polar_pipeline._util.stop_flag import stop_on_signals


def main(args: Optional[List[str]] = None, is_rig: bool = False) -> int:
    """Run the node until SIGINT, SIGTERM or SIGHUP.

    Args:
        args: Command line, `sys.argv` by default.
        is_rig: Whether to run a node for every camera of a rig, in this process.

    Returns:
        Exit code: 0, 1 if a node could not start or had to end, 2 for wrong parameters or arguments.
    """
    stop = stop_on_signals()
    gc.disable()  # until the node runs: a start creates little garbage
    from polar_pipeline.ros import main as ros_main  # slow, so that a signal may arrive meanwhile

    return ros_main.main(args, stop, is_rig)


def rig() -> int:
    """Run a node for every camera of a rig; see `main`."""
    return main(is_rig=True)


if __name__ == "__main__":
    sys.exit(main())
