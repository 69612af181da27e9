"""Errors that end a command or describe a recording, and their output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from polar_pipeline._util.text import printable, printable_lines

if TYPE_CHECKING:  # `--help` does without them
    from polar_pipeline.quality.layout import LayoutCheck
    from polar_pipeline.replay.run import Summary

#: Characters of an error of one line that are shown; it may list what is allowed.
MAX_SHOWN = 1000
#: What to do where rclpy cannot be imported.
GET_ROS = "source its setup file, or pip install '/path/to/polar_pipeline[ros]'"


class FailureError(Exception):
    """Failure of a command; the text says what failed and why. The exit code is 1."""


class UsageError(Exception):
    """Arguments that do not exist or do not fit together. The exit code is 2."""


class TerminatedError(BaseException):
    """SIGTERM as an exception, so that no half-written output stays behind; like Ctrl-C, it is no failure to handle."""


def show_error(text: str) -> None:
    """Print an error to stderr, without control characters; one of a single line is cut to `MAX_SHOWN` characters."""
    print(printable_lines(text) if "\n" in text else printable(text, MAX_SHOWN), file=sys.stderr)


def show_findings(summary: Summary) -> None:
    """Print the unusable frames to stderr, and a warning if the parameters do not fit the mosaic."""
    for cause, reasons in summary.rejected.items():
        show_error(f"not usable: {len(reasons)} x {cause}; the first: {reasons[0]}")
    show_layout(summary.layout)


def show_layout(layout: LayoutCheck) -> None:
    """Print to stderr that the parameters do not fit the mosaic, if a frame shows it."""
    if layout.fits is False:
        show_error(f"layout: {layout.text}")
