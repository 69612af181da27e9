"""`polar-pipeline capture --guide`: a calibration session, step by step on the terminal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import List, NamedTuple, Optional

import numpy as np

from polar_pipeline.camera.settings import CameraSettings
from polar_pipeline.cli import calibrate
from polar_pipeline.cli.errors import FailureError
from polar_pipeline.cli.session_steps import (
    AIM,
    DARK_FRAMES,
    EXPOSED,
    angle_name,
    check_camera,
    describe_light,
    show_captured,
)
from polar_pipeline.tools.calibrate.capture import FrameCapture, capture_folder
from polar_pipeline.tools.calibrate.captured import Captured
from polar_pipeline.tools.calibrate.report import is_of_unwritten_calibration
from polar_pipeline.tools.calibrate.sums import DARK

#: Longest exposure that is proposed, in microseconds.
_LONGEST_US = 1e6


class _Step(NamedTuple):
    """A setting to capture: the name of its folder, what to do before it, and its number of frames."""

    setting: str
    text: str
    frames: int


def guide(
    folder: Path, settings: CameraSettings, session: Optional[Captured], angles: int, frames: int, kind: str
) -> int:
    """Lead through a session of some angles over 180 degrees, and calibrate from it; returns the exit code.

    `session` is the state of the camera in earlier captures, None for a new session; `kind` is the format of files.

    Raises:
        FailureError: The input ends, or the camera differs from the session.
    """
    output = folder.resolve().parent / "sensor.npz"
    for path in (output, output.with_suffix(".html")):
        if path.exists() and not is_of_unwritten_calibration(path):
            raise FailureError(f"{path} exists already; move it, or put the session into another folder")
    steps = [_Step(DARK, "Cover the lens with its cap.", DARK_FRAMES * frames)]
    for angle in (180 * k / angles for k in range(angles)):
        text = (
            f"Turn the polarizer to {angle:g} degrees." if angle else "Remove the cap; turn the polarizer to 0 degrees."
        )
        steps.append(_Step(angle_name(angle), text, frames))
    complete = [step for step in steps if (folder / step.setting).exists()]
    if complete:
        names = ", ".join(step.setting for step in complete)
        text = f"{len(complete)} of {len(steps)} steps are complete: {names}."
        if _ask(f"{text} Enter: keep them, r: capture them again ", "r") != "r":
            steps = [step for step in steps if step not in complete]
    if steps:
        with FrameCapture(settings, print) as camera:
            check_camera(camera, session, may_choose=session is None)
            print("Let the camera warm up, switch off other lamps, and touch neither lamp nor camera from now on.")
            if session is None:
                _expose(camera)
            _capture(camera, folder, steps, kind)
    print("calibrating; with problems the light has to be improved, and steps repeated: remove their folders first")
    parser = argparse.ArgumentParser()
    calibrate.add_arguments(parser)
    return calibrate.run(parser.parse_args(["-o", str(output), "--", str(folder)]))


def _ask(text: str, *letters: str) -> str:
    """Return one of some letters, or "" for Enter.

    Raises:
        FailureError: The input ends.
    """
    while True:
        try:
            answer = input(text).strip().lower()
        except EOFError:
            raise FailureError("the input has ended; the same command goes on with the session") from None
        if answer in ("", *letters):
            return answer


def _expose(camera: FrameCapture) -> None:
    """Lead to an exposure time that fits the light."""
    _ask("Switch on the lamp, and put the polarizer before the lens, without the cap. Enter: check the exposure ")
    if camera.connection.settings.exposure_auto != "off":
        camera.expose()
        print(f"The camera chose {camera.facts.exposure_us:.0f} us by itself; automatic exposure is now off.")
    while True:
        light, exposure = camera.look(), camera.facts.exposure_us
        print(f"At {exposure:.0f} us {describe_light(light)}.")
        if EXPOSED[0] <= light.brightest <= EXPOSED[1]:
            return
        factor = 0.5 if np.isinf(light.brightest) else AIM / max(light.brightest, 1e-3)
        better = factor * exposure
        low, high = camera.connection.ranges.get("exposure_us", (0.0, 0.0))
        if exposure and low <= better <= min(high, _LONGEST_US):
            reach = "may fit" if np.isinf(light.brightest) else f"would give {AIM:.0%}"
            text = f"{better:.0f} us {reach}. Enter: set it, k: keep {exposure:.0f} us "
        else:
            better, text = 0.0, "No exposure of the camera fits: change the light. Enter: check it again, k: keep it "
        if _ask(text, "k") == "k":
            return
        if better:
            camera.expose(better)


def _capture(camera: FrameCapture, folder: Path, steps: List[_Step], kind: str) -> None:
    """Capture steps; each can be repeated."""
    index = 0
    while True:
        back = ", r: repeat the last step" if index else ""
        step = steps[index] if index < len(steps) else None
        text = (
            f"{step.text} Enter: capture {step.frames} frames" if step else "All frames are captured. Enter: calibrate"
        )
        if _ask(f"{text}{back} ", *(["r"] if index else [])) == "r":
            index -= 1
            continue
        if step is None:
            return
        path = folder / step.setting
        light, lost = capture_folder(camera, path, step.frames, kind, force=True)
        show_captured(path, light, lost, step.setting)
        index += 1
