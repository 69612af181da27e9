"""Messages of mcap files by time, read by the mcap library; memory holds those whose time is near, not the file."""

from __future__ import annotations

import heapq
import io
import struct
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Collection, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple, Union

import lz4.frame  # type: ignore[import-untyped]
import zstandard
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.reader import SeekingReader
from mcap.records import Channel, Chunk, McapRecord, Message
from mcap.stream_reader import breakup_chunk
from mcap.summary import Summary

from polar_pipeline._util.text import quoted
from polar_pipeline.replay.limits import SourceError, Span, check_size, is_within, require_regular_file
from polar_pipeline.sensor.frames import FrameError

#: First and last bytes of an mcap file.
MAGIC = b"\x89MCAP0\r\n"

#: Topic -> type and number of its messages.
Topics = Dict[str, Tuple[str, int]]
#: Time of recording, and the bytes of a message or why it cannot be read.
TimedMessage = Tuple[int, Union[bytes, FrameError]]


class McapRow(NamedTuple):
    """A message and where it is: the offset of its chunk in the file, and its number among the chunk's messages."""

    channel: Channel
    message: Message
    place: Tuple[int, int]


class _ChunkPlace(NamedTuple):
    """First and last time of a chunk, its offset, and its channels; without these, it may hold any."""

    start_ns: int
    end_ns: int
    offset: int
    channels: Collection[int]


