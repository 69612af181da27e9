"""ROS messages as serialized bytes: images, their lens calibrations, numbers and diagnostics. Imports no ROS.

The node reads and writes serialized messages, because a typed rclpy message of a 5 MB image costs nine times as much
per hop (`docs/decisions.md`). Replay reads the same bytes where ROS is not installed. Stamps are nanoseconds.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Dict, Iterable, Iterator, Optional, Sequence, Tuple, Union, cast

import numpy as np

from polar_pipeline._util.cdr import Cdr as Cdr
from polar_pipeline._util.cdr import CdrReader, CdrWriter
from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.backends.backend import prepend_header
from polar_pipeline.geometry import CameraNumbers, Geometry, LensCalibration, make_lens, of_the_frame, of_the_output
from polar_pipeline.options import FROM_FRAMES, Options, make_options

# the names of message types belong to this module's interface too
from polar_pipeline.options.topics import CAMERA_INFO as CAMERA_INFO
from polar_pipeline.options.topics import COMPRESSED as COMPRESSED
from polar_pipeline.options.topics import DIAGNOSTICS as DIAGNOSTICS
from polar_pipeline.options.topics import FLOAT32 as FLOAT32
from polar_pipeline.options.topics import IMAGE as IMAGE
from polar_pipeline.options.topics import image_encoding
from polar_pipeline.sensor.encodings import ENCODINGS, get_format
from polar_pipeline.sensor.frames import (
    MAX_SIDE,
    Frame,
    FrameError,
    FrameWarning,
    Light,
    RawFrame,
    checked_step,
    frame_from_buffer,
)
from polar_pipeline.sensor.mosaic import ANGLES, Sensor

#: Maximum number of characters of a name in a header or a lens calibration, of numbers in a lens calibration, and of
#: characters of a value in a diagnostic. Every output would carry longer ones.
MAX_NAME, MAX_COEFFICIENTS, MAX_VALUE = 1024, 100, 1024
#: The last stamp that a message's header can hold: its seconds are a signed 32-bit integer.
LAST_STAMP = (1 << 31) * 1_000_000_000 - 1


@dataclass(frozen=True)
class ImageMessage:
    """A `sensor_msgs/Image`, or a picture as one; `data` is a view of the message's bytes.

    `warnings` are about the file or the compressed message that the image was decoded from.
    """

    stamp_ns: int
    frame_id: str
    height: int
    width: int
    encoding: str
    is_bigendian: bool
    step: int
    data: np.ndarray
    warnings: Tuple[FrameWarning, ...] = ()


@dataclass(frozen=True)
class CompressedMessage:
    """A `sensor_msgs/CompressedImage`; `data` is a view of the message's bytes."""

    stamp_ns: int
    frame_id: str
    format: str
    data: np.ndarray


@dataclass(frozen=True, eq=False)
class CameraInfo:
    """A `sensor_msgs/CameraInfo`; equal to itself only."""

    stamp_ns: int
    frame_id: str
    height: int
    width: int
    distortion_model: str
    d: np.ndarray
    k: np.ndarray  # (9,) float64; `d`, `r` and `p` are (n,), (9,) and (12,)
    r: np.ndarray
    p: np.ndarray
    binning: Tuple[int, int] = (0, 0)  # along x and y
    #: Offset along x and y, height and width of the region of interest; 0 and 0 for the complete frame.
    region: Tuple[int, int, int, int] = (0, 0, 0, 0)
    do_rectify: bool = False
    is_whole: bool = False  # whether no region means the complete picture: the recording has stated one before

    @property
    def states_region(self) -> bool:
        """Whether the region is another one than the complete picture, which drivers also state of parts."""
        return self.region not in ((0, 0, 0, 0), (0, 0, self.height, self.width))


@dataclass(frozen=True)
class Status:
    """One `diagnostic_msgs/DiagnosticStatus`; levels are 0 OK, 1 WARN, 2 ERROR, 3 STALE."""

    level: int
    name: str
    message: str
    hardware_id: str
    values: Dict[str, str]


def stamp_within_range(stamp_ns: int) -> int:
    """Return a time, or the nearest one that a message's header can hold."""
    return min(max(stamp_ns, 0), LAST_STAMP)


