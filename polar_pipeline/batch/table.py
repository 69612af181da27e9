"""Tables of frames: one Parquet file per recording or part of one, one row per frame, processed or not.

The files of a batch lie in `frames/recording=NAME/part-0.parquet`: folders from which pandas, DuckDB and Dask read the
column `recording` (Hive partitioning). `docs/batch_queries.md` describes the columns and has examples.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pyarrow as pa
import pyarrow.parquet as pq

from polar_pipeline._util.files import replacing
from polar_pipeline.quality.statistics import FrameQuality, Spot
from polar_pipeline.replay.run import ReplayedFrame, Summary

#: Stages of both backends, in their order; each has a column `NAME_ms`.
STAGES = ("decode", "prepare", "upload", "polarization", "ssim", "download", "write", "total")
#: Rows of a row group: queries read a column of at least so many rows at once, or skip them by their extremes.
GROUP_ROWS = 65_536
_TEXT = pa.string()
_RATIO = pa.float32()
#: A longer gap between two stamps, in seconds, is a pause of the recording: nothing is known to be lost.
LONGEST_GAP_S = 60.0
#: The columns.
FRAME_SCHEMA = pa.schema(
    [
        pa.field("recording", _TEXT, nullable=False),
        pa.field("index", pa.int64(), nullable=False),
        pa.field("stamp", pa.timestamp("ns", tz="UTC")),
        pa.field("rejected", pa.bool_(), nullable=False),
        pa.field("cause", _TEXT),
        pa.field("lost", pa.int32()),
        *(pa.field(f"{stage}_ms", _RATIO) for stage in STAGES),
        pa.field("late", pa.bool_(), nullable=False),
        pa.field("ssim", _RATIO),
        pa.field("lowest", _RATIO),
        pa.field("expected", _RATIO),
        pa.field("lowest_x", pa.int32()),
        pa.field("lowest_y", pa.int32()),
        pa.field("lowest_place", _TEXT),
        pa.field("saturated", _RATIO),
        pa.field("dark", _RATIO),
        pa.field("intensity", _RATIO),
        pa.field("dolp", _RATIO),
        pa.field("layout_fits", pa.bool_()),
        pa.field("fingerprint", pa.uint32()),
        pa.field("repeated", pa.bool_(), nullable=False),
    ]
)
#: Characters of a recording's name that are not in a folder's: separators, those of patterns, and control characters.
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f%/\\=:*?"'<>|#\[\]{}]""")


def table_path(folder: Path, recording: str, part: int = 0) -> Path:
    """Where the table of a recording, or of a part of it, belongs in the results of a batch.

    Args:
        folder: Of the batch.
        recording: Name of the recording; some characters are percent-encoded, which readers undo.
        part: Number of the part.
    """
    name = _ESCAPED.sub(lambda found: f"%{ord(found.group()):02X}", recording)
    return folder / "frames" / f"recording={name}" / f"part-{part}.parquet"


def frame_table(recording: str, summary: Summary, first: int = 0) -> pa.Table:
    """The frames of a replay as a table with `FRAME_SCHEMA`.

    Args:
        recording: Name of the recording.
        summary: What replay did.
        first: Place in the recording of the first frame, for a part of it.
    """
    columns: Dict[str, List[Any]] = {name: [] for name in FRAME_SCHEMA.names}
    for row in _rows(recording, summary, first):
        for name, values in columns.items():
            values.append(row.get(name))
    return pa.table(columns, schema=FRAME_SCHEMA)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table, complete or not at all; a file of that name is replaced, folders are made.

    In a folder `recording=NAME` the file has no such column: readers take it from the folder, and some refuse to have
    it twice.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name.startswith("recording="):
        table = table.drop(["recording"])
    with replacing(path, force=True) as stream:
        pq.write_table(table, stream, row_group_size=GROUP_ROWS, compression="zstd")


def _rows(recording: str, summary: Summary, first: int) -> Iterator[Dict[str, Any]]:
    """The values of every row by column; absent ones are null."""
    stamp: Optional[int] = None
    mark: Optional[int] = None
    unstamped = 0
    for index, frame in enumerate(summary.frames, first):
        lost = _lost(stamp, frame.stamp_ns, summary.period)
        row: Dict[str, Any] = {
            "recording": recording,
            "index": index,
            "stamp": frame.stamp_ns,
            "rejected": bool(frame.cause),
            "cause": frame.cause or None,
            "lost": None if lost is None else max(0, lost - unstamped),
            "late": frame.late,
            "layout_fits": summary.layout.fits,
            "repeated": False,
            **_figures(frame),
        }
        if not frame.cause:
            row["repeated"] = mark is not None and row["fingerprint"] == mark
            mark = row["fingerprint"]
        stamp, unstamped = (stamp, unstamped + 1) if frame.stamp_ns is None else (frame.stamp_ns, 0)
        yield row


def _lost(before: Optional[int], stamp: Optional[int], period: float) -> Optional[int]:
    """Frames that could lie between two stamps; None where that is not known, as before the first one."""
    if before is None or stamp is None or not 0 < period < math.inf:
        return None
    gap = (stamp - before) / 1e9
    return max(0, round(gap / period) - 1) if 0 <= gap <= LONGEST_GAP_S else None


def _figures(frame: ReplayedFrame) -> Dict[str, Any]:
    """The figures of a processed frame by column; of one that was not processed, none."""
    quality = frame.quality
    if quality is None:
        return {}
    spot = quality.lowest
    return {
        **{f"{stage}_ms": 1000 * seconds for stage, seconds in frame.timings.items()},
        "ssim": quality.ssim,
        **(_lowest(quality, spot) if spot else {}),
        "saturated": quality.saturated,
        "dark": quality.dark,
        "intensity": frame.intensity,
        "dolp": frame.dolp,
        "fingerprint": quality.fingerprint,
    }


def _lowest(quality: FrameQuality, spot: Spot) -> Dict[str, Any]:
    """What is known of the lowest block by column."""
    place = {"lowest_x": spot.x, "lowest_y": spot.y, "lowest_place": spot.place}
    return {"lowest": spot.ssim, "expected": quality.expected, **place}
