"""Recordings as bytes, written from specifications: MCAP with any part left out, images in CDR and of ROS 1.

Nothing of the package or of a library writes them, so that they are an independent truth.
"""

from __future__ import annotations

import struct
from typing import Dict, List, Sequence, Tuple

import numpy as np

MAGIC = b"\x89MCAP0\r\n"
#: Polarizer angles of an IMX250MZR in degrees.
TILE = np.array([[90, 45], [135, 0]])
#: Stamp of the first frame, and nanoseconds between two.
START, PERIOD = 1_700_000_000_000_000_000, 100_000_000


def mosaic(aolp: float, shape: Tuple[int, int] = (32, 40)) -> np.ndarray:
    """Raw frame of uniform light: S0/2 is 100 levels, DoLP 0.5, AoLP in degrees."""
    angles = np.tile(TILE, (shape[0] // 2, shape[1] // 2))
    return np.rint(100 * (1 + 0.5 * np.cos(2 * np.deg2rad(aolp - angles)))).astype(np.uint8)


def stamp(index: int) -> int:
    return START + index * PERIOD


def cdr_image(stamp_ns: int, raw: np.ndarray, encoding: str = "mono8") -> bytes:
    """`sensor_msgs/msg/Image` in little-endian CDR; every field is aligned to its size, behind the first four bytes."""
    body = struct.pack("<iI", *divmod(stamp_ns, 10**9)) + struct.pack("<I", 4) + b"cam\0"
    body += struct.pack("<II", *raw.shape[:2])
    name = encoding.encode() + b"\0"
    body += struct.pack("<I", len(name)) + name + b"\0"
    body += bytes(-len(body) % 4)
    body += struct.pack("<II", raw.nbytes // raw.shape[0], raw.nbytes) + raw.tobytes()
    return b"\0\1\0\0" + body


def ros1_image(stamp_ns: int, raw: np.ndarray, encoding: str = "mono8") -> bytes:
    """`sensor_msgs/Image` of ROS 1: a header with a number, and no alignment."""
    seconds, nanoseconds = divmod(stamp_ns, 10**9)
    body = struct.pack("<III", 7, seconds, nanoseconds) + struct.pack("<I", 3) + b"cam"
    body += struct.pack("<III", *raw.shape, len(encoding)) + encoding.encode()
    return body + struct.pack("<BII", 0, raw.shape[1], raw.size) + raw.tobytes()


def string(text: str) -> bytes:
    return struct.pack("<I", len(text.encode())) + text.encode()


def record(opcode: int, content: bytes) -> bytes:
    return struct.pack("<BQ", opcode, len(content)) + content


#: (topic, type, message encoding, [(time, message), ...]).
Channel = Tuple[str, str, str, Sequence[Tuple[int, bytes]]]


def mcap(
    channels: Sequence[Channel], without: Sequence[str] = (), is_chunked: bool = True, per_chunk: int = 1
) -> bytes:
    """An mcap file whose messages come in the order of time of each channel, without some parts of its summary.

    Args:
        channels: Channels with their messages.
        without: Parts to leave out: `schemas`, `channels`, `statistics`, `chunk index`, `summary`.
        is_chunked: Whether messages are in chunks.
        per_chunk: Messages in a chunk.
    """
    schemas = [
        record(3, struct.pack("<H", k + 1) + string(row[1]) + string("ros2msg") + string(""))
        for k, row in enumerate(channels)
    ]
    described = [
        record(4, struct.pack("<HH", k, k + 1) + string(row[0]) + string(row[2]) + struct.pack("<I", 0))
        for k, row in enumerate(channels)
    ]
    data = MAGIC + record(1, string("ros2") + string("test"))
    rows: List[Tuple[int, int, bytes]] = [
        (time, k, message) for k, row in enumerate(channels) for time, message in row[3]
    ]
    messages = [(time, record(5, struct.pack("<HIQQ", k, 0, time, time) + message)) for time, k, message in rows]
    indexes: List[bytes] = []
    head = b"".join(schemas + described)
    if not is_chunked:
        data += head + b"".join(message for _, message in messages)
    for first in range(0, len(messages) if is_chunked else 0, per_chunk):
        part = messages[first : first + per_chunk]
        content = (head if first == 0 else b"") + b"".join(message for _, message in part)
        ends = min(time for time, _ in part), max(time for time, _ in part)
        chunk = record(
            6, struct.pack("<QQQI", *ends, len(content), 0) + string("") + struct.pack("<Q", len(content)) + content
        )
        index = struct.pack("<QQQQIQ", *ends, len(data), len(chunk), 0, 0) + string("")
        indexes.append(record(8, index + struct.pack("<QQ", len(content), len(content))))
        data += chunk
    data += record(15, struct.pack("<I", 0))
    counts: Dict[int, int] = {k: sum(1 for _, each, _ in rows if each == k) for k in range(len(channels))}
    times = [time for time, *_ in rows] or [0]
    totals = struct.pack(
        "<QHIIIIQQ", len(rows), len(schemas), len(described), 0, 0, len(indexes), min(times), max(times)
    )
    pairs = b"".join(struct.pack("<HQ", *pair) for pair in counts.items())
    statistics = record(11, totals + struct.pack("<I", len(pairs)) + pairs)
    parts = {"schemas": schemas, "channels": described, "statistics": [statistics], "chunk index": indexes}
    summary = b"".join(
        b"".join(part) for name, part in parts.items() if name not in without and "summary" not in without
    )
    footer = record(2, struct.pack("<QQI", len(data) if summary else 0, 0, 0))
    return data + summary + footer + MAGIC


def drive(angles: Sequence[float], first: int = 0, kind: str = "sensor_msgs/msg/Image") -> List[Channel]:
    """A recording of frames of these AoLP, numbered from `first`, with the time of recording as stamp."""
    rows = [(stamp(k), cdr_image(stamp(k), mosaic(angle))) for k, angle in enumerate(angles, first)]
    return [("/image_raw", kind, "cdr", rows)]
