"""Checks of the files that a command writes."""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, Optional

from polar_pipeline._util.files import check_outputs
from polar_pipeline.cli.errors import UsageError


def check_output_files(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Refuse outputs that would replace an input or lie in one that is a folder.

    Raises:
        UsageError: An output would.
    """
    try:
        check_outputs(outputs, inputs)
    except ValueError as err:
        raise UsageError(str(err)) from err


def report_path(report: Optional[Path], output: Optional[Path]) -> Optional[Path]:
    """Where a command's report goes; None without one.

    Args:
        report: As given on the command line: a file, `-` for none, or None for the output's name with `.html`.
        output: What else the command writes.

    Raises:
        UsageError: Both are the same file.
    """
    if report is None and output is not None:
        report = output.with_suffix(".html")
    if report is None or str(report) == "-":
        return None
    if output is not None and report.resolve() == output.resolve():
        raise UsageError(f"-o and --report are the same file, {report}")
    return report
