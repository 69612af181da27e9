"""Recordings and pictures that somebody made to do harm, or that broke: one line says so, within bounded memory."""

from __future__ import annotations

import bz2
import inspect
import os
import re
import sqlite3
import struct
import subprocess
import sys
import zlib
from contextlib import closing
from functools import lru_cache
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
from support import ROOT, first_of, on_cpu
from test_replay import START, TOPIC, frames, make_mcap, make_rosbag1, make_rosbag2, serialized, stamp, write_bag

from polar_pipeline import FrameError, Pipeline, cli, messages
from polar_pipeline.messages import COMPRESSED, IMAGE
from polar_pipeline.replay.compare import open_golden
from polar_pipeline.replay.limits import BoundedFile, SourceError, TooLargeError
from polar_pipeline.replay.picture import encode_picture
from polar_pipeline.replay.rawpicture import decode_picture, picture_bytes, read_raw
from polar_pipeline.replay.run import Summary, replay
from polar_pipeline.replay.sink import open_sink
from polar_pipeline.replay.source import open_source

#: Bytes that the bombs of these tests inflate to, and the limit under which they are read.
BOMB, LIMIT_MB = 1 << 30, 16
#: Megabytes that a process takes that reads a small recording, with room for other versions of the libraries.
IDLE_MB = 400
ESCAPE = "\x1b]0;owned\x07"


def main(arguments: Sequence[str]) -> int:
    """The tool's exit code; it computes on the CPU."""
    return cli.main(on_cpu(arguments))


def run(source: Path, **options: Any) -> Summary:
    with open_source(source, **options) as opened:
        return replay(opened.records, opened.total, Pipeline(products="dolp", backend="cpu"))


def read(source: Path, **options: Any) -> List[Any]:
    """The image of every record, or the cause why there is none."""
    found: List[Any] = []
    with open_source(source, **options) as opened:
        for record in opened.records:
            try:
                found.append(record.image())
            except FrameError as err:  # noqa: PERF203
                found.append(err.cause)
    return found


