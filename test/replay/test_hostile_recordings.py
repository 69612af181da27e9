"""Recordings and pictures that somebody made to do harm, or that broke: one line says so, within bounded memory."""

from __future__ import annotations

import bz2
import inspect
import os
import re
import resource
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import lz4.frame
import numpy as np
import pytest
import zstandard
from mcap.data_stream import RecordBuilder
from mcap.records import Channel, Chunk, ChunkIndex, DataEnd, Footer, Header, Message, Schema, Statistics
from rosbags import rosbag1, rosbag2
from rosbags.typesys import Stores, get_typestore
from ruamel.yaml import YAML
from support import ROOT, on_cpu
from test_replay import START, TOPIC, frames, make_mcap, make_rosbag1, make_rosbag2, serialized, stamp, write_bag

from polar_pipeline import FrameError, Pipeline, cli, messages
from polar_pipeline.messages import COMPRESSED, IMAGE
from polar_pipeline.replay.compare import open_golden
from polar_pipeline.replay.limits import SourceError
from polar_pipeline.replay.picture import encode_picture
from polar_pipeline.replay.rawpicture import decode_picture, read_raw
from polar_pipeline.replay.run import Summary, replay
from polar_pipeline.replay.sink import open_sink
from polar_pipeline.replay.source import open_source

#: Bytes that the bombs of these tests inflate to, and the limit under which they are read.
BOMB, LIMIT_MB = 1 << 30, 16
#: Megabytes of `RLIMIT_DATA` of the tool here, as on a machine with little memory.
PROCESS_MB = 700
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


def refused(source: Path, *more: Any) -> str:
    """The only line that replay says about a recording that it refuses, in a process with little memory."""
    command = ["-m", "polar_pipeline", "replay", source, "-o", source.parent / "out.mcap", "--max-mb", LIMIT_MB, *more]
    done = subprocess.run(
        [sys.executable, *on_cpu(map(str, command))],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (PROCESS_MB << 20, resource.RLIM_INFINITY)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert str(source) in done.stderr or str(source.parent) in done.stderr
    assert not (source.parent / "out.mcap").exists()
    return done.stderr


# ------------------------------------------------------------------------------------------------- mcap files by hand


def message(data: bytes, time: int = 1, channel: int = 1) -> bytes:
    builder = RecordBuilder()
    Message(channel, time, data, time, 0).write(builder)
    return bytes(builder.end())


def mcap(path: Path, chunks: Sequence[Chunk], topic: str = TOPIC, is_indexed: bool = True) -> Path:
    """An mcap file of one channel, of whatever chunks."""
    out = RecordBuilder()
    Header("ros2", "test").write(out)
    indexes = []
    for row in chunks:
        start = 8 + out.count
        row.write(out)
        times = {"message_start_time": row.message_start_time, "message_end_time": row.message_end_time}
        sizes = {"compressed_size": len(row.data), "uncompressed_size": row.uncompressed_size}
        offsets = {"message_index_length": 0, "message_index_offsets": {1: 0}}
        place = {"chunk_start_offset": start, "chunk_length": 8 + out.count - start}
        indexes.append(ChunkIndex(compression=row.compression, **times, **sizes, **offsets, **place))
    DataEnd(0).write(out)
    summary = 8 + out.count
    Schema(id=1, data=b"", encoding="ros2msg", name=IMAGE).write(out)
    Channel(id=1, topic=topic, message_encoding="cdr", metadata={}, schema_id=1).write(out)
    for index in indexes if is_indexed else ():
        index.write(out)
    Statistics(0, 1, {1: 4}, len(chunks), 4, 9, 1, 0, 1).write(out)
    Footer(summary, 0, 0).write(out)
    path.write_bytes(b"\x89MCAP0\r\n" + out.end() + b"\x89MCAP0\r\n")
    return path


def chunk(data: bytes, compression: str = "", size: Optional[int] = None, times: Tuple[int, int] = (1, 9)) -> Chunk:
    return Chunk(compression, data, times[1], times[0], 0, len(data) if size is None else size)


def zeros(compression: str, size: int = BOMB) -> bytes:
    """Zeros, compressed piece by piece."""
    pieces = [bytes(1 << 20)] * (size >> 20)
    if compression == "lz4":
        frame = lz4.frame.LZ4FrameCompressor()
        return frame.begin() + b"".join(map(frame.compress, pieces)) + frame.flush()
    made: Any = bz2.BZ2Compressor() if compression == "bz2" else zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join(map(made.compress, pieces)) + made.flush()


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_chunk_that_inflates_beyond_the_limit(compression: str, tmp_path: Path) -> None:
    data = zeros(compression, 64 << 20)
    for size, said in ((64 << 20, "limit is 16 MB .*--max-mb"), (1000, "in.mcap is damaged: ")):
        with pytest.raises(SourceError, match=said):
            read(mcap(tmp_path / "in.mcap", [chunk(data, compression, size)]), max_bytes=LIMIT_MB << 20)
    with pytest.raises(SourceError, match="compressed by 'xz'; zstd and lz4 can be read"):
        read(mcap(tmp_path / "in.mcap", [chunk(data, "xz")]))


def test_a_zstd_chunk_that_states_its_size(tmp_path: Path) -> None:
    """One-shot decompressors take as much memory as a frame says."""
    data = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(1 << 16))
    assert data[4] == 0x60  # a single segment, with two bytes of size, which become four
    data = data[:4] + b"\xa0" + struct.pack("<I", BOMB) + data[7:]
    with pytest.raises(SourceError, match="does not have 65536 bytes"):
        read(mcap(tmp_path / "in.mcap", [chunk(data, "zstd", 1 << 16)]))


