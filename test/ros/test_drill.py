"""The fault drill: what a robot may do to the node, done to the real node over real rclpy and DDS.

Every image that comes back is compared with what its stamp says it has to be (`drill.check`). What the node does about
each fault is in docs/robustness.md.
"""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, Iterator, List

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")

import drill
from support import ROOT, wait_for

sys.path.append(str(ROOT / "benchmarks"))
from soak import Footprint, footprint, frames, starts

from polar_pipeline import messages
from polar_pipeline.products import PRODUCTS
from polar_pipeline.topics import PRODUCT_TOPICS

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at processes through /proc"),
]
#: Parameters by the frame_id that a test sets with them.
SETTINGS: Dict[str, Dict[str, Any]] = {
    "half": {},
    "full": {"resolution": "full"},
    "bytes": {"output_depth": "uint8"},
    "moved": {"resolution": "full", "output_depth": "uint8", "roi_offset": (1, 0)},
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., drill.Process]]:
    """Start processes of the drill; they are ended afterwards."""
    started: List[drill.Process] = []

    def make(*command: str) -> drill.Process:
        started.append(drill.Process(tmp_path / f"{len(started)}.log", *command))
        return started[-1]

    yield make
    for process in started:
        process.close()


@pytest.fixture
def node(start: Any) -> Callable[..., drill.Process]:
    """Start the node on the CPU, with arguments of `--ros-args`."""
    return lambda *arguments: start("-m", "polar_pipeline.node", "--ros-args", "-p", "backend:=cpu", *arguments)


@pytest.fixture
def peer() -> Iterator[drill.Peer]:
    made = drill.Peer()
    yield made
    made.close()


def camera(start: Any, first: int) -> drill.Process:
    process = start(drill.__file__, "camera", str(first))
    wait_for(lambda: "streaming" in process.text, "the camera")
    return process


def assert_no_growth(before: Footprint, after: Footprint) -> None:
    """Of what was held early and late in a series of some hundred events."""
    pools = max(4, os.cpu_count() or 1)  # a pool starts a thread when all of its others are busy, up to one a core
    assert after.threads <= before.threads + pools
    assert after.handles <= before.handles
    # kilobytes, over some 800 events; allocators take a few megabytes for good
    assert after.resident < before.resident + 15_000


def falls(stamps: List[int]) -> int:
    """How often they go backwards."""
    return sum(after < before for before, after in zip(stamps, stamps[1:]))


def test_the_check_sees_what_is_wrong() -> None:
    stamp = 10**9
    good, other = drill.product_of(stamp, "dolp"), drill.product_of(stamp + drill.STEP, "dolp")
    half = np.vstack([good[:10], other[10:]])
    full = drill.product_of(stamp, "dolp", resolution="full")
    cases = [(half, "camera"), (other, "camera"), (good.T.copy(), "camera"), (good, "full"), (full, "camera")]

    def messages_of(array: np.ndarray, frame_id: str) -> Dict[str, Any]:
        return {"dolp": [bytes(messages.encode_image(stamp, frame_id, "32FC1", array))]}

    assert drill.check(messages_of(good, "camera"), **SETTINGS) == [stamp]
    assert drill.check(messages_of(full, "full"), **SETTINGS) == [stamp]
    for array, frame_id in cases:
        with pytest.raises(AssertionError):
            drill.check(messages_of(array, frame_id), **SETTINGS)


