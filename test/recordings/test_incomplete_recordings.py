"""Recordings of recorders that were killed or leave parts out, of other systems, and of this package's own outputs."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any, List, Sequence

import numpy as np
import pytest
import yaml
import zstandard
from own_mcap import cdr_image, drive, mcap, mosaic, ros1_image, stamp
from support import on_cpu

from polar_pipeline import Pipeline, cli
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.messages import to_raw
from polar_pipeline.recordings.source import open_source
from polar_pipeline.replay.compare import open_golden
from polar_pipeline.replay.job import Job, process_recording

IMAGE, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
#: Each pixel rounds by at most half a level: S1 and S2 err by at most 1 of 100, AoLP by at most atan(1.42 / 100) / 2.
WITHIN = 0.41


def main(*words: Any) -> int:
    return cli.main(on_cpu([str(word) for word in words]))


def aolp(path: Path, topic: str = "") -> List[float]:
    """AoLP of each frame in degrees, from the pixels behind the four polarizers, by their formula."""
    found = []
    with open_source(path, topic) as source:
        for row in source.records:
            i90, i45, i135, i0 = (to_raw(row.image()).mosaic[y::2, x::2].mean() for y in (0, 1) for x in (0, 1))
            found.append(float(np.rad2deg(np.arctan2(i45 - i135, i0 - i90) / 2) % 180))
        assert source.total == len(found)
    return found


def same(found: Sequence[float], angles: Sequence[float]) -> None:
    assert len(found) == len(angles)
    np.testing.assert_allclose(found, angles, atol=WITHIN)


# ------------------------------------------------------------------------------------------------------ smaller summary


@pytest.mark.parametrize("is_chunked", [True, False])
@pytest.mark.parametrize(
    "without",
    [(), ("schemas",), ("channels",), ("statistics",), ("chunk index",), ("schemas", "channels"), ("summary",)],
)
def test_a_summary_that_leaves_parts_out(without: Sequence[str], is_chunked: bool, tmp_path: Path, caplog: Any) -> None:
    """Such files are valid: counts are right, nothing warns, and messages in chunks come by time."""
    (channel,) = drive([10, 30, 60, 90, 120])
    rows = [channel[3][k] for k in (0, 2, 1, 4, 3)]  # a chunk each
    path = tmp_path / "in.mcap"
    path.write_bytes(
        mcap([(*channel[:3], rows), ("/other", "std_msgs/msg/String", "cdr", [(1, b"\0\1\0\0")])], without, is_chunked)
    )
    same(aolp(path), [10, 30, 60, 90, 120] if is_chunked else [10, 60, 30, 120, 90])
    assert caplog.messages == []
    assert main("compress", path, "-o", tmp_path / "out.mcap") == 0
    assert sorted(np.round(aolp(tmp_path / "out.mcap")).astype(int)) == [10, 30, 60, 90, 120]


def test_messages_beside_chunks_are_not_hidden(tmp_path: Path) -> None:
    """Of a file that is read without a summary; the specification allows both."""
    whole, loose = mcap(drive([10, 20]), ["summary"]), mcap(drive([50]), ["summary"], is_chunked=False)
    place = loose.index(struct.pack("<HIQQ", 0, 0, stamp(0), stamp(0))) - 9
    message = loose[place : loose.index(b"\x0f" + struct.pack("<QI", 4, 0), place)]
    end = whole.index(b"\x0f" + struct.pack("<QI", 4, 0))
    path = tmp_path / "in.mcap"
    path.write_bytes(whole[:end] + message + whole[end:])
    same(aolp(path), [10, 20, 50])


def test_a_golden_recording_without_a_summary(tmp_path: Path) -> None:
    rows = [(stamp(k), cdr_image(stamp(k), mosaic(k))) for k in range(2)]
    (tmp_path / "golden.mcap").write_bytes(mcap([("/intensity", IMAGE, "cdr", rows)], ["summary"]))
    with open_golden(str(tmp_path / "golden.mcap")) as golden:
        image = golden.load("intensity", stamp(1))
    np.testing.assert_array_equal(image, mosaic(1))


# -------------------------------------------------------------------------------------------------------------- folders


def folder_of(path: Path, parts: int = 3, suffix: str = "") -> Path:
    """A folder of a recorder that was killed: two frames in each file."""
    folder = path / "drive"
    folder.mkdir()
    for k in range(parts):
        data = mcap(drive([40 * k + 5, 40 * k + 25], 2 * k))
        data = zstandard.compress(data) if suffix else data
        (folder / f"drive_{k}.mcap{suffix}").write_bytes(data)
    return folder


def metadata_of(folder: Path, **changes: Any) -> None:
    """Write the `metadata.yaml` of a folder."""
    info = {
        "version": 5,
        "storage_identifier": "mcap",
        "relative_file_paths": sorted(file.name for file in folder.iterdir()),
        "topics_with_message_count": [
            {
                "topic_metadata": {"name": "/image_raw", "type": IMAGE, "serialization_format": "cdr"},
                "message_count": 2 * len(list(folder.iterdir())),
            }
        ],
        "compression_format": "",
        "compression_mode": "",
    }
    (folder / "metadata.yaml").write_text(yaml.safe_dump({"rosbag2_bagfile_information": {**info, **changes}}))


@pytest.mark.parametrize("suffix", ["", ".zstd"])
@pytest.mark.parametrize("is_described", [True, False])
@pytest.mark.parametrize(
    ("part", "share", "angles"),
    [
        (2, 0.0, [5, 25, 45, 65]),
        (2, 0.03, [5, 25, 45, 65]),
        (2, 0.6, [5, 25, 45, 65, 85]),
        (1, 0.6, [5, 25, 45, 85, 105]),
        (0, 0.0, [45, 65, 85, 105]),
        (0, 0.999, [5, 25, 45, 65, 85, 105]),
    ],
)
def test_a_file_of_a_folder_that_was_cut_off(
    part: int, share: float, angles: List[float], is_described: bool, suffix: str, tmp_path: Path, caplog: Any
) -> None:
    folder = folder_of(tmp_path, suffix="")
    if is_described:
        metadata_of(folder)
    file = folder / f"drive_{part}.mcap"
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    if suffix:  # what remains of a compressed file inflates to the file cut off
        for each in folder.glob("*.mcap"):
            each.with_name(f"{each.name}.zstd").write_bytes(zstandard.compress(each.read_bytes()))
            each.unlink()
        if is_described:
            names = sorted(each.name for each in folder.glob("*.zstd"))
            options = {"compression_format": "zstd", "compression_mode": "FILE"}
            (folder / "metadata.yaml").unlink()
            metadata_of(folder, relative_file_paths=names, **options)
    same(aolp(folder), angles)
    (said,) = caplog.messages
    assert f"drive_{part}.mcap{suffix} {'was cut off' if share else 'is empty'}" in said
    with pytest.raises(SourceError), Pipeline(products="dolp", backend="cpu") as pipeline:
        process_recording(Job(folder, allow_truncated=False), pipeline)  # as batch does


def test_a_compressed_file_that_was_cut_off(tmp_path: Path, caplog: Any) -> None:
    """Of noise, which zstd stores as it is: its blocks are read up to the one that was cut."""
    folder = tmp_path / "drive"
    folder.mkdir()
    rng = np.random.default_rng(0)
    rows = [(stamp(k), cdr_image(stamp(k), rng.integers(0, 255, (512, 512)).astype(np.uint8))) for k in range(4)]
    whole = zstandard.compress(mcap([("/image_raw", IMAGE, "cdr", rows)]))
    (folder / "drive_0.mcap.zstd").write_bytes(whole[: len(whole) * 6 // 10])
    with open_source(folder) as source:
        assert [row.image().stamp_ns for row in source.records] == [stamp(0), stamp(1)]
    assert "drive_0.mcap.zstd was cut off" in caplog.text


def database(path: Path, count: int, shape: Any = (128, 128)) -> None:
    """A file of rosbag2's storage sqlite3."""
    with closing(sqlite3.connect(str(path))) as base, base:
        base.execute("CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT)")
        base.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB)")
        base.execute("CREATE INDEX timestamp_idx ON messages (timestamp ASC)")
        base.execute("INSERT INTO topics VALUES (1, '/image_raw', ?, 'cdr')", [IMAGE])
        for k in range(count):
            base.execute(
                "INSERT INTO messages VALUES (?, 1, ?, ?)", [k, stamp(k), cdr_image(stamp(k), mosaic(4 * k, shape))]
            )


