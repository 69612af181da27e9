"""Settings that replace the requested ones after a failure of the GPU. Imports no ROS."""

from __future__ import annotations

import time
from typing import Callable

from polar_pipeline.live.parameters import Settings

#: Seconds that the CPU works in place of the GPU before the GPU is tried again; each try may cost a frame.
RETRY_PERIOD = 10.0


class Fallback:
    """Choice of the settings in use: the requested ones, or their CPU variant for a while after the GPU failed.

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
        """Note a failure of the GPU."""
        self._until = self._clock() + RETRY_PERIOD
        self.reason = reason

    def worked(self) -> None:
        """Note that the GPU works."""
        self.reason = ""

    def settings(self, wanted: Settings) -> Settings:
        """Return the settings in use instead of the requested ones."""
        if self.reason and wanted.on_device_error == "cpu" and self._clock() < self._until:
            return wanted.on_cpu()
        return wanted

    def problem(self, wanted: Settings) -> str:
        """Describe the consequence and the reason of the failure; "" while the GPU works."""
        if not self.reason or wanted.options.backend == "cpu":
            return ""
        what = {"cpu": "the CPU took over", "retry": "the next frame tries again", "stop": "the node ends"}
        return f"{what[wanted.on_device_error]}: {self.reason}"
