"""Benchmarks that could measure nothing say so before they start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import COMPILER
from support import ROOT

from polar_pipeline.cpu.native import VARIABLE

SMALL = ("--shape", "64", "64", "--repeats", "1", "--output")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=str(ROOT / "benchmarks"),
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_kernels_are_not_compared_with_themselves(tmp_path: Path) -> None:
    done = run("cpu.py", *SMALL, str(tmp_path / "cpu.json"), **{VARIABLE: "opencv"})
    assert done.returncode == 1
    assert "without compiled kernels there is nothing to compare" in done.stderr
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler (c++, or what CXX names)")
def test_what_is_compared_with_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "polanalyser.py").write_text("raise ImportError('not on this machine')\n")
    done = run("cpu.py", *SMALL, str(tmp_path / "cpu.json"), PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert done.returncode == 1
    assert done.stderr == "needs polanalyser to compare with (not on this machine); `make bench` installs it\n"
    assert not (tmp_path / "cpu.json").exists()


def test_growth_needs_frames_to_grow_in() -> None:
    done = run("soak.py", "--frames", "30")
    assert done.returncode == 2
    assert "expected at least 1000, from which growth counts, got '30'" in done.stderr
