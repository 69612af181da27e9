"""Raw images and lens calibrations from recordings: rosbag2, ROS 1 bags, and files of pixels."""

from __future__ import annotations

import json
import logging
import re
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Optional,
    Set,
    Tuple,
    TypeVar,
    Union,
)

from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.imports import importing
from polar_pipeline._util.paths import AnyPath, as_path
from polar_pipeline._util.text import described, printable, quoted
from polar_pipeline.geometry import LensCalibration
from polar_pipeline.options.topics import camera_info_beside, own_outputs
from polar_pipeline.quality.frame_checks import log_warnings
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.angle_files import frame_files, is_pattern, pictures_in
from polar_pipeline.recordings.bag_names import BAG_METADATA, bag_files, is_bag_file, is_zstd, plain_name
from polar_pipeline.recordings.compressed import ZSTD_MAGIC, decompress_image
from polar_pipeline.recordings.contents import NOTHING_STATED, Stated
from polar_pipeline.recordings.limits import MAX_BYTES, SourceError, check_size, reading
from polar_pipeline.recordings.messages import CAMERA_INFO, COMPRESSED, IMAGE, CameraInfo, Cdr, ImageMessage
from polar_pipeline.recordings.pixel_files import FrameSource
from polar_pipeline.recordings.rawpicture import CAMERA_METADATA, camera_beside, checked_picture
from polar_pipeline.recordings.rawzstd import TRANSPORT, load_zstandard
from polar_pipeline.recordings.rosbag2 import open_recording
from polar_pipeline.sensor.frames import FrameError
from polar_pipeline.sensor.mosaic import ANGLES

if TYPE_CHECKING:  # needs the extra `recordings`, without which pictures can be read too
    from polar_pipeline.recordings.bags import Bag, Key

_LOG = logging.getLogger(__name__)
#: An item of a recording.
Item = TypeVar("Item")
#: Types of the messages that are raw images.
IMAGES = (IMAGE, COMPRESSED)
#: Frames per second of a folder unless a rate is given: the camera's.
DEFAULT_RATE = 24.0
#: Lowest and highest rate of a folder.
RATES = (1e-3, 1e6)
#: Name of the metadata that this package writes at the beginning of a recording.
METADATA = "polar_pipeline"
#: Maximum number of topics that an error lists.
_MAX_LISTED = 20
#: A number in a topic's name that can be an angle, and how many of a name are looked at.
_NUMBER, _MAX_NUMBERS = re.compile("(?<![0-9])[0-9]{1,3}(?![0-9])"), 4


@dataclass(frozen=True)
class Recorded:
    """One raw image, or lens calibration, as recorded, not decoded yet."""

    time_ns: int  # time of recording
    message_type: str  # "" for a file
    #: The message in CDR, which may be compressed by zstd; what reads a file; or why it cannot be read.
    data: Union[bytes, memoryview, Callable[[], ImageMessage], FrameError]
    max_bytes: int = MAX_BYTES  # largest size of the image
    #: The newest lens calibration, or the one with the image's stamp; before the first, the first. None without any.
    camera_info: Optional[CameraInfo] = None
    #: State of the camera, as in `CAMERA_FILE` beside a file or in the metadata of a recording; {} without one.
    camera: Mapping[str, object] = field(default_factory=dict)

    def image(self) -> ImageMessage:
        """Decode the image; its stamp is the recorded time if it has none, or one before 1970.

        Raises:
            FrameError: The message cannot be decoded (causes `cdr`, `encoding`, `file`, `size`, `type`).
        """
        if callable(self.data):
            image = self.data()
        elif self.message_type == IMAGE:
            image = messages.decode_image(self.message())
        else:
            image = decompress_image(self.message(), self.max_bytes)
        if 0 < image.stamp_ns <= messages.LAST_STAMP:
            return image
        if not 0 <= self.time_ns <= messages.LAST_STAMP:
            raise FrameError("cdr", f"stamped {image.stamp_ns} ns and recorded at {self.time_ns} ns, neither is a time")
        return replace(image, stamp_ns=self.time_ns)

    def cdr(self) -> bytes:
        """Serialize the image as `sensor_msgs/Image`, or return the recorded bytes of an image or a lens calibration.

        Warnings about the file or the compressed message are logged; errors are those of `image`.
        """
        if self.message_type in (IMAGE, CAMERA_INFO):
            message = self.message()
            (messages.decode_image if self.message_type == IMAGE else messages.decode_camera_info)(message)
            return bytes(message)
        image = self.image()
        log_warnings(image.warnings)
        return bytes(messages.encode_message(image))

    def message(self) -> Cdr:
        """Return the message in CDR, uncompressed.

        Raises:
            FrameError: The message cannot be read (causes `cdr`, `size`).
        """
        if isinstance(self.data, FrameError):
            raise self.data
        if callable(self.data):
            raise TypeError("a file is not a message")
        check_size("a message", len(self.data), self.max_bytes)
        if bytes(self.data[:4]) != ZSTD_MAGIC:  # else a recorder compressed it; CDR begins with 0
            return self.data
        zstandard = load_zstandard()
        try:
            check_size("a message", zstandard.frame_content_size(self.data), self.max_bytes)
            return zstandard.ZstdDecompressor().decompress(self.data, max_output_size=self.max_bytes)
        except (zstandard.ZstdError, MemoryError) as err:
            raise FrameError("cdr", f"{len(self.data)} bytes cannot be decompressed: {described(err)}") from err


