"""Checks of the files that a command writes."""

from __future__ import annotations

from pathlib import Path
from typing import Iterable

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
