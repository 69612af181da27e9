"""What a hostile or broken neighbor may do to the node, done to the real node over real rclpy and DDS."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")

import drill
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.msg import Parameter, ParameterEvent, ParameterValue
from rcl_interfaces.srv import DescribeParameters, GetParameters, ListParameters, SetParameters
from rclpy.duration import Duration
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy
from rclpy.serialization import serialize_message
from rosbags_messages import decode, encode
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from services import ask, client_of
from std_srvs.srv import SetBool, Trigger
from support import IS_FAST_DDS, ended_afterwards, first_of, wait_for

from polar_pipeline.recordings import messages

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at processes through /proc"),
]
MB = 1_000_000


@pytest.fixture(name="node")
def fixture_node(node: Callable[..., drill.Process]) -> Iterator[Callable[..., drill.Process]]:
    """Start the node on the CPU, with arguments of `--ros-args`; it is ended afterwards, and has to end well."""

    def end(process: drill.Process) -> None:
        alive = process.is_alive()
        process.send(signal.SIGTERM)
        code, text = process.wait(), process.text
        assert (alive, code) == (True, 0), text
        assert len(text) < 20_000, "a log that grows with what is sent"

    yield from ended_afterwards(node, end)


def works(peer: drill.Peer) -> None:
    """The next good frame is processed as ever, and reports go on."""
    peer.advance("intensity")
    peer.reports.clear()
    wait_for(lambda: len(peer.reports) >= 2, "reports")


def call(peer: drill.Peer, kind: Any, name: str, request: Any) -> Any:
    return ask(peer.node, kind, f"/polar_pipeline/{name}", request)


def with_texts(frame_id: str = "camera", encoding: str = "mono8") -> bytes:
    """A serialized frame of 64x48 pixels."""
    message = decode(messages.encode_image(10**9, frame_id, "mono8", np.full((48, 64), 90, np.uint8)), messages.IMAGE)
    object.__setattr__(message, "encoding", encoding)
    return bytes(encode(message, messages.IMAGE))


def report_bytes(peer: drill.Peer) -> int:
    return max(len(serialize_message(report)) for report in list(peer.reports))


@pytest.mark.skipif(not IS_FAST_DDS, reason="CycloneDDS loses what follows an empty message, and counts no losses")
def test_bursts_that_lose_messages(node: Any, peer: drill.Peer) -> None:
    """With QoS event callbacks, rclpy's events executor was deadlocked after some seconds of this."""
    node()
    peer.listen("intensity")
    peer.advance("intensity")
    camera = peer.node.create_publisher(
        Image, "image_raw", QoSProfile(depth=100, reliability=QoSReliabilityPolicy.RELIABLE)
    )
    wait_for(camera.get_subscription_count, "the node's subscription")
    good = drill.image(10**9)
    for _ in range(40):
        for _ in range(200):
            camera.publish(good)
            camera.publish(b"")
        peer.reports.clear()
        time.sleep(0.1)
    peer.says("frames", "dropped: transport=")  # what was lost is counted
    works(peer)


def test_endpoints_that_do_not_fit_and_requests_that_nobody_sane_sends(node: Any, peer: drill.Peer) -> None:
    """Each endpoint is a QoS event for the node's topics."""
    node()
    peer.listen("intensity")
    topics = {"image_raw": Image, "camera_info": CameraInfo, "intensity": Image, "latency": DiagnosticArray}
    topics["/parameter_events"] = ParameterEvent
    strict = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL, deadline=Duration(nanoseconds=10**6))
    lax = QoSProfile(depth=1, reliability=QoSReliabilityPolicy.BEST_EFFORT, deadline=Duration(seconds=1000))
    for _ in range(25):
        made = [peer.node.create_subscription(kind, topic, lambda _: None, strict) for topic, kind in topics.items()]
        lenses = [peer.node.create_publisher(kind, topic, lax) for topic, kind in topics.items()]
        peer.destroy(*made, *lenses)
    works(peer)
    names = ["", "sensor", "resolution", "a" * MB, "\x1b[2J", "qos_overrides./image_raw.subscription.depth", "ünï"]
    values: List[ParameterValue] = [ParameterValue(type=kind) for kind in (*range(12), 21, 128, 255)]
    values += [ParameterValue(type=4, string_value="\x1b[2J" + "x" * MB), ParameterValue(type=3, double_value=1e308)]
    values += [ParameterValue(type=2, integer_value=-(2**63)), ParameterValue(type=9, string_array_value=["y"] * 1000)]
    client = client_of(peer.node, SetParameters, "/polar_pipeline/set_parameters")
    for value in values:
        rows = [Parameter(name=name, value=value) for name in ("sensor", "display.gain", "raw.roi_offset", "")]
        client.call_async(SetParameters.Request(parameters=rows))
    for kind, service, request in (
        (GetParameters, "get_parameters", GetParameters.Request(names=names)),
        (DescribeParameters, "describe_parameters", DescribeParameters.Request(names=names)),
        (ListParameters, "list_parameters", ListParameters.Request(prefixes=names, depth=2**63)),
    ):
        client_of(peer.node, kind, f"/polar_pipeline/{service}").call_async(request)
    works(peer)
    answer = call(peer, GetParameters, "get_parameters", GetParameters.Request(names=["sensor", "resolution"]))
    assert [value.string_value for value in answer.values] == ["IMX250MZR", "half"]
    peer.reports.clear()
    wait_for(lambda: peer.reports, "a report")
    assert report_bytes(peer) < 20_000


