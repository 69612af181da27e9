"""`polar-pipeline view`: products, times and figures of quality in the Rerun viewer, or a file for it."""

from __future__ import annotations

import argparse
import signal
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from typing import Any, ContextManager, Iterator, Sequence

from polar_pipeline._util.malloc import keep_freed_memory
from polar_pipeline._util.stop_flag import StopFlag
from polar_pipeline._util.text import printable
from polar_pipeline.cli.argument_types import parse_integer, parse_path
from polar_pipeline.cli.errors import FailureError, UsageError, importing_ros, show_error, show_unusable
from polar_pipeline.cli.option_arguments import add_pipeline_arguments, option_files, requested_pipeline
from polar_pipeline.cli.outputs import check_output_files
from polar_pipeline.cli.shared_arguments import (
    SHARED_ARGUMENTS,
    STATED_ARGUMENTS,
    add_shared_arguments,
    open_reference,
    stated_contents,
)
from polar_pipeline.options import OPTIONS
from polar_pipeline.options.products import get_products
from polar_pipeline.quality.frame_checks import log_warnings
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.source import (
    Recorded,
    holds_products,
    is_recording,
    open_source,
    recording_of,
)
from polar_pipeline.replay.compare import open_golden
from polar_pipeline.replay.report import format_timings
from polar_pipeline.replay.run import ReplayedFrame, replay
from polar_pipeline.tools.view.recording import RecordingView, load_rerun, open_file, open_viewer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    parser.add_argument("source", nargs="?", **SHARED_ARGUMENTS["source"])
    add_shared_arguments(parser, "--topic", *STATED_ARGUMENTS, "--rate", "--max-mb", "--strict")
    parser.add_argument(
        "--frames", type=partial(parse_integer, lowest=1), metavar="N", help="end after N frames (default: all)"
    )
    parser.add_argument(
        "--save", type=parse_path, metavar="FILE.rrd", help="write a file instead of opening the viewer"
    )
    add_shared_arguments(parser, "--force", "--reference", "--params")
    add_pipeline_arguments(parser)


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    _check_usage(values)
    try:
        rerun = load_rerun()
    except ImportError as err:
        raise FailureError(f"view needs Rerun: {err}") from err
    keep_freed_memory()
    if values.source is not None and holds_products(values.source, values.max_bytes):
        _show_products(values, rerun)
    else:
        _show_raw(values, rerun)
    if values.save is not None:
        print(f"wrote {printable(str(values.save))}")
    return 0


def _show_raw(values: argparse.Namespace, rerun: Any) -> None:
    """Process raw images and show the products."""
    with ExitStack() as stack:
        pipeline = stack.enter_context(requested_pipeline(values, recordings=[values.source] if values.source else []))
        reference = open_reference(values, pipeline, stack)
        has_times = True
        if values.source is None:
            records = stack.enter_context(_live(values))
        else:
            stated = stated_contents(values)
            opened = open_source(values.source, values.topic, values.rate, values.max_bytes, stated=stated)
            source = stack.enter_context(opened)
            records, has_times = source.records, source.has_times
        products = pipeline.options.products
        viewer = stack.enter_context(_open_view(values, rerun, products))
        viewer.has_times = has_times
        summary = replay(islice(records, values.frames), 1, pipeline, reference=reference, show=viewer.show)
        show_unusable(summary.rejected)
        log_warnings(summary.warnings)
        if not summary.stamps:
            raise SourceError(f"none of the {summary.rejected_count} frames could be used")
    print(f"{len(summary.stamps)} frames on {summary.device}, {summary.rejected_count} could not be used")
    print(format_timings(summary.timings))


def _open_view(values: argparse.Namespace, rerun: Any, products: Sequence[str]) -> ContextManager[RecordingView]:
    """Open the viewer, or the file that the command line names."""
    if values.save is None:
        return open_viewer(rerun, products)
    return open_file(rerun, values.save, products, values.force)


def _show_products(values: argparse.Namespace, rerun: Any) -> None:
    """Show the products in a recording as `replay` or the live node wrote them.

    Raises:
        UsageError: An argument is for raw images.
    """
    options = [name for name in ("topic", "params", "reference") if getattr(values, name)]
    options += [name for name in OPTIONS if hasattr(values, name)]
    if options:
        text = "holds products of polar_pipeline, which are shown as they are"
        raise UsageError(f"{values.source} {text}: --{options[0].replace('_', '-')} is for raw images")
    with ExitStack() as stack:
        recording = stack.enter_context(open_golden(values.source, values.max_bytes, allow_truncated=True))
        viewer = stack.enter_context(_open_view(values, rerun, get_products(recording.places)))
        frames = recording.frames()[: values.frames]
        for stamp_ns, before in frames:
            loaded = ((name, recording.load(name, stamp_ns, before)) for name in recording.places)
            arrays = {name: array for name, array in loaded if array is not None}
            viewer.show(stamp_ns, arrays, ReplayedFrame(stamp_ns))
    print(f"{len(frames)} frames of products, as they were recorded")


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
    if values.save.suffix.lower() != ".rrd":
        raise UsageError(f"--save writes an .rrd file, got {values.save}")
    source = values.source and recording_of(values.source)
    check_output_files([values.save], [source, values.reference, *option_files(values)])


@contextmanager
def _live(values: argparse.Namespace) -> Iterator[Iterator[Recorded]]:
    """Open the images of a live topic; the first Ctrl-C ends them with success, a second one with failure."""
    with importing_ros("a live topic"):
        from polar_pipeline.tools.view.topic_source import open_topic
    stopped = StopFlag()
    before: Any = signal.getsignal(signal.SIGINT)

    def stop(*_: object) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, before)

    with open_topic(values.topic, values.max_bytes, stopped) as records:
        signal.signal(signal.SIGINT, stop)
        try:
            show_error(f"waits for images on {values.topic}; Ctrl-C ends")
            yield records
        finally:
            signal.signal(signal.SIGINT, before)