def test_chunks_that_all_start_at_once(tmp_path: Path) -> None:
    """Sorting by time would hold all of them."""
    record = message(bytes(8 << 20), 9)
    data, size = zstandard.ZstdCompressor().compress(record), len(record)
    with pytest.raises(SourceError, match=r"held at once of 24 MB, the limit is 16\.21 MB"):
        read(mcap(tmp_path / "in.mcap", [chunk(data, "zstd", size) for _ in range(5)]), max_bytes=17_000_000)
    one_after_another = [chunk(data, "zstd", size, (9 + k, 9 + k)) for k in range(8)]
    assert len(read(mcap(tmp_path / "ok.mcap", one_after_another), max_bytes=17 << 20)) == 8


@pytest.mark.parametrize("is_indexed", [True, False])
def test_chunks_with_and_without_an_index(is_indexed: bool, tmp_path: Path) -> None:
    rows = [message(serialized(k, frames()[k]), 10 + k) for k in range(4)]
    one = zstandard.ZstdCompressor().compress(rows[2] + rows[0])
    two = lz4.frame.compress(rows[3] + rows[1])
    chunks = [chunk(one, "zstd", len(rows[2] + rows[0]), (10, 12)), chunk(two, "lz4", len(rows[3] + rows[1]), (11, 13))]
    assert read(mcap(tmp_path / "in.mcap", chunks, is_indexed=is_indexed)) == [stamp(k) for k in range(4)]


def test_messages_outside_of_chunks(tmp_path: Path) -> None:
    from mcap.writer import Writer

    with (tmp_path / "in.mcap").open("wb") as stream:
        writer = Writer(stream, use_chunking=False)
        writer.start("ros2", "test")
        channel = writer.register_channel(TOPIC, "cdr", writer.register_schema(IMAGE, "ros2msg", b""))
        for k in (2, 0, 3, 1):
            writer.add_message(channel, 10 + k, serialized(k, frames()[k]), 10 + k)
        writer.finish()
    assert read(tmp_path / "in.mcap") == [stamp(k) for k in range(4)]
    with open_source(tmp_path / "in.mcap", span=(11, 13)) as source:
        assert source.spans() == [(10, 14)]
        assert [record.time_ns for record in source.records] == [11, 12]
    with pytest.raises(SourceError, match=r"limit is .* MB \(--max-mb\)"):
        read(tmp_path / "in.mcap", max_bytes=1300)


def test_golden_recordings_are_read_as_carefully(tmp_path: Path) -> None:
    data = zeros("zstd", 64 << 20)
    golden = mcap(tmp_path / "golden.mcap", [chunk(data, "zstd", 64 << 20)], "/polarization/dolp")
    make_mcap(tmp_path)
    assert str(golden) in refused(tmp_path / "in.mcap", "--compare", golden)
    for content in (b"nonsense" * 9, golden.read_bytes()[:-50]):
        golden.write_bytes(content)
        with pytest.raises(SourceError, match="golden"), open_golden(golden):
            pass


