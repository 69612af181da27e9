"""`polar-pipeline env`: the environment variable that large frames need, for a shell's `eval`."""

from __future__ import annotations

import argparse
import shlex

from polar_pipeline.ros.fast_dds import named_profiles, transport_environment


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Add none: the installed Fast DDS decides."""


def run(_: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    for name, value in transport_environment().items():
        print(f"export {name}={shlex.quote(value)}")
    for name in named_profiles():
        print(f"# {name} is set already")
    return 0
