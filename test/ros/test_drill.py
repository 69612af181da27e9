"""The fault drill: what a robot may do to the node, done to the real node over real rclpy and DDS.

Every image that comes back is compared with what its stamp says it has to be (`drill.check`). What the node does about
each fault is in docs/robustness.md.
"""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import deque
from pathlib import Path
from typing import Any, Deque, Dict, List

import pytest

rclpy = pytest.importorskip("rclpy")

import drill
from soak import Footprint, footprint, frames, starts
from support import IS_EXHAUSTIVE, first_of, wait_for

from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.recordings import messages

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at processes through /proc"),
]


#: Parameters by the frame_id that a test sets with them.
SETTINGS: Dict[str, Dict[str, Any]] = {
    "half": {},
    "full": {"resolution": "full"},
    "bytes": {"output_depth": "uint8"},
    "words": {"output_depth": "uint16"},
    "moved": {"resolution": "full", "output_depth": "uint8", "roi_offset": (1, 0)},
    "means": {"scale": 2},
    "turned": {"scale": 2, "rotate": 90},
    "cut": {"scale": 2, "rotate": 270, "roi": (2, 1, 8, 6)},  # fits no frame of 20 rows
}


#: Subscriptions and changes of parameters, in all and until memory is looked at first.
EVENTS, FIRST_EVENTS = (1000, 200) if IS_EXHAUSTIVE else (200, 80)


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


def test_camera_killed_and_started_again(node: Any, peer: drill.Peer, start: Any) -> None:
    process = node()
    peer.listen("intensity", "dolp")

    hour = 3600 * 10**9
    for number in (3, 2, 1):
        # Each clock is an hour behind the previous one. So stamps always decrease, however many frames a camera sends
        # before the node discovers it, and tell the cameras apart: frames of a killed one may still arrive.
        lens = start(drill.__file__, "camera", str(number * hour))
        wait_for(
            lambda n=number: sum(messages.peek_stamp(cdr) // hour == n for cdr in list(peer.heard["dolp"])) > 20,
            "frames of the camera",
        )
        time.sleep(random.Random().uniform(0, 0.02))  # anywhere in a frame
        lens.send(signal.SIGKILL)
        lens.wait()
    peer.says("frames", "restarts=2")
    assert falls(drill.check(peer.heard)) == 2
    peer.reports.clear()
    peer.says("frames", "idle: nothing arrives")
    assert process.is_alive()


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


@pytest.mark.scaled
def test_subscriptions_come_and_go(node: Any, peer: drill.Peer) -> None:
    process, rng = node(), random.Random(1)
    peer.listen("intensity")
    peer.advance("intensity")
    visitors: Deque[Any] = deque()
    for index in range(EVENTS):
        visitors.append(peer.subscribe(rng.choice(list(PRODUCTS))))
        if len(visitors) > rng.randrange(8):
            peer.destroy(visitors.popleft())
        peer.send()
        if index % 10 == 0:
            peer.advance("intensity")
        if index == FIRST_EVENTS:
            before = footprint(process.pid)
    peer.destroy(*visitors)
    peer.advance("intensity")
    peer.says("pipeline", "products=intensity")
    after = footprint(process.pid)
    drill.check(peer.heard)
    assert_no_growth(before, after)


@pytest.mark.scaled
def test_parameters_change_while_frames_of_many_sizes_stream(node: Any, peer: drill.Peer) -> None:
    process, rng, refused = node(), random.Random(2), 0
    heard = ("intensity", "dolp", "aolp", "preview")
    peer.listen(*heard)
    peer.advance("aolp")
    for index in range(EVENTS):
        name = rng.choice([*SETTINGS, "refused"])
        options = SETTINGS.get(name, {"scale": 3})
        answer = peer.change(
            frame_id=name,
            resolution=options.get("resolution", "half"),
            output_depth=options.get("output_depth", "float32"),
            raw__roi_offset=list(options.get("roi_offset", (0, 0))),
            output__scale=options.get("scale", 1),
            output__rotate=options.get("rotate", 0),
            output__roi=list(options.get("roi", (0, 0, 0, 0))),
        )
        refused += name == "refused"
        while not answer.done():
            peer.send(variant=rng.randrange(len(drill.VARIANTS)))
            time.sleep(0.002)
        assert answer.result().result.successful == (name != "refused"), answer.result()
        if index == FIRST_EVENTS:
            before = footprint(process.pid)
    peer.advance("aolp", variant=drill.BIG)
    stamps = drill.check(peer.heard, **SETTINGS)
    assert len({stamp % 1000 for stamp in stamps}) == len(drill.VARIANTS)
    assert_no_growth(before, footprint(process.pid))
    peer.says("frames", f"refused: parameter={refused}")


def catches_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize(
    ("moment", "number"),
    first_of(
        [
            ("publishing", signal.SIGTERM),
            ("starting", signal.SIGINT),
            ("starting", signal.SIGTERM),
            ("publishing", signal.SIGINT),
            ("publishing", signal.SIGKILL),
        ],
        2,
    ),
)
def test_ended_at_any_moment(node: Any, peer: drill.Peer, start: Any, moment: str, number: signal.Signals) -> None:
    start(drill.__file__, "camera", str(10**9))
    for _ in range(2):  # the second one finds what the first one left
        heard = len(peer.heard.get("dolp", ()))
        process = node()
        if moment == "publishing":
            peer.listen("intensity", "stokes", "dolp")
            wait_for(lambda n=heard: len(peer.heard["dolp"]) > n + 20, "frames of the node")
            time.sleep(random.Random().uniform(0, 0.02))  # anywhere in a frame
        else:
            wait_for(lambda pid=process.pid: catches_sigterm(pid), "the handlers")
            time.sleep(random.Random().uniform(0, 1))
        process.assert_end(-signal.SIGKILL if number == signal.SIGKILL else 0, number)
    peer.hear_camera()
    drill.check(peer.heard)


@pytest.mark.exhaustive
def test_memory_is_flat() -> None:
    found = frames(2500, {1000}, tuple(PRODUCTS), "cpu")
    early, late = found.values()
    # half of what 100,000 frames may take: the window of latencies is still filling; and each thread of a core its heap
    assert late.own - early.own < max(0.01 * early.own, 200 * (os.cpu_count() or 1))  # kilobytes
    assert_no_growth(early, late)


@pytest.mark.exhaustive
def test_starts_and_stops_leave_nothing() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # this process has a past of its own
        early, late = pool.apply(starts, ("node", 22, {2}, "cpu")).values()
    assert late.threads <= early.threads
    assert late.handles <= early.handles
    assert late.own - early.own < 8000  # kilobytes, 20 rounds: the allocator grows in steps of some 2000
