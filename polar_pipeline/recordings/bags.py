"""Recordings of messages: rosbag2 folders, `.mcap` and `.db3` files, compressed by zstd or not, and ROS 1 bags.

The mcap library, SQLite and rosbags read them; memory holds messages whose time is near, not a file.
"""

from __future__ import annotations

import io
import re
import sqlite3
import struct
from contextlib import ExitStack, closing, contextmanager
from functools import lru_cache
from pathlib import Path, PurePath
from typing import IO, Any, Collection, Counter, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union

import zstandard
from mcap.exceptions import EndOfFile
from mcap.reader import SeekingReader
from mcap.records import Attachment, Channel, Chunk, ChunkIndex, Message, Metadata, Schema, Statistics
from mcap.stream_reader import StreamReader, breakup_chunk
from mcap.summary import Summary

from polar_pipeline._util.documents import regular_status
from polar_pipeline._util.files import temporary_folder
from polar_pipeline._util.imports import importing
from polar_pipeline._util.text import quoted
from polar_pipeline._util.yamlfile import read_yaml
from polar_pipeline.recordings.bag_names import BAG_METADATA, bag_files, is_zstd, numbered, plain_name
from polar_pipeline.recordings.definitions import from_ros1
from polar_pipeline.recordings.limits import SourceError, check_size, megabytes, reading
from polar_pipeline.sensor.frames import FrameError

#: Topic and type, and number of messages by both.
Key = Tuple[str, str]
Topics = Counter[Key]
#: Type of a message, time of recording, and its bytes or why it cannot be read.
TypedMessage = Tuple[str, int, Union[bytes, memoryview, FrameError]]
#: A channel and its type, with one of its messages or without; or what else an mcap file holds.
Record = Union[Tuple[Schema, Channel, Optional[Message]], Attachment, Metadata]

#: First and last bytes of an mcap file, and compressions of its chunks.
_MAGIC = b"\x89MCAP0\r\n"
_COMPRESSIONS = ("", "lz4", "zstd")
#: Bytes of an mcap file with nothing but its two magics and the footer.
_SMALLEST = 2 * len(_MAGIC) + 29
#: What SQLite keeps beside a `.db3` file while it is written, and what is needed to use it.
_LOGS = {
    "-wal": "which must be in a folder that you can write to",
    "-journal": "by which `sqlite3 FILE .tables` restores it",
}
#: Maximum number of values in `metadata.yaml`: each file and topic takes some ten.
_MAX_METADATA = 200_000
#: A compressed file may take this many times the limit on disk when inflated: files of several gigabytes are common.
_DISK_FACTOR = 16
#: Bytes that are inflated at a time.
_PIECE_BYTES = 1 << 20
#: Encodings of messages that can be read; mcap allows an empty one.
_ROS1 = "ros1"
_READABLE = ("cdr", "", _ROS1)
#: Name of a message type as DDS, ROS 1 and ROS 2 write it.
_TYPE_NAME = re.compile(r"(\w+)(?:::msg::dds_::(\w+)_|(?:/|::)(?:msg(?:/|::))?(\w+))")
#: Fields of a chunk in front of its data, without the name of its compression: opcode, length and six others.
_CHUNK_HEAD = struct.Struct("<BQQQQIIQ")
#: Type of a channel whose messages have none.
_NO_TYPE = Schema(0, b"", "", "")


@lru_cache(maxsize=1024)
def ros2_type_name(name: str, encoding: str) -> str:
    """Return the ROS 2 name of a type of messages; that of messages that cannot be read ends in their encoding.

    ROS 1 omits `msg`, and DDS writes `sensor_msgs::msg::dds_::Image_`.
    """
    if encoding not in _READABLE:
        return f"{name} in {encoding}"
    parts = _TYPE_NAME.fullmatch(name)
    return f"{parts.group(1)}/msg/{parts.group(2) or parts.group(3)}" if parts else name


def as_cdr(data: Union[bytes, memoryview], message_type: str, encoding: str) -> Union[bytes, memoryview]:
    """Return a message in CDR, of a type by `ros2_type_name`; other bytes are a FrameError (cause `cdr`)."""
    return from_ros1(data, message_type) if encoding == _ROS1 else data


def _typed(time_ns: int, data: Union[bytes, memoryview], message_type: str, encoding: str) -> TypedMessage:
    try:
        return message_type, time_ns, as_cdr(data, message_type, encoding)
    except FrameError as err:
        return message_type, time_ns, err


class TruncatedFileError(SourceError):
    """A file that was cut off before its first message."""


