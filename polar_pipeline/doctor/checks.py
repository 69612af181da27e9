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
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np

import polar_pipeline
from polar_pipeline import __version__
from polar_pipeline._util.imports import importing
from polar_pipeline._util.jpeg import make_gpu_encoder
from polar_pipeline._util.share import share_path
from polar_pipeline._util.text import printable
from polar_pipeline.cpu.library import load_kernels
from polar_pipeline.cuda.driver import cause, import_cupy
from polar_pipeline.doctor import deployment
from polar_pipeline.doctor.cameras import camera_checks
from polar_pipeline.doctor.deployment import Check
from polar_pipeline.pipeline import Pipeline, backend_problem

#: Environment variables that name Fast DDS's profile. Fast DDS 3, from Kilted on, reads the first, and with a warning
#: the second; Fast DDS 2 reads only the second.
_PROFILE_VARIABLES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
#: Command that sets it.
_COMMAND = 'eval "$(ros2 run polar_pipeline polar-pipeline env)"'
#: Name of Fast DDS's shared library -> its major version.
_FAST_DDS = {"libfastdds.so": 3, "libfastrtps.so": 2}

#: Module -> what does not work without it; "" where nothing works.
_LIBRARIES = {
    **dict.fromkeys(("numpy", "cv2", "yaml"), ""),
    "jinja2": "no reports of replay, calibrate and batch; the library and the live node work",
    **dict.fromkeys(
        ("mcap", "rosbags", "lz4", "zstandard"),
        "recordings are only read, MCAP by ROS 2's rosbag2_py; no snapshots and recordings of the node",
    ),
    "tqdm": "no progress bars",
    **dict.fromkeys(("dask", "distributed", "fsspec", "pyarrow"), "no `polar-pipeline batch`"),
    "skimage": "nothing (tests compare with it)",
    "aiohttp": "no recordings from web servers",
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
        "ROS": (_ros, _transport),
        "Camera": (camera_checks,),
        "Robot": (deployment.jetson_checks, deployment.transport_memory_checks),
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
        remedy = deployment.remedy(err)
        text = "; ".join(filter(None, (cause(err), remedy, optional and f"without it: {optional}")))
        return Check(name, "optional" if optional else "problem", text)
    return Check(name, "ok", str(getattr(module, "__version__", "installed")))


def _libraries() -> Iterator[Check]:
    for name, lost in _LIBRARIES.items():
        yield _import(name, lost)


def _backend(name: str) -> Check:
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
    yield from deployment.cupy_checks()
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


def _fast_dds() -> Optional[int]:
    """Return the major version of the installed Fast DDS by its library, or None unless exactly one is found.

    `ROS_DISTRO` is not enough: it is not set where ROS was installed as wheels. The library is searched where the
    dynamic linker searches first, then beside rclpy: `<prefix>/lib/python3.x/site-packages/rclpy`.
    """
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
    origin = getattr(find_spec("rclpy"), "origin", None)
    if origin:
        folders += Path(origin).parents
    for folder in folders:
        versions = {version for name, version in _FAST_DDS.items() if any(folder.glob(f"{name}*"))}
        if len(versions) == 1:
            return versions.pop()
    return None


def profile_variable() -> str:
    """Return the environment variable that names Fast DDS's profile, for an unknown version that of all versions."""
    return _PROFILE_VARIABLES[0 if _fast_dds() == 3 else 1]


def named_profiles() -> Dict[str, str]:
    """Return the variables that the installed Fast DDS reads and that are set, with their profiles."""
    read = _PROFILE_VARIABLES[1:] if _fast_dds() == 2 else _PROFILE_VARIABLES
    return {name: os.environ[name] for name in read if os.environ.get(name)}


def transport_environment() -> Dict[str, str]:
    """Return the environment variables with which Fast DDS carries large frames; empty if one is set already."""
    if named_profiles():
        return {}
    return {profile_variable(): str(share_path("config", "fastdds_large_frames.xml"))}


def transport_checks() -> Iterator[Check]:
    """Check the settings for frames between processes and machines; nothing without ROS."""
    yield from _transport()
    yield from deployment.transport_memory_checks()


def _transport() -> Iterator[Check]:
    """Check whether Fast DDS carries 5 MB frames between processes; nothing without ROS or with another middleware."""
    if find_spec("rclpy") is None or "fastrtps" not in os.environ.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp"):
        return
    named = named_profiles()
    if not named:
        try:
            ((name, value),) = transport_environment().items()
        except FileNotFoundError as err:
            yield Check("transport profile", "problem", f"{err}; install the package again")
            return
        yield Check(
            "transport",
            "problem",
            f"Fast DDS loses 5 MB frames with its default segment: set {name} to {value}, "
            f"here and for the camera's driver: {_COMMAND} does, and so do the launch files",
        )
    for name, value in named.items():
        if Path(value).is_file():
            yield Check("transport", "ok", f"{name}={value}")
        else:
            text = f"{name} names {value}, which does not exist: unset {name}; {_COMMAND}"
            yield Check("transport", "problem", text)
