"""The lens calibration of topic `camera_info`, by which outputs are rectified. Imports no ROS."""

from __future__ import annotations

from typing import Optional

from polar_pipeline import messages
from polar_pipeline.geometry import LensCalibration
from polar_pipeline.live.parameters import Settings
from polar_pipeline.live.problems import ProblemLog
from polar_pipeline.options import FROM_FRAMES
from polar_pipeline.sensor.frames import FrameError

#: Bytes of a message in front of what follows its stamp, which differs from message to message.
_STAMP_END = 12


class LensInput:
    """The newest lens calibration, decoded when it changes.

    Any thread sets `cdr`; the worker calls `complete`.

    Args:
        problems: Counts and logs calibrations that cannot be used.

    Attributes:
        cdr: Newest message of topic `camera_info`; None before the first.
    """

    def __init__(self, problems: ProblemLog) -> None:
        self.cdr: Optional[bytes] = None
        self._problems = problems
        self._decoded: Optional[bytes] = None
        self._lens: Optional[LensCalibration] = None

    def complete(self, settings: Settings) -> Settings:
        """The settings with the lens calibration, where they ask for the one that comes with the frames."""
        cdr = self.cdr
        if settings.options.rectify != FROM_FRAMES or cdr is None:
            return settings
        content = bytes(cdr[_STAMP_END:])
        if content != self._decoded:
            self._decoded, self._lens = content, None
            try:
                self._lens = messages.lens_of(messages.decode_camera_info(cdr))
            except FrameError as err:
                self._problems.refuse("camera_info", str(err))
        return settings if self._lens is None else settings.rectified_by(self._lens)
