"""The launch files, run as `ros2 launch` runs them, on an installation made by hand."""
# ruff: noqa: E402 - launch_ros may be missing

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")
pytest.importorskip("launch_ros")

from launch.actions import DeclareLaunchArgument, SetEnvironmentVariable
from launch.launch_description_sources import get_launch_description_from_python_launch_file
from launch.utilities import perform_substitutions
from services import change_state, get_parameters
from support import ROOT, TIMEOUT, first_of, wait_for

from launch import LaunchContext
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.ros.fast_dds import profile_variable

pytestmark = pytest.mark.ros
LAUNCH = ROOT / "launch"
#: What `ros2 launch FILE name:=value ...` does.
RUN = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import AnyLaunchDescriptionSource
path, *arguments = sys.argv[1:]
service = LaunchService()
source = IncludeLaunchDescription(
    AnyLaunchDescriptionSource(path), launch_arguments=[tuple(item.split(":=", 1)) for item in arguments]
)
service.include_launch_description(LaunchDescription([source]))
sys.exit(service.run())
"""


def write_script(path: Path, *lines: str) -> None:
    """Write a program of the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)


@pytest.fixture
def environment(tmp_path: Path) -> Dict[str, str]:
    """An environment in which launch finds the package, and a `ros2` that writes down how it is called."""
    marker = tmp_path / "share" / "ament_index" / "resource_index" / "packages" / "polar_pipeline"
    marker.parent.mkdir(parents=True)
    marker.touch()
    rig = "import sys; from polar_pipeline.node import rig; sys.exit(rig())"
    scripts = {
        "lib/polar_pipeline/polar_pipeline_node": f'exec {sys.executable} -m polar_pipeline.node "$@"',
        "lib/polar_pipeline/polar_pipeline_rig": f'exec {sys.executable} -c "{rig}" "$@"',
        "bin/ros2": f'echo "$@" > {tmp_path}/called; if [ -x {tmp_path}/play ]; then exec {tmp_path}/play; fi',
    }
    for name, line in scripts.items():
        write_script(tmp_path / name, line)
    own = {name: value for name, value in os.environ.items() if not name.endswith("_PROFILES_FILE")}
    return {
        **own,
        "AMENT_PREFIX_PATH": os.pathsep.join(filter(None, [str(tmp_path), own.get("AMENT_PREFIX_PATH", "")])),
        "PATH": os.pathsep.join([str(tmp_path / "bin"), own["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), own.get("PYTHONPATH", "")]),
        "ROS_LOG_DIR": str(tmp_path / "log"),
    }


def start(name: str, environment: Any, *arguments: str, folder: Path = ROOT) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(LAUNCH / name), *arguments]
    return subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches launch and its children alike
    )


class Launched:
    """A launch file that runs until Ctrl-C, which must end it well.

    Attributes:
        output: What it wrote, once it has ended.
    """

    def __init__(self, name: str, environment: Any, *arguments: str) -> None:
        self._process = start(name, environment, *arguments)
        self.output = ""

    def children(self) -> List[str]:
        """Numbers of the processes that it has started."""
        pid = self._process.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        os.killpg(self._process.pid, signal.SIGINT)
        self.output, _ = self._process.communicate(timeout=TIMEOUT)
        if kind is None:
            assert self._process.returncode == 0, self.output
            assert "Traceback" not in self.output


@pytest.mark.parametrize("name", ["polar_pipeline.launch.py", "camera.launch.py", "replay.launch.py", "rig.launch.py"])
def test_arguments_are_documented(name: str) -> None:
    description = get_launch_description_from_python_launch_file(str(LAUNCH / name))
    arguments = [entity for entity in description.entities if isinstance(entity, DeclareLaunchArgument)]
    assert arguments
    assert all(argument.description for argument in arguments)


def test_live(environment: Any, peer: Any) -> None:
    arguments = ("namespace:=robot", "sensor:=IMX250MYR", "image_topic:=/arena_camera_node/images")
    arguments += (f"params_file:={ROOT / 'config' / 'xavier.yaml'}", "use_sim_time:=true")
    with Launched("polar_pipeline.launch.py", environment, *arguments) as launched:
        wait_for(lambda: ("polar_pipeline", "/robot") in peer.node.get_node_names_and_namespaces(), "the node")
        wait_for(lambda: peer.node.count_subscribers("/arena_camera_node/images"), "the remapped input")
        wait_for(lambda: peer.node.count_publishers("/robot/polarization/dolp"), "an output in the namespace")
        values = get_parameters(peer.node, "/robot/polar_pipeline", "sensor", "output_depth", "threads", "use_sim_time")
        assert values == ["IMX250MYR", "uint8", 4, True]
        variables = [Path(f"/proc/{child}/environ").read_bytes() for child in launched.children()]
        profile = profile_variable()
        assert any(f"{profile}=".encode() in text and b"large_frames.xml" in text for text in variables)


@pytest.mark.camera
@pytest.mark.parametrize("words", [[], ["source:=aravis:LAUNCHED", "lifecycle:=false"]])
def test_camera(environment: Any, peer: Any, words: List[str]) -> None:
    from fake_camera import FakeCamera

    camera = FakeCamera(np.full((64, 96), 99, np.uint8), serial="LAUNCHED")
    with camera, Launched("camera.launch.py", environment, *words) as launched:
        wait_for(lambda: peer.node.count_publishers("/image_raw"), "the raw frames of the camera")
        values = get_parameters(peer.node, "/polar_pipeline", "camera.source", "camera.exposure_auto", "sensor")
        assert values == [words[0].partition(":=")[2] if words else "aravis", "polarization", "IMX250MZR"]
    assert "LAUNCHED at 127.0.0.1 is connected" in launched.output


@pytest.mark.parametrize("file", ["polar_pipeline.launch.py", "replay.launch.py"])
def test_a_launch_prefix_is_the_live_nodes(environment: Any, peer: Any, tmp_path: Path, file: str) -> None:
    """Cores that are dedicated to the node stay free of the camera's driver and of the player of a bag."""
    (tmp_path / "share/ament_index/resource_index/packages/arena_camera_node").touch()
    write_script(tmp_path / "lib/arena_camera_node/start", f"touch {tmp_path}/driver")
    write_script(tmp_path / "prefix", f'echo "$1" >> {tmp_path}/prefixed', 'exec "$@"')
    record(tmp_path / "drive.mcap", 1)
    words = ["camera:=true", f"bag:={tmp_path}/drive.mcap", "image_topic:=/robot/image_raw"]
    process = start(file, environment, *words, f"launch-prefix:={tmp_path}/prefix")
    try:
        if file.startswith("polar"):  # replay ends with the bag
            wait_for(lambda: (tmp_path / "driver").exists() and peer.node.count_subscribers("/robot/image_raw"), "both")
            os.killpg(process.pid, signal.SIGINT)
    finally:
        output, _ = process.communicate(timeout=TIMEOUT)
    assert (tmp_path / ("driver" if file.startswith("polar") else "called")).exists()
    prefixed = (tmp_path / "prefixed").read_text().splitlines()
    assert prefixed == [f"{tmp_path}/lib/polar_pipeline/polar_pipeline_node"], output


@pytest.mark.parametrize("processes", ["one", "each"])
def test_rig(environment: Any, peer: Any, tmp_path: Path, processes: str) -> None:
    path = tmp_path / "rig.yaml"
    path.write_text(
        f"processes: {processes}\ncameras:\n"
        f"  - {{namespace: front, image_topic: /front/images, params_file: {ROOT / 'config' / 'xavier.yaml'}}}\n"
        "  - {namespace: rear, name: eye, parameters: {raw: {flip: [true, true]}}}\n"
    )
    arguments = (f"rig:={path}", "namespace:=robot", "use_sim_time:=true")
    with Launched("rig.launch.py", environment, *arguments) as launched:
        nodes = {("polar_pipeline", "/robot/front"), ("eye", "/robot/rear")}
        wait_for(lambda: nodes <= set(peer.node.get_node_names_and_namespaces()), "both nodes")
        wait_for(lambda: peer.node.count_subscribers("/front/images"), "the remapped input")
        wait_for(lambda: peer.node.count_subscribers("/robot/rear/image_raw"), "the other one's")
        names = ("threads", "raw.flip", "use_sim_time")
        front, rear = (
            get_parameters(peer.node, name, *names) for name in ("/robot/front/polar_pipeline", "/robot/rear/eye")
        )
        assert (front[0], list(front[1]), front[2]) == (4, [False, False], True)
        assert (rear[0], list(rear[1]), rear[2]) == (0, [True, True], True)
        assert len(launched.children()) == (1 if processes == "one" else 2)


@pytest.mark.parametrize(
    ("file", "processes", "nodes"),
    [
        ("polar_pipeline.launch.py", "", ["/robot/polar_pipeline"]),
        ("rig.launch.py", "one", ["/robot/front/polar_pipeline", "/robot/rear/polar_pipeline"]),
        ("rig.launch.py", "each", ["/robot/front/polar_pipeline", "/robot/rear/polar_pipeline"]),
    ],
)
def test_managed_nodes(
    environment: Any, peer: Any, tmp_path: Path, file: str, processes: str, nodes: List[str]
) -> None:
    """With `lifecycle` they wait to be configured and activated."""
    path = tmp_path / "rig.yaml"
    path.write_text(f"{{processes: {processes}, cameras: [{{namespace: front}}, {{namespace: rear}}]}}")
    rig = [f"rig:={path}"] if processes else []
    with Launched(file, environment, "namespace:=robot", "lifecycle:=true", *rig):
        for name in nodes:
            topic = f"{name.rpartition('/')[0]}/image_raw"
            assert not peer.node.count_subscribers(topic)
            assert all(change_state(peer.node, name, step) for step in ("configure", "activate"))
            wait_for(lambda topic=topic: peer.node.count_subscribers(topic), "the input")


def test_rig_that_cannot_be(environment: Any, tmp_path: Path) -> None:
    path = tmp_path / "rig.yaml"
    path.write_text("cameras: [{namespace: front}, {namespace: front}]")
    output, _ = start("rig.launch.py", environment, f"rig:={path}").communicate(timeout=TIMEOUT)
    assert "two cameras are called /front/polar_pipeline" in output


def test_parameters_that_are_nowhere(environment: Any) -> None:
    """Rather than a node with defaults, which would take a color camera for a mono one."""
    process = start("polar_pipeline.launch.py", environment, "params_file:=triton_color.yaml")
    output, _ = process.communicate(timeout=TIMEOUT)
    assert "params_file triton_color.yaml cannot be read: No such file or directory" in output
    assert str(ROOT / "config" / "triton_color.yaml") in output  # what it may have meant
    assert "process started" not in output


@pytest.mark.parametrize(
    ("arguments", "key", "node"),
    first_of(
        [
            (["namespace:=robot"], "/polar_pipeline", "/robot/polar_pipeline"),
            ([], "/polar_pipline", "/polar_pipeline"),
            (["namespace:=/a/b"], "/a/*", "/a/b/polar_pipeline"),
        ]
    ),
)
def test_parameters_of_another_node(
    environment: Any, tmp_path: Path, arguments: List[str], key: str, node: str
) -> None:
    """ROS would ignore the file, and take a color camera for a mono one."""
    path = tmp_path / "color.yaml"
    path.write_text(f"{key}: {{ros__parameters: {{sensor: IMX250MYR}}}}\n")
    process = start("polar_pipeline.launch.py", environment, f"params_file:={path}", *arguments)
    output, _ = process.communicate(timeout=TIMEOUT)
    assert f"params_file {path} is for {key}, not for {node} or /**" in output
    assert "process started" not in output


def test_a_killed_node_is_started_again(environment: Any, peer: Any) -> None:
    process = start("polar_pipeline.launch.py", environment, "respawn:=True")

    def publishers() -> List[Any]:
        return [row.endpoint_gid for row in peer.node.get_publishers_info_by_topic("/polarization/dolp")]

    try:
        first = wait_for(publishers, "the node")
        os.kill(int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()), signal.SIGKILL)
        wait_for(lambda: any(each not in first for each in publishers()), "another node")
    finally:
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=TIMEOUT)
    assert "Traceback" not in output


