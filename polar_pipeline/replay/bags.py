"""Recordings of messages: rosbag2 folders, `.mcap` and `.db3` files, compressed by zstd or not, and ROS 1 bags.

The mcap library, SQLite and rosbags read them; memory holds messages whose time is near, not a file.
"""

from __future__ import annotations

import io
import sqlite3
import struct
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union, cast

import zstandard
from mcap.exceptions import EndOfFile
from mcap.reader import SeekingReader
from mcap.records import Attachment, Channel, Chunk, ChunkIndex, Message, Metadata, Schema
from mcap.stream_reader import StreamReader, breakup_chunk

from polar_pipeline._util.documents import regular_status
from polar_pipeline._util.files import temporary_folder
from polar_pipeline._util.imports import importing
from polar_pipeline._util.text import quoted
from polar_pipeline._util.yamlfile import read_yaml
from polar_pipeline.replay.definitions import from_ros1
from polar_pipeline.replay.limits import SourceError, Span, check_size, megabytes
from polar_pipeline.replay.rosbag2 import ZSTD, bag_files, is_bag_file, numbered, plain_name
from polar_pipeline.sensor.frames import FrameError

#: Topic -> type and number of its messages.
Topics = Dict[str, Tuple[str, int]]
#: Time of recording, and the bytes of a message or why it cannot be read.
TimedMessage = Tuple[int, Union[bytes, memoryview, FrameError]]
#: A channel and its type, with one of its messages or without; or what else an mcap file holds.
Row = Tuple[Schema, Channel, Optional[Message]]
Record = Union[Row, Attachment, Metadata]

#: First and last bytes of an mcap file, and compressions of its chunks.
_MAGIC = b"\x89MCAP0\r\n"
_COMPRESSIONS = ("", "lz4", "zstd")
#: Values that `metadata.yaml` may have: each file and topic takes some ten.
_MAX_METADATA = 200_000
#: A compressed file may take this many times the limit on disk when inflated: files of several gigabytes are common.
_DISK_FACTOR = 16
#: Bytes that are inflated at a time.
_PIECE_BYTES = 1 << 20
#: Type of a channel whose messages have none.
_NO_TYPE = Schema(0, b"", "", "")


def _counted(rows: Iterable[Tuple[str, str, int]]) -> Topics:
    """Add up (topic, type, number of messages), of which a topic may have several."""
    topics: Topics = {}
    for topic, kind, count in rows:
        _, before = topics.get(topic, ("", 0))
        topics[topic] = (kind, before + count)
    return topics


class Bag:
    """An open recording of messages.

    Attributes:
        topics: Topics and types, which have their names in ROS 2; "" for a type that the file does not name.
        compression: How chunks, or else files or messages are compressed; "" for none.
        is_cut: Whether the file was cut off; what is missing at its end is not known.

    Methods raise what their libraries make of damaged bytes; see `limits.reading`.
    """

    topics: Topics
    compression = ""
    is_cut = False

    def messages(self, topic: str, kind: str, span: Optional[Span] = None) -> Iterator[TimedMessage]:
        """Yield times and messages of a type on a topic in CDR, by time; of a folder file by file."""
        raise NotImplementedError

    def records(self) -> Iterator[Record]:
        """Yield all that the files hold, for a complete copy: every channel before its messages."""
        raise NotImplementedError

    def spans(self) -> Optional[List[Span]]:
        """Return the times of recording between which the messages of each file lie; None if files are compressed."""
        raise NotImplementedError


# ----------------------------------------------------------------------------------------------------------------- mcap


class _Mcap(Bag):
    """An open mcap file that has an index.

    Args:
        path: The file, for errors.
        stream: The open file.
        limit: Largest size in bytes of an uncompressed chunk, as the index states it.

    Raises:
        SourceError: The file is not an mcap file, was cut off, or does not count its messages.
        FrameError: A chunk is larger than the limit (cause `size`).
    """

    def __init__(self, path: Path, stream: BinaryIO, limit: int) -> None:
        is_complete = _is_complete(path, stream)
        self._reader = SeekingReader(stream, validate_crcs=True, record_size_limit=limit)
        summary = self._reader.get_summary() if is_complete else None
        if summary is None:
            raise SourceError(f"{path} has no index: the recording was cut off (`mcap recover` can repair it)")
        if summary.statistics is None:
            raise SourceError(f"{path} does not say how many messages it holds (`mcap recover` counts them)")
        for row in summary.chunk_indexes:
            _check_chunk(path, row, limit)
            self.compression = row.compression
        self._summary, self._statistics = summary, summary.statistics
        counts = summary.statistics.channel_message_counts
        self.topics = _counted((row.topic, kind.name, counts.get(row.id, 0)) for kind, row, _ in self._channels())

    def _channels(self) -> Iterator[Row]:
        for channel in self._summary.channels.values():
            yield self._summary.schemas.get(channel.schema_id, _NO_TYPE), channel, None

    def messages(self, topic: str, kind: str, span: Optional[Span] = None) -> Iterator[TimedMessage]:
        # to sort messages without chunks, as of the recorder's profile `fastwrite`, the library would hold all of them
        has_chunks = bool(self._summary.chunk_indexes)
        start, end = span or (None, None)
        rows = self._reader.iter_messages([topic], log_time_order=has_chunks, starting_at=start, ending_before=end)
        for schema, _, message in rows:
            if (schema or _NO_TYPE).name == kind:
                yield message.log_time, message.data

    def records(self) -> Iterator[Record]:
        yield from self._reader.iter_metadata()  # first: `recorded_metadata` reads the beginning of the copy
        yield from self._channels()
        for schema, channel, message in self._reader.iter_messages(log_time_order=False):
            yield schema or _NO_TYPE, channel, message
        yield from self._reader.iter_attachments()

    def spans(self) -> List[Span]:
        row = self._statistics
        return [(row.message_start_time, row.message_end_time + 1)] if row.message_count else []


