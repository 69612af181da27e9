"""What the doctor says of the machine itself: on file trees of a Xavier, an Orin and a PC."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterable

import pytest
from support import ROOT

from polar_pipeline._util import machine
from polar_pipeline.ros import fast_dds
from polar_pipeline.tools.doctor import checks as doctor
from polar_pipeline.tools.doctor.jetson import jetson_checks

MIB = 1 << 20
CPU = "sys/devices/system/cpu/cpu{}/cpufreq/{}"
#: As `/etc/nvpmodel.conf` begins there, shortened to the lines that name modes.
XAVIER_MODES = """
< POWER_MODEL ID=0 NAME=MAXN >
CPU_ONLINE CORE_0 1
< POWER_MODEL ID=1 NAME=MODE_10W >
< POWER_MODEL ID=2 NAME=MODE_15W >
< POWER_MODEL ID=3 NAME=MODE_30W_ALL >
# mandatory section to configure the default mode
< PM_CONFIG DEFAULT=2 >
"""
XAVIER_NX_MODES = """
< POWER_MODEL ID=0 NAME=MODE_15W_2CORE >
< POWER_MODEL ID=2 NAME=MODE_15W_6CORE >
< POWER_MODEL ID=8 NAME=MODE_20W_6CORE >
< POWER_MODEL ID=5 NAME=MODE_10W_DESKTOP >
< PM_CONFIG DEFAULT=0 >
"""
ORIN_NANO_MODES = """
< POWER_MODEL ID=0 NAME=15W >
< POWER_MODEL ID=1 NAME=25W >
< POWER_MODEL ID=2 NAME=MAXN_SUPER >
< PM_CONFIG DEFAULT=1 >
"""
XAVIER: Dict[str, str] = {
    "proc/device-tree/model": "NVIDIA Jetson AGX Xavier Developer Kit\0",
    "etc/nv_tegra_release": "# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref, EABI: aarch64\n",
    "etc/nvpmodel.conf": XAVIER_MODES,
    **{
        CPU.format(core, name): text
        for core in range(2)
        for name, text in (
            ("scaling_governor", "schedutil\n"),
            ("scaling_min_freq", "1190400\n"),
            ("scaling_max_freq", "2265600\n"),
        )
    },
    "sys/class/devfreq/17000000.gv11b/governor": "nvhost_podgov\n",
    "sys/class/devfreq/17000000.gv11b/min_freq": "114750000\n",
    "sys/class/devfreq/17000000.gv11b/max_freq": "1377000000\n",
    "proc/sys/net/core/rmem_max": "212992\n",
    "proc/sys/net/core/wmem_max": "212992\n",
}
#: After `jetson_clocks`, which raises the lowest clocks and leaves the governors.
ORIN: Dict[str, str] = {
    "proc/device-tree/model": "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super\0",
    "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n",
    "etc/nvpmodel.conf": ORIN_NANO_MODES,
    "var/lib/nvpmodel/status": "pmode:0002",
    CPU.format(0, "scaling_governor"): "schedutil\n",
    CPU.format(0, "scaling_min_freq"): "1728000\n",
    CPU.format(0, "scaling_max_freq"): "1728000\n",
    "sys/class/devfreq/17000000.gpu/governor": "nvhost_podgov\n",
    "sys/class/devfreq/17000000.gpu/min_freq": "1020000000\n",
    "sys/class/devfreq/17000000.gpu/max_freq": "1020000000\n",
    "proc/sys/net/core/rmem_max": "67108864\n",
    "proc/sys/net/core/wmem_max": "134217728\n",
}
PC: Dict[str, str] = {
    CPU.format(0, "scaling_governor"): "powersave\n",
    CPU.format(0, "scaling_min_freq"): "800000\n",
    CPU.format(0, "scaling_max_freq"): "5000000\n",
    "proc/sys/net/core/rmem_max": "67108864\n",
    "proc/sys/net/core/wmem_max": "212992\n",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of `/`."""
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setitem(sys.modules, "rclpy", SimpleNamespace(__spec__=object()))  # type: ignore[arg-type]
    return tmp_path


def plant(root: Path, files: Dict[str, str]) -> None:
    """Write files below a root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def by_topic(checks: Iterable[machine.Check]) -> Dict[str, machine.Check]:
    return {check.topic: check for check in checks}


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Make these the installed distributions; `_` in a name stands for `-`."""

    def version(name: str) -> str:
        try:
            return versions[name.replace("-", "_")]
        except KeyError:
            raise metadata.PackageNotFoundError(name) from None

    monkeypatch.setattr("importlib.metadata.version", version)


# ----------------------------------------------------------------------------------------------------------- libraries


