"""`bench node`: its arithmetic with hand-made times, and its camera and viewer with real nodes."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest
from support import ROOT, first_of, wait_for

from polar_pipeline import cli
from polar_pipeline.ros import fast_dds
from polar_pipeline.tools.bench.figures import FrameBlock, format_figures, summarize

MS = 1_000_000
TIMEOUT = 120  # seconds; only how long a failing test takes


def make_block(start: int = 0) -> FrameBlock:
    """Five frames 10 ms apart: answered in 5, 6, 5 and 9 ms, the last product last; of the third only one product."""
    sent = {stamp: start + 10 * MS * stamp for stamp in range(5)}
    dolp = {0: 5, 1: 6, 3: 5, 4: 9}
    return FrameBlock(
        sent=sent,
        arrived={
            "intensity": {stamp: sent[stamp] + 2 * MS for stamp in sent},
            "dolp": {stamp: sent[stamp] + MS * delay for stamp, delay in dolp.items()},
        },
        unstamped={"ssim": 4},
        stages=[{"queue": 1.0, "total": 4.0}, {"queue": 3.0, "total": 4.0}],
        cpu_ms=24.0,
        page_faults=8,
        period_ms=3.5,
    )


def test_fields() -> None:
    """As ros2_benchmark's: milliseconds, a frame ends with its last product, jitter is the change of the gaps."""
    found = summarize([make_block()])
    # ends: 5, 16, 35, 49 ms; gaps 11, 19, 14; jitter 8, 5
    assert found == {
        "NUM_FRAMES_SENT": 5,
        "NUM_MISSED_FRAMES": 1,
        "MEAN_PLAYBACK_FRAME_RATE": 100.0,
        "MEAN_FRAME_RATE": round(3 / 0.044, 3),
        "RECEIVED_DURATION": 44.0,
        "MEAN_LATENCY": 6.25,
        "MIN_LATENCY": 5.0,
        "MAX_LATENCY": 9.0,
        "MEAN_JITTER": 6.5,
        "STD_DEV_JITTER": 1.5,
        "MIN_JITTER": 5.0,
        "MAX_JITTER": 8.0,
        "missed": {"intensity": 0, "dolp": 1, "ssim": 1},
        "latency_ms": {
            "intensity": {"p50": 2.0, "p95": 2.0, "p99": 2.0, "max": 2.0},
            "dolp": {"p50": 5.5, "p95": 8.55, "p99": 8.91, "max": 9.0},
            "frame": {"p50": 5.5, "p95": 8.55, "p99": 8.91, "max": 9.0},
        },
        "stages_ms": {
            "queue": {"p50": 2.0, "p95": 2.9, "p99": 2.98, "max": 3.0},
            "total": {"p50": 4.0, "p95": 4.0, "p99": 4.0, "max": 4.0},
        },
        "late": 2,
        "cpu_ms_per_frame": 6.0,
        "page_faults_per_frame": 2.0,
    }


def test_pauses_between_blocks_count_for_nothing() -> None:
    """A minute between two blocks is in no rate, no duration and no jitter."""
    one, two = summarize([make_block()]), summarize([make_block(), make_block(60_000 * MS)])
    for name in ("MEAN_FRAME_RATE", "MEAN_PLAYBACK_FRAME_RATE", "MAX_JITTER", "MAX_LATENCY", "cpu_ms_per_frame"):
        assert two[name] == one[name], name
    for name in ("NUM_FRAMES_SENT", "NUM_MISSED_FRAMES", "RECEIVED_DURATION", "late"):
        assert two[name] == 2 * one[name], name


