"""`polar-pipeline calibrate`: the calibration of a sensor from frames of a rotated polarizer."""

from __future__ import annotations

import argparse
import math
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Dict, Iterable, Iterator, Optional, Tuple

import numpy as np

from polar_pipeline._util.files import check_absent, replacing
from polar_pipeline._util.progress import with_bar
from polar_pipeline._util.stop_flag import signals_held_back
from polar_pipeline._util.text import printable
from polar_pipeline.calibration import save_calibration
from polar_pipeline.camera.recorded import recorded_region, recorded_state
from polar_pipeline.cli.argument_types import parse_number, parse_path
from polar_pipeline.cli.errors import FailureError, UsageError, errors_as, show_error
from polar_pipeline.cli.option_arguments import add_pipeline_arguments, requested_options
from polar_pipeline.cli.outputs import check_output_files, report_path
from polar_pipeline.cli.shared_arguments import add_shared_arguments
from polar_pipeline.options import OPTIONS, Options, make_options
from polar_pipeline.sensor.frames import FrameError
from polar_pipeline.tools.calibrate.captured import agrees, captured_state, frame_arguments
from polar_pipeline.tools.calibrate.check import check_calibration, describe_check, in_halves
from polar_pipeline.tools.calibrate.defects import CAUSES
from polar_pipeline.tools.calibrate.estimate import CalibrationResult, calibrate
from polar_pipeline.tools.calibrate.polarizer import ANGLE_ERROR
from polar_pipeline.tools.calibrate.report import is_of_unwritten_calibration, render_calibration
from polar_pipeline.tools.calibrate.session import SessionFrame, add_frames, open_sessions
from polar_pipeline.tools.calibrate.sums import SessionSums

