"""Recordings whose raw images are compressed without loss (`rawzstd`) or expanded again; all else is copied."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterable, Sequence, Tuple, cast

from mcap.records import Attachment, Metadata, Schema
from mcap.writer import CompressionType

from polar_pipeline._util.paths import AnyPath, as_path
from polar_pipeline._util.text import printable
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.bag_names import is_zstd
from polar_pipeline.recordings.bags import Bag, Record, as_cdr, ros2_type_name
from polar_pipeline.recordings.compressed import decompress_image
from polar_pipeline.recordings.limits import MAX_BYTES, SourceError, reading
from polar_pipeline.recordings.messages import COMPRESSED, IMAGE, Cdr
from polar_pipeline.recordings.rawzstd import TRANSPORT, compress_message
from polar_pipeline.recordings.rosbag2 import open_recording
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.recordings.source import (
    Recorded,
    checked,
    choose_topic,
    is_recording,
    recording_of,
    without_progress,
)
from polar_pipeline.sensor.frames import FrameError

#: (records, number of messages) -> the records, to show progress.
CopyWatch = Callable[[Iterable[Record], int], Iterable[Record]]

#: Metadata of a recorder about its own file: it lists topics, and would be wrong in a copy that has others.
_RECORDER_METADATA = "rosbag2"
#: Entry of a channel's metadata: a checksum of its message type.
_TYPE_HASH = "topic_type_hash"


@dataclass
class Conversion:
    """Number of converted images and of copied other messages of a topic, and bytes of all before and after."""

    images: int = 0
    others: int = 0
    before: int = 0
    after: int = 0

    def convert(self, data: Cdr, convert: Callable[[Cdr], Cdr]) -> Cdr:
        """Convert a message and count it; a message that is not an image stays as it is."""
        self.before += len(data)
        try:
            data = convert(data)
            self.images += 1
        except FrameError:
            self.others += 1
        self.after += len(data)
        return data


def compress_recording(
    source: AnyPath,
    output: AnyPath,
    topics: Sequence[str] = (),
    force: bool = False,
    max_bytes: int = MAX_BYTES,
    watch: CopyWatch = without_progress,
) -> Dict[str, Conversion]:
    """Copy a recording, with compressed images in place of raw ones, on topics that end in `/polar_zstd`.

    `source` is a rosbag2 folder, or an `.mcap` or `.db3` file, and `output` an `.mcap` file. Without topics, the only
    topic of images is converted. `max_bytes` is the largest size of one message, and of an uncompressed chunk.

    Returns:
        Figures by new topic.

    Raises:
        SourceError: The recording cannot be read, or the topic is not clear.
        OSError: The output cannot be written.
    """

    def rename(path: Path, recording: Bag) -> Dict[str, str]:
        keys = [choose_topic(path, recording, topic, (IMAGE,)) for topic in topics or ("",)]
        return {topic: f"{topic}/{TRANSPORT}" for topic, _ in keys}

    return _convert(source, output, (IMAGE, COMPRESSED), compress_message, rename, force, max_bytes, watch)


def decompress_recording(
    source: AnyPath,
    output: AnyPath,
    force: bool = False,
    max_bytes: int = MAX_BYTES,
    watch: CopyWatch = without_progress,
) -> Dict[str, Conversion]:
    """Copy a recording, with raw images in place of compressed ones, on every topic that ends in `/polar_zstd`."""
    end = f"/{TRANSPORT}"

    def expand(message: Cdr) -> Cdr:
        return messages.encode_message(decompress_image(message, max_bytes))

    def rename(path: Path, recording: Bag) -> Dict[str, str]:
        topics = [
            topic for (topic, message_type), count in recording.topics.items() if message_type == COMPRESSED and count
        ]
        new = {topic: topic[: -len(end)] for topic in topics if topic.endswith(end) and topic != end}
        if not new:
            raise SourceError(f"{path} has no images on a topic that ends in {end}")
        return new

    return _convert(source, output, (COMPRESSED, IMAGE), expand, rename, force, max_bytes, watch)


def _convert(
    source: AnyPath,
    output: AnyPath,
    message_types: Tuple[str, str],
    convert: Callable[[Cdr], Cdr],
    rename: Callable[[Path, Bag], Dict[str, str]],
    force: bool,
    max_bytes: int,
    watch: CopyWatch,
) -> Dict[str, Conversion]:
    """Copy a recording, and convert messages from the first to the second of two types, on topics that are renamed.

    `rename` returns the new names of topics; the other arguments are those of `compress_recording`.
    """
    path = recording_of(as_path(source))
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    if (path.suffix.lower() == ".bag" and path.is_file()) or not is_recording(path):
        raise SourceError(f"{path} is not a ROS 2 recording: expected .mcap, .db3 or a rosbag2 folder")
    with ExitStack() as stack:
        with reading(path):
            recording = stack.enter_context(open_recording(path, max_bytes))
            renamed = rename(path, recording)
            compression = CompressionType["ZSTD" if is_zstd(path) else recording.compression.upper() or "NONE"]
        for topic in renamed.values():
            if any(topic == name for name, _ in recording.topics):
                raise SourceError(f"{path} has a topic {printable(topic)} already")
        records = stack.enter_context(closing(checked(path, recording.records())))
        sink = stack.enter_context(open_sink(as_path(output), {}, force, compression))
        done = {topic: Conversion() for topic in renamed.values()}
        for record in watch(records, sum(recording.topics.values())):
            if isinstance(record, Attachment):
                values = record.create_time, record.log_time, record.name, record.media_type, bytes(record.data)
                sink.writer.add_attachment(*values)
                continue
            if isinstance(record, Metadata):
                if record.name != _RECORDER_METADATA:
                    sink.writer.add_metadata(record.name, record.metadata)
                continue
            schema, channel, message = record
            topic, metadata, encoding = channel.topic, channel.metadata, channel.message_encoding
            is_convertible = ros2_type_name(schema.name, encoding) == message_types[0]
            conversion = done.get(renamed.get(topic, "")) if is_convertible else None
            if conversion is not None:
                topic, schema = renamed[topic], Schema(0, b"", "", message_types[1])
                metadata = {name: value for name, value in metadata.items() if name != _TYPE_HASH}
            number = sink.add_channel(topic, encoding if conversion is None else "cdr", schema, metadata)
            if message is None:
                continue
            try:
                data = Recorded(message.log_time, schema.name, message.data, max_bytes).message()
                if conversion is not None:
                    data = as_cdr(bytes(data), message_types[0], encoding)
            except FrameError as err:
                raise SourceError(f"{path}: a message on {printable(channel.topic)} cannot be copied: {err}") from err
            if conversion is not None:
                data = conversion.convert(data, convert)
            times = message.publish_time, message.sequence
            sink.writer.add_message(number, message.log_time, cast("bytes", data), *times)
    return done
