"""Frames of several cameras that belong together, by stamps, arrivals and exposures. No input or output."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Sequence

#: Status of a set; see `FrameSet`.
STATUSES = ("complete", "late", "missing", "unequal")
#: Longest time for which a frame waits for other cameras, in nanoseconds after its arrival.
MAX_WAIT_NS = 500_000_000
#: Largest number of frames of one camera that wait.
MAX_WAITING_FRAMES = 32
#: Number of sets at the start, and after a late one, that are marked late too: while a clock is wrong, a frame that is
#: delayed by chance has the delay of a right one, and hides the error.
DOUBTFUL = 4
#: Ratio up to which two exposures are equal: cameras round the exposure time and the gain.
EQUAL_EXPOSURE = 1.02
#: Numbers of frames of older cameras: behind the last one they begin again with 1. Larger numbers are compared alike.
_CYCLE = 0xFFFF


class Arrival(NamedTuple):
    """How a frame came.

    Attributes:
        time_ns: Time of this computer when its first packet came, in nanoseconds since 1970.
        number: Number of the frame, counted by the camera, lost ones too.
    """

    time_ns: int
    number: int


class Shot(NamedTuple):
    """A frame of one camera.

    Attributes:
        start_ns, end_ns: Start and end of its exposure by the camera's clock, in nanoseconds.
        arrival: How it came.
        exposure: Exposure time with the gain, in any unit that is the same for all cameras; 0 if unknown.
        frame: Anything of the caller's.
    """

    start_ns: int
    end_ns: int
    arrival: Arrival
    exposure: float
    frame: Any = None


class FrameSet(NamedTuple):
    """Frames whose exposures start within the tolerance, at most one of each camera.

    Attributes:
        status: `complete`: a frame of every camera, all with the same exposure. `unequal`: exposures differ, or one is
            unknown. `missing`: a camera has no frame. `late`: here or shortly before, one frame came so much later
            after its exposure than another, or numbers of frames fit so badly, that a clock may have jumped; frames may
            be of different moments.
        shots: Name of the camera -> its frame.
    """

    status: str
    shots: Dict[str, Shot]


class SetMatcher:
    """Groups the frames of cameras into sets. Not thread-safe.

    The earliest frame that waits begins a set; of every other camera the earliest frame belongs to it if its exposure
    starts at most `tolerance_ns` later. A set is decided once every camera has sent a frame of the set or a later one,
    at the latest by a frame that arrives more than `MAX_WAIT_NS` after one in the set. Each frame is in exactly one
    set. The tolerance should be less than half of the time between two frames.

    If a clock jumps by the time between two frames, a frame has the stamp of another camera's next one. So a set is
    `late` if the delays of its frames, from the end of the exposure to the arrival, differ by more than half of the
    shortest interval between the last frames; or if cameras have counted different numbers of frames since the last
    set, as frames by the same signal are counted alike. The next `DOUBTFUL` sets are late too, and as many sets at
    the start, when nothing is known of the clocks.

    Attributes:
        counts: Status -> number of sets so far.
    """

    def __init__(self, cameras: Sequence[str], tolerance_ns: int) -> None:
        self.counts = dict.fromkeys(STATUSES, 0)
        self._tolerance_ns = tolerance_ns
        self._waiting: Dict[str, Deque[Shot]] = {camera: deque() for camera in cameras}
        self._last: Dict[str, int] = {}  # camera -> start of its newest frame
        self._intervals: Deque[int] = deque(maxlen=16)  # between the starts of a camera's frames
        self._doubtful = DOUBTFUL  # number of sets that will be late
        self._first: Dict[str, int] = {}  # camera -> number of its frame in set 0, by the numbers of later ones

    def add(self, camera: str, shot: Shot) -> List[FrameSet]:
        """Add a frame; return the sets that are decided now, in their order."""
        sets: List[FrameSet] = []
        queue, last = self._waiting[camera], self._last.get(camera)
        while queue and shot.start_ns <= queue[-1].start_ns:  # the clock was set back: the order of frames is lost
            sets.append(self._close(queue[0].start_ns))
        if last is not None and shot.start_ns > last:
            self._intervals.append(shot.start_ns - last)
        self._last[camera] = shot.start_ns
        queue.append(shot)
        while all(self._waiting.values()):
            sets.append(self._close(min(waiting[0].start_ns for waiting in self._waiting.values())))
        while True:
            queues, overdue_before_ns = filter(None, self._waiting.values()), shot.arrival.time_ns - MAX_WAIT_NS
            overdue = [
                row[0].start_ns
                for row in queues
                if len(row) > MAX_WAITING_FRAMES or row[0].arrival.time_ns < overdue_before_ns
            ]
            if not overdue:
                return sets
            sets.append(self._close(min(overdue)))

    def _close(self, start_ns: int) -> FrameSet:
        """Make a set of the frames within the tolerance after this start, the earliest ones of their cameras."""
        heads = {camera: queue[0] for camera, queue in self._waiting.items() if queue}
        shots = {name: shot for name, shot in heads.items() if 0 <= shot.start_ns - start_ns <= self._tolerance_ns}
        for camera in shots:
            self._waiting[camera].popleft()
        delays = [shot.arrival.time_ns - shot.end_ns for shot in shots.values()]
        exposures = [shot.exposure for shot in shots.values()]
        is_equal = all(0 < exposure <= EQUAL_EXPOSURE * min(exposures) for exposure in exposures)  # not if one is NaN
        status = "complete" if is_equal else "unequal"
        largest_difference = min(self._intervals, default=math.inf) / 2
        is_apart = max(delays) - min(delays) > largest_difference or not self._fits(shots)
        if len(shots) < len(self._waiting):
            status = "missing"
            self._doubtful = DOUBTFUL if is_apart else self._doubtful
        else:
            status = "late" if is_apart or self._doubtful else status
            self._doubtful = DOUBTFUL if is_apart else max(self._doubtful - 1, 0)
        self.counts[status] += 1
        return FrameSet(status, shots)

    def _fits(self, shots: Dict[str, Shot]) -> bool:
        """Return whether the cameras of a set have counted as many frames as each other since the sets before."""
        numbers = {camera: shot.arrival.number for camera, shot in shots.items()}
        counts = {(number - self._first[name]) % _CYCLE for name, number in numbers.items() if name in self._first}
        fits = len(counts) < 2
        if not fits:
            self._first.clear()
        count = counts.pop() if fits and counts else 0
        self._first.update((name, number - count) for name, number in numbers.items())
        return fits
