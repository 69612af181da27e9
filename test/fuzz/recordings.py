"""Target: recordings and pictures."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple
from typing import Counter as Counts

import cv2
import numpy as np
from mcap.reader import make_reader
from rosbags.rosbag1 import Reader

from fuzz import cdr, containers
from fuzz.containers import COMPRESSED, IMAGE, START, TOPIC
from fuzz.engine import Case, Target, WrongError, refused
from fuzz.messages import _MAKERS as MESSAGES
from fuzz.mutate import Writer, mutated
from polar_pipeline import Pipeline, messages
from polar_pipeline.replay.compare import Comparison, Golden, format_rows, open_golden
from polar_pipeline.replay.limits import SourceError
from polar_pipeline.replay.rawpicture import read_raw
from polar_pipeline.replay.rawzstd import compress_raw
from polar_pipeline.replay.recompress import compress_recording
from polar_pipeline.replay.run import replay
from polar_pipeline.replay.sink import open_sink
from polar_pipeline.replay.source import Recorded, open_source
from polar_pipeline.sensor.frames import FrameError

#: Bytes that a frame and a recording's chunks may have here.
LIMIT = 8 << 20
#: Records of one recording that are looked at.
_RECORDS = 40
_CAUSES = ("cdr", "file", "size", "type", "encoding", "step", "truncated", "reference")
_PICTURES = ("png", "tif", "pgm", "jpg", "npy")
_KINDS = ["mcap"] * 6 + ["golden"] * 2 + ["bag"] * 4 + ["db3"] * 4 + ["yaml"] * 2 + list(_PICTURES)
_PRODUCTS = ((b"/polarization/dolp", "f4"), (b"/ns/polarization/aolp", "u1"), (b"/intensity", "u1"))


def _image(index: int, dtype: str = "u1", encoding: str = "mono8") -> bytes:
    return bytes(messages.encode_image(START + index * 10**8, "cam", encoding, containers.smooth(index, dtype)))


class Recordings(Target):
    """Every kind of recording, golden recordings and pictures, through `open_source`, `read_raw` and `replay`."""

    name = "recordings"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._images = [_image(k) for k in range(4)]
        self._png = bytes(cv2.imencode(".png", containers.smooth(0))[1])
        self._jpegs = [
            bytes(cv2.imencode(".jpg", containers.smooth(0), flags)[1])
            for flags in ([], [cv2.IMWRITE_JPEG_PROGRESSIVE, 1], [cv2.IMWRITE_JPEG_RST_INTERVAL, 1])
        ]
        self._float = bytes(messages.encode_float32(0.5))
        self._pipeline = Pipeline(products=("dolp",), backend="cpu", threads=1)
        good = self._rows(random.Random(0), False)
        (folder / "data.db3").write_bytes(containers.database(good, 0))
        (folder / "data.db3.zstd").write_bytes(containers.packed("zstd", containers.database(good, 0)))
        with open_sink(folder / "data.mcap", {}) as sink:
            for time_ns, _, data in good[:3]:
                sink.write(TOPIC.decode(), IMAGE.decode(), time_ns, data)
        self._good = good

    def _rows(self, rng: random.Random, is_free: bool = True) -> Tuple[Tuple[int, int, bytes], ...]:
        """Messages of images, and one of another type."""
        rows: List[Tuple[int, int, bytes]] = []
        for k in range(3):
            time_ns = START + k * 10**8
            data = self._images[k]
            if is_free and rng.random() < 0.15:
                data = mutated(rng, MESSAGES["image"](rng), 0.3)
            if is_free and rng.random() < 0.1:
                time_ns = rng.choice((0, 1, START, 2**63 - 1, 2**31 * 10**9 - 1))
            rows.append((time_ns, 1, data))
        rows.append((START, 2, self._float))
        return tuple(rows)

    def make(self, rng: random.Random) -> Case:
        kind = rng.choice(_KINDS)
        return Case(kind, getattr(self, f"_make_{kind}")(rng))

    def _make_mcap(self, rng: random.Random) -> bytes:
        rows = self._rows(rng)
        topics = [(TOPIC, IMAGE), (b"/other", b"std_msgs/msg/Float32")]
        if rng.random() < 0.15:
            rows = (*((time_ns, channel, self._compressed(rng)) for time_ns, channel, _ in rows[:3]), rows[3])
            topics[0] = (TOPIC, COMPRESSED)
        return mutated(rng, containers.mcap(rng, rows, topics), 0.3)

    def _compressed(self, rng: random.Random) -> bytes:
        picture = rng.choice((self._png, self._jpegs[0], bytes(containers.png(rng).data), b""))
        text = rng.choice(("png", "jpeg", "mono16; png compressed ", "\x1b[2J"))
        if rng.random() < 0.3:
            raw = compress_raw(messages.decode_image(self._images[0]))
            picture, text = mutated(rng, Writer("<", raw), 0.5), "mono8; polar_zstd"
        frame = rng.choice(("cam", "cam", "cam", "x" * 3000))
        return bytes(messages.encode_compressed(START, frame, text, np.frombuffer(picture, np.uint8)))

    def _make_golden(self, rng: random.Random) -> bytes:
        rows = []
        for k in range(3):
            for channel, (_, dtype) in enumerate(_PRODUCTS, 1):
                data = _image(k, dtype, "32FC1" if dtype == "f4" else "mono8")
                if rng.random() < 0.02:
                    data = mutated(rng, MESSAGES["image"](rng), 0.3)
                rows.append((START + k * 10**8, channel, data))
            rows.append((START + k * 10**8, 4, self._float))
        topics = [*((topic, IMAGE) for topic, _ in _PRODUCTS), (b"/quality/ssim", b"std_msgs/msg/Float32")]
        return mutated(rng, containers.mcap(rng, rows, topics), 0.3)

    def _make_bag(self, rng: random.Random) -> bytes:
        rows = []
        for k in range(3):
            writer = MESSAGES["ros1"](rng)
            rows.append((START + k * 10**8, 1, mutated(rng, writer, 0.8)))
        topics = [(TOPIC, IMAGE), (b"/other", b"std_msgs/msg/Float32")]
        return mutated(rng, containers.bag(rng, [*rows, (START, 2, bytes(4))], topics), 0.3)

    def _make_db3(self, rng: random.Random) -> bytes:
        return mutated(rng, containers.sqlite(rng, self._good), 0.3)

    def _make_yaml(self, rng: random.Random) -> bytes:
        return containers.metadata(rng)

    def _make_png(self, rng: random.Random) -> bytes:
        return mutated(rng, containers.png(rng), 0.5)

    def _make_tif(self, rng: random.Random) -> bytes:
        return mutated(rng, containers.tiff(rng), 0.3)

    def _make_pgm(self, rng: random.Random) -> bytes:
        return mutated(rng, containers.pgm(rng), 0.6)

    def _make_jpg(self, rng: random.Random) -> bytes:
        return mutated(rng, containers.jpeg(rng, self._jpegs), 0.2)

    def _make_npy(self, rng: random.Random) -> bytes:
        return mutated(rng, containers.npy(rng), 0.6)

    def run(self, case: Case) -> str:
        if case.kind == "yaml":
            path = self.folder
            file = path / "metadata.yaml"
        else:
            path = file = self.folder / f"in.{case.kind}"
        file.write_bytes(case.data)
        try:
            if case.kind == "golden":
                return _documented(path, lambda: _read_golden(path))
            if case.kind == "jpg":  # taken as one picture, but not in a folder
                return _check_picture(path)
            found = _documented(path, lambda: _read(path))
            if found == "accepted" and case.kind in ("mcap", "bag"):
                _compare(path)
            if zlib.crc32(case.data) % 4 == 0:
                _documented(path, lambda: self._replay(path))
            if zlib.crc32(case.data) % 4 == 1 and case.kind in ("mcap", "db3"):
                _documented(path, lambda: self._recompress(path))
            if case.kind in _PICTURES:
                _check_picture(path)
        finally:
            file.unlink()
        return found

    def _replay(self, path: Path) -> str:
        out = self.folder / "out.mcap"
        try:
            with open_source(path, max_bytes=LIMIT) as source, open_sink(out, {}) as sink:
                summary = replay(islice(source.records, _RECORDS), source.total, self._pipeline, sink)
        finally:
            if out.exists():
                out.unlink()
        for cause, row in summary.rejected.items():
            _check_text(cause, row.reason)
        return "accepted"

    def _recompress(self, path: Path) -> str:
        """A copy with compressed images holds the same ones."""
        small = self.folder / "small.mcap"
        compress_recording(path, small, force=True, max_bytes=LIMIT)
        want = _messages(path)
        if want and _messages(small) != want:  # a file may state messages that it lacks
            raise WrongError("images differ in the compressed recording")
        return "accepted"


def _documented(path: Path, read: Callable[[], str]) -> str:
    try:
        return read()
    except SourceError as err:
        text = str(err)
        if str(path) not in text or not text.isprintable() or len(text) > 1000:
            raise WrongError(f"a message that does not name the file, or is too long: {text[:300]!r}") from err
        return refused(err)


def _messages(path: Path) -> List[Tuple[int, Any]]:
    """Times and messages of a recording; None for what is no image."""
    found: List[Tuple[int, Any]] = []
    with open_source(path, max_bytes=LIMIT) as source:
        for record in source.records:
            try:
                found.append((record.time_ns, messages.decode_image(record.cdr()).data.tobytes()))
            except FrameError:  # noqa: PERF203
                found.append((record.time_ns, None))
    return sorted(found, key=lambda row: row[0])


def _check_text(cause: str, text: str) -> None:
    if cause not in _CAUSES:
        raise WrongError(f"cause {cause} is not documented")
    if not text.isprintable() or len(text) > 2000:
        raise WrongError(f"a message of {len(text)} characters, or not printable: {text[:300]!r}")


def _read(path: Path) -> str:
    causes: Counts[str] = Counter()
    with open_source(path, max_bytes=LIMIT) as source:
        for record in islice(source.records, _RECORDS):
            try:
                image = record.image()
            except FrameError as err:
                _check_text(err.cause, str(err))
                refused(err)
                causes[err.cause] += 1
                continue
            causes["accepted"] += 1
            _check_record(record, image)
    return "accepted" if causes["accepted"] else f"refused: {next(iter(causes), 'no frames')}"


def _check_record(record: Recorded, image: Any) -> None:
    """An image is what its message says, and can be passed on."""
    if not 0 <= image.stamp_ns < 2**31 * 10**9:
        raise WrongError(f"a stamp of {image.stamp_ns} ns")
    if len(image.frame_id) > messages.MAX_NAME and not isinstance(record.data, Path):
        raise WrongError(f"a frame_id of {len(image.frame_id)} characters")
    if record.kind == IMAGE.decode() and record.encoding == "cdr":
        try:
            fields = cdr.parse("image", bytes(record.data)).fields
        except cdr.NotCdrError as err:
            raise WrongError(f"what is no image is taken for one: {err}") from err
        if fields["data"] != image.data.tobytes():
            raise WrongError("pixels differ from the message's")
    try:
        want = messages.to_raw(image).unpack()
    except FrameError as err:
        _check_text(err.cause, str(err))
        try:
            record.cdr()  # the recorded bytes, whatever they are
        except FrameError as again:
            _check_text(again.cause, str(again))
        return
    got = messages.to_raw(messages.decode_image(record.cdr())).unpack()
    if got.full_scale != want.full_scale or not np.array_equal(got.mosaic, want.mosaic):
        raise WrongError("pixels differ in the message that is passed on")


def _read_golden(path: Path) -> str:
    with open_golden(path, LIMIT) as golden:
        for name, stamps in golden.places.items():
            for stamp_ns, places in list(stamps.items())[:_RECORDS]:
                golden.load(name, stamp_ns, len(places) - 1)
                if name == "intensity":
                    try:
                        golden.intensity(stamp_ns)
                    except FrameError as err:
                        _check_text(err.cause, str(err))
        _compare_golden(golden)
    return "accepted"


def _compare_golden(golden: Golden) -> None:
    """What a comparison says to have passed is what the recording holds."""
    got = {name: np.full((16, 18), 0.5, np.float32) for name in ("dolp", "aolp")}
    stamps = list(golden.places.get("dolp", {}))[:_RECORDS]
    comparison = Comparison(golden, tuple(got))
    for stamp_ns in stamps:
        comparison.add(stamp_ns, got)
    rows = comparison.rows()
    format_rows(rows)
    for row in rows:
        images = [golden.load(row.name, stamp_ns) for stamp_ns in stamps]
        is_alike = all(image is not None and image.shape == (16, 18) and image.dtype == np.float32 for image in images)
        if row.passed and not (images and is_alike):
            raise WrongError(f"{row.name} passes without being like it: {row}")


def _compare(path: Path) -> None:
    """Other readers of mcap and of bags find the same messages, if they can read the file."""
    with open_source(path, max_bytes=LIMIT) as source:
        got: Counts[Any] = Counter((record.time_ns, bytes(record.data)) for record in source.records)  # type: ignore[arg-type]
        topic = source.topic
    try:
        want = Counter(_others(path, topic))
    except Exception:  # noqa: BLE001 - whatever they raise, they have no opinion
        return
    if want - got:  # others leave messages out where a file contradicts itself
        raise WrongError(f"{sum(got.values())} messages on {topic[:50]!r}, another reader finds {sum(want.values())}")


def _others(path: Path, topic: str) -> List[Tuple[int, bytes]]:
    if path.suffix == ".mcap":
        reader = make_reader(BytesIO(path.read_bytes()), validate_crcs=True)
        kinds = (IMAGE.decode(), COMPRESSED.decode())
        rows = reader.iter_messages(topics=[topic])
        return [(message.log_time, message.data) for schema, _, message in rows if schema and schema.name in kinds]
    with Reader(path) as bag:
        connections = [row for row in bag.connections if row.topic == topic]
        return [(time_ns, bytes(data)) for _, time_ns, data in bag.messages(connections=connections)]


def _check_picture(path: Path) -> str:
    """A picture has the size that its header states; gives back the outcome."""
    try:
        pixels = read_raw(path, LIMIT)
    except FrameError as err:
        _check_text(err.cause, str(err))
        if path.name not in str(err):
            raise WrongError(f"a message that does not name the file: {err}") from err
        return refused(err, err.cause)
    data = path.read_bytes()
    sizes: Dict[str, Callable[[], Tuple[int, ...]]] = {
        ".png": lambda: (int.from_bytes(data[20:24], "big"), int.from_bytes(data[16:20], "big")),
        ".npy": lambda: tuple(np.load(path, allow_pickle=False).shape),
    }
    if path.suffix in sizes and pixels.shape != sizes[path.suffix]():
        raise WrongError(f"a picture of {pixels.shape}, its header says {sizes[path.suffix]()}")
    if pixels.nbytes > LIMIT or pixels.dtype not in (np.uint8, np.uint16):
        raise WrongError(f"a picture of {pixels.nbytes} bytes, {pixels.dtype}")
    return "accepted"