class Bag:
    """An open recording of messages. Methods raise errors of libraries for damaged bytes; see `limits.reading`."""

    topics: Topics  # topics with types (`ros2_type_name`); "" for a type that the file does not name
    compression = ""  # of chunks, or else of files or messages; "" for none
    is_truncated = False  # whether a file was cut off, at an unknown place of the recording
    remark = ""  # a warning about damage of a recording that can be read

    def messages(self, keys: Collection[Key], time_ns: Optional[int] = None) -> Iterator[TypedMessage]:
        """Yield the messages of some topics and types in CDR, by time; of a folder file by file.

        With `time_ns`, only those that were recorded at that time.
        """
        raise NotImplementedError

    def records(self) -> Iterator[Record]:
        """Yield all records of the files, for a complete copy: every channel before its messages."""
        raise NotImplementedError


# ----------------------------------------------------------------------------------------------------------------- mcap


class _McapReader(SeekingReader):
    """Reader of an mcap file by its own summary, or by one that was made by reading the file."""

    summary: Optional[Summary] = None

    def get_summary(self) -> Optional[Summary]:
        """Return the summary."""
        return self.summary or super().get_summary()


class _Mcap(Bag):
    """An open mcap file. One that was cut off is read up to its last complete chunk.

    Messages in chunks come by time, others, as of the recorder's profile `fastwrite`, in the order of the file: to sort
    them, all of them would have to be in memory. `path` is for errors, `stream` the open file; see `open_recording`.

    Raises:
        SourceError: The file is not an mcap file, or was cut off.
        FrameError: A chunk is larger than the limit (cause `size`).
    """

    def __init__(self, path: Path, stream: IO[bytes], limit: int, allow_truncated: bool) -> None:
        self._path, self._stream, self._limit = path, stream, limit
        self.is_truncated = not _is_complete(path, stream)
        if self.is_truncated and not allow_truncated:
            raise SourceError(f"{path} has no index: the recording was cut off (`mcap recover` can repair it)")
        self._reader = _McapReader(stream, validate_crcs=True, record_size_limit=limit)
        summary = None if self.is_truncated else self._reader.get_summary()
        if summary is not None and summary.statistics is not None and _describes_all(summary, summary.statistics):
            counts = summary.statistics.channel_message_counts
        else:
            summary, counts = self._scanned()
        self._summary = self._reader.summary = summary
        for row in summary.chunk_indexes:
            _check_chunk(path, row, limit)
            self.compression = row.compression
        self.topics = Counter()
        for channel in summary.channels.values():  # several may have one topic and type
            self.topics[self._key(channel)] += counts.get(channel.id, 0)
        if self.is_truncated:
            if not counts:
                raise TruncatedFileError(f"{path} was cut off before its first chunk was complete")
            self.remark = f"{path} was cut off: it is read up to its last complete chunk"

    def _scanned(self) -> Tuple[Summary, Dict[int, int]]:
        """Read a file without a complete summary to make its summary, and count the messages per channel."""
        summary, is_loose = Summary(), False
        counts: Dict[int, int] = Counter()
        for record, rows in self._records(self._limit):
            if isinstance(record, Chunk):
                summary.chunk_indexes.append(_index_of(record, self._stream.tell()))
            for row in rows:
                if isinstance(row, Schema):
                    summary.schemas[row.id] = row
                elif isinstance(row, Channel):
                    summary.channels[row.id] = row
                elif isinstance(row, Message):
                    is_loose |= row is record
                    counts[row.channel_id] += 1
        if is_loose:  # an index of chunks would hide these messages
            summary.chunk_indexes.clear()
        return summary, counts

    def _records(self, limit: Optional[int] = None) -> Iterator[Tuple[Any, Sequence[Any]]]:
        """Yield the chunks of the file, with the records in each, and its other records, each as the only one.

        A file that was cut off is read up to the cut.
        """
        self._stream.seek(0)
        try:
            for record in StreamReader(self._stream, emit_chunks=True, record_size_limit=limit).records:
                if isinstance(record, Chunk):
                    _check_chunk(self._path, record, self._limit)
                yield record, breakup_chunk(record, validate_crc=True) if isinstance(record, Chunk) else [record]
        except (EndOfFile, struct.error):
            if not self.is_truncated or self._stream.read(1):  # not the end, but damage
                raise

    def _schema(self, channel: Channel) -> Schema:
        return self._summary.schemas.get(channel.schema_id, _NO_TYPE)

    def _key(self, channel: Channel) -> Key:
        return channel.topic, ros2_type_name(self._schema(channel).name, channel.message_encoding)

    def messages(self, keys: Collection[Key], time_ns: Optional[int] = None) -> Iterator[TypedMessage]:
        rows: Iterable[Any] = (row for row in self.records() if isinstance(row, tuple) and row[2] is not None)
        if self._summary.chunk_indexes:
            end_ns = None if time_ns is None else time_ns + 1
            rows = self._reader.iter_messages([topic for topic, _ in keys], starting_at=time_ns, ending_before=end_ns)
        for _, channel, row in rows:
            key = self._key(channel)
            if key in keys and time_ns in (None, row.log_time):
                yield _typed(row.log_time, row.data, key[1], channel.message_encoding)

    def records(self) -> Iterator[Record]:
        for _, rows in self._records():
            for row in rows:
                if isinstance(row, (Attachment, Metadata)):
                    yield row
                elif isinstance(row, Channel):
                    yield self._schema(row), row, None
                elif isinstance(row, Message) and row.channel_id in self._summary.channels:  # else of no topic
                    channel = self._summary.channels[row.channel_id]
                    yield self._schema(channel), channel, row