@pytest.mark.parametrize("share", [0.0, 0.01, 0.55, 0.999, 1.0])
def test_a_database_that_was_cut_off(share: float, tmp_path: Path, caplog: Any, capsys: Any) -> None:
    """Of a page that was cut, SQLite takes zeros; a folder is read without the file."""
    folder = tmp_path / "drive"
    folder.mkdir()
    for number in (0, 1):
        database(folder / f"drive_{number}.db3", 40)
    file = folder / "drive_1.db3"
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    same(aolp(folder), [4 * k for k in range(40)] * (2 if share == 1 else 1))
    words = ["was cut off, and cannot be read"] if 0 < share < 1 else ["is empty"] if not share else []
    assert len(caplog.messages) == len(words)
    assert all(f"drive_1.db3 {text}" in caplog.text for text in words)
    assert main("replay", file, "-o", tmp_path / "out.mcap") == (1 if words else 0)
    assert all(text in capsys.readouterr().err for text in words)


@pytest.mark.parametrize(
    "text",
    ["", "[1, 2]", "7", "rosbag2_bagfile_information:", "rosbag2_bagfile_information: []", "a: [", "\x00", "{}"],
)
def test_metadata_that_does_not_describe_the_folder(text: str, tmp_path: Path, caplog: Any) -> None:
    folder = folder_of(tmp_path, 2)
    (folder / "metadata.yaml").write_text(text)
    same(aolp(folder), [5, 25, 45, 65])
    (said,) = caplog.messages
    assert "metadata.yaml" in said
    assert said.endswith("its files are read")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ""),
        ({"topics_with_message_count": []}, "states other numbers of messages than its files have"),
        ({"relative_file_paths": ["drive_0.mcap"]}, "lists other files than the folder has, which are read"),
        (
            {"relative_file_paths": ["drive_0.mcap", "gone_1.mcap"]},
            "lists other files than the folder has, which are read",
        ),
        ({"relative_file_paths": ["old/drive_0.mcap", "old/drive_1.mcap", "old/drive_2.mcap"]}, ""),
        ({"storage_identifier": "unheard of"}, ""),
    ],
)
def test_metadata_that_differs_from_the_files(changes: Any, text: str, tmp_path: Path, caplog: Any) -> None:
    folder = folder_of(tmp_path)
    metadata_of(folder, **changes)
    same(aolp(folder.rename(tmp_path / "renamed")), [5, 25, 45, 65, 85, 105])
    assert len(caplog.messages) == bool(text)
    assert text in caplog.text


