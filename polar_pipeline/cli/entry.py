"""Entry point of the tool: finds the command, runs it, and turns errors into messages and exit codes.

Each command is a module here with `add_arguments`, which adds its arguments to a parser, and `run`, which gets the
parsed arguments and returns the exit code: 0, or 1 where something failed or a comparison did not hold.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, Iterable, NoReturn, Optional, Sequence, Set

from polar_pipeline import __version__
from polar_pipeline._util.errors import lacks_memory
from polar_pipeline._util.imports import importing
from polar_pipeline._util.machine import with_remedy
from polar_pipeline._util.memory_limit import limited_memory
from polar_pipeline._util.streams import open_standard_streams
from polar_pipeline._util.text import failure
from polar_pipeline.cli.command_table import COMMAND_GROUPS, COMMANDS, Command
from polar_pipeline.cli.errors import FailureError, TerminatedError, UsageError, show_error, shown_warnings
from polar_pipeline.cli.parser import CommandParser

#: Name of the tool.
_PROGRAM = "polar-pipeline"
#: Entries of a traceback that are shown.
_TRACE = 20
#: Exit code of a command whose reader closed the pipe, as of one that SIGPIPE ended.
_BROKEN_PIPE = 128 + signal.SIGPIPE


def main(args: Optional[Sequence[str]] = None) -> int:
    """Run the tool.

    Args:
        args: Command line, `sys.argv[1:]` by default.

    Returns:
        Exit code: 0; 1 where something failed or a comparison did not hold; 2 for wrong usage; 130 after Ctrl-C, 141
        after the reader of the output closed the pipe, and 143 after SIGTERM.
    """
    open_standard_streams()
    os.environ.setdefault("OPENCV_LOG_LEVEL", "FATAL")  # errors of this tool say what OpenCV could not read
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        try:
            return _run(sys.argv[1:] if args is None else args)
        finally:
            sys.stdout.flush()  # here, and not at exit, where an error cannot be caught
    except BrokenPipeError:  # as by `| head`
        _discard_output()
        return _BROKEN_PIPE
    except OSError as err:  # the disk that the output goes to is full
        _discard_output()
        show_error(f"{_PROGRAM}: {failure(err)}")
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(args: Sequence[str]) -> int:
    """Run a command; errors become messages and exit codes."""
    command = _command_in(args)
    try:
        _complete()
        values = make_parser(command, "--help-all" in args).parse_args(args)
        with limited_memory(), shown_warnings(getattr(values, "strict", False)):
            code: int = values.run(values)
        return code
    except BrokenPipeError:
        raise
    except UsageError as err:
        show_error(f"{_PROGRAM} {command}: {err}")
        return 2
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


def _command_in(words: Iterable[str]) -> str:
    """Return the first word that is a command; "" if none is."""
    return next((word for word in words if word in COMMANDS), "")


def _complete() -> None:
    """If a shell asks for completions, answer by argcomplete where it is installed, which ends the process."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    try:
        with importing():
            import argcomplete
    except ImportError:
        return
    argcomplete.autocomplete(make_parser(_command_in(os.environ["COMP_LINE"].split())))


def make_parser(chosen: Optional[str] = None, shows_all: bool = True) -> argparse.ArgumentParser:
    """Create the parser of the command line.

    Args:
        chosen: The only command that gets its arguments, since they need its module; by default all get theirs.
        shows_all: Whether `--help` shows the arguments that are rarely used too.
    """
    parser = CommandParser(
        prog=_PROGRAM,
        usage=f"{_PROGRAM} [-h] [--version] COMMAND ...",
        description=f"Compute polarization images from the raw mosaics of polarization cameras.\n\n{_list_commands()}",
        epilog=f"{_PROGRAM} COMMAND --help shows the arguments of a command, and examples.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", prog=_PROGRAM, help=argparse.SUPPRESS)
    commands.required = True
    for name, row in COMMANDS.items():
        examples = "\n".join(["examples:", *(f"  {line}" for line in row.examples)]) if row.examples else None
        # modules have the names of the commands, and are imported only when they are used
        subparser = commands.add_parser(name, description=row.summary, epilog=examples)
        if chosen in (None, name):
            command = _load(name)
            command.add_arguments(subparser)
            subparser.set_defaults(run=command.run)
            if not shows_all:
                subparser.hide(_rare_arguments(row))
    return parser


def _list_commands() -> str:
    """List the commands in their groups, a line for each."""
    groups = (
        "\n".join([f"{title}:", *(f"    {name:10}  {row.summary}" for name, row in rows.items())])
        for title, rows in COMMAND_GROUPS.items()
    )
    return "\n\n".join(groups)


def _rare_arguments(command: Command) -> Set[str]:
    """Return the arguments that the short help of a command leaves out."""
    if command.options is None:
        return {*command.rare}
    from polar_pipeline.options import OPTIONS  # here: the list of commands does without NumPy

    of_pipeline = {name for name, row in OPTIONS.items() if row.group != "library"}
    return {*command.rare, *of_pipeline.difference(command.options)}


def _load(name: str) -> Any:
    """Import the module of a command.

    Raises:
        SystemExit: NumPy, OpenCV or another library is missing or broken; the message says what helps.
    """
    try:
        with importing():
            return importlib.import_module(f"polar_pipeline.cli.{name}")
    except ImportError as err:
        sys.exit(f"{_PROGRAM}: {with_remedy(err)}")


def _show_failure(err: Exception) -> None:
    """Print an error that ended a command: a line, or the traceback of a defect of this package.

    OpenCV's own errors and numbers beyond all bounds say that data or the machine are at fault. So does an
    AttributeError that was raised in another package, as by readers that find something else than they expect. All
    others, such as AssertionError, TypeError and KeyError, are defects: what damaged files raise has become a
    `SourceError` before.
    """
    import cv2

    from polar_pipeline.backends.backend import ScheduleError
    from polar_pipeline.recordings.limits import SourceError
    from polar_pipeline.sensor.frames import FrameError

    where = Path(traceback.extract_tb(err.__traceback__)[-1].filename)
    if isinstance(err, OSError):
        show_error(f"{_PROGRAM}: {failure(err)}")
    elif isinstance(err, (FailureError, RuntimeError, ImportError, SourceError, FrameError, ScheduleError)):
        show_error(f"{_PROGRAM}: {with_remedy(err)}")
    elif lacks_memory(err):
        show_error(f"{_PROGRAM}: not enough memory: {err}")
    elif isinstance(err, (cv2.error, OverflowError)) or (
        isinstance(err, AttributeError) and Path(__file__).parents[1] not in where.parents
    ):
        show_error(f"{_PROGRAM}: a library failed: {err}")
    else:
        show_error(traceback.format_exc(limit=-_TRACE))
        show_error(f"{_PROGRAM}: this is a defect of polar_pipeline {__version__}; please report the lines above")


def _discard_output() -> None:
    """Redirect buffered output of stdout and stderr to the null device, so that Python reports no error at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # noqa: PERF203
            with Path(os.devnull).open("wb") as null:
                os.dup2(null.fileno(), stream.fileno())


def _terminate(*_: object) -> NoReturn:
    raise TerminatedError