def tool(*arguments: Any) -> Tuple[int, str, float]:
    """The tool in a process of its own: exit code, what it says on stderr, and its peak of memory in megabytes."""
    # not by getrusage, whose peak a process inherits from the one that starts it
    script = (
        "import sys\n"
        "from polar_pipeline.cli import main\n"
        "code = main(sys.argv[1:])\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *on_cpu([*map(str, arguments)])],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr, float(done.stdout.splitlines()[-1]) / 1024


def refused(source: Path, *more: Any) -> str:
    """The only line that replay says about a recording that it refuses, within bounded memory."""
    code, said, peak = tool("replay", source, "-o", source.parent / "out.mcap", "--max-mb", LIMIT_MB, *more)
    assert code == 1, said
    assert said.count("\n") == 1, said
    assert str(source) in said
    assert peak < IDLE_MB
    assert not (source.parent / "out.mcap").exists()
    return said


# ------------------------------------------------------------------------------------------------- mcap files by hand


def message(data: bytes, time: int = 1, channel: int = 1) -> bytes:
    builder = RecordBuilder()
    Message(channel, time, data, time, 0).write(builder)
    return bytes(builder.end())


def mcap(path: Path, chunks: Sequence[Chunk], topic: str = TOPIC, is_indexed: bool = True, schema: str = IMAGE) -> Path:
    """An mcap file of one channel, of whatever chunks."""
    out = RecordBuilder()
    Header("ros2", "test").write(out)
    indexes = []
    for row in chunks:
        start = 8 + out.count
        row.write(out)
        indexes.append(
            ChunkIndex(
                chunk_length=8 + out.count - start,
                chunk_start_offset=start,
                compression=row.compression,
                compressed_size=len(row.data),
                message_end_time=row.message_end_time,
                message_index_length=0,
                message_index_offsets={1: 0},
                message_start_time=row.message_start_time,
                uncompressed_size=row.uncompressed_size,
            )
        )
    DataEnd(0).write(out)
    summary = 8 + out.count
    Schema(id=1, data=b"", encoding="ros2msg", name=schema).write(out)
    Channel(id=1, topic=topic, message_encoding="cdr", metadata={}, schema_id=1).write(out)
    for index in indexes if is_indexed else ():
        index.write(out)
    Statistics(0, 1, {1: 4}, len(chunks), 4, 9, 1, 0, 1).write(out)
    Footer(summary, 0, 0).write(out)
    path.write_bytes(b"\x89MCAP0\r\n" + out.end() + b"\x89MCAP0\r\n")
    return path


def chunk(data: bytes, compression: str = "", size: Optional[int] = None, times: Tuple[int, int] = (1, 9)) -> Chunk:
    size = len(data) if size is None else size
    return Chunk(compression, data, times[1], times[0], 0, size)


@lru_cache(maxsize=None)
def zeros(compression: str, size: int = BOMB, head: bytes = b"") -> bytes:
    """Zeros behind a head, compressed piece by piece."""
    piece = bytes(1 << 20)
    pieces = [head, *([piece] * (size // len(piece)))]
    if compression == "zstd":
        made = zstandard.ZstdCompressor(level=1).compressobj()
        return b"".join(map(made.compress, pieces)) + made.flush()
    if compression == "bz2":
        packed = bz2.BZ2Compressor()
        return b"".join(map(packed.compress, pieces)) + packed.flush()
    frame = lz4.frame.LZ4FrameCompressor()
    return frame.begin() + b"".join(map(frame.compress, pieces)) + frame.flush()


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("stated", [BOMB, 1000])
def test_a_chunk_that_inflates_beyond_the_limit(compression: str, stated: int, tmp_path: Path) -> None:
    data = zeros(compression)
    said = refused(mcap(tmp_path / "in.mcap", [chunk(data, compression, stated)]))
    assert re.search("limit is 16 MB .*--max-mb" if stated == BOMB else "does not have 1000 bytes", said)


def test_a_zstd_chunk_that_states_its_size(tmp_path: Path) -> None:
    """One-shot decompressors take as much memory as a frame says."""
    data = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(1 << 16))
    assert data[4] == 0x60  # a single segment, with two bytes of size, which become four
    data = data[:4] + b"\xa0" + struct.pack("<I", BOMB) + data[7:]
    refused(mcap(tmp_path / "in.mcap", [chunk(data, "zstd", 1 << 16)]))


def test_chunks_that_all_start_at_once(tmp_path: Path) -> None:
    """Sorting by time would hold all of them."""
    record = message(bytes(8 << 20), 9)
    data, size = zstandard.ZstdCompressor().compress(record), len(record)
    said = refused(mcap(tmp_path / "in.mcap", [chunk(data, "zstd", size) for _ in range(64)]))
    assert "--max-mb" in said
    one_after_another = [chunk(data, "zstd", size, (9 + k, 9 + k)) for k in range(8)]
    assert len(read(mcap(tmp_path / "ok.mcap", one_after_another), max_bytes=17 << 20)) == 8


def test_a_chunk_of_nothing_but_small_messages(tmp_path: Path) -> None:
    records = message(b"", 9) * (12 << 15)
    data = zstandard.ZstdCompressor().compress(records)
    assert len(records) < LIMIT_MB << 20
    refused(mcap(tmp_path / "in.mcap", [chunk(data, "zstd", len(records))]))


def test_a_chunk_that_the_index_names_again_and_again(tmp_path: Path) -> None:
    path = mcap(tmp_path / "in.mcap", [chunk(message(serialized(0, frames()[0])))])
    whole = path.read_bytes()
    start = whole.index(b"\x08", whole.index(IMAGE.encode()))
    end = whole.index(b"\x0b", start + 9 + 60)
    path.write_bytes(whole[:start] + whole[start:end] * 3 + whole[end:])
    with pytest.raises(SourceError, match=r"names the chunk at byte \d+ twice"):
        read(path)


@pytest.mark.parametrize("is_indexed", [True, False])
def test_chunks_with_and_without_an_index(is_indexed: bool, tmp_path: Path) -> None:
    rows = [message(serialized(k, frames()[k]), 10 + k) for k in range(4)]
    one = zstandard.ZstdCompressor().compress(rows[2] + rows[0])
    two = lz4.frame.compress(rows[3] + rows[1])
    chunks = [chunk(one, "zstd", len(rows[2] + rows[0]), (10, 12)), chunk(two, "lz4", len(rows[3] + rows[1]), (11, 13))]
    found = read(mcap(tmp_path / "in.mcap", chunks, is_indexed=is_indexed))
    assert [image.stamp_ns for image in found] == [stamp(k) for k in range(4)]


def test_messages_outside_of_chunks(tmp_path: Path) -> None:
    from mcap.writer import Writer

    with (tmp_path / "in.mcap").open("wb") as stream:
        writer = Writer(stream, use_chunking=False)
        writer.start("ros2", "test")
        schema = writer.register_schema(IMAGE, "ros2msg", b"")
        channel = writer.register_channel(TOPIC, "cdr", schema)
        for k in (2, 0, 3, 1):
            writer.add_message(channel, 10 + k, serialized(k, frames()[k]), 10 + k)
        writer.finish()
    assert [image.stamp_ns for image in read(tmp_path / "in.mcap")] == [stamp(k) for k in range(4)]
    with pytest.raises(TooLargeError, match="--max-mb"):
        read(tmp_path / "in.mcap", max_bytes=1300)


LENGTHS = [0x7FFFFFFF, 0xFFFFFFFF, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1]


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths_beyond_the_file(length: int, tmp_path: Path) -> None:
    """Of a chunk's data, of the chunk, of a record in it, of a record in the index, and where the index starts."""
    good = mcap(tmp_path / "in.mcap", [chunk(message(serialized(0, frames()[0])))]).read_bytes()
    data = good.index(message(serialized(0, frames()[0])))
    index = good.index(b"\x03", good.index(b"\x0f\x04"))
    for place in (data - 8, data - 8 - 4 - 4 - 24 - 8, data + 1, index + 1, len(good) - 8 - 20):
        path = tmp_path / f"{place}.mcap"
        path.write_bytes(good[:place] + struct.pack("<Q", length) + good[place + 8 :])
        try:
            read(path)
        except SourceError as err:
            assert str(path) in str(err)  # noqa: PT017


def test_an_index_that_is_larger_than_it_may_be(tmp_path: Path) -> None:
    """Its records take ten times as much memory as the file."""
    path = mcap(tmp_path / "in.mcap", [])
    whole = path.read_bytes()
    start = whole.index(b"\x03", whole.index(b"\x0f\x04"))
    path.write_bytes(whole[:start] + (b"\x0e" + struct.pack("<Q", 17) + bytes(17)) * 200_000 + whole[start:])
    assert "an index of " in refused(path)


def test_golden_recordings_are_read_as_carefully(tmp_path: Path) -> None:
    data = zeros("zstd")
    golden = mcap(tmp_path / "golden.mcap", [chunk(data, "zstd", BOMB)], "/polarization/dolp")
    make_mcap(tmp_path)
    for option in (["--compare"], ["--ssim-mode", "reference", "--reference"]):
        arguments = [*option, golden, "-o", tmp_path / "out.mcap", "--max-mb", LIMIT_MB]
        code, said, peak = tool("replay", tmp_path / "in.mcap", *arguments)
        assert (code, said.count("\n")) == (1, 1)
        assert str(golden) in said
        assert peak < IDLE_MB
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
    for k, (image, raw) in enumerate(zip(read(folder), frames())):
        assert image.stamp_ns == stamp(k)
        np.testing.assert_array_equal(messages.to_raw(image).mosaic, raw)


@pytest.mark.parametrize("given", ["folder", "folder without metadata", "file"])
def test_a_compressed_file_that_inflates_beyond_the_limit(given: str, tmp_path: Path) -> None:
    folder = compressed_rosbag2(tmp_path, "FILE")
    (file,) = folder.glob("*.zstd")
    file.write_bytes(zeros("zstd"))
    if given != "folder":
        (folder / "metadata.yaml").unlink()
    code, said, peak = tool(
        "replay", file if given == "file" else folder, "-o", tmp_path / "out.mcap", "--max-mb", LIMIT_MB
    )
    assert code == 1
    assert re.search(r"more than 256 MB on disk, .*--max-mb", said)
    assert peak < IDLE_MB


def test_one_message_that_inflates_beyond_the_limit_or_not_at_all(tmp_path: Path) -> None:
    folder = compressed_rosbag2(tmp_path, "MESSAGE")
    (file,) = folder.glob("*.db3")
    with closing(sqlite3.connect(str(file))) as base:
        query = "UPDATE messages SET data = ? WHERE timestamp = ?"
        base.execute(query, (zeros("zstd", 64 << 20), stamp(1) + 5))
        base.execute(query, (b"nonsense", stamp(2) + 5))
        base.commit()
    found = read(folder, max_bytes=16 << 20)
    assert [row if isinstance(row, str) else row.stamp_ns for row in found] == [stamp(0), "size", "cdr", stamp(3)]


def test_messages_of_a_database_that_are_none(tmp_path: Path) -> None:
    folder = make_rosbag2(tmp_path)
    (file,) = folder.glob("*.db3")
    with closing(sqlite3.connect(str(file))) as base:
        query = "UPDATE messages SET data = ? WHERE timestamp = ?"
        for k, data in enumerate([bytes(5 << 20), "text", 7]):
            base.execute(query, (data, stamp(k) + 5))
        base.commit()
    found = read(folder, max_bytes=4 << 20)
    assert [row if isinstance(row, str) else row.stamp_ns for row in found] == ["size", "cdr", "cdr", stamp(3)]
    with closing(sqlite3.connect(str(file))) as base:
        base.execute("UPDATE messages SET timestamp = 'soon'")
        base.commit()
    with pytest.raises(SourceError, match="time of a message is 'soon'"):
        read(folder)


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, "
        "data BLOB GENERATED ALWAYS AS (zeroblob(900000000)))",
        "CREATE VIRTUAL TABLE messages USING fts4(topic_id, timestamp, data)",
    ],
)
def test_a_database_that_computes_its_messages(table: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(str(tmp_path / "in.db3"))) as base:
        if "GENERATED" in table and sqlite3.sqlite_version_info < (3, 31):
            pytest.skip("this SQLite computes no columns")
        base.execute("CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT)")
        base.execute("INSERT INTO topics VALUES(1, '/images', ?, 'cdr')", (IMAGE,))
        base.execute(table)
        base.execute("INSERT INTO messages(topic_id, timestamp) VALUES(1, 1)")
        base.commit()
    assert "computes the values of its table messages" in refused(tmp_path / "in.db3")


def test_a_single_database(tmp_path: Path) -> None:
    folder = make_rosbag2(tmp_path)
    (folder / "metadata.yaml").unlink()
    (file,) = folder.glob("*.db3")
    assert [image.stamp_ns for image in read(file)] == [stamp(k) for k in range(4)]
    assert [image.stamp_ns for image in read(folder)] == [stamp(k) for k in range(4)]
    file.write_bytes(b"nonsense")
    assert str(folder) in refused(folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "a: 1",
        "rosbag2_bagfile_information: 7",
        "a0: &a0 {k: 1}\n" + "".join(f"a{k}: &a{k} {{<<: [{', '.join([f'*a{k - 1}'] * 9)}]}}\n" for k in range(1, 30)),
        "\x00",
        "!!python/object/apply:os.system [ls]",
        "x" * (2 << 20),
    ],
    ids=range(8),
)
def test_metadata_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "metadata.yaml").write_text(text)
    with pytest.raises(SourceError, match=str(tmp_path)):
        read(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("storage_identifier", f'"{ESCAPE.encode("unicode_escape").decode()}"'),
        ("storage_identifier", "[1]"),
        ("compression_mode", "7"),
        ("compression_mode", "FILE"),
        ("relative_file_paths", "[../../etc/passwd]"),
        ("relative_file_paths", "[7]"),
        ("relative_file_paths", "['']"),
        ("relative_file_paths", f'["{ESCAPE.encode("unicode_escape").decode()}"]'),
        ("topics_with_message_count", "[7]"),
        ("topics_with_message_count", "[{message_count: 1, topic_metadata: {name: [1], type: 2}}]"),
        ("topics_with_message_count", f"[{{message_count: {'9' * 4000}, topic_metadata: {{name: a, type: b}}}}]"),
    ],
)
def test_metadata_with_other_values(key: str, value: str, tmp_path: Path) -> None:
    folder = make_rosbag2(tmp_path)
    path = folder / "metadata.yaml"
    yaml = YAML(typ="safe")
    document = yaml.load(path.read_text())
    document["rosbag2_bagfile_information"][key] = YAML(typ="safe").load(value)
    with path.open("w") as stream:
        yaml.dump(document, stream)
    with pytest.raises(SourceError, match=str(folder)) as caught:
        read(folder)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("compression", first_of(["lz4", "bz2"]))
