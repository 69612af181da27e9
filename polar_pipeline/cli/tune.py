"""`polar-pipeline tune`: measure schedules on this machine's GPU."""

from __future__ import annotations

import argparse

from polar_pipeline._util.text import printable
from polar_pipeline.backends.cuda.schedules import tuned_path
from polar_pipeline.backends.cuda.tune import tune
from polar_pipeline.cli.option_arguments import requested_options
from polar_pipeline.cli.plan import add_frame_arguments, requested_raw_format


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    parser.add_argument("--device", required=True, help="name for this machine's GPU and for the file to write")
    add_frame_arguments(parser)


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    options = requested_options(values)
    schedules = tune(options, values.device, requested_raw_format(values, options), values.size)
    for name, best in schedules.items():
        print(f"{best.us:.2f} us a frame with {best.schedule}: {name}")
    print(f"wrote {printable(str(tuned_path(values.device)))}")
    return 0
