"""Recordings in every format, what comes out of them, and the comparison with a golden recording."""

from __future__ import annotations

import math
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import cv2
import numpy as np
import pytest
import zstandard
from mcap.writer import CompressionType
from recorded_frames import (
    MAKERS,
    MODERN,
    TOPIC,
    Row,
    frames,
    make_mcap,
    make_rosbag2,
    serialized,
    stamp,
    write,
    write_bag,
)
from rosbags import rosbag1
from rosbags.typesys import Stores, get_typestore
from rosbags_messages import decode
from skimage.metrics import structural_similarity

from polar_pipeline import PRODUCTS, Pipeline
from polar_pipeline.backends import reference
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.pictures.colors import picture
from polar_pipeline.pictures.files import encode_picture
from polar_pipeline.polarimetry.colormaps import AOLP_MAP, DOLP_MAP
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import FLOAT32, IMAGE
from polar_pipeline.recordings.sink import open_sink, start_sink
from polar_pipeline.recordings.source import SourceError, open_source
from polar_pipeline.replay.compare import Comparison, ProductComparison, format_rows, open_golden
from polar_pipeline.replay.job import Job, process_recording
from polar_pipeline.replay.report import render
from polar_pipeline.replay.run import FrameProducts, ReplayedFrame, Summary, replay


def run(source: Path, pipeline: Pipeline, out: Optional[Path] = None, **more: Any) -> Summary:
    with open_source(source) as opened:
        if out is None:
            return replay(opened.records, opened.total, pipeline, **more)
        with open_sink(out, {"version": "0"}) as sink:
            return replay(opened.records, opened.total, pipeline, sink, **more)


@pytest.fixture(name="mcap")
def fixture_mcap(tmp_path: Path) -> Path:
    return make_mcap(tmp_path)


# -------------------------------------------------------------------------------------------------------------- sources


@pytest.mark.parametrize("make", MAKERS)
def test_recordings_of_every_format(make: Callable[[Path], Path], tmp_path: Path) -> None:
    with open_source(make(tmp_path)) as source:
        assert (source.topic, source.total) == (TOPIC, 4)
        records = list(source.records)
    assert [record.time_ns for record in records] == [stamp(k) + 5 for k in range(4)]
    for k, (record, raw) in enumerate(zip(records, frames())):
        image = record.image()
        assert (image.stamp_ns, image.frame_id) == (stamp(k), "cam")
        np.testing.assert_array_equal(messages.to_raw(image).mosaic, raw)
        assert record.cdr() == serialized(k, raw)


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm", "npy"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_folders_of_pictures(suffix: str, dtype: Any, tmp_path: Path) -> None:
    images = [raw.astype(dtype) * (1 if dtype == np.uint8 else 250) for raw in frames()]
    for k, image in enumerate(images):
        path = str(tmp_path / f"frame_{k:03d}.{suffix}")
        if suffix == "npy":
            np.save(path, image)
        else:
            cv2.imwrite(path, image)
    (tmp_path / "notes.txt").write_text("not a picture")
    with open_source(tmp_path, rate=20.0) as source:
        records = list(source.records)
    assert [record.time_ns for record in records] == [50_000_000, 100_000_000, 150_000_000, 200_000_000]
    for k, (record, image) in enumerate(zip(records, images)):
        for message in (record.image(), messages.decode_image(record.cdr())):
            assert (message.stamp_ns, message.frame_id) == (50_000_000 * (k + 1), f"frame_{k:03d}")
            np.testing.assert_array_equal(messages.to_raw(message).mosaic, image)


def test_compressed_images(tmp_path: Path) -> None:
    data = np.frombuffer(encode_picture(frames(1)[0], ".png"), np.uint8)
    cdr = messages.encode_compressed(stamp(0), "cam", "png", data)
    path = write(tmp_path / "in.mcap", [(stamp(0), cdr)], "/image/compressed", messages.COMPRESSED)
    with open_source(path) as source:
        (record,) = source.records
    np.testing.assert_array_equal(messages.to_raw(record.image()).mosaic, frames(1)[0])
    assert record.cdr() == serialized(0, frames(1)[0])


def test_the_topic_must_be_clear(tmp_path: Path) -> None:
    with open_sink(tmp_path / "in.mcap", {}) as sink:
        for topic in ("/left", "/right"):
            sink.write(topic, IMAGE, 1, serialized(0, frames(1)[0]))
    with pytest.raises(SourceError, match=r"--topic.*/left \(sensor_msgs/msg/Image, mono8\), /right \("), open_source(
        tmp_path / "in.mcap"
    ):
        pass
    with pytest.raises(SourceError, match=r"no images on /top.*/left \(.*, /right \("), open_source(
        tmp_path / "in.mcap", "/top"
    ):
        pass
    with open_source(tmp_path / "in.mcap", "/right") as source:
        assert source.topic == "/right"
    np.save(tmp_path / "raw.npy", frames(1)[0])
    with pytest.raises(SourceError, match="no topic; got /images"), open_source(tmp_path / "raw.npy", "/images"):
        pass