def test_camera_killed_and_started_again(node: Any, peer: drill.Peer, start: Any) -> None:
    process = node()
    peer.listen("intensity", "dolp")

    hour = 3600 * 10**9
    for number in (3, 2, 1):
        # Each clock is an hour behind the previous one. So stamps always decrease, however many frames a camera sends
        # before the node discovers it, and tell the cameras apart: frames of a killed one may still arrive.
        lens = camera(start, number * hour)
        wait_for(
            lambda n=number: sum(messages.peek_stamp(cdr) // hour == n for cdr in list(peer.heard["dolp"])) > 20,
            "frames of the camera",
        )
        time.sleep(random.Random().uniform(0, 0.02))  # anywhere in a frame
        lens.send(signal.SIGKILL)
        lens.wait()
    peer.says("frames", "restarts=2")
    assert falls(drill.check(peer.heard)) == 2
    peer.says("frames", "idle: nothing arrives")
    assert process.is_alive()


def test_size_and_encoding_change_mid_stream(node: Any, peer: drill.Peer) -> None:
    node()
    peer.listen("intensity", "aolp", "preview", "ssim_map")
    peer.advance("ssim_map")
    rng = random.Random(0)
    for index in range(200):
        variant = rng.randrange(len(drill.VARIANTS))
        if index % 10 == 9:
            whole = drill.image(peer.stamp + variant)
            peer.send(cdr=whole[: rng.randrange(4, len(whole) // 2)])
        peer.advance("ssim_map", variant=variant)
    stamps = drill.check(peer.heard)
    # a bad message that the next one overtook in the queue is an overload
    peer.says("frames", lambda said: sum(map(int, re.findall(r"dropped: (?:cdr|overload)=(\d+)", said))) >= 20)
    peer.says("frames", "dropped: cdr=")
    assert {stamp % 1000 for stamp in stamps} == set(range(len(drill.VARIANTS)))


def test_stamps_jump_both_ways(node: Any, peer: drill.Peer) -> None:
    node("-p", "ssim_mode:=temporal")
    peer.listen("dolp", "ssim_map")
    peer.advance("dolp")
    hour, last = 3600 * 10**9, (2**31 - 1) * 10**9 + 999_999_000
    sent = [peer.stamp, hour, hour + drill.STEP, drill.STEP, last, 0, 2 * hour, hour, 10 * hour]
    for stamp in sent[1:]:
        peer.get("dolp", stamp)
    heard = drill.check({"dolp": peer.heard["dolp"]})
    assert [stamp for stamp, before in zip(heard, [-1, *heard]) if stamp != before][-len(sent) :] == sent
    peer.says("frames", f"restarts={falls(sent)}")


def test_a_subscriber_that_never_reads(node: Any, peer: drill.Peer, start: Any) -> None:
    process = node()
    topics = [PRODUCT_TOPICS[name].name for name in ("intensity", "dolp", "aolp", "stokes")]
    deaf = start(drill.__file__, "deaf", "5000", *topics)
    peer.listen("intensity", "dolp")
    wait_for(lambda: "subscribed" in deaf.text, "the subscriber")
    deaf.send(signal.SIGSTOP)
    sizes = []
    for _ in range(2):
        for _ in range(30):
            peer.advance("intensity", "dolp", variant=drill.BIG)
        sizes.append(footprint(process.pid).resident)
    drill.check(peer.heard)
    assert sizes[1] - sizes[0] < 20_000  # kilobytes; 30 frames' products, kept for it, would be 55,000


def test_subscriptions_come_and_go(node: Any, peer: drill.Peer) -> None:
    process, rng = node(), random.Random(1)
    peer.listen("intensity")
    peer.advance("intensity")
    visitors: Deque[Any] = deque()
    for index in range(1000):
        visitors.append(peer.subscribe(rng.choice(list(PRODUCTS))))
        if len(visitors) > rng.randrange(8):
            peer.node.destroy_subscription(visitors.popleft())
        peer.send()
        if index % 10 == 0:
            peer.advance("intensity")
        if index == 200:
            before = footprint(process.pid)
    for visitor in visitors:
        peer.node.destroy_subscription(visitor)
    peer.advance("intensity")
    peer.says("pipeline", "products=intensity")
    after = footprint(process.pid)
    drill.check(peer.heard)
    assert_no_growth(before, after)


def test_parameters_change_while_frames_stream(node: Any, peer: drill.Peer) -> None:
    process, rng, refused = node(), random.Random(2), 0
    peer.listen("intensity", "dolp", "aolp", "preview")
    peer.advance("aolp")
    for index in range(1000):
        name = rng.choice([*SETTINGS, "refused"])
        options = SETTINGS.get(name, {"resolution": rng.choice(["half", "full", "quarter"])})
        answer = peer.change(
            frame_id=name,
            resolution=options.get("resolution", "half"),
            output_depth=options.get("output_depth", "float32"),
            raw__roi_offset=list(options.get("roi_offset", (0, 0))),
            min_intensity=float("nan") if name == "refused" else 0.01,
        )
        refused += name == "refused"
        while not answer.done():
            peer.send()
            time.sleep(0.002)
        assert answer.result().result.successful == (name != "refused"), answer.result()
        if index == 200:
            before = footprint(process.pid)
    peer.advance("aolp")
    drill.check(peer.heard, **SETTINGS)
    assert_no_growth(before, footprint(process.pid))
    peer.says("frames", f"refused: parameter={refused}")


def test_two_nodes_of_one_name(node: Any, peer: drill.Peer) -> None:
    first = node()
    peer.listen("dolp")
    second = node()
    wait_for(lambda: len(peer.node.get_publishers_info_by_topic("/intensity")) == 2, "the second node")
    peer.says("pipeline", "2 nodes are called /polar_pipeline")

    def both_answered() -> bool:
        peer.heard["dolp"].clear()
        peer.advance("dolp")
        time.sleep(0.1)  # for the slower one
        stamps = drill.check(peer.heard)
        return len(set(stamps)) < len(stamps)

    wait_for(both_answered, "a frame's answer by each")
    second.send(signal.SIGTERM)
    second.wait()
    peer.reports.clear()
    peer.says("pipeline", "cpu")
    peer.advance("dolp")
    drill.check(peer.heard)
    assert first.is_alive()


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive), signal.SIGTERM, signal.SIGKILL],
    ids=lambda n: n.name,
)
def test_ended_while_publishing(node: Any, peer: drill.Peer, start: Any, number: signal.Signals) -> None:
    start(drill.__file__, "camera", str(10**9))
    for _ in range(2):  # the second one finds what the first one left
        heard = len(peer.heard.get("dolp", ()))
        process = node()
        peer.listen("intensity", "stokes", "dolp")
        wait_for(lambda n=heard: len(peer.heard["dolp"]) > n + 20, "frames of the node")
        time.sleep(random.Random().uniform(0, 0.02))  # anywhere in a frame
        process.send(number)
        assert process.wait() == (-signal.SIGKILL if number == signal.SIGKILL else 0), process.text
        assert "Traceback" not in process.text
    drill.check(peer.heard)


def test_a_soak_ends_with_its_node() -> None:
    with pytest.raises(RuntimeError, match="the node ended with code 2, intensity did not come"):
        frames(1, (), ("intensity",), "none")


def test_memory_is_flat() -> None:
    found = frames(2500, {1000}, tuple(PRODUCTS), "cpu")
    early, late = found.values()
    # half of what 100,000 frames may take: the window of latencies is still filling; and each thread of a core its heap
    assert late.own - early.own < max(0.01 * early.own, 200 * (os.cpu_count() or 1))  # kilobytes
    assert_no_growth(early, late)


def test_starts_and_stops_leave_nothing() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # this process has a past of its own
        early, late = pool.apply(starts, ("node", 22, {2}, "cpu")).values()
    assert late.threads <= early.threads
    assert late.handles <= early.handles
    assert late.own - early.own < 8000  # kilobytes, 20 rounds: the allocator grows in steps of some 2000
