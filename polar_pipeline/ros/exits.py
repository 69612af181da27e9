"""Exit codes of the live node, on which launch files act. Imports no ROS."""

from __future__ import annotations

#: It could not start or had to end; it may work when started again, for example when a GPU is back.
FAILED = 1
#: Its parameters or arguments can never work; argparse ends with the same code.
WRONG_USAGE = 2