def test_messages_of_a_database_go_by_the_time_of_recording(tmp_path: Path) -> None:
    """Not by their place in the table."""
    folder = make_rosbag2(tmp_path)
    (file,) = folder.glob("*.db3")
    with closing(sqlite3.connect(str(file))) as base, base:
        base.execute("UPDATE messages SET timestamp = 2 * (SELECT max(timestamp) FROM messages) - timestamp")
    with open_source(folder) as source:
        times = [record.time_ns for record in source.records]
    assert len(times) == 4
    assert times == sorted(times)


def test_two_publishers_of_a_topic(tmp_path: Path) -> None:
    store = get_typestore(Stores.ROS1_NOETIC)
    with rosbag1.Writer(tmp_path / "in.bag") as writer:
        for k, raw in enumerate(frames(2)):
            write_bag(writer, store, store.serialize_ros1, [Row(stamp(k), stamp(k), raw)], callerid=f"/publisher{k}")
    with open_source(tmp_path / "in.bag") as source:
        assert source.total == 2
        assert [record.image().stamp_ns for record in source.records] == [stamp(0), stamp(1)]


def killed_recorder(path: Path, parts: int = 12) -> Path:
    """A rosbag2 folder of mcap files, a frame in each, without `metadata.yaml`."""
    folder = path / "drive"
    folder.mkdir()
    for k, raw in enumerate(frames(parts)):
        write(folder / f"drive_{k}.mcap", [(stamp(k), serialized(k, raw))])
    return folder


def compress(path: Path) -> None:
    """As a recorder does in compression mode `file`."""
    path.with_name(f"{path.name}.zstd").write_bytes(zstandard.compress(path.read_bytes()))
    path.unlink()


def test_a_recording_whose_recorder_was_killed(tmp_path: Path) -> None:
    """Its files are read in the order of their numbers.

    The newest is not compressed yet, and of the one before the compressed copy is not complete.
    """
    folder = killed_recorder(tmp_path)
    for k in range(10):
        compress(folder / f"drive_{k}.mcap")
    (folder / "drive_10.mcap.zstd").write_bytes(zstandard.compress(b"begun")[:-3])
    with open_source(folder) as source:
        assert (source.topic, source.total) == (TOPIC, 12)
        assert [record.image().stamp_ns for record in source.records] == [stamp(k) for k in range(12)]
    with open_source(folder / "drive_3.mcap.zstd") as source:
        assert [record.image().stamp_ns for record in source.records] == [stamp(3)]
    last, whole = folder / "drive_11.mcap", (folder / "drive_11.mcap").read_bytes()
    last.write_bytes(whole)
    (folder / "drive_4.mcap.zstd").write_bytes(b"nonsense")
    with pytest.raises(SourceError, match=f"{folder} cannot be read: zstd decompress error"), open_source(folder):
        pass


def test_a_recording_that_states_another_number_of_images(tmp_path: Path, caplog: Any) -> None:
    """As one that was copied in part, or that has two types of images on a topic."""
    folder = make_rosbag2(tmp_path)
    (file,) = folder.glob("*.db3")
    for text in ("", f"{folder}: metadata.yaml states other numbers of messages than its files have"):
        with Pipeline(products="intensity", backend="cpu") as pipeline:
            process_recording(Job(folder), pipeline)
        assert bool(caplog.records) == bool(text)
        assert text in caplog.text
        with closing(sqlite3.connect(str(file))) as base, base:
            base.execute("DELETE FROM messages WHERE timestamp = (SELECT max(timestamp) FROM messages)")


