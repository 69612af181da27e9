"""`polar-pipeline batch`: process many recordings on all cores, GPUs or a cluster of Dask."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, ContextManager, Iterator, Optional, Sequence, Tuple

from polar_pipeline._util.imports import importing
from polar_pipeline._util.paths import as_path
from polar_pipeline._util.text import printable
from polar_pipeline.cli.argument_types import parse_integer, parse_number, parse_path
from polar_pipeline.cli.errors import FailureError, UsageError, errors_as, show_error
from polar_pipeline.cli.option_arguments import add_pipeline_arguments, requested_arguments
from polar_pipeline.cli.shared_arguments import add_shared_arguments
from polar_pipeline.options import FROM_FRAMES
from polar_pipeline.options.products import DEFAULT_PRODUCTS
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.replay.compare import check_tolerances, golden_products
from polar_pipeline.tools.batch.copies import SPOOL_BYTES, remove_unused_copies
from polar_pipeline.tools.batch.files import scheme_of
from polar_pipeline.tools.batch.recordings import Recording, list_recordings
from polar_pipeline.tools.batch.settings import BatchSettings, golden_of

if TYPE_CHECKING:  # needs the extra `batch`, without which --help works too
    from distributed import Client

    from polar_pipeline.tools.batch.run import Batch

#: Workers that may be lost with a unit.
DEFAULT_RETRIES = 3
#: Recordings that failed or differ, and recordings with warnings, of which the reasons are printed.
_MAX_REASONS = 50
#: Seconds that killed workers get to disappear.
_KILLING_S = 5.0
#: Modules that workers use; PyArrow imports pandas if it is installed.
_WORKER_MODULES = [
    *(f"polar_pipeline.{name}" for name in ("tools.batch.units", "recordings.bags", "recordings.sink")),
    "pandas",
]
#: Bytes of a gigabyte in --spool-gb.
_GB = 1 << 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="recordings, folders that hold some, patterns such as 'drives/**/*.mcap', "
        "@FILE with one source per line, or URLs of these (s3://, gs://, https://)",
    )
    parser.add_argument("-o", "--output", type=parse_path, required=True, metavar="DIR", help="folder of the results")
    add_shared_arguments(parser, "--topic", "--rate", "--max-mb", "--strict")
    _add_cluster_arguments(parser)
    parser.add_argument(
        "--no-products", action="store_true", help="write no products and reports: only the table and the overview"
    )
    parser.add_argument(
        "--compare",
        type=parse_path,
        metavar="GOLDEN_DIR",
        help="compare with the results of an earlier batch, or with a folder of NAME.mcap; exit 1 on a difference",
    )
    parser.add_argument(
        "--reference", type=parse_path, metavar="DIR", help="like GOLDEN_DIR: the 'intensity' for --ssim-mode reference"
    )
    add_shared_arguments(parser, "--tolerance", "--params")
    add_pipeline_arguments(parser)


def _add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs",
        type=partial(parse_integer, lowest=1, highest=1024),
        metavar="N",
        help="worker processes on this machine (default: one per core; with --backend cuda, at most eight per GPU)",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="use the cluster of this Dask scheduler, such as tcp://host:8786 (default: that of Dask's configuration, "
        "or else processes on this machine)",
    )
    parser.add_argument(
        "--retries",
        type=partial(parse_integer, lowest=0, highest=1000),
        metavar="N",
        help=f"how many workers may be lost with a recording before it fails (default: {DEFAULT_RETRIES}; a cluster "
        "has its own setting, distributed.scheduler.allowed-failures)",
    )
    parser.add_argument(
        "--spool",
        type=parse_path,
        metavar="DIR",
        help="folder for recordings that are fetched (default: a temporary one)",
    )
    parser.add_argument(
        "--spool-gb",
        type=partial(parse_number, lowest=0),
        default=SPOOL_BYTES / _GB,
        metavar="GB",
        help=f"most that fetched recordings take there (default: {SPOOL_BYTES / _GB:g})",
    )


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    _check_usage(values)
    if values.scheduler is None:
        _start_fork_server()
    try:
        with importing():
            from polar_pipeline.tools.batch.cluster import dashboard_of
            from polar_pipeline.tools.batch.results import clean, recorded_names
            from polar_pipeline.tools.batch.run import Batch
    except ImportError as err:
        raise FailureError(
            f"needs Dask, fsspec and PyArrow ({err}); pip install '/path/to/polar_pipeline[batch]'"
        ) from err
    recordings = list_recordings(values.sources, [values.output], recorded_names(values.output))
    settings = _settings(values, recordings)
    batch = Batch(settings, recordings, values.output, values.strict)
    if batch.left:
        with _ended_by_signals(values.output, values.spool), ExitStack() as stack:
            stack.callback(clean, values.output)  # of what its workers left when the cluster was closed
            client = stack.enter_context(_client(values, settings, len(batch.left)))
            show_error(f"dashboard: {dashboard_of(client)}")
            batch.run(client)
    batch.write_overview()
    return _print_summary(batch, recordings, values.output)


def _start_fork_server() -> None:
    """Start the process that workers are forked from: it imports their modules while this process imports its own.

    Libraries of linear algebra start no threads there, which a fork would lose.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    multiprocessing.set_forkserver_preload(_WORKER_MODULES)
    forkserver.ensure_running()


