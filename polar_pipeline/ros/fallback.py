"""What a node does about a GPU that fails. Imports no ROS."""

from __future__ import annotations

import time
from typing import Callable

from polar_pipeline.ros.parameters import Settings

#: Seconds that the CPU works in the place of a GPU before that one is tried again; each try may cost a frame.
RETRY_PERIOD = 10.0


class Fallback:
    """Which settings hold: those asked for, or for a while after a failure the same on the CPU.

    The worker says what happened, other threads ask.

    Args:
        clock: Seconds, never running backwards.

    Attributes:
        reason: Why the GPU failed; "" while it works.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.reason = ""
        self._clock = clock
        self._until = clock()

    def failed(self, reason: str) -> None:
        """The GPU failed."""
        self._until = self._clock() + RETRY_PERIOD
        self.reason = reason

    def worked(self) -> None:
        """The GPU worked."""
        self.reason = ""

    def settings(self, wanted: Settings) -> Settings:
        """What holds now in the place of the settings asked for."""
        if self.reason and wanted.on_device_error == "cpu" and self._clock() < self._until:
            return wanted.on_cpu()
        return wanted
