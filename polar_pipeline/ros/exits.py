"""Exit codes of the live node, which launch files go by. Imports no ROS."""

from __future__ import annotations

#: It could not start or had to end: started again it may work, as when a GPU is back.
FAILED = 1
#: Its parameters or arguments can never work; argparse ends with the same code.
WRONG_USAGE = 2
