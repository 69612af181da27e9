"""What the executable says at its start and about its camera, and which parameters it starts with."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy")

import drill
from services import get_parameters
from support import IS_FAST_DDS, ROOT, TIMEOUT, wait_for

from polar_pipeline.live.preset import find_stray, judge_unknown, params_files
from polar_pipeline.ros import FAILED, WRONG_USAGE
from polar_pipeline.ros.fast_dds import profile_variable

pytestmark = pytest.mark.ros


def test_log_and_silence(node: Any, peer: drill.Peer) -> None:
    """One line at the start, one at the first frame, and one when the camera stops although there are subscribers."""
    process = node("-r", "image_raw:=/camera/images")
    wait_for(lambda: "waits for frames on /camera/images; " in process.text, "the line of the start")
    line = next(row for row in process.text.splitlines() if "waits for frames" in row)
    assert "[INFO]" in line
    assert "sensor IMX250MZR, backend cpu, device " in line
    process.close()

    process = node()
    peer.listen("intensity")
    peer.advance("intensity")
    wait_for(
        lambda: "[INFO]" in process.text and "first frame: 64x48 'mono8'" in process.text, "the first frame's line"
    )
    row = peer.says("frames", "nothing arrives on /image_raw, although there are subscribers")
    assert ord(row.level) == 1
    line = "although there are subscribers; /image_raw has 1 publishers"
    wait_for(lambda: line in process.text, "the log line, which may come with the next report")
    assert process.text.count(line) == 1
    assert process.text.count("first frame") == 1


@pytest.mark.skipif(not IS_FAST_DDS, reason="the middleware is not Fast DDS")
def test_env_gives_fast_dds_the_shared_memory_of_large_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the profile's 128 MB; the installed Fast DDS decides which variable it reads."""
    monkeypatch.delenv(profile_variable())
    participant = (
        "import re, rclpy; rclpy.init(); node = rclpy.create_node('any'); maps = open('/proc/self/maps').read(); "
        "sizes = re.findall('^(.*?)-(.*?) .*/dev/shm/fast', maps, re.M); "
        "print(max(int(end, 16) - int(begin, 16) for begin, end in sizes)); node.destroy_node()"
    )
    commands = f'eval "$({sys.executable} -m polar_pipeline env)"; exec {sys.executable} -c "{participant}"'
    done = subprocess.run(["bash", "-c", commands], cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=TIMEOUT)
    assert int(done.stdout) > 128 << 20


@pytest.mark.skipif(not IS_FAST_DDS, reason="the middleware is not Fast DDS")
@pytest.mark.parametrize("profile", [True, False])
def test_too_little_shared_memory_is_named(start: Any, monkeypatch: pytest.MonkeyPatch, profile: bool) -> None:
    """As in a container of Docker; without the profile, Fast DDS takes little."""
    if not profile:
        monkeypatch.delenv(profile_variable())
    main = (
        "import shutil, sys\n"
        "shutil.disk_usage = lambda path: (64 << 20, 0, 64 << 20) if path == '/dev/shm' else 1 / 0\n"
        "from polar_pipeline.node import main\n"
        "sys.exit(main())"
    )
    process = start("-c", main, "--ros-args", "-p", "backend:=cpu")
    wait_for(lambda: "waits for frames" in process.text, "the node")
    lines = [line for line in process.text.splitlines() if "[WARN]" in line and "/dev/shm" in line]
    assert len(lines) == profile
    assert all("64 of 64 MiB free" in line and "--shm-size=256m" in line for line in lines)


