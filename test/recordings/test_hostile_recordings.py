"""Recordings and pictures that somebody made to do harm, or that broke: one line says so, within bounded memory."""

from __future__ import annotations

import os
import re
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any, List, Sequence

import numpy as np
import pytest
import yaml
import zstandard
from mcap.writer import CompressionType, IndexType, Writer
from recorded_frames import START, TOPIC, Row, frames, make_rosbag1, make_rosbag2, serialized, stamp, write
from support import ROOT, on_cpu

from polar_pipeline import FrameError, Pipeline, cli
from polar_pipeline.pictures.files import encode_picture
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.messages import COMPRESSED, IMAGE
from polar_pipeline.recordings.rawpicture import decode_picture, read_picture
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.recordings.source import open_source
from polar_pipeline.replay.compare import open_golden
from polar_pipeline.replay.run import Summary, replay

CORPUS = ROOT / "test" / "corpus" / "recordings"
ESCAPE = "\x1b]0;owned\x07"


def main(arguments: Sequence[str]) -> int:
    """The tool's exit code; it computes on the CPU."""
    return cli.main(on_cpu(arguments))


def run(source: Path, **options: Any) -> Summary:
    with open_source(source, **options) as opened:
        return replay(opened.records, opened.total, Pipeline(products="dolp", backend="cpu"))


def read(source: Path, **options: Any) -> List[Any]:
    """The stamp of every image, or the cause why there is none."""
    found: List[Any] = []
    with open_source(source, **options) as opened:
        for record in opened.records:
            try:
                found.append(record.image().stamp_ns)
            except FrameError as err:  # noqa: PERF203
                found.append(err.cause)
    return found


# ---------------------------------------------------------------------------------------------------------------- mcap


def test_a_chunk_that_declares_more_than_the_limit(tmp_path: Path) -> None:
    path = write(tmp_path / "in.mcap", [(stamp(0), serialized(0, np.zeros((1200, 1000), np.uint8)))])
    for opened in (read, open_golden_of):
        with pytest.raises(SourceError, match=r"a chunk of 1\.1\d+ MB, the limit is 1 MB \(--max-mb\)"):
            opened(path, max_bytes=1 << 20)
    with pytest.raises(SourceError, match="compressed by 'bz2'; zstd and lz4 can be read"):
        read(CORPUS / "unknown compression.mcap")


def open_golden_of(path: Path, max_bytes: int) -> None:
    with open_golden(path, max_bytes):
        pass


@pytest.mark.parametrize("kind", ["chunks", "no index", "no chunks"])
@pytest.mark.parametrize("compression", CompressionType)
def test_messages_with_and_without_chunks_and_an_index(compression: Any, kind: str, tmp_path: Path) -> None:
    """Without chunks, messages come in the order of the file; a missing index is made by reading it."""
    order = (2, 0, 3, 1)
    with (tmp_path / "in.mcap").open("wb") as stream:
        index = IndexType.ALL & ~IndexType.CHUNK if kind == "no index" else IndexType.ALL
        options = {"use_chunking": kind != "no chunks", "index_types": index, "chunk_size": 2000}
        writer = Writer(stream, compression=compression, **options)
        writer.start("ros2", "test")
        channel = writer.register_channel(TOPIC, "cdr", writer.register_schema(IMAGE, "ros2msg", b""))
        for k in order:
            writer.add_message(channel, 10 + k, serialized(k, frames()[k]), 10 + k)
        writer.finish()
    assert read(tmp_path / "in.mcap") == [stamp(k) for k in (order if kind == "no chunks" else sorted(order))]
    if kind == "no chunks":
        assert read(tmp_path / "in.mcap", max_bytes=1300) == ["size"] * 4


# ------------------------------------------------------------------------------------------------------ rosbag2, ROS 1


@pytest.mark.parametrize("metadata", ["", "without metadata"])
@pytest.mark.parametrize("mode", ["FILE", "MESSAGE"])
def test_compressed_rosbag2(mode: str, metadata: str, tmp_path: Path) -> None:
    folder = make_rosbag2(tmp_path, compression=mode)
    if metadata:
        (folder / "metadata.yaml").unlink()
    with open_source(folder) as source:
        for k, (record, raw) in enumerate(zip(source.records, frames())):
            assert record.image().stamp_ns == stamp(k)
            np.testing.assert_array_equal(messages.to_raw(record.image()).mosaic, raw)


