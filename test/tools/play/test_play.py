"""Recordings played into ROS: frames with their lens calibrations. `test_cli.py` plays into a real subscriber."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

pytest.importorskip("rclpy")

from polar_pipeline.recordings import messages
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.tools.play import play

pytestmark = pytest.mark.ros
START = 1_700_000_000_000_000_000
#: Nanoseconds from frame to frame.
PERIOD = 20_000_000
COUNT = 8
SHAPE = (16, 16)


def focal_length(index: int) -> float:
    """The camera is calibrated anew while it is recorded."""
    return 60.0 if index < COUNT // 2 else 75.0


def calibration(index: int, f: float) -> bytes:
    k, p = np.array([f, 0, 7.5, 0, f, 7.5, 0, 0, 1]), np.array([f, 0, 7.5, 0, 0, f, 7.5, 0, 0, 0, 1, 0])
    info = messages.CameraInfo(0, "", *SHAPE, "plumb_bob", np.zeros(5), k, np.eye(3).reshape(-1), p)
    return bytes(messages.encode_camera_info(info, START + index * PERIOD, "cam"))


def record(path: Path) -> Path:
    """Two cameras, whose drivers publish a calibration after each frame; the other one is calibrated differently."""
    with open_sink(path, {}) as sink:
        for k in range(COUNT):
            stamp = START + k * PERIOD
            image = messages.encode_image(stamp, "cam", "mono8", np.full(SHAPE, k, np.uint8))
            sink.write("/left/image_raw", messages.IMAGE, stamp + 5, image)
            if k == COUNT // 2:
                sink.write("/left/camera_info", messages.CAMERA_INFO, stamp + 6, b"damaged")
            sink.write("/left/camera_info", messages.CAMERA_INFO, stamp + 7, calibration(k, focal_length(k)))
            sink.write("/right/camera_info", messages.CAMERA_INFO, stamp + 7, calibration(k, 99.0))
    return path


class Publisher:
    """Keeps what is published; Ctrl-C comes after so many messages."""

    def __init__(self, topic: str, stop: int) -> None:
        self.topic_name, self._stop = topic, stop
        self.messages: List[bytes] = []

    def publish(self, cdr: bytes) -> None:
        self.messages.append(cdr)
        if len(self.messages) == self._stop:
            raise KeyboardInterrupt

    def get_subscription_count(self) -> int:
        return 1

    def wait_for_all_acked(self, _: Any) -> None:
        pass


@pytest.mark.parametrize("restamp", [False, True])
@pytest.mark.parametrize("ahead", [1, play.AHEAD_BYTES])
def test_each_frame_comes_with_the_calibration_that_held(
    ahead: int, restamp: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two rounds and a half, of a recording that is read ahead in part or completely."""
    stop = 5 * COUNT // 2
    made: Dict[str, Publisher] = {}
    monkeypatch.setattr(play, "AHEAD_BYTES", ahead)
    monkeypatch.setattr(play, "_publisher", lambda _, kind, topic: made.setdefault(kind, Publisher(topic, stop)))
    skipped: List[Any] = []
    path = record(tmp_path / "in.mcap")
    with pytest.raises(KeyboardInterrupt):
        play.play(path, "/here/raw", "/left/image_raw", 500.0, True, restamp, 30.0, skipped.append)
    images, infos = made[play.Image], made[play.CameraInfo]
    assert (images.topic_name, infos.topic_name) == ("/here/raw", "/here/camera_info")
    assert skipped == []
    assert any(text.startswith("camera_info: ") for text in caplog.messages)
    # Ctrl-C came with the last calibration
    assert len(infos.messages) == len(images.messages) + 1 == stop
    for k, (cdr, info) in enumerate(zip(images.messages, infos.messages)):
        image = messages.decode_image(cdr)
        assert image.data[0] == k % COUNT
        assert (image.stamp_ns == START + k % COUNT * PERIOD) is not restamp
        assert messages.peek_stamp(info) == image.stamp_ns
        assert messages.decode_camera_info(info).k[0] == focal_length(k % COUNT)
