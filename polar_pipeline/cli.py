"""The tool `polar-pipeline`: replay, play, params, process, layout, plan, tune, kernels, bench, doctor."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import sys
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, Iterable, List, NoReturn, Optional, Sequence, Tuple

try:
    import cv2
    import numpy as np
except (ImportError, AttributeError, RuntimeError, ValueError) as err:  # missing, or built for another NumPy
    from polar_pipeline.doctor.deployment import remedy

    sys.exit("polar-pipeline: " + "; ".join(filter(None, (str(err), remedy(err)))))
from tqdm import tqdm

from polar_pipeline import __version__
from polar_pipeline._util.files import check_outputs, replacing
from polar_pipeline._util.text import printable, printable_lines, quoted
from polar_pipeline.cuda.model.device import DEVICES
from polar_pipeline.cuda.model.schedule import ScheduleError
from polar_pipeline.cuda.model.tuned import tuned_folder
from polar_pipeline.cuda.model.work import RAW_FORMATS
from polar_pipeline.cuda.tools.report import plan_json, plan_report, plan_text
from polar_pipeline.cuda.tools.tune import tune
from polar_pipeline.cuda.tools.usage import get_device, usages
from polar_pipeline.doctor import checks as doctor
from polar_pipeline.options import CHOICES, LIMITS, Options, make_options
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.plan import LimitError
from polar_pipeline.products import DEFAULT_PRODUCTS, PRODUCTS, get_products
from polar_pipeline.quality.layout import check_layout, offsets_of_polarizer
from polar_pipeline.replay.compare import Comparison, Golden, ProductComparison, format_rows, open_golden
from polar_pipeline.replay.limits import MAX_BYTES, SourceError
from polar_pipeline.replay.picture import encode_picture
from polar_pipeline.replay.rawpicture import read_raw
from polar_pipeline.replay.report import Report, format_timings, render
from polar_pipeline.replay.run import Summary, replay
from polar_pipeline.replay.sink import open_sink
from polar_pipeline.replay.source import DEFAULT_RATE, RATES, is_recording, open_source, recording_of
from polar_pipeline.ros.bench_figures import format_figures
from polar_pipeline.sensor.frames import MAX_PIXELS, MAX_SIDE, MIN_SIDE, FrameError, as_frame
from polar_pipeline.sensor.mosaic import get_sensor

#: Highest --wait and --seconds: a day. Beyond, clocks and timers overflow.
DAY = 86400.0
#: Digits of the longest whole number that is taken for one.
_DIGITS = 18
#: Entries of a traceback that are shown.
_TRACE = 20
#: Characters of an error of one line that are shown; it may list what is allowed.
_SHOWN = 1000
#: Exit code of a command whose reader went away, as of one that SIGPIPE ended.
_BROKEN_PIPE = 128 + signal.SIGPIPE


class FailureError(Exception):
    """Something that could not be done; the text says what and why."""


class UsageError(Exception):
    """Options that do not exist or do not fit together."""


class TerminatedError(Exception):
    """SIGTERM, as an exception, so that nothing half written stays behind."""


class _Parser(argparse.ArgumentParser):
    """One whose errors quote arguments only as they may be shown."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message, _SHOWN))


def main(args: Optional[Sequence[str]] = None) -> int:
    """Run the tool.

    Args:
        args: Command line, `sys.argv[1:]` by default.

    Returns:
        Exit code: 0; 1 where something failed or a comparison did not hold; 2 for wrong usage; 130 after Ctrl-C, 141
        after the reader of the output went away, and 143 after SIGTERM.
    """
    try:
        try:
            return _main(args)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, and not at exit, where an error cannot be caught
    except BrokenPipeError:  # `| head` has seen enough
        _silence()
        return _BROKEN_PIPE
    except OSError as err:  # the disk that the output goes to is full
        _silence()
        _say_error(f"polar-pipeline: {err}")
        return 1


