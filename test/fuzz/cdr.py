"""What four ROS messages are by the rules of CDR, read strictly: what the package is compared with.

Classic CDR (OMG formal/02-06-51, DDS-XTypes "plain CDR"): four bytes of encapsulation, of which the second one says the
byte order, then the fields, each aligned to its size behind the encapsulation. Written from these rules; nothing of the
package or of the library that it uses is in here.

What may be taken or refused, since implementations differ (`Parsed.loose` says which of these were met):

- `padding`: up to three bytes behind the message. Fast DDS pads messages to multiples of four.
- `terminator`: a string whose last byte is not zero. rosbags 0.9 does not look at it.
- `nul`: a string with a zero in it. CDR forbids it, readers take the length's word.
- `empty`: a string of length 0 instead of a lone terminator, as some writers have it.
- `truth`: a truth value that is neither 0 nor 1.
- `rest`: 2^31 bytes or more, of which there are fewer. rosbags 0.9 takes that for all the rest.

Options in the third and fourth byte and bytes of alignment mean nothing, whatever they are.
"""

from __future__ import annotations

import struct
from typing import Any, Dict, Set


class NotCdrError(Exception):
    """The bytes are no such message."""


class NegativeLengthError(NotCdrError):
    """Nor are these, but rosbags 0.9 takes a text of 2^31 bytes or more for one that ends before it starts."""


class Parsed:
    """A message.

    Attributes:
        fields: Name -> value; sequences and arrays of numbers as their bytes in little-endian order.
        loose: What was met that may be taken or refused.
    """

    def __init__(self, fields: Dict[str, Any], loose: Set[str]) -> None:
        self.fields = fields
        self.loose = loose


class _Reader:
    def __init__(self, data: bytes, order: str, place: int, is_aligned: bool) -> None:
        self.data = data
        self.order = order
        self.place = self.start = place
        self.is_aligned = is_aligned
        self.loose: Set[str] = set()

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.place:
            raise NotCdrError("cut short")
        self.place += count
        return self.data[self.place - count : self.place]

    def align(self, size: int) -> None:
        if self.is_aligned:
            self.take(-(self.place - self.start) % size)

    def number(self, kind: str) -> Any:
        size = struct.calcsize(kind)
        self.align(size)
        return struct.unpack(self.order + kind, self.take(size))[0]

    def truth(self) -> bool:
        value = self.number("B")
        if value > 1:
            self.loose.add("truth")
        return bool(value)

    def text(self) -> str:
        length = self.number("I")
        if length >= 2**31:
            raise NegativeLengthError("a text of 2 GB")
        data = self.take(length)
        if self.is_aligned:  # as ROS 2 has it, with a zero at the end
            if not data:
                self.loose.add("empty")
            elif data[-1]:
                self.loose.add("terminator")
            data = data[:-1]
        if 0 in data:
            self.loose.add("nul")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as err:
            raise NotCdrError("no UTF-8") from err

    def numbers(self, kind: str, count: int) -> bytes:
        size = struct.calcsize(kind)
        if count >= 2**31 and size == 1:
            self.loose.add("rest")
            count = len(self.data) - self.place
        if count:
            self.align(size)
        data = self.take(count * size)
        if self.order == ">" and size > 1:
            data = b"".join(data[k : k + size][::-1] for k in range(0, len(data), size))
        return data


def _header(reader: _Reader, is_ros1: bool = False) -> Dict[str, Any]:
    if is_ros1:
        reader.number("I")  # sequence number
    return {"sec": reader.number("i"), "nanosec": reader.number("I"), "frame_id": reader.text()}


def _image(reader: _Reader, is_ros1: bool = False) -> Dict[str, Any]:
    fields = _header(reader, is_ros1)
    fields["height"], fields["width"] = reader.number("I"), reader.number("I")
    fields["encoding"] = reader.text()
    fields["is_bigendian"], fields["step"] = reader.number("B"), reader.number("I")
    fields["data"] = reader.numbers("B", reader.number("I"))
    return fields


def _compressed(reader: _Reader, is_ros1: bool = False) -> Dict[str, Any]:
    fields = _header(reader, is_ros1)
    fields["format"] = reader.text()
    fields["data"] = reader.numbers("B", reader.number("I"))
    return fields


def _camera_info(reader: _Reader) -> Dict[str, Any]:
    fields = _header(reader)
    fields["height"], fields["width"] = reader.number("I"), reader.number("I")
    fields["distortion_model"] = reader.text()
    fields["d"] = reader.numbers("d", reader.number("I"))
    for name, count in (("k", 9), ("r", 9), ("p", 12)):
        fields[name] = reader.numbers("d", count)
    for name in ("binning_x", "binning_y", "x_offset", "y_offset", "roi_height", "roi_width"):
        fields[name] = reader.number("I")
    fields["do_rectify"] = reader.truth()
    return fields


def _float32(reader: _Reader) -> Dict[str, Any]:
    return {"data": reader.numbers("f", 1)}


_READERS: Dict[str, Any] = {
    "image": _image,
    "compressed": _compressed,
    "camera_info": _camera_info,
    "float32": _float32,
}


def parse(kind: str, data: bytes) -> Parsed:
    """A message of ROS 2 from its bytes.

    Args:
        kind: `image`, `compressed`, `camera_info` or `float32`.
        data: The bytes.

    Raises:
        NotCdrError: They are none.
    """
    if data[:2] not in (b"\0\0", b"\0\1") or len(data) < 4:
        raise NotCdrError("no plain CDR")
    reader = _Reader(data, "<" if data[1] else ">", 4, True)
    fields = _READERS[kind](reader)
    left = len(data) - reader.place
    if left > 3:
        raise NotCdrError("bytes behind the message")
    return Parsed(fields, reader.loose | ({"padding"} if left else set()))


def parse_ros1(kind: str, data: bytes) -> Parsed:
    """A message of ROS 1, `image` or `compressed`, from its bytes: no alignment, no terminators, little-endian.

    Raises:
        NotCdrError: They are none.
    """
    reader = _Reader(data, "<", 0, False)
    fields = _READERS[kind](reader, True)
    if reader.place < len(data):
        raise NotCdrError("bytes behind the message")
    return Parsed(fields, reader.loose)
