"""Raw images and lens calibrations from recordings: rosbag2, ROS 1 bags, and folders of pictures."""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Callable,
    Generator,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Tuple,
    TypeVar,
    Union,
)

import numpy as np

from polar_pipeline import messages
from polar_pipeline._util.imports import importing
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.geometry import LensCalibration
from polar_pipeline.messages import CAMERA_INFO, COMPRESSED, IMAGE, Cdr, ImageMessage
from polar_pipeline.replay.limits import MAX_BYTES, SourceError, Span, check_size, described, reading
from polar_pipeline.replay.rawpicture import decode_picture, read_raw
from polar_pipeline.replay.rawzstd import TRANSPORT, decompress_raw, is_raw_zstd
from polar_pipeline.replay.rosbag2 import ZSTD, bag_files, is_bag_file, open_recording, plain_name
from polar_pipeline.sensor.frames import FrameError
from polar_pipeline.topics import camera_info_beside

if TYPE_CHECKING:  # needs the extra `recordings`, without which pictures can be read too
    from polar_pipeline.replay.bags import Topics

_LOG = logging.getLogger(__name__)
#: An item of a recording.
Item = TypeVar("Item")
#: Types of the messages that are raw images.
IMAGES = (IMAGE, COMPRESSED)
#: Suffixes of the files in a folder that are raw images.
SUFFIXES = (".png", ".tif", ".tiff", ".pgm", ".npy")
#: Frames per second of a folder unless a rate is given: the camera's.
DEFAULT_RATE = 24.0
#: Lowest and highest rate of a folder.
RATES = (1e-3, 1e6)
#: End in nanoseconds of the times that a message's stamp can hold, whose seconds are a signed 32-bit integer.
_STAMP_END_NS = 2**31 * 1_000_000_000
#: Name of the metadata that this package writes at the beginning of a recording.
METADATA = "polar_pipeline"
#: First bytes of messages that a recorder compressed; CDR begins with 0.
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
#: Largest number of topics that an error lists.
_MAX_LISTED = 20


@dataclass(frozen=True)
class Recorded:
    """One raw image, or lens calibration, as recorded, not decoded yet.

    Attributes:
        time_ns: Time of recording.
        kind: Message type, or "" for a file.
        data: The message in CDR, which may be compressed by zstd; the file; or why it cannot be read.
        max_bytes: Largest size of the image.
    """

    time_ns: int
    kind: str
    data: Union[bytes, memoryview, Path, FrameError]
    max_bytes: int = MAX_BYTES

    def image(self) -> ImageMessage:
        """Decode the image; its stamp is the recorded time if it has none, or one before 1970.

        Raises:
            FrameError: The message cannot be decoded (causes `cdr`, `file`, `size`, `type`).
        """
        if isinstance(self.data, Path):
            image = _as_message(read_raw(self.data, self.max_bytes), self.time_ns, self.data.stem)
        elif self.kind == IMAGE:
            image = messages.decode_image(self.message())
        else:
            image = decompress_image(self.message(), self.max_bytes)
        if 0 < image.stamp_ns < _STAMP_END_NS:
            return image
        if not 0 <= self.time_ns < _STAMP_END_NS:
            raise FrameError("cdr", f"stamped {image.stamp_ns} ns and recorded at {self.time_ns} ns, neither is a time")
        return replace(image, stamp_ns=self.time_ns)

    def cdr(self) -> bytes:
        """Serialize the image as `sensor_msgs/Image`, or return the recorded bytes of an image or a lens calibration.

        Raises:
            FrameError: The message cannot be decoded.
        """
        if self.kind in (IMAGE, CAMERA_INFO):
            message = self.message()
            (messages.decode_image if self.kind == IMAGE else messages.decode_camera_info)(message)
            return bytes(message)
        is_file = isinstance(self.data, Path)
        image = self.image() if is_file else decompress_image(self.message(), self.max_bytes)
        return bytes(messages.encode_message(image))

    def message(self) -> Cdr:
        """Return the message in CDR, uncompressed.

        Raises:
            FrameError: The message cannot be read (causes `cdr`, `size`).
        """
        if isinstance(self.data, FrameError):
            raise self.data
        if isinstance(self.data, Path):
            raise TypeError(f"{self.data} is a file, not a message")
        check_size("a message", len(self.data), self.max_bytes)
        if bytes(self.data[:4]) != _ZSTD_MAGIC:
            return self.data
        with importing():
            import zstandard

        try:
            check_size("a message", zstandard.frame_content_size(self.data), self.max_bytes)
            return zstandard.ZstdDecompressor().decompress(self.data, max_output_size=self.max_bytes)
        except (zstandard.ZstdError, MemoryError) as err:
            raise FrameError("cdr", f"{len(self.data)} bytes cannot be decompressed: {described(err)}") from err


