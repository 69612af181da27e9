"""The live node over real rclpy and DDS, with small frames."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import errno
import itertools
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from array import array
from collections import deque
from functools import reduce
from pathlib import Path
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Set, Tuple

import cv2
import numpy as np
import pytest
from calibrations import ideal_calibration
from support import ROOT, TIMEOUT, changed, first_of, representative, wait_for

yaml = pytest.importorskip("yaml")
rclpy = pytest.importorskip("rclpy")
# a domain of its own, so that nothing else on the network takes part

from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.msg import ParameterType
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message, serialize_message
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from services import ask, client_of
from spinner import Spinner
from std_msgs.msg import Float32
from std_srvs.srv import Trigger

from polar_pipeline import SENSORS, Pipeline, RawFrame, messages
from polar_pipeline.calibration import load_calibration, save_calibration
from polar_pipeline.cpu.backend import CpuBackend
from polar_pipeline.live.parameters import PARAMETERS, make_settings
from polar_pipeline.live.preset import from_yaml, to_yaml
from polar_pipeline.products import PRODUCTS
from polar_pipeline.quality.statistics import measure
from polar_pipeline.ros.main import spin_once
from polar_pipeline.ros.node import PolarNode
from polar_pipeline.topics import PRODUCT_TOPICS

pytestmark = pytest.mark.ros
SHAPE = (48, 64)


def mosaic(seed: int = 0, shape: Tuple[int, int] = SHAPE, top: int = 200) -> np.ndarray:
    return np.random.default_rng(seed).integers(10, top, shape).astype(np.uint8)


class Rig:
    """The node under test, on the CPU, and a peer that plays camera and viewer, spinning in a thread."""

    def __init__(self, **values: Any) -> None:
        self.context = rclpy.Context()
        self.context.init()
        overrides = [
            Parameter(name.replace("__", "."), value=value) for name, value in {"backend": "cpu", **values}.items()
        ]
        self.node = PolarNode(context=self.context, parameter_overrides=overrides)
        self.peer = rclpy.create_node("peer", context=self.context)
        self.spinner = Spinner(self.context, self.node, self.peer)
        self.publishers: Dict[str, Any] = {}
        self.stamp = 1_000_000_000

    def close(self) -> None:
        self.spinner.close()
        self.node.close()
        self.peer.destroy_node()
        self.node.destroy_node()
        self.context.shutdown()

    def listen(self, kind: Any, topic: str) -> Deque[Any]:
        """Everything that comes on a topic, typed, from now on."""
        heard: Deque[Any] = deque()
        self.peer.create_subscription(kind, topic, lambda message: heard.append(message), 10)  # noqa: PLW0108 - rclpy looks at the signature
        wait_for(
            lambda: any(p.get_subscription_count() for p in self.node.publishers if p.topic_name == self.full(topic)),
            topic,
        )
        return heard

    def full(self, topic: str) -> str:
        return topic if topic.startswith("/") else f"/{topic}"

    def send(self, cdr: bytes, topic: str = "image_raw", kind: Any = Image) -> None:
        if topic not in self.publishers:
            self.publishers[topic] = self.peer.create_publisher(kind, topic, 10)
            wait_for(self.publishers[topic].get_subscription_count, f"the node's subscription to {topic}")
        self.publishers[topic].publish(bytes(cdr))

    def frame(self, raw: Optional[np.ndarray] = None, encoding: str = "mono8", **changes: Any) -> int:
        """Send a raw frame, fields changed; its stamp."""
        stamp = changes.pop("stamp_ns", None)
        if stamp is None:
            self.stamp += 1_000_000
            stamp = self.stamp
        message = messages.decode(
            messages.encode_image(stamp, "camera", encoding, mosaic() if raw is None else raw), messages.IMAGE
        )
        for name, value in changes.items():
            object.__setattr__(message, name, value)
        self.send(messages.encode(message, messages.IMAGE))
        return stamp

    def report(self) -> Dict[str, str]:
        """All values of the node's diagnostics, as they are now."""
        statuses = self.node._diagnostics.statuses("", "")
        return {key: value for status in statuses for key, value in status.values.items()}


@pytest.fixture
def rig() -> Iterator[Callable[..., Rig]]:
    rigs: List[Rig] = []

    def make(**values: Any) -> Rig:
        rigs.append(Rig(**values))
        return rigs[-1]

    yield make
    for made in rigs:
        made.close()


def stamp_of(message: Any) -> int:
    return message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec


#: Element type and channels of image messages.
ENCODINGS = {
    "mono8": ("u1", 1),
    "rgb8": ("u1", 3),
    "32FC1": ("<f4", 1),
    "32FC3": ("<f4", 3),
    "16UC1": ("<u2", 1),
    "16UC3": ("<u2", 3),
}


def pixels(message: Any) -> np.ndarray:
    """A typed image message as an array, read independently of the package."""
    dtype, channels = ENCODINGS[message.encoding]
    array = np.frombuffer(bytes(message.data), dtype).reshape(message.height, message.width, channels)
    assert message.step == array.strides[0]
    assert not message.is_bigendian
    return array[..., 0] if channels == 1 else array