def _main(args: Optional[Sequence[str]]) -> int:
    parser = _parser()
    values = parser.parse_args(args)
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        code: int = values.run(values)
        return code
    except BrokenPipeError:
        raise
    except (FailureError, SourceError, FrameError, OSError, RuntimeError, ImportError) as err:
        _say_error(f"{parser.prog}: {err}")
        return 1
    except UsageError as err:
        _say_error(f"{parser.prog} {values.command}: {err}")
        return 2
    except KeyboardInterrupt:
        _say_error(f"{parser.prog}: interrupted")
        return 130
    except TerminatedError:
        _say_error(f"{parser.prog}: terminated")
        return 143
    except MemoryError as err:
        _say_error(f"{parser.prog}: not enough memory{f': {err}' if str(err) else ''}")
        return 1
    except Exception as err:  # noqa: BLE001 - the last to see it
        if _is_of_a_library(err):
            _say_error(f"{parser.prog}: {type(err).__name__}: {err}")
        else:
            _say_error(traceback.format_exc(limit=-_TRACE))
            _say_error(
                f"{parser.prog}: this is a defect of polar_pipeline {__version__}; please report the lines above"
            )
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_of_a_library(err: Exception) -> bool:
    """Whether an error says that data or the machine are at fault, and not this package.

    OpenCV's own errors and numbers beyond all bounds do. An AttributeError does where it comes out of the depths of
    another package, as from readers that find something else than they expect. All others, such as AssertionError,
    TypeError and KeyError, are defects of this package: what damaged files raise has become a `SourceError` before.
    """
    if isinstance(err, (cv2.error, OverflowError)):
        return True
    where = traceback.extract_tb(err.__traceback__)[-1].filename
    return isinstance(err, AttributeError) and Path(__file__).parent not in Path(where).parents


def _say_error(text: str) -> None:
    """Print an error, which may quote anything; of several lines, as a compiler's, or of one, which is kept short."""
    print(printable_lines(text) if "\n" in text else printable(text, _SHOWN), file=sys.stderr)


