"""Checks of the machine: versions of libraries that fit each other, CUDA libraries, clocks, buffers.

Needs the standard library only, so that it works where NumPy or OpenCV cannot be imported.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Dict, Iterable, Iterator, Optional, Tuple

from polar_pipeline._util.share import share_path

#: Folder below which files of the machine are read; tests put another one here.
ROOT = Path("/")

#: Import errors of modules that were compiled for another NumPy.
_BUILT_FOR_ANOTHER = re.compile(
    r"multiarray failed to import|_ARRAY_API not found|numpy\.\w+ size changed|compiled (using|against).*numpy"
    r"|compiled against (API|ABI) version",
    re.IGNORECASE | re.DOTALL,
)
#: Major version of CuPy -> (first version of NumPy that it takes, first that it does not); older CuPy is not judged.
_NUMPY_OF_CUPY = {12: ((1, 20), (1, 27)), 13: ((1, 22), (3, 0)), 14: ((2, 0), (3, 0))}
#: Modules -> what pip is to install. Those of recordings are named one by one: with the package itself,
#: pip would put another OpenCV over that of apt.
_EXTRAS = {
    ("mcap", "rosbags", "lz4", "zstandard", "tqdm"): "rosbags mcap lz4 zstandard tqdm",
    ("dask", "distributed", "fsspec", "pyarrow"): "'/path/to/polar_pipeline[batch]'",
    ("rerun",): "'/path/to/polar_pipeline[view]'",
    ("numpy",): "numpy",
    ("cv2",): "opencv-python-headless",
    ("yaml",): "pyyaml",
    ("jinja2",): "jinja2",
}
#: Libraries of the CUDA toolkit in an import error of CuPy; libcuda is the driver's.
_CUDA_LIBRARY = re.compile(r"lib(cudart|cublas|cufft|curand|cusparse|nvrtc)\S*: cannot open shared object")
#: Major versions of CUDA that CuPy has wheels for.
_CUDA_VERSIONS = (11, 12, 13)
#: Bytes that `docs/ros.md` recommends for sockets, for frames from or to other machines.
_SOCKET_BUFFER = 67108864
#: Fewest processes with a segment in shared memory: a camera driver and the node.
_SEGMENTS = 2
#: File with the board's own name, such as `NVIDIA Jetson Orin NX Developer Kit`.
_BOARD = "proc/device-tree/model"
_MIB = 1 << 20


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        topic: Subject of the check.
        state: `ok`, `optional` (it works without this, or what it needs is not here) or `problem` (to be repaired).
        text: What was found, and the command that helps.
        group: Heading in the table.
    """

    topic: str
    state: str
    text: str
    group: str = ""


def read_text(name: str) -> str:
    """Read a text file of the machine by its path below `ROOT`; return "" if that fails."""
    try:
        return (ROOT / name).read_bytes().decode("utf-8", "replace").strip("\0\n ")
    except OSError:
        return ""


# ----------------------------------------------------------------------------------------------------------- libraries


def _version(name: str) -> Optional[str]:
    """Return the version of an installed distribution, or None if it is not installed."""
    from importlib import metadata  # slow, and the node starts without it

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> Tuple[int, ...]:
    """Return the leading numbers of a version: (1, 21) of `1.21.5`."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _installed_cupy() -> Dict[str, str]:
    """Return the versions of CuPy's distributions by name; more than one is a mistake."""
    names = ("cupy", *(f"cupy-cuda{major}x" for major in _CUDA_VERSIONS))
    return {name: version for name, version in ((name, _version(name)) for name in names) if version is not None}


def _older_numpy() -> str:
    """Return the command that installs a NumPy for modules built for NumPy 1, and a CuPy that works with it."""
    wanted = ["numpy>=1.20,<2"]
    wanted += [f"{name}<14" for name, version in _installed_cupy().items() if _numbers(version) >= (14,)]
    return "python3 -m pip install --upgrade " + " ".join(f"'{each}'" for each in wanted)


