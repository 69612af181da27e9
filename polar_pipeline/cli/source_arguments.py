"""Arguments of commands that read recordings or pictures."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from functools import partial
from typing import Optional

from polar_pipeline.cli.argument_types import parse_integer, parse_number, parse_path, parse_size
from polar_pipeline.cli.errors import UsageError
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.recordings.limits import MAX_BYTES
from polar_pipeline.recordings.source import DEFAULT_RATE, RATES
from polar_pipeline.replay.compare import Golden, open_golden

#: Largest --max-mb.
_MAX_MB = 1 << 20
#: Conversion of frames per second.
parse_rate = partial(parse_number, lowest=RATES[0], highest=RATES[1])


def add_source_arguments(parser: argparse.ArgumentParser, is_optional: bool = False) -> None:
    """Add the recording that a command reads; if it is optional, it is None if it is not given."""
    parser.add_argument(
        "source",
        type=parse_path,
        nargs="?" if is_optional else None,
        help="rosbag2 folder, .mcap, .db3, ROS 1 .bag, or a folder of raw PNG, TIFF, PGM or NPY files",
    )
    parser.add_argument("--topic", default="", help="topic of the raw images in the recording (default: the only one)")
    add_size_limit_argument(parser)
    add_strict_argument(parser)


def add_picture_rate_argument(parser: argparse.ArgumentParser) -> None:
    """Add the rate of pictures, which have no times of their own; None if it is not given."""
    parser.add_argument(
        "--rate", type=parse_rate, metavar="HZ", help=f"frames per second of pictures (default: {DEFAULT_RATE:g})"
    )


def add_picture_argument(parser: argparse.ArgumentParser) -> None:
    """Add the picture that a command reads."""
    parser.add_argument("image", type=parse_path, help="raw mosaic: PNG, TIFF, PGM or NPY, 8 or 16 bit")
    add_strict_argument(parser)


def add_strict_argument(parser: argparse.ArgumentParser) -> None:
    """Add that warnings are errors."""
    parser.add_argument(
        "--strict",
        action="store_true",
        help="end with an error (exit code 1) if something about the frames looks wrong",
    )


def add_frame_size_argument(parser: argparse.ArgumentParser) -> None:
    """Add the size of synthetic frames."""
    parser.add_argument(
        "--size",
        type=parse_size,
        default=(2448, 2048),
        metavar="WxH",
        help="size of the raw frame (default: 2448x2048)",
    )


def add_size_limit_argument(parser: argparse.ArgumentParser) -> None:
    """Add the limit of memory; it is `max_bytes` of the parsed arguments, in bytes."""
    parser.add_argument(
        "--max-mb",
        type=lambda text: parse_integer(text, 1, _MAX_MB) << 20,
        default=MAX_BYTES,
        dest="max_bytes",
        metavar="MB",
        help=f"largest frame and largest uncompressed chunk of a recording (default: {MAX_BYTES >> 20})",
    )


def add_reference_argument(parser: argparse.ArgumentParser) -> None:
    """Add the recording."""
    parser.add_argument(
        "--reference",
        type=parse_path,
        metavar="FILE.mcap",
        help="recording with the product 'intensity', for --ssim-mode reference",
    )


def open_reference(values: argparse.Namespace, pipeline: Pipeline, stack: ExitStack) -> Optional[Golden]:
    """Open the recording that the pipeline's SSIM needs until the stack is closed, or return None if it needs none.

    Raises:
        UsageError: A recording is given that is not used, or none for SSIM mode `reference`.
        GoldenError: The recording cannot be read or holds no products.
    """
    if (pipeline.options.ssim_mode == "reference") != (values.reference is not None):
        raise UsageError("--ssim-mode reference and --reference FILE.mcap go together")
    return stack.enter_context(open_golden(values.reference, values.max_bytes)) if values.reference else None
