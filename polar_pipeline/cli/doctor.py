"""`polar-pipeline doctor`: check the libraries and backends of this machine."""

from __future__ import annotations

import argparse
import json

from polar_pipeline.cli.shared_arguments import add_shared_arguments
from polar_pipeline.tools.doctor.checks import as_text, run_checks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    add_shared_arguments(parser, "--json")


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    checks = run_checks()
    if values.json:
        print(json.dumps([vars(check) for check in checks], indent=2))
    else:
        print(as_text(checks), end="")
    return 0
