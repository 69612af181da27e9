"""Frames of two exposures by turns (`camera.hdr_ratio`): which of them belong together."""

from __future__ import annotations

import math
from typing import NamedTuple, Optional

from polar_pipeline.camera.facts import CameraFacts
from polar_pipeline.recordings.messages import Cdr


class CapturedFrame(NamedTuple):
    """A frame as serialized `sensor_msgs/Image`, with the state of the camera and its number by the camera."""

    cdr: Cdr
    facts: CameraFacts
    number: int


class Pairs:
    """Pairs of neighboring frames, by the exposure times that they state; without I/O.

    Attributes:
        incomplete: Frames that were left out, as they have no neighbor of the other exposure.
        waiting: The last frame, if it is not part of a pair yet.
    """

    def __init__(self) -> None:
        self.incomplete = 0
        self.waiting: Optional[CapturedFrame] = None

    def take(self, frame: CapturedFrame, ratio: float) -> Optional[CapturedFrame]:
        """Take the next frame of exposures with this ratio; return the one before if both are a pair, else None.

        A frame waits for the next one, and is left out if that has about the same exposure, or frames between are lost.
        """
        before, self.waiting = self.waiting, frame
        if before is None:
            return None
        times = before.facts.exposure_us, frame.facts.exposure_us
        # numbers of older cameras wrap to 1; any two exposures can be merged, also those around a change of settings
        is_next = frame.number == before.number + 1 or (before.number, frame.number) == (0xFFFF, 1)
        if is_next and min(times) > 0 and abs(math.log(times[0] / times[1])) > math.log(ratio) / 2:
            self.waiting = None
            return before
        self.incomplete += 1
        return None
