"""Steps of a calibration session that `capture` and its guide share: folders, the camera, and warnings of the light."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List, Optional

import numpy as np

from polar_pipeline._util.text import printable
from polar_pipeline.cli.errors import FailureError, show_error
from polar_pipeline.tools.calibrate.capture import FrameCapture, FrameLight
from polar_pipeline.tools.calibrate.captured import Captured, difference
from polar_pipeline.tools.calibrate.sums import DARK, FLAT

#: How many times as many as frames of a setting are dark frames.
DARK_FRAMES = 4
#: Exposed well: the brightest pixels, as shares of full scale; and what an exposure aims at.
EXPOSED, AIM = (0.6, 0.85), 0.72
#: Highest light of dark frames, lowest light of a place relative to the brightest, and largest relative change of
#: the light between frames of a setting.
_DARK_LEVEL, _UNEVEN, _UNSTEADY = 0.05, 0.5, 0.01


def angle_name(angle: float) -> str:
    """Return the name of the folder of frames at an angle in degrees."""
    return f"{angle:07.3f}"


def check_camera(camera: FrameCapture, session: Optional[Captured], may_choose: bool = False) -> None:
    """Check that frames of the camera fit a session so far, and are fit for a calibration.

    With `may_choose`, the camera may still choose the exposure time by itself.

    Raises:
        FailureError: The frames are unfit.
    """
    if camera.facts.nonlinearity:
        raise FailureError(camera.facts.nonlinearity)
    if not may_choose and camera.connection.settings.exposure_auto != "off":
        raise FailureError("the exposure time is chosen automatically; frames of a session need --exposure-us")
    differs = difference(session.facts, camera.facts) if session else ""
    if session and differs:
        raise FailureError(f"the camera differs from {session.file}: {differs}; name another folder")


def show_captured(path: Path, light: List[FrameLight], lost: int, setting: str) -> None:
    """Print what was captured, and warnings of the light."""
    again = f"; {lost} frames were lost and taken again" if lost else ""
    print(f"wrote {len(light)} frames to {printable(str(path))}{again}")
    for text in _findings(light, setting):
        show_error(f"warning: {text}")


def describe_light(light: FrameLight) -> str:
    """Describe how bright a frame is in a few words."""
    if np.isinf(light.brightest):
        return "pixels are saturated"
    return f"the brightest pixels reach {light.brightest:.0%} of full scale"


def _findings(light: List[FrameLight], setting: str) -> Iterator[str]:
    """Yield what is wrong with the light of a setting."""
    means, places = np.array([row.places.mean() for row in light]), np.mean([row.places for row in light], 0)
    brightest = max(light, key=lambda row: row.brightest)
    if setting == DARK:
        if means.max() > _DARK_LEVEL:
            yield f"the frames are not dark, they read {means.max() / 2:.0%} of full scale: is the cap on?"
    elif setting:
        is_exposed = EXPOSED[0] <= brightest.brightest <= EXPOSED[1]
        if np.isinf(brightest.brightest) or not (is_exposed or setting.startswith(FLAT)):
            yield f"{describe_light(brightest)}, {EXPOSED[0]:.0%} to {EXPOSED[1]:.0%} are best"
        if places.min() < _UNEVEN * places.max():
            yield f"the light is uneven, it falls to {places.min() / places.max():.0%} of its highest"
        change = float(np.ptp(means) / max(means.mean(), 1e-6))
        if change > _UNSTEADY:
            yield f"the light changed by {change:.1%} between frames: does the lamp flicker, or was a hand before it?"