def test_a_compressed_file_that_inflates_beyond_the_limit(tmp_path: Path) -> None:
    folder = make_rosbag2(tmp_path, compression="FILE")
    (file,) = folder.glob("*.zstd")
    file.write_bytes(zstandard.compress(bytes(20 << 20)))
    (folder / "metadata.yaml").unlink()
    for path in (folder, file):
        with pytest.raises(SourceError, match="more than 16 MB on disk, 16 times --max-mb"):
            read(path, max_bytes=1 << 20)


def test_messages_of_a_database_that_are_none(tmp_path: Path) -> None:
    """Compressed ones, one too large, text, and a number."""
    folder = make_rosbag2(tmp_path, compression="MESSAGE")
    (file,) = folder.glob("*.db3")

    def update(data: Any, k: int) -> None:
        with closing(sqlite3.connect(str(file))) as base, base:
            base.execute("UPDATE messages SET data = ? WHERE timestamp = ?", (data, stamp(k) + 5))

    update(zstandard.ZstdCompressor().compress(bytes(64 << 20)), 1)
    update(b"nonsense", 2)
    assert read(folder, max_bytes=16 << 20) == [stamp(0), "size", "cdr", stamp(3)]
    for k, data in enumerate([bytes(5 << 20), "text", b"\x28\xb5\x2f\xfd", 7]):
        update(data, k)
    assert read(folder, max_bytes=4 << 20) == ["size", "cdr", "cdr", "cdr"]
    with closing(sqlite3.connect(str(file))) as base, base:
        base.execute("UPDATE messages SET timestamp = 'soon'")
    with pytest.raises(SourceError, match="time of a message is 'soon'"):
        read(folder)


@pytest.mark.parametrize("text", ["", "rosbag2_bagfile_information: 7", "\x00"], ids=range(3))
def test_metadata_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "metadata.yaml").write_text(text)
    with pytest.raises(SourceError, match=str(tmp_path)):
        read(tmp_path)


@pytest.mark.parametrize(("key", "value"), [("compression_mode", "FILE"), ("compression_mode", "MESSAGE")])
def test_metadata_of_another_compression(key: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"{tmp_path}.* is compressed by ''; zstd can be read"):
        read(with_metadata(make_rosbag2(tmp_path), key, value))


def with_metadata(folder: Path, key: str, value: Any) -> Path:
    """The folder, with another value in its `metadata.yaml`."""
    document = yaml.safe_load((folder / "metadata.yaml").read_text())
    document["rosbag2_bagfile_information"][key] = value
    (folder / "metadata.yaml").write_text(yaml.safe_dump(document))
    return folder


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("compression_mode", 7),
        ("relative_file_paths", []),
        ("relative_file_paths", "in.db3"),
        ("topics_with_message_count", 7),
        ("topics_with_message_count", []),
        ("topics_with_message_count", [{"message_count": "many", "topic_metadata": {"name": "a"}}]),
        ("relative_file_paths", ["../../etc/passwd"]),
        ("relative_file_paths", ["other.db3"]),
        ("relative_file_paths", [7]),
        ("relative_file_paths", [ESCAPE]),
        ("topics_with_message_count", [{"message_count": 1, "topic_metadata": {"name": [1], "type": 2}}]),
        ("topics_with_message_count", [{"message_count": 10**4000, "topic_metadata": {"name": "a", "type": "b"}}]),
    ],
)
def test_metadata_with_other_values(key: str, value: Any, tmp_path: Path, caplog: Any) -> None:
    """The files count, and one warning says what is wrong."""
    folder = with_metadata(make_rosbag2(tmp_path), key, value)
    assert read(folder) == [stamp(k) for k in range(4)]
    (said,) = caplog.messages
    assert "metadata.yaml" in said
    assert said.startswith(f"{folder}: ")
    assert said.isprintable()
    assert len(said) < 600


# ------------------------------------------------------------------------------------------------------------- pictures


def test_sizes_of_pictures() -> None:
    for suffix in (".png", ".tif", ".pgm", ".jpg"):
        data = encode_picture(np.full((20, 30), 7, np.uint8), suffix)
        image = decode_picture(data, 600)
        assert (image.height, image.width, image.encoding) == (20, 30, "mono8")
        with pytest.raises(FrameError, match=r"a picture of .* MB, the limit is .* \(--max-mb\)") as caught:
            decode_picture(data, 599)
        assert caught.value.cause == "size"


