"""Runs the commands in documents within the process of their page (`test_guides.py`)."""

from __future__ import annotations

import shlex

from polar_pipeline import cli


def run(line: str) -> None:
    """Run a line of a shell that begins with `polar-pipeline`, without the comment at its end.

    Raises:
        AssertionError: It fails.
    """
    arguments = shlex.split(line, comments=True)[1:]
    try:
        code = cli.main(arguments)
    except SystemExit as stop:
        code = stop.code  # type: ignore[assignment]
    assert not code, f"exit code {code}: {line}"
