"""Checks of libraries, backends, machine, ROS, transport and cameras, for `polar-pipeline doctor`."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Literal, Tuple

import numpy as np

import polar_pipeline
from polar_pipeline import __version__
from polar_pipeline._util.imports import importing
from polar_pipeline._util.jpeg import make_gpu_encoder
from polar_pipeline._util.machine import Check, cupy_checks, remedy
from polar_pipeline._util.text import printable
from polar_pipeline.backends.cpu.library import load_kernels
from polar_pipeline.backends.cuda.driver import cause, import_cupy
from polar_pipeline.pipeline import Pipeline, backend_problem
from polar_pipeline.ros import fast_dds
from polar_pipeline.tools.doctor.cameras import camera_checks
from polar_pipeline.tools.doctor.jetson import jetson_checks

#: Module -> what does not work without it; "" where nothing works.
_LIBRARIES = {
    **dict.fromkeys(("numpy", "cv2", "yaml"), ""),
    "jinja2": "no reports of replay, calibrate and batch; the library and the live node work",
    **dict.fromkeys(
        ("mcap", "rosbags", "lz4", "zstandard"),
        "recordings are only read, MCAP by ROS 2's rosbag2_py; no snapshots and recordings of the node",
    ),
    "tqdm": "no progress bars",
    "argcomplete": "shells do not complete the arguments of `polar-pipeline`",
    **dict.fromkeys(("dask", "distributed", "fsspec", "pyarrow"), "no `polar-pipeline batch`"),
    "skimage": "nothing (tests compare with it)",
    "aiohttp": "no recordings from web servers",
    "av": "no videos",
    "scipy": "MAT files are not read",
    "rerun": "no `polar-pipeline view`",
}
_ROS = {
    **dict.fromkeys(
        ("rclpy", "sensor_msgs", "std_msgs", "diagnostic_msgs", "std_srvs", "rcl_interfaces"),
        "no live node and no play; library and replay work",
    ),
    "rosbag2_py": "recordings only by pip's rosbags and mcap",
    **dict.fromkeys(("launch", "launch_ros"), "no launch files; run polar_pipeline_node itself"),
}


def run_checks() -> List[Check]:
    """Run every check, group by group."""
    groups: Dict[str, Tuple[Callable[[], Iterator[Check]], ...]] = {
        "Library": (_python, _libraries, _cpu),
        "GPU": (_gpu,),
        "ROS": (_ros, fast_dds.profile_checks),
        "Camera": (camera_checks,),
        "Robot": (jetson_checks, fast_dds.memory_checks),
    }
    return [replace(check, group=group) for group, parts in groups.items() for checks in parts for check in checks()]


def as_text(checks: Iterable[Check]) -> str:
    """Format findings as a table, one per line, below a heading for each group."""
    lines: List[str] = []
    for group, rows in groupby(checks, lambda check: check.group):
        lines += [f"{group}:", *(f"{row.state:<8} {row.topic:<18} {printable(row.text, 1000)}" for row in rows)]
    return "\n".join([*lines, ""])


def _python() -> Iterator[Check]:
    yield Check("polar_pipeline", "ok", f"{__version__} in {Path(polar_pipeline.__file__).parent}")
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable}) on {platform.machine()}")


def _import(name: str, optional: str) -> Check:
    """Check whether a module can be imported; `optional` says what does not work without it, "" if nothing does."""
    try:
        with importing():
            module = importlib.import_module(name)
    except ImportError as err:
        # the message tells a library that is missing from one that is broken, as without a shared object
        repair = remedy(err)
        text = "; ".join(filter(None, (cause(err), repair, optional and f"without it: {optional}")))
        return Check(name, "optional" if optional else "problem", text)
    return Check(name, "ok", str(getattr(module, "__version__", "installed")))


def _libraries() -> Iterator[Check]:
    for name, lost in _LIBRARIES.items():
        yield _import(name, lost)


def _backend(name: Literal["cpu", "cuda"]) -> Check:
    """Check whether a backend computes a frame."""
    reason = backend_problem(name)
    if reason:
        return Check(f"backend {name}", "optional", reason)
    try:
        with Pipeline(backend=name) as pipeline:
            pipeline(np.zeros((32, 32), np.uint8))
    except (ValueError, RuntimeError) as err:
        return Check(f"backend {name}", "problem", str(err))
    return Check(f"backend {name}", "ok", pipeline.device)


def _cpu() -> Iterator[Check]:
    yield _backend("cpu")
    hint = "without them a frame takes seconds"
    yield _tried("cpu kernels", lambda: f"compiled for {load_kernels().level}", hint, "problem")


def _gpu() -> Iterator[Check]:
    yield _import("cupy", "no GPU")
    yield from cupy_checks()
    yield _backend("cuda")
    yield _tried("gpu", _describe_gpu)
    hint = "it comes with the CUDA toolkit, or with CuPy's extra ctk"
    yield _tried("nvrtc", lambda: ".".join(map(str, import_cupy().cuda.nvrtc.getVersion())), hint)
    yield _jpeg()


def _tried(topic: str, look: Callable[[], str], hint: str = "", otherwise: str = "optional") -> Check:
    """Check that `look` finds something; an error says why it does not, the hint what that means."""
    try:
        return Check(topic, "ok", look())
    except Exception as err:  # noqa: BLE001 - a library that can be imported may lack its own libraries
        return Check(topic, otherwise, "; ".join(filter(None, (cause(err), hint))))


def _describe_gpu() -> str:
    """Describe the GPU that CuPy uses."""
    properties = import_cupy().cuda.runtime.getDeviceProperties(0)
    return f"{properties['name'].decode()}, compute capability {properties['major']}.{properties['minor']}"


def _jpeg() -> Check:
    """Name the encoder of the live node's JPEGs for `backend: auto`."""
    if backend_problem("cuda"):
        return Check("jpeg", "ok", "OpenCV, as no GPU computes")
    try:
        make_gpu_encoder()(np.zeros((32, 32), np.uint8), 90)
    except ModuleNotFoundError:
        return Check(
            "jpeg", "ok", "OpenCV on the CPU; nvImageCodec (pip extras jpeg-cuda12, jpeg-cuda13) is not installed"
        )
    except Exception as err:  # noqa: BLE001 - the node goes on with OpenCV too
        return Check("jpeg", "optional", f"OpenCV on the CPU, as nvImageCodec does not work: {cause(err)}")
    return Check("jpeg", "ok", "nvImageCodec on the GPU")