@pytest.mark.parametrize(
    ("sensor", "resolution", "depth"),
    [("IMX250MZR", "half", "float32"), ("IMX250MYR", "full", "uint8"), ("IMX250MYR", "half", "uint16")],
)
def test_products_are_the_pipelines(rig: Any, sensor: str, resolution: str, depth: str) -> None:
    r = rig(sensor=sensor, resolution=resolution, output_depth=depth)
    heard = {n: r.listen(Float32 if n == "ssim" else Image, row.name) for n, row in PRODUCT_TOPICS.items()}
    raw = mosaic()
    stamp = r.frame(raw, "bayer_rggb8")  # a tag that must not matter
    dtype = {name: row.dtype(depth) for name, row in PRODUCT_TOPICS.items()}
    expected = Pipeline(sensor, tuple(PRODUCTS), resolution=resolution, dtype=dtype, backend="cpu")(raw)
    for name, messages_heard in heard.items():
        wait_for(lambda found=messages_heard: found, name)
        message = messages_heard[0]
        if name == "ssim":
            assert message.data == float(expected["ssim"])
            continue
        assert (stamp_of(message), message.header.frame_id) == (stamp, "camera")
        np.testing.assert_array_equal(pixels(message), expected[name], err_msg=name)


BAD_FRAMES = {
    "encoding": [{"encoding": ""}, {"encoding": "rgb8"}],
    "size": [{"width": 0}, {"height": 0}, {"height": 8}],
    "step": [{"step": 63}, {"encoding": "mono16"}],
    "truncated": [{"height": 49}, {"data": np.zeros(10, np.uint8)}, {"encoding": "PolarizeMono12p", "step": 0}],
}


@pytest.mark.parametrize("cause", BAD_FRAMES)
def test_bad_frames_are_named_and_the_next_comes_through(rig: Any, cause: str) -> None:
    r = rig()
    heard = r.listen(Image, "intensity")
    for done, changes in enumerate(BAD_FRAMES[cause], 1):
        r.frame(**changes)
        wait_for(lambda n=done: r.report().get(f"dropped: {cause}") == str(n), f"{cause} {changes}")
    assert r.report()["last error"].startswith(f"{cause}: ")
    assert not heard
    stamp = r.frame()
    wait_for(lambda: heard, "the good frame")
    assert [stamp_of(message) for message in heard] == [stamp]


def test_parameters_are_described(rig: Any) -> None:
    node = rig().node
    for name, row in PARAMETERS.items():
        described = node.describe_parameter(name)
        assert described.description == row.text
        assert described.read_only == row.read_only
        assert described.type != ParameterType.PARAMETER_NOT_SET
    assert node.describe_parameter("jpeg_quality").integer_range[0].to_value == 100
    assert node.describe_parameter("min_intensity").floating_point_range[0].to_value == 2.0
    assert "full" in node.describe_parameter("resolution").additional_constraints


def test_whole_numbers_that_are_described_are_allowed(rig: Any) -> None:
    """And no others, except those that a description in words excludes."""
    node = rig().node
    for name, row in PARAMETERS.items():
        if type(row.default) is not int or row.read_only:
            continue
        described = node.describe_parameter(name)
        (limits,) = described.integer_range
        allowed = set(range(limits.from_value, limits.to_value + 1, limits.step))
        if described.additional_constraints:
            allowed = set(map(int, described.additional_constraints.replace("one of: ", "").split(", ")))
        tried = range(limits.from_value - 2, limits.to_value + 3, max(1, (limits.to_value - limits.from_value) // 90))
        found = {value for value in tried if node.set_parameters([Parameter(name, value=value)])[0].successful}
        assert found == allowed & set(tried) - ({1} if name == "quality.frozen_frames" else set()), name


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"resolution": "full", "min_intensity": float("nan")}, "min_intensity"),
        ({"resolution": "full", "precision": "fp16", "backend": "cpu"}, "cuda"),
        ({"resolution": "full", "jpeg_quality": 0}, "jpeg_quality"),
        ({"resolution": "full", "sensor": "90 45 / 0 135"}, "orthogonal"),
        ({"resolution": "full", "threads": 1}, "threads is fixed at start, to 0; got 1"),
    ],
)
def test_refused_change_leaves_everything(rig: Any, changes: Dict[str, Any], said: str) -> None:
    node = rig().node
    before, values = node._settings, {name: node.get_parameter(name).value for name in changes}
    result = node.set_parameters_atomically([Parameter(name, value=value) for name, value in changes.items()])
    assert not result.successful
    assert said in result.reason
    assert node._settings is before
    assert {name: node.get_parameter(name).value for name in changes} == values
    frames = node._diagnostics.statuses("", "")[0]
    assert frames.values["refused: parameter"] == "1"
    assert said in frames.values["last error"]


def test_changes_apply_to_the_next_frame(rig: Any) -> None:
    r = rig()
    heard = r.listen(Image, "polarization/dolp")
    r.frame()
    wait_for(lambda: len(heard) == 1, "half resolution")
    changes = {"resolution": "full", "output_depth": "uint8", "frame_id": "front", "raw.roi_offset": [1, 0]}
    result = r.node.set_parameters_atomically([Parameter(name, value=value) for name, value in changes.items()])
    assert result.successful, result.reason
    raw = mosaic(1)
    r.frame(raw)
    wait_for(lambda: len(heard) == 2, "full resolution")
    options = {"resolution": "full", "dtype": "uint8", "roi_offset": (1, 0)}
    assert (heard[0].encoding, heard[1].encoding, heard[1].header.frame_id) == ("32FC1", "mono8", "front")
    np.testing.assert_array_equal(pixels(heard[1]), Pipeline(products="dolp", **options, backend="cpu")(raw)["dolp"])


