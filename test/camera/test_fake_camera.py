"""The camera on loopback: it sends what a sensor behind its features would, by which other tests judge frames."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import pytest
from fake_camera import FakeCamera
from support import TIMEOUT

from polar_pipeline.camera.aravis import CameraDevice, FoundCamera, Received
from polar_pipeline.sensor.frames import FORMATS, frame_from_buffer
from polar_pipeline.sensor.mosaic import SENSORS

pytestmark = pytest.mark.camera
SIZE = (48, 64)
FRAMES = np.random.default_rng(0).integers(0, 4096, (3, *SIZE)).astype(np.uint16)


@pytest.fixture
def camera() -> Iterator[FakeCamera]:
    with FakeCamera(FRAMES) as made:
        yield made


@pytest.fixture
def device(camera: FakeCamera) -> Iterator[CameraDevice]:
    made = CameraDevice(FoundCamera(camera.address, "", "", "", camera.address))
    yield made
    made.close()


def take(device: CameraDevice) -> Received:
    """The first complete frame of a stream."""
    device.start(lambda size: np.empty(size, np.uint8))
    frame = device.pop(TIMEOUT)
    device.stop()
    assert frame is not None
    return frame


@pytest.mark.parametrize("name", ["Mono8", "Mono10p", "Mono12", "Mono12p", "Mono12Packed", "Mono16", "PolarizeMono12p"])
def test_frames_have_the_pixel_format(device: CameraDevice, name: str) -> None:
    device.set("PixelFormat", name)
    frame = take(device)
    bits = name.replace("Polarize", "")[4:]
    sent = frame_from_buffer(frame.memory, FORMATS[bits], *SIZE).unpack().mosaic
    wanted = FRAMES[frame.number % 3].astype(int)
    expected = {"8": wanted // 16, "10p": wanted // 4, "16": wanted * 16}.get(bits, wanted)
    np.testing.assert_array_equal(sent, expected)


def test_regions_and_flips_are_those_of_the_sensor(camera: FakeCamera, device: CameraDevice) -> None:
    """The region is counted in the mirrored picture: frames of the sensor's angles themselves."""
    sensor = SENSORS["IMX250MYR"]
    rows, columns = np.indices(SIZE)

    def angles(mosaic: Any) -> np.ndarray:
        return np.vectorize(lambda r, c: mosaic.angle_index(r, c) + 4 * mosaic.color_index(r, c))(rows, columns)

    camera.show(angles(sensor).astype(np.uint8))
    for feature, value in {"PixelFormat": "Mono8", "Width": 21, "Height": 15, "OffsetX": 3, "OffsetY": 6}.items():
        device.set(feature, value)
    for flip in ((False, False), (True, False), (False, True), (True, True)):
        device.set("ReverseX", flip[0])
        device.set("ReverseY", flip[1])
        offset = (SIZE[1] - 3 - 21 if flip[0] else 3, SIZE[0] - 6 - 15 if flip[1] else 6)  # before the flip
        expected = angles(sensor.as_read_out(offset, flip, (15, 21)))[:15, :21]
        np.testing.assert_array_equal(take(device).memory.reshape(15, 21), expected)
