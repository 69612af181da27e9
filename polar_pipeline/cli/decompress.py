"""`polar-pipeline decompress`: the inverse of `polar-pipeline compress`."""

from __future__ import annotations

import argparse

from polar_pipeline.cli.compress import add_copy_arguments as add_arguments
from polar_pipeline.cli.compress import run_copy
from polar_pipeline.recordings.recompress import decompress_recording

__all__ = ["add_arguments", "run"]


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    return run_copy(values, decompress_recording)
