"""Recordings whose raw images are compressed without loss (`rawzstd`) or expanded again; all else is copied."""

from __future__ import annotations

import heapq
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Dict, Generator, Iterable, Iterator, Optional, Sequence, Tuple, Union, cast

import numpy as np
from mcap.records import Attachment, Metadata
from mcap.writer import CompressionType, Writer

from polar_pipeline import __version__, messages
from polar_pipeline._util.files import replacing
from polar_pipeline._util.text import printable
from polar_pipeline.messages import COMPRESSED, IMAGE, Cdr
from polar_pipeline.replay.limits import MAX_BYTES, BoundedFile, SourceError, reading
from polar_pipeline.replay.mcapfile import McapFile
from polar_pipeline.replay.rawzstd import TRANSPORT, compress_raw, format_of
from polar_pipeline.replay.rosbag2 import (
    BagMetadata,
    RecordedTopic,
    TimedMessage,
    Topics,
    inflated,
    read_metadata,
    scan,
    sqlite_rows,
    sqlite_topic_records,
)
from polar_pipeline.replay.source import (
    Recorded,
    choose_topic,
    decompress_image,
    is_recording,
    recording_of,
)
from polar_pipeline.sensor.frames import FrameError

#: Compression of chunks by its name in an index.
_COMPRESSIONS = {"": CompressionType.NONE, "lz4": CompressionType.LZ4, "zstd": CompressionType.ZSTD}
#: What a recorder writes about its own file: it lists topics, and would be wrong in a copy that has others.
_RECORDER_METADATA = "rosbag2"
#: Entry of a topic's metadata: a checksum of its message type.
_TYPE_HASH = "topic_type_hash"


@dataclass(frozen=True)
class Conversion:
    """What became of the messages on a topic.

    Attributes:
        images: Messages that were converted.
        others: Messages that are no image, and were copied as they are.
        before: Bytes of all of them before.
        after: Bytes of all of them in the new recording.
    """

    images: int = 0
    others: int = 0
    before: int = 0
    after: int = 0


@dataclass(frozen=True)
class _Edit:
    """What a topic becomes: its new name and type, and how its messages are converted."""

    topic: str
    old_kind: str
    kind: str
    convert: Callable[[Cdr, int], Cdr]


@dataclass(frozen=True)
class CopiedMessage:
    """A message of a recording, to be copied.

    Attributes:
        topic: Its topic.
        time_ns: Time of recording.
        published_ns: Time of publishing.
        sequence: Its number among its publisher's messages; 0 where none is recorded.
        data: The message's bytes, or why it cannot be read.
    """

    topic: RecordedTopic
    time_ns: int
    published_ns: int
    sequence: int
    data: Union[bytes, memoryview, FrameError]


#: What a recording consists of.
RecordedItem = Union[RecordedTopic, Attachment, Metadata, CopiedMessage]
#: (items, number of messages) -> the items, to show progress.
CopyWatch = Callable[[Iterable[RecordedItem], int], Iterable[RecordedItem]]


def _unwatched(items: Iterable[RecordedItem], _: int) -> Iterable[RecordedItem]:
    return items


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
        max_bytes: Largest size of one message, and of the uncompressed chunks in memory at once.
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
    meta = _contents(path, max_bytes)
    edits = edits_of(path, meta.topics)
    for edit in edits.values():
        if edit.topic in meta.topics:
            raise SourceError(f"{path} has a topic {printable(edit.topic)} already")
    with closing(_items(path, meta, max_bytes)) as items, replacing(output, force) as stream:
        writer = Writer(stream, compression=_chunk_compression(path, meta, max_bytes))
        writer.start("ros2", f"polar_pipeline {__version__}")
        done = _Copy(path, writer, edits, max_bytes).run(watch(items, sum(count for _, count in meta.topics.values())))
        writer.finish()  # type: ignore[no-untyped-call]
    return done


# ------------------------------------------------------------------------------------------------------------- reading


def _contents(path: Path, limit: int) -> BagMetadata:
    """The topics and files of a recording.

    Raises:
        SourceError: It cannot be read, or is of another kind.
    """
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    with reading(path):
        if path.suffix == ".bag" or not is_recording(path):
            raise SourceError(f"{path} is no ROS 2 recording: expected .mcap, .db3 or a rosbag2 folder")
        return read_metadata(path) if (path / "metadata.yaml").exists() else scan(path, limit)


def _chunk_compression(path: Path, meta: BagMetadata, limit: int) -> CompressionType:
    """How chunks of the copy are compressed: like the first file's, or by zstd where files or messages are."""
    with reading(path):
        if meta.compression or any(file.suffix == ".zstd" for file in meta.files):
            return CompressionType.ZSTD
        if meta.storage == "sqlite3" or not meta.files:
            return CompressionType.NONE
        with BoundedFile(meta.files[0], limit) as stream:
            return _COMPRESSIONS.get(McapFile(meta.files[0], stream, limit).compression, CompressionType.NONE)


