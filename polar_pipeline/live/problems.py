"""Counts and logs what could not be used: frames, other messages, and changes of parameters. Imports no ROS."""

from __future__ import annotations

import traceback
from typing import Protocol

import cv2

from polar_pipeline._util.stop_flag import StoppedError
from polar_pipeline._util.text import printable_lines
from polar_pipeline.live.diagnostics import Diagnostics


class Logger(Protocol):
    """Takes lines for the log; rclpy's loggers are such."""

    def info(self, message: str) -> object:
        """Log a line at level INFO."""

    def warning(self, message: str) -> object:
        """Log a line at level WARN."""

    def error(self, message: str) -> object:
        """Log a line at level ERROR."""

    def fatal(self, message: str) -> object:
        """Log a line at level FATAL."""


class ProblemLog:
    """Counts every problem in the diagnostics and logs each cause now and then. Any thread may call it.

    Args:
        diagnostics: Counts by cause, and limits how often a cause is logged.
        logger: Takes the lines.
    """

    def __init__(self, diagnostics: Diagnostics, logger: Logger) -> None:
        self._diagnostics = diagnostics
        self._logger = logger

    def refuse(self, cause: str, reason: str, detail: str = "") -> None:
        """Count something that could not be used.

        Args:
            cause: Key for counting; docs/ describes each.
            reason: Why, in words.
            detail: More lines for the log.
        """
        line = self._diagnostics.refused(cause, reason)
        if line is not None:
            self._logger.warning(f"{line}\n{printable_lines(detail)}".rstrip())

    def refuse_error(self, err: Exception) -> None:
        """Count something that could not be used because of an unexpected error, by cause `memory` or `internal`."""
        if isinstance(err, StoppedError):  # the process is about to end
            return
        if is_out_of_memory(err):
            self.refuse("memory", f"{type(err).__name__}: {err}")
        else:
            self.refuse("internal", f"{type(err).__name__}: {err}", traceback.format_exc())


def is_out_of_memory(err: BaseException) -> bool:
    """Whether Python, NumPy or OpenCV found no memory."""
    return isinstance(err, MemoryError) or getattr(err, "code", None) == cv2.Error.StsNoMem
