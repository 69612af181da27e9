"""`polar-pipeline params dump`: the parameters of a running node as a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from polar_pipeline import __version__
from polar_pipeline._util.files import replacing
from polar_pipeline._util.text import printable
from polar_pipeline.cli.argument_types import parse_seconds
from polar_pipeline.cli.command import Command
from polar_pipeline.cli.errors import GET_ROS, FailureError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--node", default="/polar_pipeline", metavar="NAME", help="the node (default: %(default)s)")
    parser.add_argument("--changed", action="store_true", help="only those that differ from their defaults")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.yaml", help="file to write (default: print it)")
    parser.add_argument("--force", action="store_true", help="replace a file that exists")
    parser.add_argument(
        "--wait",
        type=parse_seconds,
        default=5.0,
        metavar="SECONDS",
        help="how long to wait for the node (default: %(default)g)",
    )


def _run(values: argparse.Namespace) -> int:
    try:
        from polar_pipeline.ros.dump import read_parameters
        from polar_pipeline.ros.preset import changed, to_yaml
    except ImportError as err:
        raise FailureError(f"params needs ROS 2 (rclpy): {err}; {GET_ROS}") from err
    parameters = read_parameters(values.node, values.wait)
    text = to_yaml(
        changed(parameters) if values.changed else parameters, f"{values.node}, polar_pipeline {__version__}"
    )
    if values.output is None:
        print(text, end="")
        return 0
    with replacing(values.output, values.force) as stream:
        stream.write(text.encode())
    print(f"wrote {printable(str(values.output))}")
    return 0


COMMAND = Command(_add_arguments, _run)
