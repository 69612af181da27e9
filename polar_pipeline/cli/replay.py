"""`polar-pipeline replay`: process a recording, write products and a report, compare with a golden recording."""

from __future__ import annotations

import argparse
import dataclasses
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import numpy as np
from tqdm import tqdm

from polar_pipeline import __version__
from polar_pipeline._util.files import replacing
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.cli.argument_types import parse_nonnegative
from polar_pipeline.cli.command import Command
from polar_pipeline.cli.errors import MAX_SHOWN, FailureError, UsageError, show_error
from polar_pipeline.cli.option_arguments import add_pipeline_arguments, requested_pipeline
from polar_pipeline.cli.outputs import check_output_files, report_path
from polar_pipeline.cli.source_arguments import add_source_arguments, parse_rate
from polar_pipeline.options import Options
from polar_pipeline.products import DEFAULT_PRODUCTS, PRODUCTS, get_products
from polar_pipeline.replay.compare import Comparison, Golden, ProductComparison, format_rows, open_golden
from polar_pipeline.replay.report import Report, format_timings, render
from polar_pipeline.replay.run import Summary, replay
from polar_pipeline.replay.sink import open_sink
from polar_pipeline.replay.source import DEFAULT_RATE, is_recording, open_source, recording_of


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument(
        "--rate", type=parse_rate, metavar="HZ", help=f"frames per second of pictures (default: {DEFAULT_RATE:g})"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="OUT.mcap", help="recording to write")
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    parser.add_argument(
        "--report", type=Path, metavar="FILE.html", help="report to write (default: OUT.html; - for none)"
    )
    parser.add_argument(
        "--compare", type=Path, metavar="GOLDEN.mcap", help="compare with a recording; exit 1 on a difference"
    )
    parser.add_argument(
        "--tolerance",
        action="append",
        default=[],
        type=_parse_tolerance,
        metavar="PRODUCT=VALUE",
        help="largest error allowed in --compare; AoLP in degrees, 8-bit images in levels",
    )
    parser.add_argument(
        "--reference", type=Path, metavar="FILE.mcap", help="recording of 'intensity' for --ssim-mode reference"
    )
    parser.add_argument(
        "--params",
        type=Path,
        metavar="FILE.yaml",
        help="parameters of the live node, such as a snapshot's, for all options that the command line does not name",
    )
    add_pipeline_arguments(parser)


def _parse_tolerance(text: str) -> Tuple[str, float]:
    name, separator, value = text.partition("=")
    if not separator or name not in PRODUCTS:
        raise argparse.ArgumentTypeError(
            f"expected PRODUCT=VALUE with a product among {', '.join(PRODUCTS)}, got {quoted(text)}"
        )
    return name, parse_nonnegative(value)


def _run(values: argparse.Namespace) -> int:
    _check_usage(values)
    report = report_path(values.report, values.output)
    outputs = [path for path in (values.output, report) if path is not None]
    inputs = [recording_of(values.source), values.compare, values.reference, values.params]
    check_output_files(outputs, [path for path in inputs if path is not None])
    limit = values.max_bytes
    with ExitStack() as stack:
        golden: Optional[Golden] = stack.enter_context(open_golden(values.compare, limit)) if values.compare else None
        reference = stack.enter_context(open_golden(values.reference, limit)) if values.reference else None
        pipeline = requested_pipeline(values, DEFAULT_PRODUCTS if golden is None else get_products(golden.places))
        stack.callback(pipeline.close)
        options = pipeline.options
        if (options.ssim_mode == "reference") != (reference is not None):
            raise UsageError("--ssim-mode reference and --reference FILE.mcap go together")
        comparison = _comparison(golden, options, dict(values.tolerance)) if golden else None
        source = stack.enter_context(open_source(values.source, values.topic, values.rate or DEFAULT_RATE, limit))
        html = stack.enter_context(replacing(report, values.force)) if report is not None else None
        sink = None
        if values.output is not None:
            sink = stack.enter_context(open_sink(values.output, _metadata(options), values.force))
        bar = tqdm(source.records, total=source.total, unit="frame", disable=None)
        with bar:
            summary = replay(bar, source.total, pipeline, sink, comparison, reference)
        _show_findings(summary)
        if not summary.stamps:
            raise FailureError(f"none of the {source.total} frames of {values.source} could be used; nothing written")
        rows = comparison.rows() if comparison else []
        if html is not None:
            html.write(render(_report(values.source.name, options, summary, rows)).encode())
    _print_summary(summary, outputs, rows)
    return 0 if all(row.passed for row in rows) else 1


