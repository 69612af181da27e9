"""Lossless compression of raw mosaics: prediction from the row above behind the same polarizer, then zstd.

A compressed image is the data of a `sensor_msgs/CompressedImage` whose format is `ENCODING; polar_zstd`, on a topic
that ends in `/polar_zstd`. Its header and its frame are those of the image. docs/replay.md describes the data byte by
byte.
"""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any, Dict, NamedTuple, Tuple

import numpy as np

from polar_pipeline._util.imports import importing
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.limits import MAX_BYTES, check_size
from polar_pipeline.recordings.messages import Cdr, ImageMessage
from polar_pipeline.sensor.encodings import get_format
from polar_pipeline.sensor.frames import FORMATS, FrameError, pack, sent_format, unpack_rows

#: Last part of the topics and of the formats of these images.
TRANSPORT = "polar_zstd"
#: Kinds of samples; a kind's place in this list is its number: bytes without prediction, of 8 bit, of 16 bit in either
#: byte order, and packed formats. Rows are of full groups of packed pixels.
SAMPLES = ("bytes", "u1", "<u2", ">u2", "10p", "12p", "10Packed", "12Packed")
#: Packed formats: bytes of a group of pixels, and pixels in it.
_GROUPS = {"10p": (5, 4), "12p": (3, 2), "10Packed": (3, 2), "12Packed": (3, 2)}
#: Distances in rows that are tried: of any image, of polarizers, and of polarizers behind a Bayer lattice.
DISTANCES = (1, 2, 4)

_MAGIC, _VERSION = b"PZRM", 1
_HEADER = struct.Struct("<4s4B6I")
#: Level of zstd: higher ones take up to 20 times as long for 1 % of the size.
_LEVEL = 1
#: Number of rows, about, whose residuals are compressed to choose the distance.
_SAMPLED = 128


class _Layout(NamedTuple):
    """Layout of an image's bytes, as in the header: kind of samples, and bytes of a row and of the image."""

    samples: str
    distance: int
    row: int
    size: int

    @property
    def rows(self) -> int:
        """Number of full rows."""
        return self.size // self.row if self.row else 0

    @property
    def pixels(self) -> int:
        """Pixels of a row of a packed format, padding included."""
        size, pixels = _GROUPS[self.samples]
        return self.row // size * pixels

    @property
    def residual_bytes(self) -> int:
        """Bytes of the residuals of all rows."""
        return 2 * self.rows * self.pixels if self.samples in _GROUPS else self.rows * self.row


def load_zstandard() -> ModuleType:
    """Import the library zstandard, which the extra `recordings` brings, or raise ImportError."""
    with importing():
        import zstandard

    return zstandard


def is_raw_zstd(text: str) -> bool:
    """Return whether the format of a compressed image is `polar_zstd`."""
    return text.rpartition(";")[2].split()[:1] == [TRANSPORT]


# --------------------------------------------------------------------------------------------------------------- encode


def compress_message(cdr: Cdr) -> bytes:
    """Compress a serialized `sensor_msgs/Image` to a serialized `sensor_msgs/CompressedImage`.

    Raises:
        FrameError: The message cannot be decoded.
    """
    image = messages.decode_image(cdr)
    data = np.frombuffer(compress_raw(image), np.uint8)
    return messages.encode_compressed(image.stamp_ns, image.frame_id, f"{image.encoding}; {TRANSPORT}", data)


def compress_raw(image: ImageMessage) -> bytes:
    """Compress an image; images that are not mosaics are compressed without prediction."""
    data = np.ascontiguousarray(image.data)
    layout, body = _residuals(image, data)
    text = image.encoding.encode()
    head = _HEADER.pack(
        _MAGIC,
        _VERSION,
        SAMPLES.index(layout.samples),
        layout.distance,
        image.is_bigendian,
        *(image.height, image.width, image.step, layout.row, layout.size, len(text)),
    )
    packer = load_zstandard().ZstdCompressor(level=_LEVEL, write_checksum=True)
    return b"".join((head, text, packer.compress(np.concatenate([body, data[layout.rows * layout.row :]]).data)))


def _residuals(image: ImageMessage, data: np.ndarray) -> Tuple[_Layout, np.ndarray]:
    """Predict an image; returns its layout, and the bytes of the residuals of its full rows."""
    samples, row = _samples(image, data.size)
    layout = _Layout(samples, 0, row, data.size)
    if not layout.rows:
        return _Layout("bytes", 0, 0, data.size), data[:0]
    rows = data[: layout.rows * row].reshape(-1, row)
    if samples in _GROUPS:
        values = unpack_rows(rows, FORMATS[samples], layout.pixels)
        if pack(values, FORMATS[samples]) != rows.tobytes():  # bits that belong to no pixel are not 0
            samples, values = "u1", rows
    else:
        values = rows.view(samples)
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    distance = min(DISTANCES, key=lambda rows_above: _sampled_size(values, rows_above))
    residuals = values.copy()
    residuals[distance:] -= values[:-distance]
    return _Layout(samples, distance, row, data.size), _stored(residuals)


