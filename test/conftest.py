"""Fixtures of several test files."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import signal
import subprocess
import sys
import zlib
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest
from harness import CACHE, COMPILER, GPUS, Runner, host, on_gpu, prune_cache
from hypothesis import HealthCheck, settings
from support import IS_EXHAUSTIVE, ROOT, ended_afterwards, examples, own_domain

from polar_pipeline.pipeline import backend_problem
from polar_pipeline.ros.fast_dds import profile_variable

sys.path.append(str(ROOT / "test" / "live"))  # for `test_engine` in other folders
#: No test depends on what was measured on this machine.
os.environ["POLAR_PIPELINE_TUNED"] = os.devnull
#: No test depends on the speed of the machine, nor on chance: the same examples in every run. Others are found with
#: `pytest --hypothesis-profile random`.
_CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("random", deadline=None, suppress_health_check=_CHECKS, max_examples=1000)
settings.register_profile("same examples", settings.get_profile("random"), max_examples=examples(100), derandomize=True)
settings.load_profile("same examples")


def pytest_configure(config: pytest.Config) -> None:
    """Processes, before any test."""
    if hasattr(config.option, "loadscopereorder"):  # files of few tests, but long ones, would come last
        config.option.loadscopereorder = False
    # a shell has what it starts in the background ignore Ctrl-C, and all that this starts in turn
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an option for slow runs: under an emulator or a sanitizer, a test takes twenty times as long."""
    parser.addoption("--share", type=int, default=1, metavar="N", help="run one of N tests, chosen by their names")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Build the CPU's kernels where they are older than their sources; forget CUDA kernels that were built long ago."""
    kernels = [ROOT / "kernels" / "formulas.h", *(ROOT / "kernels" / "cpu").iterdir()]
    sources = [ROOT / "setup.py", ROOT / "polar_pipeline" / "polarimetry" / "coefficients.py", *kernels]
    newest = max(path.stat().st_mtime for path in sources)
    libraries = [path.stat().st_mtime for path in (ROOT / "polar_pipeline" / "backends" / "cpu").glob("kernels_*.so")]
    is_first = not hasattr(session.config, "workerinput") and find_spec("setuptools") is not None
    if is_first:
        prune_cache()
    if is_first and min(libraries, default=0) < newest:
        subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=str(ROOT), check=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests of random examples, of which a part is tried always, count as `scaled`; a fixture's camera needs Aravis."""
    if "camera" in getattr(item, "fixturenames", ()):
        item.add_marker("camera")
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        item.add_marker("scaled")


def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Long files first; a second attempt for tests of processes; whole products of parameters where asked for."""
    order = {name: index for index, name in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
    for item in items if config.pluginmanager.hasplugin("rerunfailures") else ():
        # ROS nodes, cameras and clusters have time limits of their own, which a machine with much to do exceeds
        is_of_processes = any(item.get_closest_marker(name) is not None for name in ("ros", "camera"))
        if is_of_processes or item.path.parent.name == "batch":
            item.add_marker(pytest.mark.flaky(reruns=1))
    cameras = [item for item in items if item.get_closest_marker("camera")]
    if cameras:
        try:
            ctypes.CDLL("libaravis-0.8.so.0")
        except OSError:
            for item in cameras:
                item.add_marker(pytest.mark.skip(reason="libaravis-0.8.so.0 is not installed"))
    share = config.getoption("share")
    left_out = {item for item in items if zlib.crc32(item.nodeid.encode()) % share}
    if not IS_EXHAUSTIVE:
        left_out |= {item for item in items if item.get_closest_marker("exhaustive")}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run all files with cameras in one process: a client that loses its camera would find one of another process."""
    from xdist.scheduler import LoadFileScheduling

    cameras = {
        path.name
        for path in (ROOT / "test").rglob("test_*.py")
        if re.search("import (Fake|Chunk)Camera", path.read_text())
    }

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "cameras" if Path(file).name in cameras else file

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


#: Files that take longest, which start first: of several processes none is left with one at the end.
LONGEST_FILES = (
    *("test_source.py", "test_kernels.py", "test_drill.py", "test_attack.py", "test_random_pipelines.py"),
    *("test_node.py", "test_lifecycle.py", "test_backend.py", "test_bench.py", "test_start.py", "test_cpu.py"),
    *("test_ssim_kernel.py", "test_drill_gpu.py", "test_command.py", "test_fuzz.py", "test_on_bench.py"),
    *("test_hostile_recordings.py", "test_frame_checks.py", "test_rig.py", "test_cli.py", "test_remote.py"),
)


@pytest.fixture(autouse=True)
def _gpu_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that takes all memory of the GPU runs alone, also beside other processes of tests."""
    if not request.node.get_closest_marker("gpu"):
        yield
        return
    alone = request.node.get_closest_marker("whole_gpu") is not None
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "gpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@pytest.fixture(scope="session")
def _small_segments(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of Fast DDS's profile for large frames with an eighth of the shared memory; messages have 8 MB at most.

    Fast DDS fills with zeros all that a participant gets, which takes 220 ms of each; so it takes 30.
    """
    text = (ROOT / "config" / "fastdds_large_frames.xml").read_text()
    text, count = re.subn(r"<(segment_size|maxMessageSize)>\d+", rf"<\g<1>>{16 << 20}", text)
    assert count == 2
    path = tmp_path_factory.mktemp("fastdds") / "small_segments.xml"
    path.write_text(text)
    return str(path)


@pytest.fixture(autouse=True)
def _ros_domain(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test with ROS runs in a domain of its own, apart from other machines and from what ran before it."""
    if not request.node.get_closest_marker("ros"):
        yield
        return
    pytest.importorskip("rclpy")
    with pytest.MonkeyPatch.context() as environment:  # not the test's own, which it may undo
        environment.setenv("ROS_DOMAIN_ID", own_domain())
        environment.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        # Fast DDS reads it before the first node of a process
        environment.setenv(profile_variable(), request.getfixturevalue("_small_segments"))
        yield


@pytest.fixture
def peer() -> Iterator[Any]:
    """Camera, viewers and operator of the fault drill, in a thread. Needs ROS."""
    from drill import Peer

    made = Peer()
    yield made
    made.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start Python with a command as a `drill.Process`; it is ended afterwards. Needs ROS."""
    import drill

    folder, numbers = tmp_path / "logs", count()
    folder.mkdir()
    yield from ended_afterwards(
        lambda *command: drill.Process(folder / f"{next(numbers)}.log", *command), drill.Process.close
    )


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> str:
    """Every backend that works on this machine."""
    reason = backend_problem(request.param)
    if reason:
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture(params=["host", *(pytest.param(name, marks=pytest.mark.gpu) for name in GPUS)])
def runner(request: pytest.FixtureRequest) -> Runner:
    """Where kernels run: compiled for the CPU; and on a GPU if there is one, also as a Jetson's code."""
    if request.param == "host":
        if COMPILER is None:
            pytest.skip("no C++ compiler (c++, or what CXX names)")
        return host
    try:
        return on_gpu(request.param)
    except RuntimeError as err:
        pytest.skip(str(err))
