"""Messages of ROS 1 bags (format 2.0), read in bounded memory: lengths that the file states are not trusted."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Collection, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from polar_pipeline._util.text import quoted
from polar_pipeline.replay.limits import (
    INDEX_DIVISOR,
    BlockLocation,
    BoundedFile,
    RecordedMessage,
    SourceError,
    Span,
    in_order,
    inflate,
    is_within,
    megabytes,
    overlaps,
    too_large,
)

_MAGIC = b"#ROSBAG V2.0\n"
_LENGTH = struct.Struct("<I")
_TIME = struct.Struct("<II")
#: Kinds of records: values of their field `op`.
_MESSAGE, _BAG, _CHUNK, _CHUNK_INFO, _CONNECTION = 2, 3, 5, 6, 7
#: Largest size of a record's header in bytes; a connection's holds the names of a topic, a type and a node.
_MAX_HEADER_BYTES = 1 << 20
_COMPRESSIONS = ("none", "bz2", "lz4")

Fields = Dict[bytes, bytes]


@dataclass(frozen=True)
class Connection:
    """A topic, and the type of its messages as in ROS 2."""

    topic: str
    kind: str


class Rosbag1:
    """An open ROS 1 bag that has an index.

    Attributes:
        connections: Number -> topic and type.
        counts: Number of a connection -> its messages.

    Args:
        path: The file.
        stream: The open file.
        limit: Largest size in bytes of the chunks in memory together, uncompressed.

    Raises:
        SourceError: It is not a bag, was cut off, or is encrypted.
        Exception: struct.error, KeyError, ValueError on damaged bytes; see `limits.reading`.
    """

    def __init__(self, path: Path, stream: BoundedFile, limit: int) -> None:
        self.connections: Dict[int, Connection] = {}
        self.counts: Dict[int, int] = {}
        self._path = path
        self._stream = stream
        self._limit = limit
        self._blocks: List[Tuple[BlockLocation, int]] = []  # with the time of the last message
        self._held: Dict[int, Collection[int]] = {}  # where a chunk starts -> connections in it
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise SourceError(f"{path} is no ROS 1 bag of format 2.0")
        fields = self._header(_BAG)
        if fields.get(b"encryptor"):
            raise SourceError(f"{path} is encrypted by {quoted(fields[b'encryptor'].decode(errors='replace'))}")
        (start,) = struct.unpack("<Q", fields[b"index_pos"])
        if start == 0:
            raise SourceError(f"{path} has no index: the recording was cut off (`rosbag reindex` can repair it)")
        self._read_index(start)

    def _read_index(self, start: int) -> None:
        """Read the connections and the list of chunks at the end of the file."""
        size = self._stream.length - start
        if size > self._limit // INDEX_DIVISOR:
            raise too_large(self._path, f"an index of {megabytes(size)}", self._limit // INDEX_DIVISOR)
        self._stream.seek(start)
        for fields, data in _records(self._stream.read(max(0, size))):
            if fields[b"op"][0] == _CONNECTION:
                topic, kind = fields[b"topic"].decode(), _fields(data)[b"type"].decode()
                kind = kind.replace("/", "/msg/") if kind.count("/") == 1 else kind
                self.connections[_number(fields[b"conn"])] = Connection(_plain(topic), kind)
            elif fields[b"op"][0] == _CHUNK_INFO:
                counts = dict(struct.iter_unpack("<II", data))
                (offset,) = struct.unpack("<Q", fields[b"chunk_pos"])
                block = BlockLocation(_time(fields[b"start_time"]), offset)
                self._blocks.append((block, _time(fields[b"end_time"])))
                self._held[offset] = counts
                for number, count in counts.items():
                    self.counts[number] = self.counts.get(number, 0) + count

    def span(self, wanted: Collection[int]) -> Optional[Span]:
        """The times between which the messages of these connections lie, as the index states; None without any."""
        blocks = [row for row in self._blocks if any(number in self._held[row[0].offset] for number in wanted)]
        return (min(row.time_ns for row, _ in blocks), max(end for _, end in blocks) + 1) if blocks else None

    def messages(self, wanted: Collection[int], span: Optional[Span] = None) -> Iterator[RecordedMessage]:
        """The messages of these connections, by time.

        Args:
            wanted: Numbers of the connections.
            span: If given, only messages of these times of recording.

        Raises:
            SourceError: The file is damaged, or needs more memory than the limit.
            Exception: Whatever a decompressor raises on damaged bytes; see `limits.reading`.
        """

        def load(offset: int, limit: int) -> Tuple[int, Iterable[RecordedMessage]]:
            data = self._chunk(offset, limit)
            rows = _messages(data)
            return len(data), (row for row in rows if row.connection in wanted and is_within(row.time_ns, span))

        some = [row for row, end_ns in self._blocks if overlaps(row.time_ns, end_ns, span)]
        blocks = [row for row in some if any(number in self._held[row.offset] for number in wanted)]
        return in_order(self._path, blocks, load, self._limit)

    def _header(self, op: int) -> Fields:
        """The header of the next record."""
        length = _number(self._stream.read(_LENGTH.size))
        data = self._stream.read(min(length, _MAX_HEADER_BYTES))
        fields = _fields(data) if len(data) == length else {}
        if fields.get(b"op") != bytes([op]):
            raise SourceError(f"{self._path} is damaged: there is no record of kind {op}")
        return fields

    def _chunk(self, offset: int, limit: int) -> bytes:
        """The records in a chunk."""
        self._stream.seek(offset)
        fields = self._header(_CHUNK)
        compression = fields[b"compression"].decode()
        if compression not in _COMPRESSIONS:
            raise SourceError(f"{self._path} is compressed by {quoted(compression)}; bz2 and lz4 can be read")
        length, size = _number(self._stream.read(_LENGTH.size)), _number(fields[b"size"])
        if max(size, length) > limit:
            at_once = megabytes(self._limit - limit + max(size, length))
            raise too_large(self._path, f"chunks of {at_once} at once", self._limit)
        data = inflate(io.BytesIO(self._stream.read(length)), compression, size)
        if data is None or len(data) != size:
            raise SourceError(f"{self._path} is damaged: the chunk at byte {offset} does not have {size} bytes")
        return data


def _number(data: Union[bytes, memoryview]) -> int:
    (value,) = _LENGTH.unpack(data)
    return int(value)


def _time(data: bytes) -> int:
    seconds, nanoseconds = _TIME.unpack(data)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


def _plain(topic: str) -> str:
    """A topic without doubled slashes."""
    return ("/" if topic.startswith("/") else "") + "/".join(part for part in topic.split("/") if part)


def _fields(data: Union[bytes, memoryview]) -> Fields:
    """The fields of a header."""
    found: Fields = {}
    place = 0
    while place < len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size + length
        name, separator, value = bytes(data[place - length : place]).partition(b"=")
        if place > len(data) or not separator:
            raise ValueError("a header's field is cut short")
        found[name] = value
    return found


def _records(data: Union[bytes, memoryview]) -> Iterator[Tuple[Fields, memoryview]]:
    """The records in a chunk or an index: (fields of the header, data)."""
    view, place = memoryview(data), 0
    while place < len(view):
        header = _part(view, place, _MAX_HEADER_BYTES)
        place += _LENGTH.size + len(header)
        body = _part(view, place)
        place += _LENGTH.size + len(body)
        yield _fields(header), body


def _part(view: memoryview, place: int, longest: Optional[int] = None) -> memoryview:
    """The bytes after the length that precedes them."""
    (length,) = _LENGTH.unpack_from(view, place)
    start = place + _LENGTH.size
    if start + length > len(view) or (longest is not None and length > longest):
        raise ValueError(f"a record of {length} bytes does not fit in")
    return view[start : start + length]


def _messages(data: bytes) -> Iterator[RecordedMessage]:
    for fields, body in _records(data):
        if fields[b"op"][0] == _MESSAGE:
            yield RecordedMessage(_time(fields[b"time"]), _number(fields[b"conn"]), body)
