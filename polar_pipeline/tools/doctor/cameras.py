"""Checks of cameras: the library, the cameras and their controllers, socket buffers and packets of the network."""

from __future__ import annotations

import socket
import sys
from typing import Iterator, List

from polar_pipeline._util.machine import SOCKET_BUFFER, Check, read_text
from polar_pipeline.camera.aravis import CameraError, FoundCamera, is_address, is_taken, list_cameras

#: Bytes of a socket buffer that hold a frame.
_FEWEST_BYTES = 8_000_000
#: Bytes of a packet that cameras can send, and network interfaces can be set to.
_JUMBO = 9000


def camera_checks() -> Iterator[Check]:
    """Look for cameras, which takes a second; a machine without cameras has nothing to repair."""
    try:
        cameras = list_cameras()
    except CameraError as err:
        yield Check("cameras", "optional", f"{err}; without it: frames come from topics and recordings only")
        return
    if not cameras:
        yield Check("cameras", "optional", "none answers on the network or on USB")
    for camera in cameras:
        is_busy = is_address(camera.address) and is_taken(camera.address)
        state = "a process controls it" if is_busy else "free"
        yield Check(f"camera {camera.serial}", "ok", f"{camera.describe()}: {state}")
    yield from _network([camera for camera in cameras if is_address(camera.address)])


def _network(cameras: List[FoundCamera]) -> Iterator[Check]:
    """Check what GigE Vision cameras need of the network."""
    size = read_text("proc/sys/net/core/rmem_max")
    if cameras and size.isdigit():
        is_small = int(size) < _FEWEST_BYTES
        advice = f": packets of frames get lost: sudo sysctl -w net.core.rmem_max={SOCKET_BUFFER}" if is_small else ""
        yield Check("camera buffers", "problem" if is_small else "ok", f"net.core.rmem_max is {size}{advice}")
    for name in sorted({_interface(camera.address) for camera in cameras}):
        mtu = read_text(f"sys/class/net/{name}/mtu")
        if mtu.isdigit():
            is_small = int(mtu) < _JUMBO
            advice = f": larger packets cost less time: sudo ip link set {name} mtu {_JUMBO}" if is_small else ""
            yield Check(f"mtu of {name}", "optional" if is_small else "ok", f"{mtu} bytes{advice}")


def _interface(address: str) -> str:
    """Return the name of the network interface that leads to an IP address, by the longest prefix."""
    target = int.from_bytes(socket.inet_aton(address), sys.byteorder)
    best, name = -1, "lo"
    for line in read_text("proc/net/route").splitlines()[1:]:
        words = line.split()
        network, mask = int(words[1], 16), int(words[7], 16)
        if target & mask == network and bin(mask).count("1") > best and not address.startswith("127."):
            best, name = bin(mask).count("1"), words[0]
    return name
