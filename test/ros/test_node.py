"""The live node over real rclpy and DDS, with small frames."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import random
import threading
import time
from array import array
from collections import deque
from concurrent.futures import Future
from functools import reduce
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Mapping, Optional

import numpy as np
import pytest
from calibrations import ideal_calibration
from support import ROOT, TIMEOUT, changed, ended_afterwards, first_of, wait_for

yaml = pytest.importorskip("yaml")
rclpy = pytest.importorskip("rclpy")

import drill
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.msg import ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.serialization import serialize_message
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image
from services import ask, client_of
from std_msgs.msg import Float32
from std_srvs.srv import Trigger

from polar_pipeline import SENSORS, Pipeline
from polar_pipeline.calibration import load_calibration, save_calibration
from polar_pipeline.live.parameters import PARAMETERS
from polar_pipeline.live.preset import from_yaml, to_yaml
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.recordings import messages
from polar_pipeline.ros.main import spin_once
from polar_pipeline.ros.node import PolarNode

pytestmark = pytest.mark.ros
SHAPE = (48, 64)
RAW = np.random.default_rng(0).integers(10, 200, SHAPE).astype(np.uint8)


class Rig:
    """The node under test, on the CPU, beside a peer that plays camera and viewer."""

    def __init__(self, **values: Any) -> None:
        self._peer = drill.Peer()
        self.context, self.peer = self._peer.context, self._peer.node
        overrides = [
            Parameter(name.replace("__", "."), value=value) for name, value in {"backend": "cpu", **values}.items()
        ]
        self.node = PolarNode(context=self.context, parameter_overrides=overrides)
        self._peer.spinner.add(self.node)
        self.publishers: Dict[str, Any] = {}
        self.stamp = 1_000_000_000

    def close(self) -> None:
        self._peer.spinner.end(self.node)
        self._peer.close()

    def listen(self, kind: Any, topic: str) -> Deque[Any]:
        """Everything that comes on a topic, typed, from now on."""
        heard: Deque[Any] = deque()
        self.peer.create_subscription(kind, topic, lambda message: heard.append(message), 10)  # noqa: PLW0108 - rclpy looks at the signature
        wait_for(
            lambda: any(p.get_subscription_count() for p in self.node.publishers if p.topic_name.endswith(topic)), topic
        )
        return heard

    def send(self, cdr: bytes, topic: str = "image_raw", kind: Any = Image) -> None:
        if topic not in self.publishers:
            self.publishers[topic] = self.peer.create_publisher(kind, topic, 10)
            wait_for(self.publishers[topic].get_subscription_count, f"the node's subscription to {topic}")
        self.publishers[topic].publish(bytes(cdr))

    def frame(self, raw: np.ndarray = RAW, encoding: str = "mono8", stamp_ns: Optional[int] = None) -> int:
        """Send a raw frame, by default the next one; its stamp."""
        if stamp_ns is None:
            self.stamp += 1_000_000
            stamp_ns = self.stamp
        self.send(messages.encode_image(stamp_ns, "camera", encoding, raw))
        return stamp_ns

    def report(self) -> Dict[str, str]:
        """All values of the node's diagnostics, as they are now."""
        statuses = self.node._diagnostics.statuses("", "")
        return {key: value for status in statuses for key, value in status.values.items()}


@pytest.fixture
def rig() -> Iterator[Callable[..., Rig]]:
    yield from ended_afterwards(Rig, Rig.close)


def changing(values: Mapping[str, Any]) -> SetParameters.Request:
    """The request of a client that changes parameters."""
    changes = (Parameter(name, value=value) for name, value in values.items())
    return SetParameters.Request(parameters=[change.to_parameter_msg() for change in changes])


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
    raw = RAW
    stamp = r.frame(raw, "bayer_rggb8")  # a tag that must not matter
    dtype = {name: row.dtype(depth) for name, row in PRODUCT_TOPICS.items()}
    expected = Pipeline(sensor, tuple(PRODUCTS), resolution=resolution, dtype=dtype, backend="cpu")(raw)
    for name, messages_heard in heard.items():
        wait_for(lambda found=messages_heard: found, name)
        message = messages_heard[0]
        if name == "ssim":
            assert message.data == float(expected["ssim"])
            continue
        assert (drill.stamp_of(message), message.header.frame_id) == (stamp, "camera")
        np.testing.assert_array_equal(pixels(message), expected[name], err_msg=name)