def peek_stamp(cdr: Cdr) -> Optional[int]:
    """Read the stamp in nanoseconds of a message that begins with a `std_msgs/Header`, or return None if it is cut."""
    if len(cdr) < 12:
        return None
    seconds, nanoseconds = _stamp_layout(cdr).unpack_from(cdr, 4)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


def _stamp_layout(cdr: Cdr) -> struct.Struct:
    """Return the layout of the stamp in bytes 4 to 12; the second byte of a message is its byte order."""
    return struct.Struct("<iI" if bytes(cdr[1:2]) == b"\1" else ">iI")


@contextmanager
def _reading(cdr: Cdr, name: str) -> Iterator[CdrReader]:
    """Provide a reader of a serialized message, and check that its fields end with the message."""
    try:
        reader = CdrReader(cdr)
        yield reader
        reader.end()
    except ValueError as err:
        raise FrameError("cdr", f"{len(cdr)} bytes are not a {name}: {printable(str(err))}") from err


def _read_header(reader: CdrReader) -> Tuple[int, str]:
    """Read the stamp and the frame_id of a `std_msgs/Header`."""
    seconds, nanoseconds = reader.number("i4"), reader.number("u4")
    return seconds * 1_000_000_000 + nanoseconds, reader.text()


def _begin(stamp_ns: int, frame_id: str) -> CdrWriter:
    """Begin a message with a `std_msgs/Header`."""
    writer = CdrWriter()
    writer.numbers("iI", *divmod(stamp_ns, 1_000_000_000))
    writer.text(frame_id)
    return writer


def _check_header(cdr: Cdr, frame_id: str) -> None:
    """Refuse a header that cannot be copied into outgoing messages."""
    _, nanoseconds = _stamp_layout(cdr).unpack_from(cdr, 4)
    if nanoseconds >= 1_000_000_000:
        raise FrameError("cdr", f"nanoseconds of a stamp must be below 1000000000, got {nanoseconds}")
    if len(frame_id) > MAX_NAME:
        raise FrameError("cdr", f"a frame_id must have at most {MAX_NAME} characters, got {len(frame_id)}")


def restamp(cdr: Cdr, stamp_ns: int) -> bytes:
    """Replace the stamp of a message that begins with a `std_msgs/Header`."""
    stamp = _stamp_layout(cdr).pack(*divmod(stamp_ns, 1_000_000_000))
    view = memoryview(cdr)
    return b"".join((view[:4], stamp, view[12:]))


# --------------------------------------------------------------------------------------------------------------- image

#: Largest S0 of Stokes vectors at full scale 1, and some noise.
MAX_S0 = 2.05
#: Encodings of the products: element type and channels.
_ARRAYS = {
    "mono8": ("u1", 1),
    "rgb8": ("u1", 3),
    **{f"{kind}C{channels}": (code, channels) for kind, code in (("16U", "u2"), ("32F", "f4")) for channels in (1, 3)},
}


def decode_image(cdr: Cdr) -> ImageMessage:
    """Decode a serialized `sensor_msgs/Image`.

    Raises:
        FrameError: The bytes are not such a message, or its header is impossible (cause `cdr`).
    """
    with _reading(cdr, IMAGE) as reader:
        image = ImageMessage(
            *_read_header(reader),
            height=reader.number("u4"),
            width=reader.number("u4"),
            encoding=reader.text(),
            is_bigendian=bool(reader.number("u1")),
            step=reader.number("u4"),
            data=reader.sequence("u1"),
        )
    _check_header(cdr, image.frame_id)
    return image


def decode_compressed(cdr: Cdr) -> CompressedMessage:
    """Decode a serialized `sensor_msgs/CompressedImage`; errors are those of `decode_image`."""
    with _reading(cdr, COMPRESSED) as reader:
        image = CompressedMessage(*_read_header(reader), format=reader.text(), data=reader.sequence("u1"))
    _check_header(cdr, image.frame_id)
    return image


