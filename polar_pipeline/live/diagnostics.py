"""Counts and times of the node for `/diagnostics` (REP-107): rate, drops by cause, age and latency. Imports no ROS."""

from __future__ import annotations

import collections
import math
import threading
import time
import traceback
from typing import Callable, Counter, Deque, Dict, List, Mapping, Optional, Protocol, Tuple

import numpy as np

from polar_pipeline._util.errors import lacks_memory
from polar_pipeline._util.stop_flag import StoppedError
from polar_pipeline._util.text import SHOWN_REASON, printable, printable_lines
from polar_pipeline.quality.latency import Deadline
from polar_pipeline.quality.statistics import Level
from polar_pipeline.recordings.messages import Status

#: Receipts that the rate is taken over, at most.
RECEIPTS = 256
#: Ages in seconds that a stamp of this machine's clock (or one synchronized with it) can have.
PLAUSIBLE_AGE = (-0.1, 10.0)
#: Seconds between two log lines about the same cause.
LOG_PERIOD = 5.0
#: Seconds that the rate is taken over.
RATE_PERIOD = 5.0
#: Seconds without a frame after which subscribers are warned; three periods of a slow camera if that is more,
#: up to the second number.
SILENCE = (5.0, 60.0)
#: Seconds between two log lines that nothing arrives.
SILENCE_LOG_PERIOD = 60.0
#: Causes that are reported as `refused` because no frame is lost: a parameter, a message that is not a frame, a product
#: or a recorded frame was refused.
BESIDE_FRAMES = ("parameter", "camera_info", "reference", "product", "record", "exposure")
#: Seconds of frames that percentiles are taken over, and frames at most: a minute at 136 Hz.
WINDOW = 60.0
MAX_FRAMES = 8192
#: The percentiles, as ratios.
RANKS = (0.5, 0.95, 0.99, 1.0)


class RecentTimes:
    """Ring buffer of the times of the newest frames, by stage. Not thread-safe."""

    def __init__(self) -> None:
        self._ends = np.full(MAX_FRAMES, -np.inf)
        self._stages: Dict[str, np.ndarray] = {}
        self._count = 0

    def add(self, now: float, timings: Mapping[str, float]) -> None:
        """Add the seconds per stage of a frame that ended at `now`, in seconds of a clock."""
        index = self._count % MAX_FRAMES
        self._count += 1
        self._ends[index] = now
        for stage in timings:
            if stage not in self._stages:
                self._stages[stage] = np.full(MAX_FRAMES, np.nan, np.float32)
        for stage, times in self._stages.items():
            times[index] = timings.get(stage, np.nan)

    def percentiles(self, now: float) -> Dict[str, Tuple[float, ...]]:
        """Return stage -> times of frames at `RANKS`, over `WINDOW`, in the order in which stages were first seen."""
        is_recent = self._ends >= now - WINDOW
        percentiles = {}
        for stage, times in self._stages.items():
            recent = np.sort(times[is_recent & ~np.isnan(times)])
            if recent.size:
                percentiles[stage] = tuple(float(recent[int(rank * (recent.size - 1))]) for rank in RANKS)
        return percentiles


class Logger(Protocol):
    """Interface of a log, such as rclpy's loggers."""

    def info(self, message: str) -> object:
        """Log a line at level INFO."""

    def warning(self, message: str) -> object:
        """Log a line at level WARN."""

    def fatal(self, message: str) -> object:
        """Log a line at level FATAL."""


