"""Arguments that several commands have, each with one meaning."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any, Dict, Optional, Tuple

from polar_pipeline.cli.argument_types import (
    parse_angle_order,
    parse_integer,
    parse_number,
    parse_path,
    parse_size,
    parse_tolerance,
)
from polar_pipeline.cli.errors import UsageError, errors_as
from polar_pipeline.options import Options
from polar_pipeline.pipeline import Pipeline, input_frame
from polar_pipeline.quality.frame_checks import FrameCheck, check_frame
from polar_pipeline.recordings.contents import CONTENTS, Stated
from polar_pipeline.recordings.limits import MAX_BYTES, SourceError
from polar_pipeline.recordings.reader import stored_frame
from polar_pipeline.recordings.source import DEFAULT_RATE, RATES, open_source
from polar_pipeline.replay.compare import Golden, open_golden
from polar_pipeline.sensor.frames import Frame

#: Largest --max-mb.
_MAX_MB = 1 << 20
#: Conversion of frames per second.
parse_rate = partial(parse_number, lowest=RATES[0], highest=RATES[1])
#: Argument -> keywords of `add_argument`.
SHARED_ARGUMENTS: Dict[str, Dict[str, Any]] = {
    "source": {
        "type": parse_path,
        "help": "rosbag2 folder, .mcap, .db3, ROS 1 .bag, a picture, an array, a folder of them, or a pattern such as "
        "'scene_{000,045,090,135}.png'",
    },
    "image": {"type": parse_path, "help": "picture or array with one frame, or a pattern of four angle images"},
    "--content": {
        "choices": CONTENTS,
        "default": "auto",
        "help": "what files hold: mosaics, four angle images, the same as tiles of one picture, or Stokes vectors; "
        "auto: as names, shapes and numbers tell (default: %(default)s)",
    },
    "--angle-order": {
        "type": parse_angle_order,
        "default": (),
        "metavar": "A,B,C,D",
        "help": "angles of planes, pages, channels, tiles or files in their order (default: 0,45,90,135, checked)",
    },
    "--array": {"default": "", "metavar": "NAME", "help": "name of the array in an NPZ or MAT file"},
    "--raw": {
        "default": "",
        "metavar": "WxH:FORMAT",
        "help": "size and pixel format of files without a header, such as 2448x2048:Mono12p",
    },
    "--topic": {"default": "", "help": "topic of the raw images in the recording (default: the only one)"},
    "--rate": {
        "type": parse_rate,
        "metavar": "HZ",
        "help": f"frames per second of pictures (default: {DEFAULT_RATE:g})",
    },
    "--size": {
        "type": parse_size,
        "default": (2448, 2048),
        "metavar": "WxH",
        "help": "size of the raw frame (default: 2448x2048)",
    },
    "--max-mb": {
        "type": lambda text: parse_integer(text, 1, _MAX_MB) << 20,
        "default": MAX_BYTES,
        "dest": "max_bytes",
        "metavar": "MB",
        "help": f"largest frame and largest uncompressed chunk of a recording (default: {MAX_BYTES >> 20})",
    },
    "--strict": {
        "action": "store_true",
        "help": "end with an error (exit code 1) if something about the frames looks wrong",
    },
    "--force": {"action": "store_true", "help": "replace files that exist"},
    "--json": {"action": "store_true", "help": "print JSON"},
    "--reference": {
        "type": parse_path,
        "metavar": "FILE.mcap",
        "help": "recording with the product 'intensity', for --ssim-mode reference",
    },
    "--tolerance": {
        "action": "append",
        "default": [],
        "type": parse_tolerance,
        "metavar": "PRODUCT=VALUE",
        "help": "largest error that --compare allows; AoLP in degrees, 8-bit images in levels",
    },
    "--params": {
        "type": parse_path,
        "metavar": "FILE.yaml",
        "help": "parameter file of the live node, such as a snapshot's, for options that are not on the command line",
    },
}


def add_shared_arguments(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add arguments of `SHARED_ARGUMENTS` by their names."""
    for name in names:
        parser.add_argument(name, **SHARED_ARGUMENTS[name])


#: Arguments that say how files are read.
STATED_ARGUMENTS = ("--content", "--angle-order", "--array", "--raw")


def stated_contents(values: argparse.Namespace) -> Stated:
    """Return what `STATED_ARGUMENTS` say of files.

    Raises:
        UsageError: A value is not allowed.
    """
    with errors_as(UsageError):
        return Stated(values.content, values.angle_order, values.array, values.raw)


def read_frame(values: argparse.Namespace, options: Options) -> Tuple[Frame, FrameCheck]:
    """Read the only frame of the source `image`, and check whether options fit it.

    Raises:
        SourceError: The source cannot be read, or has several frames.
        FrameError: The frame does not fit the options.
    """
    with open_source(values.image, max_bytes=values.max_bytes, stated=stated_contents(values)) as source:
        stored = [stored_frame(values.image, source, k, record) for k, record in enumerate(islice(source.records, 2))]
    if len(stored) != 1:
        raise SourceError(f"{values.image} must hold one frame, got {source.total}")
    frame = input_frame(stored[0], options)
    return frame, check_frame(frame, options, stored[0].warnings)


def open_reference(values: argparse.Namespace, pipeline: Pipeline, stack: ExitStack) -> Optional[Golden]:
    """Open the recording that the pipeline's SSIM needs until the stack is closed, or return None if it needs none.

    Raises:
        UsageError: A recording is given that is not used, or none for SSIM mode `reference`.
        GoldenError: The recording cannot be read or holds no products.
    """
    if (pipeline.options.ssim_mode == "reference") != (values.reference is not None):
        raise UsageError("--ssim-mode reference and --reference FILE.mcap go together")
    return stack.enter_context(open_golden(values.reference, values.max_bytes)) if values.reference else None
