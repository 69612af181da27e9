"""mcap files from the rules of the format, with every number's place known; nothing of the package is in here."""

from __future__ import annotations

import random
import zlib
from functools import lru_cache
from typing import List, Sequence, Tuple

import lz4.frame
import zstandard

from fuzz.mutate import Writer, mutated

IMAGE, COMPRESSED, NUMBER = b"sensor_msgs/msg/Image", b"sensor_msgs/msg/CompressedImage", b"std_msgs/msg/Float32"
#: Messages: time of recording, channel, data.
Rows = Sequence[Tuple[int, int, bytes]]
#: Topic and type of each channel; channels count from 1.
Channels = Sequence[Tuple[bytes, bytes]]
#: Bytes that a bomb inflates to: more than a target's process may have.
BOMB = 400 << 20


@lru_cache(maxsize=8)
def packed(compression: str, data: bytes) -> bytes:
    """Compressed bytes."""
    if compression == "zstd":
        return zstandard.ZstdCompressor(level=1).compress(data)
    return bytes(lz4.frame.compress(data)) if compression == "lz4" else data


@lru_cache(maxsize=None)
def bomb() -> bytes:
    """Zeros, compressed by zstd piece by piece, since the fuzzer's process has little memory."""
    packer = zstandard.ZstdCompressor(level=1).compressobj(BOMB)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(BOMB >> 20)), packer.flush()])


MAGIC = b"\x89MCAP0\r\n"


def _text(writer: Writer, *texts: bytes) -> Writer:
    for text in texts:
        writer.number("I", len(text))
        writer.raw(text)
    return writer


def _record(opcode: int, body: Writer) -> Writer:
    record = Writer().numbers("BQ", opcode, len(body.data))
    record.join(body)
    return record


def _message(time_ns: int, channel: int, data: bytes) -> Writer:
    body = Writer().numbers("HIQQ", channel, 0, time_ns, time_ns)
    body.raw(data)
    return _record(5, body)


def mcap(rng: random.Random, rows: Rows, channels: Channels, is_valid: bool) -> Writer:
    """An mcap file with chunks or without; chunks of one that is not valid may be damaged inside."""
    out = Writer("<", MAGIC)
    out.join(_record(1, _text(Writer(), b"ros2", b"fuzz")))
    named = Writer()
    for number, (topic, kind) in enumerate(channels, 1):
        named.join(_record(3, _text(Writer().numbers("H", number), kind, b"ros2msg", b"")))
        named.join(_record(4, _text(Writer().numbers("HH", number, number), topic, b"cdr", b"")))
    out.join(named)
    count = rng.choice((0, 1, 1, 2, 3))
    indexes: List[Writer] = []
    for k in range(count):
        part = rows[k::count]
        inner = Writer()
        for row in part:
            inner.join(_message(*row))
        data = mutated(rng, inner, 1.0 if is_valid else 0.8)
        compression = rng.choice(("", "zstd", "lz4"))
        body, size, checksum = packed(compression, data), len(data), rng.choice((0, zlib.crc32(data)))
        if rng.random() < 0.05 and not is_valid:
            compression, body, size = "zstd", bomb(), rng.choice((BOMB, 1000, size))
        first, last = min(row[0] for row in part), max(row[0] for row in part)
        chunk = _text(Writer().numbers("QQQI", first, last, size, checksum), compression.encode())
        chunk.number("Q", len(body))
        chunk.raw(body)
        record = _record(6, chunk)
        index = Writer().numbers("QQQQ", first, last, len(out.data), len(record.data))
        index.join(Writer().numbers(*(("IHQQ", 10, 1, 0, 0) if is_valid or rng.random() < 0.7 else ("IQ", 0, 0))))
        indexes.append(_text(index, compression.encode()).numbers("QQ", len(body), size))
        out.join(record)
    for row in rows if not count else ():
        out.join(_message(*row))
    out.join(_record(15, Writer().numbers("I", 0)))
    summary = len(out.data)
    statistics = Writer().numbers("QHIIIIQQI", len(rows), 2, 2, 0, 0, count, 0, 0, 10 * len(channels))
    out.join(named)
    for number in range(1, len(channels) + 1):
        statistics.numbers("HQ", number, sum(row[1] == number for row in rows))
    for index in indexes if rng.random() < 0.9 else ():
        out.join(_record(8, index))
    out.join(_record(11, statistics))
    out.join(_record(2, Writer().numbers("QQI", summary, 0, 0)))
    out.raw(MAGIC)
    return out