def test_messages_in_the_log_of_a_database(tmp_path: Path) -> None:
    """Of a recorder that was killed while SQLite kept its newest messages in a write-ahead log."""
    folder = make_rosbag2(tmp_path)
    (file,) = folder.glob("*.db3")
    killed = tmp_path / "killed"
    killed.mkdir()
    with closing(sqlite3.connect(str(file))) as base:
        base.execute("PRAGMA journal_mode=WAL")
        base.execute(
            "INSERT INTO messages (topic_id, timestamp, data) SELECT topic_id, timestamp + 1, data FROM messages"
        )
        base.commit()
        for part in folder.glob("*.db3*"):
            shutil.copy(str(part), str(killed))
    with open_source(killed) as source:
        assert source.total == 8
        assert [record.image().stamp_ns for record in source.records] == [stamp(k // 2) for k in range(8)]
    index = killed / f"{file.name}-shm"
    index.unlink()
    index.symlink_to(tmp_path / "absent" / "index")  # it cannot be made, as in a folder that cannot be written
    with pytest.raises(SourceError, match=r"its -wal file, .* cannot be read: unable to open"), open_source(killed):
        pass


def test_a_database_that_was_not_closed(tmp_path: Path) -> None:
    """A change of pages that is not complete: SQLite undoes it by a journal, which a reader leaves alone."""
    (file,) = make_rosbag2(tmp_path).glob("*.db3")
    killed = tmp_path / "killed.db3"
    with closing(sqlite3.connect(str(file))) as base:
        base.execute("PRAGMA cache_size=1")
        base.execute("UPDATE messages SET timestamp = timestamp + 1, data = zeroblob(9)")
        for end in ("", "-journal"):
            shutil.copy(f"{file}{end}", f"{killed}{end}")
        base.rollback()
    with pytest.raises(SourceError, match=r"its -journal file, by which `sqlite3 FILE .tables`"), open_source(killed):
        pass
    with closing(sqlite3.connect(str(killed))) as base:
        base.execute("SELECT * FROM sqlite_master").fetchall()
    with open_source(killed) as source:
        assert [record.image().stamp_ns for record in source.records] == [stamp(k) for k in range(4)]


@pytest.mark.parametrize("name", ["folder.mcap", "folder.bag"])
def test_folders_without_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(SourceError, match=rf"{name} has no \.mcap or \.db3 file"), open_source(tmp_path / name):
        pass


def test_files_of_several_recordings(tmp_path: Path) -> None:
    folder = killed_recorder(tmp_path, 1)
    (folder / "drive_0.mcap").rename(folder / "drive_00.mcap")
    with open_source(folder) as source:
        assert source.total == 1
    for name in ("drive_0.mcap", "other_1.mcap", "drive_1.db3", "other.mcap", "drive_0.mcap.zstd", "other_1.mcap.zstd"):
        (folder / name).touch()
        with pytest.raises(SourceError, match="files of several recordings: name one of them"), open_source(folder):
            pass
        (folder / name).unlink()
    (folder / "frame.png").write_bytes(
        encode_picture(frames(1)[0], ".png")
    )  # a folder of pictures, with a recording in it
    with open_source(folder) as source:
        assert source.topic == str(folder)


@pytest.mark.parametrize("name", ["in.mcap", "in.bag", "in.db3", "in"])
@pytest.mark.parametrize("content", [b"", b"nonsense" * 40, None])
def test_what_is_no_recording_is_refused(name: str, content: Optional[bytes], tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None and name == "in":
        path.mkdir()
        (path / "metadata.yaml").write_bytes(content)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(SourceError, match=str(path)), open_source(path) as source:
        list(source.records)


def test_a_golden_recording_that_was_cut_off_is_called_so(mcap: Path) -> None:
    whole = mcap.read_bytes()
    for kept in (0.02, 0.5, 0.999):
        mcap.write_bytes(whole[: int(kept * len(whole))])
        with pytest.raises(SourceError, match=f"{mcap} has no index: the recording was cut off"), open_golden(mcap):
            pass


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD])
def test_a_recording_that_was_cut_off_is_read_to_its_last_complete_chunk(
    tmp_path: Path, compression: CompressionType, caplog: pytest.LogCaptureFixture
) -> None:
    path, ends = tmp_path / "cut.mcap", []
    wanted = [serialized(k, raw) for k, raw in enumerate(frames(6))]
    with path.open("wb") as stream:
        sink = start_sink(stream, {"name": "text"}, compression, chunk_size=1)
        for k, cdr in enumerate(wanted):
            sink.write(TOPIC, IMAGE, stamp(k), cdr)
            sink.write("/other", FLOAT32, stamp(k), messages.encode_float32(k))
            ends.append(stream.tell())
    whole = path.read_bytes()
    for kept in sorted({*ends, *(end + more for end in ends[:-1] for more in (-1, 1, 5, 9, 20, 200)), len(whole)}):
        path.write_bytes(whole[:kept])
        complete = sum(end <= kept for end in ends)
        with open_source(path, TOPIC) as source:
            read = [record.cdr() for record in source.records]
        with pytest.raises(SourceError, match="the recording was cut off"), open_source(path, allow_truncated=False):
            pass
        assert source.total == len(read)
        assert read == wanted[: len(read)]
        assert complete <= len(read) <= complete + 1  # a number, and indexes, follow the chunk of a frame
    assert "cut.mcap was cut off" in caplog.text
    damaged = bytearray(whole)
    damaged[ends[2] + 200] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(SourceError, match=r"cut\.mcap"), open_source(path, TOPIC):
        pass
    path.write_bytes(whole[:100])
    with pytest.raises(SourceError, match=r"cut\.mcap was cut off before its first chunk"), open_source(path):
        pass


# ----------------------------------------------------------------------------------------------------------- the output


def outputs(path: Path) -> Dict[Tuple[str, int], bytes]:
    """(topic, time) -> bytes, read by the mcap library alone."""
    from mcap.reader import make_reader

    with path.open("rb") as stream:
        rows = [(channel.topic, row.log_time, row.data) for _, channel, row in make_reader(stream).iter_messages()]
    assert len({row[:2] for row in rows}) == len(rows)
    return {(topic, time): data for topic, time, data in rows}


@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
def test_every_product_is_written_with_the_original_stamp(sensor: str, mcap: Path, tmp_path: Path) -> None:
    summary = run(mcap, Pipeline(sensor, tuple(PRODUCTS), backend="cpu"), tmp_path / "out.mcap")
    assert summary.stamps == [stamp(k) for k in range(4)]
    assert not summary.rejected
    written = outputs(tmp_path / "out.mcap")
    assert len(written) == 4 * (len(PRODUCTS) + 1), "the products, and how many pixels are saturated"
    pipeline = Pipeline(sensor, tuple(PRODUCTS), backend="cpu")
    for k, raw in enumerate(frames()):
        for name, array in pipeline(raw).items():
            _, cdr = messages.product_message(name, array, stamp(k), "cam")
            assert written[f"/{PRODUCT_TOPICS[name].name}", stamp(k)] == bytes(cdr)


def test_saturated_pixels_are_written_and_not_compared(tmp_path: Path) -> None:
    """Of 32x40 raw pixels a quarter is saturated in the second frame, and a sixteenth dark."""
    raws = [np.full((32, 40), 100, np.uint8) for _ in range(2)]
    raws[1][:8], raws[1][8:10] = 255, 0
    golden = tmp_path / "out.mcap"
    summary = run(write_frames(tmp_path, raws), Pipeline(products="dolp", co_sited=False, backend="cpu"), golden)
    assert summary.invalid == (1 / 8, 1 / 32)
    written = outputs(golden)
    values = [decode(written["/quality/saturated", stamp(k)], FLOAT32).data for k in range(2)]
    assert values == [0, 0.25]
    with open_golden(golden) as opened:
        assert list(opened.places) == ["dolp"]


@pytest.mark.skipif(not MODERN, reason="this rosbags opens folders only")
def test_other_readers_open_the_output(mcap: Path, tmp_path: Path) -> None:
    from rosbags.highlevel import AnyReader

    run(mcap, Pipeline(products="dolp, ssim", backend="cpu"), tmp_path / "out.mcap")
    with AnyReader([tmp_path / "out.mcap"]) as reader:
        read = [(row.topic, time, reader.deserialize(data, row.msgtype)) for row, time, data in reader.messages()]
    assert [row[:2] for row in read[:2]] == [("/polarization/dolp", stamp(0)), ("/quality/ssim", stamp(0))]
    assert read[0][2].encoding == "32FC1"
    assert 0 < read[1][2].data <= 1


def test_bad_frames_are_counted_and_the_rest_comes_through(tmp_path: Path) -> None:
    raws = frames()
    rows = [
        serialized(0, raws[0])[:-9],
        serialized(1, raws[1]),
        serialized(2, raws[2])[:50],
        messages.encode_image(stamp(3), "cam", "", raws[3]),
        serialized(4, raws[3][:8]),
    ]
    summary = run(
        write(tmp_path / "in.mcap", [(stamp(k), cdr) for k, cdr in enumerate(rows)]),
        Pipeline(backend="cpu"),
        tmp_path / "out.mcap",
    )
    assert summary.stamps == [stamp(1)]
    assert {cause: len(reasons) for cause, reasons in summary.rejected.items()} == {"cdr": 2, "encoding": 1, "size": 1}
    assert summary.rejected_count == 4
    assert "mono8, mono16" in summary.rejected["encoding"][0]
    assert {time for _, time in outputs(tmp_path / "out.mcap")} == {stamp(1)}


def write_frames(path: Path, raws: List[np.ndarray], stamps: Optional[List[int]] = None) -> Path:
    stamps = stamps or [stamp(k) for k in range(len(raws))]
    return write(path / "in.mcap", [(time, Row(time, time, raw).cdr()) for time, raw in zip(stamps, raws)])


@pytest.mark.parametrize(
    ("stamps", "starts"),
    [([7, 8, 6, 7], [True, False, True, False]), ([7, 7, 8, 8], [True, False, False, False])],
    ids=["time that runs backwards", "a clock coarser than its frames"],
)
def test_where_temporal_similarity_starts_again(stamps: List[int], starts: List[bool], tmp_path: Path) -> None:
    rows = [(k, Row(k, time, raw).cdr()) for k, (time, raw) in enumerate(zip(stamps, frames()))]
    path = write(tmp_path / "in.mcap", rows)
    summary = run(path, Pipeline(products="ssim", ssim_mode="temporal", backend="cpu"))
    assert [math.isnan(value) for value in summary.ssim] == starts


def test_identical_frames_in_a_row(tmp_path: Path) -> None:
    """Frames of one value, as of a covered lens, do not count."""
    covered = np.full((32, 40), 5, np.uint8)
    first, second = frames(2)
    pipeline = Pipeline(products="dolp", backend="cpu")
    for raws, repeats in (
        ([first, second, second, first], 2),
        ([first, first, first, second, second], 3),
        ([covered] * 4 + [first], 1),
        ([covered] * 4, 0),
    ):
        assert run(write_frames(tmp_path, raws), pipeline).repeats == repeats
        (tmp_path / "in.mcap").unlink()


def test_reference_similarity_matches_by_stamp(mcap: Path, tmp_path: Path) -> None:
    run(mcap, Pipeline(products="intensity", dtype="float32", backend="cpu"), tmp_path / "golden.mcap")
    with open_golden(tmp_path / "golden.mcap") as golden:
        pipeline = Pipeline(products="ssim", ssim_mode="reference", backend="cpu")
        same = run(mcap, pipeline, reference=golden)
        assert same.ssim == pytest.approx([1.0] * 4, abs=1e-6)  # float32 rounding
        del golden.places["intensity"][stamp(2)]
        assert len(run(mcap, pipeline, reference=golden).rejected["reference"]) == 1
        full = Pipeline(products="ssim", ssim_mode="reference", resolution="full", backend="cpu")
        assert len(run(mcap, full, reference=golden).rejected["reference"]) == 4


def test_summary_holds_every_frame_and_a_few_samples(mcap: Path) -> None:
    summary = run(mcap, Pipeline(products="dolp, ssim", backend="cpu"))
    assert list(summary.timings) == ["decode", "prepare", "polarization", "ssim", "write", "total"]
    assert {len(seconds) for seconds in summary.timings.values()} == {4}
    assert [sample.stamp_ns for sample in summary.samples] == [stamp(0), stamp(2), stamp(3)]
    assert len(summary.ssim) == 4
    assert summary.invalid == (0.0, 0.0)


@pytest.mark.parametrize(("gap_ns", "late"), [(1, 4), (10**12, 0)])
def test_missed_deadlines(gap_ns: int, late: int, tmp_path: Path) -> None:
    """Nothing takes less than a nanosecond, nor longer than 1000 s; the period is known after eight gaps."""
    path = write_frames(tmp_path, frames(1) * 12, [1 + k * gap_ns for k in range(12)])
    summary = run(path, Pipeline(products="dolp", backend="cpu"))
    assert (summary.late, summary.period) == (late, gap_ns / 1e9)


# ----------------------------------------------------------------------------------------------------------- comparison


def products(changes: Optional[Dict[str, Any]] = None) -> Dict[str, np.ndarray]:
    """Hand-made products of one frame: bright, half polarized, with one invalid pixel."""
    rng = np.random.default_rng(3)
    made = {
        "intensity": rng.integers(60, 200, (24, 30)).astype(np.uint8),
        "dolp": np.full((24, 30), 0.5, np.float32),
        "aolp": rng.uniform(0, np.pi, (24, 30)).astype(np.float32),
        "ssim": np.array(0.9, np.float32),
    }
    made["dolp"][0, 0] = made["aolp"][0, 0] = np.nan
    for name, change in (changes or {}).items():
        made[name] = change(made[name])
    return made


def write_golden(path: Path, made: Dict[str, np.ndarray], count: int = 2) -> Path:
    with open_sink(path / "golden.mcap", {}) as sink:
        for k in range(count):
            for name, array in made.items():
                kind, cdr = messages.product_message(name, array, stamp(k), "cam")
                sink.write(f"/robot/{PRODUCT_TOPICS[name].name}", kind, stamp(k), cdr)
    return path / "golden.mcap"


def compare(
    path: Path, got: Dict[str, np.ndarray], count: int = 2, **tolerances: float
) -> Dict[str, ProductComparison]:
    with open_golden(path) as golden:
        comparison = Comparison(golden, tuple(got), tolerances)
        for k in range(count):
            comparison.add(stamp(k), got)
        return {row.name: row for row in comparison.rows()}


def put(value: float, *where: Any) -> Callable[[np.ndarray], np.ndarray]:
    """A copy with one value changed."""

    def change(array: np.ndarray) -> np.ndarray:
        out = array.copy()
        out[where] = value
        return out

    return change


def test_equal_recordings_pass(tmp_path: Path) -> None:
    rows = compare(write_golden(tmp_path, products()), products())
    assert list(rows) == ["intensity", "dolp", "aolp", "ssim"]
    for row in rows.values():
        assert row.passed
        assert (row.frames, row.missing, row.error, row.psnr) == (2, 0, 0.0, math.inf)
    assert rows["dolp"].ssim == pytest.approx(1.0, abs=1e-6)
    assert math.isnan(rows["ssim"].ssim)


#: Element type -> products of one level each.
LEVELS: Dict[str, Dict[str, Any]] = {
    "float32": {"intensity": 0.5, "dolp": 0.5, "aolp": 0.1, "ssim": 0.9},
    "uint8": {"intensity": 100, "dolp": 128, "aolp": 0},
    "uint16": {"intensity": 30000, "dolp": 30000, "aolp": 65535, "ssim_map": 60000},
}


def flat(dtype: str, changes: Dict[str, Any]) -> Dict[str, np.ndarray]:
    """Products of one frame, each of one level; intensity may have a level per channel."""
    levels = {**LEVELS[dtype], **changes}
    sizes = {name: () if name == "ssim" else (24, 30, *np.shape(level)) for name, level in levels.items()}
    return {name: np.full(sizes[name], level, dtype) for name, level in levels.items()}


@pytest.mark.parametrize(
    ("dtype", "name", "golden", "got", "error", "unit", "passed"),
    [
        ("float32", "dolp", {}, 0.5015, 0.0015, "1", True),
        ("float32", "dolp", {}, 0.5025, 0.0025, "1", False),
        ("float32", "ssim", {}, 0.9009, 0.0009, "1", True),
        ("float32", "ssim", {}, 0.902, 0.002, "1", False),
        ("float32", "aolp", {}, 0.1 + np.deg2rad(0.4) + np.pi, 0.4, "deg", True),
        ("float32", "aolp", {}, 0.1 - np.deg2rad(0.6), 0.6, "deg", False),
        ("uint8", "intensity", {}, 101, 1, "levels", True),
        ("uint8", "intensity", {}, 98, 2, "levels", False),
        ("uint8", "aolp", {}, 255, 1, "levels", True),
        ("uint8", "aolp", {}, 1, 1, "levels", True),
        ("uint8", "aolp", {}, 254, 2, "levels", False),
        ("uint8", "aolp", {}, 128, 128, "levels", False),
        # 16 bits are compared as floats
        ("uint16", "intensity", {}, 30100, 100 / 65535, "full scale", True),
        ("uint16", "dolp", {}, 30200, 200 / 65535, "1", False),
        ("uint16", "aolp", {}, 100, 101 * 180 / 65536, "deg", True),
        ("uint16", "ssim_map", {}, 59900, 100 / 65535, "1", False),
        # noise of dark and unpolarized pixels does not count; 0.05 of 255 is 12.75, and of 65535 it is 3276.75
        ("float32", "dolp", {"intensity": 0.04}, 0.9, 0, "1", True),
        ("float32", "aolp", {"dolp": 0.04}, 0.9, 0, "deg", True),
        ("uint16", "aolp", {"dolp": 3276}, 20000, 0, "deg", True),
        # luma is a quarter of red and of blue, and half of green
        ("uint8", "dolp", {"intensity": (0, 31, 0)}, 100, 28, "levels", False),
        ("uint8", "dolp", {"intensity": (0, 25, 0)}, 100, 0, "levels", True),
        ("uint8", "dolp", {"intensity": (31, 0, 0)}, 100, 0, "levels", True),
        ("uint8", "dolp", {"intensity": (26, 13, 0)}, 100, 28, "levels", False),
    ],
)
def test_errors_and_tolerances(
    dtype: str, name: str, golden: Dict[str, Any], got: Any, error: float, unit: str, passed: bool, tmp_path: Path
) -> None:
    path = write_golden(tmp_path, flat(dtype, golden))
    row = compare(path, flat(dtype, {**golden, name: got}))[name]
    assert row.error == pytest.approx(error, rel=1e-3)  # float32 sums of 0.9 and 0.0009 are good to 1e-4
    assert (row.unit, row.passed, row.note) == (unit, passed, "")
    peak = {"levels": 128 if name == "aolp" else 255, "deg": 90}.get(unit, 1)  # half a turn is the largest error
    assert row.psnr == (pytest.approx(20 * math.log10(peak / error), rel=1e-3) if error else math.inf)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("change", "note"),
    [
        (put(np.nan, 3, 3), "1 pixels are NaN or infinite in one of the two"),
        (put(0.5, 0, 0), "1 pixels are NaN or infinite in one of the two"),
        (put(-math.inf, 3, 3), "1 pixels are NaN or infinite in one of the two"),
        (lambda a: a[:-1], "float32 (23, 30), golden float32 (24, 30)"),
        (lambda a: np.zeros(a.shape, np.uint8), "uint8 (24, 30), golden float32 (24, 30)"),
    ],
)
def test_products_that_cannot_be_compared_fail(change: Any, note: str, tmp_path: Path) -> None:
    row = compare(write_golden(tmp_path, products()), products({"dolp": change}))["dolp"]
    assert (row.error, row.passed, row.note) == (math.inf, False, note)
    assert f"FAILED: {note}" in format_rows([row])