def to_raw(message: ImageMessage, options: Optional[Options] = None, camera_info: Optional[CameraInfo] = None) -> Frame:
    """Return the mosaic in an image message; see `get_format`, `frame_from_buffer` and `RawFrame.of_angles`.

    Options that are set are checked against the message and its `sensor_msgs/CameraInfo`, the newest at its time. Their
    values take the place of options that are not set.

    Raises:
        FrameError: Unknown encoding, impossible size or step, data cut short, the angles of another sensor, or an
            option that contradicts the encoding, the calibration or the region.
    """
    options = options or make_options()
    lens = options.rectify
    if isinstance(lens, LensCalibration) and lens.is_recorded and (not camera_info or lens_of(camera_info) != lens):
        raise FrameError(
            "camera_info",
            "its lens calibration is not that of the first frame, by which --rectify camera_info rectifies: write its "
            "own to a file, and name that by --rectify",
        )
    fmt = get_format(message.encoding, options.bit_depth, options.alignment)
    if fmt.packing == "float":
        return RawFrame.of_light(_stokes_light(message), options.sensor)
    place = message.height, message.width, message.step, message.is_bigendian
    frame = frame_from_buffer(message.data, fmt, *place, options.alignment)
    if isinstance(frame, RawFrame) and (fmt.packing, ENCODINGS[message.encoding].bits) == ("u16", 16):
        frame = RawFrame(frame.mosaic, options.full_scale_of(frame.mosaic))
    if fmt.channels == 1:
        if camera_info is not None:
            check_region(camera_info, options, frame.shape)
        return frame
    angles = frame.unpack().mosaic.reshape(message.height, message.width, fmt.channels)
    if fmt.channels > len(ANGLES):
        colors = angles.reshape(message.height, message.width, len(ANGLES), 3).astype(np.float32)
        return RawFrame.of_light(Light(np.moveaxis(colors / frame.full_scale, 2, 0)), options.sensor)
    return RawFrame.of_angles(angles, options.sensor, frame.full_scale, fmt.bayer)


def _stokes_light(message: ImageMessage) -> Light:
    """Return the light behind polarizers of an image of Stokes vectors.

    Raises:
        FrameError: Bytes are missing or left (causes `step`, `truncated`), or the numbers are not shares of full
            scale (`type`).
    """
    s0, s1, s2 = np.moveaxis(_stored_array(message, "f4", 3), -1, 0)
    largest = max(float(np.nanmax(np.abs(part), initial=0)) for part in (s0, s1, s2))
    if not largest <= MAX_S0:
        raise FrameError("type", f"S0 = I0 + I90 is at most 2 at full scale 1, got {largest:.6g} in S0, S1 or S2")
    return Light(np.stack([s0 + s1, s0 + s2, s0 - s1, s0 - s2]) / 2, is_measured=False)


def to_array(message: ImageMessage) -> np.ndarray:
    """Return a product's image as (H, W) or (H, W, 3) uint8, uint16 or float32, the inverse of `product_message`.

    Raises:
        FrameError: No product is published as such an image (causes `encoding`, `step`, `truncated`).
    """
    if message.encoding not in _ARRAYS:
        raise FrameError("encoding", f"encoding must be one of {', '.join(_ARRAYS)}, got {quoted(message.encoding)}")
    return _stored_array(message, *_ARRAYS[message.encoding])


def _stored_array(message: ImageMessage, kind: str, channels: int) -> np.ndarray:
    """Return the numbers of an image as (H, W) or (H, W, channels), without what fills its rows.

    Raises:
        FrameError: Bytes are missing or left (causes `step`, `truncated`).
    """
    dtype = np.dtype(kind).newbyteorder(">" if message.is_bigendian else "<")
    row, height, width = message.width * channels * dtype.itemsize, message.height, message.width
    if message.step < row:
        raise FrameError("step", f"step must be at least {row} bytes, got {message.step}")
    step = checked_step(message.data.size, height, width, row, message.step, message.encoding)
    rows = np.ascontiguousarray(message.data.reshape(height, step)[:, :row])
    array = rows.view(dtype).astype(dtype.newbyteorder("="), copy=False)
    return array if channels == 1 else array.reshape(height, width, channels)


def _write_image_head(image: ImageMessage, nbytes: int) -> bytearray:
    """Serialize an image up to its pixels, which take `nbytes`."""
    writer = _begin(image.stamp_ns, image.frame_id)
    writer.numbers("II", image.height, image.width)
    writer.text(image.encoding)
    writer.numbers("BII", image.is_bigendian, image.step, nbytes)
    return writer.data


