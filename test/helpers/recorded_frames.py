"""Small recordings of every format for the tests."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import pytest
from rosbags import rosbag1, rosbag2
from rosbags.typesys import Stores, get_typestore

from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import FLOAT32, IMAGE
from polar_pipeline.recordings.sink import open_sink

TOPIC = "/arena_camera_node/images"
START = 1_700_000_000_000_000_000
PERIOD = 41_666_667
#: Whether this release of rosbags writes rosbag2 folders of mcap files and names its formats' versions.
MODERN = "storage_plugin" in inspect.signature(rosbag2.Writer).parameters


class Row(NamedTuple):
    """A frame, its time of recording and its stamp."""

    time_ns: int
    stamp_ns: int
    raw: np.ndarray

    def cdr(self) -> bytes:
        return bytes(messages.encode_image(self.stamp_ns, "cam", "mono8", self.raw))


def frames(count: int = 4) -> List[np.ndarray]:
    """Smooth raw frames, so that products differ from frame to frame but hold no saturated pixels."""
    y, x = np.mgrid[:32, :40]
    return [
        np.rint(110 + 80 * np.sin((x + 3 * k) / 9) * np.cos(y / 7) + 9 * (x % 2)).astype(np.uint8) for k in range(count)
    ]


def stamp(index: int) -> int:
    return START + index * PERIOD


def serialized(index: int, raw: np.ndarray) -> bytes:
    return Row(0, stamp(index), raw).cdr()


ROWS = tuple(Row(stamp(k) + 5, stamp(k), raw) for k, raw in enumerate(frames()))


def write(path: Path, rows: Sequence[Tuple[int, Any]], topic: str = TOPIC, kind: str = IMAGE) -> Path:
    """An mcap file of one topic, from times of recording and messages."""
    with open_sink(path, {}) as sink:
        for time_ns, cdr in rows:
            sink.write(topic, kind, time_ns, cdr)
    return path


def make_mcap(path: Path, rows: Sequence[Row] = ROWS) -> Path:
    with open_sink(path / "in.mcap", {}) as sink:
        for k, row in enumerate(rows):
            sink.write(TOPIC, IMAGE, row.time_ns, row.cdr())
            sink.write("/other", FLOAT32, row.time_ns - 5, messages.encode_float32(k))
    return path / "in.mcap"


def write_bag(
    writer: Any, store: Any, serialize: Callable[[Any, str], Any], rows: Sequence[Row] = ROWS, **options: Any
) -> None:
    """Write frames, and a number before each of them, by rosbags."""
    image = writer.add_connection(TOPIC, IMAGE, typestore=store, **options)
    other = writer.add_connection("/other", FLOAT32, typestore=store, **options)
    types = store.types
    for k, row in enumerate(rows):
        seconds, nanoseconds = divmod(row.stamp_ns, 10**9)
        time = types["builtin_interfaces/msg/Time"](seconds, nanoseconds)
        sequence = [k] if "seq" in types["std_msgs/msg/Header"].__dataclass_fields__ else []
        header = types["std_msgs/msg/Header"](*sequence, time, "cam")
        message = types[IMAGE](header, *row.raw.shape, "mono8", 0, row.raw.shape[1], row.raw.reshape(-1))
        writer.write(image, row.time_ns, serialize(message, IMAGE))
        writer.write(other, row.time_ns - 5, serialize(types[FLOAT32](float(k)), FLOAT32))


def make_rosbag2(
    path: Path, rows: Sequence[Row] = ROWS, storage: Optional[str] = None, compression: Optional[str] = None
) -> Path:
    options: Dict[str, Any] = {"version": 8} if "version" in inspect.signature(rosbag2.Writer).parameters else {}
    if storage:
        options["storage_plugin"] = getattr(rosbag2.StoragePlugin, storage)
    writer = rosbag2.Writer(path / "in", **options)
    if compression:
        names: Any = rosbag2 if hasattr(rosbag2, "CompressionMode") else rosbag2.Writer
        writer.set_compression(names.CompressionMode[compression], names.CompressionFormat.ZSTD)
    store = get_typestore(Stores.ROS2_HUMBLE)
    with writer:
        write_bag(writer, store, store.serialize_cdr, rows)
    return path / "in"


def make_rosbag2_mcap(path: Path) -> Path:
    return make_rosbag2(path, storage="MCAP")


def make_rosbag1(path: Path, rows: Sequence[Row] = ROWS) -> Path:
    store = get_typestore(Stores.ROS1_NOETIC)
    with rosbag1.Writer(path / "in.bag") as writer:
        write_bag(writer, store, store.serialize_ros1, rows)
    return path / "in.bag"


MAKERS = [
    make_mcap,
    make_rosbag2,
    pytest.param(make_rosbag2_mcap, marks=pytest.mark.skipif(not MODERN, reason="this rosbags writes no mcap")),
    make_rosbag1,
]
