"""The table of frames."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from polar_pipeline._util.files import replacing
from polar_pipeline.replay.run import Summary


def frame_table(recording: str, summary: Summary, first: int = 0) -> pa.Table:
    """One row a frame.

    Args:
        recording: Name.
        summary: What was found.
        first: Number of the first frame.
    """
    count = len(summary.stamps)
    return pa.table(
        {
            "recording": [recording] * count,
            "frame": list(range(first, first + count)),
            "stamp_ns": summary.stamps,
            "ssim": [row.ssim for row in summary.quality],
            "saturated": [row.saturated for row in summary.quality],
        }
    )


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table; the file is complete or not there."""
    with replacing(path, force=True) as stream:
        parquet.write_table(table, stream)
