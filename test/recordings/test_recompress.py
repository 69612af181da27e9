"""Recordings with compressed images: the same frames, all else as it was, and nothing half written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest
import zstandard
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer
from recorded_frames import (
    MAKERS,
    START,
    TOPIC,
    frames,
    make_mcap,
    make_rosbag1,
    make_rosbag2,
    serialized,
    stamp,
    write,
)
from rosbags_messages import decode, typestore
from support import on_cpu

from polar_pipeline import cli
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.messages import COMPRESSED, IMAGE
from polar_pipeline.recordings.recompress import Conversion, compress_recording, decompress_recording
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.recordings.source import open_source, recorded_metadata

NEW = f"{TOPIC}/polar_zstd"
QOS = "- history: 1\n  depth: 5\n  reliability: 2"
HASH = {"topic_type_hash": "RIHS01_d31d41a9a4c4bc8eae9be757b0beed306564f7526c88ea6a4588fb9582527d47"}


def cdrs(path: Path, topic: str = "") -> List[Tuple[int, bytes]]:
    """The images of a recording as messages, with their times of recording."""
    with open_source(path, topic) as source:
        return [(record.time_ns, record.cdr()) for record in source.records]


def contents(path: Path) -> Dict[str, Any]:
    """All that a file holds, by the reader of the mcap library."""
    with path.open("rb") as stream:
        reader = make_reader(stream, validate_crcs=True)
        summary = reader.get_summary()
        assert summary is not None
        return {
            "topics": sorted(
                (
                    row.topic,
                    summary.schemas[row.schema_id].name if row.schema_id else "",
                    row.message_encoding,
                    str(sorted(row.metadata.items())),
                )
                for row in summary.channels.values()
            ),
            "definitions": {row.name: (row.encoding, row.data) for row in summary.schemas.values()},
            "messages": [
                (channel.topic, message.log_time, message.publish_time, message.sequence, message.data)
                for _, channel, message in reader.iter_messages(log_time_order=False)
            ],
            "metadata": [(row.name, row.metadata) for row in reader.iter_metadata()],
            "attachments": [(row.name, row.media_type, row.create_time, row.data) for row in reader.iter_attachments()],
            "chunks": {row.compression for row in summary.chunk_indexes},
        }


def make_rich(path: Path) -> Path:
    """What recorders write: lz4, messages out of order, publish times, QoS, an own type, metadata, an attachment."""
    with (path / "rich.mcap").open("wb") as stream:
        writer = Writer(stream, chunk_size=3000, compression=CompressionType.LZ4)
        writer.start("ros2", "some recorder")
        definition, _ = typestore().generate_msgdef(IMAGE, ros_version=2)
        image = writer.register_schema(IMAGE, "ros2msg", definition.encode())
        own = writer.register_schema("my_msgs/msg/Speed", "ros2msg", b"float32 speed\n")
        qos = {"offered_qos_profiles": QOS}
        camera = writer.register_channel(TOPIC, "cdr", image, {**qos, **HASH})
        speed = writer.register_channel("/speed", "cdr", own, {**qos, **HASH})
        writer.register_channel("/silent", "cdr", own, {})
        text = writer.register_channel("/text", "json", 0, {})
        for k, raw in enumerate(frames()):
            writer.add_message(speed, stamp(k) + 9, b"\0\1\0\0" + bytes([k] * 4), stamp(k) - 3, 100 + k)
            writer.add_message(camera, stamp(k) + 5, serialized(k, raw), stamp(k) + 1, 7 * k)
        writer.add_message(text, START - 1, b"{}", START - 2)
        writer.add_metadata("drive", {"road": "wet"})
        writer.add_metadata("rosbag2", {"serialized_metadata": f"topics: [{TOPIC}]"})
        writer.add_attachment(3, 4, "notes", "text/plain", b"rain")
        writer.finish()  # type: ignore[no-untyped-call]
    return path / "rich.mcap"


def test_all_else_is_copied(tmp_path: Path) -> None:
    source = make_rich(tmp_path)
    before = contents(source)
    (done,) = compress_recording(source, tmp_path / "small.mcap", (TOPIC,)).values()
    small = contents(tmp_path / "small.mcap")
    sizes = [[len(row[4]) for row in found["messages"] if row[0] in (TOPIC, NEW)] for found in (before, small)]
    assert done == Conversion(4, 0, sum(sizes[0]), sum(sizes[1]))
    assert [row for row in small["topics"] if row[0] != NEW] == [
        (topic, kind, encoding, pairs) for topic, kind, encoding, pairs in before["topics"] if topic != TOPIC
    ]
    assert (NEW, COMPRESSED, "cdr", str([("offered_qos_profiles", QOS)])) in small["topics"]
    assert small["definitions"]["my_msgs/msg/Speed"] == before["definitions"]["my_msgs/msg/Speed"]
    for old, new in zip(before["messages"], small["messages"]):
        assert new[:4] == (NEW if old[0] == TOPIC else old[0], *old[1:4])
        assert (new[4] == old[4]) == (old[0] != TOPIC)
    assert len(before["messages"]) == len(small["messages"])
    assert small["metadata"] == [("drive", {"road": "wet"})]
    assert small["attachments"] == before["attachments"]
    assert small["chunks"] == {"lz4"}
    decompress_recording(tmp_path / "small.mcap", tmp_path / "again.mcap")
    again = contents(tmp_path / "again.mcap")
    for part in ("messages", "attachments", "definitions"):
        assert again[part] == before[part], part


def compressed(mode: str) -> Callable[[Path], Path]:
    return lambda path: make_rosbag2(path, compression=mode)


@pytest.mark.parametrize("make", [*MAKERS[:3], compressed("FILE"), compressed("MESSAGE")])
def test_recordings_of_every_format(make: Callable[[Path], Path], tmp_path: Path) -> None:
    source = make(tmp_path)
    small, again = tmp_path / "small.mcap", tmp_path / "again.mcap"
    assert set(compress_recording(source, small)) == {NEW}
    assert set(decompress_recording(small, again)) == {TOPIC}
    want = cdrs(source)
    assert len(want) == 4
    assert cdrs(small) == cdrs(small, TOPIC) == cdrs(again) == want
    others = [[row for row in contents(path)["messages"] if row[0] == "/other"] for path in (small, again)]
    assert [(row[1], decode(row[4], messages.FLOAT32).data) for row in others[0]] == [(stamp(k), k) for k in range(4)]
    assert others[0] == others[1]


def test_a_database_says_what_its_topics_are(tmp_path: Path) -> None:
    """QoS, and since ROS 2 Iron the definitions of types, are in its tables."""
    folder = make_rosbag2(tmp_path)
    (file,) = folder.glob("*.db3")
    with closing(sqlite3.connect(str(file))) as base:
        base.execute(
            "UPDATE topics SET offered_qos_profiles = ?, type = 'my_msgs/msg/Speed' WHERE name = '/other'", (QOS,)
        )
        base.execute("DROP TABLE IF EXISTS message_definitions")
        base.execute(
            "CREATE TABLE message_definitions (topic_type TEXT, encoding TEXT, encoded_message_definition TEXT)"
        )
        base.execute("INSERT INTO message_definitions VALUES ('my_msgs/msg/Speed', 'ros2msg', 'float32 speed')")
        base.commit()
    compress_recording(file, tmp_path / "small.mcap")
    small = contents(tmp_path / "small.mcap")
    assert ("/other", "my_msgs/msg/Speed", "cdr", str([("offered_qos_profiles", QOS)])) in small["topics"]
    assert small["definitions"]["my_msgs/msg/Speed"] == ("ros2msg", b"float32 speed")
    with closing(sqlite3.connect(str(file))) as base:
        base.execute("UPDATE topics SET offered_qos_profiles = x'00' WHERE name = '/other'")
        base.commit()
    with pytest.raises(SourceError, match="a topic is not described by texts"):
        compress_recording(folder, tmp_path / "none.mcap")
    assert not (tmp_path / "none.mcap").exists()


def test_replay_makes_the_same_of_both(tmp_path: Path, capsys: Any) -> None:
    """Also of messages that are damaged, which stay as they are and are counted alike."""
    rows = [(stamp(k), serialized(k, raw)[: -1 if k == 2 else None]) for k, raw in enumerate(frames())]
    source = write(tmp_path / "in.mcap", rows)
    outputs = []
    for name, commands in {
        "plain": [],
        "small": [["compress", str(source), "-o", str(tmp_path / "small.mcap"), "--topic", TOPIC]],
        "again": [["decompress", str(tmp_path / "small.mcap"), "-o", str(tmp_path / "again.mcap")]],
    }.items():
        for command in commands:
            assert cli.main(command) == 0
            assert "3 images, " in capsys.readouterr().out
        path = source if name == "plain" else tmp_path / f"{name}.mcap"
        out = tmp_path / f"out_{name}.mcap"
        assert cli.main(on_cpu(["replay", str(path), "--topic", TOPIC, "-o", str(out), "--report", "-"])) == 0
        assert ", 1 could not be used" in capsys.readouterr().out
        outputs.append(out.read_bytes())
    assert outputs[0] == outputs[1] == outputs[2]
    assert contents(tmp_path / "again.mcap")["messages"] == contents(source)["messages"]


def two_cameras(path: Path) -> Path:
    with open_sink(path / "two.mcap", {}) as sink:
        for k, raw in enumerate(frames()):
            for topic in ("/left", "/right"):
                sink.write(topic, IMAGE, stamp(k), serialized(k, raw))
    return path / "two.mcap"


def test_topics_are_chosen(tmp_path: Path, capsys: Any) -> None:
    source, out = two_cameras(tmp_path), tmp_path / "out.mcap"
    assert cli.main(["compress", str(source), "-o", str(out)]) == 1
    assert (
        "or --topic say which; it has: /left (sensor_msgs/msg/Image, mono8), /right (sensor" in capsys.readouterr().err
    )
    assert cli.main(["compress", str(source), "-o", str(out), "--topic", "/left"]) == 0
    assert [row[0] for row in contents(out)["topics"]] == ["/left/polar_zstd", "/right"]
    both = ["--topic", "/left", "--topic", "/right"]
    assert cli.main(["compress", str(source), "-o", str(out), *both]) == 1
    assert "out.mcap exists already; --force replaces it" in capsys.readouterr().err
    assert cli.main(["compress", str(source), "-o", str(out), "--force", *both]) == 0
    assert set(decompress_recording(out, tmp_path / "again.mcap")) == {"/left", "/right"}
    assert contents(tmp_path / "again.mcap")["messages"] == contents(source)["messages"]


def test_copies_have_the_metadata_of_this_package(tmp_path: Path) -> None:
    """Among them the state of the camera, which is read from the beginning of a recording."""
    raw = np.random.default_rng(0).integers(0, 256, (1024, 1024)).astype(np.uint8)
    with open_sink(tmp_path / "in.mcap", {"camera": "state"}) as sink:
        for k in range(3):  # of more than a chunk
            sink.write(TOPIC, IMAGE, stamp(k), serialized(k, raw))
    compress_recording(tmp_path / "in.mcap", tmp_path / "out.mcap")
    decompress_recording(tmp_path / "out.mcap", tmp_path / "again.mcap")
    (tmp_path / "file.mcap.zstd").write_bytes(zstandard.compress((tmp_path / "in.mcap").read_bytes()))
    for name in ("in.mcap", "out.mcap", "again.mcap", "file.mcap.zstd"):
        assert recorded_metadata(tmp_path / name) == {"camera": "state"}


def test_a_folder_named_like_a_ros1_bag(tmp_path: Path) -> None:
    folder = make_rosbag2(tmp_path).rename(tmp_path / "drive.bag")
    assert [row.images for row in compress_recording(folder, tmp_path / "out.mcap").values()] == [4]


def test_what_cannot_be_converted(tmp_path: Path, capsys: Any) -> None:
    source, bag = make_mcap(tmp_path), make_rosbag1(tmp_path)
    with open_sink(tmp_path / "both.mcap", {}) as sink:
        for topic, kind in ((TOPIC, IMAGE), (NEW, COMPRESSED)):
            sink.write(topic, kind, 1, b"\0\1\0\0")
    cut = tmp_path / "cut.mcap"
    data = bytearray(source.read_bytes())
    data[len(data) // 2] ^= 0xFF
    cut.write_bytes(data)
    folder = tmp_path / "pictures"
    folder.mkdir()
    np.save(folder / "a.npy", frames()[0])
    names = sorted(path.name for path in tmp_path.iterdir())
    for words, code, text in (
        (["compress", str(bag)], 1, "in.bag is not a ROS 2 recording: expected .mcap, .db3 or a rosbag2 folder"),
        (["compress", str(folder)], 1, "pictures is not a ROS 2 recording"),
        (["compress", str(tmp_path / "none.mcap")], 1, "none.mcap does not exist"),
        (["compress", str(tmp_path / "both.mcap")], 1, f"has a topic {NEW} already"),
        (["compress", str(source), "--topic", "/top"], 1, "has no images on /top; it has: /arena"),
        (["compress", str(cut)], 1, "cut.mcap is damaged"),
        (["compress", str(source), "--max-mb", "1048577"], 2, "expected a whole number from 1 to 1048576"),
        (["decompress", str(source)], 1, "has no images on a topic that ends in /polar_zstd"),
    ):
        try:
            assert cli.main([*words, "-o", str(tmp_path / "out.mcap")]) == code
        except SystemExit as exit_:
            assert exit_.code == code  # noqa: PT017 - argparse ends the process
        assert text in capsys.readouterr().err
    assert cli.main(["compress", str(source), "-o", str(source), "--force"]) == 2
    assert "would replace an input" in capsys.readouterr().err
    assert cli.main(["decompress", str(source), "-o", str(tmp_path / "out.db3")]) == 2
    assert "the output is an .mcap file" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_copy_replaces_a_file_only_if_it_may(tmp_path: Path, capsys: Any) -> None:
    """In Python and on the command line, which also asks for the name of the copy."""
    source, out = make_mcap(tmp_path), tmp_path / "out.mcap"
    compress_recording(source, out)
    before = out.read_bytes()
    for call, path in ((compress_recording, source), (decompress_recording, out)):
        (tmp_path / "old.mcap").write_bytes(b"old")
        with pytest.raises(FileExistsError, match=r"old\.mcap exists already"):
            call(path, tmp_path / "old.mcap")
        assert (tmp_path / "old.mcap").read_bytes() == b"old"
        call(path, tmp_path / "old.mcap", force=True)
    assert cdrs(tmp_path / "old.mcap") == cdrs(source)
    compress_recording(source, out, force=True)
    assert out.read_bytes() == before
    for command in ("compress", "decompress"):
        with pytest.raises(SystemExit) as stop:
            cli.main([command, str(out)])
        assert stop.value.code == 2
        assert "required: -o/--output" in capsys.readouterr().err
