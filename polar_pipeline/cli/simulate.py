"""`polar-pipeline simulate`: a synthetic calibration session, to try calibration without a laboratory."""

from __future__ import annotations

import argparse
import shlex
from functools import partial
from typing import Tuple

import numpy as np

from polar_pipeline._util.files import replacing_folder
from polar_pipeline._util.progress import with_bar
from polar_pipeline._util.text import printable
from polar_pipeline.cli.argument_types import parse_integer, parse_number, parse_path, parse_size
from polar_pipeline.cli.errors import FailureError, UsageError, errors_as
from polar_pipeline.pictures.files import encode_picture
from polar_pipeline.sensor.mosaic import SENSORS, get_sensor
from polar_pipeline.tools.calibrate.polarizer import MIN_ANGLES
from polar_pipeline.tools.calibrate.simulation import (
    TEST_LIGHT,
    Bench,
    Deviations,
    picture_name,
    sample_frames,
    simulate_sensor,
    synthetic_session,
)

#: Most settings and frames that can be asked for.
_MAX_COUNT = 1000
#: Most pixels of a frame: in memory the simulated sensor takes about 100 bytes for each.
_MAX_PIXELS = 1 << 24
#: How much the lamp drifts in the session.
_LAMP_DRIFT = 0.01
_COUNT = partial(parse_integer, lowest=1, highest=_MAX_COUNT)
_FRACTION = partial(parse_number, lowest=0, highest=0.5)
#: Names of arguments with their types, defaults, metavars and help texts.
_ARGUMENTS = (
    ("--angles", partial(parse_integer, lowest=MIN_ANGLES, highest=_MAX_COUNT), 18, "N", "number of polarizer angles"),
    ("--frames", _COUNT, 16, "N", "number of frames at each angle"),
    ("--dark-frames", _COUNT, 64, "N", "number of dark frames"),
    ("--size", parse_size, "320x256", "WxH", "size of the frames"),
    ("--bit-depth", partial(parse_integer, lowest=8, highest=16), 12, "BITS", "bits per pixel"),
    ("--seed", partial(parse_integer, lowest=0, highest=2**31 - 1), 0, "N", "seed of the random numbers"),
    ("--defects", _FRACTION, 5e-4, "SHARE", "fraction of defective pixels, 0 to 0.5"),
    ("--shading", _FRACTION, 0.1, "SHARE", "loss of light toward the corners, 0 to 0.5"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    parser.add_argument("folder", type=parse_path, metavar="FOLDER", help="folder to write; must not exist")
    parser.add_argument(
        "--sensor",
        default="IMX250MZR",
        help=f"{', '.join(SENSORS)}, or a tile such as '90 45 / 135 0' (default: %(default)s)",
    )
    for name, kind, default, metavar, text in _ARGUMENTS:
        parser.add_argument(name, type=kind, default=default, metavar=metavar, help=f"{text} (default: %(default)s)")
    parser.add_argument(
        "--unknown-angles", action="store_true", help="use random angles, and number the file names instead"
    )


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    with errors_as(UsageError):
        sensor = get_sensor(values.sensor)
    if values.size[0] * values.size[1] > _MAX_PIXELS:
        raise UsageError(f"a simulated frame has at most {_MAX_PIXELS} pixels, got {values.size[0]}x{values.size[1]}")
    if values.folder.exists():
        raise FailureError(f"{values.folder} exists already; name a new folder")
    deviations = Deviations(defects=values.defects, shading=values.shading)
    camera = simulate_sensor(sensor, values.size[::-1], values.seed, deviations)
    bench = Bench(_angles(values), values.frames, values.dark_frames, drift=_LAMP_DRIFT)
    total = values.dark_frames + values.angles * values.frames
    with replacing_folder(values.folder) as folder:
        for name in ("dark", "light", "test"):
            (folder / name).mkdir()
        frames = synthetic_session(camera, bench, values.bit_depth, values.seed)
        for setting, number, mosaic in with_bar(frames, total):
            path = folder / picture_name(bench, setting, number, not values.unknown_angles)
            path.write_bytes(encode_picture(mosaic, ".png"))
        for name, mosaic in sample_frames(camera, values.bit_depth, values.seed):
            (folder / "test" / name).write_bytes(encode_picture(mosaic, ".png"))
    print(f"wrote {total} frames and {len(TEST_LIGHT)} in 'test' to {printable(str(values.folder))}")
    unknown = " --angles unknown" if values.unknown_angles else ""
    print(
        f"next: polar-pipeline calibrate {shlex.quote(printable(str(values.folder)))} -o sensor.npz "
        f"--sensor {shlex.quote(values.sensor)} --bit-depth {values.bit_depth} --roi-offset 0 0{unknown}"
    )
    return 0


def _angles(values: argparse.Namespace) -> Tuple[float, ...]:
    """Return the angles of the polarizer in degrees: evenly spaced, or near even spacing."""
    even = 180 / values.angles * np.arange(values.angles)
    if values.unknown_angles:
        even = even + np.random.default_rng(values.seed).uniform(-0.3, 0.3, len(even)) * 180 / values.angles
    return tuple(even.tolist())