# ------------------------------------------------------------------------------------------------------ rosbag2, ROS 1


def compressed_rosbag2(path: Path, mode: str) -> Path:
    """The recording of `make_rosbag2`, compressed."""
    names: Any = rosbag2 if hasattr(rosbag2, "CompressionMode") else rosbag2.Writer
    options: Dict[str, Any] = {"version": 8} if "version" in inspect.signature(rosbag2.Writer).parameters else {}
    writer = rosbag2.Writer(path / "in", **options)
    writer.set_compression(names.CompressionMode[mode], names.CompressionFormat.ZSTD)
    store = get_typestore(Stores.ROS2_HUMBLE)
    with writer:
        write_bag(writer, store, store.serialize_cdr)
    return path / "in"


@pytest.mark.parametrize("metadata", ["", "without metadata"])
@pytest.mark.parametrize("mode", ["FILE", "MESSAGE"])
def test_compressed_rosbag2(mode: str, metadata: str, tmp_path: Path) -> None:
    folder = compressed_rosbag2(tmp_path, mode)
    if metadata:
        (folder / "metadata.yaml").unlink()
    with open_source(folder) as source:
        assert (source.spans() is None) == (mode == "FILE")
        for k, (record, raw) in enumerate(zip(source.records, frames())):
            assert record.image().stamp_ns == stamp(k)
            np.testing.assert_array_equal(messages.to_raw(record.image()).mosaic, raw)


def test_a_compressed_file_that_inflates_beyond_the_limit(tmp_path: Path) -> None:
    folder = compressed_rosbag2(tmp_path, "FILE")
    (file,) = folder.glob("*.zstd")
    file.write_bytes(zeros("zstd", 20 << 20))
    (folder / "metadata.yaml").unlink()
    for path in (folder, file):
        with pytest.raises(SourceError, match="more than 16 MB on disk, 16 times --max-mb"):
            read(path, max_bytes=1 << 20)


def test_messages_of_a_database_that_are_none(tmp_path: Path) -> None:
    """Compressed ones, one too large, text, and a number."""
    folder = compressed_rosbag2(tmp_path, "MESSAGE")
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


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("TABLE messages(topic_id, timestamp, data BLOB GENERATED ALWAYS AS (zeroblob(900000000)))", "size"),
        ("VIRTUAL TABLE messages USING fts4(topic_id, timestamp, data)", "has no tables"),
        ("VIEW messages AS SELECT 1 AS topic_id, 2 AS timestamp, zeroblob(9) AS data", "has no tables"),
    ],
)
def test_a_database_that_computes_its_messages(table: str, said: str, tmp_path: Path) -> None:
    if "GENERATED" in table and sqlite3.sqlite_version_info < (3, 31):
        pytest.skip("this SQLite computes no columns")
    with closing(sqlite3.connect(str(tmp_path / "in.db3"))) as base, base:
        base.execute("CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT)")
        base.execute("INSERT INTO topics VALUES(1, '/images', ?, 'cdr')", (IMAGE,))
        base.execute(f"CREATE {table}")
        if "VIEW" not in table:
            base.execute("INSERT INTO messages(topic_id, timestamp) VALUES(1, 1)")
    if said == "size":
        assert read(tmp_path / "in.db3") == ["size"]
    else:
        with pytest.raises(SourceError, match=said):
            read(tmp_path / "in.db3")


_BOMB = "".join(f"a{k}: &a{k} {{<<: [{', '.join([f'*a{k - 1}'] * 9)}]}}\n" for k in range(1, 30))