def _silence() -> None:
    """Lead what is left in the buffers of stdout and stderr nowhere, or Python complains about them at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # noqa: PERF203
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())


def _terminate(*_: Any) -> NoReturn:
    raise TerminatedError


# ----------------------------------------------------------------------------------------------------------- arguments


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="polar-pipeline", description="Polarization imaging: recordings in, products out.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.required = True

    command = _command(commands, _replay, "replay", "Process a recording, offline and deterministic.")
    _add_source_arguments(command)
    command.add_argument(
        "--rate", type=_rate, metavar="HZ", help=f"frames per second of pictures (default: {DEFAULT_RATE:g})"
    )
    command.add_argument("-o", "--output", type=Path, metavar="OUT.mcap", help="recording to write")
    command.add_argument("--force", action="store_true", help="replace files that exist")
    command.add_argument(
        "--report", type=Path, metavar="FILE.html", help="report to write (default: OUT.html; - for none)"
    )
    command.add_argument(
        "--compare", type=Path, metavar="GOLDEN.mcap", help="compare with a recording; exit 1 on a difference"
    )
    command.add_argument(
        "--tolerance",
        action="append",
        default=[],
        type=_tolerance,
        metavar="PRODUCT=VALUE",
        help="largest error allowed in --compare; AoLP in degrees, 8-bit images in levels",
    )
    command.add_argument(
        "--reference", type=Path, metavar="FILE.mcap", help="recording of 'intensity' for --ssim-mode reference"
    )
    command.add_argument(
        "--params",
        type=Path,
        metavar="FILE.yaml",
        help="parameters of the live node, such as a snapshot's, for all that the command line does not name",
    )
    _add_pipeline_arguments(command)

    command = _command(commands, _play, "play", "Publish a recording into ROS.")
    _add_source_arguments(command)
    command.add_argument(
        "--rate",
        type=_rate,
        metavar="HZ",
        help=f"frames per second (default: the recording's; {DEFAULT_RATE:g} for pictures)",
    )
    command.add_argument(
        "--to", default="image_raw", metavar="TOPIC", help="topic to publish on (default: %(default)s)"
    )
    command.add_argument("--loop", action="store_true", help="start again at the end")
    command.add_argument("--restamp", action="store_true", help="stamp frames as they are published, as a camera does")
    command.add_argument("--wait", type=_seconds, default=0.0, metavar="SECONDS", help="wait so long for a subscriber")

    group = commands.add_parser("params", help="Parameters of a running node.").add_subparsers(metavar="COMMAND")
    group.required = True
    command = _command(group, _dump_params, "dump", "Save the parameters of a running node as a YAML file.")
    command.add_argument("--node", default="/polar_pipeline", metavar="NAME", help="the node (default: %(default)s)")
    command.add_argument("--changed", action="store_true", help="only those that differ from their defaults")
    command.add_argument("-o", "--output", type=Path, metavar="FILE.yaml", help="file to write (default: print it)")
    command.add_argument("--force", action="store_true", help="replace a file that exists")
    command.add_argument(
        "--wait", type=_seconds, default=5.0, metavar="SECONDS", help="wait so long for the node (default: %(default)g)"
    )

    command = _command(commands, _process, "process", "Process one picture.")
    command.add_argument("image", type=Path, help="raw mosaic: PNG, TIFF, PGM or NPY, 8 or 16 bit")
    command.add_argument(
        "-o", "--output", type=Path, default=Path(), metavar="FOLDER", help="where to write (default: here)"
    )
    command.add_argument(
        "--format",
        choices=("tiff", "npy"),
        default="tiff",
        help="of float products; 8-bit ones are PNG. Channels are S0, S1, S2 or red, green, blue in this order; "
        "cv2.imread gives them the other way round (default: %(default)s)",
    )
    command.add_argument("--force", action="store_true", help="replace files that exist")
    _add_limit_argument(command)
    _add_pipeline_arguments(command, is_alone=True)

    command = _command(commands, _layout, "layout", "Whether sensor, ROI offset and flips fit a picture.")
    command.add_argument("image", type=Path, help="raw mosaic: PNG, TIFF, PGM or NPY, 8 or 16 bit")
    command.add_argument(
        "--polarizer",
        type=_angle,
        metavar="DEGREES",
        help="direction that a sheet polarizer before the camera lets through, from the picture's x axis "
        "counter-clockwise; best 0, 45, 90 or 135",
    )
    _add_limit_argument(command)
    _add_reading_arguments(command.add_argument_group("pipeline"))

    command = _command(
        commands, _plan, "plan", "What a GPU would compute, in which launches, and how long it would take."
    )
    command.add_argument("--device", choices=tuple(DEVICES), default="xavier", help="the GPU (default: %(default)s)")
    command.add_argument("--json", action="store_true", help="for programs")
    _add_frame_arguments(command)

    command = _command(commands, _tune, "tune", "Measure every schedule on this machine's GPU and keep the fastest.")
    command.add_argument("--device", required=True, help="name of this machine's GPU, and of the file written")
    _add_frame_arguments(command)

    command = _command(commands, _kernels, "kernels", "Compile every kernel, without a GPU; what each takes of one.")
    command.add_argument("--arch", default="sm_72", help="compute capability: sm_72 Xavier, sm_87 Orin, sm_90 H200")
    command.add_argument("--json", action="store_true", help="for programs")

    group = commands.add_parser("bench", help="How fast this machine is.").add_subparsers(metavar="COMMAND")
    group.required = True
    command = _command(
        group, _bench_node, "node", "The live node between a synthetic camera and a viewer, over the real middleware."
    )
    command.add_argument("--json", action="store_true", help="for programs; fields as ros2_benchmark names them")
    command.add_argument(
        "--seconds", type=_duration, default=10.0, help="of frames at --rate, and of frames at full speed (default: 10)"
    )
    command.add_argument("--rate", type=_rate, default=24.0, metavar="HZ", help="the camera's (default: 24)")
    command.add_argument(
        "--size", type=_size, default=(2448, 2048), metavar="WxH", help="of the raw frame (default: 2448x2048)"
    )
    command.add_argument("--sensor", default="IMX250MZR", help="the camera's (default: %(default)s)")
    command.add_argument("--backend", choices=CHOICES["backend"], default="auto", help="what computes (default: auto)")
    command.add_argument(
        "--products", type=_products, default=DEFAULT_PRODUCTS, metavar="NAMES", help="subscribed to, with commas"
    )

    command = _command(commands, _doctor, "doctor", "What is installed, which backends work, and why not.")
    command.add_argument("--json", action="store_true", help="for programs")
    return parser


def _command(commands: Any, run: Any, name: str, text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    command.set_defaults(run=run)
    return command


def _add_source_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        type=Path,
        help="rosbag2 folder, .mcap, .db3, ROS 1 .bag, or a folder of raw PNG, TIFF, PGM or NPY files",
    )
    parser.add_argument("--topic", default="", help="topic of the raw images in the recording (default: the only one)")
    _add_limit_argument(parser)


def _add_limit_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-mb",
        type=_max_mb,
        default=MAX_BYTES,
        dest="max_bytes",
        metavar="MB",
        help="most that one frame, and the chunks of a recording that are held at once, may take, uncompressed "
        f"(default: {MAX_BYTES >> 20})",
    )


def _add_frame_arguments(parser: argparse.ArgumentParser) -> None:
    """A kind of frame, and what to make of it."""
    parser.add_argument(
        "--size", type=_size, default=(2448, 2048), metavar="WxH", help="of the raw frame (default: 2448x2048)"
    )
    parser.add_argument(
        "--raw", choices=tuple(RAW_FORMATS), help="raw pixels (default: u8; u16 with a --bit-depth above 8)"
    )
    _add_option_arguments(parser.add_argument_group("pipeline"))


def _add_pipeline_arguments(parser: argparse.ArgumentParser, is_alone: bool = False) -> None:
    """The options of `Pipeline`; those not given keep its defaults."""
    group = parser.add_argument_group("pipeline")
    group.add_argument(
        "--backend", choices=CHOICES["backend"], default=argparse.SUPPRESS, help="what computes (default: auto)"
    )
    group.add_argument("--threads", type=_whole, default=argparse.SUPPRESS, help="CPU threads (default: one per core)")
    _add_option_arguments(group, is_alone)


def _add_option_arguments(group: Any, is_alone: bool = False) -> None:
    """What to compute and how, wherever that runs; `is_alone`: of one frame, which SSIM compares with no other."""
    _add_reading_arguments(group)
    _add_option(group, "products", f"among {', '.join(PRODUCTS)}, with commas", type=_products, metavar="NAMES")
    texts = {
        "resolution": "half: one output pixel per 2x2 superpixel; full: one per raw pixel",
        "precision": "arithmetic",
        "demosaic": "interpolation; auto: bilinear at half resolution, adaptive at full",
        "ssim_mode": "what SSIM compares: the two orthogonal pairs, the frame before, or a reference",
        "dtype": "of all products that offer it (default: as the live node publishes them)",
    }
    for name, text in texts.items():
        if not (is_alone and name == "ssim_mode"):
            _add_option(group, name, text, choices=CHOICES[name])
    text = "SSIM of images averaged over this many pixels each way, 1 to 8"
    _add_option(group, "ssim_stride", text, type=_whole, metavar="PIXELS")
    _add_option(group, "ssim_window", "taps of SSIM's Gaussian window, odd, 3 to 15", type=_whole, metavar="TAPS")
    _add_option(group, "ssim_sigma", "its standard deviation, 0.5 to 5", type=_real, metavar="PIXELS")
    _add_option(group, "min_intensity", "smallest S0 that has a polarization, 0 to 2", type=_real, metavar="S0")
    group.add_argument(
        "--own-site", action="store_true", help="at half resolution, take the four angles where they are"
    )


def _add_reading_arguments(group: Any) -> None:
    """What the pixels of a frame are."""
    text = "IMX250MZR, IMX250MYR, or a tile such as '90 45 / 135 0' (default: IMX250MZR)"
    _add_option(group, "sensor", text)
    text = "significant bits of 16-bit pixels; 0 takes the format's"
    _add_option(group, "bit_depth", text, type=_whole, metavar="BITS")
    text = "where the significant bits of 16-bit pixels lie"
    _add_option(group, "alignment", text, choices=CHOICES["alignment"])
    text = "first pixel in the sensor's own readout"
    _add_option(group, "roi_offset", text, type=_whole, nargs=2, metavar=("X", "Y"))
    group.add_argument("--flip-x", action="store_true", help="the camera's ReverseX is on")
    group.add_argument("--flip-y", action="store_true", help="the camera's ReverseY is on")


def _add_option(group: Any, name: str, text: str, **how: Any) -> None:
    """An option by its name in `Options`; where the command line does not name it, it is not in its values either."""
    defaults = Options._field_defaults
    shown = f" (default: {defaults[name]})" if name in defaults else ""
    group.add_argument(f"--{name.replace('_', '-')}", help=f"{text}{shown}", **{"default": argparse.SUPPRESS, **how})


def _arguments(values: argparse.Namespace, products: Tuple[str, ...]) -> Dict[str, Any]:
    """The options that the command line names, else those of --params, and `products` if it names none."""
    products = getattr(values, "products", products)
    arguments: Dict[str, Any] = {"dtype": {name: PRODUCTS[name].ros_types[0] for name in products}}
    if getattr(values, "params", None) is not None:
        arguments = _node_arguments(values.params, products)
    names = (*CHOICES, *LIMITS, "sensor", "min_intensity", "bit_depth", "roi_offset", "threads")
    arguments.update({name: getattr(values, name) for name in names if hasattr(values, name)})
    if values.flip_x or values.flip_y:
        arguments["flip"] = (values.flip_x, values.flip_y)
    if getattr(values, "own_site", False):
        arguments["co_sited"] = False
    return {**arguments, "products": products}


def _node_arguments(path: Path, products: Tuple[str, ...]) -> Dict[str, Any]:
    """What the live node would make these products with, by a file of its parameters."""
    try:
        from polar_pipeline.ros.parameters import make_settings
        from polar_pipeline.ros.preset import from_yaml
    except ImportError as err:
        raise FailureError(f"--params needs PyYAML: {err}") from err
    return make_settings(from_yaml(path)).arguments(products)


def _pipeline(values: argparse.Namespace, products: Tuple[str, ...]) -> Pipeline:
    """The pipeline that the command line asks for, and for `products` if it names none."""
    try:
        return Pipeline(**_arguments(values, products))
    except ValueError as err:
        raise UsageError(str(err)) from err


def _frame_options(values: argparse.Namespace, products: Tuple[str, ...] = DEFAULT_PRODUCTS) -> Tuple[Options, str]:
    """The options and the raw format that the command line asks for."""
    try:
        options = make_options(**_arguments(values, products))
    except ValueError as err:
        raise UsageError(str(err)) from err
    return options, getattr(values, "raw", None) or ("u16" if options.bit_depth > 8 else "u8")


def _size(text: str) -> Tuple[int, int]:
    sides = re.fullmatch("([0-9]{1,6})x([0-9]{1,6})", text)
    width, height = map(int, sides.groups()) if sides else (0, 0)
    if min(width, height) < MIN_SIDE or max(width, height) > MAX_SIDE or width * height > MAX_PIXELS:
        raise argparse.ArgumentTypeError(
            f"expected WIDTHxHEIGHT, at least {MIN_SIDE}x{MIN_SIDE}, each at most {MAX_SIDE}, and {MAX_PIXELS} pixels "
            f"in all, got {quoted(text)}"
        )
    return width, height


def _whole(text: str) -> int:
    if re.fullmatch(f"[-+]?[0-9]{{1,{_DIGITS}}}", text) is None:  # Python refuses thousands of digits, or is slow
        raise argparse.ArgumentTypeError(f"expected a whole number, got {quoted(text)}")
    return int(text)


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {quoted(text)}") from None


def _number(text: str, highest: float = sys.float_info.max) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= highest:
        limit = "" if highest == sys.float_info.max else f" and at most {highest:g}"
        raise argparse.ArgumentTypeError(f"expected a number >= 0{limit}, got {quoted(text)}")
    return value


def _seconds(text: str) -> float:
    return _number(text, DAY)


def _duration(text: str) -> float:
    value = _seconds(text)
    if value == 0:
        raise argparse.ArgumentTypeError("expected more than 0 seconds")
    return value


def _rate(text: str) -> float:
    value = _number(text)
    if not RATES[0] <= value <= RATES[1]:
        raise argparse.ArgumentTypeError(
            f"expected a rate above 0, from {RATES[0]:g} to {RATES[1]:g} Hz, got {quoted(text)}"
        )
    return value


def _angle(text: str) -> float:
    value = _real(text)
    if not -360 <= value <= 360:
        raise argparse.ArgumentTypeError(f"expected degrees from -360 to 360, got {quoted(text)}")
    return value


def _max_mb(text: str) -> int:
    value = _whole(text)
    if not 1 <= value <= 1 << 20:
        raise argparse.ArgumentTypeError(f"expected megabytes from 1 to {1 << 20}, got {quoted(text)}")
    return value << 20


def _products(text: str) -> Tuple[str, ...]:
    try:
        return get_products(text)
    except ValueError as err:
        raise argparse.ArgumentTypeError(str(err)) from err


def _tolerance(text: str) -> Tuple[str, float]:
    name, separator, value = text.partition("=")
    if not separator or name not in PRODUCTS:
        raise argparse.ArgumentTypeError(
            f"expected PRODUCT=VALUE with a product among {', '.join(PRODUCTS)}, got {quoted(text)}"
        )
    return name, _number(value)


# ------------------------------------------------------------------------------------------------------------ commands


def _replay(values: argparse.Namespace) -> int:
    if values.output is None and values.compare is None:
        raise UsageError("needs -o OUT.mcap, --compare GOLDEN.mcap, or both")
    if values.output is not None and values.output.suffix != ".mcap":
        raise UsageError(f"the output is an .mcap file, got {values.output}")
    if values.tolerance and values.compare is None:
        raise UsageError("--tolerance is for --compare GOLDEN.mcap")
    if values.rate is not None and is_recording(values.source):
        raise UsageError(f"--rate is for pictures; {values.source} has times of its own")
    report_path = values.report
    if report_path is None and values.output is not None:
        report_path = values.output.with_suffix(".html")
    written = report_path is not None and str(report_path) != "-"
    if written and values.output is not None and report_path.resolve() == values.output.resolve():
        raise UsageError(f"-o and --report are the same file, {report_path}")
    outputs = [path for path in (values.output, report_path if written else None) if path is not None]
    inputs = [recording_of(values.source), values.compare, values.reference, values.params]
    _check_outputs(outputs, [path for path in inputs if path is not None])
    limit = values.max_bytes
    with ExitStack() as stack:
        golden: Optional[Golden] = stack.enter_context(open_golden(values.compare, limit)) if values.compare else None
        reference = stack.enter_context(open_golden(values.reference, limit)) if values.reference else None
        pipeline = _pipeline(values, DEFAULT_PRODUCTS if golden is None else get_products(golden.places))
        stack.callback(pipeline.close)
        options = pipeline.options
        if (options.ssim_mode == "reference") != (reference is not None):
            raise UsageError("--ssim-mode reference and --reference FILE.mcap go together")
        comparison = _comparison(golden, options, dict(values.tolerance)) if golden else None
        source = stack.enter_context(open_source(values.source, values.topic, values.rate or DEFAULT_RATE, limit))
        html = stack.enter_context(replacing(report_path, values.force)) if written else None
        sink = None
        if values.output is not None:
            sink = stack.enter_context(open_sink(values.output, _metadata(options), values.force))
        bar = tqdm(source.records, total=source.total, unit="frame", disable=None)
        with bar:
            summary = replay(bar, source.total, pipeline, sink, comparison, reference)
        _print_findings(summary)
        if not summary.stamps:
            raise FailureError(f"none of the {source.total} frames of {values.source} could be used; nothing written")
        rows = comparison.rows() if comparison else []
        if html is not None:
            html.write(render(_report(values, options, summary, rows)).encode())
    print(f"{len(summary.stamps)} frames on {summary.device}, {summary.rejected_count} could not be used")
    print(format_timings(summary.timings))
    print(f"late: {_late(summary)}")
    for path in outputs:
        print(f"wrote {printable(str(path))}")
    if rows:
        print(format_rows(rows))
    return 0 if all(row.passed for row in rows) else 1


def _check_outputs(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    try:
        check_outputs(outputs, inputs)
    except ValueError as err:
        raise UsageError(str(err)) from err


def _comparison(golden: Golden, options: Options, tolerances: Dict[str, float]) -> Comparison:
    try:
        return Comparison(golden, options.products, tolerances)
    except ValueError as err:
        raise UsageError(str(err)) from err


def _print_findings(summary: Summary) -> None:
    """What is wrong with the recording."""
    for cause, row in summary.rejected.items():
        _say_error(f"not usable: {row.frames} x {cause}; the first: {row.reason}")
    if summary.layout.fits is False:
        _say_error(f"layout: {summary.layout.text}")


def _late(summary: Summary) -> str:
    """Missed deadlines, as in the live node's diagnostics."""
    if math.isinf(summary.period):
        return "n/a, the recording is too short to tell its frame period"
    return f"{summary.late} frames took longer than the {1000 * summary.period:.2f} ms to the next one"