@dataclass(frozen=True)
class Source:
    """An open recording, with the topic of its images (the path for a folder) and their number.

    The iterator `records` yields them in the order of recording, and raises `SourceError` where the recording is
    damaged. `has_times` is whether stamps mean something: those of files without a rate do not.
    """

    topic: str
    total: int
    records: Iterator[Recorded]
    has_times: bool = True


def is_recording(path: Path) -> bool:
    """Return whether a source holds messages, which have times and a topic, instead of pictures."""
    if path.suffix.lower() == ".bag" or is_bag_file(path) or (path / BAG_METADATA).exists():
        return True
    return path.is_dir() and not pictures_in(path) and bool(bag_files(path))  # left by a recorder that was killed


def recording_of(path: Path) -> Path:
    """Return the rosbag2 folder around a `.db3` file that lies in one, else the path itself."""
    is_part = plain_name(path).lower().endswith(".db3") and (path.parent / BAG_METADATA).exists()
    return path.parent if is_part else path


@contextmanager
def open_source(
    path: AnyPath,
    topic: str = "",
    rate: Optional[float] = None,
    max_bytes: int = MAX_BYTES,
    allow_truncated: bool = True,
    stated: Stated = NOTHING_STATED,
) -> Iterator[Source]:
    """Open a recording. Its images have the lens calibrations that were recorded with them.

    Lens calibrations that cannot be decoded are logged.

    Args:
        path: A rosbag2 folder, also one without `metadata.yaml`, as a recorder that was killed leaves it; an `.mcap` or
            `.db3` file, compressed as `.mcap.zstd` or not; a ROS 1 `.bag`; a file with frames (`SUFFIXES`), `-` for one
            from the standard input, a folder of files, which have the natural order of their names (2 before 10), or a
            pattern (`files_of_pattern`).
        topic: Topic of the raw images, or that of what was compressed from them (`rawzstd`); "" for the only one.
            Pictures have none.
        rate: Frames per second of files, in `RATES`; the first is stamped one period after 0. None: they have no times,
            and stamps as of `DEFAULT_RATE`.
        max_bytes: Largest size of one frame, and of an uncompressed chunk.
        allow_truncated: Whether files that were cut off are read up to their last complete chunk, or left out.
        stated: How to read files that do not state it themselves.

    Raises:
        SourceError: There is no such recording, it cannot be read, or the topic is not clear.
        ValueError: The rate is out of range.
    """
    if rate is not None and not RATES[0] <= rate <= RATES[1]:
        raise ValueError(f"the rate must be in [{RATES[0]:g}, {RATES[1]:g}] Hz, got {quoted(rate)}")
    path = recording_of(as_path(path))
    if not path.exists() and str(path) != "-" and not is_pattern(str(path)):
        raise SourceError(f"{path} does not exist")
    with ExitStack() as stack:
        with reading(path):
            if is_recording(path):
                if stated != NOTHING_STATED:
                    raise SourceError(f"{path} states what its images are: --content, --raw and the like are for files")
                recording = stack.enter_context(open_recording(path, max_bytes, allow_truncated))
                key = choose_topic(path, recording, topic)
                info_key = _camera_info_topic(recording, key, max_bytes)
                first_info = _first_message(recording, info_key, max_bytes) if info_key else None
                rows = recording.messages([key, info_key] if info_key else [key])
                camera = _recorded_camera(path)
                recorded = (
                    Recorded(time_ns, message_type, data, max_bytes, camera=camera)
                    for message_type, time_ns, data in rows
                )
                records = _with_camera_infos(recorded, first_info)
                source = Source(key[0], recording.topics[key], records)
            else:
                source = _open_pictures(path, topic, rate, max_bytes, stated)
        with closing(checked(path, source.records)) as records:
            yield replace(source, records=records)


