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

from polar_pipeline.camera.aravis import CameraError
from polar_pipeline.camera.facts import read_facts
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
    made.take(random_frame(5), facts, 0)
    source.connection.settings.roi = region
    made.take(random_frame(7_000_000_009), facts, 0)
    (message,) = [cdr for topic, cdr in sent[-1] if topic is outputs[topics.CAMERA_INFO_INPUT]]
    info = decode(message, "sensor_msgs/msg/CameraInfo")
    roi = info.roi
    assert (roi.x_offset, roi.y_offset, roi.width, roi.height) == expected
    assert (info.width, info.height) == (WHOLE if any(expected) else region[2:])
    assert (info.header.stamp.sec, info.header.stamp.nanosec, info.header.frame_id) == (7, 9, "left")
    numbers = (100, 80, 110, 64, 0.1, 90, 81, 95, 65) if sizes is not None else (0,) * 9
    assert (*info.k[[0, 2, 4, 5]], sum(info.d), *info.p[[0, 2, 5, 6]]) == numbers


@pytest.mark.parametrize(("stamp", "start_ns"), [("middle", 7_000_000_000 - 2_500_000), ("start", 7_000_000_000)])
def test_a_rig_in_step_takes_frames_by_the_start_of_their_exposure(
    stamp: str, start_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(camera, "CameraSource", lambda *_: SimpleNamespace(connection=None))
    node = SimpleNamespace(camera=CameraSettings(stamp=stamp), frame_id="left")
    receive, rig = Mock(), Mock()
    made = CameraInput(lambda: node, Mock(), receive, {}, Mock(), Mock(), rig)  # type: ignore[arg-type, return-value]
    facts = replace(read_facts(StandIn()), exposure_us=5000.0)
    cdr = random_frame(7_000_000_000)
    made.take(cdr, facts, 7_020_000_000)
    ((_, stamp_ns, shot, given),) = (call.args for call in rig.take.call_args_list)
    assert (stamp_ns, given, shot[:3]) == (7_000_000_000, facts, (start_ns, start_ns + 5_000_000, 7_020_000_000))
    receive.assert_not_called()
    shot.frame()
    assert receive.call_args.args[:2] == (cdr, facts)


def test_a_refused_exposure_of_the_leader_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SimpleNamespace(connection=object())
    monkeypatch.setattr(camera, "CameraSource", lambda *_: source)
    node, diagnostics = SimpleNamespace(camera=CameraSettings(), frame_id=""), Mock()
    made = CameraInput(lambda: node, Mock(), Mock(), {}, Mock(), diagnostics)  # type: ignore[arg-type, return-value]
    for error, count in ((None, 0), (CameraError("no Gain"), 1)):
        made.note_refusal(Mock(**{"exception.return_value": error}))
        assert diagnostics.refuse.call_count == count
    diagnostics.refuse.assert_called_with("parameter", "the exposure of the rig's leader: no Gain")
    source.connection = None  # type: ignore[assignment]
    made.note_refusal(Mock(**{"exception.return_value": CameraError("gone")}))
    assert diagnostics.refuse.call_count == 1
