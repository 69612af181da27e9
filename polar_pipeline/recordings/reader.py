"""`read_frames`: the frames of pictures, folders, patterns, arrays, recordings and files without a header, in order."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Tuple, Union, cast

import numpy as np

from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.paths import AnyPath, as_path
from polar_pipeline._util.text import numbered
from polar_pipeline._util.values import real, truth
from polar_pipeline.options import OPTIONS, Options, make_options
from polar_pipeline.quality.frame_checks import check_frame
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.contents import Stated
from polar_pipeline.recordings.limits import MAX_BYTES
from polar_pipeline.recordings.messages import CameraInfo, ImageMessage, is_same_offset
from polar_pipeline.recordings.rawpicture import nonlinearity
from polar_pipeline.recordings.source import Recorded, Source, open_source
from polar_pipeline.sensor.encodings import get_format
from polar_pipeline.sensor.frames import Frame, FrameError, FrameWarning
from polar_pipeline.sensor.mosaic import ANGLES


@dataclass(frozen=True)
class StoredFrame:
    """A frame of a file or recording; `Pipeline` takes it as it is.

    Attributes:
        name: Name of the file without suffix, or what the files of four angle images have in common; for several frames
            in a file or recording also their number, from 0 on.
        stamp_ns: Time stamp in nanoseconds; None for files, which have none.
        image: Pixels and encoding, as a message.
        camera_info: The lens calibration that was recorded with it; None without one.
        camera: State of the camera in `camera.yaml` beside a file or in a recording of the live node; {} without one.
        is_checked: Whether `to_frame` warns of what looks wrong in the pixels. `read_frames` sets it for the first
            frame of a source: a check takes some milliseconds.
    """

    name: str
    stamp_ns: Optional[int]
    image: ImageMessage
    camera_info: Optional[CameraInfo] = None
    camera: Mapping[str, object] = field(default_factory=dict)
    is_checked: bool = False

    @property
    def warnings(self) -> Tuple[FrameWarning, ...]:
        """What looks wrong about the file."""
        return self.image.warnings

    @property
    def encoding(self) -> str:
        """The stated pixel format: a name of `docs/encodings.md`, such as `mono8`, `Mono12p` or `Angles8`."""
        return self.image.encoding

    @property
    def array(self) -> np.ndarray:
        """The numbers: (H, W) of a mosaic; (4, H, W) angle images, in color (4, H, W, 3) as shares of full scale."""
        # the numbers do not depend on a region, and on a sensor only by its colors
        options = make_options("IMX250MYR" if get_format(self.encoding).bayer else "IMX250MZR")
        frame = messages.to_raw(self.image, options).unpack()
        if frame.light is not None:
            return frame.light.angles
        if not frame.is_split:
            return frame.mosaic
        places = map(options.sensor.position, ANGLES)
        return np.stack([frame.mosaic[row::2, column::2] for row, column in places])

    def to_frame(self, options: Options) -> Frame:
        """Return the frame's numbers with the meaning that the file, the state of the camera and the options state.

        Raises:
            FrameError: They contradict each other.
        """
        options = self._with_camera(options)
        frame = messages.to_raw(self.image, options, self.camera_info)
        if self.is_checked:
            for row in check_frame(frame, options).warnings:
                if row.cause != "bits":  # which `Pipeline` warns of
                    warnings.warn(f"{self.name}: {row.text}", stacklevel=2)
        return frame

    def _with_camera(self, options: Options) -> Options:
        """Return options with the number of bits that the state of the camera beside a file has.

        Raises:
            FrameError: The state contradicts an option, or cannot be read (cause `camera`).
        """
        camera, is_file = self.camera, self.stamp_ns is None
        has_mosaic = messages.has_mosaic(self.encoding)
        stated = {name: camera[name] for name in ("sensor", "roi_offset", "flip") if has_mosaic and camera.get(name)}
        with errors_as(partial(FrameError, "camera")):
            if is_file and camera.get("bit_depth", 16) != 16:  # messages tell their bits
                stated.update(bit_depth=camera["bit_depth"], alignment="lsb")
                bits = OPTIONS["bit_depth"].validate(camera["bit_depth"])
                options = replace(options, bit_depth=options.bit_depth or cast("Any", bits))
            for name, text in stated.items():
                own, value = getattr(options, name), cast("Any", OPTIONS[name].validate(text))
                is_offset = name == "roi_offset"
                if not (is_same_offset(value, options) if is_offset else OPTIONS[name].is_same(own, value)):
                    own, value = (getattr(each, "name", each) for each in (own, value))
                    recorded = f"{self.name} was recorded with {value}"
                    raise ValueError(f"{name} is {own}, and {recorded}: Pipeline({name}={value!r})")
            tone = nonlinearity(real("gamma", camera.get("gamma", 1.0)), truth("lut", camera.get("lut", False)))
        if tone and self.is_checked:
            warnings.warn(f"{self.name}: {tone}", stacklevel=4)
        return options


def read_frames(
    source: Union[AnyPath, Sequence[AnyPath]],
    *,
    topic: str = "",
    content: str = "auto",
    order: Sequence[int] = (),
    array: str = "",
    raw: str = "",
    max_bytes: int = MAX_BYTES,
    on_error: Optional[Callable[[FrameError], None]] = None,
) -> Iterator[StoredFrame]:
    """Read frames, one after the other, in the natural order of their names (2 before 10) or of recording.

    Args:
        source: One or several of: a picture (PNG, TIFF with pages, PGM, BMP), an array (NPY, NPZ, MAT), a lossless gray
            video, a folder of them, `-` for a picture from the standard input, a pattern such as `*.png` or
            `scene_{000,045,090,135}.png` (`docs/files.md`), or a recording: a rosbag2 folder, `.mcap`, `.db3`, `.bag`.
        topic: Topic of the raw images of a recording; "" for the only one.
        content: What files hold: `mosaics`, `angles` (four angle images), `tiles` (the same as tiles of a picture) or
            `stokes` (S0, S1, S2); `auto` decides by names, shapes and numbers, and refuses what is not clear.
        order: Angles of planes, pages, channels or tiles, in their order; () for the usual one, which is checked.
        array: Name of the array in an archive (NPZ, MAT).
        raw: Size and encoding of files without a header, such as `2448x2048:Mono12p`.
        max_bytes: Largest size of a frame.
        on_error: Called with the error of a frame that cannot be read, which is then left out; None raises it.

    Raises:
        SourceError: There is no such source, or it is not clear what its files are.
        FrameError: A frame cannot be read.
        ValueError: An argument is not allowed.
    """
    stated = Stated(content, tuple(order), array, raw)
    sources = [source] if isinstance(source, (str, Path)) else source
    for each in sources:
        with open_source(each, topic, max_bytes=max_bytes, stated=stated) as opened:
            for index, record in enumerate(opened.records):
                try:
                    frame = stored_frame(each, opened, index, record)
                except FrameError as err:  # noqa: PERF203 - of this frame only
                    if on_error is None:
                        raise
                    on_error(err)
                else:
                    yield replace(frame, is_checked=not index)


def stored_frame(source: AnyPath, opened: Source, index: int, record: Recorded) -> StoredFrame:
    """Decode a frame of an open source, and name it.

    Raises:
        FrameError: It cannot be decoded.
    """
    image = record.image()
    if not record.message_type:  # of a file
        return StoredFrame(image.frame_id, None, image, camera=record.camera)
    name = numbered(as_path(source).stem, index, opened.total)
    return StoredFrame(name, image.stamp_ns, image, record.camera_info, record.camera)
