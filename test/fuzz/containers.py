"""Recordings and pictures from their formats' rules, with every number known; nothing of the package is in here."""

from __future__ import annotations

import bz2
import random
import sqlite3
import struct
import tempfile
import zlib
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import List, Sequence, Tuple

import lz4.frame
import numpy as np
import zstandard

from fuzz.mutate import Writer, mutated, some_bytes, special, words

TOPIC = b"/images"
IMAGE, COMPRESSED = b"sensor_msgs/msg/Image", b"sensor_msgs/msg/CompressedImage"
START = 1_700_000_000_000_000_000
#: Messages in time: time of recording, channel, data.
Rows = Sequence[Tuple[int, int, bytes]]


def packed(compression: str, data: bytes) -> bytes:
    """Compressed bytes."""
    if compression == "zstd":
        return zstandard.ZstdCompressor(level=1).compress(data)
    if compression == "lz4":
        return bytes(lz4.frame.compress(data))
    return bz2.compress(data, 1) if compression == "bz2" else data


@lru_cache(maxsize=None)
def bomb(compression: str, size: int) -> bytes:
    """Zeros, compressed."""
    return packed(compression, bytes(size))


# ---------------------------------------------------------------------------------------------------------------- mcap

MAGIC = b"\x89MCAP0\r\n"


def _text(writer: Writer, text: bytes) -> None:
    writer.number("I", len(text))
    writer.raw(text)


def _record(writer: Writer, opcode: int, body: Writer) -> None:
    writer.number("B", opcode)
    writer.number("Q", len(body.data))
    writer.join(body)


def _numbers(fmt: str, *values: int) -> Writer:
    writer = Writer()
    for kind, value in zip(fmt, values):
        writer.number(kind, value)
    return writer


def _mcap_message(time_ns: int, channel: int, data: bytes) -> Writer:
    body = _numbers("HIQQ", channel, 0, time_ns, time_ns)
    body.raw(data)
    record = Writer()
    _record(record, 5, body)
    return record


def _schema(number: int, name: bytes) -> Writer:
    body = _numbers("H", number)
    for text in (name, b"ros2msg", b""):
        _text(body, text)
    return body


def _channel(number: int, schema: int, topic: bytes) -> Writer:
    body = _numbers("HH", number, schema)
    for text in (topic, b"cdr", b""):
        _text(body, text)
    return body


def mcap(rng: random.Random, rows: Rows, topics: Sequence[Tuple[bytes, bytes]]) -> Writer:
    """An mcap file, in which chunks may be damaged inside.

    Args:
        rng: Where choices come from.
        rows: The messages; channels count from 1.
        topics: Topic and type of each channel.
    """
    out = Writer("<", MAGIC)
    head = Writer()
    _text(head, b"ros2")
    _text(head, b"fuzz")
    _record(out, 1, head)
    count = rng.choice((0, 1, 1, 2, 3))
    indexes: List[Writer] = []
    for k in range(count):
        part = rows[k::count]
        inner = Writer()
        for row in part:
            inner.join(_mcap_message(*row))
        data = mutated(rng, inner, 0.8)
        compression = rng.choice(("", "zstd", "lz4", "zstd", "lz4"))
        body = packed(compression, data)
        size, checksum = len(data), rng.choice((0, zlib.crc32(data)))
        if rng.random() < 0.03:
            compression = rng.choice(("zstd", "lz4"))
            body, size = bomb(compression, 32 << 20), rng.choice((32 << 20, 1000, size))
        first, last = (min(row[0] for row in part), max(row[0] for row in part)) if part else (0, 0)
        chunk = _numbers("QQQI", first, last, size, checksum)
        _text(chunk, compression.encode())
        chunk.number("Q", len(body))
        chunk.raw(body)
        start = len(out.data)
        _record(out, 6, chunk)
        index = _numbers("QQQQ", first, last, start, len(out.data) - start)
        index.join(_numbers("IHQQ", 10, 1, 0, 0) if rng.random() < 0.7 else _numbers("IQ", 0, 0))
        _text(index, compression.encode())
        index.join(_numbers("QQ", len(body), size))
        indexes.append(index)
    if not count:
        for row in rows:
            out.join(_mcap_message(*row))
    _record(out, 15, _numbers("I", 0))
    summary = len(out.data)
    for number, (topic, kind) in enumerate(topics, 1):
        _record(out, 3, _schema(number, kind))
        _record(out, 4, _channel(number, number, topic))
    if rng.random() < 0.9:
        for index in indexes:
            _record(out, 8, index)
    statistics = _numbers("QHIIIIQQI", len(rows), len(topics), len(topics), 0, 0, count, START, START, 10 * len(topics))
    for number in range(1, len(topics) + 1):
        statistics.join(_numbers("HQ", number, sum(row[1] == number for row in rows)))
    _record(out, 11, statistics)
    _record(out, 2, _numbers("QQI", summary, 0, 0))
    out.raw(MAGIC)
    return out