def test_geometry_that_does_not_fit(rig: Any) -> None:
    r = rig(output__roi=[0, 0, 32, 24])
    heard, sigma = r.listen(Image, "polarization/dolp"), r.listen(Image, "polarization/dolp_sigma")
    r.frame(mosaic(shape=(40, 60)))
    wait_for(lambda: r.report().get("dropped: output") == "1", "the refusal")
    r.frame()
    wait_for(lambda: heard, "the next good frame")
    assert not sigma
    assert int(r.report()["refused: product"]) >= 1
    for changes in ({"output.scale": 3}, {"output.rotate": 45}, {"debias": True}, {"output.roi": [0, 0, -1, 4]}):
        result = r.node.set_parameters_atomically([Parameter(name, value=value) for name, value in changes.items()])
        assert not result.successful
        assert next(iter(changes)).rsplit(".", 1)[-1] in result.reason
    assert r.node.set_parameters_atomically([Parameter("output.roi", value=[0, 0, 0, 0])]).successful
    r.frame()
    wait_for(lambda: sigma, "the product that the geometry excluded")


def test_outputs_are_rectified_by_the_topic(rig: Any) -> None:
    """No output before a usable calibration; then that of the library, and with another calibration another one."""
    r = rig(output__rectify="camera_info")
    images, infos = r.listen(Image, "polarization/dolp"), r.listen(CameraInfo, "polarization/camera_info")
    r.frame()
    wait_for(lambda: r.report().get("dropped: output") == "1", "the refusal")
    info = CameraInfo(height=SHAPE[0], width=SHAPE[1], distortion_model="plumb_bob", d=[-0.2, 0.05, 0.01, 0.0, 0.0])
    r.send(serialize_message(info), "camera_info", CameraInfo)
    wait_for(lambda: r.node.publisher.camera_info, "what is not calibrated")
    r.frame()
    wait_for(lambda: r.report().get("dropped: output") == "2", "the second refusal")
    assert r.report()["refused: camera_info"] == "1"
    assert not images
    for f in (60.0, 70.0):
        info.k = [f, 0.0, 31.5, 0.0, f, 23.5, 0.0, 0.0, 1.0]
        info.p = [0.9 * f, 0.0, 30.5, 0.0, 0.0, 0.9 * f, 24.5, 0.0, 0.0, 0.0, 1.0, 0.0]
        r.send(serialize_message(info), "camera_info", CameraInfo)
        wait_for(
            lambda f=f: deserialize_message(r.node.publisher.camera_info, CameraInfo).k[0] == f,
            "the calibration",
        )
        cdr = serialize_message(info)
        lens = messages.lens_of(messages.decode_camera_info(cdr))
        want = Pipeline(products="dolp", backend="cpu", rectify=lens)(mosaic())["dolp"]

        def is_rectified(want: np.ndarray = want) -> bool:
            r.frame()
            return bool(images) and np.array_equal(pixels(images[-1]), want, equal_nan=True)

        wait_for(is_rectified, "the rectified image")
        wait_for(lambda f=f: infos and infos[-1].k[0] == 0.45 * f, "its calibration")
        np.testing.assert_allclose(infos[-1].p, [0.45 * f, 0, 15, 0, 0, 0.45 * f, 12, 0, 0, 0, 1, 0])
        np.testing.assert_allclose(infos[-1].k, [0.45 * f, 0, 15, 0, 0.45 * f, 12, 0, 0, 1])
        assert not any(infos[-1].d)
        assert list(infos[-1].r) == [1, 0, 0, 0, 1, 0, 0, 0, 1]
    assert r.node.set_parameters_atomically([Parameter("output.rectify", value="")]).successful
    result = r.node.set_parameters_atomically([Parameter("output.rectify", value="/no/file.yaml")])
    assert not result.successful
    assert "rectify: /no/file.yaml cannot be read" in result.reason


def decoded(message: Any) -> np.ndarray:
    """RGB of a JPEG message."""
    image = cv2.imdecode(np.frombuffer(bytes(message.data), np.uint8), cv2.IMREAD_COLOR)
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def test_display_changes_what_is_for_eyes_alone(rig: Any) -> None:
    r = rig(**{"sensor": "IMX250MYR", "display.gain": 2.0, "display.white_balance": [1.5, 1.0, 2.0]})
    topics = {
        "intensity": Image,
        "polarization/dolp": Image,
        "polarization/preview": Image,
        "intensity/compressed": CompressedImage,
        "polarization/preview/compressed": CompressedImage,
    }
    heard = {topic: r.listen(kind, topic) for topic, kind in topics.items()}
    raw = np.full(SHAPE, 60, np.uint8)
    r.frame(raw)
    wait_for(lambda: all(heard.values()), "all topics")
    expected = Pipeline("IMX250MYR", ("intensity", "dolp", "preview"), dtype={"intensity": "uint8"}, backend="cpu")(raw)
    np.testing.assert_array_equal(pixels(heard["intensity"][0]), expected["intensity"])
    np.testing.assert_array_equal(pixels(heard["polarization/dolp"][0]), expected["dolp"])
    assert np.all(expected["intensity"] == 60)
    assert np.all(expected["preview"] == 60), "unpolarized"
    assert np.all(pixels(heard["polarization/preview"][0]) == 120)
    # a constant picture survives JPEG but for the rounding of its color space
    assert np.abs(decoded(heard["intensity/compressed"][0]).astype(int) - [180, 120, 240]).max() <= 2
    assert np.abs(decoded(heard["polarization/preview/compressed"][0]).astype(int) - 120).max() <= 2
    changes = [Parameter("display.gain", value="auto"), Parameter("display.white_balance", value="auto")]
    assert r.node.set_parameters_atomically(changes).successful
    r.frame(raw)
    wait_for(lambda: len(heard["intensity/compressed"]) == 2, "the second frame")
    assert np.abs(decoded(heard["intensity/compressed"][1]).astype(int) - 230).max() <= 2
    refused = r.node.set_parameters([Parameter("display.gain", value="bright"), Parameter("display.gain")])
    assert [row.successful for row in refused] == [False, False]
    assert "'auto' or a number" in refused[0].reason


