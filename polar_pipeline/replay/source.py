"""Raw images from recordings: rosbag2 (sqlite3, mcap), ROS 1 bags, and folders of pictures."""

from __future__ import annotations

import io
import sqlite3
import struct
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, NamedTuple, Optional, Tuple, Union

import cv2
import numpy as np
from mcap.exceptions import McapError
from mcap.reader import McapReader, make_reader
from mcap.summary import Summary
from rosbags import rosbag1, rosbag2

from polar_pipeline import messages
from polar_pipeline.messages import COMPRESSED, IMAGE, ImageMessage
from polar_pipeline.sensor import FrameError

#: Files of a folder that are taken for raw images.
SUFFIXES = (".png", ".tif", ".tiff", ".pgm", ".npy")
#: Frames per second of a folder unless a rate is given: the camera's.
DEFAULT_RATE = 24.0

#: First and last bytes of an mcap file.
_MCAP = b"\x89MCAP0\r\n"

#: What the readers raise on files that are damaged or no recordings (a `FrameError` is a `ValueError`).
UNREADABLE = (
    McapError,
    rosbag1.ReaderError,
    rosbag2.ReaderError,
    sqlite3.Error,
    struct.error,
    ValueError,
    LookupError,
    TypeError,
    AssertionError,
    EOFError,
)


class SourceError(Exception):
    """A recording that cannot be read."""


class Recorded(NamedTuple):
    """One raw image as recorded, not decoded yet.

    Attributes:
        time_ns: When it was recorded.
        kind: Message type, or "" for a file.
        data: The message's bytes, or the file.
        is_ros1: Whether the bytes are a ROS 1 message.
    """

    time_ns: int
    kind: str
    data: Union[bytes, Path]
    is_ros1: bool = False

    def image(self) -> ImageMessage:
        """The image as a message; its stamp is the recorded time if it has none.

        Raises:
            FrameError: It cannot be decoded (causes `cdr`, `file`, `encoding`).
        """
        if isinstance(self.data, Path):
            return _as_message(read_raw(self.data), self.time_ns, self.data.stem)
        cdr = messages.from_ros1(self.data, self.kind) if self.is_ros1 else self.data
        if self.kind == IMAGE:
            image = messages.decode_image(cdr)
        else:
            compressed = messages.decode(cdr, COMPRESSED)
            pixels = cv2.imdecode(compressed.data, cv2.IMREAD_UNCHANGED) if compressed.data.size else None
            if pixels is None:
                raise FrameError("file", f"{compressed.data.size} bytes of {compressed.format!r} are no picture")
            image = _as_message(pixels, messages.stamp_of(compressed), compressed.header.frame_id)
        return image if image.stamp_ns > 0 else image._replace(stamp_ns=self.time_ns)

    def cdr(self) -> bytes:
        """The image as a serialized `sensor_msgs/Image`: the recorded bytes where they are one.

        Raises:
            FrameError: It cannot be decoded.
        """
        if isinstance(self.data, bytes) and self.kind == IMAGE:
            return bytes(messages.from_ros1(self.data, IMAGE)) if self.is_ros1 else self.data
        image = self.image()
        pixels = messages.to_raw(image).unpack().mosaic
        return bytes(messages.encode_image(image.stamp_ns, image.frame_id, image.encoding, pixels))


class Source(NamedTuple):
    """An open recording.

    Attributes:
        topic: Topic of the images; the path for a folder.
        total: Images in it.
        records: They, once, in the order of recording. Raises `SourceError` where the recording is damaged.
    """

    topic: str
    total: int
    records: Iterator[Recorded]


def read_raw(path: Path) -> np.ndarray:
    """A raw image from a PNG, TIFF, PGM or NPY file: (H, W) uint8 or uint16.

    Raises:
        FrameError: The file is no picture (cause `file`) or not a raw mosaic (cause `type`).
    """
    try:
        with path.open("rb") as stream:
            pixels: Optional[np.ndarray]
            if path.suffix.lower() == ".npy":
                pixels = np.lib.format.read_array(stream)  # np.load takes archives too
            else:
                pixels = cv2.imdecode(np.frombuffer(stream.read(), np.uint8), cv2.IMREAD_UNCHANGED)
    except Exception as err:  # what a damaged NPY file raises is not said anywhere; tokenize.TokenError, for one
        raise FrameError("file", f"{path} cannot be read: {err}") from err
    if pixels is None:
        raise FrameError("file", f"{path} is no picture that OpenCV can read")
    if pixels.ndim != 2 or pixels.dtype not in (np.uint8, np.uint16):
        raise FrameError(
            "type", f"{path} must hold one channel of 8 or 16 bit, the raw mosaic; got {pixels.dtype} {pixels.shape}"
        )
    return pixels


def _as_message(pixels: np.ndarray, stamp_ns: int, frame_id: str) -> ImageMessage:
    """A picture as an image message."""
    encoding = {("uint8", 2): "mono8", ("uint16", 2): "mono16"}.get((str(pixels.dtype), pixels.ndim))
    if encoding is None:
        raise FrameError("type", f"a raw mosaic has one channel of 8 or 16 bit, got {pixels.dtype} {pixels.shape}")
    height, width = pixels.shape
    data = np.ascontiguousarray(pixels).reshape(-1).view(np.uint8)
    return ImageMessage(stamp_ns, frame_id, height, width, encoding, False, width * pixels.itemsize, data)