def _items(path: Path, meta: BagMetadata, limit: int) -> Generator[RecordedItem, None, None]:
    """All that a recording holds, in the order of its files."""
    with reading(path, "is damaged"):
        for file in meta.files:
            with inflated(file, limit) as plain:
                if meta.storage == "sqlite3":
                    yield from _sqlite_items(plain, limit)
                else:
                    with BoundedFile(plain, limit) as stream:
                        yield from _mcap_items(McapFile(plain, stream, limit))


def _mcap_items(bag: McapFile) -> Iterator[RecordedItem]:
    topics = {}
    for number, row in bag.channels.items():
        schema = bag.schemas.get(row.schema_id)
        definition = (schema.encoding, schema.data) if schema else ("", b"")
        pairs = tuple(sorted(row.metadata.items()))
        topics[number] = RecordedTopic(row.topic, bag.kinds[number], row.message_encoding, *definition, pairs)
    yield from topics.values()
    yield from bag.extras()
    for message in bag.as_written():
        topic = topics[message.connection]
        yield CopiedMessage(topic, message.time_ns, message.published_ns, message.sequence, message.data)


def _sqlite_items(path: Path, limit: int) -> Iterator[RecordedItem]:
    topics = [_defined(topic) for topic in sqlite_topic_records(path)]
    yield from topics

    def rows(topic: RecordedTopic) -> Iterator[Tuple[TimedMessage, RecordedTopic]]:
        return ((row, topic) for row in sqlite_rows(path, topic.name, topic.kind, limit))

    for (time_ns, data), topic in heapq.merge(*map(rows, topics), key=lambda item: item[0][0]):
        if time_ns < 0:
            raise SourceError(f"{path} has a message of a time before 1970, which mcap cannot hold")
        yield CopiedMessage(topic, time_ns, time_ns, 0, data)


def _defined(topic: RecordedTopic) -> RecordedTopic:
    """A topic with the definition of its type, where the file has none and the type is known."""
    if topic.definition or topic.kind not in messages.typestore().types:
        return topic
    text, _ = messages.typestore().generate_msgdef(topic.kind, ros_version=2)
    return replace(topic, definition_encoding="ros2msg", definition=text.encode())


# ------------------------------------------------------------------------------------------------------------- writing


class _Copy:
    """Writes what a recording consists of into another one.

    Args:
        path: The recording, for errors.
        writer: Where to.
        edits: Topic -> what becomes of it; others stay as they are.
        limit: Largest size of a message.
    """

    def __init__(self, path: Path, writer: Writer, edits: Dict[str, _Edit], limit: int) -> None:
        self._path = path
        self._writer = writer
        self._edits = edits
        self._limit = limit
        self._schemas: Dict[Tuple[str, str, bytes], int] = {}
        self._channels: Dict[RecordedTopic, int] = {}
        self._done = {edit.topic: Conversion() for edit in edits.values()}

    def run(self, items: Iterable[RecordedItem]) -> Dict[str, Conversion]:
        """Write all items; returns what was converted by new topic."""
        for item in items:
            if isinstance(item, CopiedMessage):
                self._write(item)
            elif isinstance(item, RecordedTopic):
                self._channel(item)
            elif isinstance(item, Attachment):
                self._writer.add_attachment(
                    item.create_time, item.log_time, item.name, item.media_type, bytes(item.data)
                )
            elif item.name != _RECORDER_METADATA:
                self._writer.add_metadata(item.name, item.metadata)
        return self._done

    def _edit(self, topic: RecordedTopic) -> Optional[_Edit]:
        edit = self._edits.get(topic.name)
        return edit if edit and edit.old_kind == topic.kind else None

    def _channel(self, topic: RecordedTopic) -> int:
        """The number of a topic in the copy."""
        if topic not in self._channels:
            new, edit = topic, self._edit(topic)
            if edit:
                pairs = tuple(pair for pair in topic.metadata if pair[0] != _TYPE_HASH)
                new = _defined(RecordedTopic(edit.topic, edit.kind, topic.encoding, "", b"", pairs))
            schema = new.kind, new.definition_encoding, new.definition
            if schema not in self._schemas:
                self._schemas[schema] = self._writer.register_schema(*schema) if new.kind else 0
            self._channels[topic] = self._writer.register_channel(
                new.name, new.encoding, self._schemas[schema], dict(new.metadata)
            )
        return self._channels[topic]

    def _write(self, message: CopiedMessage) -> None:
        edit = self._edit(message.topic)
        try:
            record = Recorded(message.time_ns, message.topic.kind, message.data, max_bytes=self._limit)
            data = record.message()
        except FrameError as err:
            name = printable(message.topic.name)
            raise SourceError(f"{self._path}: a message on {name} cannot be copied: {err}") from err
        if edit:
            data = self._convert(edit, data)
        # the writer also takes a view, which copies nothing
        self._writer.add_message(
            self._channel(message.topic), message.time_ns, cast("bytes", data), message.published_ns, message.sequence
        )

    def _convert(self, edit: _Edit, data: Cdr) -> Cdr:
        """A message on a topic that is converted; one that is no image stays as it is."""
        before = self._done[edit.topic]
        try:
            new, images = edit.convert(data, self._limit), 1
        except FrameError:
            new, images = data, 0
        self._done[edit.topic] = Conversion(
            before.images + images,
            before.others + 1 - images,
            before.before + len(data),
            before.after + len(new),
        )
        return new
