"""`polar-pipeline layout`: whether sensor, ROI offset and flips fit a picture."""

from __future__ import annotations

import argparse
from functools import partial

from polar_pipeline.cli.argument_types import parse_number
from polar_pipeline.cli.errors import FailureError, errors_as
from polar_pipeline.cli.option_arguments import add_pipeline_arguments, requested_options
from polar_pipeline.cli.source_arguments import add_picture_argument, add_size_limit_argument
from polar_pipeline.pipeline import input_frame
from polar_pipeline.quality.frame_checks import check_frame, log_warnings
from polar_pipeline.quality.layout import offsets_of_polarizer
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.rawpicture import check_not_angle_images, read_picture


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    add_picture_argument(parser)
    parser.add_argument(
        "--polarizer",
        type=partial(parse_number, lowest=-360, highest=360),
        metavar="DEGREES",
        help="transmission axis of a sheet polarizer in front of the camera, counter-clockwise from the picture's x "
        "axis; 0, 45, 90 or 135 work best",
    )
    add_size_limit_argument(parser)
    add_pipeline_arguments(parser, ("frame",))


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    options = requested_options(values, ("intensity",), values.image)
    image = read_picture(values.image, values.max_bytes)
    check_not_angle_images(values.image, values.max_bytes)
    frame = input_frame(messages.to_raw(image, options), options)
    check = check_frame(frame, options, image.warnings)
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