def is_recording(path: Path) -> bool:
    """Whether a source holds messages, which have times and a topic, and not pictures."""
    return path.suffix in (".mcap", ".bag", ".db3") or (path / "metadata.yaml").exists()


@contextmanager
def open_source(path: Path, topic: str = "", rate: float = DEFAULT_RATE) -> Iterator[Source]:
    """Open a recording.

    Args:
        path: A rosbag2 folder, an `.mcap` or `.db3` file, a ROS 1 `.bag`, a picture, or a folder of pictures, which are
            sorted by name.
        topic: Topic of the raw images; "" for the only one. Pictures have none.
        rate: Frames per second of pictures; the first is stamped one period after 0.

    Raises:
        SourceError: There is no such recording, it cannot be read, or the topic is not clear.
    """
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    if path.suffix == ".db3" and (path.parent / "metadata.yaml").exists():
        path = path.parent
    with ExitStack() as stack:
        try:
            if not is_recording(path):
                source = _open_folder(path, topic, rate)
            elif path.suffix == ".mcap":
                source = _open_mcap(path, topic, stack)
            else:
                source = _open_bag(path, topic, stack)
        except UNREADABLE as err:
            raise SourceError(f"{path} cannot be read: {type(err).__name__}: {err}") from err
        yield source._replace(records=_checked(path, source.records))


def _checked(path: Path, records: Iterator[Recorded]) -> Iterator[Recorded]:
    """The records, with damage reported as `SourceError`."""
    try:
        yield from records
    except UNREADABLE as err:
        raise SourceError(f"{path} is damaged: {type(err).__name__}: {err}") from err


def _choose(path: Path, topics: Dict[str, Tuple[str, int]], wanted: str) -> str:
    """The topic of the raw images among topic -> (message type, count)."""
    images = {name: count for name, (kind, count) in topics.items() if kind in (IMAGE, COMPRESSED) and count}
    if wanted in images:
        return wanted
    listed = ", ".join(sorted(images)) or "none"
    if wanted:
        raise SourceError(f"{path} has no images on {wanted}; topics with images: {listed}")
    if len(images) != 1:
        raise SourceError(f"{path} must hold one topic of images, or --topic say which; it has: {listed}")
    return next(iter(images))


def read_mcap(path: Path, stream: BinaryIO) -> Tuple[McapReader, Summary]:
    """A reader of an mcap file, and what its index says.

    Raises:
        SourceError: It is none, or was cut off.
    """
    first = stream.read(len(_MCAP))
    stream.seek(max(0, stream.seek(0, io.SEEK_END) - len(_MCAP)))
    last = stream.read()
    if first != _MCAP:
        raise SourceError(f"{path} is no mcap file")
    stream.seek(0)
    reader = make_reader(stream, validate_crcs=True)
    summary = reader.get_summary() if last == _MCAP else None
    if summary is None:
        raise SourceError(f"{path} has no index: the recording was cut off (`mcap recover` can repair it)")
    return reader, summary


def _open_mcap(path: Path, wanted: str, stack: ExitStack) -> Source:
    reader, summary = read_mcap(path, stack.enter_context(path.open("rb")))
    if summary.statistics is None:
        raise SourceError(f"{path} does not say how many messages it holds (`mcap recover` counts them)")
    counts = summary.statistics.channel_message_counts
    topics: Dict[str, Tuple[str, int]] = {}
    for key, channel in summary.channels.items():
        _, before = topics.get(channel.topic, ("", 0))
        topics[channel.topic] = (summary.schemas[channel.schema_id].name, before + counts.get(key, 0))
    topic = _choose(path, topics, wanted)
    kind, count = topics[topic]
    records = (Recorded(row.log_time, kind, row.data) for _, _, row in reader.iter_messages([topic]))
    return Source(topic, count, records)


def _open_bag(path: Path, wanted: str, stack: ExitStack) -> Source:
    is_ros1 = path.suffix == ".bag"
    reader: Any = stack.enter_context(rosbag1.Reader(path) if is_ros1 else rosbag2.Reader(path))
    topic = _choose(path, {name: (row.msgtype or "", row.msgcount) for name, row in reader.topics.items()}, wanted)
    connections = [row for row in reader.connections if row.topic == topic]
    records = (
        Recorded(time_ns, connection.msgtype, bytes(data), is_ros1)
        for connection, time_ns, data in reader.messages(connections=connections)
    )
    return Source(topic, reader.topics[topic].msgcount, records)


def _open_folder(path: Path, wanted: str, rate: float) -> Source:
    if path.is_file() and path.suffix.lower() not in SUFFIXES:
        raise SourceError(
            f"{path} is no recording: expected .mcap, .db3, .bag, a rosbag2 folder, {', '.join(SUFFIXES)}"
        )
    files = [path] if path.is_file() else sorted(row for row in path.iterdir() if row.suffix.lower() in SUFFIXES)
    if not files:
        raise SourceError(f"{path} holds neither a rosbag2 recording nor pictures ({', '.join(SUFFIXES)})")
    if wanted:
        raise SourceError(f"{path} holds pictures, which have no topic; got {wanted}")
    records = (Recorded(round((index + 1) * 1e9 / rate), "", file) for index, file in enumerate(files))
    return Source(str(path), len(files), records)