@pytest.mark.parametrize(
    "text",
    ["", "[" * 100_000, "a: 1", "rosbag2_bagfile_information: 7", "a0: &a0 {k: 1}\n" + _BOMB, "\x00", "x" * (2 << 20)],
    ids=range(7),
)
def test_metadata_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "metadata.yaml").write_text(text)
    with pytest.raises(SourceError, match=str(tmp_path)):
        read(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("compression_mode", 7),
        ("compression_mode", "FILE"),
        ("relative_file_paths", ["../../etc/passwd"]),
        ("relative_file_paths", ["in.xz"]),
        ("relative_file_paths", ["other.db3"]),
        ("relative_file_paths", [7]),
        ("relative_file_paths", [ESCAPE]),
        ("topics_with_message_count", [{"message_count": 1, "topic_metadata": {"name": [1], "type": 2}}]),
        ("topics_with_message_count", [{"message_count": 10**4000, "topic_metadata": {"name": "a", "type": "b"}}]),
    ],
)
def test_metadata_with_other_values(key: str, value: Any, tmp_path: Path) -> None:
    folder = make_rosbag2(tmp_path)
    yaml = YAML(typ="safe")
    document = yaml.load((folder / "metadata.yaml").read_text())
    document["rosbag2_bagfile_information"][key] = value
    with (folder / "metadata.yaml").open("w") as stream:
        yaml.dump(document, stream)
    with pytest.raises(SourceError, match=str(folder)) as caught:
        read(folder)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def test_ros1_chunks_take_no_more_than_the_process_may_have(tmp_path: Path) -> None:
    """Their header declares 2 kB."""
    path = make_rosbag1(tmp_path)
    whole = path.read_bytes()
    begin = 13 + 4096  # a bag's header is padded to this
    (length,) = struct.unpack_from("<I", whole, begin)
    (size,) = struct.unpack_from("<I", whole, begin + 4 + length)
    data = zeros("bz2")
    head = (
        whole[begin + 4 : begin + 4 + length].replace(b"=none", b"=bz2").replace(b"\x10\0\0\0compr", b"\x0f\0\0\0compr")
    )
    made = struct.pack("<I", len(head)) + head + struct.pack("<I", len(data)) + data
    after = begin + 4 + length + 4 + size
    (start,) = struct.unpack("<Q", whole[whole.index(b"index_pos=") + 10 :][:8])
    moved = struct.pack("<Q", start + len(made) - (after - begin))
    top = whole[:begin].replace(b"index_pos=" + struct.pack("<Q", start), b"index_pos=" + moved)
    path.write_bytes(top + made + whole[after:])
    assert "more memory than this process may have" in refused(path)
    with pytest.raises(SourceError, match=r"a chunk of .* MB, the limit is"):
        read(make_rosbag1_again(tmp_path), max_bytes=1000)


def make_rosbag1_again(path: Path) -> Path:
    (path / "again").mkdir()
    return make_rosbag1(path / "again")


@pytest.mark.parametrize("make", [make_mcap, make_rosbag1, make_rosbag2])
def test_damaged_bytes_raise_what_is_documented(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    file = next(path.glob("*.db3")) if path.is_dir() else path
    whole, rng = file.read_bytes(), np.random.default_rng(1)
    for _ in range(80):
        data = bytearray(whole)
        for _ in range(int(rng.integers(1, 8))):
            data[int(rng.integers(len(data)))] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))]))
        if rng.integers(4) == 0:
            del data[int(rng.integers(len(data))) :]
        file.write_bytes(bytes(data))
        try:
            read(path)
        except SourceError as err:
            assert str(path) in str(err) or str(file) in str(err)  # noqa: PT017


# ------------------------------------------------------------------------------------------------------------- pictures


def test_sizes_of_pictures() -> None:
    for suffix in (".png", ".tif", ".pgm", ".jpg"):
        data = encode_picture(np.full((20, 30), 7, np.uint8), suffix)
        assert decode_picture(data, 600).shape == (20, 30)
        with pytest.raises(FrameError, match=r"a picture of .* MB, the limit is .* \(--max-mb\)") as caught:
            decode_picture(data, 599)
        assert caught.value.cause == "size"


def huge() -> bytes:
    """A PNG file whose header says 60000x60000."""
    data = encode_picture(np.zeros((16, 16), np.uint8), ".png")
    return data[:16] + struct.pack(">II", 60000, 60000) + data[24:]


def test_what_is_no_picture_is_refused() -> None:
    others = [encode_picture(np.zeros((20, 20), np.uint8), suffix) for suffix in (".bmp", ".webp")]
    for data in (*others, b"", b"\xff\xd8", b"P5", b"II*\0", b"MM\0*\xff\xff\xff\xff", b"\x89PNG", huge()):
        with pytest.raises(FrameError, match="not a picture") as caught:
            decode_picture(data)
        assert caught.value.cause == "file"