@dataclass(frozen=True)
class Source:
    """An open recording.

    Attributes:
        topic: Topic of the images; the path for a folder.
        total: Images in it.
        records: The images in the order of recording; an iterator, which raises `SourceError` where the recording is
            damaged.
        spans: Finds the times of recording that each of its files takes, as their indexes state; None if they are
            not known without reading all of it.
        is_cut: Whether the recording was cut off, and is read up to its last complete chunk.
    """

    topic: str
    total: int
    records: Iterator[Recorded]
    spans: Callable[[], Optional[List[Span]]]
    is_cut: bool = False


def decompress_image(message: Cdr, max_bytes: int = MAX_BYTES) -> ImageMessage:
    """Decode the image in a serialized `sensor_msgs/CompressedImage`.

    Raises:
        FrameError: The message cannot be decoded (causes `cdr`, `file`, `size`, `type`).
    """
    compressed = messages.decode_compressed(message)
    stamp_ns, frame_id = compressed.stamp_ns, compressed.frame_id
    try:
        if is_raw_zstd(compressed.format):
            return decompress_raw(compressed.data.data, stamp_ns, frame_id, max_bytes)
        pixels = decode_picture(compressed.data.data, max_bytes)
    except FrameError as err:
        raise FrameError(err.cause, f"a compressed image of format {quoted(compressed.format)}: {err}") from err
    return _as_message(pixels, stamp_ns, frame_id)


def _as_message(pixels: np.ndarray, stamp_ns: int, frame_id: str) -> ImageMessage:
    """Wrap a raw mosaic in an image message."""
    height, width = pixels.shape
    data = np.ascontiguousarray(pixels).reshape(-1).view(np.uint8)
    encoding = f"mono{8 * pixels.itemsize}"
    return ImageMessage(stamp_ns, frame_id, height, width, encoding, False, width * pixels.itemsize, data)


def is_recording(path: Path) -> bool:
    """Return whether a source holds messages, which have times and a topic, and not pictures."""
    if path.suffix == ".bag" or is_bag_file(path) or (path / "metadata.yaml").exists():
        return True
    return path.is_dir() and not _pictures(path) and bool(bag_files(path))  # left by a recorder that was killed


