"""Cameras of a rig in step: their frames as sets, and the leader's exposure for the others. Imports no ROS."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping

from polar_pipeline.camera.facts import CameraFacts
from polar_pipeline.camera.sets import FrameSet, SetMatcher, Shot
from polar_pipeline.quality.statistics import Level
from polar_pipeline.recordings.messages import Status

#: Relative difference of exposure times, and difference of gains in dB, up to which a camera need not follow.
_SAME_TIME, _SAME_GAIN = 0.005, 0.05


@dataclass(frozen=True)
class Sync:
    """How the cameras of a rig are kept in step.

    Attributes:
        tolerance_ms: Milliseconds within which the exposures of a set start.
        leader: Name of the node whose camera the others follow.
        strict: Whether only frames of complete sets are published.
        factors: Name of each node -> its camera's exposure time divided by the leader's.
    """

    tolerance_ms: float
    leader: str
    strict: bool
    factors: Mapping[str, float]


class RigSync:
    """The cameras of a rig in step. Each camera's thread for frames calls `take`, the executor's thread `join`.

    Attributes:
        publish: Publishes the status of a set, with the earliest stamp in it in nanoseconds.
    """

    def __init__(self, sync: Sync) -> None:
        self.sync = sync
        self.publish: Callable[[int, Status], None] = lambda *_: None
        self._lock = threading.Lock()
        self._matcher = SetMatcher(list(sync.factors), int(1e6 * sync.tolerance_ms))
        self._cameras: Dict[str, Any] = {}  # `CameraInput` of active nodes
        self._facts: Dict[str, CameraFacts] = {}  # of the newest frames
        self._answers: Dict[str, Any] = {}  # futures of the last exposures that were written

    def join(self, name: str, camera: Any) -> None:
        """Take frames of a node's `CameraInput`; None ends that."""
        with self._lock:
            self._cameras[name] = camera
            self._facts.pop(name, None)

    def take(self, name: str, stamp_ns: int, shot: Shot, facts: CameraFacts) -> None:
        """Take a frame with the state of its camera; `shot.frame` is a function that hands it to the node.

        The function is called at once; in a strict rig when the set is complete, by the thread of any camera.
        """
        if not self.sync.strict:
            shot.frame()
        light = facts.exposure_us / self.sync.factors[name] * 10 ** ((facts.gain_db or 0.0) / 20)
        with self._lock:
            if self._cameras.get(name) is None:
                return
            self._facts[name] = facts
            sets = self._matcher.add(name, shot._replace(exposure=light, frame=(stamp_ns, shot.frame)))
            for each in sets:
                self._finish(each)
            if name == self.sync.leader and facts.exposure_us:
                self._lead(facts)

    def _finish(self, frames: FrameSet) -> None:
        """Publish the status of a set, and in a strict rig the frames of a complete one."""
        is_complete = frames.status == "complete"
        for name, shot in frames.shots.items():
            camera = self._cameras[name]
            if camera is None or not self.sync.strict:
                continue
            if is_complete:
                shot.frame[1]()
            else:
                camera.dropped("unmatched", 1)
        stamps = {name: shot.frame[0] for name, shot in frames.shots.items()}
        starts = [shot.start_ns for shot in frames.shots.values()]
        absent = ", ".join(name for name in self.sync.factors if name not in stamps)
        text = "matched" if is_complete else f"missing: {absent}" if absent else frames.status
        values = {
            **{name: str(count) for name, count in self._matcher.counts.items()},
            **{f"{name} [ns]": str(stamp_ns) for name, stamp_ns in stamps.items()},
            "spread [ms]": f"{(max(starts) - min(starts)) / 1e6:.3f}",
        }
        level = Level.OK if is_complete else Level.WARN
        self.publish(min(stamps.values()), Status(level, f"{self.sync.leader}: matched", text, "", values))

    def _lead(self, leader: CameraFacts) -> None:
        """Have the other cameras take the leader's exposure time and gain, if their newest frames have others."""
        for name, facts in self._facts.items():
            camera, time_us = self._cameras[name], leader.exposure_us * self.sync.factors[name]
            gain_db = None if facts.gain_db is None else leader.gain_db
            is_same = math.isclose(time_us, facts.exposure_us, rel_tol=_SAME_TIME) and (
                gain_db is None or abs(gain_db - (facts.gain_db or 0.0)) <= _SAME_GAIN
            )
            if is_same or (name in self._answers and not self._answers[name].done()):
                continue
            self._answers[name] = answer = camera.source.follow(time_us, gain_db)
            answer.add_done_callback(camera.note_refusal)