@pytest.mark.parametrize(
    "message",
    [
        "numpy.core.multiarray failed to import",
        "numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88",
        "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.2.6 as it may crash.",
        "module compiled against API version 0x10 but this version of numpy is 0xe",
    ],
)
def test_a_library_built_for_another_numpy_is_explained(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, numpy="2.2.6", cupy_cuda12x="14.2.0")
    said = machine.remedy(ImportError(message))
    assert "another NumPy than 2.2.6" in said
    assert said.endswith("python3 -m pip install --upgrade 'numpy>=1.20,<2' 'cupy-cuda12x<14'")
    assert machine.remedy(ImportError("No module named 'cv2'")) == ""


@pytest.mark.parametrize("error", ["ImportError", "ValueError"])
def test_the_doctor_gives_the_command_for_it(error: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "built_for_another.py").write_text(f"raise {error}('numpy.core.multiarray failed to import')")
    monkeypatch.syspath_prepend(tmp_path)
    found = doctor._import("built_for_another", "")
    assert found.state == "problem"
    assert "numpy.core.multiarray failed to import; " in found.text
    assert "pip install --upgrade 'numpy>=1.20,<2'" in found.text


@pytest.mark.parametrize("error", ["ImportError", "SyntaxError"])
@pytest.mark.parametrize("name", ["numpy", "cv2"])
def test_the_tool_says_so_where_it_cannot_start(name: str, error: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text(f"raise {error}('numpy.core.multiarray failed to import')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "polar_pipeline", "doctor"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("polar-pipeline: ")
    assert "numpy.core.multiarray failed to import; it was built for another" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "version", "numpy", "command"),
    [
        ("cupy_cuda12x", "14.2.0", "1.21.5", "'cupy-cuda12x>=12.3,<13' 'numpy>=1.20,<2'"),  # JetPack 6
        ("cupy_cuda11x", "12.3.0", "1.17.4", "'cupy-cuda11x>=12.3,<13' 'numpy>=1.20,<2'"),  # JetPack 5
        ("cupy_cuda13x", "14.2.0", "1.26.4", "'cupy-cuda13x<14' 'numpy>=1.22,<2'"),  # JetPack 7
        ("cupy_cuda12x", "12.3.0", "2.2.6", "'numpy>=1.20,<2'"),
        ("cupy_cuda12x", "12.3.0", "1.26.4", None),
        ("cupy_cuda12x", "15.0.0", "1.26.4", None),  # not known yet
    ],
)
def test_cupy_and_numpy(name: str, version: str, numpy: str, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, numpy=numpy, **{name: version})
    (found,) = machine.cupy_checks()
    assert found.state == ("problem" if command else "ok")
    assert not command or found.text.endswith(f"python3 -m pip install --upgrade {command}")


def test_two_cupys(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, numpy="1.26.4", cupy_cuda11x="12.3.0", cupy_cuda12x="12.3.0")
    (found,) = machine.cupy_checks()
    assert found.state == "problem"
    assert "pip uninstall cupy-cuda11x cupy-cuda12x" in found.text
    installed(monkeypatch, numpy="1.26.4")
    assert list(machine.cupy_checks()) == []


