"""What `replay.launch.py` starts beside the node: it plays a recording, counts and compares. Launch is not needed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Callable, Tuple

import numpy as np
import pytest

pytest.importorskip("rclpy")

from support import ROOT

from polar_pipeline import Pipeline
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.tools.play import live_check

pytestmark = pytest.mark.ros
STAMPS = [100_000_000_000 + k * 100_000_000 for k in range(6)]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording `drive.mcap`, its products `golden.mcap`, and `wrong.mcap` with an error in frame 3."""
    rng = np.random.default_rng(3)
    with open_sink(tmp_path / "drive.mcap", {}) as drive, open_sink(tmp_path / "golden.mcap", {}) as golden, open_sink(
        tmp_path / "wrong.mcap", {}
    ) as wrong, Pipeline(products="intensity", dtype="uint8", backend="cpu") as pipeline:
        for k, stamp in enumerate(STAMPS):
            mosaic = rng.integers(10, 200, (48, 64)).astype(np.uint8)
            image = pipeline(mosaic)["intensity"]
            drive.write("/image_raw", messages.IMAGE, stamp, messages.encode_image(stamp, "", "mono8", mosaic))
            golden.write("/intensity", messages.IMAGE, stamp, messages.encode_image(stamp, "", "mono8", image.copy()))
            image[5, 7] += 9 if k == 3 else 0
            wrong.write("/intensity", messages.IMAGE, stamp, messages.encode_image(stamp, "", "mono8", image))
    return tmp_path / "drive.mcap"


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch, recording: Path, capsys: Any) -> Callable[..., Tuple[int, str]]:
    """Run the live test with a player that leaves out the image `skip`; returns exit code and output."""
    monkeypatch.chdir(recording.parent)
    monkeypatch.setenv("PATH", str(recording.parent), prepend=os.pathsep)

    def run(name: str, *words: str, skip: int = -1) -> Tuple[int, str]:
        player = recording.with_name("ros2")
        player.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT}/test/ros/bag_player.py --skip {skip} "$@"\n')
        player.chmod(0o755)
        code = live_check.main([name, "--image-topic", "/image_raw", *words])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_frames_are_counted_and_compared(node: Any, replay: Any) -> None:
    node("-p", "use_sim_time:=true", "-p", "output_depth:=uint8")
    code, said = replay("drive.mcap", "--compare", "golden.mcap")
    assert (code, said.splitlines()[-1]) == (0, "6 of 6 frames came out of the node"), said
    assert "passed: 1 products compared with golden.mcap" in said
    # an image that is lost on its way to the node, which cannot know, and an error in another one
    code, said = replay("drive.mcap", "--compare", "wrong.mcap", skip=2)
    assert code == 1, said
    assert "5 of 6 frames came out of the node; the node reports: received 11, published 11" in said
    assert "1 frames are in only one of the two recordings, the earliest has stamp 100.200000000 s" in said
    assert "frame 3, stamp 100.300000000 s, pixel x 7, y 5: error 9 levels" in said


@pytest.mark.parametrize(
    ("name", "words", "reason"),
    [
        ("none.mcap", [], "none.mcap does not exist"),
        ("golden.mcap", [], "golden.mcap has no images on /image_raw"),
        ("small.mcap", [], "small.mcap holds compressed images on /image_raw"),
        ("drive.mcap", ["--compare", "none.mcap"], "none.mcap"),
        ("drive.mcap", ["--compare", "cut.mcap"], "cut.mcap has no index: the recording was cut off"),
    ],
)
def test_recordings_that_cannot_be_used(recording: Path, replay: Any, name: str, words: Any, reason: str) -> None:
    """No node is needed to say so."""
    if name == "small.mcap":
        data = np.frombuffer(b"zstd", np.uint8)
        with open_sink(recording.with_name(name), {}) as sink:
            cdr = messages.encode_compressed(1, "", "mono8; polar_zstd", data)
            sink.write("/image_raw/polar_zstd", messages.COMPRESSED, 1, cdr)
    recording.with_name("cut.mcap").write_bytes(recording.with_name("golden.mcap").read_bytes()[:-100])
    code, said = replay(name, *words)
    assert (code, reason in said) == (2, True), said
