"""`polar-pipeline plan`: launches, schedules and predicted time on a GPU."""

from __future__ import annotations

import argparse
import json

from polar_pipeline.backends.cuda.device import DEVICES
from polar_pipeline.backends.cuda.polarization import CAMERA_FORMATS
from polar_pipeline.backends.cuda.report import make_plan, plan_text
from polar_pipeline.cli.option_arguments import add_pipeline_arguments, requested_options
from polar_pipeline.cli.shared_arguments import add_shared_arguments
from polar_pipeline.options import Options


def add_frame_arguments(parser: argparse.ArgumentParser) -> None:
    """Add size and format of the frames, and what to compute from them."""
    add_shared_arguments(parser, "--size")
    parser.add_argument(
        "--raw",
        choices=tuple(CAMERA_FORMATS),
        help="format of raw pixels (default: u8; u16 with a --bit-depth above 8)",
    )
    add_pipeline_arguments(parser, ("frame", "products", "ssim", "geometry"))


def requested_raw_format(values: argparse.Namespace, options: Options) -> str:
    """Return the raw format that the command line requests, a key of `CAMERA_FORMATS`."""
    return values.raw or ("u16" if options.bit_depth > 8 else "u8")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    parser.add_argument(
        "--device",
        choices=tuple(DEVICES),
        default="xavier",
        metavar="NAME",
        help=f"GPU to plan for: {', '.join(DEVICES)} (default: %(default)s)",
    )
    add_shared_arguments(parser, "--json")
    add_frame_arguments(parser)


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    options = requested_options(values)
    plan = make_plan(options, DEVICES[values.device], requested_raw_format(values, options), values.size)
    print(json.dumps(plan, indent=2) if values.json else plan_text(plan))
    return 0