@lru_cache(maxsize=64)
def image_head(frame_id: str, encoding: str, size: Tuple[int, int], nbytes: int) -> bytes:
    """Serialize an image of (height, width) up to its pixels, `nbytes` in all, with the stamp 0."""
    image = ImageMessage(0, frame_id, *size, encoding, False, nbytes // size[0], np.zeros(0, np.uint8))
    return bytes(_write_image_head(image, nbytes))


def encode_image(stamp_ns: int, frame_id: str, encoding: str, array: np.ndarray) -> Cdr:
    """Serialize an (H, W) or (H, W, C) array of uint8, uint16 or float32 as `sensor_msgs/Image`.

    The header is written in front of the pixels where there is space, as with every product of a pipeline: the message
    is then a view of the array's own memory, and changes with the array. Otherwise the pixels are copied once.
    """
    data = np.ascontiguousarray(array)
    head = restamp(image_head(frame_id, encoding, data.shape[:2], data.nbytes), stamp_ns)
    message = prepend_header(head, data)
    return b"".join((head, data.data)) if message is None else message


def encode_message(image: ImageMessage) -> bytes:
    """Serialize the fields of a `sensor_msgs/Image` unchanged, the inverse of `decode_image`."""
    return b"".join((_write_image_head(image, image.data.nbytes), image.data.data))


def encode_compressed(stamp_ns: int, frame_id: str, fmt: str, data: np.ndarray) -> bytes:
    """Serialize a `sensor_msgs/CompressedImage`; `data` is (N,) uint8."""
    writer = _begin(stamp_ns, frame_id)
    writer.text(fmt)
    writer.numbers("I", data.size)
    return b"".join((writer.data, data.data))


def encode_float32(value: float) -> bytes:
    """Serialize a `std_msgs/Float32`."""
    return struct.pack("<4sf", b"\0\1\0\0", value)


def decode_float32(cdr: Cdr) -> np.float32:
    """Decode the number in a serialized `std_msgs/Float32`; other bytes are a FrameError (cause `cdr`)."""
    with _reading(cdr, FLOAT32) as reader:
        (value,) = reader.numbers("f4", 1).astype(np.float32)
    return np.float32(value)


def product_message(name: str, array: np.ndarray, stamp_ns: int, frame_id: str) -> Tuple[str, Cdr]:
    """Return (message type, CDR) of one product of a `Result`."""
    if array.ndim == 0:
        return FLOAT32, encode_float32(float(array))
    encoding = image_encoding(name, str(array.dtype), array.ndim == 3)
    return IMAGE, encode_image(stamp_ns, frame_id, encoding, array)


# --------------------------------------------------------------------------------------------------------- camera info


def decode_camera_info(cdr: Cdr) -> CameraInfo:
    """Decode a serialized `sensor_msgs/CameraInfo`.

    Raises:
        FrameError: The bytes are not such a message, or its numbers exceed the limits (cause `cdr`).
    """
    with _reading(cdr, CAMERA_INFO) as reader:
        stamp_ns, frame_id = _read_header(reader)
        height, width, model = reader.number("u4"), reader.number("u4"), reader.text()
        d = reader.sequence("f8")
        k, r, p = (reader.numbers("f8", count) for count in (9, 9, 12))
        binning = reader.number("u4"), reader.number("u4")
        region = reader.number("u4"), reader.number("u4"), reader.number("u4"), reader.number("u4")
        do_rectify = bool(reader.number("u1"))
    info = CameraInfo(stamp_ns, frame_id, height, width, model, d, k, r, p, binning, region, do_rectify)
    if len(info.distortion_model) > MAX_NAME or len(info.d) > MAX_COEFFICIENTS:
        raise FrameError(
            "cdr",
            f"a lens calibration must have at most {MAX_COEFFICIENTS} coefficients of a model of at most {MAX_NAME} "
            f"characters, got {len(info.d)} and {len(info.distortion_model)}",
        )
    return info


def encode_camera_info(info: CameraInfo, stamp_ns: int, frame_id: str) -> bytearray:
    """Serialize a `sensor_msgs/CameraInfo` with another stamp and frame."""
    writer = _begin(stamp_ns, frame_id)
    writer.numbers("II", info.height, info.width)
    writer.text(info.distortion_model)
    writer.sequence(info.d)
    for matrix in (info.k, info.r, info.p):
        writer.array(matrix)
    writer.numbers("IIIIII?", *info.binning, *info.region, info.do_rectify)
    return writer.data


def camera_numbers(info: CameraInfo) -> CameraNumbers:
    """Return the calibration of the frame of a `sensor_msgs/CameraInfo`, binned and cut as the message says."""
    shapes = {"k": (3, 3), "d": (-1,), "r": (3, 3), "p": (3, 4)}
    arrays = (np.array(getattr(info, name), np.float64).reshape(shape) for name, shape in shapes.items())
    return of_the_frame(CameraNumbers(*arrays), info.binning, info.region[:2])


def frame_size(info: CameraInfo) -> Tuple[int, int]:
    """Return (height, width) of the frames of a `sensor_msgs/CameraInfo`; zeros if it does not state them."""
    _, _, height, width = info.region
    if not (height and width):
        height, width = info.height, info.width
    binning_x, binning_y = info.binning
    return height // (binning_y or 1), width // (binning_x or 1)


def stated_offset(info: CameraInfo, flip: Tuple[bool, bool], sensor: Sensor) -> Optional[Tuple[int, int]]:
    """Return the (x, y) of a frame's first pixel on the sensor by a `sensor_msgs/CameraInfo`; None if it states none.

    The message counts in the picture mirrored by `flip`, (ReverseX, ReverseY). If the message does not state the
    size of the picture, it is that of the sensor.

    Raises:
        FrameError: The region does not lie within the picture (cause `region`).
    """
    if not info.states_region:
        return (0, 0) if info.is_whole else None
    start, (height, width) = info.region[:2], info.region[2:]
    sizes = (width or info.width, height or info.height)
    stated = (info.width, info.height), sensor.size[::-1]
    # some drivers state the size of the region as that of the picture
    is_beyond = any(whole > size and first + size > whole for first, size, whole in zip(start, sizes, stated[0]))
    if is_beyond or max(start) > MAX_SIDE:
        raise FrameError(
            "region",
            f"camera_info states a region of {sizes[0]}x{sizes[1]} from {start} of a picture of {info.width}x"
            f"{info.height}, which ends before",
        )

    def place(first: int, size: int, whole: int, of_sensor: int) -> int:
        last = (whole if whole >= first + size else of_sensor) - first - size
        return last if last >= 0 else last % sensor.period

    x, y = (place(*row) if is_on else row[0] for row, is_on in zip(zip(start, sizes, *stated), flip))
    return x, y


def has_mosaic(encoding: str) -> bool:
    """Return whether a frame can be a mosaic, in which a region matters: angle images have named channels."""
    return encoding not in ENCODINGS or ENCODINGS[encoding].channels == 1


def is_same_offset(offset: Tuple[int, int], options: Options, is_exact: bool = False) -> bool:
    """Return whether the option `roi_offset` fits frames that begin at an offset: modulo the mosaic's tile.

    With a calibration, or if `is_exact` is set, they must be equal.
    """
    differences = [a - b for a, b in zip(offset, options.roi_offset)]
    return not any(differences if is_exact or options.calibration else (a % options.sensor.period for a in differences))


def check_region(info: CameraInfo, options: Options, shape: Tuple[int, int], is_exact: bool = False) -> None:
    """Check the region that a `sensor_msgs/CameraInfo` states against the option `roi_offset`.

    They must agree as in `is_same_offset`.

    Raises:
        FrameError: They differ, the message is of frames of another size, or pixels are binned (cause `region`).
    """
    if max(info.binning) > 1:
        binning = "x".join(map(str, info.binning))
        raise FrameError("region", f"camera_info states a binning of {binning}, which mixes polarizers: set it to 1")
    offset, (height, width) = stated_offset(info, options.flip, options.sensor), shape
    if offset is None:
        return
    of = frame_size(info)
    if of not in ((0, 0), shape):
        if not (any(info.region[:2]) or info.is_whole):
            return  # of other frames: it does not say where this one begins
        raise FrameError(
            "region",
            f"camera_info states a region of {of[1]}x{of[0]} from {info.region[:2]}, the frame has {width}x{height}",
        )
    if not is_same_offset(offset, options, is_exact):
        raise FrameError(
            "region",
            f"camera_info states that frames begin at {offset} of the sensor, and raw.roi_offset (--roi-offset) is "
            f"{options.roi_offset}",
        )


def lens_of(info: CameraInfo) -> LensCalibration:
    """Return the lens calibration in a `sensor_msgs/CameraInfo`.

    Raises:
        FrameError: The camera is not calibrated, or its model is unknown (cause `camera_info`).
    """
    numbers = (matrix.reshape(-1) for matrix in camera_numbers(info))
    k, d, r, p = (tuple(map(float, row)) for row in numbers)
    with errors_as(partial(FrameError, "camera_info")):
        return make_lens(frame_size(info), info.distortion_model, d, k, r, p)


def transform_camera_info(
    info: Optional[CameraInfo], geometry: Geometry, source: Tuple[int, int], stride: int = 1
) -> CameraInfo:
    """Return the lens calibration of an output, without binning and region of interest.

    Args:
        info: Lens calibration of the frame; None if `geometry` has the one by which it rectifies.
        geometry: Geometry of the output over the frame.
        source: (height, width) of the Stokes image.
        stride: Pixels along the blocks whose means are the output, as in similarity maps; 1 for none.

    Raises:
        FrameError: The calibration cannot be rotated (cause `camera_info`), or no output pixel remains (`output`).
    """
    if info is None or geometry.lens is not None:
        model, camera = "plumb_bob", cast("LensCalibration", geometry.lens).numbers()
    else:
        model, camera = info.distortion_model, camera_numbers(info)
    with errors_as(partial(FrameError, "camera_info")):
        numbers = of_the_output(camera, model, geometry, source, stride)
    height, width = (side // stride for side in geometry.output_size(source))
    k, d, r, p = (matrix.reshape(-1) for matrix in numbers)
    return CameraInfo(0, "", height, width, model, d, k, r, p)


def encode_camera_infos(
    camera_info: Union[Cdr, CameraInfo, None],
    options: Options,
    frame: Frame,
    topics: Iterable[str],
    stamp_ns: int,
    frame_id: str,
) -> Dict[str, Cdr]:
    """Serialize the `sensor_msgs/CameraInfo` beside each topic of images; empty without a known calibration.

    `camera_info` is the one of the raw frame, serialized or not; None without one. Rectified outputs have that of the
    option `rectify`. The topics are some of `CAMERA_INFO_TOPICS`.

    Raises:
        FrameError: The calibration cannot be read, is of frames of another size, or cannot be rotated (causes `cdr`,
            `camera_info`, `output`).
    """
    geometry = options.geometry or Geometry(step=2 if options.resolution == "half" else 1)
    shape, source = frame.shape, options.stokes_size(frame.shape)
    lens, info = geometry.lens, None
    if frame.is_split and lens is None:  # the pixels of the message are those of the Stokes image
        geometry, shape = replace(geometry, step=1), source
    if lens is not None:
        of = (lens.height, lens.width)
    elif camera_info is None or options.rectify == FROM_FRAMES:
        return {}
    else:
        info = camera_info if isinstance(camera_info, CameraInfo) else decode_camera_info(camera_info)
        of = frame_size(info)
    if of not in ((0, 0), shape):
        raise FrameError("camera_info", f"{of[1]}x{of[0]} of a frame of {shape[1]}x{shape[0]} pixels")
    strides = {topic: options.ssim_stride if topic.startswith("quality/") else 1 for topic in topics}
    encoded = {
        stride: encode_camera_info(transform_camera_info(info, geometry, source, stride), stamp_ns, frame_id)
        for stride in set(strides.values())
        if stride <= min(geometry.output_size(source))
    }
    return {topic: encoded[stride] for topic, stride in strides.items() if stride in encoded}


# --------------------------------------------------------------------------------------------------------- diagnostics


def encode_diagnostics(stamp_ns: int, statuses: Sequence[Status]) -> bytearray:
    """Serialize a `diagnostic_msgs/DiagnosticArray`; texts are shortened to `MAX_VALUE` printable characters."""
    writer = _begin(stamp_ns, "")
    writer.numbers("I", len(statuses))
    for status in statuses:
        writer.numbers("B", status.level)
        for text in (status.name, status.message, status.hardware_id):
            writer.text(printable(text, MAX_VALUE))
        writer.numbers("I", len(status.values))
        for text in (text for pair in status.values.items() for text in pair):
            writer.text(printable(text, MAX_VALUE))
    return writer.data
