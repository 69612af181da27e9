"""Target: recordings and compressed raw images."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any, Callable, List, Tuple

import numpy as np
from raw_zstd_decoder import FIELDS, expanded
from rosbags.rosbag2 import Reader, ReaderError

from fuzz import cdr, containers
from fuzz.engine import Case, Target, WrongError, refused
from fuzz.messages import image_fields, made, same
from fuzz.mutate import Writer, mutated
from polar_pipeline import Pipeline, messages
from polar_pipeline.replay.limits import SourceError
from polar_pipeline.replay.rawzstd import compress_raw, decompress_raw
from polar_pipeline.replay.recompress import compress_recording
from polar_pipeline.replay.run import replay
from polar_pipeline.replay.source import Recorded, open_source
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


class Recordings(Target):
    """mcap files and compressed raw images; the corpus has other recordings too."""

    name = "recordings"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._float = bytes(messages.encode_float32(0.5))
        self._pipeline = Pipeline(products=("dolp",), backend="cpu", threads=1)
        (folder / "data.db3").write_bytes((CORPUS / "recordings" / "valid.db3").read_bytes())
        self._good = (*((START + k * 10**8, 1, _image(k)) for k in range(3)), (START, 2, self._float))

    def make(self, rng: random.Random) -> Case:
        if rng.random() < 0.7:
            is_valid = rng.random() < 0.3
            writer = self._mcap(rng, is_valid)
            return Case("valid.mcap", bytes(writer.data)) if is_valid else Case("mcap", mutated(rng, writer, 0.2))
        fields = {**image_fields(rng), "sec": 1, "nanosec": 1, "frame_id": b"", "encoding": b"mono8"}
        data = compress_raw(messages.decode_image(bytes(cdr.write("image", fields).data)))
        return Case("zstd", mutated(rng, Writer("<", data), 0.3))

    def _mcap(self, rng: random.Random, is_valid: bool) -> Writer:
        rows: List[Tuple[int, int, bytes]] = []
        for row in self._good:
            odd = rng.choice((0, 2**63 - 2, START)), 1, mutated(rng, made(rng, "image"), 0.3)
            rows.append(odd if rng.random() < 0.2 and row[1] == 1 else row)
        rng.shuffle(rows)
        return containers.mcap(rng, rows, [(b"/images", containers.IMAGE), (b"/other", containers.NUMBER)], is_valid)

    def run(self, case: Case) -> str:
        path = self.folder if case.kind == "yaml" else self.folder / f"in.{case.kind}"
        file = path / "metadata.yaml" if case.kind == "yaml" else path
        file.write_bytes(case.data)
        try:
            if case.kind == "zstd":
                return _check_compressed(case.data)
            found = _documented(path, lambda: _read(path))
            if case.kind == "valid.mcap":
                _compare(path)
            if zlib.crc32(case.data) % 4 == 0:
                _documented(path, lambda: self._replay(path))
            return found
        finally:
            file.unlink()

    def _replay(self, path: Path) -> str:
        """Replay a recording, and compress its images."""
        out = self.folder / "out.mcap"
        with open_source(path, max_bytes=LIMIT) as source:
            summary = replay(islice(source.records, _RECORDS), source.total, self._pipeline)
        for cause, row in summary.rejected.items():
            _check_text(cause, row.reason)
        if path.suffix in (".mcap", ".db3"):
            compress_recording(path, out, force=True, max_bytes=LIMIT)
        return "accepted"


def _documented(path: Path, read: Callable[[], str]) -> str:
    try:
        return read()
    except SourceError as err:
        text = str(err)
        if str(path) not in text or not text.isprintable() or len(text) > 1000:
            raise WrongError(f"a message that does not name the file, or is too long: {text[:300]!r}") from err
        return refused(err)


def _check_text(cause: str, text: str) -> None:
    if cause not in _CAUSES or not text.isprintable() or len(text) > 2000:
        raise WrongError(f"cause {cause} is not documented, or its text is bad: {text[:300]!r}")


def _read(path: Path) -> str:
    causes: Counter[str] = Counter()
    with open_source(path, max_bytes=LIMIT) as source:
        for record in islice(source.records, _RECORDS):
            try:
                _check_record(record, record.image())
                causes["accepted"] += 1
            except FrameError as err:  # noqa: PERF203
                _check_text(err.cause, str(err))
                refused(err)
                causes[err.cause] += 1
    return "accepted" if causes["accepted"] else f"refused: {next(iter(causes), 'no frames')}"


def _check_record(record: Recorded, image: Any) -> None:
    """An image is what its message says."""
    if not 0 <= image.stamp_ns < 2**31 * 10**9 or len(image.frame_id) > messages.MAX_NAME:
        raise WrongError(f"a stamp of {image.stamp_ns} ns, or a frame_id of {len(image.frame_id)} characters")
    if record.kind == containers.IMAGE.decode():
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
        image = decompress_raw(data, START, "cam", LIMIT)
    except FrameError as err:
        _check_text(err.cause, str(err))
        if err.cause == "file" and wanted is not None:
            raise WrongError(f"valid data is refused: {err}") from err
        return refused(err, err.cause)
    if wanted is None:
        raise WrongError("damaged data is taken for an image")
    same({name: getattr(image, name) for name in FIELDS}, {name: wanted[name] for name in FIELDS}, "the fields")
    same(image.data.tobytes(), wanted["data"], "the data of an image")
    return "accepted"
