"""Writing of recordings: one `.mcap` file that ROS 2 tools read, either complete or absent."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, Mapping, cast

from mcap.records import Schema
from mcap.writer import CompressionType, Writer

from polar_pipeline import __version__
from polar_pipeline._util.files import replacing
from polar_pipeline.recordings.definitions import message_definition
from polar_pipeline.recordings.messages import Cdr


class Sink:
    """Writer of messages to an mcap file; open it with `open_sink`.

    The content depends on the messages alone, not on the clock: the same messages make the same file.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self._numbers: Dict[Any, int] = {}  # of the file's schemas and channels

    def write(self, topic: str, message_type: str, stamp_ns: int, cdr: Cdr) -> None:
        """Add a serialized message of type `message_type`; the stamp is its time in the recording."""
        channel = self.add_channel(topic, "cdr", Schema(0, b"", "", message_type), {"offered_qos_profiles": ""})
        # the writer also takes a view, which copies nothing
        self.writer.add_message(channel, stamp_ns, cast("bytes", cdr), stamp_ns)

    def add_channel(self, topic: str, encoding: str, schema: Schema, metadata: Mapping[str, str]) -> int:
        """Return the number of a channel, which is added with its type and definition unless the file has it."""
        identity = schema.name, schema.encoding, schema.data
        definition = b"" if schema.data else message_definition(schema.name)
        if definition:
            identity = schema.name, "ros2msg", definition
        if identity not in self._numbers:
            self._numbers[identity] = self.writer.register_schema(*identity) if schema.name else 0
        channel = topic, encoding, self._numbers[identity], tuple(sorted(metadata.items()))
        if channel not in self._numbers:
            self._numbers[channel] = self.writer.register_channel(*channel[:3], dict(metadata))
        return self._numbers[channel]


@contextmanager
def open_sink(
    path: Path, metadata: Mapping[str, str], force: bool = False, compression: CompressionType = CompressionType.NONE
) -> Iterator[Sink]:
    """Open a recording for writing; it appears under its name when the block ends without an error.

    The file contains `metadata`, such as options. By default chunks are not compressed: float images hardly shrink.

    Raises:
        FileExistsError: The file exists, and `force` is false.
        OSError: The file cannot be written.
    """
    with replacing(path, force) as stream:
        sink = start_sink(stream, metadata, compression)
        yield sink
        sink.writer.finish()  # type: ignore[no-untyped-call]


def start_sink(
    stream: BinaryIO,
    metadata: Mapping[str, str],
    compression: CompressionType = CompressionType.NONE,
    chunk_size: int = 1 << 20,
) -> Sink:
    """Begin a recording in a file whose last writer call is to be `finish`; `chunk_size` is in bytes."""
    writer = Writer(stream, chunk_size, compression)
    writer.start("ros2", f"polar_pipeline {__version__}")
    if metadata:
        writer.add_metadata("polar_pipeline", dict(metadata))
    return Sink(writer)