class _CutMcap(Bag):
    """An open mcap file that was cut off, which is read up to its last complete chunk in the order of the file.

    Args:
        path: The file, for errors.
        stream: The open file.
        limit: Largest size in bytes of an uncompressed chunk.
    """

    is_cut = True

    def __init__(self, path: Path, stream: BinaryIO, limit: int) -> None:
        self._path, self._stream, self._limit = path, stream, limit
        self.topics = _counted((channel.topic, schema.name, 1) for schema, channel, _ in self._rows())
        if not self.topics:
            raise SourceError(f"{path} was cut off before its first chunk was complete")

    def _rows(self) -> Iterator[Tuple[Schema, Channel, Message]]:
        schemas, channels = {0: _NO_TYPE}, {}
        self._stream.seek(0)
        chunks = StreamReader(self._stream, emit_chunks=True, record_size_limit=self._limit).records
        try:
            for chunk in chunks:
                if isinstance(chunk, Chunk):
                    _check_chunk(self._path, chunk, self._limit)
                for row in breakup_chunk(chunk, validate_crc=True) if isinstance(chunk, Chunk) else [chunk]:
                    if isinstance(row, Schema):
                        schemas[row.id] = row
                    elif isinstance(row, Channel):
                        channels[row.id] = row
                    elif isinstance(row, Message):
                        channel = channels[row.channel_id]
                        yield schemas[channel.schema_id], channel, row
        except (EndOfFile, struct.error):
            if self._stream.read(1):  # not the end, but damage
                raise

    def messages(self, topic: str, kind: str, span: Optional[Span] = None) -> Iterator[TimedMessage]:
        for schema, channel, message in self._rows():
            is_in_span = span is None or span[0] <= message.log_time < span[1]
            if is_in_span and (channel.topic, schema.name) == (topic, kind):
                yield message.log_time, message.data

    def spans(self) -> None:
        """Return None: without an index, each part would read the whole file."""


def _is_complete(path: Path, stream: BinaryIO) -> bool:
    """Return whether an mcap file was not cut off; raise SourceError for other files."""
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise SourceError(f"{path} is not an mcap file")
    stream.seek(-len(_MAGIC), io.SEEK_END)
    is_complete = stream.read() == _MAGIC
    stream.seek(0)
    return is_complete


def _check_chunk(path: Path, row: Union[Chunk, ChunkIndex], limit: int) -> None:
    check_size("a chunk", row.uncompressed_size, limit)
    if row.compression not in _COMPRESSIONS:
        raise SourceError(f"{path} is compressed by {quoted(row.compression)}; zstd and lz4 can be read")


# ------------------------------------------------------------------------------------------------------- SQLite, ROS 1