def _metadata(options: Options) -> Dict[str, str]:
    """The options as text: what the recording says about itself."""
    texts = {name: str(value) for name, value in options._asdict().items()}
    texts.update(sensor=options.sensor.name, tile=str(options.sensor.angles), products=", ".join(options.products))
    return {"version": __version__, **texts, "dtypes": ", ".join(options.dtypes)}


def _report(values: argparse.Namespace, options: Options, summary: Summary, rows: List[ProductComparison]) -> Report:
    saturated, dark = summary.invalid
    first = summary.stamps[0]
    facts = {
        "frames": f"{len(summary.stamps)}, and {summary.rejected_count} that could not be used",
        "sensor": options.sensor.name,
        "resolution": f"{options.resolution}, demosaic {options.interpolation}",
        "products": ", ".join(options.products),
        "computed on": summary.device,
        "late": _late(summary),
        "saturated, dark": f"{100 * saturated:.2f} %, {100 * dark:.2f} % of the pixels",
        "polar_pipeline": __version__,
    }
    known = [value for value in summary.ssim if not np.isnan(value)]  # a first frame has nothing to compare with
    if known:
        lowest = min((row.lowest for row in summary.quality if row.lowest), key=lambda spot: spot.ssim)
        facts["lowest block"] = f"{lowest.ssim:.4f} in the {lowest.place}, at x {lowest.x}, y {lowest.y}"
        facts["similarity"] = f"mean {np.mean(known):.4f}, lowest {min(known):.4f} ({options.ssim_mode})"
    if summary.repeats > 1:
        facts["frozen"] = f"{summary.repeats} identical frames in a row"
    if summary.layout.fits is not None:
        facts["layout"] = summary.layout.text
    return Report(
        f"Replay of {printable(values.source.name)}",
        facts,
        [(cause, row.frames, printable(row.reason, _SHOWN)) for cause, row in summary.rejected.items()],
        summary.samples,
        [((stamp - first) / 1e9, value) for stamp, value in zip(summary.stamps, summary.ssim)],
        summary.timings,
        rows,
    )


