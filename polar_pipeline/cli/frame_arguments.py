"""Arguments of commands that plan for a kind of frame, without having one."""

from __future__ import annotations

import argparse

from polar_pipeline.cli.argument_types import parse_size
from polar_pipeline.cli.option_arguments import add_option_arguments
from polar_pipeline.cuda.work import CAMERA_FORMATS
from polar_pipeline.options import Options


def add_frame_arguments(parser: argparse.ArgumentParser) -> None:
    """Add size and format of the frames, and what to compute from them."""
    parser.add_argument(
        "--size", type=parse_size, default=(2448, 2048), metavar="WxH", help="of the raw frame (default: 2448x2048)"
    )
    parser.add_argument(
        "--raw", choices=tuple(CAMERA_FORMATS), help="raw pixels (default: u8; u16 with a --bit-depth above 8)"
    )
    add_option_arguments(parser)


def requested_raw_format(values: argparse.Namespace, options: Options) -> str:
    """The raw format that the command line asks for: a key of `CAMERA_FORMATS`."""
    return values.raw or ("u16" if options.bit_depth > 8 else "u8")