# --------------------------------------------------------------------------------------------------------------- ROS 1


def _header(fields: Sequence[Tuple[bytes, Writer]]) -> Writer:
    inner = Writer()
    for name, value in fields:
        inner.number("I", len(name) + 1 + len(value.data))
        inner.raw(name + b"=")
        inner.join(value)
    out = _numbers("I", len(inner.data))
    out.join(inner)
    return out


def _bag_record(fields: Sequence[Tuple[bytes, Writer]], data: Writer) -> Writer:
    out = _header(fields)
    out.number("I", len(data.data))
    out.join(data)
    return out


def _raw(data: bytes) -> Writer:
    return Writer("<", data)


def _op(number: int) -> Tuple[bytes, Writer]:
    return b"op", _numbers("B", number)


def _bag_time(time_ns: int) -> Writer:
    return _numbers("II", *divmod(time_ns, 10**9))


def bag(rng: random.Random, rows: Rows, topics: Sequence[Tuple[bytes, bytes]]) -> Writer:
    """A ROS 1 bag; arguments as of `mcap`."""
    out = _raw(b"#ROSBAG V2.0\n")
    count = rng.choice((1, 1, 2))
    body = Writer()
    head_size = 4 + 60 + 20  # filled in below
    infos = Writer()

    def head(position: int) -> Writer:
        fields = [_op(3), (b"index_pos", _numbers("Q", position)), (b"conn_count", _numbers("I", len(topics)))]
        return _bag_record([*fields, (b"chunk_count", _numbers("I", count))], _raw(b" " * 20))

    head_size = len(head(0).data)
    for k in range(count):
        part = rows[k::count]
        inner = Writer()
        for time_ns, number, data in part:
            fields = [_op(2), (b"conn", _numbers("I", number)), (b"time", _bag_time(time_ns))]
            inner.join(_bag_record(fields, _raw(data)))
        plain = mutated(rng, inner, 0.8)
        compression = rng.choice(("none", "bz2", "lz4"))
        data, size = packed(compression, plain), len(plain)
        if rng.random() < 0.03:
            compression = rng.choice(("bz2", "lz4"))
            data, size = bomb(compression, 32 << 20), rng.choice((32 << 20, 1000, size))
        position = len(out.data) + head_size + len(body.data)
        fields = [_op(5), (b"compression", _raw(compression.encode())), (b"size", _numbers("I", size))]
        body.join(_bag_record(fields, _raw(data)))
        times = [row[0] for row in part] or [0]
        counts = Writer()
        for number in sorted({row[1] for row in part}):
            counts.join(_numbers("II", number, sum(row[1] == number for row in part)))
        info = [_op(6), (b"ver", _numbers("I", 1)), (b"chunk_pos", _numbers("Q", position))]
        info += [(b"start_time", _bag_time(min(times))), (b"end_time", _bag_time(max(times)))]
        infos.join(_bag_record([*info, (b"count", _numbers("I", len(counts.data) // 8))], counts))
    out.join(head(len(out.data) + head_size + len(body.data)))
    out.join(body)
    for number, (topic, kind) in enumerate(topics, 1):
        names = Writer()
        for name, text in ((b"topic", topic), (b"type", kind.replace(b"/msg/", b"/")), (b"md5sum", b"0" * 32)):
            names.join(_header([(name, _raw(text))]))
            del names.data[-len(name) - len(text) - 9 : -len(name) - len(text) - 5]  # one header holds all fields
        names.places.clear()
        names.number("I", len(b"message_definition=") + 1)
        names.raw(b"message_definition= ")
        out.join(_bag_record([_op(7), (b"conn", _numbers("I", number)), (b"topic", _raw(topic))], names))
    out.join(infos)
    return out


# ------------------------------------------------------------------------------------------------------------- rosbag2

_TOPICS = "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT, {more})"
_MESSAGES = "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB{more})"
#: What a database may have been through.
_SQL: Sequence[Sequence[str]] = (
    (),
    ("CREATE INDEX timestamp_idx ON messages (timestamp ASC)",),
    ("UPDATE messages SET data = 'text' WHERE id = 1",),
    ("UPDATE messages SET data = NULL",),
    ("UPDATE messages SET data = 7 WHERE id = 2",),
    ("UPDATE messages SET data = zeroblob(9000000) WHERE id = 1",),
    ("UPDATE messages SET timestamp = 'soon' WHERE id = 1",),
    ("UPDATE messages SET timestamp = NULL",),
    ("UPDATE messages SET timestamp = 1.5",),
    ("UPDATE messages SET timestamp = -9223372036854775808",),
    ("UPDATE messages SET timestamp = 9223372036854775807",),
    ("UPDATE messages SET topic_id = 'x'",),
    ("UPDATE messages SET topic_id = 99",),
    ("UPDATE topics SET name = x'00ff'",),
    ("UPDATE topics SET name = NULL",),
    ("UPDATE topics SET type = 7",),
    ("UPDATE topics SET serialization_format = 'cbor'",),
    ("UPDATE topics SET id = id + 5",),
    ("INSERT INTO topics(name, type, serialization_format) VALUES('/images', 'other', 'cdr')",),
    ("DELETE FROM messages",),
    ("DROP TABLE topics",),
    ("DROP TABLE messages",),
    ("DROP TABLE messages", "CREATE VIEW messages AS SELECT 1 AS topic_id, 2 AS timestamp, zeroblob(9000000) AS data"),
    ("DROP TABLE messages", "CREATE TABLE messages(a)"),
    ("DROP TABLE messages", "CREATE TABLE messages(topic_id, timestamp, data, PRIMARY KEY(timestamp)) WITHOUT ROWID"),
    ("ALTER TABLE messages RENAME TO old", "CREATE VIEW messages AS SELECT * FROM old"),
    ("PRAGMA journal_mode = WAL",),
    ("PRAGMA encoding = 'UTF-16'",),
)


@lru_cache(maxsize=None)
def database(rows: Tuple[Tuple[int, int, bytes], ...], variant: int, page: int = 512) -> bytes:
    """A `.db3` file of one topic."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.db3")
        with closing(sqlite3.connect(str(path), isolation_level=None)) as base:
            base.execute(f"PRAGMA page_size = {page}")
            base.execute(_TOPICS.format(more="offered_qos_profiles TEXT"))
            base.execute(_MESSAGES.format(more=""))
            for number, kind in ((1, IMAGE), (2, b"std_msgs/msg/Float32")):
                row = (number, ("/images", "/other")[number - 1], kind.decode(), "cdr", "")
                base.execute("INSERT INTO topics VALUES(?, ?, ?, ?, ?)", row)
            for time_ns, channel, data in rows:
                base.execute(
                    "INSERT INTO messages(topic_id, timestamp, data) VALUES(?, ?, ?)", (channel, time_ns, data)
                )
            for statement in _SQL[variant]:
                base.execute(statement)
        return path.read_bytes()


def sqlite(rng: random.Random, rows: Rows) -> Writer:
    """A `.db3` file whose numbers are known page by page."""
    page = rng.choice((512, 1024, 4096))
    out = Writer(">", database(tuple(rows), rng.choice((0, rng.randrange(len(_SQL)))), page))
    out.places = [(16, "H"), *((k, "B") for k in (18, 19, 20, 21, 22, 23)), *((k, "I") for k in range(24, 100, 4))]
    for start in range(0, len(out.data), page):
        at = start or 100
        count = struct.unpack_from(">H", out.data, at + 3)[0] if out.data[at] in (2, 5, 10, 13) else 0
        out.places += [(at, "B"), (at + 1, "H"), (at + 3, "H"), (at + 5, "H"), (at + 7, "B"), (at + 8, "I")]
        cells = at + (8 if out.data[at] in (10, 13) else 12)
        for k in range(min(count, 20)):
            out.places.append((cells + 2 * k, "H"))
            (cell,) = struct.unpack_from(">H", out.data, cells + 2 * k)
            out.places += [(start + cell + k, "B") for k in range(6)]  # sizes, row number and types
    return out


METADATA = """rosbag2_bagfile_information:
  version: 5
  storage_identifier: sqlite3
  duration: {nanoseconds: 0}
  starting_time: {nanoseconds_since_epoch: 0}
  message_count: 4
  topics_with_message_count:
    - topic_metadata: {name: /images, type: sensor_msgs/msg/Image, serialization_format: cdr, offered_qos_profiles: ""}
      message_count: 3
    - topic_metadata: {name: /other, type: std_msgs/msg/Float32, serialization_format: cdr, offered_qos_profiles: ""}
      message_count: 1
  compression_format: ""
  compression_mode: ""
  relative_file_paths: [data.db3]
"""
_WORDS = words(
    r"""
    7  -1  []  {}  [7]  null  zstd  file  MESSAGE  FILE  mcap  sqlite3  [data.db3]  ""  [data.db3, data.db3]
    [data.db3.zstd]  ../../etc/passwd  [..]  [/dev/zero]  [data.mcap]  1e400  2001-01-01  !!python/name:os.system
    &a [*a]  *b  cdr  true  '\e'  "\x1b[2J"  ~
    """
)
_WORDS += ["9" * 5000]


def metadata(rng: random.Random) -> bytes:
    """The text of a `metadata.yaml`, with other words in some places."""
    text = METADATA
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        lines = text.splitlines()
        k = rng.randrange(len(lines))
        near = rng.random()
        if near < 0.6 and ":" in lines[k]:
            key, _, _ = lines[k].partition(": ")
            lines[k] = f"{key.rstrip(':')}: {rng.choice(_WORDS)}"
        elif near < 0.75:
            lines[k : k + 1] = [lines[k]] * 2
        elif near < 0.9:
            del lines[k]
        else:
            lines[k] = " " * rng.randint(0, 5) + lines[k].strip()
        text = "\n".join(lines) + "\n"
    return mutated(rng, Writer("<", text.encode()), 0.8)


# ------------------------------------------------------------------------------------------------------------- pictures


def png(rng: random.Random) -> Writer:
    """A PNG file; checksums are right unless something is changed afterwards."""
    width, height = rng.choice((16, 17, 20, 1, 0)), rng.choice((16, 18, 1))
    depth, color = rng.choice(((8, 0), (8, 0), (16, 0), (8, 2), (16, 6), (8, 3), (1, 0), (4, 3), (8, 4)))
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    row = (width * channels * depth + 7) // 8
    stored = zlib.compress(b"".join(b"\0" + some_bytes(rng, row) for _ in range(height)))
    head = Writer(">")
    for kind, value in zip("IIBBBBB", (width, height, depth, color, 0, 0, rng.choice((0, 0, 0, 1)))):
        head.number(kind, value)
    parts = [(b"IHDR", mutated(rng, head, 0.8)), (b"IDAT", mutated(rng, Writer(">", stored), 0.9)), (b"IEND", b"")]
    if color == 3 or rng.random() < 0.1:
        parts.insert(1, (b"PLTE", some_bytes(rng, rng.choice((3, 48, 768, 7)))))
    if rng.random() < 0.1:
        parts.insert(
            1, (rng.choice((b"tRNS", b"iCCP", b"zTXt", b"gAMA", b"acTL", b"fcTL", b"eXIf")), some_bytes(rng, 12))
        )
    out = Writer(">", b"\x89PNG\r\n\x1a\n")
    for kind, data in parts:
        out.number("I", len(data))
        out.raw(kind + data)
        out.number("I", zlib.crc32(kind + data))
    return out


def tiff(rng: random.Random) -> Writer:
    """A TIFF file of one picture, stored as it is or with the compression that a field states."""
    order, width, height = rng.choice("<>"), rng.choice((16, 17, 20)), rng.choice((16, 18))
    bits, samples = rng.choice((8, 8, 16)), rng.choice((1, 1, 1, 3))
    data = some_bytes(rng, width * height * samples * bits // 8)
    compression = rng.choice((1, 1, 1, 8, 5, 7, 32773))
    if compression == 8:
        data = zlib.compress(data)
    rows = [
        (256, 4, width),
        (257, 4, height),
        (258, 3, bits),
        (259, 3, compression),
        (262, 3, 1 if samples == 1 else 2),
    ]
    if rng.random() < 0.2:
        rows += [(277, 3, samples), (322, 4, 16), (323, 4, 16), (324, 4, 8), (325, 4, len(data))]
    else:
        rows += [(273, 4, 8), (277, 3, samples), (278, 4, height), (279, 4, len(data))]
    if rng.random() < 0.2:
        rows.append((rng.choice((339, 317, 338, 284, 266, 274, 530, 32995)), 3, rng.choice((1, 2, 3, 8))))
    out = Writer(order, b"II" if order == "<" else b"MM")
    out.number("H", 42)
    out.number("I", 8 + len(data))
    out.raw(data)
    out.number("H", len(rows))
    for tag, kind, value in rows:
        for how, number in zip("HHI", (tag, kind, 1)):
            out.number(how, number)
        out.number("H" if kind == 3 else "I", value)
        if kind == 3:
            out.raw(b"\0\0")
    out.number("I", 0)
    return out


def pgm(rng: random.Random) -> Writer:
    """A PGM file, or a relative of it."""
    width, height, top = rng.choice((16, 17, 20)), rng.choice((16, 18)), rng.choice((255, 255, 65535, 1, 100))
    if rng.random() < 0.3:
        width, height, top = (rng.choice((value, special(rng, 40))) for value in (width, height, top))
    kind = rng.choice((5, 5, 5, 2, 6, 3, 4, 7))
    gaps = [rng.choice((b"\n", b" ", b"\t", b"\n# a comment\n", b" #\n", b"\r\n")) for _ in range(4)]
    head = b"P%d%s%d%s%d%s%d%s" % (kind, gaps[0], width, gaps[1], height, gaps[2], top, gaps[3])
    return Writer("<", head + some_bytes(rng, 20 * 20 * (2 if top > 255 else 1)))


def jpeg(rng: random.Random, seeds: Sequence[bytes]) -> Writer:
    """A JPEG file whose segments are known."""
    out = Writer(">", rng.choice(seeds))
    at = 2
    while at + 4 < len(out.data) and out.data[at] == 0xFF and out.data[at + 1] != 0xDA:
        (length,) = struct.unpack_from(">H", out.data, at + 2)
        out.places += [(at + 1, "B"), (at + 2, "H"), (at + 4, "B"), (at + 5, "H"), (at + 7, "H"), (at + 9, "B")]
        at += 2 + length
    return out


def npy(rng: random.Random) -> Writer:
    """An NPY file."""
    kind = (
        rng.choice(("|u1", "<u2"))
        if rng.random() < 0.6
        else rng.choice((">u2", "<f4", "|O", "|S5", "<u2x", "|V8", "|b1"))
    )
    sides: Sequence[str] = ("16", "18")
    if rng.random() < 0.3:
        sides = rng.choice((("18",), ("1", "2", "3"), ("60000", "60000"), ("-1", "5"), ("0", "5"), ("9" * 40, "1")))
    shape = "(" + ", ".join(sides) + ("," if len(sides) == 1 else "") + ")"
    order = rng.choice(("False", "False", "False", "True", "True", "1"))
    text = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    text = mutated(rng, Writer("<", text), 0.8) + b" " * rng.choice((0, 10, 64)) + b"\n"
    version = rng.choice((1, 1, 1, 2, 3))
    out = Writer("<", b"\x93NUMPY")
    out.number("B", version)
    out.number("B", 0)
    out.number("H" if version == 1 else "I", len(text))
    out.raw(text + some_bytes(rng, 16 * 18 * rng.choice((1, 2))))
    return out


def smooth(index: int, dtype: str = "u1") -> np.ndarray:
    """A small raw frame."""
    y, x = np.mgrid[:16, :18]
    return np.rint(110 + 80 * np.sin((x + 3 * index) / 9) * np.cos(y / 7) + 9 * (x % 2)).astype(dtype)
