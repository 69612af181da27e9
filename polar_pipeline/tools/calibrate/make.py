"""From the frames of a session to a calibration and its report, in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Literal, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.files import replacing
from polar_pipeline._util.paths import AnyPath, as_path
from polar_pipeline._util.progress import with_bar
from polar_pipeline._util.values import number, real
from polar_pipeline.calibration import Calibration
from polar_pipeline.camera.recorded import recorded_region, recorded_state, warn_of_nonlinearity
from polar_pipeline.options import OPTIONS, Options, make_options
from polar_pipeline.recordings.limits import MAX_BYTES
from polar_pipeline.sensor.mosaic import Sensor
from polar_pipeline.tools.calibrate.captured import agrees, captured_state, frame_arguments
from polar_pipeline.tools.calibrate.defects import CAUSES
from polar_pipeline.tools.calibrate.estimate import CalibrationResult, calibrate
from polar_pipeline.tools.calibrate.polarizer import ANGLE_ERROR
from polar_pipeline.tools.calibrate.report import is_of_unwritten_calibration, render_calibration
from polar_pipeline.tools.calibrate.session import add_frames, open_sessions

#: Value of `angles` for which names are no angles.
UNKNOWN = "unknown"
#: Facts about the camera that a calibration only stores.
NOTES = ("temperature", "exposure", "gain_db")
#: Ranges of numbers about the polarizer: degrees, and ratio.
_ANGLE_ERRORS, _EXTINCTIONS = (1e-3, 90.0), (2.0, math.inf)


class SessionArgumentError(ValueError):
    """An argument that is missing, not allowed, or contradicts the recorded state of the camera."""


class CalibrationError(ValueError):
    """A calibration that would make images worse than none; `report` says why."""

    def __init__(self, report: CalibrationReport) -> None:
        problems = "\n".join(report.problems)
        super().__init__(f"the calibration would be worse than none; accept_bad=True returns it:\n{problems}")
        self.report = report


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """How a calibration was measured, and how good it is; `str(report)` is its summary.

    Attributes:
        result: The calibration with its diagnostics, by pixel and by setting.
        title: Names of the session.
        is_accepted: Whether the calibration is better than none, or was accepted nevertheless.
    """

    result: CalibrationResult
    title: str
    is_accepted: bool

    @property
    def warnings(self) -> List[str]:
        """What makes the calibration less exact than it could be, and what to do."""
        return self.result.warnings

    @property
    def problems(self) -> List[str]:
        """What makes the calibration worse than none, and what to do; none of a good one."""
        return self.result.problems

    def __str__(self) -> str:
        return "\n".join(summary(self.result))

    def html(self) -> str:
        """Render the report as a page without links to other files."""
        return render_calibration(self.result, self.title, self.is_accepted)

    def save(self, path: AnyPath, force: bool = False) -> None:
        """Write the report as an HTML file: complete, or not at all.

        Args:
            path: The file.
            force: Whether to replace a file that exists. The report of a calibration that was not accepted is replaced
                always.

        Raises:
            OSError: The file cannot be written; `FileExistsError` if there is one already.
        """
        path = as_path(path)
        with replacing(path, force or is_of_unwritten_calibration(path)) as stream:
            stream.write(self.html().encode())


def make_calibration(
    session: Union[AnyPath, Sequence[AnyPath]],
    *,
    sensor: Union[str, Sensor, None] = None,
    bit_depth: Optional[int] = None,
    alignment: Optional[Literal["lsb", "msb"]] = None,
    roi_offset: Optional[Tuple[int, int]] = None,
    flip: Optional[Tuple[bool, bool]] = None,
    angles: Optional[AnyPath] = None,
    angle_error: float = ANGLE_ERROR,
    polarizer_extinction: float = math.inf,
    flat_field: bool = False,
    accept_bad: bool = False,
    temperature: Optional[float] = None,
    exposure: Optional[float] = None,
    gain_db: Optional[float] = None,
    topic: str = "",
    max_bytes: int = MAX_BYTES,
) -> Tuple[Calibration, CalibrationReport]:
    """Calibrate a sensor from frames of a rotated polarizer, as `polar-pipeline calibrate` does.

    Examples:
        >>> calibration, report = make_calibration("session", bit_depth=12, roi_offset=(0, 0))
        >>> print(report)
        >>> pipeline = Pipeline(calibration=calibration)

    Args:
        session: Folder of pictures, or recording, in which the polarizer is turned in steps; or several, which are one
            session. `docs/calibration_sessions.md` says what they hold.
        sensor: Mosaic of the sensor. It and the next four arguments are options of `Pipeline`. By default they are
            those that the frames were recorded with, if a file states it, else the option's default.
        bit_depth: Significant bits of 16-bit pixels.
        alignment: Position of these bits.
        roi_offset: (x, y) of the frames' first pixel on the sensor. Frames that are smaller than the sensor need it.
        flip: Mirrored readout, (ReverseX, ReverseY).
        angles: Table of the polarizer's angles, a CSV file; or `unknown`, if names of files only group frames. By
            default a folder's `angles.csv`, or its names; in a recording angles are unknown.
        angle_error: Standard deviation of the given angles in degrees, 0.001 to 90.
        polarizer_extinction: Extinction ratio of the polarizer before the lens, at least 2; infinite if ideal.
        flat_field: Whether to correct the lens shading and the lamp too.
        accept_bad: Whether to return a calibration that would make images worse than none.
        temperature: Temperature of the sensor in degrees Celsius, which the calibration stores.
        exposure: Exposure time in ms, which it stores.
        gain_db: Gain of the camera in dB, which it stores.
        topic: Topic of the images in recordings.
        max_bytes: Largest size of a frame.

    Returns:
        The calibration, for `Pipeline` and `polar_pipeline.calibration.save_calibration`; and its report, whose
        `warnings` are worth reading.

    Raises:
        SessionArgumentError: An argument is missing, not allowed, or contradicts the recorded state of the camera.
        CalibrationError: The calibration would make images worse than none; it has the report.
        ValueError: Frames, angles or light do not suffice, or a frame cannot be used; the message says what helps.
        SourceError: A recording cannot be read.
    """
    paths = [as_path(path) for path in ([session] if isinstance(session, (str, Path)) else session)]
    if not paths:
        raise SessionArgumentError("session must name a folder or a recording, got none")
    frame = {"sensor": sensor, "bit_depth": bit_depth, "alignment": alignment, "roi_offset": roi_offset, "flip": flip}
    notes = {"temperature": temperature, "exposure": exposure, "gain_db": gain_db}
    with errors_as(SessionArgumentError):
        angle_error = number("angle_error", angle_error, *_ANGLE_ERRORS)
        polarizer_extinction = number("polarizer_extinction", polarizer_extinction, *_EXTINCTIONS)
        stored = {name: real(name, value) for name, value in notes.items() if value is not None}
    stated = {name: value for name, value in frame.items() if value is not None}
    state = recorded_arguments(paths, {**stated, **stored}, topic, max_bytes)
    is_unknown = str(angles) == UNKNOWN
    table = None if angles is None or is_unknown else as_path(angles)
    with open_sessions(paths, state.options, table, not is_unknown, topic, max_bytes) as opened:
        sums = add_frames(with_bar(opened.frames, opened.total), state.options, state.sizes)
    result = calibrate(
        sums,
        dict.fromkeys(opened.angles) if is_unknown else opened.angles,
        state.options.sensor,
        state.options.roi_offset if "roi_offset" in state.arguments else None,
        flat_field,
        {name: state.arguments[name] for name in NOTES if name in state.arguments},
        angle_error=angle_error,
        polarizer_extinction=polarizer_extinction,
    )
    doubtful = (row for row in result.advice if row.is_problem and row.option)
    missing = [row.text for row in doubtful if row.option not in state.arguments]
    if missing:
        raise SessionArgumentError("\n".join(missing))
    title = ", ".join(path.resolve().name for path in paths)
    report = CalibrationReport(result, title, accept_bad or not result.problems)
    if not report.is_accepted:
        raise CalibrationError(report)
    return result.calibration, report


class RecordedArguments(NamedTuple):
    """What is stated about the frames of a session.

    Attributes:
        arguments: Options of the frames and `NOTES`, by name; those that nobody states are left out.
        options: The options of the frames.
        sizes: Files with the state of a camera, and the (width, height) of frames in it.
    """

    arguments: Dict[str, Any]
    options: Options
    sizes: List[Tuple[Path, Tuple[int, int]]]


def recorded_arguments(
    paths: Sequence[Path], stated: Mapping[str, object], topic: str = "", max_bytes: int = MAX_BYTES
) -> RecordedArguments:
    """Complete what a caller states by the state of the camera beside or in frames.

    Args:
        paths: Folders and recordings.
        stated: Options of the frames and `NOTES`, by name.
        topic: Topic of the images in recordings.
        max_bytes: Largest size of a frame.

    Raises:
        SessionArgumentError: An argument is not allowed, or contradicts the state.
        ValueError: The state cannot be read, or differs between files.
    """
    session = captured_state(paths)
    states = {path: recorded_state(path) for path in paths}
    statements = [(session.file, frame_arguments(session.facts))] if session else []
    statements += [(path, state.options()) for path, state in states.items() if state]
    for path in (path for path, state in states.items() if not state):
        statements.append((path, recorded_region(dict(stated), path, topic, max_bytes)))
    for file, facts in [*([(session.file, session.facts)] if session else []), *states.items()]:
        warn_of_nonlinearity(file, facts)
    arguments = dict(stated)
    for file, name, value in ((file, *item) for file, values in statements for item in values.items()):
        if name not in arguments:
            arguments[name] = value
            continue
        own = arguments[name]
        with errors_as(SessionArgumentError):
            is_same = (OPTIONS[name].is_same if name in OPTIONS else agrees)(own, value)
        if not is_same:
            raise SessionArgumentError(f"--{name.replace('_', '-')} {own} contradicts {file}: {value}")
    with errors_as(SessionArgumentError):
        options = make_options(
            products="intensity", **{name: value for name, value in arguments.items() if name in OPTIONS}
        )
    sizes = [(session.file, session.facts.size)] if session else []
    sizes += [(path, state.size) for path, state in states.items() if state]
    return RecordedArguments(arguments, options, sizes)


def summary(result: CalibrationResult) -> Iterator[str]:
    """Yield the lines that summarize the result."""
    height, width = result.calibration.shape
    used = result.causes == 0
    yield (
        f"{len(result.frames)} settings of the polarizer with {sum(result.frames.values())} frames, "
        f"{result.dark_frames} dark frames, {width}x{height} pixels, {result.calibration.bit_depth} bit"
    )
    black = f"black level {np.mean(result.black[used]):.2%} +-{np.std(result.black[used]):.2%} of full scale"
    if result.polarizer is not None:
        yield (
            f"pixels: gain +-{np.std(result.gain[used]):.2%}, angle {np.mean(result.angle[used]):+.2f} "
            f"+-{np.std(result.angle[used]):.2f} degrees, extinction ratio "
            f"{np.median(result.extinction[used]):.0f}, {black}"
        )
    else:
        yield f"no polarizer: gains and angles are those of an ideal sensor; {black}"
    if result.noise is not None:
        yield f"noise: full well {result.noise.full_well:.0f} electrons, read noise {result.noise.read_noise:.1f}"
    counts = {name: np.count_nonzero(result.causes >> k & 1) for k, name in enumerate(CAUSES)}
    listed = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    yield f"defective pixels: {np.count_nonzero(~used)}" + (f" ({listed})" if listed else "")
    if result.polarizer is not None:
        yield f"lamp: {result.polarizer.lamp.min() - 1:+.2%} to {result.polarizer.lamp.max() - 1:+.2%}"
    for row in result.errors:
        aolp = f", of AoLP {row.aolp_before:.2f} -> {row.aolp_error:.2f} degrees" if row.dolp else ""
        yield f"at DoLP {row.dolp:g}: error of DoLP {row.dolp_before:.4f} -> {row.dolp_error:.4f}{aolp}"
    if result.headline is not None:
        times = max(result.headline.dolp_before, 1e-6) / result.headline.dolp_error
        change = f"{times:.1f} times smaller" if times > 1 else f"{1 / times:.1f} times LARGER"
        yield f"errors of DoLP {result.headline.dolp:g} in uniform light become {change}"
