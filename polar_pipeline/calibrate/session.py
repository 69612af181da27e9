"""Frames of a calibration session: a folder of pictures, or a recording with a table of its angles."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from polar_pipeline import messages
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.calibrate.anglefile import FILES, SECONDS, AngleTable, read_angles
from polar_pipeline.calibrate.sums import DARK, SessionSums
from polar_pipeline.options import Options
from polar_pipeline.pipeline import input_frame
from polar_pipeline.replay.limits import MAX_BYTES, SourceError
from polar_pipeline.replay.rawpicture import read_raw
from polar_pipeline.replay.source import SUFFIXES, Source, is_recording, open_source
from polar_pipeline.sensor.frames import FrameError, RawFrame
from polar_pipeline.sensor.mosaic import readout_order

#: Name of the table of angles in a folder of pictures.
ANGLE_FILE = "angles.csv"
#: Folders whose names say nothing about the angle, and one whose pictures are not part of a session.
_PLAIN, _LEFT_OUT = ("light", "frames"), "test"
#: Where pictures of a folder are looked for.
_LEVELS = ("*", "*/*", "*/*/*")
_ANGLE = re.compile(r"(?:angle|polarizer|pol)?[_ -]?([-+]?[0-9]{1,3}(?:\.[0-9]{1,6})?)(?:_?deg)?", re.IGNORECASE)
#: Setting, angle in degrees, and file of each picture.
_Pictures = List[Tuple[str, Optional[float], Path]]


class SessionFrame(NamedTuple):
    """A frame of a session.

    Attributes:
        setting: Setting of the polarizer, or `DARK`.
        name: Place of the frame, for messages.
        frame: The mosaic as recorded.
    """

    setting: str
    name: str
    frame: RawFrame


class Session(NamedTuple):
    """An open session.

    Attributes:
        angles: Angle of each setting in degrees; None if it is unknown.
        total: Number of frames.
        frames: The frames; an iterator, which raises `FrameError` and `SourceError` for those that cannot be read.
    """

    angles: Dict[str, Optional[float]]
    total: int
    frames: Iterator[SessionFrame]


@contextmanager
def open_session(
    path: Path,
    options: Options,
    table: Optional[Path] = None,
    are_unknown: bool = False,
    topic: str = "",
    max_bytes: int = MAX_BYTES,
) -> Iterator[Session]:
    """Open a session.

    Args:
        path: A folder with pictures of dark frames in `dark`, and of the others in folders or files named by the angle
            in degrees (`045.0/3.png`, `angle_045/3.png`, `light/045.0_3.png`); or a recording.
        options: Options of the frames: bit depth and alignment.
        table: File of angles (`anglefile`); for a folder by default its `angles.csv`, if there is one. A recording
            needs one.
        are_unknown: Whether the names of files and folders only say which frames belong together.
        topic: Topic of the images in a recording.
        max_bytes: Largest size of a frame.

    Raises:
        SourceError: The session cannot be read.
        ValueError: A name or the table holds no angles.
    """
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    if is_recording(path) or path.is_file():
        if table is None:
            raise ValueError(f"{path} is a recording: give a table of its angles, --angles FILE.csv")
        with open_source(path, topic, max_bytes=max_bytes) as source:
            spans = read_angles(table)
            if spans.columns == FILES:
                raise ValueError(
                    "the table of angles of a recording has columns first, last and angle, or start, end and angle"
                )
            angles = {row.name: row.angle for row in spans.rows if not row.is_dark}
            yield Session(_known(angles, are_unknown), source.total, _recorded(source, spans, options))
        return
    if table is None and (path / ANGLE_FILE).exists():
        table = path / ANGLE_FILE
    pictures = _named(path) if table is None else _listed(path, read_angles(table))
    angles = {setting: angle for setting, angle, _ in pictures if setting != DARK}
    nameless = [setting for setting, angle in angles.items() if angle is None]
    if nameless and table is None and not are_unknown:
        raise ValueError(
            f"{quoted(nameless[0])} names no angle: name folders or files by it, as in 045.0_3.png, list the files in "
            f"{ANGLE_FILE}, or give --angles unknown"
        )
    frames = (
        SessionFrame(setting, str(file), input_frame(read_raw(file, max_bytes), options).unpack())
        for setting, _, file in pictures
    )
    yield Session(_known(angles, are_unknown), len(pictures), frames)


def _known(angles: Dict[str, Optional[float]], are_unknown: bool) -> Dict[str, Optional[float]]:
    """Return the angles of the settings, or None for each if they are unknown."""
    return {setting: None if are_unknown else angle for setting, angle in angles.items()}


def add_frames(frames: Iterable[SessionFrame], options: Options) -> SessionSums:
    """Sum the frames of a session in the order of the sensor's own readout.

    Args:
        frames: Frames of the session.
        options: Sensor, offset and flips of the frames.

    Raises:
        FrameError: A frame does not fit the others, or cannot be read.
        ValueError: There are none.
    """
    sums = SessionSums(options.sensor.as_read_out(options.roi_offset))
    order = readout_order(options.flip)
    for row in frames:
        try:
            sums.add(row.setting, RawFrame(row.frame.mosaic[order], row.frame.full_scale))
        except ValueError as err:  # noqa: PERF203
            raise FrameError("size", f"{row.name}: {err}") from err
    if not sums.settings:
        raise ValueError("the session holds no frames")
    return sums


# ------------------------------------------------------------------------------------------------------------- folders


def _pictures(folder: Path) -> List[Path]:
    """List the pictures in a folder and its subfolders by name."""
    paths = sorted(path for level in _LEVELS for path in folder.glob(level))
    return [path for path in paths if path.suffix.lower() in SUFFIXES and path.is_file()]


def _named(folder: Path) -> _Pictures:
    """Return the pictures in a folder, with settings and angles by their names.

    Raises:
        SourceError: There are none.
    """
    found: _Pictures = []
    for file in _pictures(folder):
        parts = [part.lower() for part in file.relative_to(folder).parts[:-1]]
        is_dark = DARK in parts or file.stem.lower().startswith(DARK)
        setting = DARK if is_dark else _setting(file, folder)
        angle = _ANGLE.fullmatch(setting)
        if _LEFT_OUT not in parts:
            found.append((setting, float(angle.group(1)) if angle else None, file))
    if not found:
        raise SourceError(
            f"{folder} holds no pictures ({', '.join(SUFFIXES)}), neither in dark nor in folders of angles"
        )
    return found


def _setting(file: Path, folder: Path) -> str:
    """Return the name of a setting: the folder's name, or the part of the file's name before the last `_`."""
    if file.parent != folder and file.parent.name.lower() not in _PLAIN:
        return file.parent.name
    return file.stem.rpartition("_")[0] or file.stem


def _listed(folder: Path, table: AngleTable) -> _Pictures:
    """Return the pictures that a table lists, and those in `dark` if it lists no dark ones.

    Raises:
        ValueError: The table is one of a recording.
        SourceError: A file does not exist.
    """
    if table.columns != FILES:
        raise ValueError("the table of angles of a folder of pictures has columns file and angle")
    found: _Pictures = []
    for row in table.rows:
        path = folder / row.name
        if not path.exists():
            raise SourceError(f"{printable(str(path))}, in the table of angles, does not exist")
        for file in _pictures(path) if path.is_dir() else [path]:
            own = path.name if path.is_dir() else _setting(file, folder)
            setting = DARK if row.is_dark else own if row.angle is None else f"{row.angle:g}"
            found.append((setting, row.angle, file))
    if not any(row.is_dark for row in table.rows):
        found = [(DARK, None, file) for file in _pictures(folder / DARK)] + found
    return found


# ---------------------------------------------------------------------------------------------------------- recordings


def _recorded(source: Source, table: AngleTable, options: Options) -> Iterator[SessionFrame]:
    """Yield the frames of a recording that a table gives a setting."""
    start: Optional[int] = None
    for index, record in enumerate(source.records):
        image = record.image() if table.columns == SECONDS else None
        start = image.stamp_ns if start is None and image is not None else start
        place = (image.stamp_ns - (start or 0)) / 1e9 if image is not None else float(index)
        row = next((row for row in table.rows if row.first <= place <= row.last), None)
        if row is not None:
            frame = messages.to_raw(image or record.image(), options).unpack()
            if frame.is_split:
                raise FrameError(
                    "encoding", "a calibration is of a sensor's mosaic; these frames are split into angles"
                )
            yield SessionFrame(DARK if row.is_dark else row.name, f"frame {index} of {source.topic}", frame)