def huge() -> bytes:
    """A PNG file whose header says 60000x60000."""
    data = encode_picture(np.zeros((16, 16), np.uint8), ".png")
    return data[:16] + struct.pack(">II", 60000, 60000) + data[24:]


def test_what_is_no_picture_is_refused() -> None:
    for data in (
        encode_picture(np.zeros((20, 20), np.uint8), ".webp"),
        b"",
        b"\xff\xd8",
        b"P5",
        b"II*\0",
        b"MM\0*\xff\xff\xff\xff",
        b"\x89PNG",
        huge(),
    ):
        with pytest.raises(FrameError, match="not a picture") as caught:
            decode_picture(data)
        assert caught.value.cause == "file"


def npy(shape: str, kind: str = "|u1") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (npy("(60000, 60000)"), "file"),
        (npy("(-1, 5)"), "file"),
        (npy("(8, 8)", "|O") + bytes(512), "file"),
        (npy("(8, 8)", ">i2") + bytes(128), "type"),
        (npy("(5, 8, 8)") + bytes(320), "type"),
        (npy("(8, 8)", "|b1") + bytes(64), "type"),
        (npy("(64,)") + bytes(64), "type"),
        (npy("(1000, 1100)") + bytes(1_100_000), "size"),
        (b"", "file"),
    ],
)
def test_npy_files_that_state_something_else(data: bytes, cause: str, tmp_path: Path) -> None:
    (tmp_path / "raw.npy").write_bytes(data)
    with pytest.raises(FrameError, match=r"raw\.npy") as caught:
        read_picture(tmp_path / "raw.npy", 1 << 20)
    assert caught.value.cause == cause


