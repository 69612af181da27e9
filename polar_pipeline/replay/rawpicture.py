"""Reads raw mosaics from picture files and compressed images; checks their size before memory is allocated."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Dict, Iterator, Optional, Tuple, Union

import cv2
import numpy as np

from polar_pipeline.replay.limits import MAX_BYTES, BoundedFile, TooLargeError, described, megabytes
from polar_pipeline.sensor.frames import FrameError

#: Largest size of an NPY file's header in bytes; that of a raw mosaic has 118.
_MAX_NPY_HEADER_BYTES = 4096
#: PNG: colour type -> channels that OpenCV makes of it.
_PNG_CHANNELS = {0: 1, 2: 3, 3: 4, 4: 4, 6: 4}
#: TIFF: the tags for width, height, bits per sample, samples per pixel, width and height of a tile.
_WIDTH, _HEIGHT, _BITS, _SAMPLES, _TILE_WIDTH, _TILE_HEIGHT = 256, 257, 258, 277, 322, 323
_TIFF_TAGS = (_WIDTH, _HEIGHT, _BITS, _SAMPLES, _TILE_WIDTH, _TILE_HEIGHT)
#: TIFF: type of a field -> format of its values; integer types only.
_TIFF_TYPES = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 16: "Q", 17: "q"}
#: JPEG: markers of the frame's header, C0 to CF without DHT, JPG and DAC.
_JPEG_FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
#: Bytes in which the header of a PNM file is looked for.
_MAX_PNM_HEADER_BYTES = 4096
_PNM = re.compile(rb"P([2356])(?:\s|#[^\n]*\n)+?(\d+)(?:\s|#[^\n]*\n)+?(\d+)(?:\s|#[^\n]*\n)+?(\d+)\s")

Bytes = Union[bytes, memoryview]


def read_raw(path: Path, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """A raw image from a PNG, TIFF, PGM, JPEG or NPY file: (H, W) uint8 or uint16.

    Args:
        path: The file.
        max_bytes: Largest size of the file and of the image.

    Raises:
        FrameError: The file is no picture (cause `file`), no raw mosaic (cause `type`), or too large (cause `size`).
    """
    try:
        with BoundedFile(path, max_bytes) as stream:
            is_npy = path.suffix.lower() == ".npy"
            pixels = _read_npy(stream, max_bytes) if is_npy else decode_picture(stream.read(), max_bytes)
    except FrameError as err:
        raise FrameError(err.cause, f"{path}: {err}") from err
    except TooLargeError as err:
        raise FrameError("size", str(err)) from err
    except Exception as err:  # what a damaged NPY file raises is not documented; tokenize.TokenError, for example
        raise FrameError("file", f"{path} cannot be read: {described(err)}") from err
    if pixels.ndim != 2 or pixels.dtype not in (np.uint8, np.uint16):
        raise FrameError(
            "type", f"{path} must hold one channel of 8 or 16 bit, the raw mosaic; got {pixels.dtype} {pixels.shape}"
        )
    return pixels


def _read_npy(stream: BoundedFile, max_bytes: int) -> np.ndarray:
    """The array in an NPY file. `np.load` would also accept archives, and allocate what they state."""
    version = np.lib.format.read_magic(stream)
    lengths = {(1, 0): "<H", (2, 0): "<I"}
    if version not in lengths:
        raise FrameError("file", f"NPY format {version}; 1.0 and 2.0 can be read")
    field = struct.Struct(lengths[version])
    (length,) = field.unpack(stream.read(field.size))
    if length > _MAX_NPY_HEADER_BYTES:
        raise FrameError("file", f"an NPY header of {length} bytes")
    stream.seek(-field.size, 1)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(stream)
    if len(shape) != 2 or dtype not in (np.uint8, np.uint16) or min(shape) < 0:
        raise FrameError("type", f"one channel of 8 or 16 bit, the raw mosaic, is expected; got {dtype} {shape}")
    size = shape[0] * shape[1] * dtype.itemsize
    _check_size(size, max_bytes)
    if stream.length - stream.tell() < size:
        raise FrameError("file", f"{shape[1]}x{shape[0]} pixels take {size} bytes, the file is cut short")
    stream.seek(0)
    array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def decode_picture(data: Bytes, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """The picture in the bytes of a PNG, TIFF, PGM or JPEG file, as it is: (H, W) or (H, W, C).

    Args:
        data: The bytes.
        max_bytes: Largest size of the picture.

    Raises:
        FrameError: The bytes are not such a picture (cause `file`), or it is too large (cause `size`).
    """
    size = picture_bytes(data)
    if size is None:
        raise FrameError("file", f"{len(data)} bytes are no picture: neither PNG, TIFF, PGM nor JPEG, or cut short")
    _check_size(size, max_bytes)
    try:
        pixels: Optional[np.ndarray] = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except Exception as err:  # cv2.error, MemoryError, SystemError
        raise FrameError("file", f"{len(data)} bytes are no picture: {described(err)}") from err
    if pixels is None:
        raise FrameError("file", f"{len(data)} bytes are no picture that OpenCV can read")
    return pixels


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise FrameError("size", f"a picture of {megabytes(size)}, the limit is {megabytes(limit)} (--max-mb)")


def picture_bytes(data: Bytes) -> Optional[int]:
    """Bytes of the pixels of a PNG, TIFF, PNM or JPEG picture by its header; None if that is missing or cut short."""
    head = bytes(data[:4])
    find = {
        b"\x89PNG": _png_bytes,
        b"II*\0": _tiff_bytes,
        b"MM\0*": _tiff_bytes,
        b"II+\0": _tiff_bytes,
        b"MM\0+": _tiff_bytes,
    }.get(head)
    if find is None:
        find = _jpeg_bytes if head[:2] == b"\xff\xd8" else _pnm_bytes
    try:
        return find(memoryview(data))
    except (struct.error, OverflowError):  # it is cut short, or has offsets beyond any file
        return None


def _png_bytes(data: memoryview) -> Optional[int]:
    kind, width, height, depth, color = struct.unpack_from(">4sIIBB", data, 12)
    if kind != b"IHDR" or color not in _PNG_CHANNELS:
        return None
    place = 8
    while kind != b"IEND":  # OpenCV allocates what a chunk states before it reads it
        length, kind = struct.unpack_from(">I4s", data, place)
        if place + 12 + length > len(data) or (kind == b"IHDR" and place > 8):
            return None
        place += 12 + length
    return int(width * height * _PNG_CHANNELS[color] * (2 if depth == 16 else 1))


def _pnm_bytes(data: memoryview) -> Optional[int]:
    found = _PNM.match(bytes(data[:_MAX_PNM_HEADER_BYTES]))
    if found is None or max(map(len, found.groups())) > 20:
        return None
    kind, width, height, largest = map(int, found.groups())
    return width * height * (3 if kind in (3, 6) else 1) * (2 if largest > 255 else 1)


def _jpeg_bytes(data: memoryview) -> Optional[int]:
    place = 2
    while True:
        (mark,) = struct.unpack_from("B", data, place)
        place += 1
        if mark != 0xFF:  # libjpeg skips bytes that are not markers
            continue
        while mark == 0xFF:
            (mark,) = struct.unpack_from("B", data, place)
            place += 1
        if mark in _JPEG_FRAMES:
            _, _, height, width, channels = struct.unpack_from(">HBHHB", data, place)
            return int(width * height * channels)
        if mark == 0xDA:  # pixels without a header of the frame
            return None
        if mark not in (0, 1) and not 0xD0 <= mark <= 0xD8:  # these have no length
            (length,) = struct.unpack_from(">H", data, place)
            place += length


def _tiff_bytes(data: memoryview) -> Optional[int]:
    """Bytes of the first picture in the file, or of one of its tiles if that is larger: OpenCV allocates either."""
    largest: Dict[int, int] = {}
    for tag, value in _tiff_fields(data):
        # if a tag occurs twice, readers may use either value
        largest[tag] = max(value, largest.get(tag, 0))
    if _WIDTH not in largest or _HEIGHT not in largest:
        return None
    pixel = max(1, largest.get(_SAMPLES, 1)) * max(1, (largest.get(_BITS, 1) + 7) // 8)
    tile = largest.get(_TILE_WIDTH, 0) * largest.get(_TILE_HEIGHT, 0)
    return max(largest[_WIDTH] * largest[_HEIGHT], tile) * pixel


def _tiff_fields(data: memoryview) -> Iterator[Tuple[int, int]]:
    """(tag, first value) of the fields in a file's first directory that determine sizes."""
    order = "<" if data[0] == ord("I") else ">"
    is_big = 43 in data[2:4]
    offset = struct.Struct(order + ("Q" if is_big else "I"))
    (place,) = offset.unpack_from(data, 8 if is_big else 4)
    (count,) = struct.unpack_from(order + ("Q" if is_big else "H"), data, place)
    place += 8 if is_big else 2
    field = struct.Struct(order + "HH" + offset.format[1:])
    for _ in range(count):
        tag, kind, values = field.unpack_from(data, place)
        place += field.size
        if tag in _TIFF_TAGS and kind in _TIFF_TYPES and values:
            value = struct.Struct(order + _TIFF_TYPES[kind])
            inside = value.size * values <= offset.size
            yield tag, int(value.unpack_from(data, place if inside else offset.unpack_from(data, place)[0])[0])
        place += offset.size
