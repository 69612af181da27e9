"""Rigs of several cameras: the YAML file, and their nodes in one process."""
# ruff: noqa: E402 - yaml and rclpy may be missing

from __future__ import annotations

import dataclasses
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict

import numpy as np
import pytest

yaml = pytest.importorskip("yaml")
from support import ROOT, first_of, wait_for

from polar_pipeline import Pipeline
from polar_pipeline.live.rig import Sync
from polar_pipeline.recordings import messages
from polar_pipeline.ros.rig import Camera, Rig, expand, read_rig

TWO = """
cameras:
  - namespace: front
    image_topic: /front_camera/images
    params_file: mono.yaml
    parameters: {frame_id: front, raw: {flip: [true, false]}}
  - namespace: rear/left
    name: eye
    camera_info_topic: info
    parameters: {backend: cpu}
"""


def write(folder: Path, text: str) -> Path:
    (folder / "mono.yaml").write_text(
        "/**:\n  ros__parameters:\n    backend: cpu\n    output_depth: uint8\n    frame_id: mono\n"
    )
    (folder / "own.yaml").write_text("/front/polar_pipeline: {ros__parameters: {frame_id: own}}")
    (folder / "rig.yaml").write_text(text)
    return folder / "rig.yaml"


def test_cameras(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    parameters = {"frame_id": "front", "raw.flip": [True, False]}
    front = Camera("/front", image_topic="/front_camera/images", params_file=tmp_path / "mono.yaml")
    rear = Camera("/rear/left", "eye", camera_info_topic="info", parameters={"backend": "cpu"})
    assert read_rig(path) == Rig("one", (dataclasses.replace(front, parameters=parameters), rear))
    assert [camera.full_name for camera in read_rig(path).cameras] == ["/front/polar_pipeline", "/rear/left/eye"]
    assert [camera.namespace for camera in read_rig(path, "/robot/").cameras] == ["/robot/front", "/robot/rear/left"]
    lone = write(tmp_path, "processes: each\ncameras: [{}]")
    assert read_rig(lone) == Rig("each", (Camera("/"),))
    assert read_rig(lone).cameras[0].full_name == "/polar_pipeline"


def test_shipped_rig() -> None:
    rig = read_rig(ROOT / "config" / "rig.yaml")
    assert [camera.namespace for camera in rig.cameras] == ["/front", "/rear"]
    in_step = read_rig(ROOT / "config" / "rig_in_step.yaml").sync
    assert in_step is not None
    assert in_step.factors == {
        f"{name}/polar_pipeline": 0.5 if name == "left" else 1.0 for name in ("front", "left", "right")
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cameras: [", "cannot be read"),
        ("", "keys among processes, cameras, sync"),
        ("cameras: []", "1 to 64 cameras"),
        ("cameras: [" + "{}, " * 65 + "]", "1 to 64 cameras"),
        ("cameras: {}", "1 to 64 cameras"),
        ("camera: []", "keys among processes, cameras, sync is needed, got camera"),
        ("processes: two\ncameras: [{}]", "one, each"),
        ("cameras: [front]", "camera 1: a mapping with keys among namespace, name.*, got 'front'"),
        ("cameras: [{}, {topic: images}]", "camera 2: a mapping with keys among .* got topic"),
        ("cameras: [{namespace: 1}]", "camera 1: namespace must be text"),
        ("cameras: [{params_file: none.yaml}]", "none.yaml cannot be read: No such file"),
        ("cameras: [{parameters: {resolutoin: full}}]", "camera 1: no parameter of this package is called resolutoin"),
        ("cameras: [{parameters: [full]}]", "names and values"),
        ("cameras: [{namespace: a}, {namespace: /a/}]", "two cameras are called /a/polar_pipeline"),
        ("processes: [one]\ncameras: [{}]", r"one, each, got \['one'\]"),
        ("1: 2\ncameras: [{}]", "got 1, cameras"),
        ("cameras: [{params_file: ~nosuch/mono.yaml}]", "camera 1: params_file '~nosuch/mono.yaml': .*home"),
        ('cameras: [{params_file: "\\0"}]', "camera 1: params_file"),
        ('cameras: [{params_file: "\\ud800"}]', "camera 1: params_file"),
        (f"cameras: [{{params_file: {'x' * 5000}}}]", "camera 1: params_file"),
        ("cameras: [{params_file: .}]", "cannot be read: it is not a regular file"),
        ("cameras: [{}, {namespace: a, params_file: rig.yaml}]", "camera 2: .*rig.yaml is not a file of ROS"),
        ("cameras: [{parameters: {frame_id: 5.5}}]", "camera 1: frame_id must be text"),
        ("cameras: [{namespace: a, params_file: own.yaml}]", "own.yaml is for /front/polar_pipeline, not for /a/polar"),
        ("cameras: [{name: }]", "camera 1: name must be text, got None"),
        ('cameras: [{namespace: "a\\nb"}]', r"camera 1: a node's name needs letters.* '/a\\nb'"),
        ("cameras: [{image_topic: a b}]", "camera 1: a topic's name needs letters.*, got 'a b'"),
    ],
)
def test_wrong_rigs_say_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_rig(write(tmp_path, text))


#: Two cameras of which the first one leads, with more about `sync`, and keys of the second one.
SYNC = """
sync: {{leader: front{more}}}
cameras:
  - {{namespace: front, parameters: {{camera.source: 'aravis:1'}}}}
  - {{namespace: rear, parameters: {{camera.source: 'aravis:2'}}{keys}}}
"""


def in_step(more: str = "", keys: str = "") -> str:
    return SYNC.format(more=more, keys=keys)


def test_a_rig_in_step(tmp_path: Path) -> None:
    rig = read_rig(write(tmp_path, in_step(", tolerance_ms: 0.5, strict: true", keys=", exposure_factor: 2")), "robot")
    factors = {"robot/front/polar_pipeline": 1.0, "robot/rear/polar_pipeline": 2.0}
    assert rig.sync == Sync(0.5, "robot/front/polar_pipeline", True, factors)
    assert read_rig(write(tmp_path, in_step())).sync == Sync(
        1.0, "front/polar_pipeline", False, dict.fromkeys(("front/polar_pipeline", "rear/polar_pipeline"), 1.0)
    )
    named = in_step().replace("leader: front", "leader: /rear/polar_pipeline")
    assert read_rig(write(tmp_path, named)).sync == Sync(
        1.0, "rear/polar_pipeline", False, dict.fromkeys(("front/polar_pipeline", "rear/polar_pipeline"), 1.0)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (in_step(", tolerance: 1"), "sync: a mapping with keys among tolerance_ms, leader, strict is needed, got lead"),
        (in_step(", tolerance_ms: 0"), r"sync: tolerance_ms must be in \[0.001, 1000.0\], got 0"),
        (in_step(", tolerance_ms: soon"), "sync: tolerance_ms must be a number, got 'soon'"),
        (in_step(", strict: maybe"), "sync: strict must be true or false, got 'maybe'"),
        (
            in_step().replace("leader: front", "leader: left"),
            "leader must be one of /front/polar_pipeline, /rear",
        ),
        (in_step().replace("leader: front", "leader: 3"), "sync: leader must be one of .*, got 3"),
        (in_step().replace("leader: front", ""), "sync: leader must be one of .*, got None"),
        ("sync: front" + in_step().split("}", 1)[1], "sync: a mapping with keys among .* is needed, got 'front'"),
        ("processes: each" + in_step(), "sync: processes: one and two cameras are needed, got each and 2"),
        ("sync: {leader: a}\ncameras: [{namespace: a}]", "sync: processes: one and two cameras .*, got one and 1"),
        (in_step(keys=", exposure_factor: 0"), r"camera 2: exposure_factor must be in \[0.01, 100.0\], got 0"),
        (in_step(keys=", exposure_factor: no"), "camera 2: exposure_factor must be a number, got False"),
        (in_step(keys=", exposure_factor: 2").replace("leader: front", "leader: rear"), "with exposure_factor 1"),
        ("cameras: [{exposure_factor: 2.0}]", "exposure_factor needs sync"),
    ],
)
def test_wrong_rigs_in_step_say_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_rig(write(tmp_path, text))


