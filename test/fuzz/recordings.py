"""Target: recordings and compressed raw images, each compared with what another reader finds."""

from __future__ import annotations

import random
import zlib
from itertools import islice
from pathlib import Path
from typing import Any, List

import numpy as np
from raw_zstd_decoder import FIELDS, expanded
from rosbags.rosbag2 import Reader, ReaderError

from fuzz import cdr, containers
from fuzz.cases import Case, WrongError, refused, same
from fuzz.messages import image_fields, made
from fuzz.mutate import Writer, mutated
from polar_pipeline import Pipeline
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.messages import IMAGE
from polar_pipeline.recordings.rawzstd import compress_raw, decompress_raw
from polar_pipeline.recordings.recompress import compress_recording
from polar_pipeline.recordings.source import Recorded, open_source
from polar_pipeline.replay.run import replay
from polar_pipeline.sensor.frames import FrameError

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
#: Bytes that a frame and a recording's chunks may have here.
LIMIT = 8 << 20
START = 1_700_000_000_000_000_000
#: Records of one recording that are looked at.
_RECORDS = 40
_CAUSES = ("cdr", "file", "size", "type", "encoding", "step", "truncated")


def _image(index: int) -> bytes:
    y, x = np.mgrid[:16, :18]
    array = (100 + 50 * np.sin((x + 3 * index) / 9) * np.cos(y / 7)).astype(np.uint8)
    return bytes(messages.encode_image(START + index * 10**8, "cam", "mono8", array))


class Recordings:
    """mcap files, databases, ROS 1 bags and compressed raw images; the corpus has `metadata.yaml` too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pipeline = Pipeline(products=("dolp",), backend="cpu", threads=1)
        self._others = [Case(kind, (CORPUS / "recordings" / f"valid.{kind}").read_bytes()) for kind in ("db3", "bag")]
        (folder / "data.db3").write_bytes(self._others[0].data)
        images = [(START + k * 10**8, "/images", IMAGE, _image(k)) for k in range(3)]
        self._good = (*images, (START, "/other", messages.FLOAT32, bytes(messages.encode_float32(0.5))))

    def make(self, rng: random.Random) -> Case:
        """An input; it depends on `rng` alone."""
        near = rng.random()
        if near < 0.6:
            writer = containers.mcap(rng, self._rows(rng))
            is_valid = rng.random() < 0.3
            return Case("valid.mcap", bytes(writer.data)) if is_valid else Case("mcap", mutated(rng, writer, 0.2))
        if near < 0.7:
            other = rng.choice(self._others)
            return Case(other.kind, mutated(rng, Writer("<", other.data), 0.0))
        fields = {**image_fields(rng), "sec": 1, "nanosec": 1, "frame_id": b"", "encoding": b"mono8"}
        writer = Writer("<", compress_raw(messages.decode_image(bytes(cdr.write("image", fields).data))))
        writer.places += [*((place, "B") for place in range(4, 8)), *((place, "I") for place in range(8, 32, 4))]
        return Case("zstd", mutated(rng, writer, 0.3))

    def _rows(self, rng: random.Random) -> containers.Rows:
        """Good messages in any order, with odd images and times among them."""
        rows = list(self._good)
        for k, (_, *names, _) in enumerate(rows[:3]):
            if rng.random() < 0.2:
                rows[k] = rng.choice((0, 2**63 - 2, START)), *names, mutated(rng, made(rng, "image"), 0.3)
        rng.shuffle(rows)
        return rows

    def run(self, case: Case) -> str:
        """Try an input; returns `accepted`, or `refused: ` and the documented error. Every exception is a defect."""
        path = self._folder if case.kind == "yaml" else self._folder / f"in.{case.kind}"
        file = path / "metadata.yaml" if case.kind == "yaml" else path
        file.write_bytes(case.data)
        try:
            if case.kind == "zstd":
                return _check_compressed(case.data)
            found = _read(path)
            if case.kind == "valid.mcap":
                _compare(path)
            if zlib.crc32(case.data) % 4 == 0:
                self._replay(path)
            return found
        except SourceError as err:
            if str(path) not in str(err):
                raise WrongError(f"a message that does not name the file: {str(err)[:300]!r}") from err
            return refused(err)
        finally:
            file.unlink()

    def _replay(self, path: Path) -> None:
        """Replay a recording, and compress its images."""
        with open_source(path, max_bytes=LIMIT) as source:
            summary = replay(islice(source.records, _RECORDS), source.total, self._pipeline)
        for cause, reasons in summary.rejected.items():
            refused(FrameError(cause, reasons[0]), *_CAUSES)
        if path.suffix in (".mcap", ".db3"):
            compress_recording(path, self._folder / "out.mcap", force=True, max_bytes=LIMIT)


def _read(path: Path) -> str:
    """Decode every image; the outcome is that of the first one, unless a later one is accepted."""
    outcomes: List[str] = []
    with open_source(path, max_bytes=LIMIT) as source:
        for record in islice(source.records, _RECORDS):
            try:
                _check_record(record, record.image())
                outcomes.append("accepted")
            except FrameError as err:  # noqa: PERF203
                outcomes.append(refused(err, *_CAUSES))
    return "accepted" if "accepted" in outcomes else next(iter(outcomes), "refused: no frames")


def _check_record(record: Recorded, image: Any) -> None:
    """An image is what its message says."""
    if not 0 <= image.stamp_ns < 2**31 * 10**9 or len(image.frame_id) > messages.MAX_NAME:
        raise WrongError(f"a stamp of {image.stamp_ns} ns, or a frame_id of {len(image.frame_id)} characters")
    if record.message_type == IMAGE:
        try:
            same(image.data.tobytes(), cdr.parse("image", bytes(record.data)).fields["data"], "data")
        except cdr.NotCdrError as err:
            raise WrongError(f"bytes that are not an image are taken for one: {err}") from err


def _compare(path: Path) -> None:
    """The reader of rosbags, which replay does not use, finds the same messages in the same order."""
    with open_source(path, max_bytes=LIMIT) as source:
        rows = [(record.time_ns, bytes(record.data)) for record in source.records]  # type: ignore[arg-type]
    try:
        with Reader(path) as reader:
            chosen = [row for row in reader.connections if row.topic == source.topic]
            others = [(time_ns, bytes(data)) for _, time_ns, data in reader.messages(chosen)]
    except ReaderError:  # of versions that open folders only, or sort no files without chunks
        return
    same([row[0] for row in rows], [row[0] for row in others], "the order of messages")
    same(sorted(rows), sorted(others), "the messages")


def _check_compressed(data: bytes) -> str:
    wanted = expanded(data)
    try:
        image = decompress_raw(data, LIMIT)
    except FrameError as err:
        if err.cause == "file" and wanted is not None:
            raise WrongError(f"valid data is refused: {err}") from err
        return refused(err, *_CAUSES)
    if wanted is None:
        raise WrongError("damaged data is taken for an image")
    same({name: getattr(image, name) for name in FIELDS}, {name: wanted[name] for name in FIELDS}, "the fields")
    same(image.data.tobytes(), wanted["data"], "the data of an image")
    return "accepted"