@pytest.mark.parametrize(("file", "processes"), [("polar_pipeline.launch.py", ""), ("rig.launch.py", "one")])
def test_a_node_with_wrong_parameters_is_not_started_again(
    environment: Any, tmp_path: Path, file: str, processes: str
) -> None:
    """Values that are allowed by themselves and do not fit each other, which the node alone finds out."""
    wrong = "{quality: {ssim_warn: 0.1, ssim_error: 0.9}}"
    (tmp_path / "wrong.yaml").write_text(f"/**: {{ros__parameters: {wrong}}}")
    (tmp_path / "rig.yaml").write_text(f"{{processes: {processes}, cameras: [{{parameters: {wrong}}}]}}")
    argument = f"rig:={tmp_path}/rig.yaml" if processes else f"params_file:={tmp_path}/wrong.yaml"
    process = start(file, environment, argument, "respawn:=true")
    output, _ = process.communicate(timeout=TIMEOUT)  # ends, since nothing is left to run
    assert "quality.ssim_error must be at most quality.ssim_warn" in output
    assert output.count("process started") == 1, output
    assert "is not started again" in output
    assert "failed to terminate" not in output, "a process that has ended needs no signals"
    assert "Traceback" not in output


def record(path: Path, count: int) -> None:
    """Write a recording of raw images."""
    raw = np.random.default_rng(3).integers(10, 200, (48, 64)).astype(np.uint8)
    with open_sink(path, {}) as sink:
        for stamp in ((100 + number) * 1_000_000_000 for number in range(count)):
            sink.write("/robot/image_raw", messages.IMAGE, stamp, messages.encode_image(stamp, "", "mono8", raw))


