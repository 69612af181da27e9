"""Recordings whose raw images are compressed without loss (`rawzstd`) or expanded again; all else is copied."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Generator,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Union,
    cast,
)

import numpy as np
from mcap.records import Attachment, Channel, Chunk, Message, Metadata, Schema
from mcap.stream_reader import StreamReader
from mcap.writer import CompressionType, Writer

from polar_pipeline import __version__, messages
from polar_pipeline._util.files import replacing
from polar_pipeline._util.text import printable
from polar_pipeline.messages import COMPRESSED, IMAGE, Cdr
from polar_pipeline.replay.limits import MAX_BYTES, SourceError, reading
from polar_pipeline.replay.mcapfile import McapFile, Topics, chunk_records
from polar_pipeline.replay.rawzstd import TRANSPORT, compress_raw, format_of
from polar_pipeline.replay.rosbag2 import Folder, Sqlite, open_file
from polar_pipeline.replay.source import (
    Recorded,
    choose_topic,
    decompress_image,
    is_recording,
    open_recording,
    recording_of,
)
from polar_pipeline.sensor.frames import FrameError

#: Compression of chunks by its name in an index.
_COMPRESSIONS = {"": CompressionType.NONE, "lz4": CompressionType.LZ4, "zstd": CompressionType.ZSTD}
#: What a recorder writes about its own file: it lists topics, and would be wrong in a copy that has others.
_RECORDER_METADATA = "rosbag2"
#: Entry of a channel's metadata: a checksum of its message type.
_TYPE_HASH = "topic_type_hash"


class Conversion(NamedTuple):
    """What became of the messages on a topic.

    Attributes:
        images: Messages that were converted.
        others: Messages that are not images, and were copied as they are.
        before: Bytes of all of them before.
        after: Bytes of all of them in the new recording.
    """

    images: int = 0
    others: int = 0
    before: int = 0
    after: int = 0


class _Edit(NamedTuple):
    """What a topic becomes: its new name and type, and how its messages are converted."""

    topic: str
    old_kind: str
    kind: str
    convert: Callable[[Cdr, int], Cdr]


#: What a recording consists of: records of the mcap library, also of a `.db3` file.
Record = Union[Schema, Channel, Message, Attachment, Metadata]
#: (records, number of messages) -> the records, to show progress.
CopyWatch = Callable[[Iterable[Record], int], Iterable[Record]]


def _unwatched(records: Iterable[Record], _: int) -> Iterable[Record]:
    return records


def compress_recording(
    source: Path,
    output: Path,
    topics: Sequence[str] = (),
    force: bool = False,
    max_bytes: int = MAX_BYTES,
    watch: CopyWatch = _unwatched,
) -> Dict[str, Conversion]:
    """Copy a recording, with compressed images in place of raw ones, on topics that end in `/polar_zstd`.

    Args:
        source: A rosbag2 folder, or an `.mcap` or `.db3` file.
        output: The `.mcap` file to make.
        topics: Topics of raw images; empty for the only topic of images.
        force: Whether a file of that name may be replaced.
        max_bytes: Largest size of one message, and of an uncompressed chunk.
        watch: Shows progress.

    Returns:
        New topic -> what was converted.

    Raises:
        SourceError: The recording cannot be read, or the topic is not clear.
        OSError: The output cannot be written.
    """

    def edits(path: Path, found: Topics) -> Dict[str, _Edit]:
        chosen = [choose_topic(path, found, topic, (IMAGE,)) for topic in topics or ("",)]
        return {topic: _Edit(f"{topic}/{TRANSPORT}", IMAGE, COMPRESSED, _compress) for topic in chosen}

    return _converted(source, output, edits, force, max_bytes, watch)


def decompress_recording(
    source: Path,
    output: Path,
    force: bool = False,
    max_bytes: int = MAX_BYTES,
    watch: CopyWatch = _unwatched,
) -> Dict[str, Conversion]:
    """The inverse of `compress_recording`: every topic that ends in `/polar_zstd` becomes one of raw images again."""
    end = f"/{TRANSPORT}"

    def edits(path: Path, found: Topics) -> Dict[str, _Edit]:
        chosen = [
            topic
            for topic, (kind, count) in found.items()
            if kind == COMPRESSED and count and topic.endswith(end) and topic != end
        ]
        if not chosen:
            raise SourceError(f"{path} has no images on a topic that ends in {end}")
        return {topic: _Edit(topic[: -len(end)], COMPRESSED, IMAGE, _expand) for topic in chosen}

    return _converted(source, output, edits, force, max_bytes, watch)


def _compress(message: Cdr, _: int) -> Cdr:
    image = messages.decode_image(message)
    data = np.frombuffer(compress_raw(image), np.uint8)
    return messages.encode_compressed(image.stamp_ns, image.frame_id, format_of(image.encoding), data)


def _expand(message: Cdr, max_bytes: int) -> Cdr:
    return messages.encode_message(decompress_image(message, max_bytes))


def _converted(
    source: Path,
    output: Path,
    edits_of: Callable[[Path, Topics], Dict[str, _Edit]],
    force: bool,
    max_bytes: int,
    watch: CopyWatch,
) -> Dict[str, Conversion]:
    path = recording_of(source)
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    if path.suffix == ".bag" or not is_recording(path):
        raise SourceError(f"{path} is not a ROS 2 recording: expected .mcap, .db3 or a rosbag2 folder")
    with reading(path), open_recording(path, max_bytes) as recording:
        topics = recording.topics
        files = recording.files if isinstance(recording, Folder) else [path]
        compression = _chunk_compression(recording, files, max_bytes)
    edits = edits_of(path, topics)
    for edit in edits.values():
        if edit.topic in topics:
            raise SourceError(f"{path} has a topic {printable(edit.topic)} already")
    with closing(_records(path, files, max_bytes)) as records, replacing(output, force) as stream:
        writer = Writer(stream, compression=compression)
        writer.start("ros2", f"polar_pipeline {__version__}")
        copy = _Copy(path, writer, edits, max_bytes)
        for record in watch(records, sum(count for _, count in topics.values())):
            copy.add(record)
        writer.finish()  # type: ignore[no-untyped-call]
    return copy.done


# ------------------------------------------------------------------------------------------------------------- reading


def _chunk_compression(recording: object, files: Sequence[Path], limit: int) -> CompressionType:
    """How chunks of the copy are compressed: like those of the first file, or by zstd where files or messages are."""
    if (isinstance(recording, Folder) and recording.is_compressed) or files[0].suffix == ".zstd":
        return CompressionType.ZSTD
    with open_file(files[0], limit) as file:
        chunks = file.summary.chunk_indexes if isinstance(file, McapFile) else []
        return _COMPRESSIONS.get(chunks[0].compression, CompressionType.NONE) if chunks else CompressionType.NONE


def _records(path: Path, files: Sequence[Path], limit: int) -> Generator[Record, None, None]:
    """All that a recording holds, in the order of its files."""
    with reading(path, "is damaged"):
        for name in files:
            with open_file(name, limit) as file:
                yield from _sqlite_records(file) if isinstance(file, Sqlite) else _mcap_records(file, limit)


def _mcap_records(file: McapFile, limit: int) -> Iterator[Record]:
    yield from file.summary.schemas.values()
    yield from file.summary.channels.values()
    file.stream.seek(0)
    for record in StreamReader(file.stream, emit_chunks=True, record_size_limit=limit).records:
        if isinstance(record, Chunk):
            yield from cast("List[Record]", chunk_records(record, limit))
        elif isinstance(record, (Schema, Channel, Message, Attachment, Metadata)):
            yield record


def _sqlite_records(file: Sqlite) -> Iterator[Record]:
    definitions = {row["topic_type"]: row for row in file.table("message_definitions")}  # since ROS 2 Iron
    for number, row in enumerate(file.table("topics"), 1):
        known = definitions.get(row["type"], {"encoding": "", "encoded_message_definition": ""})
        values = row["name"], row["type"], row["serialization_format"], row.get("offered_qos_profiles", "")
        texts = [*values, known["encoding"], known["encoded_message_definition"]]
        if not all(isinstance(text, str) for text in texts):
            raise SourceError(f"{file.path} is damaged: a topic is not described by texts")
        name, kind, encoding, qos, language, definition = cast("List[str]", texts)
        yield defined(Schema(number, definition.encode(), language, kind))
        yield Channel(cast("int", row["id"]), name, encoding, {"offered_qos_profiles": qos}, number)
    for time_ns, number, data in file.rows("1"):
        if time_ns < 0:
            raise SourceError(f"{file.path} has a message of a time before 1970, which mcap cannot hold")
        yield Message(number, time_ns, cast("bytes", data), time_ns, 0)


def defined(schema: Schema) -> Schema:
    """A type with its definition, if it has none and the type is known."""
    if schema.data or schema.name not in messages.typestore().types:
        return schema
    text, _ = messages.typestore().generate_msgdef(schema.name, ros_version=2)
    return Schema(schema.id, text.encode(), "ros2msg", schema.name)


# ------------------------------------------------------------------------------------------------------------- writing


class _CopiedChannel(NamedTuple):
    """A channel of the recording: its topic and type, its number in the copy, and what becomes of its messages."""

    topic: str
    kind: str
    number: int
    edit: Optional[_Edit]


class _Copy:
    """Writes the records of a recording into another one.

    Attributes:
        done: New topic -> what was converted.

    Args:
        path: The recording, for errors.
        writer: Where to write.
        edits: Topic -> what becomes of it; others stay as they are.
        limit: Largest size of a message.
    """

    def __init__(self, path: Path, writer: Writer, edits: Dict[str, _Edit], limit: int) -> None:
        self.done = {edit.topic: Conversion() for edit in edits.values()}
        self._path = path
        self._writer = writer
        self._edits = edits
        self._limit = limit
        self._schemas: Dict[int, Schema] = {}
        self._channels: Dict[int, _CopiedChannel] = {}
        self._numbers: Dict[Any, int] = {}  # of the schemas and channels of the copy

    def add(self, record: Record) -> None:
        """Write a record; schemas and channels come before the messages that need them.

        Raises:
            SourceError: A message cannot be copied.
        """
        if isinstance(record, Schema):
            self._schemas[record.id] = record
        elif isinstance(record, Channel):
            self._channels[record.id] = self._registered(record)
        elif isinstance(record, Message):
            self._copy(record)
        elif isinstance(record, Attachment):
            values = record.create_time, record.log_time, record.name, record.media_type, bytes(record.data)
            self._writer.add_attachment(*values)
        elif record.name != _RECORDER_METADATA:
            self._writer.add_metadata(record.name, record.metadata)

    def _registered(self, channel: Channel) -> _CopiedChannel:
        schema = self._schemas.get(channel.schema_id, Schema(0, b"", "", ""))
        kind, topic, metadata = schema.name, channel.topic, channel.metadata
        edit = self._edits.get(topic)
        if edit and edit.old_kind == kind:
            topic, schema = edit.topic, defined(Schema(0, b"", "", edit.kind))
            metadata = {name: value for name, value in metadata.items() if name != _TYPE_HASH}
        else:
            edit = None
        texts = schema.name, schema.encoding, schema.data
        if texts not in self._numbers:
            self._numbers[texts] = self._writer.register_schema(*texts) if schema.name else 0
        key = topic, channel.message_encoding, self._numbers[texts], tuple(sorted(metadata.items()))
        if key not in self._numbers:
            self._numbers[key] = self._writer.register_channel(*key[:3], metadata)
        return _CopiedChannel(channel.topic, kind, self._numbers[key], edit)

    def _copy(self, message: Message) -> None:
        channel = self._channels.get(message.channel_id)
        if channel is None:
            raise SourceError(f"{self._path} is damaged: it has no channel {message.channel_id}")
        try:
            data = Recorded(message.log_time, channel.kind, message.data, max_bytes=self._limit).message()
        except FrameError as err:
            name = printable(channel.topic)
            raise SourceError(f"{self._path}: a message on {name} cannot be copied: {err}") from err
        if channel.edit:
            data = self._convert(channel.edit, data)
        # the writer also takes a view, which copies nothing
        data, times = cast("bytes", data), (message.publish_time, message.sequence)
        self._writer.add_message(channel.number, message.log_time, data, *times)

    def _convert(self, edit: _Edit, data: Cdr) -> Cdr:
        """A message on a topic that is converted; one that is not an image stays as it is."""
        done = self.done[edit.topic]
        try:
            new, images = edit.convert(data, self._limit), 1
        except FrameError:
            new, images = data, 0
        added = images, 1 - images, len(data), len(new)
        self.done[edit.topic] = Conversion(*(old + more for old, more in zip(done, added)))
        return new