def test_bad_pictures_in_a_recording_and_in_a_folder(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "folder").mkdir()
    first, last = (encode_picture(frames()[k], ".png") for k in (0, 1))
    rows = []
    for k, data in enumerate([first, huge(), b"nonsense", last, first]):
        if k < 4:
            (tmp_path / "folder" / f"{k}.png").write_bytes(data)
        text = ESCAPE if k == 4 else "png"
        rows.append((stamp(k), messages.encode_compressed(stamp(k), "cam", text, np.frombuffer(data, np.uint8))))
    write(tmp_path / "in.mcap", rows, "/image/compressed", COMPRESSED)
    os.mkfifo(tmp_path / "folder" / "4.png")
    for source, causes in (("in.mcap", {"file": 2, "encoding": 1}), ("folder", {"file": 3})):
        summary = run(tmp_path / source)
        assert len(summary.stamps) == 2
        assert {cause: len(reasons) for cause, reasons in summary.rejected.items()} == causes
        assert all(reason.isprintable() for reasons in summary.rejected.values() for reason in reasons)

    def exhausted(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("polar_pipeline.recordings.pixel_files.cv2.imdecode", exhausted)
    assert "more memory than this process may have" in run(tmp_path / "folder").rejected["file"][0]


# ---------------------------------------------------------------------------------------------------- stamps and names


@pytest.mark.parametrize(
    ("seconds", "recorded", "expected"),
    [(-5, 77, 77), (0, 0, 7), (1, (1 << 64) - 1, 1_000_000_007), (-5, (1 << 64) - 1, "cdr"), (-5, 1 << 63, "cdr")],
)
def test_stamps_that_are_no_times(
    seconds: int, recorded: int, expected: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cdr = bytearray(serialized(0, frames()[0]))
    struct.pack_into("<iI", cdr, 4, seconds, 7)
    source = write(tmp_path / "in.mcap", [(recorded, cdr)])
    assert read(source) == [expected]
    out = tmp_path / "out.mcap"
    assert main(["replay", str(source), "-o", str(out)]) == int(isinstance(expected, str))
    assert out.exists() is out.with_suffix(".html").exists() is not isinstance(expected, str)
    if out.exists():
        with open_golden(out) as golden:
            assert list(golden.places["dolp"]) == [expected]
    else:
        assert re.search("frames of .* could be used; nothing written; 1 x cdr, the first: ", capsys.readouterr().err)


def test_ros1_stamps_beyond_ros2s(tmp_path: Path) -> None:
    """ROS 1 counts seconds without a sign: 3e9 is a negative time in ROS 2."""
    times = [START, 3_000_000_000 * 10**9]
    rows = [Row(time, (3_000_000_000 - (1 << 32)) * 10**9 + k, frames()[0]) for k, time in enumerate(times)]
    assert read(make_rosbag1(tmp_path, rows)) == [START, "cdr"]


def test_names_from_files_are_shown_short_and_escaped(tmp_path: Path, capsys: Any) -> None:
    for topic in (f"/{ESCAPE}", "/x" * 50_000):
        source = write(tmp_path / f"{len(topic)}.mcap", [(1, serialized(0, frames()[0]))], topic)
        assert main(["replay", str(source), "-o", str(tmp_path / "out.mcap"), "--topic", ESCAPE]) == 1
        said = capsys.readouterr().err
        assert said.rstrip("\n").isprintable()
        assert len(said) < 1000
    with open_sink(tmp_path / "many.mcap", {}) as sink:
        for k in range(500):
            sink.write(f"/camera_{k:03d}", IMAGE, 1, serialized(0, frames()[0][:1, :1]))
    with pytest.raises(SourceError, match=r"/camera_019 \(sensor_msgs/msg/Image, mono8\), \.\.\.$"), open_source(
        tmp_path / "many.mcap"
    ):
        pass


def test_encodings_reach_terminal_and_report_escaped(tmp_path: Path, capsys: Any) -> None:
    encodings = ["mono8", f"{ESCAPE}<script>" + "x" * 100_000]
    rows = [(k, messages.encode_image(stamp(k), "cam", text, frames()[k])) for k, text in enumerate(encodings)]
    write(tmp_path / "in.mcap", rows)
    assert main(["replay", str(tmp_path / "in.mcap"), "-o", str(tmp_path / "out.mcap"), "--products", "ssim"]) == 0
    said = capsys.readouterr()
    assert (said.out + said.err).replace("\n", "").isprintable()
    assert len(said.out + said.err) < 5000
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "\x1b" not in text
    assert "<script>" not in text
    assert len(text) < 100_000


# ----------------------------------------------------------------------------------------------------------------- play


def broken_rosbag1(path: Path) -> Path:
    bag = make_rosbag1(path)
    data = bag.read_bytes()
    for k in (1, 2):  # the length of the encoding
        at = data.index(b"\x05\0\0\0mono8", data.index(struct.pack("<II", *divmod(stamp(k), 10**9)) + b"\x03\0\0\0cam"))
        data = data[:at] + b"\xff\xff\xff\x7f" + data[at + 4 :]
    bag.write_bytes(data)
    return bag


@pytest.mark.ros
def test_play_counts_frames_that_cannot_be_read(tmp_path: Path, capsys: Any) -> None:
    """As replay does."""
    summary = run(broken_rosbag1(tmp_path))
    assert (len(summary.stamps), summary.rejected_count) == (2, 2)
    assert main(["play", str(tmp_path / "in.bag"), "--rate", "1000"]) == 0
    assert re.search(r"published 2 frames on image_raw, skipped 2 x cdr", capsys.readouterr().out)


@pytest.mark.ros
def test_play_shortens_gaps_where_a_clock_was_set(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    """Forwards by 53 years and backwards by a minute, with 0.1 s between frames; a pause of 9 s is kept."""
    from polar_pipeline.tools.play import play

    now = [0.0]
    due: List[float] = []

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def publish(_: Any, message: Any) -> None:
        if isinstance(message, bytes):  # not the node's own
            due.append(now[0])

    # mcap sorts by time, and SQLite is read by it too: a folder's second file is recorded with an older clock
    seconds = [5.0, 5.1, 1.7e9, 1.7e9 + 0.1, 1.7e9 + 9.1], [1.7e9 - 60, 1.7e9 - 59.9]
    (tmp_path / "drive").mkdir()
    for number, part in enumerate(seconds):
        rows = [(round(time * 1e9), serialized(k, frames()[0])) for k, time in enumerate(part)]
        write(tmp_path / "drive" / f"drive_{number}.mcap", rows)
    monkeypatch.setattr(play.time, "sleep", sleep)
    monkeypatch.setattr(play.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(play.Publisher, "publish", publish)
    assert main(["play", str(tmp_path / "drive")]) == 0
    np.testing.assert_allclose(np.diff(due), [0.1, 0.1, 0.1, 9.0, 9.0, 0.1], atol=1e-6)
    assert [text for text in caplog.messages if "the gap is shortened" in text] == [
        "a frame was recorded 1.7e+09 s after the one before: the gap is shortened, as all such gaps are"
    ]
