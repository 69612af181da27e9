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
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

from polar_pipeline._util.documents import read_limited, unreadable
from polar_pipeline._util.text import quoted
from polar_pipeline.calibrate.sums import DARK

_COLUMNS = (("file", "angle"), ("first", "last", "angle"), ("start", "end", "angle"))
_UNKNOWN = ("", "unknown")


class ListedFile(NamedTuple):
    """A row of a table of pictures: name, whether it is dark, and the angle in degrees, None if unknown."""

    name: str
    is_dark: bool
    angle: Optional[float]


class Span(NamedTuple):
    """A row of a table of a recording: frames from `first` to `last`, by number or in seconds.

    `setting` names those of one angle, unless they are dark.
    """

    first: float
    last: float
    is_dark: bool
    angle: Optional[float]
    setting: str


@dataclass(frozen=True)
class AngleTable:
    """The rows of a table, of one kind.

    Attributes:
        files: Those of pictures.
        spans: Those of a recording.
        is_in_seconds: Whether the spans are times.
    """

    files: Tuple[ListedFile, ...] = ()
    spans: Tuple[Span, ...] = ()
    is_in_seconds: bool = False


def read_angles(path: Path) -> AngleTable:
    """Read a table.

    Raises:
        ValueError: It cannot be read, or is no table of angles; the message names the file and the line.
    """
    try:
        rows = list(csv.reader(read_limited(path).decode("utf-8-sig").splitlines(), skipinitialspace=True))
    except (UnicodeDecodeError, csv.Error) as err:
        raise unreadable(path, str(err)) from err
    names = tuple(cell.strip().lower() for cell in rows[0]) if rows else ()
    if names not in _COLUMNS:
        expected = "; ".join(",".join(columns) for columns in _COLUMNS)
        raise unreadable(path, f"its first line must be one of {expected}; got {quoted(','.join(names))}")
    files: List[ListedFile] = []
    spans: List[Span] = []
    for number, cells in enumerate(rows[1:], 2):
        if not any(cell.strip() for cell in cells):
            continue
        try:
            row = _row(names, cells)
            is_dark, angle = _angle(row["angle"])
            if names == _COLUMNS[0]:
                files.append(ListedFile(row["file"], is_dark, angle))
            else:
                first, last = (_number(row[name]) for name in names[:2])
                setting = f"{row[names[0]]} to {row[names[1]]}" if angle is None else f"{angle:g}"
                spans.append(Span(first, last, is_dark, angle, setting))
        except ValueError as err:
            raise unreadable(path, f"line {number}: {err}") from err
    if not files and not spans:
        raise unreadable(path, "it has no rows")
    return AngleTable(tuple(files), tuple(spans), names == _COLUMNS[2])


def _row(names: Tuple[str, ...], cells: List[str]) -> Dict[str, str]:
    if len(cells) != len(names):
        raise ValueError(f"{len(names)} values expected, got {len(cells)}")
    return dict(zip(names, (cell.strip() for cell in cells)))


def _angle(text: str) -> Tuple[bool, Optional[float]]:
    """(whether it is dark, degrees or None)."""
    if text.lower() == DARK:
        return True, None
    if text.lower() in _UNKNOWN:
        return False, None
    value = _number(text)
    if not -360 <= value <= 360:
        raise ValueError(f"an angle must be -360 to 360 degrees, got {quoted(text)}")
    return False, value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"a number is expected, got {quoted(text)}")
    return value