def test_a_tolerance_can_be_set(tmp_path: Path) -> None:
    path = write_golden(tmp_path, products())
    got = products({"intensity": lambda a: a + np.uint8(2)})
    assert compare(path, got, intensity=2)["intensity"].passed
    assert not compare(path, got, intensity=1.5)["intensity"].passed
    with open_golden(path) as golden:
        for name in ("dop", "aolp"):  # there is none; it is not compared
            with pytest.raises(ValueError, match=f"compared, dolp; got '{name}'"):
                Comparison(golden, ("dolp",), {name: 1})
        with pytest.raises(ValueError, match=">= 0"):
            Comparison(golden, ("dolp",), {"dolp": math.nan})


def test_figures_against_independent_ones(tmp_path: Path) -> None:
    """Angles that are apart by a turn are alike; Stokes vectors are compared with negative numbers moved into range."""
    rng = np.random.default_rng(8)
    turn, stokes = rng.integers(0, 256, (24, 30)), rng.uniform(-1, 1, (24, 30, 3)).astype(np.float32)
    stokes[..., 0] = abs(stokes[..., 0]) + 1
    golden = {
        "aolp": turn.astype(np.uint8),
        "stokes": stokes,
        "dolp": np.full((24, 30), 0.5, np.float32),
        "intensity": rng.integers(60, 70, (24, 30)).astype(np.uint8),
    }
    path = write_golden(tmp_path, golden)
    near = compare(path, {"aolp": ((turn + 1) % 256).astype(np.uint8)})["aolp"].ssim
    across = compare(path, {"aolp": ((turn + 128) % 256).astype(np.uint8)})["aolp"].ssim
    assert near > 0.99
    assert across < -0.9
    noise = rng.normal(0, 0.05, stokes.shape).astype(np.float32)
    got = compare(path, {"stokes": stokes + noise})["stokes"].ssim
    planes = [image / 2 + np.array([0, 0.5, 0.5], np.float32) for image in (stokes, stokes + noise)]
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1, "full": True}
    want = [structural_similarity(*(plane[..., k] for plane in planes), **options)[1].mean() for k in range(3)]
    assert got == pytest.approx(np.mean(want), abs=1e-4)
    levels = rng.integers(-3, 4, (24, 30))
    row = compare(path, {"intensity": (golden["intensity"] + levels).astype(np.uint8)})["intensity"]
    assert row.psnr == pytest.approx(10 * math.log10(255**2 / np.mean(levels**2)))
    want = structural_similarity(golden["intensity"] / 255, (golden["intensity"] + levels) / 255, **options)[1].mean()
    assert row.ssim == pytest.approx(want, abs=1e-4)  # float32 moments


