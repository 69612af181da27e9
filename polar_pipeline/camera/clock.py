"""Clock of a camera, mapped to the clock of this computer. All times are integers in nanoseconds."""

from __future__ import annotations

from collections import deque
from typing import Deque, List, Optional, Tuple

SECOND = 1_000_000_000
#: Length of a bucket (device time); limits of the window: number of buckets, age of the oldest one.
BUCKET, BUCKETS, MAX_AGE = SECOND, 60, 600 * SECOND
#: Span of the window from which the drift is known, and its limit: 200 ppm of the camera, 500 ppm by which NTP slews.
DRIFT_SPAN, MAX_DRIFT = 5 * SECOND, 700e-6
#: An interval of stamps differs from the device's by at most 1/SLEW of it; while the model is younger than START, by at
#: most 1/START_SLEW, so that the delay of the first frame is corrected quickly.
SLEW, START_SLEW, START = 100, 10, SECOND
#: A frame that is earlier than the line by more than `STEP` shows a jump, by more than `OBSOLETE` that the older frames
#: of the window are useless.
STEP, OBSOLETE = SECOND // 10, SECOND // 500
#: Late frames become a jump if those of the same delay (within `STEP`) outnumber the later ones by `LATE_FRAMES`, after
#: `LATE_SMALL`, or after `LATE_LARGE` if the delay is above `LARGE_STEP`.
LATE_FRAMES, LARGE_STEP, LATE_LARGE, LATE_SMALL = 5, SECOND, SECOND // 4, 10 * SECOND
#: TAI - UTC in seconds since 2017, until further notice (IERS, Bulletin C 52).
TAI_MINUS_UTC = 37


def ptp_stamp(device_ns: int, arrival_ns: int) -> Optional[int]:
    """Convert the time of a device that is locked to PTP, which is UTC or TAI, to the time of this computer (UTC).

    Return None if neither is within 0.5 s of the arrival: then PTP does not distribute the time of this computer.
    """
    for seconds in (0, TAI_MINUS_UTC):
        stamp = device_ns - seconds * SECOND
        if abs(arrival_ns - stamp) <= SECOND // 2:
            return stamp
    return None


