"""Writes recordings: one `.mcap` file that ROS 2 tools read, either complete or absent."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, Mapping, Tuple, cast

from mcap.writer import CompressionType, Writer

from polar_pipeline import __version__
from polar_pipeline._util.files import replacing
from polar_pipeline.messages import Cdr, typestore


class Sink:
    """Writes messages to an mcap file; open it with `open_sink`.

    The content depends on the messages alone, not on the clock: the same messages make the same file.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._schemas: Dict[str, int] = {}
        self._channels: Dict[Tuple[str, str], int] = {}

    def write(self, topic: str, kind: str, stamp_ns: int, cdr: Cdr) -> None:
        """Add a serialized message of type `kind`; the stamp is its time in the recording."""
        if (topic, kind) not in self._channels:
            if kind not in self._schemas:
                definition, _ = typestore().generate_msgdef(kind, ros_version=2)
                self._schemas[kind] = self._writer.register_schema(kind, "ros2msg", definition.encode())
            self._channels[topic, kind] = self._writer.register_channel(
                topic, "cdr", self._schemas[kind], {"offered_qos_profiles": ""}
            )
        data = cast("bytes", cdr)  # the writer also takes a view, which copies nothing
        self._writer.add_message(self._channels[topic, kind], stamp_ns, data, stamp_ns)


@contextmanager
def open_sink(path: Path, metadata: Mapping[str, str], force: bool = False) -> Iterator[Sink]:
    """Open a recording for writing; it appears under its name when the block ends without an error.

    Args:
        path: The file to make.
        metadata: Names and values kept in the file, which say how it was made.
        force: Whether a file of that name may be replaced.

    Raises:
        FileExistsError: There is one, and `force` is false.
        OSError: It cannot be written.
    """
    with replacing(path, force) as stream:
        writer = Writer(stream, compression=CompressionType.NONE)  # float images hardly shrink
        writer.start("ros2", f"polar_pipeline {__version__}")
        writer.add_metadata("polar_pipeline", dict(metadata))
        yield Sink(writer)
        writer.finish()  # type: ignore[no-untyped-call]
