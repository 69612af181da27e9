"""Latency over a sliding window: percentiles per stage, missed deadlines, counted events.

Percentiles come from DDSketch (Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch with
relative-error guarantees", VLDB 2019). A ring buffer of the newest frames would forget slow frames sooner at higher
frame rates, and interpolate between the few that determine p99. A sketch holds every frame of the window in a few
kilobytes, and its percentiles are times of frames within `ACCURACY`. Nothing here locks.
"""

from __future__ import annotations

import collections
import math
import statistics
import time
from dataclasses import dataclass
from typing import Callable, Counter, Deque, Dict, Mapping, NamedTuple, Optional

from ddsketch import DDSketch

#: Relative error of a percentile.
ACCURACY = 0.005
#: The percentiles, as ratios.
RANKS = (0.5, 0.95, 0.99)
#: Parts of a window; it moves by one part at a time.
PARTS = 6
#: The frame period is the median gap between stamps: number of gaps needed, and number of newest gaps used.
GAPS = (8, 64)


class Percentiles(NamedTuple):
    """Seconds of one stage: percentiles within `ACCURACY`, and the exact maximum."""

    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True)
class _Part:
    """A part of a window: its number since the clock's zero, and what happened in it."""

    number: int
    sketches: Dict[str, DDSketch]
    largest: Dict[str, float]
    counts: Counter[str]


class SlidingWindow:
    """Times per stage and counted events of the last `seconds`, up to a sixth (`PARTS`) of them longer.

    Args:
        seconds: Length.
        clock: Seconds, never running backwards.
    """

    def __init__(self, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._length = seconds / PARTS
        self._clock = clock
        self._parts: Deque[_Part] = collections.deque()

    def add(self, timings: Mapping[str, float]) -> None:
        """Add a processed frame: stage -> seconds."""
        part = self._part()
        for stage, seconds in timings.items():
            if stage not in part.sketches:
                part.sketches[stage] = DDSketch(ACCURACY)
                part.largest[stage] = seconds
            part.sketches[stage].add(seconds)
            part.largest[stage] = max(part.largest[stage], seconds)

    def count(self, event: str, number: int = 1) -> None:
        """Count an event."""
        self._part().counts[event] += number

    def percentiles(self) -> Dict[str, Percentiles]:
        """Stage -> percentiles, in the order in which stages were first seen."""
        self._forget()
        merged: Dict[str, DDSketch] = {}
        for part in self._parts:
            for stage, sketch in part.sketches.items():
                merged.setdefault(stage, DDSketch(ACCURACY)).merge(sketch)
        found = {}
        for stage, sketch in merged.items():
            largest = max(part.largest[stage] for part in self._parts if stage in part.largest)
            # the bin of the largest reaches beyond it; an empty sketch would have no quantile
            p50, p95, p99 = (min(sketch.get_quantile_value(rank) or 0.0, largest) for rank in RANKS)
            found[stage] = Percentiles(p50, p95, p99, largest)
        return found

    def counts(self) -> Counter[str]:
        """Event -> number in the window."""
        self._forget()
        total: Counter[str] = collections.Counter()
        for part in self._parts:
            total.update(part.counts)
        return total

    def _part(self) -> _Part:
        """The current part."""
        number = int(self._clock() // self._length)
        if not self._parts or self._parts[-1].number != number:
            self._parts.append(_Part(number, {}, {}, collections.Counter()))
            self._forget()
        return self._parts[-1]

    def _forget(self) -> None:
        oldest = int(self._clock() // self._length) - PARTS
        while self._parts and self._parts[0].number < oldest:
            self._parts.popleft()


class Deadline:
    """Whether a frame is done before the next one is due, by the frame period in the camera's stamps."""

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
        """Whether this processing time is longer than a frame period."""
        return seconds > self.period
