"""`polar-pipeline play`: publish a recording into ROS."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Dict

from polar_pipeline._util.text import printable
from polar_pipeline.cli.argument_types import DAY_S, parse_number
from polar_pipeline.cli.errors import importing_ros, show_error
from polar_pipeline.cli.shared_arguments import STATED_ARGUMENTS, add_shared_arguments, parse_rate, stated_contents
from polar_pipeline.recordings.source import DEFAULT_RATE
from polar_pipeline.sensor.frames import FrameError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    add_shared_arguments(parser, "source", "--topic", *STATED_ARGUMENTS, "--max-mb", "--strict")
    parser.add_argument(
        "--rate",
        type=parse_rate,
        metavar="HZ",
        help=f"frames per second (default: the recording's; {DEFAULT_RATE:g} for pictures)",
    )
    parser.add_argument(
        "--to",
        default="image_raw",
        metavar="TOPIC",
        help="topic of the images; the lens calibration is published on camera_info beside it (default: %(default)s)",
    )
    parser.add_argument("--loop", action="store_true", help="repeat the recording until Ctrl-C")
    parser.add_argument("--restamp", action="store_true", help="replace stamps by the time of publication")
    parser.add_argument(
        "--wait",
        type=partial(parse_number, lowest=0, highest=DAY_S),
        default=0.0,
        metavar="SECONDS",
        help="longest wait for a subscriber, in seconds (default: %(default)g)",
    )


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    with importing_ros("play"):
        from polar_pipeline.tools.play.play import play
    skipped: Dict[str, int] = {}

    def warn(err: FrameError) -> None:
        skipped[err.cause] = skipped.get(err.cause, 0) + 1
        if skipped[err.cause] == 1:
            show_error(f"skipped, and others like it: {err}")

    count = play(
        values.source,
        values.to,
        values.topic,
        values.rate or 0.0,
        values.loop,
        values.restamp,
        values.wait,
        warn,
        values.max_bytes,
        stated_contents(values),
    )
    causes = "".join(f", skipped {number} x {cause}" for cause, number in skipped.items())
    print(f"published {count} frames on {printable(values.to)}{causes}")
    return 0 if count else 1
