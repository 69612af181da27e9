"""ROS messages as serialized bytes: the only module that knows CDR, through the `rosbags` library. Imports no ROS.

The node reads and writes serialized messages, because a typed rclpy message of a 5 MB image costs nine times as much
per hop (`docs/decisions.md`). Stamps are nanoseconds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Dict, Iterable, Optional, Tuple, Union

import numpy as np
from rosbags.serde import SerdeError
from rosbags.typesys import Stores, get_typestore

from polar_pipeline._util.text import printable, quoted
from polar_pipeline.backend import prepend_header
from polar_pipeline.geometry import CameraNumbers, Geometry, LensCalibration, make_lens, of_the_frame, of_the_output
from polar_pipeline.options import Options, make_options
from polar_pipeline.sensor.encodings import get_format
from polar_pipeline.sensor.frames import Frame, FrameError, RawFrame, checked_step, frame_from_buffer

# the names of message types belong to this module's interface too
from polar_pipeline.topics import CAMERA_INFO as CAMERA_INFO
from polar_pipeline.topics import COMPRESSED as COMPRESSED
from polar_pipeline.topics import DIAGNOSTICS as DIAGNOSTICS
from polar_pipeline.topics import FLOAT32 as FLOAT32
from polar_pipeline.topics import IMAGE as IMAGE
from polar_pipeline.topics import image_encoding

if TYPE_CHECKING:
    from rosbags.typesys.store import Typestore

#: Bytes of a serialized message.
Cdr = Union[bytes, bytearray, memoryview]
#: A message object of rosbags, whose classes are made at run time from message definitions.
RosMessage = Any

#: Limits: characters of a name in a header or a lens calibration, numbers in a lens calibration, and characters of a
#: value in a diagnostic. Every output would carry longer ones.
MAX_NAME, MAX_COEFFICIENTS, MAX_VALUE = 1024, 100, 1024
#: The last stamp that a message's header can hold.
_LAST_STAMP = (1 << 31) * 1_000_000_000 - 1

#: What the library raises for malformed bytes; it checks some lengths and trusts others.
_MALFORMED = (SerdeError, struct.error, ValueError, IndexError, AssertionError, TypeError, OverflowError, MemoryError)


@dataclass(frozen=True)
class ImageMessage:
    """A `sensor_msgs/Image`; `data` is a view of the message's bytes."""

    stamp_ns: int
    frame_id: str
    height: int
    width: int
    encoding: str
    is_bigendian: bool
    step: int
    data: np.ndarray


@dataclass(frozen=True)
class Status:
    """One `diagnostic_msgs/DiagnosticStatus`; levels are 0 OK, 1 WARN, 2 ERROR, 3 STALE."""

    level: int
    name: str
    message: str
    hardware_id: str
    values: Dict[str, str]


@lru_cache(maxsize=1)
def typestore() -> Typestore:
    """Return the message definitions; those used here are the same in every ROS 2 release."""
    return get_typestore(Stores.ROS2_HUMBLE)


def _new(name: str, *values: Any) -> RosMessage:
    """Create a message from the values of its fields."""
    return typestore().types[name](*values)


def _header(stamp_ns: int, frame_id: str) -> RosMessage:
    seconds, nanoseconds = divmod(stamp_ns, 1_000_000_000)
    return _new("std_msgs/msg/Header", _new("builtin_interfaces/msg/Time", seconds, nanoseconds), frame_id)


def stamp_of(message: RosMessage) -> int:
    """Return the header's stamp of a message in nanoseconds."""
    return int(message.header.stamp.sec) * 1_000_000_000 + int(message.header.stamp.nanosec)


def stamp_within_range(stamp_ns: int) -> int:
    """Return a time, or the nearest one that a message's header can hold."""
    return min(max(stamp_ns, 0), _LAST_STAMP)


def peek_stamp(cdr: Cdr) -> Optional[int]:
    """Read the stamp in nanoseconds of a message that begins with a `std_msgs/Header`, or return None if it is cut."""
    if len(cdr) < 12:
        return None
    seconds, nanoseconds = _stamp_layout(cdr).unpack_from(cdr, 4)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


