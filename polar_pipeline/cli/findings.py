"""What commands that process a recording say is wrong with it."""

from __future__ import annotations

from polar_pipeline.cli.errors import show_error
from polar_pipeline.quality.layout import LayoutCheck
from polar_pipeline.replay.run import Summary


def show_findings(summary: Summary) -> None:
    """Print to stderr which frames could not be used, and whether the parameters do not fit the mosaic."""
    for cause, row in summary.rejected.items():
        show_error(f"not usable: {row.frames} x {cause}; the first: {row.reason}")
    show_layout(summary.layout)


def show_layout(layout: LayoutCheck) -> None:
    """Print to stderr that the parameters do not fit the mosaic, if a frame shows it."""
    if layout.fits is False:
        show_error(f"layout: {layout.text}")
