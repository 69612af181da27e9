"""Checks of the files that a command writes."""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, Optional

from polar_pipeline.cli.errors import UsageError


def check_output_files(outputs: Iterable[Optional[Path]], inputs: Iterable[Optional[Path]]) -> None:
    """Refuse to overwrite an input, through whatever name, link or folder. Call it before anything is opened.

    Args:
        outputs: Files to write; None counts for nothing.
        inputs: Files and folders to read; None counts for nothing.

    Raises:
        UsageError: An output is an input, or lies in a folder that is one.
    """
    written = [path for path in outputs if path is not None]
    for path in (path for path in inputs if path is not None):
        place, is_folder = path.resolve(), path.is_dir()
        files = [file for file in (path.iterdir() if is_folder else [path]) if file.exists()]
        for output in written:
            places = output.resolve(), output.parent.resolve() / output.name  # the latter if it is a link
            if place in places or (output.exists() and any(map(output.samefile, files))):
                raise UsageError(f"{output} would replace an input, {path}")
            if is_folder and any(place in each.parents for each in places):
                raise UsageError(f"{output} lies in an input, the folder {path}")


def report_path(report: Optional[Path], output: Optional[Path]) -> Optional[Path]:
    """Return the path of a command's report, or None without a report.

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
