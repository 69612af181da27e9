"""Recordings played into the node: frames with their lens calibrations, and what the node makes of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator, List, Tuple

import numpy as np
import pytest
from support import wait_for

pytest.importorskip("rclpy")

from ros.test_node import SHAPE, Rig, mosaic, pixels, stamp_of
from sensor_msgs.msg import CameraInfo, Image

from polar_pipeline import Pipeline, messages
from polar_pipeline.geometry import LensCalibration, make_lens
from polar_pipeline.replay.sink import open_sink
from polar_pipeline.stream.play import play

pytestmark = pytest.mark.ros
START = 1_700_000_000_000_000_000
#: Nanoseconds from frame to frame.
PERIOD = 20_000_000
COUNT = 40


def focal_length(index: int) -> float:
    """The camera is calibrated anew while it is recorded."""
    return 60.0 if index < COUNT // 2 else 75.0


def matrices(f: float) -> Tuple[List[float], List[float]]:
    return [f, 0, 31.5, 0, f, 23.5, 0, 0, 1], [f, 0, 31.5, 0, 0, f, 23.5, 0, 0, 0, 1, 0]


def calibration(index: int, f: float) -> bytes:
    k, p = (np.array(row, float) for row in matrices(f))
    d = np.array([-0.2, 0.05, 0, 0, 0])
    info = messages.CameraInfo(0, "", *SHAPE, "plumb_bob", d, k, np.eye(3).reshape(-1), p)
    return bytes(messages.encode_camera_info(info, START + index * PERIOD, "cam"))


def lens(f: float) -> LensCalibration:
    k, p = matrices(f)
    return make_lens(SHAPE, "plumb_bob", (-0.2, 0.05, 0, 0, 0), k, np.zeros(9), p)


def record(path: Path) -> Path:
    """Two cameras, whose drivers publish a calibration after each frame; the other one is calibrated differently."""
    with open_sink(path, {}) as sink:
        for k in range(COUNT):
            stamp = START + k * PERIOD
            sink.write(
                "/left/image_raw", messages.IMAGE, stamp + 5, messages.encode_image(stamp, "cam", "mono8", mosaic(k))
            )
            if k == COUNT // 2:
                sink.write("/left/camera_info", messages.CAMERA_INFO, stamp + 6, b"damaged")
            sink.write("/left/camera_info", messages.CAMERA_INFO, stamp + 7, calibration(k, focal_length(k)))
            sink.write("/right/camera_info", messages.CAMERA_INFO, stamp + 7, calibration(k, 99.0))
    return path


@pytest.fixture
def rig() -> Iterator[Callable[..., Rig]]:
    made: List[Rig] = []

    def make(**values: Any) -> Rig:
        made.append(Rig(**values))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_node_rectifies_what_is_played(rig: Callable[..., Rig], tmp_path: Path) -> None:
    """Each image is rectified by one of its camera's calibrations; within a round the second follows the first.

    The first frame with a new calibration varies: image and calibration are two topics without a common order.
    """
    node = rig(output__rectify="camera_info")
    images, infos = node.listen(Image, "polarization/dolp"), node.listen(CameraInfo, "polarization/camera_info")
    pipelines = {f: Pipeline(products="dolp", backend="cpu", rectify=lens(f)) for f in (60.0, 75.0)}
    path, skipped = record(tmp_path / "in.mcap"), []
    rounds = 0

    def used(image: Any) -> float:
        """Focal length of the calibration that rectified an image."""
        index = (stamp_of(image) - START) // PERIOD
        matches = [f for f, run in pipelines.items() if np.array_equal(pixels(image), run(mosaic(index))["dolp"])]
        assert matches, f"frame {index} is not rectified by a calibration of its camera"
        return matches[0]

    def both_were_used() -> bool:
        nonlocal rounds
        rounds += 1
        play(path, "image_raw", "/left/image_raw", wait=30.0, on_skip=skipped.append)
        return {used(image) for image in list(images)} == set(pipelines) and len({info.k[0] for info in infos}) == 2

    wait_for(both_were_used, "images rectified by each calibration")
    assert [str(err.cause) for err in skipped] == ["cdr"] * rounds
    order = [used(image) for image in list(images)]
    assert sum(after < before for before, after in zip(order, order[1:])) < rounds
    assert {info.k[0] for info in list(infos)} == {30.0, 37.5}


@pytest.mark.parametrize("restamp", [False, True])
def test_calibrations_have_the_stamps_of_their_frames(rig: Callable[..., Rig], restamp: bool, tmp_path: Path) -> None:
    node = rig()
    images: List[Any] = []
    infos: List[Any] = []
    node.peer.create_subscription(Image, "/here/raw", images.append, 100)
    node.peer.create_subscription(CameraInfo, "/here/camera_info", infos.append, 100)
    path, numbers = record(tmp_path / "in.mcap"), {mosaic(k).tobytes(): k for k in range(COUNT)}
    rounds = 0

    def pairs_came() -> bool:
        """Play the recording: `play` waits for one of two subscriptions, so the other may miss the first messages."""
        nonlocal rounds
        rounds += 1
        assert play(path, "/here/raw", "/left/image_raw", 200.0, restamp=restamp, wait=30.0) == COUNT
        stamps = {stamp_of(image) for image in list(images)}
        return {info.k[0] for info in list(infos) if stamp_of(info) in stamps} == {60.0, 75.0}

    wait_for(pairs_came, "frames with each calibration")
    last_infos, last_images = list(infos), list(images)
    number = {stamp_of(image): numbers[bytes(image.data)] for image in last_images}
    assert all(stamp == START + k * PERIOD for stamp, k in number.items()) is not restamp
    pairs = [(info.k[0], number[stamp_of(info)]) for info in last_infos if stamp_of(info) in number]
    lost = rounds * COUNT - len(last_images)
    assert len(last_infos) - len(pairs) <= lost, "calibrations without a frame of their stamp"
    for focal, k in pairs:
        assert focal == focal_length(k)