def _stamp_layout(cdr: Cdr) -> struct.Struct:
    """Return the layout of the stamp in bytes 4 to 12, by the byte order in the message's second byte."""
    return struct.Struct("<iI" if bytes(cdr[1:2]) == b"\1" else ">iI")


def encode(message: RosMessage, name: str) -> memoryview:
    """Encode a message as little-endian CDR bytes."""
    return memoryview(typestore().serialize_cdr(message, name))


def decode(cdr: Cdr, name: str) -> RosMessage:
    """Decode CDR bytes to a message.

    Raises:
        FrameError: The bytes are no such message (cause `cdr`).
    """
    store = typestore()
    try:
        message = store.deserialize_cdr(memoryview(cdr), name)  # a slice of bytes would be a copy
        size = 4 + store.get_msgdef(name).getsize_cdr(0, message, store)
    except _MALFORMED as err:
        raise FrameError("cdr", f"{len(cdr)} bytes are no {name}: {type(err).__name__} {printable(str(err))}") from err
    # rosbags 0.9, the last for Python 3.8, takes other encodings for CDR, and lengths above 2^31 for negative
    if bytes(cdr[:2]) not in (b"\0\0", b"\0\1") or not size <= len(cdr) < size + 4:
        raise FrameError("cdr", f"{len(cdr)} bytes are no {name}")
    return message


def from_ros1(data: Union[bytes, memoryview], name: str) -> memoryview:
    """Convert a serialized ROS 1 message to CDR bytes.

    Raises:
        FrameError: The bytes are no such message (cause `cdr`).
    """
    try:
        return memoryview(typestore().ros1_to_cdr(data, name))
    except _MALFORMED as err:
        raise FrameError("cdr", f"{len(data)} bytes are no ROS 1 {name}: {printable(str(err))}") from err


def restamp(cdr: Cdr, stamp_ns: int) -> bytes:
    """Replace the stamp of a message that begins with a `std_msgs/Header`."""
    stamp = _stamp_layout(cdr).pack(*divmod(stamp_ns, 1_000_000_000))
    view = memoryview(cdr)
    return b"".join((view[:4], stamp, view[12:]))


# --------------------------------------------------------------------------------------------------------------- image

#: Encodings of the products: element type and channels.
_ARRAYS = {
    "mono8": ("u1", 1),
    "rgb8": ("u1", 3),
    **{f"{kind}C{channels}": (code, channels) for kind, code in (("16U", "u2"), ("32F", "f4")) for channels in (1, 3)},
}


def decode_image(cdr: Cdr) -> ImageMessage:
    """Decode a serialized `sensor_msgs/Image`.

    Raises:
        FrameError: The bytes are not an image message, or its header is impossible (cause `cdr`).
    """
    message = decode(cdr, IMAGE)
    check_header(message.header)
    fields = message.height, message.width, message.encoding, bool(message.is_bigendian), message.step, message.data
    return ImageMessage(stamp_of(message), message.header.frame_id, *fields)


def check_header(header: RosMessage) -> None:
    """Refuse a header that cannot be copied into outgoing messages.

    Raises:
        FrameError: The message's nanoseconds are a second or more, or its frame_id is too long (cause `cdr`).
    """
    if header.stamp.nanosec >= 1_000_000_000:
        raise FrameError("cdr", f"nanoseconds of a stamp must be below 1000000000, got {header.stamp.nanosec}")
    if len(header.frame_id) > MAX_NAME:
        raise FrameError("cdr", f"a frame_id must have at most {MAX_NAME} characters, got {len(header.frame_id)}")


def to_raw(message: ImageMessage, options: Optional[Options] = None) -> Frame:
    """Return the mosaic in an image message; see `get_format`, `frame_from_buffer` and `RawFrame.of_angles`.

    Args:
        message: The message.
        options: How it is processed; None for the defaults.

    Raises:
        FrameError: Unknown encoding, impossible size or step, data cut short, or the angles of another sensor.
    """
    options = options or make_options()
    fmt = get_format(message.encoding, options.bit_depth, options.alignment)
    frame = frame_from_buffer(message.data, fmt, message.height, message.width, message.step, message.is_bigendian)
    if fmt.channels == 1:
        return frame
    angles = frame.unpack().mosaic.reshape(message.height, message.width, fmt.channels)
    return RawFrame.of_angles(angles, options.sensor, frame.full_scale, fmt.bayer)