def test_parameters_of_other_nodes(node: Any, peer: drill.Peer, tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(
        "/**: {ros__parameters: {frame_rate: 7, use_sim_time: false, min_intensity: 0.2}}\n"
        "/camera: {ros__parameters: {sensr: 1}}\n"
    )
    process = node("--params-file", str(path), "-p", "qos_overrides./intensity.publisher.depth:=2")
    peer.listen("intensity")
    peer.advance("intensity")
    assert "parameters of every node (/**) that this one has not: frame_rate\n" in process.text
    process.assert_end(0, signal.SIGTERM)


def test_where_parameters_come_from(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text("/**: {ros__parameters: {rate: 1, gain: 2}}\nrobot: {polar: {ros__parameters: {gain: 3}}}\n")
    argv = ["node", "--params-file", "no", "--ros-args", "--params-file", str(path), "--", "--params-file", "no"]
    assert params_files(argv) == [path]
    assert params_files(["node", "--ros-args", "--params-file"]) == []
    assert judge_unknown(["rate", "gain"], "/robot/polar", [path]) == (["gain"], ["rate"])
    assert judge_unknown(["rate", "gain"], "/polar", [path]) == ([], ["rate", "gain"])
    assert judge_unknown(["rate"], "/polar", [tmp_path / "gone.yaml"]) == (["rate"], [])
    names = [f"qos_overrides./{name}" for name in ("scan.publisher.depth", "dolp.publisher.depht")]
    path.write_text(f"/**: {{ros__parameters: {{{names[0]}: 1, {names[1]}: 1}}}}\n")
    own_names = ["qos_overrides./dolp.publisher.depth"]
    assert judge_unknown(names, "/polar", [path], own_names) == ([f"{names[1]} (perhaps {own_names[0]})"], names[:1])


def test_files_for_other_nodes_are_those_that_ros_ignores(tmp_path: Path) -> None:
    path, context = tmp_path / "file.yaml", rclpy.Context()
    context.init()
    fitting = ["/**", "/robot/**", "/robot/*", "/*/polar", "/**/polar", "robot/polar", "/robot/polar", "robot: {polar"]
    others = ["/*", "polar", "/polar", "/*/robot/polar", "/robot: {pole", "/rob/**"]
    for key in fitting + others:
        path.write_text(f"{key}: {{ros__parameters: {{gain: 3}}}}{'}' * key.count('{')}\n")
        arguments = ["--ros-args", "-r", "__ns:=/robot", "--params-file", str(path)]
        node = rclpy.create_node("polar", context=context, cli_args=arguments, start_parameter_services=False)
        is_ignored = node.declare_parameter("gain", 1).value == 1
        assert bool(find_stray(path, "/robot/polar", node._parameter_overrides)) == is_ignored, key
        assert bool(find_stray(path, "/robot/polar")) == (key in others), key
        assert is_ignored or key in fitting
        node.destroy_node()
    context.shutdown()


def test_a_file_for_another_node_is_named(node: Any, peer: drill.Peer, tmp_path: Path) -> None:
    path, own = tmp_path / "other.yaml", tmp_path / "own.yaml"
    path.write_text("/polar_pipeline: {ros__parameters: {min_intensity: 0.2}}\n/other: {ros__parameters: {a: 1}}\n")
    own.write_text("/front/polar_pipeline: {ros__parameters: {min_intensity: 0.3}}\n")
    process = node("-r", "__ns:=/front", "--params-file", str(path), "--params-file", str(own))
    line = f"ignored: {path} is for /polar_pipeline, /other, not for /front/polar_pipeline or /**\n"
    wait_for(lambda: "waits for frames" in process.text, "the node")
    assert process.text.count("ignored: ") == 1
    assert line in process.text
    assert get_parameters(peer.node, "/front/polar_pipeline", "min_intensity") == [0.3]


def test_what_can_never_work_has_its_own_exit_code(
    node: Any, start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("misspelled.yaml").write_text("polar_pipeline: {ros__parameters: {sensr: IMX250MYR}}")
    rows = (
        (["--params-file", "misspelled.yaml"], "no parameter of this package is called sensr (perhaps sensor)\n"),
        (["-p", "exposure:=3", "-p", "use_sim_time:=false"], "no parameter of this package is called exposure\n"),
        (["-p", "quality.ssim_warn:=0.1", "-p", "quality.ssim_error:=0.9"], "at most quality.ssim_warn"),
        (["--params-file", "gone.yaml"], "gone.yaml"),
        (["-r", "no rule"], "no rule"),
        (["-p", "qos_overrides./image_raw.subscription.reliability:=maybe"], "subscription.reliability=maybe: "),
        (["-p", "qos_overrides./intensity.publisher.depth:=-1"], "qos_overrides./intensity.publisher.depth=-1: "),
        (["-p", "qos_overrides./intensty.publisher.depth:=5"], "(perhaps qos_overrides./intensity.publisher.depth)\n"),
        (["-p", "qos_overrides.image_raw.subscription.depth:=5"], "(perhaps qos_overrides./image_raw.subscription.dep"),
        (["-p", "qos_overrides./intensity.publisher.deadline:=1"], "called qos_overrides./intensity.publisher.deadl"),
        (["-r", "intensity:=image_raw"], "the output intensity cannot be /image_raw"),
        (["-r", "polarization/camera_info:=camera_info"], "the output polarization/camera_info cannot be /camera_info"),
    )
    process = node(*rows[0][0])
    process.assert_end(WRONG_USAGE)
    results = [(process.text, WRONG_USAGE), *drill.failed_starts(start, *(arguments for arguments, _ in rows[1:]))]
    for (text, code), (_, part) in zip(results, rows):
        assert code == WRONG_USAGE, text
        assert "cannot start" in text
        assert part in text


def test_what_may_work_later_has_another_exit_code(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_LOG_DIR", "/proc/no-place-for-logs")
    process = node()
    assert process.wait() == FAILED
    assert "cannot start" in process.text


def test_interpreter_is_set_for_short_waits(start: Any) -> None:
    """Threads give way sooner than Python's own, and collections of garbage skip what is there since the start."""
    main = (
        "import gc, sys\n"
        "from polar_pipeline import node; from polar_pipeline.ros import main\n"
        "def look(executor, nodes):\n"
        "    print(sys.getswitchinterval(), gc.isenabled(), gc.get_freeze_count() > 10_000, flush=True)\n"
        "    sys.exit(0)\n"
        "main.spin_once = look\n"
        "sys.exit(node.main())"
    )
    process = start("-c", main, "--ros-args", "-p", "backend:=cpu")
    process.assert_end(0)
    interval, *others = process.text.splitlines()[-1].split()
    assert float(interval) < sys.getswitchinterval()
    assert others == ["True", "True"]


def test_a_node_that_had_to_end_may_work_later(start: Any) -> None:
    """As where the GPU fails and `on_device_error` is `stop`."""
    main = (
        "import sys\n"
        "from polar_pipeline._util.stop_flag import StopFlag\n"
        "from polar_pipeline.live import processor; from polar_pipeline.ros import main\n"
        "processor.FrameProcessor.start = lambda self: setattr(self, 'failure', 'the GPU was lost')\n"
        "sys.exit(main.main(None, StopFlag(), False))"
    )
    process = start("-c", main, "--ros-args", "-p", "backend:=cpu")
    process.assert_end(FAILED)
