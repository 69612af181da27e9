"""Benchmarks that could measure nothing say so before they start."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support import ROOT, run_python

SMALL = ("--shape", "64", "64", "--repeats", "1", "--output")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_python(*arguments, cwd=str(ROOT / "benchmarks"), env=environment)


def test_what_is_compared_with_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "polanalyser.py").write_text("raise ImportError('not on this machine')\n")
    done = run("cpu.py", *SMALL, str(tmp_path / "cpu.json"), PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert done.returncode == 1
    assert done.stderr == "needs polanalyser to compare with (not on this machine); `make bench` installs it\n"
    assert not (tmp_path / "cpu.json").exists()


def test_benchmarks_on_a_gpu_can_be_imported_without_one(tmp_path: Path) -> None:
    """They name much of the package, and no other test on a machine without a GPU executes them."""
    (tmp_path / "cupy.py").touch()
    done = run("-c", "import gpu, npp, ssim, timed_launch", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["gpu.py", "ssim.py"])
def test_without_cupy_nothing_is_measured_on_a_gpu(name: str, tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("raise ImportError('not on this machine')\n")
    output = tmp_path / "result.json"
    done = run(name, "--output", str(output), PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert done.returncode == 1
    assert done.stderr.startswith("needs a GPU to measure on: CuPy cannot be imported (not on this machine)")
    assert not output.exists()


@pytest.mark.ros
@pytest.mark.parametrize("name", ["camera", "camera_soak", "rig_soak"])
def test_without_aravis_no_camera_is_measured(name: str) -> None:
    code = f"from polar_pipeline.camera import aravis; aravis._LIBRARY = 'libnone.so'; import {name}; {name}.main()"
    done = run("-c", code)
    assert done.returncode == 2
    assert "error: cameras need Aravis 0.8 (libnone.so" in done.stderr