class McapFile:
    """An open mcap file that has an index.

    The mcap library's own reader would load a file without chunks, such as those of the recorder's profile `fastwrite`,
    completely to sort its messages.

    Attributes:
        stream: The open file.
        summary: The records of the index.
        topics: Topics and types; "" for a type that the file does not name.

    Args:
        path: The file, for errors.
        stream: The open file.
        limit: Largest size in bytes of a chunk, and of the messages in memory together.

    Raises:
        SourceError: The file is not an mcap file, was cut off, or does not count its messages.
        Exception: Whatever damaged bytes make the mcap library raise; see `limits.reading`.
    """

    def __init__(self, path: Path, stream: BinaryIO, limit: int) -> None:
        self._path = path
        self.stream = stream
        self._limit = limit
        self._places: Optional[List[_ChunkPlace]] = None
        self.summary = self._read_summary()
        if self.summary.statistics is None:
            raise SourceError(f"{path} does not say how many messages it holds (`mcap recover` counts them)")
        counts = self.summary.statistics.channel_message_counts
        self.topics: Topics = {}
        for number, row in self.summary.channels.items():
            _, before = self.topics.get(row.topic, ("", 0))
            self.topics[row.topic] = (self.kind(row), before + counts.get(number, 0))

    def _read_summary(self) -> Summary:
        if self.stream.read(len(MAGIC)) != MAGIC:
            raise SourceError(f"{self._path} is not an mcap file")
        self.stream.seek(-len(MAGIC), io.SEEK_END)
        is_complete = self.stream.read() == MAGIC
        self.stream.seek(0)
        summary = SeekingReader(self.stream, record_size_limit=self._limit).get_summary() if is_complete else None
        if summary is None:
            raise SourceError(f"{self._path} has no index: the recording was cut off (`mcap recover` can repair it)")
        return summary

    def kind(self, channel: Channel) -> str:
        """Type of a channel's messages; "" if the file does not name it."""
        schema = self.summary.schemas.get(channel.schema_id)
        return schema.name if schema else ""

    def messages(self, topic: str, kind: str, span: Optional[Span] = None) -> Iterator[TimedMessage]:
        """Times and messages of a type on a topic, by time; it raises what `rows` does."""
        for row in self.rows([topic], span):
            if self.kind(row.channel) == kind:
                yield row.message.log_time, row.message.data

    def rows(self, topics: Collection[str], span: Optional[Span] = None) -> Iterator[McapRow]:
        """The messages on these topics by time; messages of equal time in the order of the file.

        A chunk is read when the time of its first message is reached.

        Args:
            topics: The topics.
            span: If given, only messages of these times of recording.

        Raises:
            SourceError: The file is damaged.
            FrameError: The messages that must be held at once need more memory than the limit (cause `size`).
            Exception: Whatever damaged bytes make the mcap library raise; see `limits.reading`.
        """
        channels = {number for number, row in self.summary.channels.items() if row.topic in topics}
        # (time, offset of the chunk, number of the message, the message); without a message: a chunk to be read
        queue: List[Tuple[int, int, int, Optional[Message]]] = [
            (row.start_ns, row.offset, -1, None) for row in self._chunks(channels, span)
        ]
        heapq.heapify(queue)
        held = 0
        while queue:
            _, offset, number, message = heapq.heappop(queue)
            if message is not None:
                held -= len(message.data)
                yield McapRow(self.summary.channels[message.channel_id], message, (offset, number))
                continue
            for number, new in enumerate(self._load(offset)):
                if new.channel_id not in self.summary.channels:
                    raise SourceError(f"{self._path} is damaged: its index has no channel {new.channel_id}")
                if new.channel_id in channels and is_within(new.log_time, span):
                    held += len(new.data)
                    check_size("messages to be held at once", held, self._limit)
                    heapq.heappush(queue, (new.log_time, offset, number, new))

    def message_at(self, place: Tuple[int, int]) -> Message:
        """The message at a place that `rows` gave; it raises what `rows` does."""
        return self._load(place[0])[place[1]]

    def spans(self, topic: str) -> List[Span]:
        """The times of recording between which the messages on a topic lie, as the index states; empty without any."""
        channels = {number for number, row in self.summary.channels.items() if row.topic == topic}
        rows = self._chunks(channels, None)
        return [(min(row.start_ns for row in rows), max(row.end_ns for row in rows) + 1)] if rows else []

    def _chunks(self, channels: Set[int], span: Optional[Span]) -> List[_ChunkPlace]:
        """The chunks that may hold messages of these channels in a span; a message outside of chunks counts as one."""
        if self._places is None:
            rows = {row.chunk_start_offset: row for row in self.summary.chunk_indexes}
            self._places = [
                _ChunkPlace(row.message_start_time, row.message_end_time, offset, row.message_index_offsets)
                for offset, row in rows.items()
            ] or list(self._scan())
        return [
            row
            for row in self._places
            if (not row.channels or not channels.isdisjoint(row.channels))
            and (span is None or (row.start_ns < span[1] and row.end_ns >= span[0]))
        ]

    def _scan(self) -> Iterator[_ChunkPlace]:
        """The chunks, and the messages outside of chunks, of a file whose index lists none."""
        offset, opcode = len(MAGIC), 0
        while opcode != Opcode.DATA_END:
            self.stream.seek(offset)
            head = self.stream.read(25)
            opcode, length = struct.unpack_from("<BQ", head)
            if opcode == Opcode.CHUNK:
                start_ns, end_ns = struct.unpack_from("<QQ", head, 9)
                yield _ChunkPlace(start_ns, end_ns, offset, ())
            elif opcode == Opcode.MESSAGE:
                channel, _, time_ns = struct.unpack_from("<HIQ", head, 9)
                yield _ChunkPlace(time_ns, time_ns, offset, (channel,))
            offset += 9 + length

    def _load(self, offset: int) -> List[Message]:
        """The messages in the chunk at an offset, or the message there."""
        self.stream.seek(offset)
        opcode, length = struct.unpack("<BQ", self.stream.read(9))
        check_size("a record", length, self._limit)
        if opcode == Opcode.MESSAGE:
            return [Message.read(ReadDataStream(self.stream), length)]
        if opcode != Opcode.CHUNK:
            raise SourceError(f"{self._path} is damaged: there is no chunk at byte {offset}")
        record = Chunk.read(ReadDataStream(self.stream))
        return [row for row in chunk_records(record, self._limit) if isinstance(row, Message)]


@contextmanager
def open_mcap(path: Path, limit: int) -> Iterator[McapFile]:
    """Open an mcap file; the arguments and errors are those of `McapFile`."""
    require_regular_file(path)
    with path.open("rb") as stream:
        yield McapFile(path, stream, limit)


def chunk_records(chunk: Chunk, limit: int) -> List[McapRecord]:
    """The records in a chunk. The mcap library would decompress as much as the data holds, whatever the chunk declares.

    Raises:
        FrameError: The chunk is larger than the limit (cause `size`), does not have the size that it declares, or is
            compressed otherwise (cause `file`).
        Exception: Whatever a decompressor raises on damaged bytes.
    """
    size, data = chunk.uncompressed_size, chunk.data
    check_size("a chunk", size, limit)
    if chunk.compression == "zstd" and zstandard.frame_content_size(data) <= size:
        data = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    elif chunk.compression == "lz4":
        data = lz4.frame.LZ4FrameDecompressor().decompress(data, max_length=size + 1)
    elif chunk.compression not in ("", "zstd"):
        raise FrameError("file", f"a chunk is compressed by {quoted(chunk.compression)}; zstd and lz4 can be read")
    if len(data) != size:
        raise FrameError("file", f"a chunk does not have {size} bytes, which it declares")
    return breakup_chunk(replace(chunk, compression="", data=data), validate_crc=True)