def test_missing_frames_and_products_fail(tmp_path: Path) -> None:
    path = write_golden(tmp_path, products())
    for count, compared in ((1, 1), (3, 2)):
        rows = compare(path, products(), count)
        assert all((row.frames, row.missing, row.passed) == (compared, 1, False) for row in rows.values())
    extra = compare(path, {**products(), "ssim_map": np.zeros((24, 30), np.float32)})["ssim_map"]
    assert (extra.frames, extra.missing, extra.passed) == (0, 2, False)
    with open_golden(path) as golden:  # which lacks the product too
        (row,) = Comparison(golden, ("stokes",)).rows()
    assert (row.frames, row.missing, row.passed) == (0, 0, False)


def test_colors_may_be_two_steps_of_their_map_away(tmp_path: Path) -> None:
    """As on another machine, whose angles differ by up to 0.5 degrees; in the dark or with a DoLP of 0.01 by any."""
    rng = np.random.default_rng(4)
    index = rng.integers(0, 254, (24, 30))
    made = {**products(), "aolp_color": AOLP_MAP[index], "dolp_color": DOLP_MAP[index]}
    made["dolp"][3, 3] = 0.01
    made["intensity"][5, 5] = 3
    golden = write_golden(tmp_path, made)
    near = {**made, "aolp_color": AOLP_MAP[index + 2], "dolp_color": DOLP_MAP[index + 1]}
    near["aolp_color"][3, 3] = 255 - near["aolp_color"][3, 3]
    for name in ("aolp_color", "dolp_color"):
        near[name][5, 5] = 255 - near[name][5, 5]
    rows = compare(golden, near)
    assert rows["aolp_color"].passed
    assert rows["dolp_color"].passed
    far = {**made, "aolp_color": AOLP_MAP[(index + 128) % 256], "dolp_color": DOLP_MAP[255 - index]}
    rows = compare(golden, far)
    assert not rows["aolp_color"].passed
    assert not rows["dolp_color"].passed
    assert not compare(golden, near, aolp_color=1)["aolp_color"].passed


