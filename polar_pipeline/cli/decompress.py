"""`polar-pipeline decompress`: the inverse of `polar-pipeline compress`."""

from __future__ import annotations

import argparse
from functools import partial

from polar_pipeline._util.progress import with_bar
from polar_pipeline.cli.compress import add_copy_arguments as add_arguments
from polar_pipeline.cli.compress import check_copy, show_conversions
from polar_pipeline.replay.recompress import decompress_recording

__all__ = ["add_arguments", "run"]


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    check_copy(values)
    watch = partial(with_bar, unit="message")
    found = decompress_recording(values.source, values.output, values.force, values.max_bytes, watch=watch)
    show_conversions(found, values.output)
    return 0
