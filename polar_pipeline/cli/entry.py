"""Entry point of the tool: finds the command, runs it, and turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, NoReturn, Optional, Sequence, Tuple

from polar_pipeline import __version__
from polar_pipeline._util.memory_limit import limited_memory
from polar_pipeline._util.text import printable
from polar_pipeline.cli.command import Command
from polar_pipeline.cli.errors import MAX_SHOWN, FailureError, TerminatedError, UsageError, show_error

#: Name of the tool.
_PROGRAM = "polar-pipeline"
#: Entries of a traceback that are shown.
_TRACE = 20
#: Exit code of a command whose reader closed the pipe, as of one that SIGPIPE ended.
_BROKEN_PIPE = 128 + signal.SIGPIPE


@dataclass(frozen=True)
class _Entry:
    """A command as the tool lists it; its module is imported only when it is used.

    Attributes:
        words: What the command line has, such as ("bench", "node").
        summary: One line for `--help`.
    """

    words: Tuple[str, ...]
    summary: str

    @property
    def module(self) -> str:
        """Name of the module in this package."""
        return self.words[0]


_COMMANDS = (
    _Entry(("replay",), "Process a recording, offline and deterministic."),
    _Entry(("batch",), "Process many recordings on all cores, GPUs or a cluster of Dask."),
    _Entry(("compress",), "Compress the raw images of a recording without loss; replay reads them as they are."),
    _Entry(("decompress",), "Make a recording of raw images of one that `compress` wrote."),
    _Entry(("play",), "Publish a recording into ROS."),
    _Entry(("view",), "Show a recording, pictures or a live topic in the Rerun viewer, or write a file for it."),
    _Entry(("process",), "Process one picture."),
    _Entry(("calibrate",), "Measure the calibration of a sensor with a rotated polarizer."),
    _Entry(("simulate",), "Write a synthetic calibration session, to try calibration without a laboratory."),
    _Entry(("layout",), "Check whether sensor, ROI offset and flips fit a picture."),
    _Entry(("plan",), "Show what a GPU would compute, in which launches, and how long it would take."),
    _Entry(("tune",), "Measure every schedule on this machine's GPU and keep the fastest."),
    _Entry(
        ("bench", "node"), "Measure the live node between a synthetic camera and a viewer, over the real middleware."
    ),
    _Entry(("env",), 'Print the environment variable that large frames need in ROS: eval "$(polar-pipeline env)".'),
    _Entry(("doctor",), "Show what is installed, which backends work, and why others do not."),
)
#: Commands that only hold others.
_GROUPS = {"bench": "How fast this machine is."}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors show arguments without control characters, and short."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message, MAX_SHOWN))


def main(args: Optional[Sequence[str]] = None) -> int:
    """Run the tool.

    Args:
        args: Command line, `sys.argv[1:]` by default.

    Returns:
        Exit code: 0; 1 where something failed or a comparison did not hold; 2 for wrong usage; 130 after Ctrl-C, 141
        after the reader of the output closed the pipe, and 143 after SIGTERM.
    """
    try:
        try:
            return _main(sys.argv[1:] if args is None else args)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, and not at exit, where an error cannot be caught
    except BrokenPipeError:  # as by `| head`
        _discard_output()
        return _BROKEN_PIPE
    except OSError as err:  # the disk that the output goes to is full
        _discard_output()
        show_error(f"{_PROGRAM}: {err}")
        return 1


def _main(args: Sequence[str]) -> int:
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        chosen = next((word for word in args if not word.startswith("-")), "")
        values = make_parser(chosen).parse_args(args)
        try:
            with limited_memory():
                code: int = values.run(values)
            return code
        except UsageError as err:
            show_error(f"{_PROGRAM} {values.command}: {err}")
            return 2
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        show_error(f"{_PROGRAM}: interrupted")
        return 130
    except TerminatedError:
        show_error(f"{_PROGRAM}: terminated")
        return 143
    except MemoryError as err:
        show_error(f"{_PROGRAM}: not enough memory{f': {err}' if str(err) else ''}")
        return 1
    except Exception as err:  # noqa: BLE001 - the last to see it
        _show_failure(err)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)


def make_parser(chosen: Optional[str] = None) -> argparse.ArgumentParser:
    """The parser of the command line.

    Args:
        chosen: First word of the only command that gets its arguments, since they need its module; by default all get
            theirs.
    """
    parser = _Parser(prog=_PROGRAM, description="Polarization imaging: recordings in, products out.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    top = parser.add_subparsers(dest="command", metavar="COMMAND")
    top.required = True
    groups: Dict[str, argparse._SubParsersAction[_Parser]] = {}
    for entry in _COMMANDS:
        *group, name = entry.words
        if group and group[0] not in groups:
            groups[group[0]] = top.add_parser(group[0], help=_GROUPS[group[0]]).add_subparsers(metavar="COMMAND")
            groups[group[0]].required = True
        parsers = groups[group[0]] if group else top
        subparser = parsers.add_parser(name, help=entry.summary, description=entry.summary)
        if chosen in (None, entry.words[0]):
            command = _load(entry)
            command.add_arguments(subparser)
            subparser.set_defaults(run=command.run)
    return parser


def _load(entry: _Entry) -> Command:
    """Import a command.

    Raises:
        SystemExit: NumPy, OpenCV or another library is missing or broken; the message says what helps.
    """
    try:
        command: Command = importlib.import_module(f"polar_pipeline.cli.{entry.module}").COMMAND
    except (ImportError, AttributeError, RuntimeError, ValueError) as err:  # missing, or built for another NumPy
        from polar_pipeline.doctor.deployment import remedy

        sys.exit(f"{_PROGRAM}: " + "; ".join(filter(None, (str(err), remedy(err)))))
    return command


def _show_failure(err: Exception) -> None:
    """Print an error that ended a command: a line, or the traceback of a defect of this package."""
    if _is_expected(err):
        show_error(f"{_PROGRAM}: {err}")
    elif _is_of_a_library(err):
        show_error(f"{_PROGRAM}: {type(err).__name__}: {err}")
    else:
        show_error(traceback.format_exc(limit=-_TRACE))
        show_error(f"{_PROGRAM}: this is a defect of polar_pipeline {__version__}; please report the lines above")


def _is_expected(err: Exception) -> bool:
    """Whether the text of an error says enough by itself."""
    if isinstance(err, (FailureError, OSError, RuntimeError, ImportError)):
        return True
    from polar_pipeline.replay.limits import SourceError
    from polar_pipeline.sensor.frames import FrameError

    return isinstance(err, (SourceError, FrameError))


def _is_of_a_library(err: Exception) -> bool:
    """Whether an error says that data or the machine are at fault, and not this package.

    OpenCV's own errors and numbers beyond all bounds do. An AttributeError does where it was raised in another package,
    as by readers that find something else than they expect. All others, such as AssertionError, TypeError and KeyError,
    are defects of this package: what damaged files raise has become a `SourceError` before.
    """
    import cv2

    if isinstance(err, (cv2.error, OverflowError)):
        return True
    where = traceback.extract_tb(err.__traceback__)[-1].filename
    return isinstance(err, AttributeError) and Path(__file__).parents[1] not in Path(where).parents


def _discard_output() -> None:
    """Send what is left in the buffers of stdout and stderr to the null device, or Python complains at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # noqa: PERF203
            with Path(os.devnull).open("wb") as null:
                os.dup2(null.fileno(), stream.fileno())


def _terminate(*_: object) -> NoReturn:
    raise TerminatedError