def checked(path: Path, records: Iterator[Item]) -> Generator[Item, None, None]:
    """Yield the records of a file, with damage reported as `SourceError`."""
    with reading(path, "is damaged"):
        yield from records


def _with_camera_infos(records: Iterable[Recorded], first: Optional[bytes]) -> Iterator[Recorded]:
    """Yield the images among images and lens calibrations, each with its calibration; `first` is the first one.

    Drivers publish a calibration before or after its image, with the same stamp: an image waits for the next message.
    """
    waiting: Optional[Recorded] = None
    states_regions = False
    newest = None if first is None else messages.decode_camera_info(first)
    for record in records:
        if record.message_type != CAMERA_INFO:
            if waiting is not None:
                yield waiting
            waiting = replace(record, camera_info=newest)
            continue
        try:
            info = messages.decode_camera_info(record.message())
        except FrameError as err:
            _LOG.warning("camera_info: %s", err)
            continue
        newest = replace(info, is_whole=states_regions)
        states_regions |= info.states_region
        if waiting is not None and _stamp(waiting) == newest.stamp_ns:
            waiting = replace(waiting, camera_info=newest)
    if waiting is not None:
        yield waiting


def _stamp(record: Recorded) -> Optional[int]:
    """Return the stamp of a message; None if it cannot be read."""
    with suppress(FrameError):
        return messages.peek_stamp(record.message())
    return None


def without_progress(records: Iterable[Item], _: int) -> Iterable[Item]:
    """Return the records: the default in place of a function that shows progress."""
    return records


def _images(path: Path, recording: Bag, message_types: Tuple[str, ...] = IMAGES) -> Tuple[Dict[str, str], Set[str]]:
    """Return the topics of raw images in a recording with their types, and the topics that are own outputs."""
    outputs = own_outputs({topic for topic, _ in recording.topics}, bool(recorded_metadata(path)))
    rows = [
        (message_types.index(message_type), topic)
        for (topic, message_type), count in recording.topics.items()
        if count and message_type in message_types
    ]
    # the first type counts where a topic has several
    return {topic: message_types[place] for place, topic in sorted(rows, reverse=True) if topic not in outputs}, outputs


def choose_topic(path: Path, recording: Bag, requested: str, message_types: Tuple[str, ...] = IMAGES) -> Key:
    """Choose the topic of the raw images in a recording; returns it with its type.

    Raises:
        SourceError: There is no such topic, it is not clear, or it is an output of this package.
    """
    images, outputs = _images(path, recording, message_types)
    names = (requested, f"{requested}/{TRANSPORT}") if requested else images if len(images) == 1 else ()
    name = next((topic for topic in names if topic in images), None)
    if name is None:
        raise SourceError(_explain_topics(path, recording, requested, message_types, images, outputs))
    if own_outputs([name], is_own=True):
        _LOG.warning("%s of %s has the name of an output of polar_pipeline; is it raw images?", printable(name), path)
    angles = _angle_topics(images, name) if COMPRESSED in message_types else ""  # for `compress` images are images
    if angles:
        _LOG.warning("%s of %s is read as mosaics%s", printable(name), path, angles)
    types = [message_type for (topic, message_type), count in recording.topics.items() if count and topic == name]
    if len(types) > 1:
        types.remove(images[name])
        text = "%s has messages of several types on %s: those of %s are read, not %s"
        _LOG.warning(text, path, printable(name), images[name], ", ".join(map(printable, types)))
    return name, images[name]


def _angle_topics(images: Iterable[str], name: str = "") -> str:
    """Return what an error adds if topics, one of them of this name, are four angle images by their names; else ""."""
    rows: Dict[str, Dict[int, str]] = {}
    for topic in images:  # names can be long
        for number in islice(_NUMBER.finditer(topic), _MAX_NUMBERS):
            around = f"{topic[: number.start()]} {topic[number.end() :]}"
            rows.setdefault(around, {})[int(number.group())] = topic
    groups = ([row[angle] for angle in ANGLES] for row in rows.values() if sorted(row) == list(ANGLES))
    group = next((topics for topics in groups if not name or name in topics), [])
    listed = ", ".join(map(printable, group))
    advice = "are four angle images by their names, which are read from files: save them as pictures of such names"
    return f"; {listed} {advice}" if group else ""