def test_golden_recordings_that_cannot_be_used(tmp_path: Path, mcap: Path) -> None:
    with pytest.raises(SourceError, match="holds no products"), open_golden(mcap):
        pass
    with open_sink(tmp_path / "two.mcap", {}) as sink:
        for topic in ("/a/quality/ssim", "/b/quality/ssim"):
            sink.write(topic, FLOAT32, 1, messages.encode_float32(1))
    with pytest.raises(SourceError, match="ssim twice"), open_golden(tmp_path / "two.mcap"):
        pass


def test_golden_recordings_of_the_live_node_go_by_the_header(tmp_path: Path) -> None:
    """`ros2 bag record` writes the time of arrival; images carry their own stamp."""
    with open_sink(tmp_path / "live.mcap", {}) as sink:
        kind, cdr = messages.product_message("dolp", products()["dolp"], stamp(0), "cam")
        sink.write("/polarization/dolp", kind, stamp(0) + 12_345, cdr)
    row = compare(tmp_path / "live.mcap", {"dolp": products()["dolp"]}, 1)["dolp"]
    assert row.passed


def test_frames_of_one_stamp_are_matched_by_their_order(tmp_path: Path) -> None:
    """As of a camera whose clock is coarser than its frames."""
    order = (0, 1, 1, 2, 2, 2, 3)
    write_frames(tmp_path, frames(len(order)), [stamp(second) for second in order])
    names = ("intensity", "dolp", "ssim")
    run(tmp_path / "in.mcap", Pipeline(products=names, backend="cpu"), tmp_path / "golden.mcap")
    with open_golden(tmp_path / "golden.mcap") as golden:
        comparison = Comparison(golden, names)
        run(tmp_path / "in.mcap", Pipeline(products=names, backend="cpu"), comparison=comparison)
        for row in comparison.rows():
            assert (row.frames, row.missing, row.error, row.passed) == (len(order), 0, 0.0, True)
        fewer = Comparison(golden, names)
        wrong = Pipeline(products=names, backend="cpu")
        fewer.add(stamp(1), wrong(frames(len(order))[2]))
        for row in fewer.rows():
            assert (row.frames, row.missing, row.passed) == (1, len(order) - 1, False)
            assert row.error > 0  # the second frame of this stamp is not the first
        against = Pipeline(products="ssim", ssim_mode="reference", backend="cpu")
        refused = run(tmp_path / "in.mcap", against, reference=golden).rejected["reference"]
        assert len(refused) == 5
        assert f"one reference with stamp {stamp(1)}" in refused[0]


