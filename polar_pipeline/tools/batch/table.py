"""Tables of frames: one Parquet file per recording, one row per frame, processed or not.

The files of a batch are `frames/recording=NAME/part-0.parquet`: folders from which pandas, DuckDB and Dask read the
column `recording` (Hive partitioning). `docs/batch_queries.md` describes the columns and has examples.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, List, Optional

import pyarrow as pa
import pyarrow.parquet as pq

from polar_pipeline._util.files import replacing
from polar_pipeline.recordings.source import RATES
from polar_pipeline.replay.run import ReplayedFrame, Summary

#: Stages of both backends, in their order; each has a column `NAME_ms`. `learned` is of a GPU: on a CPU the network is
#: part of `denoise`.
STAGES = (
    *("decode", "prepare", "upload", "polarization", "denoise", "learned", "geometry", "ssim"),
    *("download", "write", "total"),
)
#: Rows of a row group: queries read a column of at least so many rows at once, or skip them by their extremes.
GROUP_ROWS = 65_536
#: A longer gap between two stamps, in seconds, is a pause of the recording, not a loss of frames.
LONGEST_GAP_S = 60.0
_TEXT, _RATIO, _BOOL = pa.string(), pa.float32(), pa.bool_()
_TYPES = {
    "index": pa.int64(),
    "stamp": pa.timestamp("ns", tz="UTC"),
    "rejected": _BOOL,
    "cause": _TEXT,
    "lost": pa.int32(),
    **{f"{stage}_ms": _RATIO for stage in STAGES},
    "late": _BOOL,
    **dict.fromkeys(("ssim", "lowest", "expected"), _RATIO),
    "lowest_x": pa.int32(),
    "lowest_y": pa.int32(),
    "lowest_place": _TEXT,
    **dict.fromkeys(("saturated", "dark", "intensity", "dolp"), _RATIO),
    "layout_fits": _BOOL,
    "fingerprint": pa.uint32(),
    "repeated": _BOOL,
}
_NEVER_NULL = ("index", "rejected", "late", "repeated")
#: The columns of a file. Readers take `recording` from the folder.
FRAME_SCHEMA = pa.schema([pa.field(name, kind, nullable=name not in _NEVER_NULL) for name, kind in _TYPES.items()])


def table_path(folder: Path, recording: str) -> Path:
    """Return the path of the table of a recording in the results of a batch."""
    return folder / "frames" / f"recording={recording}" / "part-0.parquet"


def frame_table(summary: Summary) -> pa.Table:
    """Return the frames of a replay as a table with `FRAME_SCHEMA`."""
    rows: List[Dict[str, Any]] = []
    stamp: Optional[int] = None
    previous: Optional[int] = None  # fingerprint of the last frame that was processed
    unstamped = 0
    for index, frame in enumerate(summary.frames):
        lost = _lost(stamp, frame.stamp_ns, summary.period)
        figures = _figures(frame)
        fingerprint = figures.get("fingerprint")
        row = {
            **figures,
            "index": index,
            "stamp": frame.stamp_ns,
            "rejected": bool(frame.cause),
            "cause": frame.cause or None,
            "lost": None if lost is None else max(0, lost - unstamped),
            "late": frame.late,
            "layout_fits": summary.layout.fits,
            "repeated": not frame.cause and previous is not None and fingerprint == previous,
        }
        # NaN, as in a first frame without a previous one, is not a figure
        rows.append({name: value for name, value in row.items() if value == value})
        previous = previous if frame.cause else fingerprint
        stamp, unstamped = (stamp, unstamped + 1) if frame.stamp_ns is None else (frame.stamp_ns, 0)
    return pa.Table.from_pylist(rows, schema=FRAME_SCHEMA)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table, complete or not at all; a file of that name is replaced, folders are made.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, force=True) as stream:
        pq.write_table(table, stream, row_group_size=GROUP_ROWS, compression="zstd")


def _lost(before: Optional[int], stamp: Optional[int], period: float) -> Optional[int]:
    """Return the number of frames that fit between two stamps, or None if unknown, as before the first frame.

    A period below those of `RATES` is not one of frames; the number would not fit its column.
    """
    if before is None or stamp is None or not 1 / RATES[1] <= period < math.inf:
        return None
    gap = (stamp - before) / 1e9
    return max(0, round(gap / period) - 1) if 0 <= gap <= LONGEST_GAP_S else None


def _figures(frame: ReplayedFrame) -> Dict[str, Any]:
    """Return the figures of a processed frame by column; {} for a frame that was not processed."""
    quality = frame.quality
    if quality is None:
        return {}
    figures: Dict[str, Any] = {f"{stage}_ms": 1000 * seconds for stage, seconds in frame.timings.items()}
    figures.update({name: getattr(quality, name) for name in ("ssim", "saturated", "dark", "fingerprint")})
    figures.update(intensity=frame.intensity, dolp=frame.dolp)
    spot = quality.lowest
    if spot is not None:
        figures.update(lowest=spot.ssim, expected=quality.expected)
        figures.update(lowest_x=spot.x, lowest_y=spot.y, lowest_place=spot.place)
    return figures