def test_a_publisher_that_is_not_heard_is_named(node: Any, peer: drill.Peer) -> None:
    node("-p", "qos_overrides./image_raw.subscription.reliability:=reliable")
    peer.node.create_publisher(Image, "image_raw", QoSProfile(depth=1, reliability=QoSReliabilityPolicy.BEST_EFFORT))
    reason = "a publisher on /image_raw is not heard: ERROR: Best effort publisher and reliable subscription"
    peer.says("pipeline", reason)
    node("-p", "qos_overrides./image_raw.subscription.reliability:=reliable")
    namesake = "2 nodes are called /polar_pipeline: all of them publish, and all take its parameters"
    peer.says("pipeline", f"{namesake}; {reason}")


def test_a_publisher_of_another_type_is_named(node: Any, peer: drill.Peer) -> None:
    process = node("-r", "image_raw:=cam/image_raw/compressed")
    peer.node.create_publisher(CompressedImage, "cam/image_raw/compressed", 1)
    peer.listen("intensity")
    types = "sends sensor_msgs/msg/CompressedImage, the node takes sensor_msgs/msg/Image: name the topic of raw images"
    peer.says("pipeline", f"a publisher on /cam/image_raw/compressed {types}")
    wait_for(lambda: "has 1 publishers: a publisher on /cam/image_raw/compressed sends" in process.text, "the log")


def test_texts_of_megabytes_and_control_characters(node: Any, peer: drill.Peer) -> None:
    """Terminals obey them: they are cut and escaped in what the node publishes and logs, and refused as a parameter."""
    name = "\x1b[2Jfront\n[FATAL]\x07\x9b"
    process = node()
    peer.listen("intensity")
    peer.advance("intensity")
    peer.send(cdr=with_texts(frame_id=name))
    peer.send(cdr=with_texts(encoding=name))

    def names() -> List[str]:
        return [messages.decode_image(cdr).frame_id for cdr in list(peer.heard["intensity"])]

    wait_for(lambda: r"\x1b[2Jfront\n[FATAL]\x07\x9b" in names(), "its intensity")
    large = "\x1b[2J" + "x" * 8 * MB
    for cdr, said in ((with_texts(frame_id=large), "got 8000004"), (with_texts(encoding=large), "8000004 characters")):
        for _ in range(3):
            peer.send(cdr=cdr)
        peer.says("frames", said)
    for parameter in ("frame_id", "ssim_mode"):
        answer = peer.change(**{parameter: name})
        wait_for(answer.done, "the answer")
        assert answer.result().result.reason.startswith(f"{parameter} must be ")
        assert answer.result().result.reason.isprintable()
    peer.reports.clear()
    peer.says("frames", "refused: parameter=2")
    shown = [text for report in peer.reports for row in report.status for text in (row.name, row.message)]
    shown += [pair.value for report in peer.reports for row in report.status for pair in row.values]
    assert all(text.isprintable() for text in [*names(), *shown])
    assert all(line.isprintable() for line in process.text.splitlines())
    assert "\n[FATAL]" not in process.text
    assert report_bytes(peer) < 20_000
    works(peer)
    assert all(len(cdr) < 10_000 for cdr in peer.heard["intensity"])


@pytest.mark.parametrize("home", first_of([b"home", b"file/folder", b"\xff\xfe"], 2))
def test_snapshots(node: Any, peer: drill.Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: bytes) -> None:
    """On Jazzy's events executor any snapshot, on Kilted's a failing one, was the end of the node."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("ROS_LOG_DIR", str(tmp_path / "log"))
    monkeypatch.setenv("ROS_HOME", os.fsdecode(os.fsencode(tmp_path) + b"/" + home))
    node()
    peer.listen("intensity")
    nothing = call(peer, Trigger, "snapshot", Trigger.Request())
    assert (nothing.success, nothing.message) == (False, "no frame came in on /image_raw yet")
    peer.advance("intensity")
    client = client_of(peer.node, Trigger, "/polar_pipeline/snapshot")
    answers = [client.call_async(Trigger.Request()) for _ in range(2)]  # at once: within the second
    wait_for(lambda: all(row.done() for row in answers), "both answers of snapshot")
    answer, again = (row.result() for row in answers)
    assert not again.success
    assert "less than 1 s ago" in again.message or "is being written" in again.message
    assert answer.success == (home != b"file/folder"), answer.message
    assert answer.message.isprintable()
    if answer.success:
        (folder,) = (Path(os.environ["ROS_HOME"]) / "polar_pipeline").iterdir()
        assert {"raw.mcap", "dolp.npy", "parameters.yaml"} <= {path.name for path in folder.iterdir()}
    else:
        assert "Not a directory" in answer.message
    recording = call(peer, SetBool, "record", SetBool.Request(data=True))
    assert recording.success == answer.success, recording.message
    assert recording.message.isprintable()
    peer.advance("intensity")
    peer.says("pipeline", "recording=/" if answer.success else "recording=Not a directory")
    assert call(peer, SetBool, "record", SetBool.Request()).success == answer.success
    works(peer)


def test_out_of_memory(node: Any, peer: drill.Peer) -> None:
    process = node("-p", "resolution:=full")
    peer.listen("intensity")
    peer.advance("intensity")
    status: Dict[str, str] = dict(
        line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
    )
    limit = int(status["VmSize"].split()[0]) * 1024 + 30 * MB
    resource.prlimit(process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    large = bytes(messages.encode_image(10**9, "camera", "mono16", np.full((2000, 3000), 999, np.uint16)))
    for _ in range(10):
        peer.send(cdr=large)
        time.sleep(0.1)
    assert process.is_alive(), process.text
    resource.prlimit(process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    # what failed depends on the allocator: the middleware (`transport`), or taking and processing a message (`memory`)
    works(peer)