def test_missing_cuda_libraries_come_with_a_command(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ImportError("libcublas.so.12: cannot open shared object file: No such file or directory")
    installed(monkeypatch, cupy_cuda12x="12.3.0")
    assert "sudo apt install cuda-toolkit-12, from" in machine.remedy(error)
    installed(monkeypatch, cupy_cuda12x="14.2.0")
    assert machine.remedy(error).endswith("python3 -m pip install 'cupy-cuda12x[ctk]'")
    plant(root, ORIN)
    assert machine.remedy(error).endswith("sudo apt install nvidia-jetpack")
    assert machine.remedy(ImportError("libcuda.so.1: cannot open shared object file")) == "", "the driver's"


# -------------------------------------------------------------------------------------------------------------- Jetson


def test_a_xavier_as_it_starts(root: Path) -> None:
    plant(root, XAVIER)
    found = by_topic(jetson_checks())
    assert found["jetson"].text == "NVIDIA Jetson AGX Xavier Developer Kit, Jetson Linux 35.4.1"
    assert found["power mode"] == machine.Check("power mode", "problem", "MODE_15W; MAXN is faster: sudo nvpmodel -m 0")
    for topic in ("cpu clocks", "gpu clock"):
        assert found[topic].state == "problem"
        assert "sudo jetson_clocks" in found[topic].text
    assert "cpu0, cpu1" in found["cpu clocks"].text


def test_an_orin_after_nvpmodel_and_jetson_clocks(root: Path) -> None:
    plant(root, ORIN)
    found = by_topic(jetson_checks())
    assert {check.state for check in found.values()} == {"ok"}
    assert found["power mode"].text == "MAXN_SUPER"
    plant(root, {CPU.format(1, "scaling_governor"): "performance\n"})
    plant(root, {CPU.format(1, "scaling_min_freq"): "1\n", CPU.format(1, "scaling_max_freq"): "2\n"})
    assert by_topic(jetson_checks())["cpu clocks"].text == "2 at their highest"


@pytest.mark.parametrize(
    ("modes", "mode", "command"),
    [
        (XAVIER_NX_MODES, 0, "MODE_15W_2CORE; MODE_20W_6CORE is faster: sudo nvpmodel -m 8"),
        (XAVIER_NX_MODES.replace("ID=8", "ID=8 "), 8, "MODE_20W_6CORE"),
        (ORIN_NANO_MODES, 1, "25W; MAXN_SUPER is faster: sudo nvpmodel -m 2"),
        (XAVIER_MODES, 7, "7; MAXN is faster: sudo nvpmodel -m 0"),
    ],
)
def test_the_fastest_power_mode_is_recommended(root: Path, modes: str, mode: int, command: str) -> None:
    plant(root, {"etc/nvpmodel.conf": modes, "var/lib/nvpmodel/status": f"pmode:{mode:04}"})
    assert by_topic(jetson_checks())["power mode"].text == command


def test_a_container_on_a_jetson_says_what_it_does_not_see(root: Path) -> None:
    plant(root, {"etc/nv_tegra_release": XAVIER["etc/nv_tegra_release"], "etc/nvpmodel.conf": "garbage"})
    found = by_topic(jetson_checks())
    assert found["jetson"].text == "model not visible here, Jetson Linux 35.4.1"
    for topic in ("power mode", "cpu clocks", "gpu clock"):
        assert found[topic].state == "optional"
        assert "on the Jetson itself" in found[topic].text


def test_a_pc_has_no_rows_of_a_jetson(root: Path) -> None:
    plant(root, PC)
    assert list(jetson_checks()) == []


# ----------------------------------------------------------------------------------------------------------- transport


def test_socket_buffers(root: Path) -> None:
    plant(root, XAVIER)
    (root / "dev/shm").mkdir(parents=True)
    found = by_topic(fast_dds.memory_checks())["socket buffers"]
    assert found.state == "optional"
    assert "net.core.rmem_max is 212992" in found.text
    assert found.text.endswith("sudo sysctl -w net.core.rmem_max=67108864 net.core.wmem_max=67108864")
    plant(root, PC)
    found = by_topic(fast_dds.memory_checks())["socket buffers"]
    assert found.text.endswith("sudo sysctl -w net.core.wmem_max=67108864")
    plant(root, ORIN)
    assert by_topic(fast_dds.memory_checks())["socket buffers"].state == "ok"
    for name in ("rmem_max", "wmem_max"):
        (root / "proc/sys/net/core" / name).unlink()
    assert "not visible" in by_topic(fast_dds.memory_checks())["socket buffers"].text


def test_shared_memory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = fast_dds._shared_memory()
    assert found.state == "optional"
    asked = []

    def usage(total: int, free: int) -> None:
        monkeypatch.setattr(
            fast_dds.shutil, "disk_usage", lambda path: asked.append(path) or (total * MIB, 0, free * MIB)
        )

    usage(64, 64)  # as Docker gives it
    (found,) = fast_dds._shared_memory()
    assert asked == [str(root / "dev/shm")]
    assert found.state == "problem"
    assert "64 of 64 MiB free in /dev/shm; camera and node take 256 MiB: " in found.text
    assert "sudo mount -o remount,size=256M /dev/shm; of a container: docker run --ipc=host" in found.text
    usage(1024, 100)
    (found,) = fast_dds._shared_memory()
    assert "size=1180M" in found.text
    usage(1024, 256)
    (found,) = fast_dds._shared_memory()
    assert found.state == "ok"
    for total, free, is_enough in ((64, 64, False), (200, 200, False), (1024, 100, False), (300, 140, True)):
        usage(total, free)  # before a node starts, to which the last one leaves room beside a driver that runs
        assert (not fast_dds.shared_memory_problem()) == is_enough


def test_without_ros_buffers_do_not_matter(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(root, XAVIER)
    monkeypatch.setitem(sys.modules, "rclpy", None)
    assert list(fast_dds.memory_checks()) == []


def test_the_doctor_has_all_of_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(root, XAVIER)
    installed(monkeypatch, numpy="1.21.5", cupy_cuda12x="14.2.0")
    topics = {check.topic for check in doctor.run_checks()}
    assert {"cupy's version", "jetson", "power mode", "cpu clocks", "gpu clock"} <= topics