def test_ros1_chunks_are_inflated_within_the_limit(compression: str, tmp_path: Path) -> None:
    path = make_rosbag1(tmp_path)
    whole = path.read_bytes()
    begin, data_at, size = _ros1_chunk(whole)
    pack = bz2.compress if compression == "bz2" else lz4.frame.compress
    good = pack(whole[data_at : data_at + size])
    path.write_bytes(_ros1_with(whole, begin, data_at, size, compression, good, size))
    assert [image.stamp_ns for image in read(path)] == [stamp(k) for k in range(4)]
    for stated in (BOMB, 1000):
        path.write_bytes(_ros1_with(whole, begin, data_at, size, compression, zeros(compression), stated))
        refused(path)


def _ros1_chunk(whole: bytes) -> Tuple[int, int, int]:
    """Where the header of the only chunk starts, where its data does, and how long they are."""
    begin = 13 + 4096  # a bag's header is padded to this
    (length,) = struct.unpack_from("<I", whole, begin)
    (size,) = struct.unpack_from("<I", whole, begin + 4 + length)
    return begin, begin + 4 + length + 4, size


def _ros1_with(whole: bytes, begin: int, at: int, size: int, compression: str, data: bytes, stated: int) -> bytes:
    """The bag with other data in its chunk; the index of the chunk is left out."""
    fields = [b"compression=" + compression.encode(), b"op=\x05", b"size=" + struct.pack("<I", stated)]
    header = b"".join(struct.pack("<I", len(row)) + row for row in fields)
    made = struct.pack("<I", len(header)) + header + struct.pack("<I", len(data)) + data
    (start,) = struct.unpack("<Q", whole[whole.index(b"index_pos=") + 10 :][:8])
    moved = struct.pack("<Q", begin + len(made))
    head = whole[:begin].replace(b"index_pos=" + struct.pack("<Q", start), b"index_pos=" + moved)
    assert at + size <= start
    return head + made + whole[start:]