def test_parameters_are_described(rig: Any) -> None:
    """Whole numbers that are described are allowed, and no others but those that a description in words excludes."""
    node = rig().node
    assert node.describe_parameter("min_intensity").floating_point_range[0].to_value == 2.0
    assert "full" in node.describe_parameter("resolution").additional_constraints
    for name, row in PARAMETERS.items():
        described = node.describe_parameter(name)
        assert (described.description, described.read_only) == (row.text, row.read_only)
        assert described.type != ParameterType.PARAMETER_NOT_SET
        if type(row.default) is not int or row.read_only or name.startswith("camera."):  # there is no camera
            continue
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
        ({"resolution": "full", "calibration": "/nowhere.npz"}, "calibration: /nowhere.npz cannot be read"),
        (
            {"resolution": "full", "camera.exposure_us": 900.0},
            "camera.exposure_us is fixed without a camera of the node's own (camera.source), to 0.0; got 900.0",
        ),
        ({"resolution": "full", "jpeg_quality": 0}, "jpeg_quality"),
        ({"resolution": "full", "sensor": "90 45 / 0 135"}, "orthogonal"),
        ({"resolution": "full", "threads": 1}, "threads is fixed at start, to 0; got 1"),
    ],
)
def test_refused_change_leaves_everything(rig: Any, changes: Dict[str, Any], said: str) -> None:
    node = rig().node
    before, values = node.settings, {name: node.get_parameter(name).value for name in changes}
    result = node.set_parameters_atomically([Parameter(name, value=value) for name, value in changes.items()])
    assert not result.successful
    assert said in result.reason
    assert node.settings is before
    assert {name: node.get_parameter(name).value for name in changes} == values
    frames = node._diagnostics.statuses("", "")[0]
    assert frames.values["refused: parameter"] == "1"
    assert said in frames.values["last error"]


def test_exposure_of_any_cameras_frames_can_be_judged_otherwise(rig: Any) -> None:
    node = rig().node
    changes = {
        "camera.exposure_target": 0.5,
        "camera.exposure_percentile": 98.0,
        "camera.exposure_roi": [0, 0, 32, 32],
    }
    result = node.set_parameters_atomically([Parameter(name, value=value) for name, value in changes.items()])
    assert result.successful, result.reason
    camera = node.settings.camera
    assert (camera.exposure_target, camera.exposure_percentile, camera.exposure_roi) == (0.5, 98.0, (0, 0, 32, 32))
    (result,) = node.set_parameters([Parameter("camera.exposure_auto", value="polarization")])
    assert "is fixed without a camera of the node's own" in result.reason


def test_whole_numbers_do_for_floats_wherever_they_come_from(rig: Any, tmp_path: Path) -> None:
    """From the command line, a file, another process and this one; the parameter then is a float."""
    whole = {name: int(row.default) for name, row in PARAMETERS.items() if type(row.default) is float}
    del whole["camera.exposure_target"]  # less than 1
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
    answer = ask(r.peer, SetParameters, "/polar_pipeline/set_parameters", changing(whole))
    assert all(row.successful for row in answer.results)
    check(r.node)


def test_values_are_converted_to_the_type_of_their_parameter(rig: Any) -> None:
    r = rig()
    changes = {"jpeg_quality": 70.0, "co_sited": 0, "raw.flip": [0, 1], "raw.roi_offset": [2.0, 4.0]}
    answer = ask(r.peer, SetParameters, "/polar_pipeline/set_parameters", changing(changes))
    assert [row.reason for row in answer.results] == [""] * len(changes)
    assert r.node.settings.jpeg_quality == 70
    options = r.node.settings.options
    assert (options.co_sited, options.flip, options.roi_offset) == (False, (False, True), (2, 4))
    types = [r.node.get_parameter(name).type_.name for name in changes]
    assert types == ["INTEGER", "BOOL", "BOOL_ARRAY", "INTEGER_ARRAY"]


def random_preset(rng: random.Random) -> Dict[str, Any]:
    """Values that fit each other, of parameters that cannot have all values at the same time."""
    low, high = sorted((rng.random(), rng.random()))
    preset: Dict[str, Any] = {"quality.dark_warn": low, "quality.dark_error": high}
    preset.update({"quality.saturated_warn": high / 2, "quality.saturated_error": high})
    preset.update({"quality.ssim_error": low, "quality.ssim_warn": high, "quality.frozen_frames": rng.choice([0, 5])})
    is_turned = rng.random() < 0.5  # the noise is known in the mosaic's own geometry only
    preset.update({"output.scale": rng.choice([2, 4]) if is_turned else 1, "output.rotate": 90 if is_turned else 0})
    preset.update({"output.roi": [2, 4, 8, 6] if is_turned else [0, 0, 0, 0], "debias": not is_turned})
    preset.update({"max_aolp_sigma": 0.0 if is_turned else rng.choice([7e-05, 5.0])})
    preset.update({"min_intensity": rng.choice([1e-05, 0.25]), "frame_id": rng.choice(["8", "map-2", ""])})
    preset.update({"display.gain": rng.choice([1e-05, "auto", 2.0]), "raw.flip": [is_turned, rng.random() < 0.5]})
    preset.update({"display.white_balance": rng.choice([[1e-05, 1.0, 2.5], "auto"])})
    return preset