def test_replay_is_a_test_with_an_exit_code(environment: Any, tmp_path: Path) -> None:
    """The bag's first frame comes out of the node, too, however long that took to start; launch ends with the bag."""
    path = tmp_path / "lib" / "polar_pipeline" / "polar_pipeline_node"
    write_script(path, "sleep 3", path.read_text().splitlines()[-1])
    record(tmp_path / "drive.mcap", 3)
    arguments = (f"bag:={tmp_path}/drive.mcap", "rate:=2.0", "namespace:=robot")
    player = f'exec {sys.executable} {ROOT}/test/ros/bag_player.py "$@"'
    for skipped, code, said in ((-1, 0, "3 of 3 frames came out"), (1, 1, "2 of 3 frames came out")):
        write_script(tmp_path / "bin" / "ros2", f'echo "$@" > {tmp_path}/called', f"{player} --skip {skipped}")
        process = start("replay.launch.py", environment, *arguments)
        output, _ = process.communicate(timeout=2 * TIMEOUT)
        assert (process.returncode, said in output) == (code, True), output
    called = (tmp_path / "called").read_text()
    assert called == f"bag play {tmp_path}/drive.mcap --clock 100 --rate 2.0 --delay 2.0\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["bag:=none.mcap"], "none.mcap does not exist"),
        (["bag:=drive.mcap", "compare:=golden.mcap", "loop:=true"], "compare:= would never be judged"),
        (["bag:=drive.mcap", "sensor:=no sensor", "respawn:=false"], "cannot start"),
        (["bag:=drive.mcap", "sensor:=no sensor", "respawn:=true"], "cannot start"),
    ],
)
def test_replay_that_cannot_be(environment: Any, tmp_path: Path, arguments: List[str], reason: str) -> None:
    record(tmp_path / "drive.mcap", 1)
    process = start("replay.launch.py", environment, "namespace:=robot", *arguments, folder=tmp_path)
    output, _ = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, reason in output) == (1, True), output
    assert not (tmp_path / "called").exists()
    assert "Traceback" not in output


@pytest.mark.parametrize("file", ["polar_pipeline.launch.py", "rig.launch.py"])
def test_dds_profile(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that the installed Fast DDS reads is set, whatever `ROS_DISTRO` says; a user's own stays."""
    for name in ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROS_DISTRO", "humble")

    def settings() -> Dict[str, str]:
        entities = get_launch_description_from_python_launch_file(str(LAUNCH / file)).entities
        actions = [entity for entity in entities if isinstance(entity, SetEnvironmentVariable)]
        context = LaunchContext()
        return {perform_substitutions(context, row.name): perform_substitutions(context, row.value) for row in actions}

    name = profile_variable()
    assert settings() == {name: str(LAUNCH.parent / "config" / "fastdds_large_frames.xml")}
    monkeypatch.setenv(name, "/own.xml")
    assert settings() == {}