def npy(shape: str, kind: str = "|u1", version: Tuple[int, int] = (1, 0), padding: int = 0) -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode() + b" " * padding + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", len(text)) + text


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (npy("(60000, 60000)"), "file"),
        (npy(f"({'9' * 60}, 1)"), "file"),
        (npy("(-1, 5)"), "file"),
        (npy("(8, 8)", "|O") + bytes(512), "file"),
        (npy("(8, 8)", ">u2") + bytes(128), "type"),
        (npy("(64,)") + bytes(64), "type"),
        (npy("(1000, 1100)") + bytes(1_100_000), "size"),
        (npy("(64, 64)", version=(2, 0))[:8] + b"\xff\xff\xff\xff", "file"),
        (b"", "file"),
    ],
)
def test_npy_files_that_state_something_else(data: bytes, cause: str, tmp_path: Path) -> None:
    (tmp_path / "raw.npy").write_bytes(data)
    with pytest.raises(FrameError, match=r"raw\.npy") as caught:
        read_raw(tmp_path / "raw.npy", 1 << 20)
    assert caught.value.cause == cause


def test_bad_pictures_in_a_recording_and_in_a_folder(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "folder").mkdir()
    with open_sink(tmp_path / "in.mcap", {}) as sink:
        first, last = (encode_picture(frames()[k], ".png") for k in (0, 1))
        for k, data in enumerate([first, huge(), b"nonsense", last]):
            (tmp_path / "folder" / f"{k}.png").write_bytes(data)
            cdr = messages.encode_compressed(stamp(k), "cam", ESCAPE, np.frombuffer(data, np.uint8))
            sink.write("/image/compressed", COMPRESSED, stamp(k), cdr)
    os.mkfifo(tmp_path / "folder" / "4.png")
    for source, bad in (("in.mcap", 2), ("folder", 3)):
        summary = run(tmp_path / source)
        assert (len(summary.stamps), summary.rejected["file"].frames) == (2, bad)
        assert all(row.reason.isprintable() for row in summary.rejected.values())

    def exhausted(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("polar_pipeline.replay.rawpicture.cv2.imdecode", exhausted)
    assert "more memory than this process may have" in run(tmp_path / "folder").rejected["file"].reason


# ---------------------------------------------------------------------------------------------------- stamps and names


@pytest.mark.parametrize(
    ("seconds", "recorded", "expected"),
    [(-5, 77, 77), (0, 0, 7), (1, (1 << 64) - 1, 1_000_000_007), (-5, (1 << 64) - 1, "cdr"), (-5, 1 << 63, "cdr")],
)
def test_stamps_that_are_no_times(seconds: int, recorded: int, expected: Any, tmp_path: Path) -> None:
    cdr = bytearray(serialized(0, frames()[0]))
    struct.pack_into("<iI", cdr, 4, seconds, 7)
    source = mcap(tmp_path / "in.mcap", [chunk(message(bytes(cdr), recorded), times=(recorded, recorded))])
    assert read(source) == [expected]
    out = tmp_path / "out.mcap"
    assert main(["replay", str(source), "-o", str(out)]) == int(isinstance(expected, str))
    assert out.exists() is not isinstance(expected, str)
    if out.exists():
        with open_golden(out) as golden:
            assert list(golden.places["dolp"]) == [expected]


def test_ros1_stamps_beyond_ros2s(tmp_path: Path) -> None:
    """ROS 1 counts seconds without a sign: 3e9 is a negative time in ROS 2."""
    store = get_typestore(Stores.ROS1_NOETIC)
    raw = frames()[0]
    with rosbag1.Writer(tmp_path / "in.bag") as writer:
        connection = writer.add_connection(TOPIC, IMAGE, typestore=store)
        for k, recorded in enumerate([START, 3_000_000_000 * 10**9]):
            time = store.types["builtin_interfaces/msg/Time"](3_000_000_000 - (1 << 32), k)
            header = store.types["std_msgs/msg/Header"](k, time, "cam")
            image = store.types[IMAGE](header, *raw.shape, "mono8", 0, raw.shape[1], raw.reshape(-1))
            writer.write(connection, recorded, store.serialize_ros1(image, IMAGE))
    assert read(tmp_path / "in.bag") == [START, "cdr"]


def test_names_from_files_are_shown_short_and_escaped(tmp_path: Path, capsys: Any) -> None:
    for topic in (f"/{ESCAPE}", "/x" * 50_000):
        source = mcap(tmp_path / "in.mcap", [chunk(message(serialized(0, frames()[0])))], topic)
        assert main(["replay", str(source), "-o", str(tmp_path / "out.mcap"), "--topic", ESCAPE]) == 1
        said = capsys.readouterr().err
        assert said.rstrip("\n").isprintable()
        assert len(said) < 1000
    with open_sink(tmp_path / "many.mcap", {}) as sink:
        for k in range(500):
            sink.write(f"/camera_{k:03d}", IMAGE, 1, serialized(0, frames()[0][:1, :1]))
    with pytest.raises(SourceError, match=r"/camera_019, \.\.\.$"), open_source(tmp_path / "many.mcap"):
        pass


def test_encodings_reach_terminal_and_report_escaped(tmp_path: Path, capsys: Any) -> None:
    with open_sink(tmp_path / "in.mcap", {}) as sink:
        for k, encoding in enumerate(["mono8", f"{ESCAPE}<script>" + "x" * 100_000]):
            sink.write(TOPIC, IMAGE, stamp(k), messages.encode_image(stamp(k), "cam", encoding, frames()[k]))
    assert main(["replay", str(tmp_path / "in.mcap"), "-o", str(tmp_path / "out.mcap"), "--products", "ssim"]) == 0
    said = capsys.readouterr()
    assert (said.out + said.err).replace("\n", "").isprintable()
    assert len(said.out + said.err) < 5000
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "\x1b" not in text
    assert "<script>" not in text
    assert len(text) < 100_000


# ----------------------------------------------------------------------------------------------------------------- play


def broken_mcap(path: Path) -> Path:
    rows = [serialized(0, frames()[0]), serialized(1, frames()[1])[:50], b"", serialized(3, frames()[3])]
    with open_sink(path / "in.mcap", {}) as sink:
        for k, cdr in enumerate(rows):
            sink.write(TOPIC, IMAGE, stamp(k), cdr)
    return path / "in.mcap"


def broken_rosbag1(path: Path) -> Path:
    bag = make_rosbag1(path)
    data = bag.read_bytes()
    for k in (1, 2):  # the length of the encoding
        at = data.index(b"\x05\0\0\0mono8", data.index(struct.pack("<II", *divmod(stamp(k), 10**9)) + b"\x03\0\0\0cam"))
        data = data[:at] + b"\xff\xff\xff\x7f" + data[at + 4 :]
    bag.write_bytes(data)
    return bag


@pytest.mark.parametrize("make", [broken_mcap, broken_rosbag1])
def test_replay_counts_frames_that_cannot_be_read(make: Callable[[Path], Path], tmp_path: Path) -> None:
    summary = run(make(tmp_path))
    assert (len(summary.stamps), summary.rejected_count) == (2, 2)


@pytest.mark.ros
@pytest.mark.parametrize("make", [broken_mcap, broken_rosbag1])
def test_play_counts_frames_that_cannot_be_read(make: Callable[[Path], Path], tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("rclpy")
    assert main(["play", str(make(tmp_path)), "--rate", "1000"]) == 0
    said = capsys.readouterr()
    counts = map(int, re.findall(r"skipped (\d+) x \w+", said.out))
    assert re.search("published 2 frames on image_raw, skipped", said.out), said
    assert sum(counts) == 2


@pytest.mark.ros
def test_play_waits_for_frames_that_are_centuries_apart(tmp_path: Path, monkeypatch: Any) -> None:
    """No sleep is longer than the system allows, and Ctrl-C ends it."""
    pytest.importorskip("rclpy")
    from polar_pipeline.stream import play

    slept: List[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 2:
            raise KeyboardInterrupt

    rows = [chunk(message(serialized(k, frames()[k]), k * ((1 << 64) - 1)), times=(0, (1 << 64) - 1)) for k in (0, 1)]
    monkeypatch.setattr(play.time, "sleep", sleep)
    assert main(["play", str(mcap(tmp_path / "in.mcap", rows))]) == 130
    assert slept == [3600.0] * 3