def values_of(node: Any, names: Iterable[str]) -> Dict[str, Any]:
    """The values of parameters of a node, sequences as lists."""
    values = {name: node.get_parameter(name).value for name in names}
    return {name: list(value) if isinstance(value, (tuple, array)) else value for name, value in values.items()}


def test_presets_come_into_use_in_every_order(rig: Any) -> None:
    """Their parameters are set one by one in any order, though values in between contradict each other."""
    node, rng = rig().node, random.Random(50)
    presets = [random_preset(rng) for _ in range(3)]
    reasons = []
    for order in permutations(presets):
        for preset in order:
            for name in rng.sample(sorted(preset), len(preset)):
                result = node.set_parameters([Parameter(name, value=preset[name])])[0]
                assert result.successful, result.reason
                reasons.append(result.reason)
                Pipeline(**node.settings.arguments(("dolp",))).close()  # settings in use fit each other
            assert values_of(node, preset) == preset
            assert not node.contradiction
    assert sum("held back until they fit: " in reason for reason in reasons) > 2


def test_contradictions_are_held_back_and_reported(rig: Any) -> None:
    r = rig()
    node = r.node

    def change(**values: Any) -> str:
        rows = [Parameter(name.replace("__", "."), value=value) for name, value in values.items()]
        result = node.set_parameters_atomically(rows)
        assert result.successful, result.reason
        return str(result.reason)

    said = "held back until they fit: quality.dark_error=0.3; quality.dark_error must be at least quality.dark_warn"
    assert said in change(quality__dark_error=0.3)
    assert "precision='fp16'" in change(precision="fp16")
    assert values_of(node, ["quality.dark_error", "precision"]) == {"quality.dark_error": 0.9, "precision": "auto"}
    assert change(resolution="full") == ""  # fits without them
    assert node.settings.options.resolution == "full"
    status = node._make_statuses()[2]
    assert (status.level, "quality.dark_error=0.3" in status.message) == (1, True)
    assert change(precision="fp32") == ""  # in the place of the other value
    assert node.settings.limits.dark_error == 0.9
    assert change(quality__dark_warn=0.2) == ""
    assert (node.settings.limits.dark_warn, node.settings.limits.dark_error) == (0.2, 0.3)
    assert "fit" not in node._make_statuses()[2].message
    assert not any(key.startswith("refused") for key in r.report())


def test_a_dump_can_be_loaded_whatever_state_the_node_is_in(rig: Any, tmp_path: Path) -> None:
    """By `ros2 param load`, which reads each text once more: 8 as a number, and 1e-05 as text."""
    load = pytest.importorskip("rclpy.parameter").parameter_dict_from_yaml_file
    r, rng, path = rig(camera__pixel_format="8"), random.Random(1), tmp_path / "dump.yaml"
    for _ in range(4):
        preset = random_preset(rng)
        assert r.node.set_parameters_atomically(
            [Parameter(name, value=value) for name, value in preset.items()]
        ).successful
        tree: Dict[str, Any] = {}
        state = values_of(r.node, [name for name in r.node._parameters if name != "use_sim_time"])
        for name, value in state.items():
            *folders, leaf = name.split(".")
            reduce(lambda below, folder: below.setdefault(folder, {}), folders, tree)[leaf] = value
        path.write_text(yaml.dump({"/polar_pipeline": {"ros__parameters": tree}}, default_flow_style=False))
        other = random_preset(rng)
        r.node.set_parameters_atomically([Parameter(name, value=value) for name, value in other.items()])
        assert values_of(r.node, other) == other
        request = SetParameters.Request(parameters=list(load(str(path), target_nodes=["/polar_pipeline"]).values()))
        answer = ask(r.peer, SetParameters, "/polar_pipeline/set_parameters", request)
        assert [row.reason for row in answer.results if not row.successful] == []
        assert values_of(r.node, state) == state
        assert not r.node.contradiction


