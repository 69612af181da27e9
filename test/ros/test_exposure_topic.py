"""The exposure control in the real node, with a camera on loopback whose acknowledgements are late."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, List

import numpy as np
import pytest
from support import wait_for

rclpy = pytest.importorskip("rclpy")
import drill
from chunk_camera import ChunkCamera, Sent
from rclpy.qos import QoSProfile
from std_msgs.msg import Float32

from polar_pipeline.options.topics import NUMBER_TOPICS

pytestmark = [pytest.mark.ros, pytest.mark.camera]
SHAPE = (128, 160)
#: Frames a second.
RATE = 30.0


class Scene:
    """Light behind polarizers in front of a camera, which counts electrons; full scale are 10500 of them.

    Attributes:
        light: Brightness; 1 brings the brightest places to full scale in 1 ms at 0 dB.
        saturated: Share of superpixels with a saturated angle, of every frame that was sent.
    """

    def __init__(self) -> None:
        chance = np.random.default_rng(7)
        brightness = np.exp(chance.normal(0, 0.5, (SHAPE[0] // 2, SHAPE[1] // 2))).clip(0, 5)
        tile = np.tile(np.deg2rad([[90, 45], [135, 0]]), (SHAPE[0] // 2, SHAPE[1] // 2))
        self._rate = 10500 / 5 * brightness.repeat(2, 0).repeat(2, 1) * (1 + 0.4 * np.cos(2 * tile - 0.7)) / 1.4
        self._chance = chance
        self.light = 1.0
        self.saturated: List[float] = []

    def render(self, exposure_us: float, gain_db: float) -> np.ndarray:
        """Return a frame, (H, W) uint8."""
        electrons = self._chance.poisson(np.minimum(self._rate * self.light * exposure_us / 1000, 1e5))
        levels = np.minimum(electrons, 10500) * (255 / 10500) * 10 ** (gain_db / 20)
        frame = np.clip(np.rint(levels), 0, 255).astype(np.uint8)
        peaks = frame.reshape(SHAPE[0] // 2, 2, SHAPE[1] // 2, 2).max((1, 3))
        self.saturated.append(float((peaks == 255).mean()))
        return frame


def exposures(sent: List[Sent]) -> np.ndarray:
    """Exposures of frames in stops, without repetitions."""
    stops = np.array([np.log2(row.exposure_us) + row.gain_db / 6.0206 for row in sent])
    return stops[np.concatenate([[True], np.abs(np.diff(stops)) > 0.01])]


def test_the_light_falls_and_rises_while_acknowledgements_are_late(node: Callable[..., Any], peer: drill.Peer) -> None:
    """Steps of 100 times: the exposure reaches the target with at most one reversal, and saturation ends."""
    scene = Scene()
    with ChunkCamera(np.zeros(SHAPE, np.uint8), rate=RATE, delay=0.02) as camera:
        camera.render = scene.render
        camera.set("ExposureAuto", "Continuous")
        node("-p", "camera.source:=aravis:127.0.0.1", "-p", "camera.exposure_auto:=polarization")
        values: Deque[float] = deque(maxlen=1000)
        topic = NUMBER_TOPICS["exposure_ev"]
        subscription = peer.node.create_subscription(
            Float32, topic, lambda message: values.append(message.data), QoSProfile(depth=100)
        )
        wait_for(subscription.get_publisher_count, topic)

        def settled() -> bool:
            """Whether the last 30 frames have one exposure, and the last ten were at the target."""
            rows = list(camera.sent.values())[-30:]
            return (
                len(camera.sent) - begun > 40 and len(exposures(rows)) == 1 and max(map(abs, list(values)[-10:])) < 0.25
            )

        begun = 0
        for light in (1.0, 0.01, 1.0):
            scene.light, begun = light, len(camera.sent)
            wait_for(settled, f"the exposure at light {light}")
            rows = list(camera.sent.values())[begun:]
            steps = np.diff(exposures(rows))
            assert (np.diff(np.sign(steps)) != 0).sum() <= 1, "at most one reversal"
            assert len(steps) <= 4
            assert np.mean(scene.saturated[-10:]) <= 0.006
            assert abs(rows[-1].exposure_us * 10 ** (rows[-1].gain_db / 20) * light / 1000 - 1) < 1
            assert camera.get("ExposureAuto") == "Off"
        assert camera.get("ExposureTime") < 20001
        peer.says("camera", "automatic exposure=polarization")
        peer.says("camera", "exposure to add [EV]=")
        peer.says("quality", "exposure to add [EV]=")