def with_step(cdr: bytes, size: int, step: int) -> bytes:
    """An image of `size` bytes of pixels that claims other rows: the step stands in front of their number."""
    place = len(cdr) - size - 8
    return cdr[:place] + struct.pack("<I", step) + cdr[place + 4 :]


def test_reference(rig: Any) -> None:
    r = rig(ssim_mode="reference")
    ssim, dolp = r.listen(Float32, "quality/ssim"), r.listen(Image, "polarization/dolp")
    raw = mosaic()
    r.frame(raw)
    wait_for(lambda: len(dolp) == 1, "DoLP, which needs no reference")
    assert r.report()["refused: reference"] == "1"
    assert not ssim
    intensity = Pipeline(products="intensity", backend="cpu")(raw)["intensity"]
    good = messages.encode_image(0, "", "32FC1", intensity)
    holes = np.where(intensity == intensity.max(), np.float32(np.nan), intensity)
    bad = {
        "small": messages.encode_image(0, "", "32FC1", intensity[1:]),
        "type": messages.encode_image(0, "", "mono16", np.zeros((24, 32), np.uint16)),
        "NaN": messages.encode_image(0, "", "32FC1", holes),
        "cut": bytes(good)[:-1],
        **{f"step {step}": with_step(bytes(good), intensity.nbytes, step) for step in (0, 4, 4 * 32 - 1)},
    }
    for done, (name, cdr) in enumerate(bad.items(), 2):
        r.node.processor.reference = None
        r.send(cdr, "reference")
        wait_for(lambda: r.node.processor.reference, "the reference")
        r.frame(raw)
        wait_for(lambda n=done: r.report()["refused: reference"] == str(n), name)
    r.node.processor.reference = None
    r.send(good, "reference")
    wait_for(lambda: r.node.processor.reference, "the reference")
    r.frame(raw)
    wait_for(lambda: ssim, "the similarity")
    assert ssim[0].data == pytest.approx(1.0, abs=1e-6)  # float32 rounding of an image compared with itself
    wait_for(lambda: len(dolp) == len(bad) + 2, "DoLP of every frame")


#: Settings that change together: what tells a message of one from a message of another is its every field.
TOGETHER: List[Dict[str, Any]] = [
    {"resolution": "half", "output_depth": "float32", "ssim_stride": 1, "frame_id": "a", "min_intensity": 0.01},
    {"resolution": "full", "output_depth": "uint8", "ssim_stride": 2, "frame_id": "b", "min_intensity": 0.5},
    {"resolution": "half", "output_depth": "uint16", "ssim_stride": 4, "frame_id": "c", "min_intensity": 0.9},
]