def to_array(message: ImageMessage) -> np.ndarray:
    """Return a product's image as (H, W) or (H, W, 3) uint8, uint16 or float32, the inverse of `product_message`.

    Raises:
        FrameError: No product is published as such an image (causes `encoding`, `step`, `truncated`).
    """
    if message.encoding not in _ARRAYS:
        raise FrameError("encoding", f"encoding must be one of {', '.join(_ARRAYS)}, got {quoted(message.encoding)}")
    kind, channels = _ARRAYS[message.encoding]
    dtype = np.dtype(kind).newbyteorder(">" if message.is_bigendian else "<")
    row, height, width = message.width * channels * dtype.itemsize, message.height, message.width
    if message.step < row:
        raise FrameError("step", f"step must be at least {row} bytes, got {message.step}")
    step = checked_step(message.data.size, height, width, row, message.step, message.encoding)
    rows = np.ascontiguousarray(message.data.reshape(height, step)[:, :row])
    array = rows.view(dtype).astype(dtype.newbyteorder("="), copy=False)
    return array if channels == 1 else array.reshape(height, width, channels)


@lru_cache(maxsize=64)
def _image_head(frame_id: str, encoding: str, size: Tuple[int, int], nbytes: int) -> bytes:
    """Serialize an image of (height, width) up to its pixels, `nbytes` in all, with the stamp 0."""
    nothing = np.zeros(0, np.uint8)
    empty = encode(_new(IMAGE, _header(0, frame_id), *size, encoding, 0, nbytes // size[0], nothing), IMAGE)
    return b"".join((empty[:-4], struct.pack("<I", nbytes)))  # it ends in the number of its bytes


def encode_image(stamp_ns: int, frame_id: str, encoding: str, array: np.ndarray) -> Cdr:
    """Serialize an (H, W) or (H, W, C) array of uint8, uint16 or float32 as `sensor_msgs/Image`.

    The header is written in front of the pixels where there is space, as with every product of a pipeline: the message
    is then a view of the array's own memory, and changes with the array. Otherwise the pixels are copied once.
    """
    data = np.ascontiguousarray(array)
    head = restamp(_image_head(frame_id, encoding, data.shape[:2], data.nbytes), stamp_ns)
    message = prepend_header(head, data)
    return b"".join((head, data.data)) if message is None else message


def encode_message(image: ImageMessage) -> memoryview:
    """Serialize the fields of a `sensor_msgs/Image` unchanged, the inverse of `decode_image`."""
    fields = image.height, image.width, image.encoding, int(image.is_bigendian), image.step, image.data
    return encode(_new(IMAGE, _header(image.stamp_ns, image.frame_id), *fields), IMAGE)


def encode_compressed(stamp_ns: int, frame_id: str, fmt: str, data: np.ndarray) -> memoryview:
    """Serialize a `sensor_msgs/CompressedImage`; `data` is (N,) uint8."""
    return encode(_new(COMPRESSED, _header(stamp_ns, frame_id), fmt, data), COMPRESSED)


def encode_float32(value: float) -> memoryview:
    """Serialize a `std_msgs/Float32`."""
    return encode(_new(FLOAT32, float(value)), FLOAT32)


def product_message(name: str, array: np.ndarray, stamp_ns: int, frame_id: str) -> Tuple[str, Cdr]:
    """Return (message type, CDR) of one product of a `Result`."""
    if array.ndim == 0:
        return FLOAT32, encode_float32(float(array))
    encoding = image_encoding(name, str(array.dtype), array.ndim == 3)
    return IMAGE, encode_image(stamp_ns, frame_id, encoding, array)


# --------------------------------------------------------------------------------------------------------- camera info


def decode_camera_info(cdr: Cdr) -> RosMessage:
    """Decode a serialized `sensor_msgs/CameraInfo` to the library's message object.

    Raises:
        FrameError: The bytes are not a camera info, or its numbers exceed the limits (cause `cdr`).
    """
    info = decode(cdr, CAMERA_INFO)
    if len(info.distortion_model) > MAX_NAME or len(info.d) > MAX_COEFFICIENTS:
        raise FrameError(
            "cdr",
            f"a lens calibration must have at most {MAX_COEFFICIENTS} coefficients of a model of at most {MAX_NAME} "
            f"characters, got {len(info.d)} and {len(info.distortion_model)}",
        )
    return info


def encode_camera_info(info: RosMessage, stamp_ns: int, frame_id: str) -> memoryview:
    """Serialize a `sensor_msgs/CameraInfo` with another stamp and frame."""
    values = {name: getattr(info, name) for name in info.__dataclass_fields__ if not name.startswith("__")}
    values["header"] = _header(stamp_ns, frame_id)
    return encode(typestore().types[CAMERA_INFO](**values), CAMERA_INFO)


def camera_numbers(info: RosMessage) -> CameraNumbers:
    """Return the calibration of the frame of a `sensor_msgs/CameraInfo`, binned and cut as the message says."""
    shapes = {"k": (3, 3), "d": (-1,), "r": (3, 3), "p": (3, 4)}
    arrays = (np.array(getattr(info, name), np.float64).reshape(shape) for name, shape in shapes.items())
    offset = int(info.roi.x_offset), int(info.roi.y_offset)
    return of_the_frame(CameraNumbers(*arrays), (int(info.binning_x), int(info.binning_y)), offset)


def frame_size(info: RosMessage) -> Tuple[int, int]:
    """Return (height, width) of the frames of a `sensor_msgs/CameraInfo`; zeros if it does not state them."""
    is_cut = info.roi.height and info.roi.width
    height, width = (info.roi.height, info.roi.width) if is_cut else (info.height, info.width)
    return int(height) // (int(info.binning_y) or 1), int(width) // (int(info.binning_x) or 1)


def lens_of(info: RosMessage) -> LensCalibration:
    """Return the lens calibration in a `sensor_msgs/CameraInfo`.

    Raises:
        FrameError: The camera is not calibrated, or its model is unknown (cause `camera_info`).
    """
    numbers = (matrix.reshape(-1) for matrix in camera_numbers(info))
    k, d, r, p = (tuple(map(float, row)) for row in numbers)
    try:
        return make_lens(frame_size(info), info.distortion_model, d, k, r, p)
    except ValueError as err:
        raise FrameError("camera_info", str(err)) from err


def transform_camera_info(info: RosMessage, geometry: Geometry, source: Tuple[int, int], stride: int = 1) -> RosMessage:
    """Return the lens calibration of an output, without binning and region of interest.

    Args:
        info: That of the frame; None if `geometry` has the one by which it rectifies.
        geometry: Geometry of the output over the frame.
        source: The same.
        stride: The same.

    Raises:
        FrameError: The calibration cannot be rotated (cause `camera_info`), or no output pixel remains (`output`).
    """
    if geometry.lens is not None:
        model, camera = "plumb_bob", geometry.lens.numbers()
    else:
        model, camera = info.distortion_model, camera_numbers(info)
    try:
        found = of_the_output(camera, model, geometry, source, stride)
    except ValueError as err:
        raise FrameError("camera_info", str(err)) from err
    size = (side // stride for side in geometry.output_size(source))
    roi = _new("sensor_msgs/msg/RegionOfInterest", 0, 0, 0, 0, False)
    k, d, r, p = (matrix.reshape(-1) for matrix in found)
    return _new(CAMERA_INFO, _header(0, ""), *size, model, d, k, r, p, 0, 0, roi)


# --------------------------------------------------------------------------------------------------------- diagnostics


def encode_diagnostics(stamp_ns: int, statuses: Iterable[Status]) -> memoryview:
    """Serialize a `diagnostic_msgs/DiagnosticArray`; texts are shortened to `MAX_VALUE` printable characters."""

    def show(text: str) -> str:
        return printable(text, MAX_VALUE)

    rows = [
        _new(
            "diagnostic_msgs/msg/DiagnosticStatus",
            status.level,
            *(show(text) for text in (status.name, status.message, status.hardware_id)),
            [_new("diagnostic_msgs/msg/KeyValue", show(key), show(value)) for key, value in status.values.items()],
        )
        for status in statuses
    ]
    return encode(_new(DIAGNOSTICS, _header(stamp_ns, ""), rows), DIAGNOSTICS)