# -------------------------------------------------------------------------------------------------------------- report


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.uint16])
def test_pictures(dtype: Any) -> None:
    """AoLP has the colors of `aolp_color`; DoLP 0 and 1 are the ends of viridis; NaN is black."""
    top = {np.float32: 1, np.uint8: 255, np.uint16: 65535}[dtype]
    angles = np.deg2rad([[0, 45, 90, 135, 179.9]])
    rgb = picture("aolp", angles.astype(dtype) if top == 1 else np.rint(angles * (top + 1) / np.pi).astype(dtype))
    np.testing.assert_array_equal(rgb, reference.aolp_color(angles, np.ones_like(angles), "plain"))
    ends = picture("dolp", np.array([[0, top]], dtype))
    np.testing.assert_allclose(ends[0], [(0x44, 0x01, 0x54), (0xFD, 0xE7, 0x25)], atol=3)  # OpenCV rounds its table
    if dtype == np.float32:
        assert not picture("aolp", np.array([[np.nan]], np.float32)).any()
    else:
        shown = picture("aolp_sigma", np.array([[0, 0.95 * top / np.pi, top]]).astype(dtype))[0]
        np.testing.assert_allclose(shown, [(0x44, 0x01, 0x54), (0xFD, 0xE7, 0x25), (0, 0, 0)], atol=6)
    assert picture("intensity", np.zeros((100, 50), dtype), max_side=20).shape == (20, 10, 3)