def _ros() -> Iterator[Check]:
    distribution = os.environ.get("ROS_DISTRO")
    hint = "not set: source /opt/ros/DISTRIBUTION/setup.bash, unless ROS is installed as wheels"
    yield Check("ROS_DISTRO", "ok" if distribution else "optional", distribution or hint)
    failure = _middleware_failure()
    if failure:
        yield Check("middleware", "problem", failure)
        return
    for name, lost in _ROS.items():
        yield _import(name, lost)
    yield _tried("middleware", lambda: importlib.import_module("rclpy.utilities").get_rmw_implementation_identifier())


def _middleware_failure() -> str:
    """Say why importing rclpy ends the process, as if `RMW_IMPLEMENTATION` is not installed; "" if it does not."""
    if find_spec("rclpy") is None or "rclpy.utilities" in sys.modules:  # loaded here, as in a node
        return ""
    program = "from rclpy.utilities import get_rmw_implementation_identifier as name; name()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    if done.returncode in (0, 1):  # 1: an exception, which the import here says too
        return ""
    middleware = os.environ.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp")
    package = f"ros-{os.environ.get('ROS_DISTRO', 'DISTRIBUTION')}-{middleware.replace('_', '-')}"
    reason = " ".join(done.stderr.decode("utf-8", "replace").split())
    return f"no node starts with {middleware}: unset RMW_IMPLEMENTATION, or sudo apt install {package} ({reason})"
