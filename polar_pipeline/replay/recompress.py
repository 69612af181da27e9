"""Recordings whose raw images are compressed without loss (`rawzstd`) or expanded again; all else is copied."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Callable, Dict, Generator, Iterable, NamedTuple, Sequence, Union

import numpy as np
from mcap.records import Attachment, Metadata, Schema
from mcap.writer import CompressionType

from polar_pipeline import messages
from polar_pipeline._util.text import printable
from polar_pipeline.messages import COMPRESSED, IMAGE, Cdr
from polar_pipeline.replay.bags import Folder, McapFile, Row, Topics, open_file, open_recording
from polar_pipeline.replay.limits import MAX_BYTES, SourceError, reading
from polar_pipeline.replay.rawzstd import TRANSPORT, compress_raw, format_of
from polar_pipeline.replay.sink import Sink, open_sink
from polar_pipeline.replay.source import Recorded, choose_topic, decompress_image, is_recording, recording_of
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
    """Types of the messages before and after, and how they are converted under a largest size in bytes."""

    old_kind: str
    kind: str
    convert: Callable[[Cdr, int], Cdr]


#: What a recording consists of: records of the mcap library, also of a `.db3` file.
Record = Union[Row, Attachment, Metadata]
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

    def renamed(path: Path, known: Topics) -> Dict[str, str]:
        chosen = [choose_topic(path, known, topic, (IMAGE,)) for topic in topics or ("",)]
        return {topic: f"{topic}/{TRANSPORT}" for topic in chosen}

    return _converted(source, output, _Edit(IMAGE, COMPRESSED, _compress), renamed, force, max_bytes, watch)


def decompress_recording(
    source: Path,
    output: Path,
    force: bool = False,
    max_bytes: int = MAX_BYTES,
    watch: CopyWatch = _unwatched,
) -> Dict[str, Conversion]:
    """The inverse of `compress_recording`: every topic that ends in `/polar_zstd` becomes one of raw images again."""
    end = f"/{TRANSPORT}"

    def renamed(path: Path, known: Topics) -> Dict[str, str]:
        topics = [topic for topic, (kind, count) in known.items() if kind == COMPRESSED and count]
        new = {topic: topic[: -len(end)] for topic in topics if topic.endswith(end) and topic != end}
        if not new:
            raise SourceError(f"{path} has no images on a topic that ends in {end}")
        return new

    return _converted(source, output, _Edit(COMPRESSED, IMAGE, _expand), renamed, force, max_bytes, watch)


def _compress(message: Cdr, _: int) -> Cdr:
    image = messages.decode_image(message)
    data = np.frombuffer(compress_raw(image), np.uint8)
    return messages.encode_compressed(image.stamp_ns, image.frame_id, format_of(image.encoding), data)


def _expand(message: Cdr, max_bytes: int) -> Cdr:
    return messages.encode_message(decompress_image(message, max_bytes))


def _converted(
    source: Path,
    output: Path,
    edit: _Edit,
    rename: Callable[[Path, Topics], Dict[str, str]],
    force: bool,
    max_bytes: int,
    watch: CopyWatch,
) -> Dict[str, Conversion]:
    """Copy a recording, and edit the topics that `rename` chooses; the arguments are those of `compress_recording`."""
    path = recording_of(source)
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    if path.suffix == ".bag" or not is_recording(path):
        raise SourceError(f"{path} is not a ROS 2 recording: expected .mcap, .db3 or a rosbag2 folder")
    with reading(path), open_recording(path, max_bytes) as recording:
        topics = recording.topics
        files = recording.files if isinstance(recording, Folder) else [path]
        compression = _chunk_compression(recording, files, max_bytes)
    renamed = rename(path, topics)
    for topic in renamed.values():
        if topic in topics:
            raise SourceError(f"{path} has a topic {printable(topic)} already")
    with closing(_records(path, files, max_bytes)) as records, open_sink(output, {}, force, compression) as sink:
        copy = _Copy(path, sink, edit, renamed, max_bytes)
        for record in watch(records, sum(count for _, count in topics.values())):
            if isinstance(record, Attachment):
                values = record.create_time, record.log_time, record.name, record.media_type, bytes(record.data)
                sink.writer.add_attachment(*values)
            elif not isinstance(record, Metadata):
                copy.add(record)
            elif record.name != _RECORDER_METADATA:
                sink.writer.add_metadata(record.name, record.metadata)
    return copy.done


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
                yield from file.channels()
                yield from file.records()


class _Copy:
    """Writes the channels and messages of a recording into another one.

    Attributes:
        done: New topic -> what was converted.

    Args:
        path: The recording, for errors.
        sink: Where to write.
        edit: What becomes of messages of a type.
        renamed: Topics on which they are edited, and their new names.
        limit: Largest size of a message.
    """

    def __init__(self, path: Path, sink: Sink, edit: _Edit, renamed: Dict[str, str], limit: int) -> None:
        self.done = {topic: Conversion() for topic in renamed.values()}
        self._path = path
        self._sink = sink
        self._edit = edit
        self._renamed = renamed
        self._limit = limit

    def add(self, row: Row) -> None:
        """Write a channel, and a message if there is one.

        Raises:
            SourceError: The message cannot be copied.
        """
        schema, channel, message = row
        topic, kind, metadata = channel.topic, schema.name, channel.metadata
        is_edited = kind == self._edit.old_kind and topic in self._renamed
        if is_edited:
            topic, schema = self._renamed[topic], Schema(0, b"", "", self._edit.kind)
            metadata = {name: value for name, value in metadata.items() if name != _TYPE_HASH}
        number = self._sink.add_channel(topic, channel.message_encoding, schema, metadata)
        if message is None:
            return
        try:
            data = Recorded(message.log_time, kind, message.data, max_bytes=self._limit).message()
        except FrameError as err:
            name = printable(channel.topic)
            raise SourceError(f"{self._path}: a message on {name} cannot be copied: {err}") from err
        data = self._converted(topic, data) if is_edited else data
        self._sink.add_message(number, message.log_time, data, message.publish_time, message.sequence)

    def _converted(self, topic: str, data: Cdr) -> Cdr:
        """A message for a topic that is edited; one that is not an image stays as it is."""
        before = self.done[topic]
        try:
            new, images = self._edit.convert(data, self._limit), 1
        except FrameError:
            new, images = data, 0
        added = images, 1 - images, len(data), len(new)
        self.done[topic] = Conversion(*(old + more for old, more in zip(before, added)))
        return new