def test_report_holds_everything_and_needs_nothing(mcap: Path) -> None:
    summary = run(mcap, Pipeline(products=tuple(PRODUCTS), backend="cpu"))
    refused = ReplayedFrame(None, "cdr", "10 bytes & more")
    summary = replace(summary, frames=[*summary.frames, refused, refused])
    row = ProductComparison("dolp", 4, 1, 0.5, 0.002, "1", 20.0, 0.9, "3 pixels < 4")
    report = "Replay of <a>", {"frames": "4"}, summary, [row]
    text = render(*report)
    assert render(*report) == text
    assert "Replay of &lt;a&gt;" in text
    assert "10 bytes &amp; more" in text
    # beside the product, where a phone shows it
    assert re.search(r'<td>dolp</td>\s*<td class="text"><b class="bad">failed</b> 3 pixels &lt; 4</td>', text)
    assert text.count("<img ") == 3 * (len(PRODUCTS) + 1)  # but `ssim`, and three planes of the Stokes vector
    assert text.count("<svg ") == 1 + len(summary.timings) + 3 * 2, "charts, and two wheels of AoLP"
    assert "http" not in text.replace("data:image", "")
    assert "0 to pi" in text
    assert "°" not in text  # the scale has the unit of its caption
    assert "NaN" not in text
    assert "nan" not in text
    # one frame, whose similarity is not known
    samples = [FrameProducts(1, {"ssim_map": np.full((4, 4), np.nan, np.float32)})]
    one = replace(summary, samples=samples, frames=[ReplayedFrame(1, timings={"a": 0.1}, ssim=math.nan)])
    assert render("t", {}, one).count("<svg ") == 1


def test_the_report_says_what_is_special(tmp_path: Path) -> None:
    first, second = frames(2)
    job = Job(write_frames(tmp_path, [first, second, second]), report=tmp_path / "report.html")
    with Pipeline(products="dolp, ssim", rotate=90, backend="cpu") as pipeline:
        process_recording(job, pipeline)
        assert pipeline.options.geometry is not None
        place = pipeline.options.geometry.describe()
    text = job.report.read_text()
    assert place in text
    assert "2 identical frames in a row" in text
    assert "lowest block" in text
