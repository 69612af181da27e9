"""The standard streams of a process that was started without some of them, as by `2>&-` or by a daemon."""

from __future__ import annotations

import os
import sys


def open_standard_streams() -> None:
    """Open the null device in place of each standard stream that is closed.

    Otherwise Python has None in its place, which libraries write to, and the next file that is opened gets its number,
    so that messages of libraries in C would be written into that file.
    """
    number = os.open(os.devnull, os.O_RDWR)
    while number <= 2:
        os.set_inheritable(number, True)
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
