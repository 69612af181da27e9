"""`polar-pipeline capture`: raw frames of a camera, in the folders that `calibrate` reads."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

from polar_pipeline.cli.argument_types import parse_integer, parse_number, parse_path
from polar_pipeline.cli.errors import FailureError, UsageError, errors_as, show_error
from polar_pipeline.cli.option_arguments import add_camera_arguments, requested_camera
from polar_pipeline.cli.session_steps import DARK_FRAMES, angle_name, check_camera, show_captured
from polar_pipeline.cli.shared_arguments import add_shared_arguments
from polar_pipeline.tools.calibrate.capture import FORMATS, FrameCapture, capture_folder
from polar_pipeline.tools.calibrate.captured import captured_state
from polar_pipeline.tools.calibrate.polarizer import MIN_ANGLES
from polar_pipeline.tools.calibrate.sums import DARK, FLAT

#: Frames of a setting.
_FRAMES = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    parser.add_argument(
        "-o",
        "--output",
        type=parse_path,
        metavar="FOLDER",
        required=True,
        help="folder to write, with camera.yaml, the state of the camera; with --dark, --angle, --flat or --guide the "
        "folder of a session, in which each setting has a folder, such as 030.000",
    )
    setting = parser.add_mutually_exclusive_group()
    setting.add_argument("--dark", action="store_true", help="frames with the cap on")
    setting.add_argument(
        "--angle",
        type=partial(parse_number, lowest=-360, highest=360),
        metavar="DEGREES",
        help="frames behind a polarizer at this angle",
    )
    setting.add_argument(
        "--flat",
        type=partial(parse_integer, lowest=0, highest=10**6),
        nargs="?",
        const=-1,
        metavar="LEVEL",
        help="frames of constant light without a polarizer; LEVEL numbers several levels of light",
    )
    setting.add_argument(
        "--guide",
        action="store_true",
        help="lead through a session of dark frames and all angles, check exposure and light, then calibrate: writes "
        "sensor.npz and sensor.html beside FOLDER. Called again, it goes on with the session",
    )
    parser.add_argument(
        "--frames",
        type=partial(parse_integer, lowest=1, highest=1 << 16),
        metavar="N",
        help=f"number of frames (default: {_FRAMES}; {DARK_FRAMES * _FRAMES} with --dark); with --guide at each angle, "
        f"and {DARK_FRAMES} times as many dark frames",
    )
    parser.add_argument(
        "--angles",
        type=partial(parse_integer, lowest=MIN_ANGLES, highest=1000),
        metavar="N",
        help="with --guide, number of angles over 180 degrees (default: 18)",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="files: pictures, arrays, or one recording with lossless compression (default: %(default)s)",
    )
    add_shared_arguments(parser, "--strict")
    add_camera_arguments(parser)


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    if values.angles is not None and not values.guide:
        raise UsageError("--angles needs --guide")
    folder = values.output
    path = folder / _setting(values)
    if path.exists() and not values.guide:
        raise FailureError(f"{path} exists already; remove it to capture it again")
    with errors_as(FailureError):
        session = captured_state([folder]) if folder.is_dir() else None
    settings = requested_camera(values)
    if session is not None:  # it goes on with its settings where the command line has none
        state = {name: getattr(session.facts, name) for name in ("pixel_format", "exposure_us", "gain_db")}
        rows = ((name, value) for name, value in state.items() if value is not None and not hasattr(values, name))
        settings = replace(settings, **dict(rows))
    if values.guide:
        from polar_pipeline.cli.guide import guide  # here: only a guide calibrates

        return guide(folder, settings, session, values.angles or 18, values.frames or _FRAMES, values.format)
    count = values.frames or (DARK_FRAMES * _FRAMES if values.dark else _FRAMES)
    with FrameCapture(settings, print) as camera:
        if path != folder:
            check_camera(camera, session)
        elif camera.facts.nonlinearity:
            show_error(f"warning: {camera.facts.nonlinearity}")
        light, lost = capture_folder(camera, path, count, values.format)
    show_captured(path, light, lost, _setting(values))
    return 0


def _setting(values: argparse.Namespace) -> str:
    """Return the name of the folder of the setting; "" for frames of no session."""
    if values.angle is not None:
        return angle_name(values.angle)
    if values.flat is not None:
        return FLAT if values.flat < 0 else f"{FLAT}/{values.flat}"
    return DARK if values.dark else ""