def test_a_file_of_another_recording_is_left_out_if_metadata_tells(tmp_path: Path, caplog: Any) -> None:
    folder = folder_of(tmp_path, 1)
    metadata_of(folder)
    (folder / "._drive_0.mcap").write_bytes(b"of a Mac")
    same(aolp(folder), [5, 25])
    (folder / "other_0.mcap").write_bytes(mcap(drive([77])))
    assert not caplog.text
    same(aolp(folder), [5, 25])
    assert "files that metadata.yaml does not list are left out" in caplog.text
    (folder / "metadata.yaml").unlink()
    with pytest.raises(SourceError, match="files of several recordings: name one of them"), open_source(folder):
        pass


def test_a_gap_in_a_folder_without_metadata(tmp_path: Path, caplog: Any) -> None:
    folder = folder_of(tmp_path)
    (folder / "drive_0.mcap").unlink()  # a recorder that keeps the newest files removes it
    same(aolp(folder), [45, 65, 85, 105])
    assert not caplog.messages
    (folder / "drive_1.mcap").rename(folder / "drive_0.mcap")
    same(aolp(folder), [45, 65, 85, 105])
    assert caplog.messages == [f"{folder}: files are missing between the numbers 0 and 2"]


def test_an_mcap_file_of_magic_only(tmp_path: Path) -> None:
    path = tmp_path / "in.mcap"
    path.write_bytes(b"\x89MCAP0\r\n" * 2)
    with pytest.raises(SourceError, match="was cut off before its first chunk was complete"), open_source(path):
        pass


def test_a_folder_of_empty_files(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 2)
    for file in folder.iterdir():
        file.write_bytes(b"")
    with pytest.raises(SourceError, match=r"drive_0\.mcap is empty; .*drive_1\.mcap is empty"), open_source(folder):
        pass