def holds_products(path: Path, max_bytes: int = MAX_BYTES) -> bool:
    """Return whether a recording holds outputs of this package, and no raw images.

    Raises:
        SourceError: The recording cannot be read.
    """
    path = recording_of(path)
    if not (path.exists() and is_recording(path)):
        return False
    with reading(path), open_recording(path, max_bytes, allow_truncated=True) as recording:
        images, outputs = _images(path, recording)
        return bool(outputs) and not images


def _explain_topics(
    path: Path, recording: Bag, requested: str, message_types: Tuple[str, ...], images: Iterable[str], outputs: Set[str]
) -> str:
    """Explain why no topic can be chosen, with the topics that the recording has."""
    if requested in outputs or (outputs and not requested and not images):
        names = ", ".join(map(printable, sorted(images)[:_MAX_LISTED]))
        advice = f"name its raw images: {names}" if names else "name the recording of the raw images"
        return f"{printable(requested)}{' of ' if requested else ''}{path} is an output of polar_pipeline; {advice}"
    rows = sorted(
        (message_type not in message_types, topic, message_type)
        for (topic, message_type), count in recording.topics.items()
        if count
    )
    listed = [
        _described_topic(recording, topic, message_type, topic in outputs)
        for _, topic, message_type in rows[:_MAX_LISTED]
    ]
    foreign = sorted({message_type.rpartition(" in ")[2] for _, _, message_type in rows if " in " in message_type})
    text = f"; it has: {', '.join(listed) or 'no messages'}{', ...' if len(rows) > _MAX_LISTED else ''}"
    if foreign:
        text += f"; messages in {printable(', '.join(foreign))} cannot be read: convert them to those of ROS"
    text += _angle_topics(images)
    if requested:
        return f"{path} has no images on {printable(requested)}{text}"
    return f"{path} must hold one topic of images, or --topic say which{text}"


def _described_topic(recording: Bag, topic: str, message_type: str, is_output: bool) -> str:
    """Return a topic with its type and, for images, the encoding of the first message."""
    details = [message_type or "no type"]
    with suppress(Exception):  # a message that cannot be read has no encoding to show
        if message_type in IMAGES:
            _, _, data = next(recording.messages([(topic, message_type)]))
            cdr = Recorded(0, message_type, data).message()
            is_raw = message_type == IMAGE
            encoding = messages.decode_image(cdr).encoding if is_raw else messages.decode_compressed(cdr).format
            details.append(encoding or "no encoding")
    details += ["an output of polar_pipeline"] if is_output else []
    return f"{printable(topic)} ({printable(', '.join(details))})"


def _open_pictures(path: Path, topic: str, rate: Optional[float], max_bytes: int, stated: Stated) -> Source:
    """Open a picture, a folder of pictures, or the files of a pattern."""
    files, named = frame_files(path, stated)
    if topic:
        raise SourceError(f"{path} holds pictures, which have no topic; got {printable(topic)}")
    sources = [FrameSource(each, stated, max_bytes, named.get(each.files[0])) for each in files]
    folders = dict.fromkeys(source.path.parent for source in sources if str(path) != "-")
    cameras = {folder: camera_beside(folder) for folder in folders}
    frames = chain.from_iterable(
        _frames_of(source, cameras.get(source.path.parent, {}), max_bytes) for source in sources
    )
    records = (
        replace(frame, time_ns=round(number * 1e9 / (rate or DEFAULT_RATE))) for number, frame in enumerate(frames, 1)
    )
    return Source(str(path), sum(map(len, sources)), records, has_times=rate is not None)


def _frames_of(source: FrameSource, camera: Mapping[str, object], max_bytes: int) -> Iterator[Recorded]:
    """Yield each frame of a file: a single one is read when it is asked for, those of a stack before."""
    images: Iterable[Callable[[], ImageMessage]]
    if len(source) == 1:
        images = [lambda: checked_picture(next(source.messages()), source.path, camera)]
    else:
        images = (partial(checked_picture, image, source.path, camera) for image in source.messages())
    yield from (Recorded(0, "", image, max_bytes, camera=camera) for image in images)