# ------------------------------------------------------------------------------------------------------- damaged bytes


@pytest.mark.parametrize(
    "make",
    [
        make_mcap,
        make_rosbag1,
        make_rosbag2,
        lambda path: mcap(
            path / "in.mcap",
            [chunk(zstandard.ZstdCompressor().compress(rows), "zstd", len(rows)) for rows in [_rows()]],
        ),
        lambda path: mcap(
            path / "in.mcap",
            [chunk(lz4.frame.compress(rows), "lz4", len(rows)) for rows in [_rows()]],
            is_indexed=False,
        ),
    ],
    ids=["mcap", "rosbag1", "rosbag2", "zstd", "lz4"],
)
def test_damaged_bytes_raise_what_is_documented(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    file = next(path.glob("*.db3")) if path.is_dir() else path
    whole, rng = file.read_bytes(), np.random.default_rng(1)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(int(rng.integers(1, 8))):
            place = int(rng.integers(len(data)))
            data[place] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))]))
        if rng.integers(4) == 0:
            del data[int(rng.integers(len(data))) :]
        file.write_bytes(bytes(data))
        try:
            read(path)
        except SourceError as err:
            assert str(path) in str(err) or str(file) in str(err)  # noqa: PT017
        if path.suffix == ".mcap":
            try:
                with open_golden(path):
                    pass
            except SourceError as err:
                assert str(path) in str(err)  # noqa: PT017