def remedy(error: Exception) -> str:
    """Return the cause of a failed import and the command that repairs it; "" unless NumPy or CUDA is the cause."""
    for modules, packages in _EXTRAS.items():
        if isinstance(error, ModuleNotFoundError) and error.name in modules:
            return f"python3 -m pip install {packages}"
    if _BUILT_FOR_ANOTHER.search(str(error)):
        return f"it was built for another NumPy than {_version('numpy')}, which is installed: {_older_numpy()}"
    if _CUDA_LIBRARY.search(str(error)):
        return f"libraries of CUDA are missing: {_cuda_command()}"
    return ""


def _cuda_command() -> str:
    """Return the command that installs the libraries that CuPy loads."""
    if is_jetson():
        return "sudo apt install nvidia-jetpack"
    name, version = next(iter(_installed_cupy().items()), ("cupy", ""))
    if _numbers(version) >= (14,):
        return f"python3 -m pip install '{name}[ctk]'"
    number = re.sub(r"cupy(-cuda(\d+)x)?", r"-\2", name).rstrip("-")
    return f"sudo apt install cuda-toolkit{number}, from NVIDIA's package repository"


def cupy_checks() -> Iterator[Check]:
    """Check whether CuPy and NumPy work together; nothing without CuPy."""
    found = _installed_cupy()
    if len(found) > 1:
        names = " ".join(found)
        text = f"several are installed, over each other: python3 -m pip uninstall {names}; then install one again"
        yield Check("cupy's version", "problem", text)
        return
    numpy = _version("numpy")
    for name, version in found.items():
        first, below = _NUMPY_OF_CUPY.get(_numbers(version)[0], ((0,), (1000,)))
        if numpy is None or first <= _numbers(numpy) < below:
            yield Check("cupy's version", "ok", f"{name} {version}, for NumPy {numpy}")
            continue
        text = f"{name} {version} needs NumPy {_dotted(first)} or newer, below {_dotted(below)}; {numpy} is installed: "
        if _numbers(numpy) >= below:
            text += _older_numpy()
        elif name == "cupy-cuda13x":  # no version of it takes NumPy below 1.22, and 14 none below 2
            text += "python3 -m pip install --upgrade 'cupy-cuda13x<14' 'numpy>=1.22,<2'"
        else:
            text += f"python3 -m pip install --upgrade '{name}>=12.3,<13' 'numpy>=1.20,<2'"
        yield Check("cupy's version", "problem", text)


def _dotted(version: Tuple[int, ...]) -> str:
    return ".".join(map(str, version))


# -------------------------------------------------------------------------------------------------------------- Jetson


def is_jetson() -> bool:
    """Return whether this is a Jetson, or a container with NVIDIA's files of one."""
    return "jetson" in read_text(_BOARD).lower() or any(map(read_text, ("etc/nv_tegra_release", "etc/nvpmodel.conf")))


def jetson_checks() -> Iterator[Check]:
    """Check board, power mode and clocks of a Jetson, without root; nothing on other machines."""
    if not is_jetson():
        return
    release = re.match(r"# (R\d+) \(release\), REVISION: ([\d.]+)", read_text("etc/nv_tegra_release"))
    linux = f", Jetson Linux {release.group(1)[1:]}.{release.group(2)}" if release else ""
    yield Check("jetson", "ok", (read_text(_BOARD) or "model not visible here") + linux)
    yield _power_mode()
    cores = ROOT.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq")
    yield _clock("cpu clocks", cores, "scaling_governor", "scaling_min_freq", "scaling_max_freq")
    gpus = (path for path in ROOT.glob("sys/class/devfreq/*") if re.search(r"gpu|gv11b|ga10b|gp10b", path.name))
    yield _clock("gpu clock", gpus, "governor", "min_freq", "max_freq")


def _speed(name: str) -> Tuple[bool, bool, int, int]:
    """Return the sort key of a power mode, slowest first: unlimited ones last, else by watts and cores."""
    watts, cores = (re.search(rf"(\d+){unit}", name) for unit in ("W", "CORE"))
    return (
        name.startswith("MAXN"),
        "SUPER" in name,
        int(watts.group(1)) if watts else 0,
        int(cores.group(1)) if cores else 100,  # `MODE_30W_ALL`
    )