# ---------------------------------------------------------------------------------------------------- lens calibrations


def _camera_info_topic(recording: Bag, key: Key, max_bytes: int) -> Optional[Key]:
    """Choose the topic of the lens calibration of images on a topic; None if there is none.

    It is the one beside the topic, or the only one of the images' `frame_id`: others are of another camera.
    """
    images = key[0]
    outputs = own_outputs(topic for topic, _ in recording.topics)
    rows = recording.topics.items()
    infos = [
        topic for (topic, message_type), count in rows if message_type == CAMERA_INFO and count and topic not in outputs
    ]
    is_transported = (images, COMPRESSED) in recording.topics and (images, IMAGE) not in recording.topics
    beside = camera_info_beside(images.rpartition("/")[0] if is_transported else images)
    if beside in infos:
        return beside, CAMERA_INFO
    if len(infos) != 1:
        return None
    info_key = (infos[0], CAMERA_INFO)
    image, info = (_first_message(recording, each, max_bytes) for each in (key, info_key))
    frame_id = messages.decode_image(image).frame_id.lstrip("/") if image else ""
    other = messages.decode_camera_info(info).frame_id.lstrip("/") if info else ""
    is_only = sum(message_type in IMAGES and topic not in outputs for topic, message_type in recording.topics) == 1
    if frame_id == other and (frame_id or is_only):
        return info_key
    text = "%s is not used for %s, as it may be of another camera: its frame_id is %s, that of the images %s"
    _LOG.warning(text, printable(infos[0]), printable(images), quoted(other), quoted(frame_id))
    return None


def _first_message(recording: Bag, key: Key, max_bytes: int) -> Optional[bytes]:
    """Return the first image or lens calibration on a topic that can be decoded, as `Recorded.cdr`; or None."""
    for message_type, time_ns, data in recording.messages([key]):
        with suppress(FrameError):
            return Recorded(time_ns, message_type, data, max_bytes).cdr()
    return None


def first_camera_info(path: Path, topic: str = "", max_bytes: int = MAX_BYTES) -> Optional[CameraInfo]:
    """Return the lens calibration of the first mosaic on a topic; None without one, or if there is no such topic."""
    if is_recording(path):
        with suppress(SourceError), open_source(path, topic, max_bytes=max_bytes) as source:
            for record in source.records:
                with suppress(FrameError):
                    return record.camera_info if messages.has_mosaic(record.image().encoding) else None
    return None


def recorded_metadata(path: Path) -> Dict[str, str]:
    """Return the metadata of this package at the beginning of an mcap file, compressed by zstd or not; {} without."""
    if not plain_name(path).lower().endswith(".mcap") or not path.is_file():
        return {}
    with suppress(ImportError, SourceError), path.open("rb") as stream:  # reading the frames says what is wrong
        with importing():
            import zstandard
            from mcap.records import Metadata
            from mcap.stream_reader import StreamReader

        with reading(path):
            plain = zstandard.ZstdDecompressor().stream_reader(stream) if is_zstd(path) else stream
            for record in islice(StreamReader(plain, emit_chunks=True, record_size_limit=MAX_BYTES).records, 2):
                if isinstance(record, Metadata) and record.name == METADATA:
                    return dict(record.metadata)
    return {}


def _recorded_camera(path: Path) -> Dict[str, object]:
    """Return the state of the camera in the metadata of a recording; {} without one that can be read."""
    with suppress(RecursionError, ValueError):  # commands that need it say what is wrong
        rows = json.loads(recorded_metadata(path).get(CAMERA_METADATA, "{}"))
        return rows if isinstance(rows, dict) else {}
    return {}


def recorded_lens(path: Path, topic: str = "", max_bytes: int = MAX_BYTES) -> LensCalibration:
    """Read the lens calibration of the first image on a topic of a recording.

    Raises:
        SourceError: The recording cannot be read, or has no usable lens calibration, or several topics of them.
    """
    with open_source(path, topic, max_bytes=max_bytes) as source:
        info = next((record.camera_info for record in source.records), None)
        if info is None:
            raise SourceError(f"{path} must hold one topic of camera_info, or one beside the images: name a YAML file")
        with errors_as(lambda text: SourceError(f"the lens calibration of {path}: {text}"), FrameError):
            return replace(messages.lens_of(info), is_recorded=True)