class Diagnostics:
    """Counts and times of the node `name`; any thread may call it. Each cause of a problem is logged now and then."""

    def __init__(self, name: str, logger: Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._receipts: Deque[float] = collections.deque(maxlen=RECEIPTS)
        self._ages = RecentTimes()
        self._stages = RecentTimes()
        self._deadline = Deadline()
        self._counts: Counter[str] = collections.Counter()
        self._reported: Counter[str] = collections.Counter()  # `_counts` as they were in the last report
        self._subscribed_since: Optional[float] = None
        self._silence_log = -math.inf
        self._silent = False  # result of the last `note_subscribers`, so that log and report agree
        self._last_log: Dict[str, float] = {}
        self._last_error = ""

    def received(self, stamp_ns: Optional[int] = None) -> None:
        """Count a received message, and note the stamp of its frame if it has a readable one."""
        with self._lock:
            self._counts["received"] += 1
            self._receipts.append(self._clock())
            if stamp_ns is not None:
                self._deadline.arrived(stamp_ns)

    @property
    def is_receiving(self) -> bool:
        """Whether a message was received within the last `RATE_PERIOD` seconds."""
        with self._lock:
            return bool(self._receipts) and self._clock() - self._receipts[-1] < RATE_PERIOD

    def dropped(self, cause: str, count: int = 1) -> None:
        """Count good frames that were lost: by `overload` (newer ones filled the queue) or in `transport`."""
        with self._lock:
            self._counts[f"dropped: {cause}"] += count

    def refuse(self, cause: str, reason: str, detail: str = "") -> None:
        """Count and log a message or a change of parameters that could not be used.

        Args:
            cause: Key for counting: as refused for the causes in `BESIDE_FRAMES`, otherwise as a dropped frame.
            reason: Text for log and report; it may quote the message.
            detail: More lines for the log.
        """
        reason = printable(reason, SHOWN_REASON)
        with self._lock:
            key = f"{'refused' if cause in BESIDE_FRAMES else 'dropped'}: {cause}"
            self._counts[key] += 1
            self._last_error = f"{cause}: {reason}"
            now = self._clock()
            if now - self._last_log.get(cause, -LOG_PERIOD) < LOG_PERIOD:
                return
            self._last_log[cause] = now
            line = f"{cause}, {self._counts[key]} so far: {reason}"
        self.logger.warning(f"{line}\n{printable_lines(detail)}".rstrip())

    def refuse_error(self, err: Exception) -> None:
        """Count and log an unexpected error, by cause `memory` or `internal`."""
        if isinstance(err, StoppedError):  # the process is about to end
            return
        reason = f"{type(err).__name__}: {err}"
        if lacks_memory(err):
            self.refuse("memory", reason)
        else:
            self.refuse("internal", reason, traceback.format_exc())

    def record_age(self, age: float) -> Optional[float]:
        """Record the age of a received frame in seconds; return it, or None if the stamp is of another clock."""
        is_plausible = PLAUSIBLE_AGE[0] <= age <= PLAUSIBLE_AGE[1]
        with self._lock:
            self._ages.add(self._clock(), {"age": age if is_plausible else math.inf})
        return age if is_plausible else None

    def restarted(self) -> None:
        """Count a backward jump of stamps: a bag looped, or a camera was restarted."""
        with self._lock:
            self._counts["restarts"] += 1
            self._ages = RecentTimes()

    def published(self, timings: Mapping[str, float]) -> bool:
        """Count a published frame with its seconds per stage; return whether `total` is longer than a frame period."""
        with self._lock:
            self._counts["published"] += 1
            self._stages.add(self._clock(), timings)
            late = self._deadline.missed(timings.get("total", 0.0))
            self._counts["late"] += late
            return late

    def count_unwanted(self) -> None:
        """Count a good frame for which no output had a subscriber."""
        with self._lock:
            self._counts["unwanted"] += 1

    def note_subscribers(self, has_subscribers: bool) -> Optional[str]:
        """Note about every second whether any output has a subscriber; return a line to log if no frames come."""
        with self._lock:
            now = self._clock()
            if not has_subscribers:
                self._subscribed_since = None
            elif self._subscribed_since is None:
                self._subscribed_since = now
            was_silent, self._silent = self._silent, self._is_silent(now)
            if not self._silent or (was_silent and now - self._silence_log < SILENCE_LOG_PERIOD):
                return None
            self._silence_log = now
            since = f"for {now - self._receipts[-1]:.0f} s" if self._receipts else "yet"
            return f"no frame has come {since}, although there are subscribers"

    def _is_silent(self, now: float) -> bool:
        """Return whether subscribers have waited for frames longer than the camera explains."""
        if self._subscribed_since is None:
            return False
        last = max([self._subscribed_since, *list(self._receipts)[-1:]])
        period = self._deadline.period
        shortest, longest = SILENCE
        allowed = shortest if math.isinf(period) else min(max(shortest, 3 * period), longest)
        return now - last >= allowed

    def statuses(self, hardware: str, silence: str) -> List[Status]:
        """Report counts since the start; the level and the message cover the time since the last call.

        `hardware` describes the camera; `silence` says what it means if no frame came.
        """
        with self._lock:
            level, message = self._judge(self._counts - self._reported, silence)
            self._reported = self._counts.copy()
            period = self._deadline.period
            frames = {
                "rate [Hz]": f"{self._rate():.2f}",
                "age [ms]": self._describe_ages(),
                **{name: str(self._counts[name]) for name in ("received", "published", "late", "unwanted", "restarts")},
                "period [ms]": "n/a" if math.isinf(period) else f"{1000 * period:.2f}",
                **{name: str(count) for name, count in sorted(self._counts.items()) if ": " in name},
                "last error": self._last_error,
            }
            stages = self._stages.percentiles(self._clock())
            latency = {f"{stage} [ms]": describe(seconds) for stage, seconds in stages.items()}
        return [
            Status(level, f"{self.name}: frames", message, hardware, frames),
            Status(Level.OK, f"{self.name}: latency", "p50 / p95 / p99 / max of the last minute", hardware, latency),
        ]

    def _describe_ages(self) -> str:
        """Describe the ages of frames; a single implausible age means that the stamps are from another clock."""
        ages = self._ages.percentiles(self._clock()).get("age")
        if ages is None:
            return "n/a"
        return "n/a (device clock)" if math.isinf(ages[-1]) else describe(ages)

    def _judge(self, counts: Mapping[str, int], silence: str) -> Tuple[Level, str]:
        """Derive level and message from the counts since the last report."""
        problems = []
        for kind in ("dropped: ", "refused: "):
            causes = [f"{name[len(kind) :]} {count}" for name, count in sorted(counts.items()) if name.startswith(kind)]
            problems += [kind + ", ".join(causes)] if causes else []
        if problems:
            is_used = counts.get("published") or counts.get("unwanted")
            is_bad = problems[0].startswith("dropped") and not is_used
            return (Level.ERROR if is_bad else Level.WARN), "; ".join(problems)
        if not counts.get("received"):
            if self._silent:
                return Level.WARN, f"{silence}, although there are subscribers"
            return Level.OK, f"idle: {silence}"
        if counts.get("unwanted") and not counts.get("published"):
            return Level.OK, "idle: no subscribers"
        return Level.OK, f"{self._rate():.1f} Hz"

    def _rate(self) -> float:
        """Compute the frames per second of wall time."""
        start = self._clock() - RATE_PERIOD
        times = [received for received in self._receipts if received >= start]
        return (len(times) - 1) / max(times[-1] - times[0], 1e-9) if len(times) > 1 else 0.0


def describe(seconds: Tuple[float, ...]) -> str:
    """Format times at `RANKS` as `p50 / p95 / p99 / max` in milliseconds."""
    return " / ".join(f"{1000 * value:.2f}" for value in seconds)
