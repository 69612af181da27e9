"""Messages of mcap files, read in bounded memory: lengths and sizes that the file states are not trusted."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Collection, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from mcap.opcode import Opcode
from mcap.records import (
    Attachment,
    AttachmentIndex,
    Channel,
    ChunkIndex,
    Metadata,
    MetadataIndex,
    Schema,
    Statistics,
)
from mcap.stream_reader import StreamReader

from polar_pipeline._util.text import quoted
from polar_pipeline.replay.limits import (
    INDEX_DIVISOR,
    BlockLocation,
    BoundedFile,
    RecordedMessage,
    Section,
    SourceError,
    Span,
    in_order,
    inflate,
    is_within,
    megabytes,
    overlaps,
    too_large,
)

#: First and last bytes of an mcap file.
_MAGIC = b"\x89MCAP0\r\n"
#: Opcode and length in front of every record.
_RECORD = struct.Struct("<BQ")
#: The fields of a footer: start of the index, start of its table of contents, checksum.
_FOOTER = struct.Struct("<QQI")
#: The first fields of a chunk: first and last time, size, checksum, length of the compression's name.
_CHUNK = struct.Struct("<QQQII")
#: The first fields of a message: channel, sequence number, time of recording, time of publishing.
_MESSAGE = struct.Struct("<HIQQ")
#: How chunks may be compressed.
_COMPRESSIONS = ("", "zstd", "lz4")


class McapFile:
    """An open mcap file that has an index.

    Attributes:
        channels: Number of a channel -> its record.
        schemas: Number of a schema -> its record.
        topics: Number of a channel -> its topic.
        kinds: Number of a channel -> type of its messages; "" where the file does not say.
        counts: Number of a channel -> its messages; None where the file does not say.

    Args:
        path: The file.
        stream: The open file.
        limit: Largest size in bytes of the chunks in memory together, uncompressed.

    Raises:
        SourceError: It is not an mcap file, or was cut off.
        Exception: Whatever damaged bytes make the mcap library raise; see `limits.reading`.
    """

    def __init__(self, path: Path, stream: BoundedFile, limit: int) -> None:
        self.channels: Dict[int, Channel] = {}
        self.schemas: Dict[int, Schema] = {}
        self.topics: Dict[int, str] = {}
        self.kinds: Dict[int, str] = {}
        self.counts: Optional[Dict[int, int]] = None
        self._path = path
        self._stream = stream
        self._limit = limit
        self._chunks: List[ChunkIndex] = []
        self._extras: List[Tuple[int, int]] = []
        self._singles: Optional[List[Tuple[BlockLocation, int]]] = None
        self._start = self._read_index()

    def _read_index(self) -> int:
        """Read the index at the end of the file; returns its offset."""
        footer = _RECORD.size + _FOOTER.size
        end = self._stream.length - footer - len(_MAGIC)
        if self._at(0, len(_MAGIC)) != _MAGIC:
            raise SourceError(f"{self._path} is no mcap file")
        tail = self._at(max(0, end), footer + len(_MAGIC))
        start = _FOOTER.unpack_from(tail, _RECORD.size)[0] if tail[footer:] == _MAGIC else 0
        if tail[: _RECORD.size] != _RECORD.pack(Opcode.FOOTER, _FOOTER.size) or start == 0:
            raise SourceError(f"{self._path} has no index: the recording was cut off (`mcap recover` can repair it)")
        if not len(_MAGIC) <= start <= end:
            raise SourceError(f"{self._path} is damaged: its index would start at byte {start}")
        if end - start > self._limit // INDEX_DIVISOR:
            raise too_large(self._path, f"an index of {megabytes(end - start)}", self._limit // INDEX_DIVISOR)
        index = io.BytesIO(self._at(start, end - start) + tail)
        for record in StreamReader(index, skip_magic=True, emit_chunks=True).records:
            if isinstance(record, Schema):
                self.schemas[record.id] = record
            elif isinstance(record, Channel):
                self.channels[record.id] = record
            elif isinstance(record, ChunkIndex):
                self._chunks.append(record)
            elif isinstance(record, (AttachmentIndex, MetadataIndex)):
                self._extras.append((record.offset, record.length))
            elif isinstance(record, Statistics):
                self.counts = record.channel_message_counts
        names = {number: row.name for number, row in self.schemas.items()}
        self.topics = {number: row.topic for number, row in self.channels.items()}
        self.kinds = {number: names.get(row.schema_id, "") for number, row in self.channels.items()}
        return int(start)

    def _at(self, offset: int, size: int) -> bytes:
        self._stream.seek(offset)
        return self._stream.read(size)

    def messages(self, topics: Collection[str], span: Optional[Span] = None) -> Iterator[RecordedMessage]:
        """The messages on these topics, by time.

        Args:
            topics: The topics.
            span: If given, only messages of these times of recording.

        Raises:
            SourceError: The file is damaged, or needs more memory than the limit.
            Exception: Whatever a decompressor raises on damaged bytes; see `limits.reading`.
        """
        wanted = {number for number, topic in self.topics.items() if topic in topics}

        def load(offset: int, limit: int) -> Tuple[int, Iterable[RecordedMessage]]:
            size, rows = self._load(offset, limit)
            return size, (row for row in rows if row.connection in wanted and is_within(row.time_ns, span))

        blocks = (block for block, end_ns in self._blocks(wanted) if overlaps(block.time_ns, end_ns, span))
        return in_order(self._path, blocks, load, self._limit)

    @property
    def compression(self) -> str:
        """How its chunks are compressed: `zstd`, `lz4` or "", as the index states for the first one."""
        return self._chunks[0].compression if self._chunks else ""

    def extras(self) -> Iterator[Union[Attachment, Metadata]]:
        """What it holds beside messages, as its index lists it."""
        for offset, length in self._extras:
            record = next(StreamReader(io.BytesIO(self._at(offset, length)), skip_magic=True).records)
            if isinstance(record, (Attachment, Metadata)):
                yield record

    def as_written(self) -> Iterator[RecordedMessage]:
        """All messages, in the order of the file; it raises what `messages` does."""
        blocks = self._blocks(self.topics)
        for offset in sorted({block.offset for block, _ in blocks}):
            yield from self._load(offset, self._limit)[1]

    def span(self, topics: Collection[str]) -> Optional[Span]:
        """The times of recording between which the messages on these topics lie; None where there are none.

        The times are those that the index states, and may be wider.
        """
        blocks = list(self._blocks({number for number, topic in self.topics.items() if topic in topics}))
        if not blocks:
            return None
        return min(block.time_ns for block, _ in blocks), max(end_ns for _, end_ns in blocks) + 1

    def _blocks(self, wanted: Collection[int]) -> Iterator[Tuple[BlockLocation, int]]:
        """The blocks that may hold messages of these channels, with their last times."""
        for row in self._chunks:
            # without an index of its own, a chunk may hold any channel
            if row.message_index_offsets and not any(number in row.message_index_offsets for number in wanted):
                continue
            yield BlockLocation(row.message_start_time, row.chunk_start_offset), row.message_end_time
        if not self._chunks:
            if self._singles is None:
                self._singles = list(self._scan())
            yield from self._singles

    def _scan(self) -> Iterator[Tuple[BlockLocation, int]]:
        """Chunks, and messages outside of any, with the last time, of a file whose index names no chunks."""
        offset = len(_MAGIC)
        while offset < self._start:
            opcode, length, *fields = struct.unpack("<BQQQ", self._at(offset, 25).ljust(25, b"\0"))
            if offset + _RECORD.size + length > self._start:
                raise SourceError(f"{self._path} is damaged: the record at byte {offset} is longer than the file")
            if opcode == Opcode.CHUNK:
                yield BlockLocation(fields[0], offset), fields[1]
            elif opcode == Opcode.MESSAGE:
                _, _, time_ns, _ = _MESSAGE.unpack(self._at(offset + _RECORD.size, _MESSAGE.size))
                yield BlockLocation(time_ns, offset), time_ns
            offset += _RECORD.size + length

    def _load(self, offset: int, limit: int) -> Tuple[int, Iterator[RecordedMessage]]:
        opcode, length = _RECORD.unpack(self._at(offset, _RECORD.size))
        if opcode == Opcode.MESSAGE:
            if length > limit:
                raise too_large(self._path, megabytes(length), self._limit)
            data = self._at(offset, _RECORD.size + length)
        elif opcode == Opcode.CHUNK:
            data = self._chunk(offset, limit)
        else:
            raise SourceError(f"{self._path} is damaged: there is no chunk at byte {offset}")
        return len(data), self._parse(data, offset)

    def _chunk(self, offset: int, limit: int) -> bytes:
        """The records in the chunk whose first field comes next."""
        _, _, size, checksum, length = _CHUNK.unpack(self._stream.read(_CHUNK.size))
        compression = self._stream.read(min(length, 64)).decode()
        if compression not in _COMPRESSIONS or len(compression) != length:
            raise SourceError(f"{self._path} is compressed by {quoted(compression)}; zstd and lz4 can be read")
        if size > limit:
            raise too_large(self._path, f"chunks of {megabytes(self._limit - limit + size)} at once", self._limit)
        (length,) = struct.unpack("<Q", self._stream.read(8))
        data = inflate(Section(self._stream, length), compression, size)
        if data is None or len(data) != size:
            raise SourceError(f"{self._path} is damaged: the chunk at byte {offset} does not have {size} bytes")
        if checksum and zlib.crc32(data) != checksum:
            raise SourceError(f"{self._path} is damaged: the checksum of the chunk at byte {offset} is wrong")
        return data

    def _parse(self, data: bytes, offset: int) -> Iterator[RecordedMessage]:
        """The messages in the records of a chunk."""
        view, place = memoryview(data), 0
        while place < len(view):
            opcode, length = _RECORD.unpack_from(view, place)
            start, place = place + _RECORD.size, place + _RECORD.size + length
            if place > len(view):
                raise SourceError(f"{self._path} is damaged: a record in the chunk at byte {offset} is cut short")
            if opcode == Opcode.MESSAGE:
                channel, sequence, time_ns, published_ns = _MESSAGE.unpack_from(view[start:place])
                if channel not in self.topics:
                    raise SourceError(f"{self._path} is damaged: its index has no channel {channel}")
                body = view[start + _MESSAGE.size : place]
                yield RecordedMessage(time_ns, channel, body, published_ns, sequence)