class _Sqlite(Bag):
    """An open `.db3` file.

    Args:
        path: The file, for errors.
        base: The open database.

    Raises:
        SourceError: The recording has no tables of messages and topics; views may compute without end.
    """

    def __init__(self, path: Path, base: sqlite3.Connection) -> None:
        self._path = path
        self._base = base
        if not {"messages", "topics"} <= self._tables():
            raise SourceError(f"{path} has no tables of messages and topics")
        self.topics = _counted(
            base.execute(
                "SELECT name, type, count(topic_id) FROM topics LEFT JOIN messages ON topic_id = topics.id"
                " WHERE serialization_format = 'cdr' GROUP BY topics.id"
            )
        )

    def _tables(self) -> Set[str]:
        return {name for (name,) in self._base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def messages(self, topic: str, kind: str, span: Optional[Span] = None) -> Iterator[TimedMessage]:
        condition = "topic_id IN (SELECT id FROM topics WHERE name = ? AND type = ?)"
        condition += " AND timestamp >= ? AND timestamp < ?" if span else ""
        for time_ns, _, data in self._rows(condition, (topic, kind, *(span or ()))):
            yield time_ns, data

    def _rows(
        self, condition: str = "1", values: Sequence[Union[str, int]] = ()
    ) -> Iterator[Tuple[int, int, Union[bytes, FrameError]]]:
        """Yield times, numbers of topics and messages, by time, for which a condition in SQL holds."""
        query = f"SELECT timestamp, topic_id, data FROM messages WHERE {condition} ORDER BY timestamp"
        for time_ns, number, data in self._base.execute(query, values):
            if not isinstance(time_ns, int):
                raise SourceError(f"{self._path} is damaged: the time of a message is {quoted(time_ns)}")
            is_message = isinstance(data, bytes)
            yield time_ns, number, data if is_message else FrameError("cdr", "a message is not stored as bytes")

    def records(self) -> Iterator[Record]:
        channels = {}
        definitions = {row["topic_type"]: row for row in self._table("message_definitions")}  # since ROS 2 Iron
        for row in self._table("topics"):
            known = definitions.get(row["type"], {"encoding": "", "encoded_message_definition": ""})
            values = row["name"], row["type"], row["serialization_format"], row.get("offered_qos_profiles", "")
            texts = [*values, known["encoding"], known["encoded_message_definition"]]
            if not all(isinstance(text, str) for text in texts):
                raise SourceError(f"{self._path} is damaged: a topic is not described by texts")
            name, kind, encoding, qos, language, definition = texts
            schema = Schema(0, definition.encode(), language, kind)
            channels[row["id"]] = schema, Channel(0, name, encoding, {"offered_qos_profiles": qos}, 0)
        for schema, channel in channels.values():
            yield schema, channel, None
        for time_ns, number, data in self._rows():
            if time_ns < 0:
                raise SourceError(f"{self._path} has a message of a time before 1970, which mcap cannot hold")
            yield (*channels[number], Message(0, time_ns, cast("bytes", data), time_ns, 0))

    def _table(self, name: str) -> List[Dict[str, Any]]:
        """Read the rows of a table as dictionaries by column; empty without such a table."""
        rows = self._base.execute(f"SELECT * FROM {name}" if name in self._tables() else "SELECT 1 LIMIT 0")
        return [dict(zip((column[0] for column in rows.description), row)) for row in rows]

    def spans(self) -> List[Span]:
        ((first, last),) = self._base.execute("SELECT min(timestamp), max(timestamp) FROM messages")
        return [(first, last + 1)] if isinstance(first, int) and isinstance(last, int) else []


class _Rosbag1(Bag):
    """An open ROS 1 bag; `records` are not read of it."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.topics = _counted((row.topic, row.msgtype, row.msgcount) for row in reader.connections)

    def messages(self, topic: str, kind: str, span: Optional[Span] = None) -> Iterator[TimedMessage]:
        chosen = [row for row in self._reader.connections if (row.topic, row.msgtype) == (topic, kind)]
        for _, time_ns, data in self._reader.messages(chosen, *(span or ())):
            try:
                yield time_ns, from_ros1(data, kind)
            except FrameError as err:  # noqa: PERF203
                yield time_ns, err

    def spans(self) -> List[Span]:
        return [(self._reader.start_time, self._reader.end_time)] if self._reader.message_count else []


# ---------------------------------------------------------------------------------------------------------------- files


@contextmanager
def inflated(path: Path, limit: int) -> Iterator[Path]:
    """Provide a recorder's file, or an inflated copy while the block lasts if its name says that it is compressed.

    Raises:
        SourceError: The copy would take more on disk than `_DISK_FACTOR` times the limit.
        ZstdError: The file is damaged.
    """
    if path.suffix != ZSTD:
        yield path
        return
    most = _DISK_FACTOR * limit
    with temporary_folder("inflated") as folder:
        copy = folder / plain_name(path)
        with path.open("rb") as stream, copy.open("wb") as out:
            source = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
            for piece in iter(lambda: source.read(_PIECE_BYTES), b""):
                if out.tell() + len(piece) > most:
                    raise SourceError(
                        f"{path} takes more than {megabytes(most)} on disk, {_DISK_FACTOR} times --max-mb"
                    )
                out.write(piece)
        yield copy


@contextmanager
def open_recording(path: Path, limit: int, takes_cut: bool = False) -> Iterator[Bag]:
    """Open a rosbag2 folder, an `.mcap` or `.db3` file, compressed or not, or a ROS 1 bag.

    Args:
        path: The recording.
        limit: Largest size in bytes of an uncompressed chunk.
        takes_cut: Whether an mcap file that was cut off is read up to its last complete chunk.

    Raises:
        SourceError: The recording cannot be read.
        Exception: Whatever damaged bytes make the libraries raise; see `limits.reading`.
    """
    if path.is_dir():
        yield _open_folder(path, limit)
        return
    regular_status(path)
    with ExitStack() as stack:
        plain = stack.enter_context(inflated(path, limit))
        if plain.suffix == ".bag":
            with importing():
                from rosbags.rosbag1 import Reader  # only these need it

            yield _Rosbag1(stack.enter_context(Reader(plain)))
        elif plain.suffix == ".mcap":
            stream = stack.enter_context(plain.open("rb"))
            is_cut = takes_cut and not _is_complete(path, stream)
            yield (_CutMcap if is_cut else _Mcap)(path, stream, limit)
        else:
            yield _open_sqlite(path, plain, stack)


def _open_sqlite(path: Path, plain: Path, stack: ExitStack) -> _Sqlite:
    """Open a `.db3` file, inflated as `plain`, with the write-ahead log in which a killed recorder leaves messages."""
    has_log = plain.with_name(f"{plain.name}-wal").is_file()
    address = f"{plain.resolve().as_uri()}?{'mode=ro' if has_log else 'immutable=1'}"
    try:
        return _Sqlite(path, stack.enter_context(closing(sqlite3.connect(address, uri=True))))
    except sqlite3.OperationalError as err:
        if has_log:
            raise SourceError(
                f"{path} and its -wal file cannot be read: {err}; copy both to a folder of yours"
            ) from err
        raise


# -------------------------------------------------------------------------------------------------------------- folders


class _Folder(Bag):
    """The files of a recording, in the order of recording."""

    def __init__(self, files: Sequence[Path], topics: Topics, limit: int, compression: str) -> None:
        self._files = files
        self._limit = limit
        self.topics = topics
        self.compression = compression

    def messages(self, topic: str, kind: str, span: Optional[Span] = None) -> Iterator[TimedMessage]:
        for path in self._files:
            with open_recording(path, self._limit) as file:
                yield from file.messages(topic, kind, span)

    def records(self) -> Iterator[Record]:
        for path in self._files:
            with open_recording(path, self._limit) as file:
                yield from file.records()

    def spans(self) -> Optional[List[Span]]:
        if any(path.suffix == ZSTD for path in self._files):
            return None
        spans: List[Span] = []
        for path in self._files:
            with open_recording(path, self._limit) as file:
                spans += file.spans() or []
        return spans


def _open_folder(path: Path, limit: int) -> Bag:
    """Open a rosbag2 folder, also one without `metadata.yaml`, which a recorder that was killed leaves.

    Raises:
        SourceError: A file is missing or of an unknown format, or there are none, or files of several recordings.
    """
    is_described = (path / "metadata.yaml").exists()
    files, topics, is_compressed = _described(path) if is_described else (bag_files(path), {}, False)
    if not files:
        raise SourceError(f"{path} has no .mcap or .db3 file")
    if not is_described:
        names, numbers = (set(parts) for parts in zip(*map(numbered, files)))
        if len(names) > 1 or len(numbers) < len(files):
            raise SourceError(f"{path} has no metadata.yaml, and files of several recordings: name one of them")
        rows: List[Tuple[str, str, int]] = []
        for part in files:
            with open_recording(part, limit) as file:
                rows += [(topic, kind, count) for topic, (kind, count) in file.topics.items()]
        topics = _counted(rows)
    if is_compressed or files[0].suffix == ZSTD:
        return _Folder(files, topics, limit, "zstd")
    with open_recording(files[0], limit) as first:
        return _Folder(files, topics, limit, first.compression)


def _described(folder: Path) -> Tuple[List[Path], Topics, bool]:
    """Read the files and topics of a folder, and whether it is compressed, from its `metadata.yaml`."""
    try:
        info = read_yaml(folder / "metadata.yaml", _MAX_METADATA)["rosbag2_bagfile_information"]
    except ValueError as err:  # it names the file
        raise SourceError(str(err)) from err
    is_compressed = (info.get("compression_mode") or "none").lower() != "none"
    if is_compressed and info.get("compression_format") != "zstd":
        raise SourceError(f"{folder} is compressed by {quoted(info.get('compression_format'))}; zstd can be read")
    files = [folder / PurePath(name).name for name in info["relative_file_paths"]]
    for file in files:
        if not is_bag_file(file):
            raise SourceError(
                f"{folder} is stored as {quoted(info['storage_identifier'])}; sqlite3 and mcap can be read"
            )
        if not file.is_file():
            raise SourceError(f"{folder} lacks {quoted(file.name)}")
    rows = [(row["topic_metadata"], int(row["message_count"])) for row in info["topics_with_message_count"]]
    topics = _counted((row["name"], row["type"], count) for row, count in rows if row["serialization_format"] == "cdr")
    return files, topics, is_compressed