def _check_usage(values: argparse.Namespace) -> None:
    """Refuse arguments that do not fit together."""
    if values.output is None and values.compare is None:
        raise UsageError("needs -o OUT.mcap, --compare GOLDEN.mcap, or both")
    if values.output is not None and values.output.suffix != ".mcap":
        raise UsageError(f"the output is an .mcap file, got {values.output}")
    if values.tolerance and values.compare is None:
        raise UsageError("--tolerance is for --compare GOLDEN.mcap")
    if values.rate is not None and is_recording(values.source):
        raise UsageError(f"--rate is for pictures; {values.source} has times of its own")


def _comparison(golden: Golden, options: Options, tolerances: Dict[str, float]) -> Comparison:
    try:
        return Comparison(golden, options.products, tolerances)
    except ValueError as err:
        raise UsageError(str(err)) from err


def _show_findings(summary: Summary) -> None:
    """Print to stderr what is wrong with the recording."""
    for cause, row in summary.rejected.items():
        show_error(f"not usable: {row.frames} x {cause}; the first: {row.reason}")
    if summary.layout.fits is False:
        show_error(f"layout: {summary.layout.text}")


def _print_summary(summary: Summary, outputs: List[Path], rows: List[ProductComparison]) -> None:
    print(f"{len(summary.stamps)} frames on {summary.device}, {summary.rejected_count} could not be used")
    print(format_timings(summary.timings))
    print(f"late: {_late(summary)}")
    for path in outputs:
        print(f"wrote {printable(str(path))}")
    if rows:
        print(format_rows(rows))


def _late(summary: Summary) -> str:
    """Missed deadlines, as in the live node's diagnostics."""
    if math.isinf(summary.period):
        return "n/a, the recording is too short to tell its frame period"
    return f"{summary.late} frames took longer than the {1000 * summary.period:.2f} ms to the next one"


def _metadata(options: Options) -> Dict[str, str]:
    """The options as text: what the recording says about itself."""
    texts = {field.name: str(getattr(options, field.name)) for field in dataclasses.fields(options)}
    texts.update(sensor=options.sensor.name, tile=str(options.sensor.angles), products=", ".join(options.products))
    texts["calibration"] = options.calibration.digest if options.calibration else ""
    return {"version": __version__, **texts, "dtypes": ", ".join(options.dtypes)}


def _report(name: str, options: Options, summary: Summary, rows: List[ProductComparison]) -> Report:
    """What the report of the recording `name` shows."""
    first = summary.stamps[0]
    return Report(
        f"Replay of {printable(name)}",
        _facts(options, summary),
        [(cause, row.frames, printable(row.reason, MAX_SHOWN)) for cause, row in summary.rejected.items()],
        summary.samples,
        [((stamp - first) / 1e9, value) for stamp, value in zip(summary.stamps, summary.ssim)],
        summary.timings,
        rows,
    )


def _facts(options: Options, summary: Summary) -> Dict[str, str]:
    """The report's list of facts, by name."""
    saturated, dark = summary.invalid
    facts = {
        "frames": f"{len(summary.stamps)}, and {summary.rejected_count} that could not be used",
        "sensor": options.sensor.name,
        "resolution": f"{options.resolution}, demosaic {options.interpolation}",
        "calibration": options.calibration.describe() if options.calibration else "none",
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
    return facts


COMMAND = Command(_add_arguments, _run)