_GET_ROS = "source its setup file, or pip install polar_pipeline[ros]"


def _play(values: argparse.Namespace) -> int:
    try:
        from polar_pipeline.ros.play import play
    except ImportError as err:
        raise FailureError(f"play needs ROS 2 (rclpy): {err}; {_GET_ROS}") from err

    skipped: Dict[str, int] = {}

    def warn(err: FrameError) -> None:
        skipped[err.cause] = skipped.get(err.cause, 0) + 1
        if skipped[err.cause] == 1:
            _say_error(f"skipped, and others like it: {err}")

    count = play(
        values.source,
        values.to,
        values.topic,
        values.rate or 0.0,
        values.loop,
        values.restamp,
        values.wait,
        warn,
        values.max_bytes,
    )
    causes = "".join(f", skipped {number} x {cause}" for cause, number in skipped.items())
    print(f"published {count} frames on {printable(values.to)}{causes}")
    return 0 if count else 1


def _dump_params(values: argparse.Namespace) -> int:
    try:
        from polar_pipeline.ros.dump import read_parameters
        from polar_pipeline.ros.preset import changed, to_yaml
    except ImportError as err:
        raise FailureError(f"params needs ROS 2 (rclpy): {err}; {_GET_ROS}") from err
    parameters = read_parameters(values.node, values.wait)
    text = to_yaml(
        changed(parameters) if values.changed else parameters, f"{values.node}, polar_pipeline {__version__}"
    )
    if values.output is None:
        print(text, end="")
        return 0
    with replacing(values.output, values.force) as stream:
        stream.write(text.encode())
    print(f"wrote {printable(str(values.output))}")
    return 0


