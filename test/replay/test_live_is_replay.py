"""The live node and replay make the same bytes of the same frames of a real camera."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from support import FRAMES, REAL_FRAMES, ROOT, first_of

from polar_pipeline.cli import main
from polar_pipeline.cuda.backend import problem
from polar_pipeline.doctor.checks import transport_environment
from polar_pipeline.replay.source import open_source
from polar_pipeline.topics import PRODUCT_TOPICS

pytest.importorskip("rclpy")
mcap_reader = pytest.importorskip("mcap.reader")
pytestmark = pytest.mark.ros

NAMES = ("intensity", "dolp", "aolp", "preview", "ssim_map", "ssim")


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    """A folder of two raw frames, and nothing else."""
    folder = tmp_path / "frames"
    folder.mkdir()
    for name in REAL_FRAMES:
        shutil.copy(FRAMES / name, folder)
    return folder


@pytest.mark.parametrize("resolution", first_of(["half", "full"]))  # `demosaic: auto` takes another method at each
@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_live_is_replay_bit_for_bit(frames: Path, tmp_path: Path, backend: str, resolution: str) -> None:
    if backend == "cuda":
        reason = problem()
        if reason:
            pytest.skip(reason)
    if resolution == "full":
        for path in frames.iterdir():  # a part, which keeps the products small
            cv2.imwrite(str(path), cv2.imread(str(path), cv2.IMREAD_UNCHANGED)[:512, :612])
    golden = tmp_path / "golden.mcap"
    command = ["replay", str(frames), "-o", str(golden), "--products", ",".join(NAMES), "--resolution", resolution]
    assert main([*command, "--backend", backend]) == 0

    environment = dict(
        os.environ,
        PYTHONPATH=str(ROOT),
        **transport_environment(),
    )
    command = [sys.executable, "-m", "polar_pipeline.node", "--ros-args"]
    command += ["-p", f"resolution:={resolution}", "-p", f"backend:={backend}"]
    node = subprocess.Popen(command, env=environment)
    try:
        script = Path(__file__).parents[1] / "camera_and_recorder.py"
        command = [sys.executable, str(script), str(frames), str(tmp_path / "live.npz"), *NAMES]
        subprocess.run(command, env=environment, check=True, timeout=200)
    finally:
        node.send_signal(signal.SIGINT)
        assert node.wait(timeout=30) == 0

    live = np.load(tmp_path / "live.npz")
    with open_source(frames) as source:
        stamps = [record.image().stamp_ns for record in source.records]
    topics = {f"/{PRODUCT_TOPICS[name].name}": name for name in NAMES}
    seen = set()
    with golden.open("rb") as stream:
        for _, channel, message in mcap_reader.make_reader(stream).iter_messages():
            if channel.topic not in topics:
                assert channel.topic == "/quality/saturated"
                continue
            key = f"{stamps.index(message.log_time)}/{topics[channel.topic]}"
            # Whole messages: header, encoding and pixels.
            np.testing.assert_array_equal(np.frombuffer(message.data, np.uint8), live[key], err_msg=key)
            seen.add(key)
    assert seen == set(live.files)
    assert len(seen) == len(REAL_FRAMES) * len(NAMES)