def _rows() -> bytes:
    return b"".join(message(serialized(k, frames()[k]), 1 + k) for k in range(4))


# ------------------------------------------------------------------------------------------------------------- pictures


def png(width: int, height: int, depth: int = 8) -> bytes:
    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = part(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + part(b"IDAT", zlib.compress(bytes(1000))) + part(b"IEND", b"")


def tiff(width: int, height: int, order: str = "<", tile: Tuple[int, int] = (0, 0), is_big: bool = False) -> bytes:
    rows = [(256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, 1), (262, 3, 1), (277, 3, 1)]
    rows += [(322, 4, tile[0]), (323, 4, tile[1])] if any(tile) else [(273, 4, 8), (278, 4, height), (279, 4, 100)]
    head = b"II" if order == "<" else b"MM"
    if is_big:
        out = head + struct.pack(order + "HHHQQ", 43, 8, 0, 16, len(rows))
        return out + b"".join(
            struct.pack(order + "HHQ", tag, kind, 1) + struct.pack(order + ("H6x" if kind == 3 else "I4x"), value)
            for tag, kind, value in rows
        )
    out = head + struct.pack(order + "HIH", 42, 8, len(rows))
    return out + b"".join(
        struct.pack(order + "HHI", tag, kind, 1) + struct.pack(order + ("H2x" if kind == 3 else "I"), value)
        for tag, kind, value in rows
    )


def jpeg(width: int, height: int) -> bytes:
    data = bytes(encode_picture(np.zeros((16, 16), np.uint8), ".jpg"))
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


HUGE: Dict[str, bytes] = {
    "png": png(60000, 60000),
    "png16": png(40000, 40000, 16),
    "pgm": b"P5 # a comment\n60000\n60000 255\n" + bytes(100),
    "tif": tiff(60000, 60000),
    "tif-big-endian": tiff(60000, 60000, ">"),
    "tif-big": tiff(60000, 60000, is_big=True),
    "tif-tile": tiff(32, 32, tile=(60000, 60000)),
    "jpg": jpeg(60000, 60000),
}


@pytest.mark.parametrize("name", HUGE)
def test_pictures_that_state_a_huge_size(name: str) -> None:
    with pytest.raises(FrameError, match=r"a picture of .* MB, the limit is 512 MB \(--max-mb\)") as caught:
        decode_picture(HUGE[name])
    assert caught.value.cause == "size"


@pytest.mark.parametrize(
    "name", first_of(["png", "pgm", "tif-big", "jpg", "png16", "tif", "tif-big-endian", "tif-tile"], 4)
)
def test_the_tool_names_pictures_that_state_a_huge_size(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.png"
    path.write_bytes(HUGE[name])
    code, said, peak = tool("process", path, "-o", tmp_path)
    assert (code, said.count("\n")) == (1, 1)
    assert str(path) in said
    assert peak < IDLE_MB


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm", "jpg"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_sizes_in_headers(suffix: str, dtype: Any) -> None:
    if suffix == "jpg" and dtype == np.uint16:
        return
    for shape in ((20, 30), (31, 17, 3)):
        if suffix == "pgm" and len(shape) == 3:
            continue
        data = encode_picture(np.full(shape, 7, dtype), f".{suffix}")
        pixels = decode_picture(data)
        assert (pixels.shape, pixels.dtype) == (shape, dtype)
        assert picture_bytes(data) == pixels.nbytes
        assert decode_picture(data, pixels.nbytes).shape == shape
        with pytest.raises(FrameError, match="--max-mb"):
            decode_picture(data, pixels.nbytes - 1)


@pytest.mark.parametrize("length", [1000, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_png_parts_longer_than_the_file(length: int) -> None:
    """OpenCV 5 took 4 GB for a file of 3 kB."""
    data = encode_picture(frames(1)[0], ".png")
    at = data.index(b"IDAT") - 4
    for changed in (data[:at] + struct.pack(">I", length) + data[at + 4 :], data[:-12], data[:33] + data[8:]):
        with pytest.raises(FrameError, match="or cut short") as caught:
            decode_picture(changed)
        assert caught.value.cause == "file"


def test_other_pictures_are_refused() -> None:
    for suffix in (".bmp", ".webp"):
        with pytest.raises(FrameError, match="neither PNG, TIFF, PGM nor JPEG"):
            decode_picture(encode_picture(np.zeros((20, 20), np.uint8), suffix))
    for data in (b"", b"\xff\xd8", b"\xff\xd8\xff", b"P5", b"P5 1", b"II*\0", b"MM\0*\xff\xff\xff\xff", b"\x89PNG"):
        with pytest.raises(FrameError) as caught:
            decode_picture(data)
        assert caught.value.cause == "file"


def npy(shape: str, kind: str = "|u1", version: Tuple[int, int] = (1, 0), padding: int = 0) -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode() + b" " * padding + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", len(text)) + text


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (npy("(60000, 60000)"), "size"),
        (npy("(-1, 5)"), "type"),
        (npy(f"({'9' * 60}, 1)"), "size"),
        (npy("(64, 64)"), "file"),
        (npy("(64,)"), "type"),
        (npy("(64, 64)", "|O"), "type"),
        (npy("(64, 64)", ">u2"), "type"),
        (npy("(" * 2000 + ")" * 2000), "file"),
        (npy("(64, 64)", padding=9000), "file"),
        (npy("(64, 64)", version=(2, 0))[:8] + b"\xff\xff\xff\xff", "file"),
        (npy("(64, 64)", version=(3, 0)), "file"),
        (b"\x93NUMPY", "file"),
        (b"", "file"),
    ],
)
def test_npy_files_that_state_something_else(data: bytes, cause: str, tmp_path: Path) -> None:
    (tmp_path / "raw.npy").write_bytes(data)
    with pytest.raises(FrameError, match=r"raw\.npy") as caught:
        read_raw(tmp_path / "raw.npy")
    assert caught.value.cause == cause


def test_npy_files_of_every_order(tmp_path: Path) -> None:
    raw = frames(1)[0]
    for name, array in (("c", raw), ("fortran", np.asfortranarray(raw)), ("empty", np.zeros((0, 7), np.uint8))):
        np.save(tmp_path / f"{name}.npy", array)
        np.testing.assert_array_equal(read_raw(tmp_path / f"{name}.npy"), array)


def test_one_huge_picture_in_a_recording_and_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with open_sink(tmp_path / "in.mcap", {}) as sink:
        first, last = (encode_picture(frames()[k], ".png") for k in (0, 1))
        for k, data in enumerate([first, HUGE["png"], b"nonsense", last]):
            (tmp_path / "folder" / f"{k}.png").write_bytes(data)
            cdr = messages.encode_compressed(stamp(k), "cam", ESCAPE, np.frombuffer(data, np.uint8))
            sink.write("/image/compressed", COMPRESSED, stamp(k), cdr)
    os.mkfifo(tmp_path / "folder" / "4.png")
    for source, bad in (("in.mcap", {"size": 1, "file": 1}), ("folder", {"size": 1, "file": 2})):
        summary = run(tmp_path / source)
        assert len(summary.stamps) == 2
        assert {cause: row.frames for cause, row in summary.rejected.items()} == bad
        assert all(row.reason.isprintable() for row in summary.rejected.values())


def test_a_picture_without_memory_for_it_is_one_frame(tmp_path: Path, monkeypatch: Any) -> None:
    def exhausted(*_: Any) -> None:
        raise MemoryError

    np.save(tmp_path / "0.npy", frames()[0])
    (tmp_path / "1.png").write_bytes(encode_picture(frames()[1], ".png"))
    monkeypatch.setattr("polar_pipeline.replay.rawpicture.cv2.imdecode", exhausted)
    summary = run(tmp_path)
    assert (len(summary.stamps), summary.rejected["file"].frames) == (1, 1)


def test_a_file_is_read_only_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    with BoundedFile(tmp_path / "file", 4) as stream:
        assert (stream.read(2), stream.read(1 << 62), stream.read(), stream.read(5)) == (b"ab", b"cdef", b"", b"")
        stream.seek(0)
        with pytest.raises(TooLargeError, match="--max-mb"):
            stream.read(1 << 62)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="is no regular file"):
            BoundedFile(path, 4)


# --------------------------------------------------------------------------------------------------------------- stamps


def raw_image(seconds: int, nanoseconds: int) -> bytes:
    cdr = bytearray(serialized(0, frames()[0]))
    struct.pack_into("<iI", cdr, 4, seconds, nanoseconds)
    return bytes(cdr)


@pytest.mark.parametrize(
    ("seconds", "recorded", "expected"),
    [
        (-5, 77, 77),
        (-(1 << 31), 77, 77),
        (0, 0, 7),
        (1, (1 << 64) - 1, 1_000_000_007),
        (-5, (1 << 64) - 1, "cdr"),
        (-5, 1 << 63, "cdr"),
    ],
)
def test_stamps_that_are_no_times(seconds: int, recorded: int, expected: Any, tmp_path: Path) -> None:
    source = mcap(tmp_path / "in.mcap", [chunk(message(raw_image(seconds, 7), recorded), times=(recorded, recorded))])
    (found,) = read(source)
    assert (found if isinstance(found, str) else found.stamp_ns) == expected
    out = tmp_path / "out.mcap"
    assert main(["replay", str(source), "-o", str(out)]) == int(isinstance(expected, str))
    if not isinstance(expected, str):
        with open_golden(out) as golden:
            assert list(golden.places["dolp"]) == [expected]
            assert golden.load("dolp", expected) is not None
    assert out.exists() is not isinstance(expected, str)


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
    assert [row if isinstance(row, str) else row.stamp_ns for row in read(tmp_path / "in.bag")] == [START, "cdr"]


@pytest.mark.parametrize("rate", [0.0, -1.0, 1e-300, 1e300, float("nan"), float("inf")])
def test_rates_that_are_none(rate: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the rate must be in"), open_source(tmp_path, rate=rate):
        pass


# ------------------------------------------------------------------------------------------------------ text from files


def test_topics_are_shown_without_control_characters(tmp_path: Path, capsys: Any) -> None:
    for topic in (f"/{ESCAPE}", "/x" * 50_000):
        source = mcap(tmp_path / "in.mcap", [chunk(message(serialized(0, frames()[0])))], topic)
        assert main(["replay", str(source), "-o", str(tmp_path / "out.mcap"), "--topic", ESCAPE]) == 1
        said = capsys.readouterr().err
        assert said.rstrip("\n").isprintable()
        assert len(said) < 1000


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


def test_many_topics_are_not_all_listed(tmp_path: Path) -> None:
    with open_sink(tmp_path / "in.mcap", {}) as sink:
        for k in range(500):
            sink.write(f"/camera_{k:03d}", IMAGE, 1, serialized(0, frames()[0][:1, :1]))
    with pytest.raises(SourceError, match=r"/camera_019, \.\.\.$"), open_source(tmp_path / "in.mcap"):
        pass


# ----------------------------------------------------------------------------------------------------------------- play


def broken_mcap(path: Path) -> Path:
    rows = [serialized(0, frames()[0]), serialized(1, frames()[1])[:50], b"", serialized(3, frames()[3])]
    with open_sink(path / "in.mcap", {}) as sink:
        for k, cdr in enumerate(rows):
            sink.write(TOPIC, IMAGE, stamp(k), cdr)
    return path / "in.mcap"


def broken_rosbag2(path: Path) -> Path:
    folder = make_rosbag2(path)
    (file,) = folder.glob("*.db3")
    with closing(sqlite3.connect(str(file))) as base:
        for k, data in ((1, b"nonsense"), (2, None)):
            base.execute("UPDATE messages SET data = coalesce(?, 7) WHERE timestamp = ?", (data, stamp(k) + 5))
        base.commit()
    return folder


def broken_rosbag1(path: Path) -> Path:
    bag = make_rosbag1(path)
    data = bag.read_bytes()
    for k in (1, 2):  # the length of the encoding
        at = data.index(b"\x05\0\0\0mono8", data.index(struct.pack("<II", *divmod(stamp(k), 10**9)) + b"\x03\0\0\0cam"))
        data = data[:at] + b"\xff\xff\xff\x7f" + data[at + 4 :]
    bag.write_bytes(data)
    return bag


def broken_folder(path: Path) -> Path:
    (path / "folder").mkdir()
    for k, data in enumerate(
        [encode_picture(frames()[0], ".png"), b"", HUGE["png"], encode_picture(frames()[3], ".png")]
    ):
        (path / "folder" / f"{k}.png").write_bytes(data)
    return path / "folder"


BROKEN = [broken_mcap, broken_rosbag2, broken_rosbag1, broken_folder]


@pytest.mark.parametrize("make", BROKEN)
def test_replay_counts_frames_that_cannot_be_read(make: Callable[[Path], Path], tmp_path: Path) -> None:
    summary = run(make(tmp_path))
    assert (len(summary.stamps), summary.rejected_count) == (2, 2)


@pytest.mark.ros
@pytest.mark.parametrize("make", BROKEN)
def test_play_counts_frames_that_cannot_be_read(make: Callable[[Path], Path], tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("rclpy")
    assert main(["play", str(make(tmp_path)), "--rate", "1000"]) == 0
    said = capsys.readouterr()
    counts = map(int, re.findall(r"skipped (\d+) x \w+", said.out))
    assert re.search("published 2 frames on image_raw, skipped", said.out), said
    assert sum(counts) == 2
    assert said.err.count("\n") == len(re.findall("skipped", said.out))


@pytest.mark.ros
def test_play_refuses_what_replay_refuses(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("rclpy")
    source = mcap(tmp_path / "in.mcap", [chunk(zeros("zstd"), "zstd", BOMB)])
    assert main(["play", str(source), "--rate", "1000", "--max-mb", "16"]) == 1
    assert "the limit is 16 MB (--max-mb)" in capsys.readouterr().err


@pytest.mark.ros
def test_play_waits_for_frames_that_are_centuries_apart(tmp_path: Path, monkeypatch: Any) -> None:
    """No sleep is longer than the system allows, and Ctrl-C ends it."""
    pytest.importorskip("rclpy")
    from polar_pipeline.ros import play

    slept: List[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 2:
            raise KeyboardInterrupt

    rows = [chunk(message(serialized(k, frames()[k]), k * ((1 << 64) - 1)), times=(0, (1 << 64) - 1)) for k in (0, 1)]
    source = mcap(tmp_path / "in.mcap", rows)
    monkeypatch.setattr(play.time, "sleep", sleep)
    assert main(["play", str(source)]) == 130
    assert slept == [3600.0] * 3
