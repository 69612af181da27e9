"""Times of frames: percentiles, and whether frames are done before the next one is due. Nothing here locks."""

from __future__ import annotations

import collections
import math
import statistics
from typing import Deque, Dict, Optional, Sequence, Union

import numpy as np

#: The frame period is the median gap between stamps: number of gaps needed, and number of newest gaps used.
GAPS = (8, 64)


def percentiles(milliseconds: Union[Sequence[float], np.ndarray]) -> Dict[str, float]:
    """Compute p50, p95, p99 and maximum, rounded to a microsecond."""
    names, values = ("p50", "p95", "p99", "max"), np.percentile(milliseconds, (50, 95, 99, 100))
    return {name: round(float(value), 3) for name, value in zip(names, values)}


class Deadline:
    """Deadline of a frame: the arrival of the next one, by the frame period in the camera's stamps."""

    def __init__(self) -> None:
        self._gaps: Deque[int] = collections.deque(maxlen=GAPS[1])
        self._last: Optional[int] = None

    def arrived(self, stamp_ns: int) -> None:
        """Record the stamp of a received frame. Call it for dropped frames too, or the period is too long."""
        if self._last is not None and stamp_ns > self._last:  # else the camera started again
            self._gaps.append(stamp_ns - self._last)
        self._last = stamp_ns

    @property
    def period(self) -> float:
        """Seconds between two frames: the median, which a few lost frames do not move; infinite while not known."""
        return statistics.median(self._gaps) / 1e9 if len(self._gaps) >= GAPS[0] else math.inf

    def missed(self, seconds: float) -> bool:
        """Return whether this processing time is longer than a frame period."""
        return seconds > self.period
