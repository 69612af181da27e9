"""Tables of polarizer angles as CSV files: of pictures, or of the frames of a recording.

The first line names the columns, which are one of

    file,angle          a picture or a folder of pictures, by its name relative to the session's folder
    first,last,angle    frames of a recording by number, from 0, both included
    start,end,angle     frames of a recording by their time in seconds from the first frame's stamp

An angle is a number of degrees, `unknown`, `dark`, or `flat` for constant light without a polarizer.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

from polar_pipeline._util.documents import read_limited, unreadable
from polar_pipeline._util.text import quoted
from polar_pipeline.tools.calibrate.sums import DARK, FLAT

FILES, FRAMES, SECONDS = ("file", "angle"), ("first", "last", "angle"), ("start", "end", "angle")
_COLUMNS = (FILES, FRAMES, SECONDS)


class AngleRow(NamedTuple):
    """A row of a table. Its kind is `DARK`, `FLAT`, or "" for frames behind the polarizer.

    The name is that of a picture or folder, or the numbers or times of frames as text. First and last are the number or
    second of frames, 0 for pictures. The angle is in degrees, None if unknown.
    """

    name: str
    first: float
    last: float
    kind: str
    angle: Optional[float]

    def setting(self, name: str) -> str:
        """Return the setting of the frames; `name` is that of frames at an unknown angle."""
        if self.kind:
            return DARK if self.kind == DARK else f"{FLAT}/{name}"
        return name if self.angle is None else f"{self.angle:g}"


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
    kind = text.lower() if text.lower() in (DARK, FLAT) else ""
    angle = None if kind or text.lower() in ("", "unknown") else _number(text)
    if angle is not None and not -360 <= angle <= 360:
        raise ValueError(f"an angle must be -360 to 360 degrees, got {quoted(text)}")
    if columns == FILES:
        return AngleRow(place[0], 0, 0, kind, angle)
    return AngleRow(" to ".join(place), _number(place[0]), _number(place[1]), kind, angle)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"a number is expected, got {quoted(text)}")
    return value