def test_nothing_arrived() -> None:
    found = summarize([dataclasses.replace(make_block(), arrived={"dolp": {}}, unstamped={}, stages=[])])
    assert found["NUM_MISSED_FRAMES"] == found["NUM_FRAMES_SENT"] == 5
    assert found["MEAN_FRAME_RATE"] == 0.0
    assert found["latency_ms"] == {}
    assert "MEAN_LATENCY" not in found
    assert "late" not in found  # the node says nothing of its own
    assert "late" not in summarize([dataclasses.replace(make_block(), period_ms=math.inf)])
    assert summarize([dataclasses.replace(make_block(), period_ms=4.5)])["late"] == 0
    assert "5 frames sent" in format_figures("camera", found)


def test_figures_for_people() -> None:
    lines = format_figures("camera", {**summarize([make_block()]), "dropped": {"overload": 2}}).splitlines()
    answered = "68.2 Hz answered, 6.0 ms of CPU time and 2 page faults each"
    assert lines[0] == f"camera: 5 frames sent, 100.0 Hz; 1 missed; {answered}"
    assert lines[1:3] == ["  late, not out when the next one was due: 2", "  dropped by the node, overload: 2"]
    assert lines[3].split() == ["until", "the", "viewer", "has", "[ms]", "p50", "p95", "p99", "max"]
    assert [line.split()[0] for line in lines[4:7]] == ["intensity", "dolp", "frame"]
    assert lines[5].split() == ["dolp", "5.50", "8.55", "8.91", "9.00"]


# ------------------------------------------------------------------------------------------------------------- the tool


def test_without_ros(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "rclpy.node", None)
    monkeypatch.delitem(sys.modules, "polar_pipeline.tools.bench.node", raising=False)
    assert cli.main(["bench", "node"]) == 1
    assert "bench node needs ROS 2" in capsys.readouterr().err


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def tool(*arguments: str, environment: Optional[Dict[str, str]] = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "polar_pipeline", "bench", "node", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT)


@pytest.mark.ros
@pytest.mark.exhaustive
def test_frames_come_into_memory_that_is_there() -> None:
    products = "intensity,dolp,aolp,ssim_map,ssim"
    run = tool("--json", "--seconds", "2", "--rate", "10", "--backend", "cpu", "--products", products)
    assert run.returncode == 0, run.stderr
    faults = json.loads(run.stdout)["loads"]["camera"]["page_faults_per_frame"]
    assert faults < 500, "where messages are mapped and unmapped it is 1820; first uses of arrays are some"


@pytest.mark.ros
@pytest.mark.parametrize("size", first_of(["1224x1024", "2448x2048"]))  # shared memory has 0.5 MB by default
def test_own_node(size: str) -> None:
    """Frames of megabytes pass, and what is said of them fits together."""
    left_out = ("ROS_DISTRO", "RMW_IMPLEMENTATION", fast_dds.profile_variable())
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    asked = ["--size", size, "--seconds", "1", "--rate", "5", "--backend", "cpu", "--products", "dolp,ssim"]
    run = tool("--json", *asked, environment=environment)
    assert run.returncode == 0, run.stderr
    report: Dict[str, Any] = json.loads(run.stdout)
    assert report["products"] == ["dolp", "ssim"]
    for name, figures in report["loads"].items():
        arrived = figures["NUM_FRAMES_SENT"] - figures["NUM_MISSED_FRAMES"]
        assert arrived > 1, f"{name}: hardly anything arrived"
        assert set(figures["latency_ms"]) == {"dolp", "frame"}
        assert figures["missed"]["dolp"] == figures["NUM_MISSED_FRAMES"]
        assert 0 < figures["MIN_LATENCY"] <= figures["MEAN_LATENCY"] <= figures["MAX_LATENCY"]
        assert {"queue", "decode", "polarization", "publish", "total"} <= set(figures["stages_ms"])
    assert "late" in report["loads"]["camera"]
    assert "late" not in report["loads"]["fastest"]
    assert report["loads"]["camera"]["NUM_FRAMES_SENT"] == 5


