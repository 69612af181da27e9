"""A Rerun recording of products: into the viewer, or into a file that is either complete or absent."""

from __future__ import annotations

import importlib
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence, Tuple

import numpy as np

from polar_pipeline._util.files import replacing
from polar_pipeline._util.imports import importing
from polar_pipeline.options.products import PRODUCTS, level_scale
from polar_pipeline.options.topics import NUMBER_TOPICS, PRODUCT_TOPICS
from polar_pipeline.pictures.colors import aolp_indices, picture
from polar_pipeline.polarimetry.colormaps import AOLP_MAP
from polar_pipeline.replay.run import ReplayedFrame
from polar_pipeline.tools.view.telemetry import disable_telemetry

#: The module `rerun`, and objects of it: images, layouts, recordings. It is an extra, and its versions differ.
RerunModule = Any
RerunObject = Any
#: Class of pixels without AoLP; the others are the indices of `AOLP_MAP`.
_NO_ANGLE = 256
#: Color map of a product -> Rerun's name of it.
_COLORMAPS = {"gray": "Grayscale", "viridis": "Viridis"}
#: Rerun's diverging color map, for planes of both signs: black at 0, and the only one that all versions have.
_DIVERGING = "CyanToYellow"
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


def entities_of(name: str) -> Tuple[str, ...]:
    """Return the paths of the entities of an image: its topic, or one below it for each plane."""
    path = PRODUCT_TOPICS[name].name
    return tuple(f"{path}/{plane}" for plane, *_ in PRODUCTS[name].planes) or (path,)


def product_entities(rerun: RerunModule, name: str, array: np.ndarray) -> Iterator[Tuple[str, RerunObject]]:
    """Yield the entities of an image of a product: path, and logged object.

    Numbers stay as they are, so that the viewer shows them. AoLP becomes classes, since Rerun's images of numbers take
    no map but its own. Colors of other types than 8 bit become 8 bit.
    """
    row, paths, scale = PRODUCTS[name], entities_of(name), level_scale(name, str(array.dtype))
    path, colormap = paths[0], _COLORMAPS.get(row.colors, "")
    if row.planes:
        for plane, channel, (_, *span) in zip(paths, range(len(paths)), row.planes):
            low, high = span
            yield plane, _numbers(rerun, array[..., channel], _DIVERGING if low == -high else colormap, (low, high))
    elif array.ndim == 3:
        yield path, rerun.Image(array if array.dtype == np.uint8 else picture(name, array))
    elif row.wraps:
        angles = array / scale
        classes = np.where(np.isnan(angles), _NO_ANGLE, aolp_indices(np.nan_to_num(angles)))
        yield path, rerun.SegmentationImage(classes.astype(np.uint16))
    elif row.colors == "gray" and array.dtype == np.uint8:
        yield path, rerun.Image(array, color_model="L")
    else:
        low, high = row.viewed
        yield path, _numbers(rerun, array, colormap, (low * scale, high * scale))


def angle_colors(rerun: RerunModule) -> RerunObject:
    """Return colors and labels of the classes of AoLP, which are logged once for all frames."""
    labels = [(k, f"{k * 180 / 256:.1f} deg", tuple(map(int, color))) for k, color in enumerate(AOLP_MAP)]
    return rerun.AnnotationContext([*labels, (_NO_ANGLE, "invalid", (0, 0, 0))])


def _numbers(rerun: RerunModule, array: np.ndarray, colormap: str, span: Tuple[float, float]) -> RerunObject:
    """Return an image of numbers, with a color map from the first to the last value of a span."""
    return rerun.DepthImage(np.ascontiguousarray(array), meter=1.0, colormap=colormap, depth_range=list(span))


class RecordingView:
    """Rerun recording into which `show` logs frame after frame.

    Attributes:
        has_times: Whether stamps mean something (`Source.has_times`).
    """

    has_times = True

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
        if hasattr(self._rerun, "set_time"):
            if self.has_times:
                self._rerun.set_time(STAMP, timestamp=np.datetime64(stamp_ns, "ns"), recording=self._stream)
            self._rerun.set_time(FRAME, sequence=self._count, recording=self._stream)
        else:  # before 0.23
            if self.has_times:
                self._rerun.set_time_nanos(STAMP, stamp_ns, recording=self._stream)
            self._rerun.set_time_sequence(FRAME, self._count, recording=self._stream)
        for name, array in result.items():
            if array.ndim:
                for path, image in product_entities(self._rerun, name, array):
                    self._rerun.log(path, image, recording=self._stream)
            else:
                self._plot(PRODUCT_TOPICS[name].name, float(array))
        for stage, seconds in frame.timings.items():
            if stage != "write":  # no products are written
                self._plot(f"latency/{stage}_ms", 1000 * seconds)
        if frame.quality is not None:
            self._plot(NUMBER_TOPICS["saturated"], frame.quality.saturated)
            if frame.quality.lowest is not None:
                self._plot(LOWEST, frame.quality.lowest.ssim)
        self._count += 1

    def _plot(self, path: str, value: float) -> None:
        self._rerun.log(path, self._scalar(value), recording=self._stream)


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
    disable_telemetry()
    stream = _new_stream(rerun)
    rerun.spawn(recording=stream, default_blueprint=layout(rerun, products))
    try:
        yield RecordingView(rerun, stream)
    finally:
        rerun.disconnect(recording=stream)  # sends what is waiting


@contextmanager
def open_file(rerun: RerunModule, path: Path, products: Sequence[str], force: bool = False) -> Iterator[RecordingView]:
    """Open an `.rrd` file for writing; it appears under its name when the block ends without an error.

    Rerun writes into a pipe, since it only logs errors of a file.

    Raises:
        FileExistsError: The file exists, and `force` is false.
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
            _, errors = copier.communicate()
            if copier.returncode:
                raise OSError(f"cannot write {path}: {errors.decode(errors='replace').strip().rpartition(': ')[2]}")
