"""`polar-pipeline layout`: whether sensor, ROI offset and flips fit a picture."""

from __future__ import annotations

import argparse
from functools import partial

from polar_pipeline.cli.argument_types import parse_number
from polar_pipeline.cli.errors import FailureError, errors_as
from polar_pipeline.cli.option_arguments import add_pipeline_arguments, requested_options
from polar_pipeline.cli.shared_arguments import STATED_ARGUMENTS, add_shared_arguments, read_frame
from polar_pipeline.quality.frame_checks import log_warnings
from polar_pipeline.quality.layout import offsets_of_polarizer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    add_shared_arguments(parser, "image", *STATED_ARGUMENTS, "--strict", "--max-mb")
    parser.add_argument(
        "--polarizer",
        type=partial(parse_number, lowest=-360, highest=360),
        metavar="DEGREES",
        help="transmission axis of a sheet polarizer in front of the camera, counter-clockwise from the picture's x "
        "axis; 0, 45, 90 or 135 work best",
    )
    add_pipeline_arguments(parser, ("frame",))


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    options = requested_options(values, ("intensity",), [values.image])
    frame, check = read_frame(values, options)
    print(check.layout.text)
    log_warnings(row for row in check.warnings if row.text != check.layout.text)
    if values.polarizer is None:
        return int(check.layout.fits is False)
    with errors_as(lambda text: FailureError(f"{values.image}: {text}")):
        readings = offsets_of_polarizer(frame, options, values.polarizer)
    for row in readings:
        fits = f"fits {values.polarizer:g} degrees" if row.fits else "does not fit"
        print(f"--roi-offset {row.offset[0]} {row.offset[1]}: the sheet reads {row.angle:.1f} degrees, {fits}")
    return int(check.layout.fits is False or not readings[0].fits)