def _pictures(folder: Path) -> List[Path]:
    """List the pictures in a folder by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def recording_of(path: Path) -> Path:
    """Return the rosbag2 folder around a `.db3` file that lies in one, else the path itself."""
    is_part = path.name.endswith((".db3", ".db3.zstd")) and (path.parent / "metadata.yaml").exists()
    return path.parent if is_part else path


@contextmanager
def open_source(
    path: Path,
    topic: str = "",
    rate: float = DEFAULT_RATE,
    max_bytes: int = MAX_BYTES,
    span: Optional[Span] = None,
    kinds: Tuple[str, ...] = IMAGES,
) -> Iterator[Source]:
    """Open a recording.

    Args:
        path: A rosbag2 folder, also one without `metadata.yaml`, as a recorder that was killed leaves it; an `.mcap` or
            `.db3` file, compressed as `.mcap.zstd` or not; a ROS 1 `.bag`, a picture, or a folder of pictures, which
            are sorted by name.
        topic: Topic of the raw images, or that of what was compressed from them (`rawzstd`); "" for the only one.
            Pictures have none.
        rate: Frames per second of pictures, in `RATES`; the first is stamped one period after 0.
        max_bytes: Largest size of one frame, and of an uncompressed chunk.
        span: If given, only the images of these times of recording; what else there is, is not read.
        kinds: Types of the messages that are read: `IMAGES`, or `CAMERA_INFO` for the calibration beside `topic`, or
            the only one.

    Raises:
        SourceError: There is no such recording, it cannot be read, or the topic is not clear.
        ValueError: The rate is out of range.
    """
    if not RATES[0] <= rate <= RATES[1]:
        raise ValueError(f"the rate must be in [{RATES[0]:g}, {RATES[1]:g}] Hz, got {quoted(rate)}")
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    path = recording_of(path)
    with ExitStack() as stack:
        with reading(path):
            if is_recording(path):
                recording = stack.enter_context(open_recording(path, max_bytes, takes_cut=True))
                chosen = choose_topic(path, recording.topics, topic, kinds)
                kind, total = recording.topics[chosen]
                rows = recording.messages(chosen, kind, span)
                records = (Recorded(time_ns, kind, data, max_bytes) for time_ns, data in rows)
                source = Source(chosen, total, records, recording.spans, recording.is_cut)
                if recording.is_cut and kinds == IMAGES:
                    _LOG.warning("%s was cut off: it is read up to its last complete chunk", path)
            else:
                source = _open_pictures(path, topic, rate, max_bytes, span)
        with closing(checked(path, source.records)) as records:
            yield replace(source, records=records)


def checked(path: Path, records: Iterator[Item]) -> Generator[Item, None, None]:
    """Yield the records of a file, with damage reported as `SourceError`."""
    with reading(path, "is damaged"):
        yield from records


def unwatched(records: Iterable[Item], _: int) -> Iterable[Item]:
    """Return the records; stands for a function that shows progress."""
    return records


def choose_topic(path: Path, topics: Topics, wanted: str, kinds: Tuple[str, ...]) -> str:
    """Choose the topic of the raw images, or of their lens calibration, among topic -> (message type, count)."""
    images = {name: count for name, (kind, count) in topics.items() if kind in kinds and count}
    if kinds == (CAMERA_INFO,):
        raw = wanted.rpartition("/")[0] if topics.get(wanted, ("", 0))[0] == COMPRESSED else wanted
        wanted = camera_info_beside(raw) if camera_info_beside(raw) in images else ""
    if wanted in images:
        return wanted
    if wanted and f"{wanted}/{TRANSPORT}" in images:
        return f"{wanted}/{TRANSPORT}"
    listed = ", ".join(map(printable, sorted(images)[:_MAX_LISTED])) or "none"
    listed += ", ..." if len(images) > _MAX_LISTED else ""
    if wanted:
        raise SourceError(f"{path} has no images on {printable(wanted)}; topics with images: {listed}")
    if len(images) != 1 and kinds == (CAMERA_INFO,):
        raise SourceError(f"{path} must hold one topic of {' or '.join(kinds)}; it has: {listed}")
    if len(images) != 1:
        raise SourceError(f"{path} must hold one topic of images, or --topic say which; it has: {listed}")
    return next(iter(images))


def _open_pictures(path: Path, wanted: str, rate: float, max_bytes: int, span: Optional[Span]) -> Source:
    """Open a picture, or a folder of pictures."""
    if path.is_file() and path.suffix.lower() not in SUFFIXES:
        raise SourceError(
            f"{path} is not a recording: expected .mcap, .db3, .bag, a rosbag2 folder, {', '.join(SUFFIXES)}"
        )
    files = [path] if path.is_file() else _pictures(path)
    if not files:
        raise SourceError(f"{path} holds neither a rosbag2 recording nor pictures ({', '.join(SUFFIXES)})")
    if wanted:
        raise SourceError(f"{path} holds pictures, which have no topic; got {printable(wanted)}")
    times = [round((index + 1) * 1e9 / rate) for index in range(len(files))]
    first, end = span or (0, times[-1] + 1)
    rows = ((time_ns, file) for time_ns, file in zip(times, files) if first <= time_ns < end)
    records = (Recorded(time_ns, "", file, max_bytes=max_bytes) for time_ns, file in rows)
    return Source(str(path), len(files), records, lambda: [(times[0], times[-1] + 1)])


# ---------------------------------------------------------------------------------------------------- lens calibrations


@contextmanager
def open_camera_infos(path: Path, topic: str = "", max_bytes: int = MAX_BYTES) -> Iterator[Iterator[Recorded]]:
    """Open the lens calibrations of the images on a topic; there are none of pictures, or if their topic is not clear.

    The arguments are those of `open_source`.
    """
    with ExitStack() as stack:
        records: Iterator[Recorded] = iter(())
        if is_recording(path):
            with suppress(SourceError):
                opened = open_source(path, topic, max_bytes=max_bytes, kinds=(CAMERA_INFO,))
                records = stack.enter_context(opened).records
        yield records


def recorded_camera_info(path: Path, topic: str = "", max_bytes: int = MAX_BYTES) -> Optional[bytes]:
    """Return the first lens calibration of the images on a topic that can be decoded, serialized; None without one."""
    with open_camera_infos(path, topic, max_bytes) as records:
        for record in records:
            with suppress(FrameError):
                return record.cdr()
    return None


def recorded_metadata(path: Path) -> Mapping[str, str]:
    """Return what this package wrote at the beginning of an mcap file, compressed by zstd or not; else nothing."""
    if not plain_name(path).endswith(".mcap") or not path.is_file():
        return {}
    with suppress(ImportError, SourceError), path.open("rb") as stream:  # reading the frames says what is wrong
        with importing():
            import zstandard
            from mcap.records import Metadata
            from mcap.stream_reader import StreamReader

        with reading(path):
            plain = zstandard.ZstdDecompressor().stream_reader(stream) if path.suffix == ZSTD else stream
            for record in islice(StreamReader(plain, emit_chunks=True, record_size_limit=MAX_BYTES).records, 2):
                if isinstance(record, Metadata) and record.name == METADATA:
                    return dict(record.metadata)
    return {}


def recorded_lens(path: Path, topic: str = "", max_bytes: int = MAX_BYTES) -> LensCalibration:
    """Read the first lens calibration of the images on a topic of a recording.

    Raises:
        SourceError: There is no lens calibration, more than one topic with any, or an unusable one.
    """
    if not path.exists() or not is_recording(path):
        raise SourceError(f"{path} is not a recording with a lens calibration: name a YAML file")
    with open_source(path, topic, max_bytes=max_bytes, kinds=(CAMERA_INFO,)) as source:
        try:
            return messages.lens_of(messages.decode_camera_info(next(source.records).message()))
        except (StopIteration, FrameError) as err:
            reason = str(err) or "there is no message"
            raise SourceError(f"the lens calibration on {printable(source.topic)} of {path}: {reason}") from err
