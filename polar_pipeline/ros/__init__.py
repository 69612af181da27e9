"""The live node on rclpy: lifecycle, parameters, rigs and transport around the engine of `live/`."""

from __future__ import annotations

#: Exit codes of the node, on which launch files act. It could not start or had to end; it may work when started again,
#: for example when a GPU is back.
FAILED = 1
#: Its parameters or arguments can never work; argparse ends with the same code.
WRONG_USAGE = 2