def _describes_all(summary: Summary, row: Statistics) -> bool:
    """Return whether a summary has all records that its statistics count; recorders may leave some out."""
    return (
        len(summary.schemas) >= row.schema_count
        and len(summary.channels) >= row.channel_count
        and len(summary.chunk_indexes) >= row.chunk_count
        and sum(row.channel_message_counts.values()) >= row.message_count
    )


def _index_of(chunk: Chunk, end: int) -> ChunkIndex:
    """Return the index of a chunk that ends at byte `end` of the file."""
    size = _CHUNK_HEAD.size + len(chunk.compression) + len(chunk.data)
    head = size, end - size, chunk.compression, len(chunk.data)
    return ChunkIndex(*head, chunk.message_end_time, 0, {}, chunk.message_start_time, chunk.uncompressed_size)


def _is_complete(path: Path, stream: IO[bytes]) -> bool:
    """Return whether an mcap file was not cut off; raise SourceError for other files."""
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise SourceError(f"{path} is not an mcap file")
    end = stream.seek(0, io.SEEK_END)
    stream.seek(max(len(_MAGIC), end - len(_MAGIC)))
    is_complete = stream.read() == _MAGIC and end >= _SMALLEST
    stream.seek(0)
    return is_complete


def _check_chunk(path: Path, row: Union[Chunk, ChunkIndex], limit: int) -> None:
    check_size("a chunk", row.uncompressed_size, limit)
    if row.compression not in _COMPRESSIONS:
        raise SourceError(f"{path} is compressed by {quoted(row.compression)}; zstd and lz4 can be read")


# ------------------------------------------------------------------------------------------------------- SQLite, ROS 1


