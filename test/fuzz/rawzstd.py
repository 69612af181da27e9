"""Target: losslessly compressed raw images, against a decoder written from the description of the format."""

from __future__ import annotations

import random
from typing import Any, Dict, Optional

import numpy as np
import zstandard

from fuzz.engine import Case, Target, WrongError, refused
from fuzz.messages import _MAKERS as MESSAGES
from fuzz.messages import same
from fuzz.mutate import Writer, mutated, some_bytes
from polar_pipeline.messages import ImageMessage, decode_image
from polar_pipeline.replay.rawzstd import compress_raw, decompress_raw
from polar_pipeline.sensor.frames import FrameError

#: Bytes that an image may have here.
LIMIT = 8 << 20
_STAMP, _FRAME = 1_700_000_000_123_456_789, "cam"
#: Number of a kind of samples -> bytes that a row is a multiple of, pixels that lie in them, bits of a pixel.
_UNITS = {1: (1, 1, 8), 2: (2, 1, 16), 3: (2, 1, 16), 4: (5, 4, 10), 5: (3, 2, 12), 6: (3, 2, 10), 7: (3, 2, 12)}
_FIELDS = ("height", "width", "encoding", "is_bigendian", "step")


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
    return dict(zip(_FIELDS, (height, width, encoding, bool(is_bigendian), step)), data=found)


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


def _make_compressed(rng: random.Random) -> Writer:
    """Compressed data with every kind of samples, mostly right."""
    kind = rng.choice((0, 1, 1, 2, 3, 4, 5, 6, 7))
    unit, pixels, _ = _UNITS.get(kind, (0, 0, 0))
    row, rows, rest = unit * rng.choice((8, 8, 9, 16)), rng.choice((16, 17, 20, 1, 0)), rng.choice((0, 0, 0, 1, 7))
    size = row * rows + rest
    stored = rest + rows * (row // unit * pixels * (1 if kind == 1 else 2) if kind else 0)
    text = rng.choice((b"mono8", b"mono16", b"PolarizeMono12p", b"", b"\xff", b"e" * 2000))
    writer = Writer()
    writer.raw(b"PZRM\1")
    for value in (kind, rng.choice((1, 2, 2, 2, 4, 255)), rng.choice((0, 0, 0, 1, 2))):
        writer.number("B", value if rng.random() < 0.98 else rng.randrange(256))
    for value in (rows, 16, row, row, size, len(text)):
        writer.number("I", value)
    writer.raw(text)
    writer.raw(
        zstandard.ZstdCompressor(
            level=1, write_checksum=rng.random() < 0.9, write_content_size=rng.random() < 0.9
        ).compress(some_bytes(rng, stored))
    )
    return writer


class RawZstd(Target):
    """Compressed data as any file may hold it, and images as any camera may send them."""

    name = "rawzstd"

    def make(self, rng: random.Random) -> Case:
        if rng.random() < 0.6:
            return Case("zstd", mutated(rng, _make_compressed(rng), 0.4))
        return Case("image", mutated(rng, MESSAGES["image"](rng), 0.7))

    def run(self, case: Case) -> str:
        return _run_image(case.data) if case.kind == "image" else _run_compressed(case.data)


def _run_compressed(data: bytes) -> str:
    try:
        image = decompress_raw(data, _STAMP, _FRAME, LIMIT)
    except FrameError as err:
        if err.cause not in ("file", "size") or not str(err).isprintable() or len(str(err)) > 500:
            raise WrongError(f"cause {err.cause}, {str(err)[:300]!r}") from err
        if err.cause == "file" and expanded(data) is not None:
            raise WrongError(f"valid data is refused: {err}") from err
        return refused(err, err.cause)
    _compare(image, expanded(data))
    return "accepted"


def _run_image(data: bytes) -> str:
    try:
        image = decode_image(data)
    except FrameError as err:
        return refused(err, err.cause)
    compressed = compress_raw(image)
    _compare(image, expanded(compressed))
    again = decompress_raw(compressed, image.stamp_ns, image.frame_id, LIMIT)
    same((again.stamp_ns, again.frame_id), (image.stamp_ns, image.frame_id), "the header of an image")
    _compare(again, expanded(compressed))
    return "accepted"


def _compare(image: ImageMessage, wanted: Optional[Dict[str, Any]]) -> None:
    if wanted is None:
        raise WrongError("damaged data is taken for an image")
    for name in _FIELDS:
        same(getattr(image, name), wanted[name], f"field {name}")
    same(image.data.tobytes(), wanted["data"], "the data of an image")