# ---------------------------------------------------------------------------------------------------- types of messages


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        ("sensor_msgs/Image", "ros1"),
        ("sensor_msgs/msg/Image", "ros1"),
        ("sensor_msgs::msg::dds_::Image_", "cdr"),
        ("sensor_msgs::msg::Image", "cdr"),
        ("sensor_msgs/Image", "cdr"),
        ("sensor_msgs/msg/Image", ""),
    ],
)
def test_names_of_types_of_other_systems(kind: str, encoding: str, tmp_path: Path) -> None:
    write = ros1_image if encoding == "ros1" else cdr_image
    rows = [(stamp(k), write(stamp(k), mosaic(angle))) for k, angle in enumerate([30, 100])]
    path = tmp_path / "in.mcap"
    path.write_bytes(mcap([("/camera/image", kind, encoding, rows)]))
    same(aolp(path), [30, 100])
    assert main("compress", path, "-o", tmp_path / "small.mcap") == 0
    same(aolp(tmp_path / "small.mcap"), [30, 100])


def test_types_that_cannot_be_read_are_listed(tmp_path: Path) -> None:
    rows = [(1, b"\x0a\0")]
    path = tmp_path / "in.mcap"
    channels = [("/cam", "foxglove.RawImage", "protobuf", rows), ("/text", "std_msgs/msg/String", "cdr", rows)]
    path.write_bytes(mcap([*channels, ("/state", "State", "json", rows)]))
    for topic in ("", "/cam"):
        with pytest.raises(SourceError) as caught, open_source(path, topic):
            pass
        said = str(caught.value)
        assert "/cam (foxglove.RawImage in protobuf)" in said
        assert "/text (std_msgs/msg/String)" in said
        assert "messages in json, protobuf cannot be read: convert them to those of ROS" in said


def test_images_are_listed_with_their_encodings(tmp_path: Path) -> None:
    names = ("mono8", "bayer_rggb8", "")
    channels = [
        (f"/cam_{k}", IMAGE, "cdr", [(1, cdr_image(stamp(0), mosaic(3), name))]) for k, name in enumerate(names)
    ]
    path = tmp_path / "in.mcap"
    path.write_bytes(mcap([*channels, ("/damaged", IMAGE, "cdr", [(1, b"\0\1\0\0")])]))
    with pytest.raises(SourceError) as caught, open_source(path):
        pass
    listed = ("/cam_0 (IMAGE, mono8)", "/cam_1 (IMAGE, bayer_rggb8)", "/cam_2 (IMAGE, no encoding)", "/damaged (IMAGE)")
    assert f"it has: {', '.join(listed)}".replace("IMAGE", IMAGE) in str(caught.value)


@pytest.mark.parametrize("names", ["/cam/image_{}", "/pol{}/image_raw"])
def test_topics_of_four_angle_images(names: str, tmp_path: Path, caplog: Any) -> None:
    topics = [names.format(angle) for angle in (0, 45, 90, 135)]
    path = tmp_path / "in.mcap"
    image = [(1, cdr_image(stamp(0), mosaic(20), "mono8"))]
    text = f"{', '.join(topics)} are four angle images by their names, which are read from files"
    path.write_bytes(mcap([(topic, IMAGE, "cdr", image) for topic in (*topics, "/other", "/1" * 100_000)]))
    with pytest.raises(SourceError, match=text), open_source(path):
        pass
    same(aolp(path, "/other"), [20])
    assert not caplog.messages
    same(aolp(path, topics[1]), [20])  # they may be four cameras
    (said,) = caplog.messages
    assert said.startswith(f"{topics[1]} of {path} is read as mosaics; {text}")
    caplog.clear()
    path.write_bytes(mcap([(topic, IMAGE, "cdr", image) for topic in (*topics, names.format(180))]))
    same(aolp(path, topics[1]), [20])
    assert not caplog.messages


def test_two_types_on_a_topic(tmp_path: Path, caplog: Any) -> None:
    """In either order; what is an image is read."""
    (images,) = drive([20, 50])
    other = ("/image_raw", "std_msgs/msg/String", "cdr", [(1, b"\0\1\0\0\1\0\0\0\0")] * 3)
    for k, channels in enumerate(([images, other], [other, images])):
        path = tmp_path / f"{k}.mcap"
        path.write_bytes(mcap(channels))
        caplog.clear()
        same(aolp(path), [20, 50])
        assert caplog.messages == [
            f"{path} has messages of several types on /image_raw: those of {IMAGE} are read, not std_msgs/msg/String"
        ]


