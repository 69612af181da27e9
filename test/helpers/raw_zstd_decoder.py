"""Losslessly compressed raw images: a decoder written from the description of the format in docs/replay.md."""

from __future__ import annotations

from typing import Any, Dict, Optional

import numpy as np
import zstandard

#: Number of a kind of samples -> bytes that a row is a multiple of, pixels that lie in them, bits of a pixel.
_UNITS = {1: (1, 1, 8), 2: (2, 1, 16), 3: (2, 1, 16), 4: (5, 4, 10), 5: (3, 2, 12), 6: (3, 2, 10), 7: (3, 2, 12)}
FIELDS = ("height", "width", "encoding", "is_bigendian", "step")


def expanded(data: bytes) -> Optional[Dict[str, Any]]:
    """The fields of an image from its compressed data; None if it is damaged."""
    numbers = [int.from_bytes(data[place : place + 4], "little") for place in range(8, 32, 4)]
    if data[:5] != b"PZRM\1" or len(data) < 32 + numbers[5]:
        return None
    kind, distance, is_bigendian = data[5:8]
    height, width, step, row, size, length = numbers
    try:
        encoding = data[32 : 32 + length].decode()
        stated = zstandard.get_frame_parameters(data[32 + length :]).content_size
        reader = zstandard.ZstdDecompressor().decompressobj()
        content = reader.decompress(data[32 + length :]) if stated else b""  # as the library does, without a checksum
    except (UnicodeDecodeError, zstandard.ZstdError):
        return None
    found = _pixels(content, kind, distance, row, size)
    if (stated and not reader.eof) or stated != len(content) or found is None or len(found) != size:
        return None
    return dict(zip(FIELDS, (height, width, encoding, bool(is_bigendian), step)), data=found)


def _pixels(content: bytes, kind: int, distance: int, row: int, size: int) -> Optional[bytes]:
    """The bytes of the pixels, of so many bytes a row."""
    if kind == 0:
        return content if row == 0 else None
    if kind not in _UNITS or row == 0 or distance == 0 or row % _UNITS[kind][0]:
        return None
    unit, pixels, bits = _UNITS[kind]
    rows, samples = size // row, row // unit * pixels
    stored = rows * samples * (1 if kind == 1 else 2)
    if len(content) < stored:
        return None
    body, rest = np.frombuffer(content[:stored], np.uint8).astype(np.int64), content[stored:]
    if kind != 1:
        folded = body[: stored // 2] + 256 * body[stored // 2 :]
        body = np.where(folded % 2, -(folded + 1) // 2, folded // 2)
    values = body.reshape(rows, samples)
    for first in range(min(distance, rows)):
        values[first::distance] = np.cumsum(values[first::distance], axis=0)
    values %= 256 if kind == 1 else 65536
    if kind <= 3:
        return values.astype(("u1", "<u2", ">u2")[kind - 1]).tobytes() + rest
    if kind <= 5:
        stream = values[..., np.newaxis] >> np.arange(bits) & 1
        return (
            np.packbits(stream.reshape(rows, samples * bits).astype(np.uint8), axis=1, bitorder="little").tobytes()
            + rest
        )
    pairs, low = values.reshape(-1, 2) % (1 << bits), bits - 8
    middle = pairs[:, 0] % (1 << low) + (pairs[:, 1] % (1 << low) << 4)
    return np.stack([pairs[:, 0] >> low, middle, pairs[:, 1] >> low], 1).astype(np.uint8).tobytes() + rest
