"""A Rerun recording: into the viewer, or into a file that is either complete or absent."""

from __future__ import annotations

import importlib
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Mapping, Sequence

import numpy as np

from polar_pipeline._util.files import replacing
from polar_pipeline._util.imports import importing
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.options.topics import NUMBER_TOPICS, PRODUCT_TOPICS
from polar_pipeline.replay.run import ReplayedFrame
from polar_pipeline.tools.view.images import RerunModule, RerunObject, angle_colors, entities_of, logged
from polar_pipeline.tools.view.statistics import disable_statistics

#: Name of the application, by which the viewer keeps what a user changed of the layout.
APPLICATION = "polar_pipeline"
#: Timelines: the frame's stamp, and its number in the recording, which also orders frames whose stamps begin again.
STAMP, FRAME = "stamp", "frame"
#: Entity of the lowest block's similarity.
LOWEST = "quality/lowest_block"
#: Copies from a pipe; after an error it reads on, since Rerun would wait forever for a reader that is gone.
_COPY = "cat && exit; cat > /dev/null; exit 1"
#: Share of the window's height that images have, and that plots have.
_ROW_SHARES = (3, 1)


def load_rerun() -> RerunModule:
    """Load the module `rerun`.

    Raises:
        ImportError: Rerun is not installed, or cannot be used.
    """
    try:
        with importing():
            rerun = importlib.import_module("rerun")
            importlib.import_module("rerun.blueprint")
    except ImportError as err:
        raise ImportError(f"{err}; pip install '/path/to/polar_pipeline[view]'") from err
    if not hasattr(rerun, "DepthImage"):  # a different package of that name
        raise ImportError("the module 'rerun' is not Rerun's; pip install '/path/to/polar_pipeline[view]'")
    return rerun


class RecordingView:
    """Rerun recording into which `show` logs frame after frame."""

    def __init__(self, rerun: RerunModule, stream: RerunObject) -> None:
        self._rerun = rerun
        self._stream = stream
        self._count = 0
        self._scalar = getattr(rerun, "Scalars", None) or rerun.Scalar  # before 0.23

    def show(self, stamp_ns: int, result: Mapping[str, np.ndarray], frame: ReplayedFrame) -> None:
        """Log the products of a frame, the milliseconds of its stages, and its similarity and saturation."""
        for name in result if not self._count else ():
            if PRODUCTS[name].wraps:
                topic = PRODUCT_TOPICS[name].name
                self._rerun.log(topic, angle_colors(self._rerun), static=True, recording=self._stream)
        self._set_time(stamp_ns)
        for name, array in result.items():
            if array.ndim:
                for path, image in logged(self._rerun, name, array):
                    self._rerun.log(path, image, recording=self._stream)
            else:
                self._plot(PRODUCT_TOPICS[name].name, float(array))
        for stage, seconds in frame.timings.items():
            if stage != "write":  # nothing is
                self._plot(f"latency/{stage}_ms", 1000 * seconds)
        if frame.quality is not None:
            self._plot(NUMBER_TOPICS["saturated"], frame.quality.saturated)
            if frame.quality.lowest is not None:
                self._plot(LOWEST, frame.quality.lowest.ssim)
        self._count += 1

    def _plot(self, path: str, value: float) -> None:
        self._rerun.log(path, self._scalar(value), recording=self._stream)

    def _set_time(self, stamp_ns: int) -> None:
        if hasattr(self._rerun, "set_time"):
            self._rerun.set_time(STAMP, timestamp=np.datetime64(stamp_ns, "ns"), recording=self._stream)
            self._rerun.set_time(FRAME, sequence=self._count, recording=self._stream)
        else:  # before 0.23
            self._rerun.set_time_nanos(STAMP, stamp_ns, recording=self._stream)
            self._rerun.set_time_sequence(FRAME, self._count, recording=self._stream)


def layout(rerun: RerunModule, products: Sequence[str]) -> RerunObject:
    """Return the blueprint: images above; curves of similarity, saturation and milliseconds of every stage below."""
    parts = rerun.blueprint
    images = [
        parts.Spatial2DView(origin=f"/{path}", name=path)
        for name in products
        if not PRODUCTS[name].is_number
        for path in entities_of(name)
    ]
    numbers = [PRODUCT_TOPICS[name].name for name in products if PRODUCTS[name].is_number]
    curves = [f"/{path}" for path in (*numbers, LOWEST, NUMBER_TOPICS["saturated"])]
    plots = parts.Horizontal(
        parts.TimeSeriesView(origin="/", contents=curves, name="quality", axis_y=parts.ScalarAxis(range=(0.0, 1.0))),
        parts.TimeSeriesView(origin="/latency", name="latency [ms]"),
    )
    rows = parts.Vertical(parts.Grid(*images), plots, row_shares=list(_ROW_SHARES)) if images else plots
    return parts.Blueprint(rows, collapse_panels=True)


def _new_stream(rerun: RerunModule) -> RerunObject:
    """Create a recording that no other code of this process logs into."""
    if hasattr(rerun, "new_recording"):
        return rerun.new_recording(APPLICATION)
    return rerun.RecordingStream(APPLICATION)


@contextmanager
def open_viewer(rerun: RerunModule, products: Sequence[str]) -> Iterator[RecordingView]:
    """Open the viewer, with its usage statistics turned off; it stays open when the block ends.

    Raises:
        RuntimeError: Rerun cannot be started, or its statistics cannot be turned off.
    """
    disable_statistics()
    stream = _new_stream(rerun)
    rerun.spawn(recording=stream, default_blueprint=layout(rerun, products))
    try:
        yield RecordingView(rerun, stream)
    finally:
        rerun.disconnect(recording=stream)  # sends what is waiting


@contextmanager
def open_file(rerun: RerunModule, path: Path, products: Sequence[str], force: bool = False) -> Iterator[RecordingView]:
    """Open an `.rrd` file for writing; it appears under its name when the block ends without an error.

    Rerun writes into a pipe, since it only logs what goes wrong with a file.

    Args:
        rerun: The module.
        path: The file to make.
        products: Products to show.
        force: Whether a file of that name may be replaced.

    Raises:
        FileExistsError: There is one, and `force` is false.
        OSError: The file cannot be written.
    """
    with replacing(path, force) as file:
        reading, writing = os.pipe()
        # A thread would not do: older versions of Rerun hold the interpreter's lock while they wait for the pipe.
        copier = subprocess.Popen(
            ["sh", "-c", _COPY],
            stdin=reading,
            stdout=file,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that Ctrl-C does not end it before the writer
            restore_signals=False,  # a limit of the file's size is an error, and no signal
        )
        os.close(reading)
        stream = _new_stream(rerun)
        try:
            try:
                rerun.save(f"/dev/fd/{writing}", default_blueprint=layout(rerun, products), recording=stream)
            finally:
                os.close(writing)
            yield RecordingView(rerun, stream)
        finally:
            rerun.disconnect(recording=stream)
            _, said = copier.communicate()
            if copier.returncode:
                raise OSError(f"cannot write {path}: {said.decode(errors='replace').strip().rpartition(': ')[2]}")