def _process(values: argparse.Namespace) -> int:
    pipeline = _pipeline(values, DEFAULT_PRODUCTS)
    try:
        paths = {}
        for name in pipeline.options.products:
            suffix = ".png" if pipeline.options.dtype_of(name) == "uint8" else f".{values.format}"
            paths[name] = values.output / f"{values.image.stem}_{name}{suffix}"
        _check_outputs(paths.values(), [values.image])
        result = pipeline(read_raw(values.image, values.max_bytes))
    finally:
        pipeline.close()
    values.output.mkdir(parents=True, exist_ok=True)
    for name, array in result.items():
        if array.ndim == 0:
            print(f"{name} {float(array):.6f}")
            continue
        with replacing(paths[name], values.force) as stream:
            stream.write(encode_picture(array, paths[name].suffix))
        print(f"wrote {printable(str(paths[name]))}")
    print(f"{result.invalid[0]} pixels saturated, {result.invalid[1]} dark")
    return 0


def _layout(values: argparse.Namespace) -> int:
    options, _ = _frame_options(values, ("intensity",))
    raw = read_raw(values.image, values.max_bytes)
    frame = as_frame(raw, options.full_scale if raw.dtype == np.uint16 else 0)
    found = check_layout(frame, options)
    print(found.text)
    if values.polarizer is None:
        return int(found.fits is False)
    try:
        readings = offsets_of_polarizer(frame, options, values.polarizer)
    except ValueError as err:
        raise FailureError(f"{values.image}: {err}") from err
    for row in readings:
        fits = f"fits {values.polarizer:g} degrees" if row.fits else "does not fit"
        print(f"--roi-offset {row.offset[0]} {row.offset[1]}: the sheet reads {row.angle:.1f} degrees, {fits}")
    return int(found.fits is False or not readings[0].fits)


