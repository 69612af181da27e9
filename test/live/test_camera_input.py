"""The lens calibration that a node publishes for a camera of its own, as rosbags reads it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple
from unittest.mock import Mock

import pytest
from stand_in import StandIn

pytest.importorskip("rosbags")
from raw_frames import random_frame
from rosbags_messages import decode

from polar_pipeline.camera.facts import read_facts
from polar_pipeline.camera.sets import Arrival
from polar_pipeline.camera.settings import CameraSettings
from polar_pipeline.live import camera
from polar_pipeline.live.camera import CameraInput
from polar_pipeline.options import topics

#: (width, height) of the lens calibration's frames.
WHOLE = (160, 128)
LENS = """camera_matrix: {data: [100, 0, 80, 0, 110, 64, 0, 0, 1]}
distortion_model: plumb_bob
distortion_coefficients: {data: [0.1, 0, 0, 0, 0]}
rectification_matrix: {data: [1, 0, 0, 0, 1, 0, 0, 0, 1]}
projection_matrix: {data: [90, 0, 81, 0, 0, 95, 65, 0, 0, 0, 1, 0]}
"""


@pytest.mark.parametrize(
    ("sizes", "region", "expected"),
    [
        (WHOLE, (0, 0, *WHOLE), (0, 0, 0, 0)),
        (WHOLE, (48, 6, 96, 64), (48, 6, 96, 64)),
        (WHOLE, (2, 30, 96, 64), (2, 30, 96, 64)),
        ((0, 0), (48, 6, 96, 64), (0, 0, 0, 0)),  # a lens of frames of any size
        (None, (48, 6, 96, 64), (0, 0, 0, 0)),  # no file
    ],
)
def test_a_lens_of_the_whole_sensor_and_a_region(
    sizes: Any, region: Tuple[int, ...], expected: Tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the matrices as the file states them, and the region where these hold for a larger picture."""
    file = tmp_path / "lens.yaml"
    if sizes is not None:
        file.write_text("image_width: {}\nimage_height: {}\n{}".format(*sizes, LENS))
    settings = CameraSettings(info_file=str(file) if sizes is not None else "")
    source = SimpleNamespace(connection=SimpleNamespace(settings=SimpleNamespace(roi=(0, 0, 16, 16))))
    monkeypatch.setattr(camera, "CameraSource", lambda *_: source)
    node = SimpleNamespace(camera=settings, frame_id="left")
    sent: List[Any] = []
    outputs: Dict[str, Any] = {
        name: Mock(**{"get_subscription_count.return_value": 1}) for name in topics.CAMERA_TOPICS
    }
    made = CameraInput(lambda: node, Mock(), Mock(), outputs, sent.append, Mock())  # type: ignore[arg-type]
    facts = read_facts(StandIn())
    made.take(random_frame(5), facts, Arrival(0, 1))
    source.connection.settings.roi = region
    made.take(random_frame(7_000_000_009), facts, Arrival(0, 2))
    (message,) = [cdr for topic, cdr in sent[-1] if topic is outputs[topics.CAMERA_INFO_INPUT]]
    info = decode(message, "sensor_msgs/msg/CameraInfo")
    roi = info.roi
    assert (roi.x_offset, roi.y_offset, roi.width, roi.height) == expected
    assert (info.width, info.height) == (WHOLE if any(expected) else region[2:])
    assert (info.header.stamp.sec, info.header.stamp.nanosec, info.header.frame_id) == (7, 9, "left")
    numbers = (100, 80, 110, 64, 0.1, 90, 81, 95, 65) if sizes is not None else (0,) * 9
    assert (*info.k[[0, 2, 4, 5]], sum(info.d), *info.p[[0, 2, 5, 6]]) == numbers


@pytest.mark.parametrize(("stamp", "start_ns"), [("middle", 7_000_000_000 - 2_500_000), ("start", 7_000_000_000)])
def test_frames_pass_a_gate(stamp: str, start_ns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(camera, "CameraSource", lambda *_: SimpleNamespace(connection=None))
    node = SimpleNamespace(camera=CameraSettings(stamp=stamp), frame_id="left")
    receive = Mock()
    made = CameraInput(lambda: node, Mock(), receive, {}, Mock(), Mock())  # type: ignore[arg-type, return-value]
    facts, cdr = replace(read_facts(StandIn()), exposure_us=5000.0), random_frame(7_000_000_000)
    made.take(cdr, facts, Arrival(0, 1))
    assert receive.call_args.args[:2] == (cdr, facts), "it is open by default"
    made.gate = Mock()
    arrival = Arrival(7_020_000_000, 2)
    made.take(cdr, facts, arrival)
    *given, deliver = made.gate.call_args.args
    assert given == [7_000_000_000, start_ns, arrival, facts]
    assert receive.call_count == 1
    deliver()
    assert receive.call_count == 2
