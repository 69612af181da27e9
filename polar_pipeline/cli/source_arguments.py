"""Arguments of commands that read recordings or pictures."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from polar_pipeline.cli.argument_types import parse_integer, parse_number
from polar_pipeline.replay.limits import MAX_BYTES
from polar_pipeline.replay.source import DEFAULT_RATE, RATES

#: Largest --max-mb.
_MAX_MB = 1 << 20
#: Conversion of frames per second.
parse_rate = partial(parse_number, lowest=RATES[0], highest=RATES[1])


def add_source_arguments(parser: argparse.ArgumentParser, is_optional: bool = False) -> None:
    """Add the recording that a command reads; if it is optional, it is None where it is not given."""
    parser.add_argument(
        "source",
        type=Path,
        nargs="?" if is_optional else None,
        help="rosbag2 folder, .mcap, .db3, ROS 1 .bag, or a folder of raw PNG, TIFF, PGM or NPY files",
    )
    parser.add_argument("--topic", default="", help="topic of the raw images in the recording (default: the only one)")
    add_size_limit_argument(parser)


def add_picture_rate_argument(parser: argparse.ArgumentParser) -> None:
    """Add the rate of pictures, which have no times of their own; None where it is not given."""
    parser.add_argument(
        "--rate", type=parse_rate, metavar="HZ", help=f"frames per second of pictures (default: {DEFAULT_RATE:g})"
    )


def add_picture_argument(parser: argparse.ArgumentParser) -> None:
    """Add the picture that a command reads."""
    parser.add_argument("image", type=Path, help="raw mosaic: PNG, TIFF, PGM or NPY, 8 or 16 bit")


def add_size_limit_argument(parser: argparse.ArgumentParser) -> None:
    """Add the limit of memory; it is `max_bytes` of the parsed arguments, in bytes."""
    parser.add_argument(
        "--max-mb",
        type=lambda text: parse_integer(text, 1, _MAX_MB) << 20,
        default=MAX_BYTES,
        dest="max_bytes",
        metavar="MB",
        help=f"largest frame, and largest chunk of a recording when uncompressed (default: {MAX_BYTES >> 20})",
    )
