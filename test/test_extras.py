"""The extras for GPUs and the viewer: what they ask for on the systems that users have, and that pip finds it.

The second half asks a package index, which takes a minute: it is part of `make test-matrix` only.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest

markers = pytest.importorskip("packaging.requirements")
pytest.importorskip("setuptools")

ROOT = Path(__file__).parent.parent


def required(monkeypatch: pytest.MonkeyPatch, extra: str, python: str, machine: str) -> Dict[str, str]:
    """Version specifiers that an extra has on a Linux system, by package."""
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    system = {"python_version": python, "platform_machine": machine, "sys_platform": "linux"}
    rows: List[str] = runpy.run_path(str(ROOT / "setup.py"))["EXTRAS"][extra]
    found = [row for row in map(markers.Requirement, rows) if row.marker is None or row.marker.evaluate(system)]
    assert len({row.name for row in found}) == len(found), f"two rows for one package: {found}"
    return {row.name: str(row.specifier) for row in found}


@pytest.mark.parametrize(
    ("extra", "python", "machine", "cupy", "numpy"),
    [
        ("cuda11", "3.8", "aarch64", {">=12.3", "<13"}, {">=1.20", "<2"}),  # JetPack 5
        ("cuda12", "3.10", "aarch64", {">=12.3", "<13"}, {">=1.20", "<2"}),  # JetPack 6
        ("cuda13", "3.12", "aarch64", {">=13.6", "<14"}, {">=1.22", "<2"}),  # JetPack 7
        ("cuda12", "3.12", "aarch64", {">=13.6", "<14"}, {">=1.22", "<2"}),
        ("cuda12", "3.10", "x86_64", {">=12.3", "<13"}, {">=1.20", "<2"}),  # a PC with Ubuntu 22.04 and Humble
        ("cuda13", "3.10", "x86_64", {">=13.6", "<14"}, {">=1.20", "<2"}),  # and CUDA 13, which CuPy 12 does not know
        ("cuda12", "3.12", "x86_64", {">=12.3"}, None),
        ("cuda13", "3.14", "x86_64", {">=12.3"}, None),
        ("cuda13", "3.14", "aarch64", {">=12.3"}, None),
    ],
)
def test_cupy_of_a_system_leaves_its_numpy(
    extra: str, python: str, machine: str, cupy: set, numpy: set, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = required(monkeypatch, extra, python, machine)
    assert set(found.pop(f"cupy-{extra}x").split(",")) == cupy
    assert set(found.pop("numpy").split(",")) == numpy if numpy else "numpy" not in found
    assert all(name.startswith("nvidia-cuda-nvrtc") for name in found)
    assert bool(found) == (machine == "x86_64"), "a Jetson has NVRTC in its CUDA toolkit"


# ------------------------------------------------------------------------------------------------------ package index


def resolved(requirements: List[str], python: str) -> Dict[str, str]:
    """Versions by package that pip would install on an arm64 machine. It takes wheels only, as there is no compiler.

    pip reads the markers of what it resolves as those of the Python that runs it; requirements must have none.
    """
    full = {"3.8": "3.8.10"}.get(python, python)  # Ubuntu 20.04's; pip takes 3.8 for 3.8.0, which rosbags does not
    platforms = ["manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_28_aarch64", "manylinux_2_31_aarch64"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", full, "--target", "unused"]
    command += [part for platform in platforms for part in ("--platform", platform)]
    done = subprocess.run([*command, *requirements], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    return {row["metadata"]["name"].lower(): row["metadata"]["version"] for row in report["install"]}


@pytest.fixture(scope="module")
def index() -> None:
    """Skips unless a package index answers."""
    probe = [sys.executable, "-m", "pip", "--retries", "0", "--timeout", "10", "index", "versions", "numpy"]
    if subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("needs a package index: pip finds no NumPy")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("extra", "python", "package", "systems_numpy"),
    [
        ("cuda11", "3.8", "cupy-cuda11x==12.*", "1.*"),  # JetPack 5: its NumPy 1.17 is too old for any CuPy of CUDA 11
        ("cuda12", "3.10", "cupy-cuda12x==12.*", "1.21.5"),  # JetPack 6
        ("cuda13", "3.12", "cupy-cuda13x==13.*", "1.26.4"),  # JetPack 7
        ("view", "3.8", "rerun-sdk==0.21.*", "1.*"),
        ("view", "3.10", "rerun-sdk==0.22.*", "1.*"),
        ("view", "3.12", "rerun-sdk==0.22.*", "1.*"),
        ("view", "3.13", "rerun-sdk==0.*", "2.*"),
    ],
)
def test_pip_finds_what_a_jetson_needs(
    extra: str, python: str, package: str, systems_numpy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package with its extra, beside the NumPy of the system, which pip then replaces by no other."""
    rows = [f"{name}{version}" for name, version in required(monkeypatch, extra, python, "aarch64").items()]
    monkeypatch.setitem(sys.modules, "setuptools.build_meta", None)  # setup.py then takes itself to be run by pip
    rows += runpy.run_path(str(ROOT / "setup.py"))["REQUIRES"]
    pinned = [] if "*" in systems_numpy else [f"numpy=={systems_numpy}"]
    for found in (resolved(rows + pinned, python), resolved(rows, python)):  # also where no NumPy is installed
        for row in (package, f"numpy=={systems_numpy[0]}.*"):
            requirement = markers.Requirement(row)
            assert requirement.specifier.contains(found[requirement.name]), found