def _samples(image: ImageMessage, size: int) -> Tuple[str, int]:
    """Find the kind of an image's samples and the bytes of a row; ("bytes", 0) without rows of a known kind."""
    try:
        fmt = get_format(image.encoding)
    except FrameError:
        return "bytes", 0
    if not image.height or not image.width:
        return "bytes", 0
    fmt = sent_format(fmt, image.height, image.width, image.step, size)
    row = image.step or fmt.row_bytes(image.width)
    if fmt.packing == "u16" and row % 2 == 0:
        return (">u2" if image.is_bigendian else "<u2"), row
    name = f"{fmt.bits}{'p' if fmt.packing == 'p' else 'Packed'}"
    is_packed = fmt.packing in ("p", "packed") and row % _GROUPS[name][0] == 0
    return (name if is_packed else "u1"), row


def _sampled_size(values: np.ndarray, distance: int) -> int:
    """Compress the residuals of some rows, an odd number apart to take every row of a tile; returns the size."""
    rows = np.arange(max(DISTANCES), len(values), len(values) // _SAMPLED | 1)
    packer = load_zstandard().ZstdCompressor(level=_LEVEL)
    return len(packer.compress(_stored(values[rows] - values[rows - distance]).data))


def _stored(residuals: np.ndarray) -> np.ndarray:
    """Return residuals as bytes."""
    if residuals.itemsize == 1:
        return residuals.reshape(-1)
    folded = residuals << 1 ^ (residuals.view(np.int16) >> 15).view(np.uint16)
    return np.concatenate([folded.astype(np.uint8).reshape(-1), (folded >> 8).astype(np.uint8).reshape(-1)])


# --------------------------------------------------------------------------------------------------------------- decode


def decompress_raw(data: Cdr, max_bytes: int = MAX_BYTES) -> ImageMessage:
    """Decompress the image in the data of a compressed message, without the message's stamp and frame_id.

    Raises:
        FrameError: The data is of another format or damaged (cause `file`), or the image is too large (cause `size`).
    """
    view = memoryview(data)
    layout, fields, place = _read_header(view)
    check_size("an image", layout.size, max_bytes)
    content = _inflated(view[place:], layout.residual_bytes + layout.size - layout.rows * layout.row)
    pixels = _predicted(layout, content[: layout.residual_bytes])
    tail = content[layout.residual_bytes :]
    return ImageMessage(0, "", data=np.concatenate([pixels, tail]) if tail.size else pixels, **fields)


def _read_header(view: memoryview) -> Tuple[_Layout, Dict[str, Any], int]:
    """Read the layout of the image, its other fields, and the place where the zstd frame begins."""
    if bytes(view[:4]) != _MAGIC or len(view) < _HEADER.size:
        raise FrameError("file", f"{len(view)} bytes are not a {TRANSPORT} image")
    _, version, number, distance, is_bigendian, height, width, step, row, size, length = _HEADER.unpack_from(view)
    if version != _VERSION:
        raise FrameError("file", f"a {TRANSPORT} image of version {version}; version {_VERSION} can be read")
    if number >= len(SAMPLES):
        raise FrameError("file", f"samples of a {TRANSPORT} image are of kind 0 to {len(SAMPLES) - 1}, got {number}")
    samples = SAMPLES[number]
    unit = _GROUPS[samples][0] if samples in _GROUPS else 2 if samples.endswith("u2") else 1
    if (samples == "bytes") != (row == 0) or row % unit or (row and not distance):
        raise FrameError("file", f"a {TRANSPORT} image of {samples} cannot have rows of {row} bytes, {distance} apart")
    place = _HEADER.size + length
    if place > len(view):
        raise FrameError("file", f"a {TRANSPORT} image is cut short in its encoding")
    try:
        encoding = bytes(view[_HEADER.size : place]).decode()
    except UnicodeDecodeError as err:
        raise FrameError("file", f"the encoding of a {TRANSPORT} image is not UTF-8: {printable(str(err))}") from err
    fields = {"height": height, "width": width, "encoding": encoding, "is_bigendian": bool(is_bigendian), "step": step}
    return _Layout(samples, distance, row, size), fields, place


def _inflated(data: memoryview, size: int) -> np.ndarray:
    """Decompress a zstd frame, which must state and have this size."""
    zstandard = load_zstandard()
    try:
        stated = zstandard.frame_content_size(data)
        if stated != size:
            raise FrameError("file", f"a {TRANSPORT} image needs {size} bytes, its zstd frame has {stated}")
        return np.frombuffer(zstandard.ZstdDecompressor().decompress(data), np.uint8)
    except (zstandard.ZstdError, MemoryError) as err:
        raise FrameError("file", f"a {TRANSPORT} image cannot be decompressed: {quoted(str(err))}") from err


def _predicted(layout: _Layout, stored: np.ndarray) -> np.ndarray:
    """Add residuals up to the bytes of full rows, the inverse of `_residuals`."""
    if not layout.rows:
        return stored
    if layout.samples == "u1":
        rows = stored.reshape(layout.rows, layout.row).copy()
    else:
        low, high = stored.reshape(2, layout.rows, -1)
        folded = high.astype(np.uint16) << 8 | low
        rows = folded >> 1 ^ -(folded & 1)
    for y in range(layout.distance, layout.rows):
        np.add(rows[y], rows[y - layout.distance], out=rows[y])
    if layout.samples in _GROUPS:
        return np.frombuffer(pack(rows, FORMATS[layout.samples]), np.uint8)
    return rows.astype(layout.samples, copy=False).reshape(-1).view(np.uint8)
