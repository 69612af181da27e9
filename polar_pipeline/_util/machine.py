"""The machine: its files, versions of libraries that fit each other, and how to repair a failed import.

Needs the standard library only, so that it works where NumPy or OpenCV cannot be imported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, Optional, Tuple

#: Folder below which files of the machine are read; tests put another one here.
ROOT = Path("/")

#: Bytes of a socket's buffer (net.core.rmem_max) for frames, as the guides recommend.
SOCKET_BUFFER = 67108864
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
    ("av",): "'/path/to/polar_pipeline[video]'",
    ("scipy",): "scipy",
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
#: File with the board's own name, such as `NVIDIA Jetson Orin NX Developer Kit`.
BOARD = "proc/device-tree/model"


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
    requirements = ["numpy>=1.20,<2"]
    requirements += [f"{name}<14" for name, version in _installed_cupy().items() if _numbers(version) >= (14,)]
    return "python3 -m pip install --upgrade " + " ".join(f"'{each}'" for each in requirements)


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


def with_remedy(error: Exception) -> str:
    """Return the text of an error, and for a failed import the command that repairs it."""
    return "; ".join(filter(None, (str(error), remedy(error))))


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
    versions = _installed_cupy()
    if len(versions) > 1:
        names = " ".join(versions)
        text = f"several are installed, over each other: python3 -m pip uninstall {names}; then install one again"
        yield Check("cupy's version", "problem", text)
        return
    numpy = _version("numpy")
    for name, version in versions.items():
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


def is_jetson() -> bool:
    """Return whether this is a Jetson, or a container with NVIDIA's files of one."""
    return "jetson" in read_text(BOARD).lower() or any(map(read_text, ("etc/nv_tegra_release", "etc/nvpmodel.conf")))