#: File with the state of a camera -> the (width, height) of frames in it.
_Sizes = Dict[Path, Tuple[int, int]]
#: Value of --angles for which names are no angles.
_UNKNOWN = Path("unknown")
#: Arguments of a new calibration alone, and what they are if they are not given.
_NOT_FOR_CHECK = {
    "force": False,
    "accept_bad": False,
    "report": None,
    "angle_error": ANGLE_ERROR,
    "polarizer_extinction": math.inf,
    "flat_field": False,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    parser.add_argument(
        "sources",
        type=parse_path,
        nargs="+",
        metavar="FRAMES",
        help="folders of pictures: dark frames in 'dark', constant light without a polarizer in 'flat', other frames "
        "in folders or files named by the polarizer's angle in degrees (045.0_3.png); or recordings, in which the "
        "polarizer is turned in steps. All together are one session: its camera and lens do not change",
    )
    output = parser.add_mutually_exclusive_group(required=True)
    output.add_argument("-o", "--output", type=parse_path, metavar="FILE.npz", help="calibration to write")
    output.add_argument(
        "--check",
        type=parse_path,
        metavar="FILE.npz",
        help="calibration to evaluate on these frames, instead of measuring one: exit status 0 if frames are better "
        "with it than without. A folder 'unpolarized' has frames without a polarizer; dark frames are optional",
    )
    parser.add_argument(
        "--accept-bad", action="store_true", help="write the calibration even if it would make images worse than none"
    )
    parser.add_argument(
        "--report",
        type=parse_path,
        metavar="FILE.html",
        help="report to write (default: FILE.html beside FILE.npz; - for none)",
    )
    parser.add_argument(
        "--angles",
        type=parse_path,
        metavar="FILE.csv",
        help="table of polarizer angles with the columns file,angle; for a recording first,last,angle (frame numbers) "
        "or start,end,angle (seconds). Angles may be 'dark', 'flat' and 'unknown'. The word 'unknown' instead of a "
        "table: names only group frames (default: a folder's angles.csv, or its names; in a recording the frames "
        "between which the light does not change, at unknown angles)",
    )
    parser.add_argument(
        "--angle-error",
        type=partial(parse_number, lowest=1e-3, highest=90),
        default=_NOT_FOR_CHECK["angle_error"],
        metavar="DEGREES",
        help="standard deviation of the given angles (default: %(default)s)",
    )
    parser.add_argument(
        "--polarizer-extinction",
        type=partial(parse_number, lowest=2),
        default=_NOT_FOR_CHECK["polarizer_extinction"],
        metavar="RATIO",
        help="extinction ratio of the polarizer before the lens, as on its data sheet (default: ideal)",
    )
    parser.add_argument(
        "--flat-field", action="store_true", help="also correct lens shading and uneven light of the lamp"
    )
    parser.add_argument(
        "--temperature", type=parse_number, metavar="C", help="temperature of the sensor, stored in the file"
    )
    parser.add_argument(
        "--exposure", type=partial(parse_number, lowest=0), metavar="MS", help="exposure time, stored in the file"
    )
    parser.add_argument("--gain-db", type=parse_number, metavar="DB", help="gain of the camera, stored in the file")
    add_shared_arguments(parser, "--force", "--topic", "--max-mb", "--strict")
    add_pipeline_arguments(parser, ("frame",))


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    sizes = _add_captured(values)
    options = requested_options(values, ("intensity",))
    if values.check is not None:
        return _check(values, options, sizes)
    if values.output.suffix.lower() != ".npz":
        raise UsageError(f"the output is an .npz file, got {values.output}")
    report = report_path(values.report, values.output)
    outputs = [path for path in (values.output, report) if path is not None]
    check_output_files(outputs, [*values.sources, _table(values)])
    check_absent(values.output, values.force)  # before minutes of work
    with ExitStack() as stack:
        html = None
        if report is not None:
            html = stack.enter_context(replacing(report, values.force or is_of_unwritten_calibration(report)))
        with errors_as(FailureError):
            result = _result(values, options, sizes)
        doubtful = (row for row in result.advice if row.is_problem and row.option)
        missing = [row.text for row in doubtful if not hasattr(values, row.option)]
        if missing:
            raise UsageError("\n".join(missing))
        is_written = values.accept_bad or not result.problems
        if html is not None:
            title = ", ".join(path.resolve().name for path in values.sources)
            html.write(render_calibration(result, title, is_written).encode())
            html.flush()  # a disk that is full leaves neither file
        with signals_held_back():  # a signal between the two would leave a calibration without its report
            if is_written:
                save_calibration(values.output, result.calibration, values.force)
            stack.close()
    for text in result.warnings:
        show_error(f"warning: {text}")
    for text in result.problems:
        show_error(f"error: {text}")
    for line in summary(result):
        print(line)
    if is_written:
        print(f"wrote {printable(str(values.output))}: {result.calibration.describe()}")
    if report is not None:
        print(f"wrote {printable(str(report))}")
    if not is_written:
        raise FailureError("no calibration is written, it would be worse than none; --accept-bad writes it")
    return 0


def _add_captured(values: argparse.Namespace) -> _Sizes:
    """Add the arguments that the state of the camera beside or in captured frames tells, where there are none.

    Returns:
        The sizes of the frames that it states.

    Raises:
        UsageError: An argument contradicts it.
    """
    with errors_as(FailureError):
        session = captured_state(values.sources)
        states = {path: recorded_state(path) for path in values.sources}
        statements = [(session.file, frame_arguments(session.facts))] if session else []
        statements += [(path, state.options()) for path, state in states.items() if state]
        for path in (path for path, state in states.items() if not state):
            statements.append((path, recorded_region(vars(values), path, values.topic, values.max_bytes)))
    sizes = {session.file: session.facts.size} if session else {}
    sizes.update({path: state.size for path, state in states.items() if state})
    for file, name, value in ((file, *item) for file, arguments in statements for item in arguments.items()):
        argument = getattr(values, name, None)
        if argument is None:
            setattr(values, name, value)
            continue
        with errors_as(UsageError):
            is_same = (OPTIONS[name].is_same if name in OPTIONS else agrees)(argument, value)
        if not is_same:
            raise UsageError(f"--{name.replace('_', '-')} {argument} contradicts {file}: {value}")
    return sizes


def _table(values: argparse.Namespace) -> Optional[Path]:
    """Return the table of angles that the command line names."""
    return None if values.angles == _UNKNOWN else values.angles


def _sums(frames: Iterable[SessionFrame], total: int, options: Options, sizes: _Sizes) -> SessionSums:
    """Sum the frames of a session.

    Raises:
        FrameError: A frame does not fit the others, or cannot be read, or the frames have another size than stated.
        ValueError: There are none.
    """
    sums = add_frames(with_bar(frames, total), options)
    height, width = sums.shape
    for file, size in sizes.items():
        if size != (width, height):  # its region and flips would be wrong
            stated = "{}x{}".format(*size)
            raise FrameError("size", f"the frames have {width}x{height} pixels, and {file} states {stated}")
    return sums


def _result(values: argparse.Namespace, options: Options, sizes: _Sizes) -> CalibrationResult:
    is_unknown = values.angles == _UNKNOWN
    with open_sessions(
        values.sources, options, _table(values), not is_unknown, values.topic, values.max_bytes
    ) as session:
        sums = _sums(session.frames, session.total, options, sizes)
    notes = {name: getattr(values, name) for name in ("temperature", "exposure", "gain_db")}
    return calibrate(
        sums,
        dict.fromkeys(session.angles) if is_unknown else session.angles,
        options.sensor,
        options.roi_offset if hasattr(values, "roi_offset") else None,
        values.flat_field,
        {name: value for name, value in notes.items() if value is not None},
        angle_error=values.angle_error,
        polarizer_extinction=values.polarizer_extinction,
    )


def _check(values: argparse.Namespace, options: Options, sizes: _Sizes) -> int:
    """Evaluate an existing calibration; returns the exit code.

    Raises:
        UsageError: An argument would do nothing.
    """
    for name, default in _NOT_FOR_CHECK.items():
        if getattr(values, name) != default:
            raise UsageError(f"--check takes no --{name.replace('_', '-')}")
    with errors_as(FailureError):
        checked = make_options(sensor=options.sensor, roi_offset=options.roi_offset, calibration=values.check)
        assert checked.calibration is not None
        options = replace(options, calibration=checked.calibration)  # it states how many bits are used
        with open_sessions(values.sources, options, _table(values), False, values.topic, values.max_bytes) as session:
            sums = _sums(in_halves(session.frames), session.total, options, sizes)
        result = check_calibration(checked.calibration, sums, session.angles, options.roi_offset)
    for line in describe_check(result):
        print(line)
    return 0 if result.ratio > 1 else 1


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