def test_namespaces_of_the_command_line(tmp_path: Path) -> None:
    for namespace in ("a-b", "~", "{node}", "\ud800", "a" * 300):
        with pytest.raises(ValueError, match="a node's name needs letters"):
            read_rig(write(tmp_path, "cameras: [{}]"), namespace)


#: Parts of names that ROS takes, each at the cost of ten nodes, and such that it does not.
PARTS = [
    *first_of(["_A1", "_", "A1", "a", "_a", "a_"]),
    *("1", "a__b", "__a", "a-b", "a.b", "a b", "~", "{node}", "{ns}", "", "\xe4"),
]


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_names_are_those_that_ros_takes(part: str, tmp_path: Path) -> None:
    rclpy = pytest.importorskip("rclpy")
    context = rclpy.Context()
    context.init()
    folder = tmp_path / "some"
    folder.mkdir()
    try:
        cases = [("name", part), ("namespace", f"a/{part}/b" if part else "a")]
        cases += [("image_topic", f"{head}{part}{tail}") for head in ("", "/", "~/", "/x/") for tail in ("", "/x")]
        for key, text in cases:
            row = {"namespace": "a", key: text}
            path = write(folder, yaml.safe_dump({"cameras": [row]}))
            camera = Camera(**{**row, "namespace": f"/{row['namespace']}"})
            rules = [("__ns", camera.namespace), ("__node", camera.name), *camera.remappings]
            arguments = ["--ros-args", *(word for name, value in rules for word in ("-r", f"{name}:={value}"))]
            try:
                node = rclpy.create_node("some", context=context, cli_args=arguments, start_parameter_services=False)
            except Exception:  # noqa: BLE001 - whatever it is, no rig may name it
                with pytest.raises(ValueError, match="name needs letters"):
                    read_rig(path)
            else:
                topic = node.resolve_topic_name("image_raw")
                (read,) = read_rig(path).cameras
                assert node.get_fully_qualified_name() == read.full_name
                assert topic == expand(read.image_topic, read.full_name)
                node.destroy_node()
    finally:
        context.shutdown()