def test_what_a_node_has_can_be_set_again(rig: Any) -> None:
    """`ros2 param load` of what `ros2 param dump` gave: nothing is refused, though some parameters are fixed."""
    r = rig()
    names = [name for name in r.node._parameters if name != "use_sim_time"]
    assert len([name for name in names if name.startswith("qos_overrides.")]) > 50
    request = SetParameters.Request(parameters=[r.node.get_parameter(name).to_parameter_msg() for name in names])
    answer = ask(r.peer, SetParameters, "/polar_pipeline/set_parameters", request)
    assert [row.reason for row in answer.results if not row.successful] == []
    assert not any(key.startswith("refused") for key in r.report())
    rows = [
        ParameterMessage(name=name, value=ParameterValue(type=200)) for name in ("sensor", "use_sim_time", names[-1])
    ]
    answer = ask(r.peer, SetParameters, "/polar_pipeline/set_parameters", SetParameters.Request(parameters=rows))
    assert [row.successful for row in answer.results] == [False, False, False]
    assert "dropped: internal" not in r.report(), "values of no type"
    unknown = r.node.set_parameters([Parameter("no_such\x1b", value=1)])[0]
    assert unknown.reason == r"no_such\x1b is not a parameter of this node"


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
        first = client.call_async(changing({"calibration": str(path), "frame_id": "first"}))
        wait_for(lambda: reads, "the file")
        second = client.call_async(changing({"frame_id": "second"}))
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
    digest = load_calibration(path).digest if is_readable else "none"
    wait_for(lambda: any(digest in pair.value for m in reports for s in m.status for pair in s.values), "its name")
    assert len(reads) == 1


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("calibration", "polar_pipeline.calibration.file.load_calibration"),
        ("output.rectify", "polar_pipeline._util.yamlfile.read_yaml"),
    ],
)
def test_changes_that_wait_for_files_at_the_end_are_refused(
    rig: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, function: str
) -> None:
    """A node with many of them would end late."""
    path, goes_on, reads = tmp_path / "file", threading.Event(), []
    path.write_bytes(b"")

    def read(path: Path) -> None:
        reads.append(path)
        assert goes_on.wait(TIMEOUT)
        raise ValueError("it cannot be read")

    monkeypatch.setattr(function, read)
    r = rig()
    client = client_of(r.peer, SetParameters, "/polar_pipeline/set_parameters")
    answers = [client.call_async(changing({name: str(path)})) for _ in range(4)]
    wait_for(lambda: reads and r.node._background._work_queue.qsize() == 3, "three that wait")
    closing = threading.Thread(target=r.node.close)
    closing.start()
    wait_for(lambda: r.node._background._shutdown, "the end")
    goes_on.set()
    closing.join(TIMEOUT)
    assert not closing.is_alive()
    wait_for(lambda: all(answer.done() for answer in answers), "the answers")
    reasons = [answer.result().results[0].reason for answer in answers]
    assert "cannot be read" in reasons[0]
    assert reasons[1:] == ["the node ends"] * 3


def test_reference(rig: Any) -> None:
    r = rig(ssim_mode="reference")
    ssim = r.listen(Float32, "quality/ssim")
    raw = RAW
    intensity = Pipeline(products="intensity", backend="cpu")(raw)["intensity"]
    r.send(messages.encode_image(0, "", "32FC1", intensity), "reference")
    wait_for(lambda: r.node.processor.reference, "the reference")
    r.frame(raw)
    wait_for(lambda: ssim, "the similarity")
    assert ssim[0].data == pytest.approx(1.0, abs=1e-6)  # float32 rounding of an image compared with itself


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
    for count, time_of in enumerate([(-1, 0), (-(2**31), 0), (2**31 - 1, 2**32 - 1), (-5, 7)], 3):
        clock.clock.sec, clock.clock.nanosec = time_of
        r.send(serialize_message(clock), "/clock", Clock)
        time.sleep(0.1)
        r.frame()
        wait_for(lambda count=count: len(heard) == count, "a frame although no clock can show this time")


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
    assert names == [
        f"polar_pipeline: {part}" for part in ("frames", "latency", "pipeline", "quality", "layout", "input")
    ]
    assert all(status.level == b"\x00" for message in reports for status in message.status)


def take_snapshot(r: Rig) -> Any:
    return client_of(r.peer, Trigger, "/polar_pipeline/snapshot").call_async(Trigger.Request())


def answer(future: Any) -> Any:
    wait_for(future.done, "the answer")
    return future.result()


