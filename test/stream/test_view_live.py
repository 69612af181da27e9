"""`polar-pipeline view --topic NAME`: a live topic, written to a file until Ctrl-C."""
# ruff: noqa: E402 - rclpy and Rerun may be missing

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")

from rclpy.qos import QoSPresetProfiles
from rrd import image, read
from sensor_msgs.msg import Image
from support import ROOT, TIMEOUT

from polar_pipeline import Pipeline, messages
from polar_pipeline.cli import main

pytestmark = pytest.mark.ros


class Camera:
    """Publishes random frames, with counted stamps."""

    def __init__(self) -> None:
        self._context = rclpy.Context()
        rclpy.init(context=self._context)
        self._node = rclpy.create_node("camera", context=self._context)
        self._publisher = self._node.create_publisher(Image, "/cam/images", QoSPresetProfiles.SENSOR_DATA.value)
        self.sent: Dict[int, np.ndarray] = {}

    def send(self) -> None:
        stamp = 1_700_000_000_000_000_001 + len(self.sent)
        raw = np.random.default_rng(len(self.sent)).integers(10, 200, (64, 80)).astype(np.uint8)
        self.sent[stamp] = raw
        self._publisher.publish(bytes(messages.encode_image(stamp, "camera", "mono8", raw)))

    def send_until(self, condition: Any) -> None:
        end = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < end, "waited in vain"
            self.send()
            time.sleep(0.05)

    def close(self) -> None:
        self._node.destroy_node()
        self._context.shutdown()


@pytest.fixture
def camera() -> Iterator[Camera]:
    made = Camera()
    yield made
    made.close()


def start(out: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command, in a process of its own."""
    command = [sys.executable, "-m", "polar_pipeline", "view", "--topic", "/cam/images", "--backend", "cpu"]
    command += ["--products", "dolp,ssim", "--save", str(out), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=str(out.parent)
    )


def check(out: Path, camera: Camera) -> int:
    """Every frame of the file is one that was sent, in order, with its own products; gives their number."""
    rows = read(out)
    pipeline = Pipeline(products="dolp, ssim", backend="cpu")
    stamps = [row["stamp"] for row in rows["/polarization/dolp"]]
    assert stamps == sorted(set(stamps))
    for row, similarity in zip(rows["/polarization/dolp"], rows["/quality/ssim"]):
        expected = pipeline(camera.sent[row["stamp"]])
        np.testing.assert_array_equal(image(row), expected["dolp"])
        assert similarity["scalars"] == float(expected["ssim"])
    return len(stamps)


def test_ctrl_c_ends_and_keeps_what_came(camera: Camera, tmp_path: Path) -> None:
    process = start(tmp_path / "out.rrd")
    partial = tmp_path.glob
    camera.send_until(lambda: any(path.stat().st_size > 200_000 for path in partial(".out.rrd.*")))
    camera._publisher.publish(b"\x00\x01\x00\x00broken")  # costs nothing but itself
    seen = len(camera.sent)
    camera.send_until(lambda: len(camera.sent) > seen + 10)
    process.send_signal(signal.SIGINT)
    said, warned = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, warned
    assert "waits for images on /cam/images; Ctrl-C ends" in warned
    assert "not usable: 1 x cdr" in warned
    count = check(tmp_path / "out.rrd", camera)
    assert f"{count} frames on cpu" in said
    assert [path.name for path in tmp_path.iterdir()] == ["out.rrd"]


def test_a_name_that_is_none(tmp_path: Path, capsys: Any) -> None:
    assert main(["view", "--topic", "no topic", "--save", str(tmp_path / "out.rrd")]) == 1
    assert "'no topic' is not a topic's name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
