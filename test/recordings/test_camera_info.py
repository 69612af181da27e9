"""Lens calibrations of recordings: which belong to the images, and those that replay writes beside its products."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
from mcap.reader import make_reader
from rosbags import rosbag1
from rosbags.typesys import Stores, get_typestore
from rosbags_messages import encode, typestore

from polar_pipeline import Pipeline
from polar_pipeline.cli.entry import main
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.messages import CAMERA_INFO, IMAGE
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.recordings.source import open_source, recorded_lens
from polar_pipeline.replay.job import Job, process_recording

START, PERIOD, COUNT = 1_700_000_000_000_000_000, 40_000_000, 6
SHAPE = (32, 48)
RAW = np.random.default_rng(0).integers(10, 200, SHAPE).astype(np.uint8)


def calibration(f: float = 60.0, width: int = SHAPE[1], store: Any = None) -> Any:
    """A `CameraInfo` whose principal point is (23.5, 15.5), the center of the frame, and 2 pixels left of it in P."""
    types = (store or typestore()).types
    time = types["builtin_interfaces/msg/Time"](START // 10**9, 0)
    sequence = [0] if store else []  # of ROS 1
    header = types["std_msgs/msg/Header"](*sequence, time, "cam")
    k, p = np.array([f, 0, 23.5, 0, f, 15.5, 0, 0, 1]), np.array([f, 0, 21.5, 0, 0, f, 15.5, 0, 0, 0, 1, 0])
    roi = types["sensor_msgs/msg/RegionOfInterest"](0, 0, 0, 0, False)
    d = np.array([-0.2, 0.05, 0, 0, 0])
    return types[CAMERA_INFO](header, SHAPE[0], width, "plumb_bob", d, k, np.eye(3).reshape(-1), p, 0, 0, roi)


def serialized(**values: Any) -> bytes:
    return bytes(encode(calibration(**values), CAMERA_INFO))


def write(path: Path, infos: Dict[str, List[bytes]], images: str = "/left/image_raw") -> Path:
    """A recording of frames, and of other messages between the first and the second one."""
    with open_sink(path, {}) as sink:
        for k in range(COUNT):
            stamp = START + k * PERIOD
            sink.write(images, IMAGE, stamp, messages.encode_image(stamp, "cam", "mono8", RAW))
            for topic, rows in infos.items() if k == 0 else ():
                for row in rows:
                    sink.write(topic, CAMERA_INFO, stamp + 1, row)
    return path


def focal_length(cdr: Any) -> float:
    return float(messages.decode_camera_info(cdr).k[0])


@pytest.mark.parametrize(
    ("images", "infos", "want"),
    [
        ("/left/image_raw", {"/right/camera_info": 1.0, "/left/camera_info": 2.0}, 2.0),
        ("/image_raw", {"/camera_info": 2.0, "/left/camera_info": 1.0}, 2.0),
        ("/left/image_raw", {"/driver/info": 3.0}, 3.0),  # of the same frame_id
        ("/left/image_raw", {"/right/camera_info": 1.0, "/driver/info": 3.0}, None),
        ("/left/image_raw", {}, None),
    ],
)
def test_which_calibration_belongs_to_images(images: str, infos: Dict[str, float], want: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "in.mcap", {topic: [serialized(f=f)] for topic, f in infos.items()}, images)
    if want is None:
        with pytest.raises(SourceError):
            recorded_lens(path, images)
    else:
        assert recorded_lens(path, images).k[0] == recorded_lens(path).k[0] == want


@pytest.mark.parametrize(
    ("frame_ids", "others", "is_used"),
    [
        (("cam", "lidar_cam"), (), False),
        (("cam", "/cam"), (), True),
        (("cam", ""), (), False),
        (("", ""), (), True),
        (("", ""), ("/right/image_raw",), False),  # two cameras without names
        (("cam", "cam"), ("/right/image_raw",), True),
    ],
)
def test_the_only_calibration_is_used_for_its_own_camera(
    frame_ids: Tuple[str, str], others: Tuple[str, ...], is_used: bool, tmp_path: Path, caplog: Any
) -> None:
    info = calibration()
    info.header.frame_id = frame_ids[1]
    path = tmp_path / "in.mcap"
    with open_sink(path, {}) as sink:
        for topic in ("/left/image_raw", *others):
            sink.write(topic, IMAGE, START, messages.encode_image(START, frame_ids[0], "mono8", RAW))
        sink.write("/driver/info", CAMERA_INFO, START + 1, bytes(encode(info, CAMERA_INFO)))
    with open_source(path, "/left/image_raw") as source:
        assert all((record.camera_info is not None) == is_used for record in source.records)
    assert ("may be of another camera" in caplog.text) != is_used


def test_calibration_beside_compressed_images(tmp_path: Path) -> None:
    infos = {"/left/camera_info": [serialized(f=2.0)], "/left/image_raw/camera_info": [serialized(f=1.0)]}
    path = write(tmp_path / "in.mcap", infos)
    assert main(["compress", str(path), "-o", str(tmp_path / "small.mcap")]) == 0
    with open_source(tmp_path / "small.mcap") as source:
        assert source.topic == "/left/image_raw/polar_zstd"
    for topic in ("/left/image_raw/polar_zstd", "/left/image_raw"):
        assert recorded_lens(tmp_path / "small.mcap", topic).k[0] == 2.0


def test_calibration_of_ros1(tmp_path: Path) -> None:
    store = get_typestore(Stores.ROS1_NOETIC)
    with rosbag1.Writer(tmp_path / "in.bag") as writer:
        connection = writer.add_connection("/left/camera_info", CAMERA_INFO, typestore=store)
        writer.write(connection, START, store.serialize_ros1(calibration(2.0, store=store), CAMERA_INFO))
        connection = writer.add_connection("/left/image_raw", IMAGE, typestore=store)
        writer.write(connection, START, b"not decoded here")
    assert recorded_lens(tmp_path / "in.bag").k[0] == 2.0


def written(path: Path) -> Dict[str, List[Tuple[int, Any]]]:
    """Topic -> times and calibrations."""
    found: Dict[str, List[Tuple[int, Any]]] = {}
    with path.open("rb") as stream:
        for schema, channel, row in make_reader(stream).iter_messages():
            if schema is not None and schema.name == CAMERA_INFO:
                found.setdefault(channel.topic, []).append((row.log_time, messages.decode_camera_info(row.data)))
    return found


PRODUCTS = "intensity,dolp,ssim_map,ssim"
BESIDE = {"/camera_info_out", "/polarization/camera_info", "/quality/camera_info"}


def test_products_have_a_calibration_beside_them(tmp_path: Path) -> None:
    """The one that can be read, scaled to the image."""
    path = write(tmp_path / "in.mcap", {"/left/camera_info": [b"damaged", serialized()]})
    pipeline = Pipeline(products=PRODUCTS, backend="cpu", ssim_stride=4)
    process_recording(Job(path, products=tmp_path / "out.mcap"), pipeline)
    found = written(tmp_path / "out.mcap")
    assert set(found) == BESIDE
    stamps = [START + k * PERIOD for k in range(COUNT)]
    for topic, rows in found.items():
        assert [time for time, _ in rows] == [info.stamp_ns for _, info in rows] == stamps
        for _, info in rows:
            assert info.frame_id == "cam"
            step = 8 if topic.startswith("/quality") else 2
            assert (info.height, info.width) == (SHAPE[0] // step, SHAPE[1] // step)
            # the center of the image; (23.5 - 2 + 1/2) / step - 1/2
            np.testing.assert_allclose(info.k, [60 / step, 0, 24 / step - 0.5, 0, 60 / step, 16 / step - 0.5, 0, 0, 1])
            assert info.p[2] == 22 / step - 0.5


@pytest.mark.parametrize(
    ("infos", "products"),
    [({}, PRODUCTS), ({"/left/camera_info": [serialized(width=99)]}, PRODUCTS), ({"/info": [serialized()]}, "ssim")],
)
def test_products_without_a_calibration(
    infos: Dict[str, List[bytes]], products: str, tmp_path: Path, caplog: Any
) -> None:
    """The recording has none, or one of other frames, which is a warning; numbers have none."""
    path = write(tmp_path / "in.mcap", infos)
    process_recording(Job(path, products=tmp_path / "out.mcap"), Pipeline(products=products, backend="cpu"))
    assert not written(tmp_path / "out.mcap")
    assert caplog.text.count("99x32 of a frame of 48x32 pixels") == ("/left/camera_info" in infos)


@pytest.mark.parametrize("command", ["replay", "process"])
def test_a_lens_that_changes(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Products have the calibration of their own frame; `rectify` refuses frames with another than the first."""
    path = tmp_path / "in.mcap"
    with open_sink(path, {}) as sink:
        for k in range(COUNT):
            stamp = START + k * PERIOD
            info = messages.decode_camera_info(serialized(f=60.0 + k // 4))
            sink.write("/camera_info", CAMERA_INFO, stamp, bytes(messages.encode_camera_info(info, stamp, "cam")))
            sink.write("/image_raw", IMAGE, stamp, messages.encode_image(stamp, "cam", "mono8", RAW))
    out = tmp_path / "out.mcap" if command == "replay" else tmp_path / "out"
    arguments = [command, str(path), "-o", str(out), "--force", "--products", "dolp", "--backend", "cpu"]
    assert main(arguments) == 0
    if command == "replay":
        assert [2 * info.k[0] for _, info in written(out)["/polarization/camera_info"]] == [60.0] * 4 + [61.0] * 2
    assert main([*arguments, "--rectify", "camera_info"]) == 0
    assert "2 x camera_info; the first: its lens calibration is not" in capsys.readouterr().err


def make_mcap(path: Path, rows: List[Tuple[int, str, str, bytes]]) -> Path:
    with open_sink(path / "in.mcap", {}) as sink:
        for time_ns, topic, kind, data in rows:
            sink.write(topic, kind, time_ns, data)
    return path / "in.mcap"


def make_folder(path: Path, rows: List[Tuple[int, str, str, bytes]]) -> Path:
    """A file ends between an image and its calibration."""
    (path / "in").mkdir()
    for k, part in enumerate((rows[:3], rows[3:])):
        make_mcap(path, part).rename(path / "in" / f"in_{k}.mcap")
    return path / "in"


def make_database(path: Path, rows: List[Tuple[int, str, str, bytes]]) -> Path:
    numbers = {topic: k for k, (topic, kind) in enumerate(sorted({row[1:3] for row in rows}))}
    with closing(sqlite3.connect(str(path / "in.db3"))) as base, base:
        base.execute("CREATE TABLE topics(id INTEGER, name TEXT, type TEXT, serialization_format TEXT)")
        base.execute("CREATE TABLE messages(topic_id INTEGER, timestamp INTEGER, data BLOB)")
        for topic, kind in sorted({row[1:3] for row in rows}):
            base.execute("INSERT INTO topics VALUES (?, ?, ?, 'cdr')", [numbers[topic], topic, kind])
        for time_ns, topic, _, data in rows:
            base.execute("INSERT INTO messages VALUES (?, ?, ?)", [numbers[topic], time_ns, data])
    return path / "in.db3"


@pytest.mark.parametrize("make", [make_mcap, make_folder, make_database])
@pytest.mark.parametrize(
    ("is_stamped", "lengths"), [(True, [60, 61, 61, 63, 64]), (False, [60, 60, 61, 61, 63])], ids=["stamped", "without"]
)
def test_the_calibration_of_each_image(make: Any, is_stamped: bool, lengths: List[float], tmp_path: Path) -> None:
    """A calibration follows each image but the third: one of its stamp is its own, any other that of later images."""
    rows = []
    for k in range(5):
        stamp = START + k * PERIOD
        rows.append((stamp, "/left/image_raw", IMAGE, bytes(messages.encode_image(stamp, "cam", "mono8", RAW))))
        rows.append((stamp + 1, "/right/camera_info", CAMERA_INFO, serialized(f=99.0)))
        info = messages.decode_camera_info(serialized(f=60.0 + k))
        data = bytes(messages.encode_camera_info(info, stamp if is_stamped else 0, "cam"))
        rows += [(stamp + 2, "/left/camera_info", CAMERA_INFO, data)] if k != 2 else []
    with open_source(make(tmp_path, rows), "/left/image_raw") as source:
        assert [record.camera_info and record.camera_info.k[0] for record in source.records] == lengths
