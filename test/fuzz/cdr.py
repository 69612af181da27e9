"""Three ROS messages by the rules of CDR: written with every number's place known, and read strictly.

Classic CDR (OMG formal/02-06-51, DDS-XTypes "plain CDR"): four bytes of encapsulation, of which the second one is the
byte order, then the fields, each aligned to its size behind the encapsulation. ROS 1 has neither encapsulation nor
alignment nor terminators. Written from these rules, not from the package or the library that it uses.

`Parsed.is_loose` says that a reader may take or refuse a message, since implementations differ: up to three bytes
behind it (Fast DDS pads messages), a string without a terminator or with a zero inside, a truth value above 1, and
2^31 bytes or more, which rosbags 0.9 takes for all the rest.
"""

from __future__ import annotations

import struct
from typing import Any, Dict, NamedTuple, Tuple

from fuzz.mutate import Writer

_HEADER = "sec:i nanosec:I frame_id:text "
_IMAGE = "height:I width:I encoding:text is_bigendian:B step:I data:*B"
_ROI = "x_offset:I y_offset:I roi_height:I roi_width:I do_rectify:?"
#: Message -> its fields: the name, and a type of `struct`, `text`, `*` for a sequence, or a number for an array.
FIELDS = {
    "image": _HEADER + _IMAGE,
    "camera_info": _HEADER
    + "height:I width:I distortion_model:text d:*d k:9d r:9d p:12d binning_x:I binning_y:I "
    + _ROI,
    "ros1": "seq:I " + _HEADER + _IMAGE,
}


class NotCdrError(Exception):
    """The bytes are not such a message."""


class NegativeLengthError(NotCdrError):
    """The bytes are not a message, but rosbags 0.9 takes a text of 2^31 bytes or more for one that ends early."""


class Parsed(NamedTuple):
    """A message: its fields, with sequences and arrays as little-endian bytes, and whether readers may refuse it."""

    fields: Dict[str, Any]
    is_loose: bool


def write(kind: str, values: Dict[str, Any], order: str = "<") -> Writer:
    """A message from its fields; texts, sequences and arrays are bytes or lists of numbers."""
    is_ros1 = kind == "ros1"
    out = Writer(order)
    start = 0
    if not is_ros1:
        out.number("B", 0)
        out.number("B", int(order == "<"))
        out.raw(b"\0\0")
        start = 4
    for name, _, form in (field.partition(":") for field in FIELDS[kind].split()):
        value = values.get(name, 0)
        if not is_ros1:
            out.align(struct.calcsize("I" if form == "text" or form[0] == "*" else form[-1]), start)
        if form == "text":
            out.number("I", len(value) + (not is_ros1))
            out.raw(value + b"\0" * (not is_ros1))
        elif form[:1] == "*" or form[:-1]:
            if form[0] == "*":
                out.number("I", len(value))
                if len(value):
                    out.align(struct.calcsize(form[1]), start if not is_ros1 else len(out.data))
            if isinstance(value, bytes):
                out.raw(value)
            else:
                for number in value:
                    out.number(form[-1], number)
        else:
            out.number(form, value)
    return out


def write_camera_info(
    region: Tuple[int, int, int, int] = (0, 0, 0, 0),
    binning: Tuple[int, int] = (0, 0),
    size: Tuple[int, int] = (2048, 2448),
    stamp_ns: int = 0,
) -> bytes:
    """A `camera_info` of a region (x, y, width, height) of a camera of (height, width) pixels."""
    x, y, width, height = region
    fields = {
        "sec": stamp_ns // 10**9,
        "nanosec": stamp_ns % 10**9,
        "frame_id": b"cam",
        "height": size[0],
        "width": size[1],
        "distortion_model": b"plumb_bob",
        "d": [0.0] * 5,
        "k": [1000.0, 0, 1224, 0, 1000, 1024, 0, 0, 1],
        "r": [1.0, 0, 0, 0, 1, 0, 0, 0, 1],
        "p": [1000.0, 0, 1224, 0, 0, 1000, 1024, 0, 0, 0, 1, 0],
        "binning_x": binning[0],
        "binning_y": binning[1],
        "x_offset": x,
        "y_offset": y,
        "roi_height": height,
        "roi_width": width,
        "do_rectify": False,
    }
    return bytes(write("camera_info", fields).data)


class _Reader:
    def __init__(self, data: bytes, order: str, start: int, is_ros1: bool) -> None:
        self.data, self.order, self.start, self.is_ros1 = data, order, start, is_ros1
        self.place = start
        self.is_loose = False

    def take(self, count: int, alignment: int = 1) -> bytes:
        begin = self.place if self.is_ros1 else self.place + -(self.place - self.start) % alignment
        if begin + count > len(self.data):
            raise NotCdrError("cut short")
        self.place = begin + count
        return self.data[begin : self.place]

    def number(self, kind: str) -> Any:
        size = struct.calcsize(kind)
        (value,) = struct.unpack(self.order + kind.replace("?", "B"), self.take(size, size))
        if kind != "?":
            return value
        self.is_loose |= value > 1
        return bool(value)

    def text(self) -> str:
        length = self.number("I")
        if length >= 2**31:
            raise NegativeLengthError("a text of 2 GB")
        data = self.take(length)
        if not self.is_ros1:
            self.is_loose |= data[-1:] != b"\0"
            data = data[:-1]
        self.is_loose |= 0 in data
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as err:
            raise NotCdrError("not UTF-8") from err

    def numbers(self, kind: str, count: int) -> bytes:
        size = struct.calcsize(kind)
        if count >= 2**31 and size == 1:
            self.is_loose = True
            count = len(self.data) - self.place
        data = self.take(count * size, size if count else 1)
        swapped = self.order == ">" and size > 1
        return b"".join(data[k : k + size][::-1] for k in range(0, len(data), size)) if swapped else data


def parse(kind: str, data: bytes) -> Parsed:
    """A message from its bytes.

    Raises:
        NotCdrError: The bytes are not such a message.
    """
    is_ros1 = kind == "ros1"
    if not is_ros1 and (data[:2] not in (b"\0\0", b"\0\1") or len(data) < 4):
        raise NotCdrError("not plain CDR")
    reader = _Reader(data, "<" if is_ros1 or data[1] else ">", 0 if is_ros1 else 4, is_ros1)
    fields: Dict[str, Any] = {}
    for name, _, form in (field.partition(":") for field in FIELDS[kind].split()):
        if form == "text":
            fields[name] = reader.text()
        elif form[0] == "*":
            fields[name] = reader.numbers(form[1], reader.number("I"))
        else:
            fields[name] = reader.numbers(form[-1], int(form[:-1])) if form[:-1] else reader.number(form)
    left = len(data) - reader.place
    if left > (0 if is_ros1 else 3):
        raise NotCdrError("bytes behind the message")
    return Parsed(fields, reader.is_loose or left > 0)
