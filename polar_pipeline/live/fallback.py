"""What a node does when the GPU fails. Imports no ROS."""

from __future__ import annotations

import time
from typing import Callable

from polar_pipeline.live.parameters import Settings

#: Seconds that the CPU works in place of the GPU before the GPU is tried again; each try may cost a frame.
RETRY_PERIOD = 10.0


class Fallback:
    """Chooses the settings that hold: those asked for, or for a while after the GPU failed the same on the CPU.

    The worker calls `failed` and `worked`; any thread calls `settings` and `problem`.

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
        """The settings that hold now in place of those asked for."""
        if self.reason and wanted.on_device_error == "cpu" and self._clock() < self._until:
            return wanted.on_cpu()
        return wanted

    def problem(self, wanted: Settings) -> str:
        """What follows from a failure with the settings asked for, and its reason; "" while the GPU works."""
        if not self.reason or wanted.options.backend == "cpu":
            return ""
        what = {"cpu": "the CPU took over", "retry": "the next frame tries again", "stop": "the node ends"}
        return f"{what[wanted.on_device_error]}: {self.reason}"
