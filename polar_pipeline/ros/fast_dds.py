"""Settings of Fast DDS for large frames: its profile, shared memory and sockets. Imports no ROS."""

from __future__ import annotations

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Dict, Iterator, Optional

from polar_pipeline._util import machine
from polar_pipeline._util.machine import SOCKET_BUFFER, Check, read_text
from polar_pipeline._util.share import share_path

#: Environment variables that name Fast DDS's profile. Fast DDS 3, from Kilted on, reads the first, and with a warning
#: the second; Fast DDS 2 reads only the second.
_PROFILE_VARIABLES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
#: Command that sets it.
_COMMAND = 'eval "$(ros2 run polar_pipeline polar-pipeline env)"'
#: Name of Fast DDS's shared library -> its major version.
_FAST_DDS = {"libfastdds.so": 3, "libfastrtps.so": 2}
#: Minimum number of processes with a segment in shared memory: a camera driver and the node.
_MIN_SEGMENTS = 2
_MIB = 1 << 20


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
    yield from profile_checks()
    yield from memory_checks()


def profile_checks() -> Iterator[Check]:
    """Check whether Fast DDS carries 5 MB frames between processes; nothing without ROS or with another middleware."""
    if find_spec("rclpy") is None or "fastrtps" not in os.environ.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp"):
        return
    profiles = named_profiles()
    if not profiles:
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
    for name, value in profiles.items():
        if Path(value).is_file():
            yield Check("transport", "ok", f"{name}={value}")
        else:
            text = f"{name} names {value}, which does not exist: unset {name}; {_COMMAND}"
            yield Check("transport", "problem", text)


def memory_checks() -> Iterator[Check]:
    """Check whether sockets and shared memory have room for frames; yield nothing where ROS is not installed."""
    if find_spec("rclpy") is None:
        return
    small = {}
    for name in ("net.core.rmem_max", "net.core.wmem_max"):
        value = read_text(f"proc/sys/{name.replace('.', '/')}")
        if value.isdigit() and int(value) < SOCKET_BUFFER:
            small[name] = value
    if small:
        have = ", ".join(f"{name} is {value}" for name, value in small.items())
        command = " ".join(f"{name}={SOCKET_BUFFER}" for name in small)
        text = f"{have}: too small for frames from or to other machines: sudo sysctl -w {command}"
        yield Check("socket buffers", "optional", text)
    elif read_text("proc/sys/net/core/rmem_max"):
        yield Check("socket buffers", "ok", f"at least {SOCKET_BUFFER} bytes")
    else:
        yield Check("socket buffers", "optional", "not visible here: look with sysctl net.core.rmem_max on the host")
    yield from _shared_memory()


def shared_memory_problem() -> str:
    """Say what shared memory lacks for a node that starts, after a camera driver or before it; "" if it suffices."""
    return "".join(check.text for check in _shared_memory(1) if check.state == "problem")


def _shared_memory(segments: int = _MIN_SEGMENTS) -> Iterator[Check]:
    """Check that shared memory has room for `segments` more segments of Fast DDS, and for `_MIN_SEGMENTS` in all."""
    try:
        profile = share_path("config", "fastdds_large_frames.xml").read_text(encoding="utf-8")
        total, _, free = shutil.disk_usage(str(machine.ROOT / "dev/shm"))
    except OSError as err:
        yield Check("shared memory", "optional", str(err))
        return
    segment = re.search(r"<segment_size>(\d+)<", profile)
    size = int(segment.group(1)) if segment else 0
    need = _MIN_SEGMENTS * size
    have = f"{free // _MIB} of {total // _MIB} MiB free in /dev/shm"
    if free >= segments * size and total >= need:
        yield Check("shared memory", "ok", have)
        return
    size = -(-(total - free + need) // _MIB)
    text = f"{have}; camera and node take {need // _MIB} MiB: sudo mount -o remount,size={size}M /dev/shm"
    yield Check("shared memory", "problem", f"{text}; of a container: docker run --ipc=host, or --shm-size={size}m")