# ---------------------------------------------------------------------------------------------------------- own outputs


def written(path: Path) -> Path:
    """A recording that `replay` wrote, and `in.mcap` beside it."""
    (path / "in.mcap").write_bytes(mcap(drive([30, 60, 90])))
    words = ["--products", "intensity,aolp,dolp,preview,stokes,ssim", "--report", "-"]
    assert main("replay", path / "in.mcap", "-o", path / "out.mcap", *words) == 0
    return path / "out.mcap"


def test_own_outputs_are_not_raw_images(tmp_path: Path, capsys: Any) -> None:
    out = written(tmp_path)
    for words in (
        ["replay", out, "-o", tmp_path / "a.mcap"],
        ["replay", out, "-o", tmp_path / "a.mcap", "--topic", "/intensity"],
        ["compress", out, "-o", tmp_path / "a.mcap"],
        ["calibrate", out, "-o", tmp_path / "a.npz", "--bit-depth", "8"],
    ):
        assert main(*words) == 1
        said = capsys.readouterr().err
        assert "is an output of polar_pipeline" in said
        assert "name the recording of the raw images" in said
        assert "/polarization" not in said
    assert main("batch", out, "-o", tmp_path / "results", "--jobs", "1") == 1
    assert "is an output of polar_pipeline" in capsys.readouterr().err


@pytest.mark.ros
def test_play_refuses_own_outputs(tmp_path: Path, capsys: Any) -> None:
    assert main("play", written(tmp_path)) == 1
    assert "is an output of polar_pipeline" in capsys.readouterr().err


def test_a_recording_of_raw_images_and_of_outputs(tmp_path: Path, caplog: Any) -> None:
    """As `ros2 bag record -a` makes it: the raw images are the only ones."""
    image = [(1, cdr_image(stamp(0), mosaic(0), "mono8"))]
    outputs = ["/left/intensity", "/left/polarization/dolp", "/left/quality/ssim_map"]
    channels = [*drive([20, 50]), *((name, IMAGE, "cdr", image) for name in outputs)]
    path = tmp_path / "all.mcap"
    path.write_bytes(mcap(channels))
    same(aolp(path), [20, 50])
    with pytest.raises(
        SourceError, match="is an output of polar_pipeline; name its raw images: /image_raw"
    ), open_source(path, "/left/intensity"):
        pass
    assert caplog.messages == []


def test_a_name_of_an_output_alone_is_a_warning(tmp_path: Path, caplog: Any) -> None:
    """It may be a camera's; with a calibration beside it, as drivers publish, too."""
    rows = [(stamp(k), cdr_image(stamp(k), mosaic(angle))) for k, angle in enumerate([20, 50])]
    info = ("/polarization/camera_info", "sensor_msgs/msg/CameraInfo", "cdr", [(1, b"\0\1\0\0")])
    path = tmp_path / "in.mcap"
    path.write_bytes(mcap([("/polarization/intensity", IMAGE, "cdr", rows), info]))
    same(aolp(path), [20, 50])
    (said,) = caplog.messages
    assert "/polarization/intensity of" in said
    assert "has the name of an output of polar_pipeline" in said


def test_view_shows_recorded_products(tmp_path: Path, capsys: Any) -> None:
    rrd = pytest.importorskip("rrd", reason="Rerun is not installed")
    out, file = written(tmp_path), tmp_path / "out.rrd"
    for words in (["--products", "dolp"], ["--topic", "/intensity"]):
        assert main("view", out, "--save", file, *words) == 2
        assert f"{words[0]} is for raw images" in capsys.readouterr().err
    assert cli.main(["view", str(out), "--save", str(file)]) == 0
    logged = rrd.read(file)
    angles = [rrd.image(row) for row in logged["/polarization/aolp"]]
    assert [row["stamp"] for row in logged["/polarization/aolp"]] == [stamp(k) for k in range(3)]
    for classes, angle in zip(angles, (30, 60, 90)):
        np.testing.assert_allclose(classes * 180 / 256, angle, atol=WITHIN + 180 / 512)  # and half a class
    assert len(logged["/polarization/preview"]) == len(logged["/quality/ssim"]) == 3
    with Pipeline(products="dolp", backend="cpu") as pipeline:
        np.testing.assert_array_equal(rrd.image(logged["/polarization/dolp"][1]), pipeline(mosaic(60))["dolp"])
