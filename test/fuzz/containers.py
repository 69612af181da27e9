"""mcap files by the mcap library, with the place of every number known."""

from __future__ import annotations

import io
import random
import struct
from typing import Sequence, Tuple

from mcap.writer import CompressionType, IndexType, Writer

from fuzz import mutate

#: Messages: time of recording, topic, type, data.
Rows = Sequence[Tuple[int, str, str, bytes]]
_MAGIC = b"\x89MCAP0\r\n"
_CHUNK = 6
#: Record -> types of the numbers that it begins with: footer, schema, channel, message, chunk, index of messages, index
#: of a chunk, statistics, offset of a summary, end of the data.
_NUMBERS = {2: "QQI", 3: "HI", 4: "HHI", 5: "HIQQ", _CHUNK: "QQQII", 7: "HI", 8: "QQQQIHQ", 11: "QHIIIIQQI"}
_NUMBERS = {**_NUMBERS, 14: "BQQ", 15: "I"}


def mcap(rng: random.Random, rows: Rows) -> mutate.Writer:
    """An mcap file with chunks or without, compressed or not, with an index or without."""
    stream = io.BytesIO()
    is_indexed = rng.random() < 0.9
    writer = Writer(
        stream,
        chunk_size=rng.choice((100, 500, 1 << 20)),
        compression=rng.choice(list(CompressionType)),
        index_types=IndexType.ALL if is_indexed else IndexType.NONE,
        use_chunking=rng.random() < 0.75,
        enable_crcs=rng.random() < 0.5,
    )
    writer.start("ros2", "fuzz")
    numbers = {}
    for _, topic, kind, _ in rows:
        if topic not in numbers:
            numbers[topic] = writer.register_channel(topic, "cdr", writer.register_schema(kind, "ros2msg", b""))
    for time_ns, topic, _, data in rows:
        writer.add_message(numbers[topic], time_ns, data, time_ns)
    writer.finish()
    out = mutate.Writer("<", stream.getvalue())
    _find_numbers(out, len(_MAGIC), len(out.data) - len(_MAGIC))
    return out


def _find_numbers(out: mutate.Writer, place: int, end: int) -> None:
    """Note the places of the numbers in the records of a file, or of a chunk that is not compressed."""
    while place + 9 <= end:
        opcode, length = struct.unpack_from("<BQ", out.data, place)
        body = place + 9
        for kind in _NUMBERS.get(opcode, ""):
            out.places.append((body, kind))
            body += struct.calcsize(f"<{kind}")
        out.places += [(place, "B"), (place + 1, "Q")]
        if opcode == _CHUNK and out.data[body - 4 : body] == bytes(4):  # no compression
            _find_numbers(out, body + 8, place + 9 + length)
        place += 9 + length