@pytest.mark.parametrize("compiles", [False, True])
def test_every_message_is_of_one_setting(rig: Any, monkeypatch: pytest.MonkeyPatch, compiles: bool) -> None:
    ready: Set[CpuBackend] = set()
    if compiles:  # as a GPU's does
        monkeypatch.setattr(CpuBackend, "is_ready", lambda backend, _: backend in ready)
        monkeypatch.setattr(CpuBackend, "prepare", lambda backend, _: (time.sleep(0.005), ready.add(backend)))
    names = ("dolp", "ssim_map")
    raw = mosaic(3, (96, 128))
    expected = {}
    for row in TOGETHER:
        values = {name: parameter.default for name, parameter in PARAMETERS.items()}
        arguments = make_settings({**values, "backend": "cpu", **row}).arguments(names)
        pipeline = Pipeline(**arguments)
        pipeline.prepare(raw)
        expected[row["frame_id"]] = pipeline(raw)
    r = rig(**TOGETHER[0])
    heard = {name: r.listen(Image, PRODUCT_TOPICS[name].name) for name in names}
    infos = r.listen(CameraInfo, "quality/camera_info")
    r.send(serialize_message(CameraInfo(height=96, width=128)), "camera_info", CameraInfo)
    wait_for(lambda: r.node.publisher.camera_info, "the calibration")
    for k in range(120):
        if k % 4 == 3:
            changes = [Parameter(name, value=value) for name, value in TOGETHER[k // 4 % 3].items()]
            assert r.node.set_parameters_atomically(changes).successful
        r.frame(raw)
        time.sleep(0.004)
    final = TOGETHER[119 // 4 % 3]["frame_id"]

    def arrives() -> bool:
        r.frame(raw)
        return bool(heard["dolp"]) and heard["dolp"][-1].header.frame_id == final

    wait_for(arrives, "the last change")
    wait_for(lambda: len({message.header.frame_id for message in heard["ssim_map"]}) == 3, "all three settings")
    frames: Dict[int, Set[str]] = {}
    for name, found in heard.items():
        for message in list(found):
            setting = message.header.frame_id
            frames.setdefault(stamp_of(message), set()).add(setting)
            np.testing.assert_array_equal(pixels(message), expected[setting][name], err_msg=f"{name} of {setting}")
    for message in list(infos):
        frames.setdefault(stamp_of(message), set()).add(message.header.frame_id)
        assert (message.height, message.width) == expected[message.header.frame_id]["ssim_map"].shape
    assert all(len(settings) == 1 for settings in frames.values()), "a frame's messages are of one setting"
    assert not any(name.startswith("dropped: ") and name != "dropped: overload" for name in r.report())


def test_settings_that_do_not_fit_leave_the_last_ones_in_use(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They cost the frames that they do not fit, and none while the next settings are being prepared."""
    goes_on = threading.Event()
    prepare = Pipeline.prepare
    r = rig()
    heard = r.listen(Image, "intensity")
    r.frame()
    wait_for(lambda: heard, "a frame by the first settings")
    for k in range(5):
        assert r.node.set_parameters_atomically([Parameter("output.roi", value=[500 + k, 0, 8, 8])]).successful
        r.frame()
        wait_for(lambda k=k: r.report().get("dropped: output") == str(k + 1), "a frame that does not fit")
    monkeypatch.setattr(Pipeline, "prepare", lambda pipeline, raw: (goes_on.wait(TIMEOUT), prepare(pipeline, raw)))
    try:
        assert r.node.set_parameters_atomically([Parameter("output.roi", value=[0, 0, 8, 8])]).successful
        for k in range(3):
            r.frame()
            wait_for(lambda k=k: len(heard) == k + 2, "a frame by the first settings")
    finally:
        goes_on.set()
    assert {(message.width, message.height) for message in heard} == {(32, 24)}

    def arrives() -> bool:
        r.frame()
        return bool((heard[-1].width, heard[-1].height) == (8, 8))

    wait_for(arrives, "a frame by the new settings")
    assert {name for name in r.report() if name.startswith("dropped: ")} <= {"dropped: output", "dropped: overload"}


def test_whole_numbers_do_for_floats_wherever_they_come_from(rig: Any, tmp_path: Path) -> None:
    """From the command line, a file, another process and this one; the parameter then is a float."""
    whole = {name: int(row.default) for name, row in PARAMETERS.items() if type(row.default) is float}
    whole.update({"ssim_sigma": 2, "quality.saturated_error": 1, "quality.dark_error": 1, "quality.ssim_warn": 1})
    assert len(whole) > 10
    path = tmp_path / "whole.yaml"
    path.write_text(yaml.safe_dump({"/**": {"ros__parameters": whole}}))
    r = rig()

    def check(node: Any) -> None:
        for name, value in whole.items():
            found = node.get_parameter(name)
            assert found.value == value, name
            assert found.type_ == Parameter.Type.DOUBLE or PARAMETERS[name].dynamic, name

    words = [word for name, value in whole.items() for word in ("-p", f"{name}:={value}")]
    for arguments in (["--params-file", str(path)], words):
        node = PolarNode(
            context=r.context, namespace="/other", cli_args=["--ros-args", "-p", "backend:=cpu", *arguments]
        )
        check(node)
        node.close()
        node.destroy_node()
    changes = [Parameter(name, value=value) for name, value in whole.items()]
    assert r.node.set_parameters_atomically(changes).successful
    check(r.node)
    assert all(row.successful for row in r.node.set_parameters(changes))
    request = SetParameters.Request(parameters=[change.to_parameter_msg() for change in changes])
    assert all(row.successful for row in ask(r.peer, SetParameters, "/polar_pipeline/set_parameters", request).results)
    check(r.node)


def test_what_a_node_has_can_be_set_again(rig: Any) -> None:
    """`ros2 param load` of what `ros2 param dump` gave: nothing is refused, though some parameters are fixed."""
    r = rig()
    names = [name for name in r.node._parameters if name != "use_sim_time"]
    assert len([name for name in names if name.startswith("qos_overrides.")]) > 50
    request = SetParameters.Request(parameters=[r.node.get_parameter(name).to_parameter_msg() for name in names])
    answer = ask(r.peer, SetParameters, "/polar_pipeline/set_parameters", request)
    assert [row.reason for row in answer.results if not row.successful] == []
    assert not any(key.startswith("refused") for key in r.report())
    unknown = r.node.set_parameters([Parameter("no_such\x1b", value=1)])[0]
    assert unknown.reason == r"no_such\x1b is not a parameter of this node"


def test_nothing_of_former_settings_is_kept(rig: Any) -> None:
    """Of all that Python and NumPy allocate for frames, after many changes and back."""
    raw = mosaic(1, (768, 1024))
    first = {"resolution": "half", "output_depth": "uint8", "min_intensity": 0.01}
    r = rig(**first)
    heard = [r.listen(Image, PRODUCT_TOPICS[name].name) for name in ("intensity", "dolp", "aolp", "stokes")]

    def frames(**changes: Any) -> None:
        assert r.node.set_parameters_atomically([Parameter(k, value=v) for k, v in changes.items()]).successful
        for _ in range(4):
            counts = [len(row) for row in heard]
            r.frame(raw)
            wait_for(lambda counts=counts: all(len(row) > n for row, n in zip(heard, counts)), "a frame's products")
        for row in heard:
            row.clear()

    def kept() -> int:
        traces = tracemalloc.take_snapshot().traces
        return sum(row.size for row in traces if row.size >= raw.nbytes // 8)

    tracemalloc.start()
    try:
        frames(**first)
        before = kept()
        assert before > raw.nbytes, "the test sees no arrays"
        for resolution, depth in itertools.product(("full", "half"), ("float32", "uint16", "uint8")):
            frames(resolution=resolution, output_depth=depth, min_intensity=0.02)
        frames(**first)
        assert kept() <= 1.2 * before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("is_readable", [True, False])
def test_calibrations_are_read_beside_the_executor(
    rig: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_readable: bool
) -> None:
    """Meanwhile reports and other requests go on, and a later change is made later; a file is read once."""
    path, goes_on, reads = tmp_path / "sensor.npz", threading.Event(), []
    save_calibration(path, ideal_calibration(SENSORS["IMX250MZR"], SHAPE))
    if not is_readable:
        path.write_bytes(b"PK")

    def read(path: Path) -> Any:
        reads.append(path)
        assert goes_on.wait(TIMEOUT)
        return load_calibration(path)

    monkeypatch.setattr("polar_pipeline.calibration.file.load_calibration", read)
    r = rig()
    reports = r.listen(DiagnosticArray, "/diagnostics")
    client = client_of(r.peer, SetParameters, "/polar_pipeline/set_parameters")
    try:
        names = [("calibration", str(path)), ("frame_id", "first")]
        first = client.call_async(
            SetParameters.Request(parameters=[Parameter(k, value=v).to_parameter_msg() for k, v in names])
        )
        wait_for(lambda: reads, "the file")
        second = client.call_async(
            SetParameters.Request(parameters=[Parameter("frame_id", value="second").to_parameter_msg()])
        )
        count = len(reports)
        wait_for(lambda: len(reports) > count + 1, "reports")
        assert (first.done(), second.done()) == (False, False)
    finally:
        goes_on.set()
    wait_for(lambda: first.done() and second.done(), "the answers")
    results = first.result().results
    assert [row.successful for row in results] == [is_readable, True]
    assert results[0].reason.startswith("" if is_readable else f"calibration: {path} cannot be read")
    assert second.result().results[0].successful
    assert r.node.get_parameter("frame_id").value == "second"
    assert r.node.get_parameter("calibration").value == (str(path) if is_readable else "")
    assert len(reads) == 1


def test_saturated_pixels_are_counted_without_a_reference(rig: Any) -> None:
    r = rig(ssim_mode="reference")
    ssim, saturated = r.listen(Float32, "quality/ssim"), r.listen(Float32, "quality/saturated")
    r.frame(np.full(SHAPE, 255, np.uint8))
    wait_for(lambda: saturated, "the ratio of saturated pixels")
    assert saturated[0].data == 1
    assert not ssim, "which has nothing to compare with"


def test_simulated_time(rig: Any) -> None:
    r = rig(use_sim_time=True)
    heard = r.listen(Image, "intensity")
    r.frame(stamp_ns=50 * 10**9)
    wait_for(lambda: len(heard) == 1, "a frame before the clock starts")
    assert r.report()["age [ms]"] == "n/a"
    clock = Clock()
    clock.clock.sec, clock.clock.nanosec = 51, 500_000_000
    r.send(serialize_message(clock), "/clock", Clock)
    wait_for(lambda: r.node.get_clock().now().nanoseconds, "the simulated clock")
    r.frame(stamp_ns=51 * 10**9)
    wait_for(lambda: len(heard) == 2, "a frame")
    ages = [float(part) for part in r.report()["age [ms]"].split(" / ")]
    assert ages == pytest.approx([500.0] * 4)


def test_diagnostics_topic(rig: Any) -> None:
    r = rig()
    reports = r.listen(DiagnosticArray, "/diagnostics")
    heard = r.listen(Image, "intensity")
    r.frame()
    wait_for(lambda: heard, "a frame")
    wait_for(
        lambda: any(pair.value == "intensity" for m in reports for s in m.status for pair in s.values), "the report"
    )
    names = [status.name for status in reports[-1].status]
    assert names == [f"polar_pipeline: {part}" for part in ("frames", "latency", "pipeline", "quality", "layout")]
    assert all(status.level == b"\x00" for message in reports for status in message.status)


def heard_status(reports: Deque[Any], part: str, text: str) -> Any:
    """Wait for a status of `/diagnostics` whose message has this text."""

    def find() -> Any:
        rows = [row for message in reports for row in message.status if row.name == f"polar_pipeline: {part}"]
        return next((row for row in rows if text in row.message), None)

    return wait_for(find, f"{part}: {text}")


def test_quality_of_every_frame(rig: Any) -> None:
    r = rig(**{"quality.frozen_frames": 2, "ssim_stride": 2})
    reports, latency = r.listen(DiagnosticArray, "/diagnostics"), r.listen(DiagnosticArray, "latency")
    ssim, similarity = r.listen(Float32, "quality/ssim"), r.listen(Image, "quality/ssim_map")
    raw = mosaic(shape=(200, 300))
    r.frame(raw)
    wait_for(lambda: latency and ssim and similarity, "the first frame")
    pipeline = Pipeline(products="ssim_map, ssim", ssim_stride=2, backend="cpu")
    expected = pipeline(raw)
    np.testing.assert_array_equal(pixels(similarity[0]), expected["ssim_map"])
    assert pixels(similarity[0]).shape == (50, 75)
    assert ssim[0].data == float(expected["ssim"])
    figures = {pair.key: pair.value for pair in latency[0].status[1].values}
    figure = measure(pipeline, RawFrame(raw, 255), expected)
    assert figures == figure.values()
    assert latency[0].status[1].message == figure.lowest.place
    # random numbers resemble nothing
    low = heard_status(reports, "quality", "image quality low: SSIM")
    assert low.level == b"\x02"
    assert "noise, defective pixels" in low.message
    r.frame(raw)
    assert heard_status(reports, "quality", "camera frozen: 2 identical frames").level == b"\x02"
    changes = [Parameter("quality.ssim_warn", value=-1.0), Parameter("quality.ssim_error", value=-1.0)]
    assert r.node.set_parameters_atomically(changes).successful
    reports.clear()
    r.frame(mosaic(1, (200, 300)))
    assert heard_status(reports, "quality", "good").level == b"\x00"


def take_snapshot(r: Rig) -> Any:
    return client_of(r.peer, Trigger, "/polar_pipeline/snapshot").call_async(Trigger.Request())


def answer(future: Any) -> Any:
    wait_for(future.done, "the answer")
    return future.result()


def test_no_snapshot_where_nothing_can_be_written(rig: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polar_pipeline.ros.node.SNAPSHOT_PERIOD", 0)
    r = rig(**{"snapshot.folder": str(tmp_path / "folder")})
    heard = r.listen(Image, "intensity")
    r.frame()
    wait_for(lambda: heard, "a frame")
    (tmp_path / "folder").touch()
    refused = answer(take_snapshot(r))
    assert (refused.success, "Not a directory" in refused.message) == (False, True)
    (tmp_path / "folder").unlink()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("polar_pipeline._util.files.os.fsync", full)
    refused = answer(take_snapshot(r))
    assert (refused.success, "No space left" in refused.message) == (False, True)
    monkeypatch.undo()
    assert list((tmp_path / "folder").iterdir()) == [], "nothing half written"
    r.frame()
    wait_for(lambda: len(heard) == 2, "a frame after the failures")
    wait_for(lambda: answer(take_snapshot(r)).success, "a snapshot, when the last one is a second old")


def test_frames_go_on_during_a_snapshot(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(*_: Any) -> Path:
        begun.set()
        assert go.wait(TIMEOUT)
        return Path("there")

    monkeypatch.setattr("polar_pipeline.ros.node.write_snapshot", slow)
    r = rig()
    heard = r.listen(Image, "intensity")
    r.frame()
    wait_for(lambda: heard, "a frame")
    first = take_snapshot(r)
    assert begun.wait(TIMEOUT)
    r.frame()
    wait_for(lambda: len(heard) == 2, "a frame during the snapshot")
    second = answer(take_snapshot(r))
    assert (second.success, "another snapshot" in second.message) == (False, True)
    assert not first.done()
    go.set()
    assert answer(first).message == "there"


def test_a_dump_of_parameters_starts_the_same_node(rig: Any, tmp_path: Path) -> None:
    """A file as `ros2 param dump` writes it gives another node, and `replay --params`, the same parameters."""
    changes = {"resolution": "full", "raw.flip": [True, False], "display.gain": "auto", "quality.ssim_warn": 0.9}
    changes.update({"frame_id": "off", "min_intensity": 1e-6, "backend": "cpu"})
    r = rig(**changes)
    tree: Dict[str, Any] = {}
    for name in r.node._parameters:
        *folders, leaf = name.split(".")
        value = r.node.get_parameter(name).value
        reduce(lambda below, folder: below.setdefault(folder, {}), folders, tree)[leaf] = (
            list(value) if isinstance(value, (tuple, array)) else value
        )
    path = tmp_path / "dump.yaml"
    path.write_text(yaml.dump({"/polar_pipeline": {"ros__parameters": tree}}, default_flow_style=False))
    assert changed(from_yaml(path)) == changes
    node = PolarNode(context=r.context, cli_args=["--ros-args", "--params-file", str(path)])
    assert node._settings == r.node._settings
    node.close()
    node.destroy_node()


@pytest.mark.parametrize("text", first_of(["off", "1e3", "~", 'it\'s "so"', "y", "nan", "0x1F", ""], 4))
def test_words_stay_words(rig: Any, tmp_path: Path, text: str) -> None:
    """What one of both parsers takes for a number, a truth value or nothing."""
    path = tmp_path / "words.yaml"
    path.write_text(to_yaml({"frame_id": text}, "words"))
    node = rclpy.create_node("other", context=rig().context, cli_args=["--ros-args", "--params-file", str(path)])
    assert node.declare_parameter("frame_id", "default").value == text
    node.destroy_node()


def test_layout_that_does_not_fit(rig: Any) -> None:
    r = rig(**{"sensor": "IMX250MYR", "raw.roi_offset": [1, 0]})
    reports = r.listen(DiagnosticArray, "/diagnostics")
    r.listen(Image, "intensity")
    colors = np.array([60, 120, 90], np.uint8)[np.array(SENSORS["IMX250MYR"].colors)]
    r.frame(np.tile(colors, (64, 64)))
    found = heard_status(reports, "layout", "the colors do not fit")
    assert found.level == b"\x01"
    assert "raw.roi_offset [0, 0]" in found.message
    assert r.node.set_parameters_atomically([Parameter("raw.roi_offset", value=[0, 0])]).successful

    def fits() -> bool:
        r.frame(np.tile(colors, (64, 64)))
        return any(row.message == "the colors fit" for message in reports for row in message.status)

    wait_for(fits, "the right offset")


def test_qos_of_every_topic_is_the_documented_one(rig: Any) -> None:
    """Discovery tells what the middleware made of it."""
    table = (ROOT / "docs" / "ros.md").read_text().split("### QoS\n")[1]
    node = rig().node
    outputs = [row for row in node.publishers if row.topic_name not in ("/parameter_events", "/rosout")]
    inputs = [node.input, *node._others]
    assert len(outputs) > len(PRODUCTS)
    for kind, endpoints, find in (
        ("inputs", inputs, node.get_subscriptions_info_by_topic),
        ("outputs", outputs, node.get_publishers_info_by_topic),
    ):
        (line,) = (line for line in table.splitlines() if line.startswith(f"| {kind}"))
        for endpoint in endpoints:
            (offered,) = (row.qos_profile for row in find(endpoint.topic_name) if row.node_name == "polar_pipeline")
            words = [policy.name.lower().replace("_", " ") for policy in (offered.reliability, offered.durability)]
            history = f"keep last {endpoint.qos_profile.depth}"
            assert line.split(" | ")[1:4] == [*words, history], endpoint.topic_name


def test_a_late_subscriber_gets_no_old_image(rig: Any) -> None:
    """Not even one that asks for old images where they are offered, as `ros2 topic echo` does."""
    r = rig(**{"qos_overrides./intensity.publisher.depth": 10})  # so that the next frame replaces none on its way
    heard = r.listen(Image, "intensity")
    r.frame()
    wait_for(lambda: heard, "a frame")
    (publisher,) = (row for row in r.node.publishers if row.topic_name == "/intensity")
    (info,) = r.peer.get_publishers_info_by_topic("/intensity")
    qos = QoSProfile(depth=10, reliability=info.qos_profile.reliability, durability=info.qos_profile.durability)
    late: List[int] = []
    r.peer.create_subscription(Image, "intensity", lambda message: late.append(stamp_of(message)), qos)
    wait_for(lambda: publisher.get_subscription_count() == 2, "the late subscriber")
    stamp = r.frame()
    wait_for(lambda: stamp in late, "the next frame")
    assert late == [stamp]


# -------------------------------------------------------------------------------------------------- as a process


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "polar_pipeline.node", "--ros-args", "-p", "backend:=cpu", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def catches_sigterm() -> bool:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
        return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

    wait_for(catches_sigterm, "the handlers")
    return process


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see the handlers")
@pytest.mark.parametrize(
    ("delay", "number"),
    representative(
        list(itertools.product((0.0, 0.3, 0.9, 2.0), (signal.SIGINT, signal.SIGTERM))),
        lambda row: [row[0]],  # one signal after each delay
    ),
)
def test_stops_cleanly_at_any_moment(rig: Any, number: signal.Signals, delay: float) -> None:
    r = rig(**{"qos_overrides./intensity.publisher.depth": 1})  # a node in this process keeps the topics alive
    r.listen(Image, "intensity")
    process = start("-r", "__node:=other")
    end = time.monotonic() + delay * random.Random().uniform(0.5, 1.5)
    while time.monotonic() < end:
        r.frame()
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors, errors


@pytest.mark.parametrize("error", [MemoryError("no room"), cv2.error("no room"), ValueError("a defect")])
def test_no_memory_is_a_cause_of_its_own(
    rig: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    r = rig()
    heard = r.listen(Image, "intensity")
    if isinstance(error, cv2.error):
        error.code = cv2.Error.StsNoMem
    cause = "internal" if isinstance(error, ValueError) else "memory"

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("polar_pipeline.live.processor.messages.decode_image", fail)  # for the worker
    r.frame()
    wait_for(lambda: r.report().get(f"dropped: {cause}") == "1", "a failure of the worker")
    monkeypatch.undo()
    monkeypatch.setattr(r.node, "_newest", None)
    monkeypatch.setattr("polar_pipeline.ros.node.messages.peek_stamp", fail)  # for the executor's callback
    r.frame()
    wait_for(lambda: r.report().get(f"dropped: {cause}") == "2", "a failure of a callback")
    monkeypatch.undo()

    class Executor:
        spin_once = fail

    spin_once(Executor(), [r.node])  # where a message is taken
    assert r.report()[f"dropped: {cause}"] == "3"
    r.frame()
    wait_for(lambda: heard, "the next good frame")
    assert ("Traceback" in capfd.readouterr().err) == (cause == "internal")