def _power_mode() -> Check:
    text = read_text("etc/nvpmodel.conf")
    modes = {int(number): name for number, name in re.findall(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>", text)}
    status = re.search(r"pmode:(\d+)", read_text("var/lib/nvpmodel/status"))
    default = re.search(r"<\s*PM_CONFIG\s+DEFAULT=(\d+)\s*>", text)
    current = status or default
    if not modes or current is None:
        return Check("power mode", "optional", "not readable here; on the Jetson itself: sudo nvpmodel -q")
    number = int(current.group(1))
    fastest = max(modes, key=lambda mode: _speed(modes[mode]))
    name = modes.get(number, str(number))
    if number == fastest:
        return Check("power mode", "ok", name)
    return Check("power mode", "problem", f"{name}; {modes[fastest]} is faster: sudo nvpmodel -m {fastest}")


def _clock(topic: str, folders: Iterable[Path], governor: str, lowest: str, highest: str) -> Check:
    """Check whether clocks stay at their highest frequency, by the names of the files in their folders."""
    names = (governor, lowest, highest)
    clocks = {folder: [read_text(f"{folder.relative_to(ROOT)}/{name}") for name in names] for folder in sorted(folders)}
    changing = [folder for folder, (rule, low, high) in clocks.items() if rule != "performance" and low != high]
    if changing:
        listed = ", ".join(path.parent.name if path.name == "cpufreq" else path.name for path in changing)
        return Check(topic, "problem", f"lowered between frames ({listed}): sudo jetson_clocks, after each start")
    if not clocks or not all(map(all, clocks.values())):
        return Check(topic, "optional", "not readable here; on the Jetson itself: sudo jetson_clocks --show")
    return Check(topic, "ok", f"{len(clocks)} at their highest")


# ----------------------------------------------------------------------------------------------------------- transport


def transport_memory_checks() -> Iterator[Check]:
    """Check whether sockets and shared memory have room for frames; nothing without ROS."""
    if find_spec("rclpy") is None:
        return
    small = {}
    for name in ("net.core.rmem_max", "net.core.wmem_max"):
        value = read_text(f"proc/sys/{name.replace('.', '/')}")
        if value.isdigit() and int(value) < _SOCKET_BUFFER:
            small[name] = value
    if small:
        have = ", ".join(f"{name} is {value}" for name, value in small.items())
        command = " ".join(f"{name}={_SOCKET_BUFFER}" for name in small)
        text = f"{have}: too small for frames from or to other machines: sudo sysctl -w {command}"
        yield Check("socket buffers", "optional", text)
    elif read_text("proc/sys/net/core/rmem_max"):
        yield Check("socket buffers", "ok", f"at least {_SOCKET_BUFFER} bytes")
    else:
        yield Check("socket buffers", "optional", "not visible here: look with sysctl net.core.rmem_max on the host")
    yield from _shared_memory()


def shared_memory_problem() -> str:
    """Say what shared memory lacks for a node that starts, after a camera driver or before it; "" if it suffices."""
    return "".join(check.text for check in _shared_memory(1) if check.state == "problem")


def _shared_memory(segments: int = _SEGMENTS) -> Iterator[Check]:
    """Check that `segments` more segments of Fast DDS fit into shared memory, and its size suffices for `_SEGMENTS`."""
    try:
        profile = share_path("config", "fastdds_large_frames.xml").read_text(encoding="utf-8")
        total, _, free = shutil.disk_usage(str(ROOT / "dev/shm"))
    except OSError as err:
        yield Check("shared memory", "optional", str(err))
        return
    segment = re.search(r"<segment_size>(\d+)<", profile)
    size = int(segment.group(1)) if segment else 0
    need = _SEGMENTS * size
    have = f"{free // _MIB} of {total // _MIB} MiB free in /dev/shm"
    if free >= segments * size and total >= need:
        yield Check("shared memory", "ok", have)
        return
    size = -(-(total - free + need) // _MIB)
    text = f"{have}; camera and node take {need // _MIB} MiB: sudo mount -o remount,size={size}M /dev/shm"
    yield Check("shared memory", "problem", f"{text}; of a container: docker run --ipc=host, or --shm-size={size}m")
