"""`polar-pipeline view`: products, times and figures of quality in the Rerun viewer, or a file for it."""

from __future__ import annotations

import argparse
import signal
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Iterable, Iterator, Optional

from polar_pipeline._util.imports import importing
from polar_pipeline._util.malloc import keep_freed_memory
from polar_pipeline._util.stop_flag import StopFlag
from polar_pipeline._util.text import printable
from polar_pipeline.cli.argument_types import parse_integer
from polar_pipeline.cli.errors import GET_ROS, FailureError, UsageError, show_error, show_findings
from polar_pipeline.cli.option_arguments import (
    add_params_argument,
    add_pipeline_arguments,
    option_files,
    requested_pipeline,
)
from polar_pipeline.cli.outputs import check_output_files
from polar_pipeline.cli.source_arguments import (
    add_picture_rate_argument,
    add_reference_argument,
    add_source_arguments,
    open_reference,
)
from polar_pipeline.replay.limits import SourceError
from polar_pipeline.replay.report import format_timings
from polar_pipeline.replay.run import Summary, replay
from polar_pipeline.replay.source import DEFAULT_RATE, Recorded, is_recording, open_source, recording_of
from polar_pipeline.view.recording import load_rerun, open_file, open_viewer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    add_source_arguments(parser, is_optional=True)
    add_picture_rate_argument(parser)
    parser.add_argument(
        "--frames", type=partial(parse_integer, lowest=1), metavar="N", help="end after N frames (default: all)"
    )
    parser.add_argument("--save", type=Path, metavar="FILE.rrd", help="write a file instead of opening the viewer")
    parser.add_argument("--force", action="store_true", help="replace a file that exists")
    add_reference_argument(parser)
    add_params_argument(parser)
    add_pipeline_arguments(parser)


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    _check_usage(values)
    try:
        rerun = load_rerun()
    except ImportError as err:
        raise FailureError(f"view needs Rerun: {err}") from err
    keep_freed_memory()
    with ExitStack() as stack:
        pipeline = requested_pipeline(values, recording=values.source)
        stack.callback(pipeline.close)
        reference = open_reference(values, pipeline, stack)
        records = stack.enter_context(_live(values) if values.source is None else _recorded(values))
        products = pipeline.options.products
        viewer = stack.enter_context(
            open_viewer(rerun, products)
            if values.save is None
            else open_file(rerun, values.save, products, values.force)
        )
        summary = replay(records, 1, pipeline, reference=reference, show=viewer.show)
        show_findings(summary)
        if not summary.stamps:
            raise SourceError(f"none of the {summary.rejected_count} frames could be used")
    _print_summary(summary, values.save)
    return 0


def _check_usage(values: argparse.Namespace) -> None:
    """Refuse arguments that do not fit together."""
    if values.source is None and not values.topic:
        raise UsageError("needs a SOURCE, or --topic NAME for a live topic")
    if values.rate is not None and (values.source is None or is_recording(values.source)):
        raise UsageError("--rate is for pictures; recordings and topics have times of their own")
    if values.save is None:
        if values.force:
            raise UsageError("--force is for --save FILE.rrd")
        return
    if values.save.suffix != ".rrd":
        raise UsageError(f"--save writes an .rrd file, got {values.save}")
    source = values.source and recording_of(values.source)
    check_output_files([values.save], [source, values.reference, *option_files(values)])


@contextmanager
def _recorded(values: argparse.Namespace) -> Iterator[Iterable[Recorded]]:
    """Open the images of a recording or of pictures."""
    with open_source(values.source, values.topic, values.rate or DEFAULT_RATE, values.max_bytes) as source:
        yield islice(source.records, values.frames)


@contextmanager
def _live(values: argparse.Namespace) -> Iterator[Iterable[Recorded]]:
    """Open the images of a live topic; the first Ctrl-C ends them with success, a second one with failure."""
    try:
        with importing():
            from polar_pipeline.stream.topic_source import open_topic
    except ImportError as err:
        raise FailureError(f"a live topic needs ROS 2 (rclpy): {err}; {GET_ROS}") from err
    stopped = StopFlag()
    before: Any = signal.getsignal(signal.SIGINT)

    def stop(*_: object) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, before)

    with open_topic(values.topic, values.max_bytes, stopped) as records:
        signal.signal(signal.SIGINT, stop)
        try:
            show_error(f"waits for images on {values.topic}; Ctrl-C ends")
            yield islice(records, values.frames)
        finally:
            signal.signal(signal.SIGINT, before)


def _print_summary(summary: Summary, saved: Optional[Path]) -> None:
    print(f"{len(summary.stamps)} frames on {summary.device}, {summary.rejected_count} could not be used")
    print(format_timings(summary.timings))
    if saved is not None:
        print(f"wrote {printable(str(saved))}")