# ------------------------------------------------------------------------------------------------------ one process


@pytest.fixture
def rig(start: Any) -> Callable[..., Any]:
    """Start the rig's process with arguments."""
    return lambda *arguments: start(
        "-c", "import sys; from polar_pipeline.node import rig; sys.exit(rig())", *arguments
    )


@pytest.mark.ros
@pytest.mark.parametrize("number", first_of([signal.SIGINT, signal.SIGTERM]), ids=lambda n: n.name)
def test_two_cameras_in_one_process(rig: Any, peer: Any, tmp_path: Path, number: signal.Signals) -> None:
    from diagnostic_msgs.msg import DiagnosticArray
    from sensor_msgs.msg import CameraInfo, Image

    process = rig(str(write(tmp_path, TWO)), "--namespace", "robot", "--ros-args", "-r", "__ns:=/elsewhere")
    inputs = {"front": "/front_camera/images", "rear": "/robot/rear/left/image_raw"}
    outputs = {"front": "/robot/front", "rear": "/robot/rear/left"}
    cameras = {name: peer.node.create_publisher(Image, topic, 10) for name, topic in inputs.items()}
    heard: Dict[str, Any] = {}
    for name, space in outputs.items():
        for kind, topic in ((Image, "polarization/dolp"), (DiagnosticArray, "latency")):
            peer.node.create_subscription(
                kind, f"{space}/{topic}", lambda message, key=(name, topic): heard.setdefault(key, message), 10
            )
    info = peer.node.create_publisher(CameraInfo, "/robot/rear/left/info", 10)
    wait_for(lambda: all(row.get_subscription_count() for row in (*cameras.values(), info)), "both nodes' inputs")
    raws = {name: np.random.default_rng(len(name)).integers(9, 200, (48, 64)).astype(np.uint8) for name in cameras}

    def answered() -> bool:
        for name, camera in cameras.items():
            camera.publish(bytes(messages.encode_image(time.time_ns(), "", "mono8", raws[name])))
        time.sleep(0.05)
        return len(heard) == 4

    wait_for(answered, "products and latency of both cameras")
    front, rear = heard["front", "polarization/dolp"], heard["rear", "polarization/dolp"]
    assert (front.encoding, front.header.frame_id) == ("mono8", "front"), "the file's, and what wins over it"
    assert (rear.encoding, rear.header.frame_id) == ("32FC1", "")
    flipped = Pipeline(products="dolp", dtype="uint8", flip=(True, False), backend="cpu")(raws["front"])["dolp"]
    np.testing.assert_array_equal(np.frombuffer(bytes(front.data), np.uint8).reshape(24, 32), flipped)
    plain = Pipeline(products="dolp", backend="cpu")(raws["rear"])["dolp"]
    np.testing.assert_array_equal(np.frombuffer(bytes(rear.data), np.float32).reshape(24, 32), plain)
    names = {heard[name, "latency"].status[0].name for name in cameras}
    assert names == {"robot/front/polar_pipeline: latency", "robot/rear/left/eye: latency"}
    process.assert_end(0, number)


@pytest.mark.ros
@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("rig.yaml", "/rear/polar_pipeline cannot start: quality.ssim_error must be at most quality.ssim_warn"),
        ("none.yaml", "cannot be read"),
    ],
)
def test_what_cannot_start_is_named(rig: Any, tmp_path: Path, file: str, said: str) -> None:
    """A camera whose values do not fit each other; wrong ones by themselves are found before any camera starts."""
    front = "{namespace: front, parameters: {backend: cpu}}"
    rear = "{namespace: rear, parameters: {backend: cpu, quality: {ssim_warn: 0.1, ssim_error: 0.9}}}"
    write(tmp_path, f"cameras: [{front}, {rear}]")
    process = rig(str(tmp_path / file))
    process.assert_end(2)
    assert said in process.text


@pytest.mark.ros
@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("backend: cpu", "camera.source of every camera"),
        ("camera.source: 'aravis:1', camera.hdr_ratio: 8.0", "camera.hdr_ratio 1, got 8"),
    ],
)
def test_a_rig_in_step_has_cameras_of_its_own_with_one_exposure(
    rig: Any, tmp_path: Path, parameters: str, said: str
) -> None:
    path = write(tmp_path, in_step().replace("camera.source: 'aravis:1'", parameters))
    process = rig(str(path))
    process.assert_end(2)
    assert f"/front/polar_pipeline cannot start: sync in the rig's file needs {said}" in process.text
