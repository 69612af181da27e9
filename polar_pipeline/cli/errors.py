"""Errors that end a command or describe a recording, and their output."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from typing import Iterator, Mapping, Sequence, Set

from polar_pipeline._util.errors import errors_as as errors_as
from polar_pipeline._util.imports import importing
from polar_pipeline._util.text import SHOWN_REASON, printable, printable_lines


class FailureError(Exception):
    """Failure of a command; the text says what failed and why. The exit code is 1."""


class UsageError(Exception):
    """Arguments that do not exist or do not fit together. The exit code is 2."""


class TerminatedError(BaseException):
    """SIGTERM as an exception, so that no half-written output stays behind; like Ctrl-C, it is no failure to handle."""


@contextmanager
def importing_ros(what: str) -> Iterator[None]:
    """Turn every error in a block that imports ROS into a FailureError that says what needs it."""
    advice = "source its setup file, or pip install '/path/to/polar_pipeline[ros]'"
    with errors_as(
        lambda text: FailureError(f"{what} needs ROS 2 (rclpy): {text}; {advice}"), ImportError
    ), importing():
        yield


def show_error(text: str) -> None:
    """Print an error to stderr, without control characters; one of a single line is cut to `SHOWN_REASON`."""
    print(printable_lines(text) if "\n" in text else printable(text, SHOWN_REASON), file=sys.stderr)


def show_unusable(rejected: Mapping[str, Sequence[str]]) -> None:
    """Print how many frames could not be used, by cause, and the first reason of each, to stderr."""
    for cause, reasons in rejected.items():
        show_error(f"not usable: {len(reasons)} x {cause}; the first: {reasons[0]}")


class _WarningPrinter(logging.Handler):
    def __init__(self, is_strict: bool) -> None:
        super().__init__(logging.WARNING)
        self._is_strict = is_strict
        self._printed: Set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if self._is_strict:
            from polar_pipeline.recordings.limits import StrictError  # here: `--help` does without NumPy

            raise StrictError(f"{text} (an error with --strict)")
        if text not in self._printed:
            show_error(text)
        self._printed.add(text)


@contextmanager
def shown_warnings(is_strict: bool) -> Iterator[None]:
    """Print each warning that the package logs in this block to stderr once, or raise the first as `StrictError`."""
    logger, printer = logging.getLogger("polar_pipeline"), _WarningPrinter(is_strict)
    logger.addHandler(printer)
    try:
        yield
    finally:
        logger.removeHandler(printer)
