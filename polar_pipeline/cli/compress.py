"""`polar-pipeline compress`: raw images of a recording compressed without loss, everything else copied."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Callable, Dict

from polar_pipeline._util.progress import with_bar
from polar_pipeline._util.text import printable
from polar_pipeline.cli.argument_types import parse_path
from polar_pipeline.cli.errors import UsageError
from polar_pipeline.cli.outputs import check_output_files
from polar_pipeline.cli.shared_arguments import add_shared_arguments
from polar_pipeline.recordings.limits import megabytes
from polar_pipeline.recordings.recompress import Conversion, compress_recording
from polar_pipeline.recordings.source import recording_of


def add_copy_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the recording, its copy and the limit of memory."""
    parser.add_argument("source", type=parse_path, help="rosbag2 folder, .mcap or .db3")
    parser.add_argument(
        "-o", "--output", type=parse_path, metavar="OUT.mcap", required=True, help="mcap recording to write"
    )
    add_shared_arguments(parser, "--force", "--max-mb")


def run_copy(values: argparse.Namespace, convert: Callable[..., Dict[str, Conversion]]) -> int:
    """Copy the recording by `convert`, and print what was converted on each topic; returns the exit code.

    Raises:
        UsageError: The output is not an `.mcap` file, or would replace the recording.
    """
    if values.output.suffix.lower() != ".mcap":
        raise UsageError(f"the output is an .mcap file, got {values.output}")
    check_output_files([values.output], [recording_of(values.source)])
    watch = partial(with_bar, unit="message")
    conversions = convert(values.source, values.output, force=values.force, max_bytes=values.max_bytes, watch=watch)
    for topic, row in conversions.items():
        share = f" ({100 * row.after / row.before:.1f} %)" if row.before else ""
        sizes = f"{megabytes(row.before)} to {megabytes(row.after)}{share}"
        print(f"{printable(topic)}: {row.images} images, {sizes}")
        if row.others:
            print(f"{printable(topic)}: {row.others} messages are no such images and were copied as they are")
    print(f"wrote {printable(str(values.output))}")
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    add_copy_arguments(parser)
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        help="topic of raw images; may be repeated (default: the only topic of images)",
    )


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    return run_copy(values, partial(compress_recording, topics=values.topic))
