"""The live node and replay make the same bytes of the same frames of a real camera."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Dict, List

import cv2
import pytest
from mcap.reader import make_reader
from support import FRAMES, REAL_FRAMES, first_of, wait_for

pytest.importorskip("rclpy")

from ros.test_node import Rig
from sensor_msgs.msg import Image
from std_msgs.msg import Float32

from polar_pipeline.cli import main
from polar_pipeline.cuda.backend import problem
from polar_pipeline.replay.source import open_source
from polar_pipeline.topics import IMAGE, PRODUCT_TOPICS

pytestmark = pytest.mark.ros

NAMES = ("intensity", "dolp", "aolp", "preview", "ssim_map", "ssim")


@pytest.mark.parametrize("resolution", first_of(["half", "full"]))  # `demosaic: auto` takes another method at each
@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_live_is_replay_bit_for_bit(tmp_path: Path, backend: str, resolution: str) -> None:
    reason = problem() if backend == "cuda" else ""
    if reason:
        pytest.skip(reason)
    frames, golden = tmp_path / "frames", tmp_path / "golden.mcap"
    frames.mkdir()
    for name in REAL_FRAMES:
        cv2.imwrite(str(frames / name), cv2.imread(str(FRAMES / name), cv2.IMREAD_UNCHANGED)[:512, :612])
    command = ["replay", str(frames), "-o", str(golden), "--products", ",".join(NAMES), "--resolution", resolution]
    assert main([*command, "--backend", backend]) == 0

    live: Dict[str, List[bytes]] = {PRODUCT_TOPICS[name].name: [] for name in NAMES}
    kinds = {row.name: Image if row.message_type == IMAGE else Float32 for row in PRODUCT_TOPICS.values()}

    def keep(topic: str, cdr: bytes) -> None:
        live[topic].append(cdr)

    def is_subscribed(node: Any) -> bool:
        return {row.topic_name[1:] for row in node.publishers if row.get_subscription_count()} >= set(live)

    rig = Rig(resolution=resolution, backend=backend)
    try:
        for topic in live:
            rig.peer.create_subscription(kinds[topic], topic, partial(keep, topic), 5, raw=True)
        wait_for(lambda: is_subscribed(rig.node), "publishers and subscriptions to match")
        with open_source(frames) as source:
            for count, record in enumerate(source.records, 1):
                rig.send(record.cdr())
                wait_for(lambda count=count: all(len(rows) == count for rows in live.values()), f"frame {count}")
    finally:
        rig.close()
    replayed: Dict[str, List[bytes]] = {topic: [] for topic in live}
    with golden.open("rb") as stream:
        for _, channel, message in make_reader(stream).iter_messages([f"/{topic}" for topic in live]):
            replayed[channel.topic[1:]].append(message.data)
    # complete messages: header, encoding and pixels
    assert [topic for topic in live if replayed[topic] != live[topic]] == []
    assert {len(rows) for rows in live.values()} == {len(REAL_FRAMES)}
