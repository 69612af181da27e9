"""The engine as the node builds it, fed with serialized frames and heard by topics in memory: no ROS takes part."""

from __future__ import annotations

import time
from typing import Any, Iterator

import numpy as np
import pytest
from rosbags_messages import decode
from support import wait_for
from test_processor import RAW, settings
from test_publisher import Bench, calibration, demand

from polar_pipeline import Pipeline, messages
from polar_pipeline.live.fallback import Fallback
from polar_pipeline.live.frame import ReceivedImage
from polar_pipeline.live.pipelines import PipelineSwitch
from polar_pipeline.live.processor import FrameProcessor
from polar_pipeline.topics import LATENCY


class Engine(Bench):
    """Processor and publisher, and the settings that a test may change."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = settings(queue_size=16)
        self.processor = FrameProcessor(
            lambda: self.settings, Fallback(), self.diagnostics, self.log, self.publisher, PipelineSwitch()
        )

    def subscribe(self, *names: str, **others: Any) -> None:
        wanted = demand(*names, **others)
        for name, topic in self.topics.items():
            topic.subscriptions = int(name in wanted)

    def feed(self, cdr: bytes) -> None:
        self.diagnostics.received(messages.peek_stamp(cdr))
        self.processor.put(ReceivedImage(cdr, time.perf_counter(), 0))

    def frame(self, stamp_ns: int, raw: np.ndarray = RAW) -> Any:
        """What is published of a good frame."""
        count = len(self.sender.sent)
        self.feed(bytes(messages.encode_image(stamp_ns, "camera", "mono8", raw)))
        wait_for(lambda: len(self.sender.sent) > count, "the frame")
        return self.sender.sent[-1]


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    made.processor.warm_up()
    made.processor.start()
    yield made
    made.processor.close()


def test_frames_become_messages(engine: Engine) -> None:
    engine.subscribe("dolp", "ssim", others=["polarization/camera_info", LATENCY], numbers=["total_ms"])
    engine.publisher.camera_info = engine.processor.camera_info = calibration(48, 32)
    sent = engine.frame(7)
    assert set(sent) == {"polarization/dolp", "quality/ssim", "polarization/camera_info"}
    expected = Pipeline(products="dolp, ssim", backend="cpu")(RAW)
    dolp = messages.decode_image(sent["polarization/dolp"])
    assert (dolp.stamp_ns, dolp.frame_id) == (7, "camera")
    np.testing.assert_array_equal(messages.to_array(dolp), expected["dolp"])
    assert decode(sent["quality/ssim"], messages.FLOAT32).data == float(expected["ssim"])
    wait_for(lambda: engine.topics[LATENCY].published, "its times")
    assert len(engine.topics["latency/total_ms"].published) == 1
    values = engine.values()
    assert (values["received"], values["published"], values["last error"]) == ("1", "1", "")


def test_bad_frames_are_counted_and_the_next_one_comes_through(engine: Engine) -> None:
    engine.subscribe("dolp")
    good = bytes(messages.encode_image(1, "camera", "mono8", RAW))
    rgb = bytes(messages.encode_image(1, "camera", "rgb8", np.zeros((4, 4, 3), np.uint8)))
    for cdr in (b"", good[:40], good[:-9], rgb):
        engine.feed(cdr)
    assert messages.peek_stamp(engine.frame(2)["polarization/dolp"]) == 2
    values = engine.values()
    found = {name: value for name, value in values.items() if name.startswith("dropped: ")}
    assert found == {"dropped: cdr": "3", "dropped: encoding": "1"}


def test_settings_and_subscribers_change_between_frames(engine: Engine) -> None:
    engine.subscribe("dolp")
    assert messages.decode_image(engine.frame(1)["polarization/dolp"]).height == 16
    engine.settings = settings(resolution="full", frame_id="front", queue_size=16)
    dolp = messages.decode_image(engine.frame(2)["polarization/dolp"])
    assert (dolp.height, dolp.frame_id) == (32, "front")
    engine.subscribe("aolp", compressed=["preview"])
    assert set(engine.frame(3)) == {"polarization/aolp", "polarization/preview/compressed"}
    engine.subscribe()
    engine.feed(bytes(messages.encode_image(4, "camera", "mono8", RAW)))
    wait_for(lambda: engine.values()["unwanted"] == "1", "a frame that nobody wants")
