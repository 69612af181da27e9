"""`polar-pipeline calibrate`: the calibration of a sensor from frames of a rotated polarizer."""

from __future__ import annotations

import argparse
import math
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from polar_pipeline._util.files import check_absent, replacing
from polar_pipeline._util.progress import with_bar
from polar_pipeline._util.stop_flag import signals_held_back
from polar_pipeline._util.text import printable
from polar_pipeline.calibration import Calibration, save_calibration
from polar_pipeline.cli.argument_types import parse_number, parse_path
from polar_pipeline.cli.errors import FailureError, UsageError, errors_as, show_error
from polar_pipeline.cli.option_arguments import add_pipeline_arguments
from polar_pipeline.cli.outputs import check_output_files, report_path
from polar_pipeline.cli.shared_arguments import add_shared_arguments
from polar_pipeline.options import OPTIONS, make_options
from polar_pipeline.tools.calibrate.check import check_calibration, describe_check, in_halves
from polar_pipeline.tools.calibrate.make import (
    NOTES,
    UNKNOWN,
    CalibrationError,
    SessionArgumentError,
    make_calibration,
    recorded_arguments,
)
from polar_pipeline.tools.calibrate.polarizer import ANGLE_ERROR
from polar_pipeline.tools.calibrate.report import is_of_unwritten_calibration
from polar_pipeline.tools.calibrate.session import add_frames, open_sessions

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
    if values.check is not None:
        return _check(values)
    if values.output.suffix.lower() != ".npz":
        raise UsageError(f"the output is an .npz file, got {values.output}")
    html = report_path(values.report, values.output)
    outputs = [path for path in (values.output, html) if path is not None]
    check_output_files(outputs, [*values.sources, _table(values)])
    check_absent(values.output, values.force)  # before minutes of work
    calibration: Optional[Calibration] = None
    with ExitStack() as stack:
        stream = None
        if html is not None:
            stream = stack.enter_context(replacing(html, values.force or is_of_unwritten_calibration(html)))
        with _errors():
            try:
                calibration, report = make_calibration(
                    values.sources,
                    **_stated(values),
                    angles=values.angles,
                    angle_error=values.angle_error,
                    polarizer_extinction=values.polarizer_extinction,
                    flat_field=values.flat_field,
                    accept_bad=values.accept_bad,
                    topic=values.topic,
                    max_bytes=values.max_bytes,
                )
            except CalibrationError as err:
                report = err.report
        if stream is not None:
            stream.write(report.html().encode())
            stream.flush()  # a disk that is full leaves neither file
        with signals_held_back():  # a signal between the two would leave a calibration without its report
            if calibration is not None:
                save_calibration(values.output, calibration, values.force)
            stack.close()
    for text in report.warnings:
        show_error(f"warning: {text}")
    for text in report.problems:
        show_error(f"error: {text}")
    print(report)
    if calibration is not None:
        print(f"wrote {printable(str(values.output))}: {calibration.describe()}")
    if html is not None:
        print(f"wrote {printable(str(html))}")
    if calibration is None:
        raise FailureError("no calibration is written, it would be worse than none; --accept-bad writes it")
    return 0


@contextmanager
def _errors() -> Iterator[None]:
    """Turn errors of a session into those of the command."""
    with errors_as(FailureError), errors_as(UsageError, SessionArgumentError):
        yield


def _stated(values: argparse.Namespace) -> Dict[str, Any]:
    """Return the options of the frames and the facts about the camera that the command line states."""
    names = [*(row.name for row in OPTIONS.values() if row.group == "frame"), *NOTES]
    return {name: getattr(values, name) for name in names if getattr(values, name, None) is not None}


def _table(values: argparse.Namespace) -> Optional[Path]:
    """Return the table of angles that the command line names."""
    return None if values.angles == Path(UNKNOWN) else values.angles


def _check(values: argparse.Namespace) -> int:
    """Evaluate an existing calibration; returns the exit code.

    Raises:
        UsageError: An argument would do nothing.
    """
    for name, default in _NOT_FOR_CHECK.items():
        if getattr(values, name) != default:
            raise UsageError(f"--check takes no --{name.replace('_', '-')}")
    with _errors():
        state = recorded_arguments(values.sources, _stated(values), values.topic, values.max_bytes)
        options = state.options
        checked = make_options(sensor=options.sensor, roi_offset=options.roi_offset, calibration=values.check)
        assert checked.calibration is not None
        options = replace(options, calibration=checked.calibration)  # it states how many bits are used
        with open_sessions(values.sources, options, _table(values), False, values.topic, values.max_bytes) as session:
            sums = add_frames(with_bar(in_halves(session.frames), session.total), options, state.sizes)
        result = check_calibration(checked.calibration, sums, session.angles, options.roi_offset)
    for line in describe_check(result):
        print(line)
    return 0 if result.ratio > 1 else 1