class DeviceClock:
    """Model of a device's clock: offset and drift against this computer's clock.

    A frame arrives at its time of exposure plus a delay that is never negative. So ``arrival - device`` lies above the
    line ``offset + drift * device``, and the frames with the smallest delays lie almost on it. Of all lines below the
    frames of the window, the one with the smallest sum of delays contains the edge of the lower convex hull at their
    mean time: Moon, Skelly and Towsley, Estimation and Removal of Clock Skew from Network Delay Measurements, INFOCOM
    1999; Zhang, Liu and Xia, Clock Synchronization Algorithms for Network Measurements, INFOCOM 2002. The window has
    one frame per bucket, the one with the smallest delay. The line changes when a bucket is complete or when a frame
    lies below it. The constant part of the delay stays in the offset. A frame may be converted before it is observed.

    A jump restarts the model: device time that does not increase; a frame earlier than the line by more than `STEP`,
    even after a start with late frames; or frames that stay late by the same delay (see `LATE_FRAMES`). If a step below
    `STEP` makes frames late, stamps follow it only when older frames leave the window. ``jumps`` counts jumps.
    """

    def __init__(self) -> None:
        self.jumps = 0
        self._observed: Optional[int] = None  # device time of the last frame in the model; None without a model
        self._last: Optional[Tuple[int, int]] = None  # device time and stamp of the last frame
        self._drift: Optional[float] = None
        self._late: Optional[Tuple[int, float, int]] = None  # run of late frames: time and delay of the first; votes

    def observe(self, device_ns: int, arrival_ns: int) -> None:
        """Add a frame to the model: its time of exposure by the device's clock, and when it arrived.

        ``arrival_ns`` is this computer's time when the frame arrived, minus the exposure time. A value too early spoils
        the model for as long as the window; one too late does not.
        """
        if self._observed is None:
            self._start(device_ns, arrival_ns)
            return
        x, offset, delay, tolerance = self._measure(device_ns, arrival_ns)
        is_late = delay > tolerance
        if device_ns <= self._observed or delay < -tolerance or (is_late and self._is_late_step(x, delay)):
            self.jumps += 1
            self._last = None
            self._start(device_ns, arrival_ns)
            return
        if not is_late:
            self._late = None
            self._add(x, offset, delay)
        self._delays.append(max(delay, 0.0))
        self._observed = device_ns

    def agrees(self, device_ns: int, arrival_ns: int, exposure_ns: int) -> bool:
        """Return whether a frame whose exposure time is not above ``exposure_ns`` fits the model, if there is one."""
        if self._observed is None:
            return True
        delay, tolerance = self._measure(device_ns, arrival_ns)[2:]
        return device_ns > self._observed and -tolerance <= delay <= tolerance + exposure_ns

    def convert(self, device_ns: int, arrival_ns: int) -> int:
        """Convert a time of exposure by the device's clock to this computer's clock; without a model it is the arrival.

        Between jumps, stamps increase as device times do, in intervals that differ from the device's by at most 1 %
        (10 % in the first second of a model).
        """
        last, stamp = self._last, arrival_ns
        if self._observed is not None:
            x = device_ns - self._origin
            self._offset = self._first_offset + round(self._line(x))
            stamp = device_ns + self._offset
            if last is not None:
                expected, interval = last[1] + device_ns - last[0], device_ns - last[0]
                slew = interval // (START_SLEW if x < START else SLEW)
                stamp = min(max(stamp, expected - slew), expected + slew)
        elif last is not None:
            stamp = max(stamp, last[1] + 1)
        self._last = device_ns, stamp
        return stamp

    @property
    def offset_ns(self) -> Optional[int]:
        """This computer's time minus the device's at the last frame, without slew; None before the first frame."""
        return None if self._observed is None else self._offset

    @property
    def drift_ppm(self) -> Optional[float]:
        """Parts per million by which this computer's clock is faster than the device's; None until known."""
        drift = self._drift  # a jump in the camera's thread makes it None
        return None if drift is None else drift * 1e6

    @property
    def jitter_ns(self) -> Optional[float]:
        """95th percentile of the delays above the line of the newest 256 frames; None before the first frame."""
        return None if self._observed is None else sorted(self._delays)[int(0.95 * len(self._delays))]

    def _start(self, device_ns: int, arrival_ns: int) -> None:
        """Start the model with this frame. Its points are relative to the frame, so that floats are precise."""
        self._origin, self._first_offset = device_ns, arrival_ns - device_ns
        self._points: Deque[Tuple[int, int]] = deque([(0, 0)], BUCKETS)
        self._drift, self._pivot, self._level = None, 0.0, 0.0
        self._late = None
        self._delays: Deque[float] = deque([0.0], 256)
        self._offset = self._first_offset
        self._observed = device_ns

    def _measure(self, device_ns: int, arrival_ns: int) -> Tuple[int, int, float, float]:
        """Return time and offset of a frame relative to the first one, its delay, and the limit of delays."""
        x, offset = device_ns - self._origin, arrival_ns - device_ns - self._first_offset
        return x, offset, offset - self._line(x), STEP + MAX_DRIFT * (device_ns - (self._observed or 0))

    def _line(self, x: int) -> float:
        return self._level + (self._drift or 0.0) * (x - self._pivot)

    def _is_late_step(self, x: int, delay: float) -> bool:
        """Add a late frame to the run of late frames; return whether the run shows a step of a clock."""
        if self._late is None or self._late[2] == 0 or delay < self._late[1] - STEP:
            self._late = x, delay, 1
        else:
            start, first, votes = self._late
            agrees = delay < first + STEP
            self._late = start, first, votes + (1 if agrees else -1)
            needed = LATE_LARGE if first > LARGE_STEP else LATE_SMALL
            return agrees and votes + 1 >= LATE_FRAMES and x - start >= needed
        return False

    def _add(self, x: int, offset: int, delay: float) -> None:
        """Add a frame to the window, and change the line if necessary."""
        points = self._points
        gap = x - points[-1][0]
        if delay < -(OBSOLETE + MAX_DRIFT * gap):
            points.clear()
        elif x // BUCKET > points[-1][0] // BUCKET:
            self._fit()
        elif delay < points[-1][1] - self._line(points[-1][0]):
            points.pop()
        else:
            return
        points.append((x, offset))
        while points[0][0] < x - MAX_AGE:
            points.popleft()
        if offset < self._line(x) or (self._drift is None and gap > DRIFT_SPAN):
            self._fit()

    def _fit(self) -> None:
        """Lay the line below all points, as high as possible at their mean time."""
        points = self._points
        self._pivot = sum(x for x, _ in points) / len(points)
        if points[-1][0] - points[0][0] >= DRIFT_SPAN:
            hull: List[Tuple[int, int]] = []
            for point in points:
                while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], point):
                    hull.pop()
                hull.append(point)
            edge = next(index for index, (x, _) in enumerate(hull) if x > self._pivot)
            self._drift = min(max(_slope(hull[edge - 1], hull[edge]), -MAX_DRIFT), MAX_DRIFT)
        drift = self._drift or 0.0
        self._level = min(offset - drift * (x - self._pivot) for x, offset in points)


def _slope(first: Tuple[int, int], second: Tuple[int, int]) -> float:
    return (second[1] - first[1]) / (second[0] - first[0])