@pytest.mark.ros
def test_isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the robot's domain nor another machine; the user's own profile stays."""
    from rclpy.node import Node

    from polar_pipeline.tools.bench.node import DOMAINS, isolate

    profile = fast_dds.profile_variable()
    for own in DOMAINS:
        monkeypatch.setattr(os, "environ", {"ROS_DOMAIN_ID": str(own)})
        isolate()
        assert int(os.environ["ROS_DOMAIN_ID"]) in {*DOMAINS} - {own}
    assert os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "LOCALHOST"
    assert os.environ[profile].endswith("fastdds_large_frames.xml")
    assert "ROS_LOCALHOST_ONLY" not in os.environ, "newer ROS complains of it"
    for variables in ({}, {"ROS_DISTRO": "humble"}, {"ROS_DISTRO": "kilted"}):  # says what was sourced, if anything
        monkeypatch.setattr(os, "environ", dict(variables))
        isolate()
        assert os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "LOCALHOST"
    monkeypatch.delattr(Node, "add_post_set_parameters_callback")  # as in Humble
    monkeypatch.setattr(os, "environ", {profile: "mine.xml"})
    isolate()
    assert os.environ["ROS_LOCALHOST_ONLY"] == "1"
    assert [value for name, value in os.environ.items() if name.endswith("_PROFILES_FILE")] == ["mine.xml"]


@pytest.mark.ros
def test_a_node_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives up after a while, and says where frames are lost and what may help, or that a process has ended."""
    from polar_pipeline.tools.bench import rig as bench_rig

    monkeypatch.setattr(bench_rig, "REPORTED_TIMEOUT_S", 0.1)
    monkeypatch.setattr(bench_rig.BenchRig, "_send", lambda *_: (time.sleep(0.03), FrameBlock.of(["dolp"]))[1])
    monkeypatch.setenv(fast_dds.profile_variable(), str(ROOT / "config" / "fastdds_large_frames.xml"))
    rig, said = bench_rig.BenchRig.__new__(bench_rig.BenchRig), []
    process = SimpleNamespace(poll=lambda: None)
    rig.__dict__.update(_name="bench", _process=process, _viewer=SimpleNamespace(exitcode=None))
    rig.__dict__.update(_camera=SimpleNamespace(get_subscription_count=lambda: 1), _report={"received": "0"})
    with pytest.raises(RuntimeError, match="the node 'bench' does not answer after") as caught:
        rig.wait_ready(said.append)
    lost = r"0 of \d frames have reached the node, which published products of 0; .*(the middleware may not|/dev/shm)"
    assert re.search(lost, str(caught.value))
    assert said == ["waits for an answer, 0 s: 0 of 0 frames have reached the node, which published products of 0"]
    process.poll = lambda: 3
    with pytest.raises(RuntimeError, match="the node 'bench' ended with exit code 3"):
        rig.wait_ready()


@pytest.mark.ros
def test_a_killed_benchmark_leaves_no_process() -> None:
    command = [sys.executable, "-m", "polar_pipeline", "bench", "node", "--size", "64x48", "--backend", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:

        def started() -> List[int]:
            pids = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
            names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids}
            is_ready = any(b"polar_pipeline.node" in name for name in names.values())
            return list(names) if is_ready else []

        pids = wait_for(started, "the node's process")
        process.send_signal(signal.SIGKILL)
    for pid in pids:  # the viewer's and multiprocessing's too
        wait_for(lambda pid=pid: has_ended(pid), f"the end of process {pid}")


@pytest.mark.ros
def test_what_cannot_be_measured(capsys: pytest.CaptureFixture) -> None:
    from polar_pipeline.tools.bench.node import measure

    with pytest.raises(RuntimeError, match=r"at least one product must be an image.* got ssim"):
        measure("cpu", "IMX250MZR", (64, 64), ("ssim",), 24.0, 1.0)
    assert cli.main(["bench", "node", "--sensor", "IMX999"]) == 2
    assert "IMX999" in capsys.readouterr().err