def test_the_service_comes_after_the_subscriptions(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`replay.launch.py` plays when it is there."""
    made: List[str] = []

    def record(name: str) -> None:
        create = getattr(Node, name)
        monkeypatch.setattr(
            Node, name, lambda node, *first, **more: (made.append(first[1]), create(node, *first, **more))[1]
        )

    record("create_subscription")
    record("create_service")
    rig()
    first = made.index("image_raw")
    services = ["~/save_parameters", "~/record", "~/snapshot"]
    assert made[first : first + 6] == ["image_raw", "camera_info", "reference", *services]


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
    changes.update({"frame_id": "8", "min_intensity": 1e-6, "backend": "cpu"})
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
    assert node.settings == r.node.settings
    node.close()
    node.destroy_node()


def test_saved_parameters_start_the_same_node(rig: Any, tmp_path: Path) -> None:
    """The file replaces the one saved before; a folder that cannot be written is named."""
    folder = tmp_path / "new" / "folder"
    name = "qos_overrides./intensity.publisher.depth"
    r = rig(**{"snapshot.folder": str(folder), "min_intensity": 1e-06, name: 3})
    preset = random_preset(random.Random(3))
    for changes in ({"resolution": "full"}, preset):
        rows = [Parameter(key, value=value) for key, value in changes.items()]
        assert r.node.set_parameters_atomically(rows).successful
        answer = ask(r.peer, Trigger, "/polar_pipeline/save_parameters")
        assert (answer.success, answer.message) == (True, str(folder / "polar_pipeline.yaml"))
    assert [path.name for path in folder.iterdir()] == ["polar_pipeline.yaml"]
    arguments = ["--ros-args", "-r", "__node:=other", "--params-file", answer.message]
    node = PolarNode(context=r.context, cli_args=arguments)
    names = [*PARAMETERS, name]
    assert values_of(node, names) == values_of(r.node, names)
    assert values_of(node, preset) == preset
    assert node.settings == r.node.settings
    node.close()
    node.destroy_node()
    (folder / "polar_pipeline.yaml").unlink()
    (folder / "polar_pipeline.yaml").mkdir()
    answer = ask(r.peer, Trigger, "/polar_pipeline/save_parameters")
    assert not answer.success
    assert "polar_pipeline.yaml is a folder" in answer.message


@pytest.mark.parametrize("text", first_of(["off", "1e3", "~", 'it\'s "so"', "y", "nan", "0x1F", ""], 4))
def test_words_stay_words(rig: Any, tmp_path: Path, text: str) -> None:
    """What one of both parsers takes for a number, a truth value or nothing."""
    path = tmp_path / "words.yaml"
    path.write_text(to_yaml({"frame_id": text}, "words"))
    node = rclpy.create_node("other", context=rig().context, cli_args=["--ros-args", "--params-file", str(path)])
    assert node.declare_parameter("frame_id", "default").value == text
    node.destroy_node()


def test_qos_of_every_topic_is_the_documented_one(rig: Any) -> None:
    """Discovery tells what the middleware made of it."""
    table = (ROOT / "docs" / "ros.md").read_text().split("### QoS\n")[1]
    node = rig().node
    outputs = [row for row in node.publishers if row.topic_name not in ("/parameter_events", "/rosout")]
    inputs = [row for row in Node.subscriptions.fget(node) if row.topic_name != "/parameter_events"]
    assert [row.topic_name for row in inputs] == ["/image_raw", "/camera_info", "/reference"]
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


def test_an_answer_after_its_service_is_gone_is_dropped(rig: Any, caplog: pytest.LogCaptureFixture) -> None:
    """For example of `~/trigger` with a camera that does not answer, when the node ends or is deactivated."""
    node, answer = rig().node, Future()
    service = node.create_service(Trigger, "~/late", lambda *_: answer)
    service.send_response(answer, None)
    node.destroy_service(service)
    answer.set_result(Trigger.Response())
    assert not caplog.records


def test_errors_of_callbacks_are_counted(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a message is taken; the next good frame comes through."""
    r = rig()
    heard = r.listen(Image, "intensity")

    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr("polar_pipeline.ros.node.messages.peek_stamp", fail)
    r.frame()
    wait_for(lambda: r.report().get("dropped: memory") == "1", "a failure of a callback")
    monkeypatch.undo()
    spin_once(SimpleNamespace(spin_once=fail), [r.node])
    assert r.report()["dropped: memory"] == "2"
    monkeypatch.setattr("polar_pipeline.ros.parameters.make_settings", fail)
    result = r.node.set_parameters([Parameter("frame_id", value="front")])[0]
    assert (result.successful, result.reason) == (False, "MemoryError: no room")
    assert r.report()["dropped: memory"] == "3"
    r.frame()
    wait_for(lambda: heard, "the next good frame")