class _Sqlite(Bag):
    """An open `.db3` file.

    Raises:
        SourceError: The recording has no tables of messages and topics; views may compute without end.
    """

    def __init__(self, path: Path, base: sqlite3.Connection) -> None:
        self._path, self._base = path, base
        if not {"messages", "topics"} <= self._tables():
            raise SourceError(f"{path} has no tables of messages and topics")
        rows = base.execute("SELECT id, name, type, serialization_format FROM topics")
        self._keys = {
            number: (name, ros2_type_name(message_type, encoding)) for number, name, message_type, encoding in rows
        }
        counts = dict(base.execute("SELECT topic_id, count(*) FROM messages GROUP BY topic_id"))
        self.topics = Counter()
        for number, key in self._keys.items():
            self.topics[key] += counts.get(number, 0)

    def _tables(self) -> Set[str]:
        return {name for (name,) in self._base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def messages(self, keys: Collection[Key], time_ns: Optional[int] = None) -> Iterator[TypedMessage]:
        numbers = [number for number, key in self._keys.items() if key in keys]
        condition = f"topic_id IN ({', '.join('?' * len(numbers))})"
        if time_ns is not None:
            condition += f" AND timestamp = {time_ns}"
        return ((self._keys[number][1], row_ns, data) for row_ns, number, data in self._rows(condition, numbers))

    def _rows(self, condition: str = "1", values: Sequence[int] = ()) -> Iterator[Tuple[int, int, Any]]:
        """Yield time, number of the topic, and bytes or `FrameError` of the messages of a condition in SQL, by time."""
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
            stored = definitions.get(row["type"], {"encoding": "", "encoded_message_definition": ""})
            values = row["name"], row["type"], row["serialization_format"], row.get("offered_qos_profiles", "")
            texts = [*values, stored["encoding"], stored["encoded_message_definition"]]
            if not all(isinstance(text, str) for text in texts):
                raise SourceError(f"{self._path} is damaged: a topic is not described by texts")
            name, message_type, encoding, qos, language, definition = texts
            schema = Schema(0, definition.encode(), language, message_type)
            channels[row["id"]] = schema, Channel(0, name, encoding, {"offered_qos_profiles": qos}, 0)
        for schema, channel in channels.values():
            yield schema, channel, None
        for time_ns, number, data in self._rows():
            if time_ns < 0:
                raise SourceError(f"{self._path} has a message of a time before 1970, which mcap cannot hold")
            yield (*channels[number], Message(0, time_ns, data, time_ns, 0))

    def _table(self, name: str) -> List[Dict[str, Any]]:
        """Read the rows of a table as dictionaries by column; empty without such a table."""
        rows = self._base.execute(f"SELECT * FROM {name}" if name in self._tables() else "SELECT 1 LIMIT 0")
        return [dict(zip((column[0] for column in rows.description), row)) for row in rows]


class _Rosbag1(Bag):
    """An open ROS 1 bag; `records` are not read of it."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.topics = Counter()
        for row in reader.connections:
            self.topics[row.topic, row.msgtype] += row.msgcount

    def messages(self, keys: Collection[Key], time_ns: Optional[int] = None) -> Iterator[TypedMessage]:
        connections = [row for row in self._reader.connections if (row.topic, row.msgtype) in keys]
        times = () if time_ns is None else (time_ns, time_ns + 1)
        for row, row_ns, data in self._reader.messages(connections, *times):
            yield _typed(row_ns, data, row.msgtype, _ROS1)


# ---------------------------------------------------------------------------------------------------------------- files


@contextmanager
def inflated(path: Path, limit: int) -> Iterator[Path]:
    """Provide a recorder's file, or, if its name ends in `.zstd`, an inflated copy while the block lasts.

    Raises:
        SourceError: The copy would take more on disk than `_DISK_FACTOR` times the limit.
        ZstdError: The file is damaged.
    """
    if not is_zstd(path):
        yield path
        return
    max_bytes = _DISK_FACTOR * limit
    with temporary_folder("inflated") as folder:
        copy = folder / plain_name(path)
        with path.open("rb") as stream, copy.open("wb") as out:
            source = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
            for piece in iter(lambda: source.read(_PIECE_BYTES), b""):
                if out.tell() + len(piece) > max_bytes:
                    raise SourceError(
                        f"{path} takes more than {megabytes(max_bytes)} on disk, {_DISK_FACTOR} times --max-mb"
                    )
                out.write(piece)
        yield copy


@contextmanager
def open_recording(path: Path, limit: int, allow_truncated: bool = False) -> Iterator[Bag]:
    """Open a rosbag2 folder, an `.mcap` or `.db3` file, compressed or not, or a ROS 1 bag.

    `limit` is the largest size in bytes of an uncompressed chunk. With `allow_truncated`, `.mcap` files that were cut
    off are read up to their last complete chunk, and files of a folder that cannot be read for that reason are
    left out.

    Raises:
        SourceError: The recording cannot be read.
        Exception: Whatever damaged bytes make the libraries raise; see `limits.reading`.
    """
    if path.is_dir():
        yield _Folder(path, limit, allow_truncated)
        return
    regular_status(path)
    with ExitStack() as stack:
        plain = stack.enter_context(inflated(path, limit))
        if not plain.stat().st_size:
            raise TruncatedFileError(f"{path} is empty")
        if plain.suffix.lower() == ".bag":
            with importing():
                from rosbags.rosbag1 import Reader  # only these need it

            yield _Rosbag1(stack.enter_context(Reader(plain)))
        elif plain.suffix.lower() == ".mcap":
            stream = stack.enter_context(plain.open("rb"))
            yield _Mcap(path, stream, limit, allow_truncated)
        else:
            yield _open_sqlite(path, plain, stack)


def _open_sqlite(path: Path, plain: Path, stack: ExitStack) -> _Sqlite:
    """Open a `.db3` file, inflated as `plain`, with the log or journal that a killed recorder leaves."""
    logs = [f"and its {end} file, {use}, " for end, use in _LOGS.items() if plain.with_name(plain.name + end).is_file()]
    with plain.open("rb") as stream:
        head = stream.read(32)
    page_bytes, pages = struct.unpack(">16xH10xI", head.ljust(32, b"\0"))
    page_bytes = 1 << 16 if page_bytes == 1 else page_bytes
    # SQLite takes zeros for what is missing of the last page
    if head.startswith(b"SQLite format 3\0") and not logs and plain.stat().st_size < pages * page_bytes:
        raise TruncatedFileError(f"{path} was cut off, and cannot be read (`sqlite3 FILE .recover` can repair it)")
    address = f"{plain.resolve().as_uri()}?{'mode=ro' if logs else 'immutable=1'}"
    with reading(path, f"{''.join(logs)}cannot be read"):
        return _Sqlite(path, stack.enter_context(closing(sqlite3.connect(address, uri=True))))


# -------------------------------------------------------------------------------------------------------------- folders


class _Folder(Bag):
    """The files of a rosbag2 folder, in the order of recording; those that lack their first message are left out.

    A `metadata.yaml` that states something else about the files is a remark: a recorder that was killed leaves none, or
    an empty or outdated one. Files of other recordings, such as results, may lie beside those that it lists.

    Raises:
        SourceError: A file cannot be read, there are none, all are empty, or they are of several recordings.
    """

    def __init__(self, path: Path, limit: int, allow_truncated: bool) -> None:
        self._limit = limit
        self._files: List[Path] = []
        files, remarks = bag_files(path), []
        listed: Optional[Set[str]] = None
        stated: Counter[str] = Counter()
        if (path / BAG_METADATA).exists():
            try:
                listed, stated, self.compression = _described(path)
            except ValueError as err:
                remarks.append(f"{err}; its files are read")
        if not files:
            raise SourceError("; ".join([f"{path} has no .mcap or .db3 file", *remarks]))
        series = {numbered(Path(name))[0] for name in listed or ()}
        members = [file for file in files if numbered(file)[0] in series] or files
        if len(members) < len(files):
            remarks.append(f"files that {BAG_METADATA} does not list are left out")
        if listed != set(map(plain_name, members)):
            names, numbers = (set(parts) for parts in zip(*map(numbered, members)))
            if len(names) > 1 or len(numbers) < len(members):
                raise SourceError(f"{path} has files of several recordings: name one of them")
            order = sorted(numbers)
            gap = next((f"{a} and {b}" for a, b in zip(order, order[1:]) if b > a + 1), "")
            if listed is None and gap:
                remarks.append(f"files are missing between the numbers {gap}")
            elif listed is not None:
                remarks.append(f"{BAG_METADATA} lists other files than the folder has, which are read")
        self.topics = Counter()
        cuts = self._read(members, allow_truncated)
        self.is_truncated = bool(cuts)
        remarks += cuts
        counts: Counter[str] = Counter()
        for (topic, _), count in self.topics.items():
            counts[topic] += count
        if listed is not None and not remarks and +stated != +counts:
            remarks.append(f"{BAG_METADATA} states other numbers of messages than its files have")
        self.remark = f"{path}: {'; '.join(remarks)}".replace(f"{path}/", "") if remarks else ""

    def _read(self, files: Sequence[Path], allow_truncated: bool) -> List[str]:
        """Open each file once to count its messages; returns remarks about files that were cut off."""
        cuts: List[str] = []
        for file in files:
            try:
                with open_recording(file, self._limit, allow_truncated) as bag:
                    self.topics.update(bag.topics)
                    cuts += filter(None, [bag.remark])
                    self.compression = self.compression or ("zstd" if is_zstd(file) else bag.compression)
                self._files.append(file)
            except TruncatedFileError as err:  # noqa: PERF203
                if not allow_truncated:
                    raise
                cuts.append(str(err))
        if not self._files:
            raise SourceError("; ".join(cuts))
        return cuts

    def messages(self, keys: Collection[Key], time_ns: Optional[int] = None) -> Iterator[TypedMessage]:
        for path in self._files:
            with open_recording(path, self._limit, self.is_truncated) as file:
                yield from file.messages(keys, time_ns)

    def records(self) -> Iterator[Record]:
        for path in self._files:
            with open_recording(path, self._limit, self.is_truncated) as file:
                yield from file.records()


def _described(folder: Path) -> Tuple[Set[str], Counter[str], str]:
    """Read the names of files, the number of messages on each topic, and their compression, "zstd" or ""."""
    path = folder / BAG_METADATA
    document = read_yaml(path, _MAX_METADATA)
    counts: Counter[str] = Counter()
    try:
        info = document["rosbag2_bagfile_information"]
        is_compressed = (info.get("compression_mode") or "none").lower() != "none"
        names = {plain_name(Path(PurePath(name).name)) for name in info["relative_file_paths"]}
        for row in info["topics_with_message_count"]:
            counts[row["topic_metadata"]["name"]] += int(row["message_count"])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as err:
        raise ValueError(f"{path} does not describe a recording") from err
    if is_compressed and info.get("compression_format") != "zstd":
        raise SourceError(f"{folder} is compressed by {quoted(info.get('compression_format'))}; zstd can be read")
    return names, counts, "zstd" if is_compressed else ""
