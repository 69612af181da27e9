"""The argument that names the recording which SSIM mode `reference` compares with."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Optional

from polar_pipeline.cli.errors import UsageError
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.replay.compare import Golden, open_golden


def add_reference_argument(parser: argparse.ArgumentParser) -> None:
    """Add the recording."""
    parser.add_argument(
        "--reference", type=Path, metavar="FILE.mcap", help="recording of 'intensity' for --ssim-mode reference"
    )


def open_reference(values: argparse.Namespace, stack: ExitStack) -> Optional[Golden]:
    """The recording, open until the stack is closed; None where it is not given.

    Raises:
        SourceError: It cannot be read or holds no products.
    """
    return stack.enter_context(open_golden(values.reference, values.max_bytes)) if values.reference else None


def check_reference(pipeline: Pipeline, reference: Optional[Golden]) -> None:
    """Refuse a recording that is not used, and the mode without one.

    Raises:
        UsageError: They do not go together.
    """
    if (pipeline.options.ssim_mode == "reference") != (reference is not None):
        raise UsageError("--ssim-mode reference and --reference FILE.mcap go together")
