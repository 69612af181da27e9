"""Cameras of a rig in step: their frames as sets, and the leader's settings for the others. Imports no ROS."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, Mapping, Optional

from polar_pipeline.camera.facts import CameraFacts
from polar_pipeline.camera.sets import Arrival, FrameSet, SetMatcher, Shot
from polar_pipeline.camera.settings import CAMERA_OPTIONS, CameraSettings
from polar_pipeline.live.camera import CameraInput
from polar_pipeline.quality.statistics import Level
from polar_pipeline.recordings.messages import Status

#: Settings that the other cameras take from the leader's, beside exposure time and gain of its newest frame.
_SHARED = ("trigger", "ptp", "frame_rate")


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
        self._cameras: Dict[str, CameraInput] = {}  # name of an active node -> its camera
        self._answers: Dict[str, Any] = {}  # name -> future of the settings that were written last

    def join(self, name: str, camera: Optional[CameraInput]) -> None:
        """Take frames of a node's camera; None ends that."""
        with self._lock:
            self._cameras.pop(name, None)
            self._cameras.update({name: camera} if camera else {})

    def take(
        self, name: str, stamp_ns: int, start_ns: int, arrival: Arrival, facts: CameraFacts, deliver: Callable[[], None]
    ) -> None:
        """Take a frame of a node: stamp, start of its exposure, arrival, state of the camera, and what hands it over.

        `deliver` is called at once; in a strict rig when the set is complete, by the thread of any camera.
        """
        if not self.sync.strict:
            deliver()
        light = facts.exposure_us / self.sync.factors[name] * 10 ** ((facts.gain_db or 0.0) / 20)
        shot = Shot(start_ns, start_ns + int(1000 * facts.exposure_us), arrival, light, (stamp_ns, deliver))
        with self._lock:
            if name not in self._cameras:
                return
            for frames in self._matcher.add(name, shot):
                self._finish(frames)
            connection = self._cameras[name].source.connection
            if name == self.sync.leader and connection is not None and facts.exposure_us:
                self._lead(facts, connection.settings)

    def _finish(self, frames: FrameSet) -> None:
        """Publish the status of a set, and in a strict rig the frames of a complete one."""
        is_complete = frames.status == "complete"
        for name in filter(self._cameras.__contains__, frames.shots if self.sync.strict else ()):
            if is_complete:
                frames.shots[name].frame[1]()
            else:
                self._cameras[name].dropped("unmatched", 1)
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

    def _lead(self, facts: CameraFacts, settings: CameraSettings) -> None:
        """Have the other cameras take the leader's settings, exposure and gain, if theirs differ."""
        shared = {"exposure_auto": CAMERA_OPTIONS["exposure_auto"].default}
        shared.update((key, getattr(settings, key)) for key in _SHARED)
        for name, camera in self._cameras.items():
            connection, answer = camera.source.connection, self._answers.get(name)
            if name == self.sync.leader or connection is None or not (answer is None or answer.done()):
                continue
            target = {"exposure_us": facts.exposure_us * self.sync.factors[name], **shared}
            if facts.gain_db is not None and "gain_db" in connection.ranges:
                target["gain_db"] = facts.gain_db
            if not all(_is_close(value, getattr(connection.settings, key)) for key, value in target.items()):
                self._answers[name] = camera.source.follow(target)
                self._answers[name].add_done_callback(partial(_note_refusal, camera))


def _is_close(target: Any, actual: Any) -> bool:
    """Return whether a camera need not change a setting: cameras round, and automatic exposures are never still."""
    return target == actual or (isinstance(target, float) and math.isclose(target, actual, rel_tol=0.01, abs_tol=0.05))


def _note_refusal(camera: CameraInput, answer: Any) -> None:
    if answer.exception() is not None:
        camera.refuse("parameter", f"settings of the rig's leader: {answer.exception()}")
