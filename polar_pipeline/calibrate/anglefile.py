"""Tables of polarizer angles as CSV files: of pictures, or of the frames of a recording.

The first line names the columns, which are one of

    file,angle          a picture or a folder of pictures, by its name relative to the session's folder
    first,last,angle    frames of a recording by number, from 0, both included
    start,end,angle     frames of a recording by their time in seconds from the first frame's stamp

An angle is a number of degrees, `dark`, or `unknown`.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

from polar_pipeline._util.documents import read_limited, unreadable
from polar_pipeline._util.text import quoted
from polar_pipeline.calibrate.sums import DARK

FILES, FRAMES, SECONDS = ("file", "angle"), ("first", "last", "angle"), ("start", "end", "angle")
_COLUMNS = (FILES, FRAMES, SECONDS)


class AngleRow(NamedTuple):
    """A row of a table.

    Attributes:
        name: Name of the picture or folder; of frames, text that names those of one angle.
        first: Number or second of the first frame; 0 of pictures.
        last: Number or second of the last frame; 0 of pictures.
        is_dark: Whether the frames are dark.
        angle: In degrees; None if it is unknown.
    """

    name: str
    first: float
    last: float
    is_dark: bool
    angle: Optional[float]


class AngleTable(NamedTuple):
    """A table: its columns, one of `FILES`, `FRAMES` and `SECONDS`, and its rows."""

    columns: Tuple[str, ...]
    rows: Tuple[AngleRow, ...]


def read_angles(path: Path) -> AngleTable:
    """Read a table.

    Raises:
        ValueError: The table cannot be read, or is not a table of angles; the message names the file and the line.
    """
    try:
        lines = list(csv.reader(read_limited(path).decode("utf-8-sig").splitlines(), skipinitialspace=True))
    except (UnicodeDecodeError, csv.Error) as err:
        raise unreadable(path, str(err)) from err
    lines = [[cell.strip() for cell in line] for line in lines]
    columns = tuple(cell.lower() for cell in lines[0]) if lines else ()
    if columns not in _COLUMNS:
        expected = "; ".join(",".join(names) for names in _COLUMNS)
        raise unreadable(path, f"its first line must be one of {expected}; got {quoted(','.join(columns))}")
    rows: List[AngleRow] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            if any(line):
                rows.append(_row(columns, line))
        except ValueError as err:  # noqa: PERF203
            raise unreadable(path, f"line {number}: {err}") from err
    if not rows:
        raise unreadable(path, "it has no rows")
    return AngleTable(columns, tuple(rows))


def _row(columns: Tuple[str, ...], cells: List[str]) -> AngleRow:
    if len(cells) != len(columns):
        raise ValueError(f"{len(columns)} values expected, got {len(cells)}")
    *place, text = cells
    is_dark = text.lower() == DARK
    angle = None if is_dark or text.lower() in ("", "unknown") else _number(text)
    if angle is not None and not -360 <= angle <= 360:
        raise ValueError(f"an angle must be -360 to 360 degrees, got {quoted(text)}")
    if columns == FILES:
        return AngleRow(place[0], 0, 0, is_dark, angle)
    name = " to ".join(place) if angle is None else f"{angle:g}"
    return AngleRow(name, _number(place[0]), _number(place[1]), is_dark, angle)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"a number is expected, got {quoted(text)}")
    return value