@contextmanager
def _ended_by_signals(folder: Path, spool: Optional[Path]) -> Iterator[None]:
    """Make Ctrl-C or SIGTERM in the block kill the workers on this machine and end this process at once.

    A cluster of Dask would wait for its own time limits while it is closed, and one that just starts fails to close.
    The scheduler of another cluster cancels what this process has submitted.

    Args:
        folder: Folder of the batch; incomplete results are removed there.
        spool: Folder of the copies of remote recordings, which are removed; None for the temporary one.
    """
    from polar_pipeline.tools.batch.results import clean

    def end(number: int, _: object) -> None:
        try:
            workers = multiprocessing.active_children()
            for worker in workers:
                worker.kill()
            for worker in workers:
                worker.join(_KILLING_S)
            clean(folder)
            remove_unused_copies(spool)
            show_error(f"polar-pipeline: {'interrupted' if number == signal.SIGINT else 'terminated'}")
        finally:
            os._exit(128 + number)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}  # not those ignored
    for number in handlers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _check_usage(values: argparse.Namespace) -> None:
    """Refuse arguments that do not fit together."""
    if values.scheduler is not None:
        for name in ("jobs", "retries"):
            if getattr(values, name) is not None:
                raise UsageError(f"--{name} is for processes on this machine, not for --scheduler")
    if values.tolerance and values.compare is None:
        raise UsageError("--tolerance is for --compare GOLDEN_DIR")
    if values.output.exists() and not values.output.is_dir():
        raise UsageError(f"{values.output} is not a folder")
    for folder in (values.compare, values.reference):
        if folder is not None and folder.resolve() == values.output.resolve():
            raise UsageError(f"the results would replace those that they are compared with, {folder}")
    with suppress(ValueError):  # a path that cannot be understood is refused where recordings are listed
        local = [as_path(source).resolve() for source in values.sources if scheme_of(source) in ("", "file")]
        if values.output.resolve() in local:
            raise UsageError(f"{values.output} is an input")


def _settings(values: argparse.Namespace, recordings: Sequence[Recording]) -> BatchSettings:
    """Return the settings that the command line requests.

    Raises:
        UsageError: An option is not allowed.
    """
    products = DEFAULT_PRODUCTS if values.compare is None else _golden_products(values, recordings)
    with errors_as(UsageError):
        arguments = requested_arguments(values, products)
        if arguments.get("rectify") == FROM_FRAMES:
            raise UsageError(f"a batch is rectified by one lens calibration: name its YAML file, not {FROM_FRAMES}")
        if arguments["backend"] == "auto":
            arguments["backend"] = "cpu"  # the fastest: files bound a batch, and every worker would wait for CUDA
        for name in ("calibration", "rectify"):
            if isinstance(arguments.get(name), str) and arguments[name]:
                arguments[name] = str(as_path(arguments[name]).resolve())
        settings = BatchSettings(
            arguments,
            values.topic,
            values.rate,
            values.max_bytes,
            not values.no_products,
            values.compare and values.compare.resolve(),
            dict(values.tolerance),
            values.reference and values.reference.resolve(),
            values.spool and values.spool.resolve(),
            int(values.spool_gb * _GB),
        )
        options = settings.options()
        check_tolerances(settings.tolerances, options.products)
    if (options.ssim_mode == "reference") != (values.reference is not None):
        raise UsageError("--ssim-mode reference and --reference DIR go together")
    return settings


def _golden_products(values: argparse.Namespace, recordings: Sequence[Recording]) -> Tuple[str, ...]:
    """Return the products of the first golden recording that exists.

    Raises:
        SourceError: No recording has a golden one, or the first cannot be read.
    """
    for recording in recordings:
        with suppress(SourceError):
            path = golden_of(values.compare, recording.name)
            break
    else:
        raise SourceError(f"{values.compare} has no golden recording of any of the {len(recordings)} recordings")
    return golden_products(path, values.max_bytes)


def _client(values: argparse.Namespace, settings: BatchSettings, count: int) -> ContextManager[Client]:
    """Return the client of the cluster that processes `count` recordings."""
    import dask

    from polar_pipeline.tools.batch import cluster

    configured = dask.config.get("scheduler-address", None) if values.jobs is None else None
    scheduler = values.scheduler or configured
    if scheduler is not None:
        return cluster.client_of(scheduler)
    gpus = cluster.usable_gpus() if settings.arguments["backend"] == "cuda" else {}
    jobs = min(values.jobs or cluster.default_jobs(gpus), count)
    return cluster.local_client(jobs, gpus, DEFAULT_RETRIES if values.retries is None else values.retries)


def _print_summary(batch: Batch, recordings: Sequence[Recording], folder: Path) -> int:
    """Print what came of the recordings; returns the exit code."""
    outcomes = [batch.outcomes[row.name] for row in recordings]
    bad = [row for row in outcomes if row.status != "ok"]
    failures = [f"{row.name}: {row.status}: {row.reason}" for row in bad]
    for lines in (failures, [f"{row.name}: {row.warnings}" for row in outcomes if row.warnings]):
        for line in lines[:_MAX_REASONS]:
            show_error(line)
        if len(lines) > _MAX_REASONS:
            show_error(f"... and {len(lines) - _MAX_REASONS} more")
    count = {status: sum(row.status == status for row in outcomes) for status in ("ok", "differs", "failed")}
    frames = sum(row.frames for row in outcomes)
    print(
        f"{len(outcomes)} recordings: {count['ok']} ok, {count['differs']} differ, {count['failed']} failed; "
        f"{batch.skipped} were complete already; {frames} frames"
    )
    print(f"wrote {printable(str(folder / 'index.html'))}")
    sys.stdout.flush()
    return 1 if bad else 0