def _plan(values: argparse.Namespace) -> int:
    options, raw = _frame_options(values)
    try:
        report = plan_report(options, DEVICES[values.device], raw, values.size)
    except (LimitError, ScheduleError) as err:
        raise FailureError(str(err)) from err
    print(plan_json(report) if values.json else plan_text(report))
    return 0


def _tune(values: argparse.Namespace) -> int:
    options, raw = _frame_options(values)
    try:
        found = tune(options, values.device, raw, values.size)
    except ScheduleError as err:
        raise FailureError(str(err)) from err
    for name, best in found.items():
        print(f"{best.us:.2f} us a frame with {best.schedule}: {name}")
    print(f"wrote {printable(str(tuned_folder() / values.device))}.json")
    return 0


def _kernels(values: argparse.Namespace) -> int:
    try:
        device = get_device(values.arch)
    except ValueError as err:
        raise UsageError(str(err)) from err
    rows = usages(device)
    if values.json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
        return 0
    print("registers  shared [B]  spills [B]  occupancy  kernel")
    for row in rows:
        print(f"{row.registers:9}  {row.shared_bytes:10}  {row.spill_bytes:10}  {row.occupancy:8.0%}   {row.name}")
    return 0


def _bench_node(values: argparse.Namespace) -> int:
    try:
        from polar_pipeline.ros.bench import measure
    except ImportError as err:
        raise FailureError(f"bench node needs ROS 2 (rclpy): {err}; {_GET_ROS}") from err
    try:
        get_sensor(values.sensor)
    except ValueError as err:
        raise UsageError(str(err)) from err
    loads = measure(
        values.backend, values.sensor, values.size, values.products, values.rate, values.seconds, _say_error
    )
    if values.json:
        asked = {name: getattr(values, name) for name in ("backend", "sensor", "size", "products", "rate", "seconds")}
        print(json.dumps({"version": __version__, **asked, "loads": loads}, indent=2))
    else:
        print("\n\n".join(format_figures(name, figures) for name, figures in loads.items()))
    return 0


def _doctor(values: argparse.Namespace) -> int:
    checks = doctor.run_checks()
    if values.json:
        print(json.dumps([check._asdict() for check in checks], indent=2))
    else:
        print(doctor.as_text(checks), end="")
    return 0
