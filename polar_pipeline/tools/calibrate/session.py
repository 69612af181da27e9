"""Frames of calibration sessions: folders of pictures and recordings."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.paths import is_hidden, natural_order
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.options import Options
from polar_pipeline.quality.frame_checks import check_frame, first_warnings, log_warnings
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.angle_files import SUFFIXES
from polar_pipeline.recordings.contents import Stated
from polar_pipeline.recordings.limits import MAX_BYTES, SourceError
from polar_pipeline.recordings.messages import CameraInfo, ImageMessage
from polar_pipeline.recordings.rawpicture import read_picture
from polar_pipeline.recordings.source import Source, is_recording, open_source
from polar_pipeline.sensor.encodings import ENCODINGS
from polar_pipeline.sensor.frames import SIXTEEN_BITS, FrameError, FrameWarning, RawFrame
from polar_pipeline.sensor.mosaic import readout_order
from polar_pipeline.tools.calibrate.anglefile import FILES, FRAMES, SECONDS, AngleRow, AngleTable, read_angles
from polar_pipeline.tools.calibrate.captured import is_left_out
from polar_pipeline.tools.calibrate.plateaus import find_plateaus, sample_light
from polar_pipeline.tools.calibrate.sums import DARK, FLAT, SessionSums, is_flat

#: What the pictures of a session hold: frames of a flat field can look like anything.
_MOSAICS = Stated("mosaics")
#: Name of the table of angles in a folder of pictures.
ANGLE_FILE = "angles.csv"
#: Name of the recording in a folder of `capture`; all its frames have one setting.
FRAMES_FILE = "frames.mcap"
#: Folders whose names say nothing about the angle.
_PLAIN = ("light", "frames")
#: Patterns of the places of pictures in a folder.
_LEVELS = ("*", "*/*", "*/*/*")
#: A hyphen after a word separates; before a number alone it is its sign.
_ANGLE = re.compile(
    r"(?:(?:angle|polarizer|pol)[_ -]?|[_ ])?([-+]?[0-9]{1,3}(?:\.[0-9]{1,6})?)(?:_?deg)?", re.IGNORECASE
)
#: Setting, angle in degrees, and file of each picture.
_Pictures = List[Tuple[str, Optional[float], Path]]


class SessionFrame(NamedTuple):
    """A frame of a session as recorded; its name tells its place in messages.

    The setting is one of the polarizer, `DARK`, or a name that begins with `FLAT`.
    """

    setting: str
    name: str
    frame: RawFrame
    warnings: Tuple[FrameWarning, ...] = ()


class Session(NamedTuple):
    """An open session: angles of settings in degrees, None if unknown or without a polarizer, and number of frames.

    The iterator `frames` raises `FrameError` and `SourceError` for frames that cannot be read.
    """

    angles: Dict[str, Optional[float]]
    total: int
    frames: Iterator[SessionFrame]


@contextmanager
def open_sessions(
    paths: Sequence[Path],
    options: Options,
    table: Optional[Path] = None,
    needs_angles: bool = True,
    topic: str = "",
    max_bytes: int = MAX_BYTES,
) -> Iterator[Session]:
    """Open folders and recordings as one session. Settings of the second one are named `2/NAME`, and so on.

    Args:
        paths: Folders with pictures of dark frames in `dark`, of constant light without a polarizer in `flat`, and of
            the others in folders or files named by the angle in degrees (`045.0/3.png`, `angle_045/3.png`,
            `light/045.0_3.png`); and recordings.
        options: Options of the frames: bit depth and alignment.
        table: File of angles (`anglefile`) of the only path. Without one, a folder may have an `angles.csv`, and the
            plateaus of constant light in a recording are settings with unknown angles.
        needs_angles: Whether names of files and folders must hold angles, and do not only group frames.
        topic: Topic of the images in recordings.
        max_bytes: Largest size of a frame.

    Raises:
        SourceError: A session cannot be read.
        FrameError: A frame of a recording cannot be read.
        ValueError: A name or the table holds no angles, or a recording has no plateaus.
    """
    if table is not None and len(paths) > 1:
        raise ValueError(f"a table of angles is of one folder or recording: put {ANGLE_FILE} into each folder instead")

    def joined(number: int, setting: str) -> str:
        return setting if number == 1 or setting == DARK else f"{number}/{setting}"

    with ExitStack() as stack:
        parts = [
            (number, stack.enter_context(_open_session(path, options, table, needs_angles, topic, max_bytes)))
            for number, path in enumerate(paths, 1)
        ]
        angles = {joined(number, name): angle for number, part in parts for name, angle in part.angles.items()}
        frames = (row._replace(setting=joined(number, row.setting)) for number, part in parts for row in part.frames)
        yield Session(angles, sum(part.total for _, part in parts), frames)


@contextmanager
def _open_session(
    path: Path, options: Options, table: Optional[Path], needs_angles: bool, topic: str, max_bytes: int
) -> Iterator[Session]:
    """Open one folder or recording; arguments and errors are those of `open_sessions`."""
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    if is_recording(path) or path.is_file():
        if table is not None:
            spans = read_angles(table)
        else:
            with open_source(path, topic, max_bytes=max_bytes) as source:
                spans = _plateaus(path, source, options)
        if spans.columns == FILES:
            raise ValueError(
                "the table of angles of a recording has columns first, last and angle, or start, end and angle"
            )
        with open_source(path, topic, max_bytes=max_bytes) as source:
            angles = {row.setting(row.name): row.angle for row in spans.rows if row.kind != DARK}
            yield Session(angles, source.total, _recorded(source, spans, options))
        return
    if table is None and (path / ANGLE_FILE).exists():
        table = path / ANGLE_FILE
    pictures = _named(path) if table is None else _listed(path, read_angles(table))
    angles = {setting: angle for setting, angle, _ in pictures if setting != DARK}
    nameless = [setting for setting, angle in angles.items() if angle is None and not is_flat(setting)]
    if nameless and table is None and needs_angles:
        raise ValueError(
            f"{quoted(nameless[0])} names no angle: name folders or files by it, as in 045.0_3.png, list the files in "
            f"{ANGLE_FILE}, or give --angles unknown"
        )
    frames = (row for setting, _, file in pictures for row in _read(setting, file, options, max_bytes))
    yield Session(angles, sum(_count(file, max_bytes) for *_, file in pictures), frames)


def add_frames(
    frames: Iterable[SessionFrame], options: Options, sizes: Iterable[Tuple[Path, Tuple[int, int]]] = ()
) -> SessionSums:
    """Sum the frames of a session in the order of the sensor's own readout, by the options' sensor, offset and flips.

    `sizes` are files with the state of a camera, and the (width, height) of frames in it.

    Raises:
        FrameError: A frame does not fit the others, or cannot be read, or the frames have another size than stated.
        ValueError: There are none.
    """
    sums = SessionSums(options.sensor.as_read_out(options.roi_offset))
    warnings: List[FrameWarning] = []
    order = readout_order(options.flip)
    for row in frames:
        try:
            sums.add(row.setting, RawFrame(row.frame.mosaic[order], row.frame.full_scale))
        except ValueError as err:
            raise FrameError("size", f"{row.name}: {err}") from err
        warnings += row.warnings
    log_warnings(first_warnings([warnings]))
    if not sums.settings:
        raise ValueError("the session holds no frames")
    sums.check_alignment()
    height, width = sums.shape
    for file, size in sizes:
        if size != (width, height):  # its region and flips would be wrong
            stated = "{}x{}".format(*size)
            raise FrameError("size", f"the frames have {width}x{height} pixels, and {file} states {stated}")
    return sums


# ------------------------------------------------------------------------------------------------------------- folders


def _pictures(folder: Path) -> List[Path]:
    """List the pictures in a folder and its subfolders in natural order, and recordings of `capture`."""
    paths = (path for level in _LEVELS for path in folder.glob(level))
    frames = (path for path in paths if path.suffix.lower() in SUFFIXES or path.name == FRAMES_FILE)
    visible = (path for path in frames if not any(map(is_hidden, path.relative_to(folder).parts)))
    return sorted((path for path in visible if path.is_file()), key=natural_order)


def _count(file: Path, max_bytes: int) -> int:
    """Return the number of frames in a picture or a recording of `capture`."""
    if file.name != FRAMES_FILE:
        return 1
    with open_source(file, max_bytes=max_bytes) as source:
        return source.total


def _read(setting: str, file: Path, options: Options, max_bytes: int) -> Iterator[SessionFrame]:
    """Yield the frames in a picture or a recording of `capture`."""
    if file.name != FRAMES_FILE:
        yield _checked(setting, str(file), read_picture(file, max_bytes, stated=_MOSAICS), options)
        return
    with open_source(file, max_bytes=max_bytes) as source:
        for index, record in enumerate(source.records):
            yield _checked(setting, f"frame {index} of {file}", record.image(), options, record.camera_info)


def _named(folder: Path) -> _Pictures:
    """Return the pictures in a folder, with settings and angles by their names."""
    pictures: _Pictures = []
    for file in _pictures(folder):
        parts = [part.lower() for part in file.relative_to(folder).parts[:-1]]
        is_dark = DARK in parts or file.stem.lower().startswith(DARK)
        setting = DARK if is_dark else _setting(file, folder)
        angle = _ANGLE.fullmatch(setting)
        if not any(map(is_left_out, parts)):
            pictures.append((setting, float(angle.group(1)) if angle else None, file))
    if not pictures:
        raise SourceError(
            f"{folder} holds no pictures ({', '.join(SUFFIXES)}), neither in dark nor in folders of angles"
        )
    return pictures


def _setting(file: Path, folder: Path) -> str:
    """Return the name of a setting: the folder's name, or the part of the file's name before the last `_`.

    In `flat`, folders and such parts of file names are levels of light.
    """
    *_, outer, inner = ["", ""] + [part.lower() for part in file.relative_to(folder).parts[:-1]]
    if FLAT in (outer, inner):
        level = file.stem.rpartition("_")[0] if inner == FLAT else inner
        return f"{FLAT}/{level}" if level else FLAT
    if file.parent != folder and file.parent.name.lower() not in _PLAIN:
        return file.parent.name
    return file.stem.rpartition("_")[0] or file.stem


def _listed(folder: Path, table: AngleTable) -> _Pictures:
    """Return the pictures that a table lists, and those in `dark` if it lists no dark ones."""
    if table.columns != FILES:
        raise ValueError("the table of angles of a folder of pictures has columns file and angle")
    pictures: _Pictures = []
    for row in table.rows:
        path = folder / row.name
        if not path.exists():
            raise SourceError(f"{printable(str(path))}, in the table of angles, does not exist")
        files = _pictures(path) if path.is_dir() else [path]
        if not files:
            raise SourceError(f"{printable(str(path))}, in the table of angles, holds no pictures")
        for file in files:
            name = path.name if path.is_dir() else _setting(file, folder)
            pictures.append((row.setting(name), row.angle, file))
    if not any(row.kind == DARK for row in table.rows):
        pictures = [(DARK, None, file) for file in _pictures(folder / DARK)] + pictures
    return pictures


# ---------------------------------------------------------------------------------------------------------- recordings


def _plateaus(path: Path, source: Source, options: Options) -> AngleTable:
    """Find the settings of a recording whose polarizer was turned in steps; their angles are unknown.

    Raises:
        FrameError: A frame cannot be read.
        ValueError: The recording has no plateaus of constant light.
    """
    light, times = [], []
    for record in source.records:
        image = record.image()
        frame = _mosaic(image, options, record.camera_info)
        light.append(sample_light(frame.mosaic, frame.full_scale))
        times.append(image.stamp_ns / 1e9)
    with errors_as(lambda text: ValueError(f"{path}: {text}, or give a table of its angles, --angles FILE.csv")):
        plateaus = find_plateaus(np.reshape(light, (-1, 2, 2)))
    names = [f"{times[first] - times[0]:.1f} to {times[last] - times[0]:.1f} s" for first, last, _ in plateaus]
    if len(set(names)) < len(names):  # without usable stamps
        names = [f"frames {first} to {last}" for first, last, _ in plateaus]
    return AngleTable(FRAMES, tuple(AngleRow(name, *plateau, None) for name, plateau in zip(names, plateaus)))


def _recorded(source: Source, table: AngleTable, options: Options) -> Iterator[SessionFrame]:
    """Yield the frames of a recording that a table gives a setting."""
    start_ns: Optional[int] = None
    empty = dict.fromkeys(table.rows)
    for index, record in enumerate(source.records):
        place, image = float(index), None
        if table.columns == SECONDS:
            image = record.image()
            start_ns = image.stamp_ns if start_ns is None else start_ns
            place = (image.stamp_ns - start_ns) / 1e9
        row = next((row for row in table.rows if row.first <= place <= row.last), None)
        if row is not None:
            empty.pop(row, None)
            name = f"frame {index} of {source.topic}"
            yield _checked(row.setting(row.name), name, image or record.image(), options, record.camera_info)
    if empty:
        columns, name = ",".join(table.columns[:2]), quoted(next(iter(empty)).name)
        raise ValueError(f"no frame of {source.topic} is from {name} ({columns} in the table of angles)")


def _checked(
    setting: str, name: str, image: ImageMessage, options: Options, camera_info: Optional[CameraInfo] = None
) -> SessionFrame:
    """Return the frame in a message with what looks wrong in it; how dark a frame of a session is does not matter.

    Raises:
        FrameError: The message cannot be used.
    """
    frame = _mosaic(image, options, camera_info)
    warnings = (row for row in check_frame(frame, options, image.warnings).warnings if row.cause != "dark")
    return SessionFrame(setting, name, frame, tuple(FrameWarning(row.cause, f"{name}: {row.text}") for row in warnings))


def _mosaic(image: ImageMessage, options: Options, camera_info: Optional[CameraInfo] = None) -> RawFrame:
    """Return the mosaic in a message; full scale is that of the options or the encoding, not what its bits tell."""
    frame = messages.to_raw(image, options, camera_info).unpack()
    if frame.is_split:
        raise FrameError("encoding", "a calibration is of a sensor's mosaic; these frames are split into angles")
    if camera_info is not None:
        messages.check_region(camera_info, options, frame.shape, is_exact=True)
    is_stated = options.bit_depth or options.calibrated_bits or ENCODINGS[image.encoding].bits < 16
    return frame if is_stated else RawFrame(frame.mosaic, SIXTEEN_BITS)
