"""`polar-pipeline replay`: process a recording, write products and a report, compare with a golden recording."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import List, Optional

from polar_pipeline._util.malloc import keep_freed_memory
from polar_pipeline._util.progress import with_bar
from polar_pipeline._util.text import printable
from polar_pipeline.cli.argument_types import parse_path
from polar_pipeline.cli.errors import UsageError, errors_as, show_unusable
from polar_pipeline.cli.option_arguments import add_pipeline_arguments, option_files, requested_pipeline
from polar_pipeline.cli.outputs import check_output_files, report_path
from polar_pipeline.cli.shared_arguments import STATED_ARGUMENTS, add_shared_arguments, open_reference, stated_contents
from polar_pipeline.options.products import DEFAULT_PRODUCTS, get_products
from polar_pipeline.recordings.source import is_recording, recording_of
from polar_pipeline.replay.compare import Golden, GoldenError, check_tolerances, format_rows, open_golden, verdict
from polar_pipeline.replay.job import Job, late, process_recording
from polar_pipeline.replay.report import format_timings
from polar_pipeline.replay.run import Summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    add_shared_arguments(parser, "source", "--topic", *STATED_ARGUMENTS, "--rate", "--max-mb", "--strict")
    parser.add_argument("-o", "--output", type=parse_path, metavar="OUT.mcap", help="recording to write")
    parser.add_argument(
        "--report", type=parse_path, metavar="FILE.html", help="report to write (default: OUT.html; - for none)"
    )
    parser.add_argument(
        "--compare", type=parse_path, metavar="GOLDEN.mcap", help="compare with a recording; exit 1 on a difference"
    )
    parser.add_argument("--json", type=parse_path, metavar="FILE.json", help="result of --compare to write, as JSON")
    parser.add_argument(
        "--junit",
        type=parse_path,
        metavar="FILE.xml",
        help="result of --compare to write, as JUnit XML for CI services",
    )
    add_shared_arguments(parser, "--force", "--tolerance", "--reference", "--params")
    add_pipeline_arguments(parser)


@errors_as(UsageError, GoldenError)
def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code.

    Raises:
        UsageError: Arguments do not fit together, or the golden recording is unusable, so that nothing can be compared.
    """
    _check_usage(values)
    report = report_path(values.report, values.output)
    outputs = [path for path in (values.output, report, values.json, values.junit) if path is not None]
    check_output_files(outputs, [recording_of(values.source), values.compare, values.reference, *option_files(values)])
    limit = values.max_bytes
    keep_freed_memory()
    with ExitStack() as stack:
        golden: Optional[Golden] = stack.enter_context(open_golden(values.compare, limit)) if values.compare else None
        products = DEFAULT_PRODUCTS if golden is None else get_products(golden.places)
        pipeline = stack.enter_context(requested_pipeline(values, products, [values.source]))
        reference = open_reference(values, pipeline, stack)
        tolerances = dict(values.tolerance)
        with errors_as(UsageError):
            check_tolerances(tolerances, pipeline.options.products)
        job = Job(
            values.source,
            values.topic,
            values.rate,
            limit,
            values.output,
            report,
            values.json,
            values.junit,
            values.force,
            golden,
            reference,
            tolerances,
            stated=stated_contents(values),
        )
        summary, rows = process_recording(job, pipeline, with_bar)
    show_unusable(summary.rejected)
    _print_summary(summary, outputs)
    if golden is not None:
        print(verdict(rows, golden.path))
        print(format_rows(rows))
    return 0 if all(row.passed for row in rows) else 1


def _check_usage(values: argparse.Namespace) -> None:
    """Refuse arguments that do not fit together."""
    if values.output is None and values.compare is None:
        raise UsageError("needs -o OUT.mcap, --compare GOLDEN.mcap, or both")
    if values.output is not None and values.output.suffix.lower() != ".mcap":
        raise UsageError(f"the output is an .mcap file, got {values.output}")
    if values.tolerance and values.compare is None:
        raise UsageError("--tolerance is for --compare GOLDEN.mcap")
    if (values.json or values.junit) and values.compare is None:
        raise UsageError("--json and --junit are for --compare GOLDEN.mcap")
    if values.rate is not None and is_recording(values.source):
        raise UsageError(f"--rate is for pictures; {values.source} has times of its own")


def _print_summary(summary: Summary, outputs: List[Path]) -> None:
    print(f"{len(summary.stamps)} frames on {summary.device}, {summary.rejected_count} could not be used")
    print(format_timings(summary.timings))
    if summary.has_times:
        print(f"late: {late(summary)}")
    for path in outputs:
        print(f"wrote {printable(str(path))}")
