"""What the doctor says of cameras."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest
from fake_camera import FakeCamera

from polar_pipeline._util.machine import Check
from polar_pipeline.camera import aravis
from polar_pipeline.camera.aravis import CameraDevice, FoundCamera, is_taken, list_cameras, load_aravis
from polar_pipeline.tools.doctor import cameras

#: Routes by 192.168.1.0/24 of eth1, 192.168.0.0/16 of eth2 and the default of eth0, as the kernel writes them.
ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth2\t0000A8C0\t00000000\t0001\t0\t0\t100\t0000FFFF\t0\t0\t0
eth1\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Plant a machine of three interfaces and a small socket buffer."""
    monkeypatch.setattr("polar_pipeline._util.machine.ROOT", tmp_path)
    rows = {"proc/net/route": ROUTES, "proc/sys/net/core/rmem_max": "212992\n"}
    sizes = {"eth0": 1500, "eth1": 1500, "eth2": 9000, "lo": 65536}
    for name, text in {**rows, **{f"sys/class/net/{name}/mtu": f"{size}\n" for name, size in sizes.items()}}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def checked(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> Dict[str, Check]:
    """Checks by topic of cameras at some addresses, of which those that end with 9 are controlled."""
    found = [FoundCamera("id", "LUCID", "TRI050S-P", f"S{k}", address) for k, address in enumerate(addresses)]
    monkeypatch.setattr(cameras, "list_cameras", lambda: found)
    monkeypatch.setattr(cameras, "is_taken", lambda address: address.endswith("9"))
    checks = list(cameras.camera_checks())
    assert len({check.topic for check in checks}) == len(checks)
    return {check.topic: check for check in checks}


def test_without_aravis_nothing_is_to_be_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aravis, "_LIBRARY", "libnone.so.0")
    load_aravis.cache_clear()
    (check,) = cameras.camera_checks()
    load_aravis.cache_clear()
    assert (check.topic, check.state) == ("cameras", "optional")
    assert "sudo apt install libaravis-0.8-0; without it: frames come from topics" in check.text


def test_without_cameras_nothing_is_said_of_the_network(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine
    found = checked(monkeypatch)
    assert list(found) == ["cameras"]
    assert found["cameras"] == Check("cameras", "optional", "none answers on the network or on USB")
    assert list(checked(monkeypatch, "USB3")) == ["camera S0"]


def test_cameras_and_their_network(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(monkeypatch, "192.168.1.7", "192.168.1.9", "192.168.2.8", "10.0.0.1", "127.0.0.1")
    assert found["camera S0"] == Check("camera S0", "ok", "LUCID TRI050S-P S0 at 192.168.1.7: free")
    assert found["camera S1"].text.endswith("at 192.168.1.9: a process controls it")
    assert found["camera buffers"].state == "problem"
    assert found["camera buffers"].text.startswith("net.core.rmem_max is 212992: ")
    assert found["camera buffers"].text.endswith("sudo sysctl -w net.core.rmem_max=67108864")
    states = {name: check.state for name, check in found.items() if name.startswith("mtu")}
    assert states == {"mtu of eth0": "optional", "mtu of eth1": "optional", "mtu of eth2": "ok", "mtu of lo": "ok"}
    assert found["mtu of eth1"].text.endswith("sudo ip link set eth1 mtu 9000")
    (machine / "proc/sys/net/core/rmem_max").write_text("8388608\n", encoding="utf-8")
    assert checked(monkeypatch, "192.168.1.7")["camera buffers"] == Check(
        "camera buffers", "ok", "net.core.rmem_max is 8388608"
    )


def test_what_a_container_does_not_show_is_not_judged(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine
    monkeypatch.setattr("polar_pipeline._util.machine.ROOT", tmp_path / "nothing")
    assert list(checked(monkeypatch, "192.168.1.7")) == ["camera S0"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("", False),
        ("00000081000400010000000000", False),
        ("000000810004000100000002", True),
        ("800600810000000100", True),
        ("80", False),
    ],
)
def test_who_controls_a_camera_by_its_answer(answer: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Any = []
    monkeypatch.setattr(aravis, "_probe", lambda *arguments: asked.append(arguments) or bytes.fromhex(answer))
    assert is_taken("10.0.0.1") is expected
    assert asked == [("10.0.0.1", bytes.fromhex("420100800004000100000a00"))]


@pytest.mark.camera
def test_a_camera_is_free_or_controlled() -> None:
    import numpy as np

    with FakeCamera(np.zeros((64, 96), np.uint8)):
        (found,) = list_cameras()
        assert not is_taken(found.address)
        device = CameraDevice(found)
        assert is_taken(found.address)
        device.close()
        texts = {check.topic: check.text for check in cameras.camera_checks()}
        assert texts["camera POL001"] == "LUCID Vision Labs TRI050S-P POL001 at 127.0.0.1: free"
    assert not is_taken("127.0.0.1")
