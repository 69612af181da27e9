"""Which tests are run again when they fail, and what is shown of the first failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

pytest.importorskip("pytest_rerunfailures")

SOMETIMES = """
import pathlib, pytest

def at_the_second_attempt(name):
    path = pathlib.Path(__file__).with_name(name)
    attempts = len(path.read_text()) if path.exists() else 0
    path.write_text("x" * (attempts + 1))
    assert attempts, f"first attempt of {name}"
"""
OF_ROS = f"{SOMETIMES}\n@pytest.mark.ros\ndef test_node(): at_the_second_attempt('node')\n"
WRONG = f"{SOMETIMES}\n@pytest.mark.ros\ndef test_wrong(): assert False\n"
COMPUTING = f"{SOMETIMES}\ndef test_sums(): at_the_second_attempt('sums')\n"


def run(folder: Path, text: str, workers: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests with the plugin."""
    (folder / "test_sometimes.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = ros\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "test"), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "reruns", "-p", "no:cacheprovider", "-n", workers, str(folder)]
    return subprocess.run(command, cwd=str(folder), env=environment, stdout=subprocess.PIPE, text=True, check=False)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_nodes_have_a_second_attempt_and_the_first_is_shown(workers: str, tmp_path: Path) -> None:
    done = run(tmp_path, OF_ROS, workers)
    assert done.returncode == 0, done.stdout
    _, shown = done.stdout.split(" failed once and run again ==")
    assert "test_sometimes.py::test_node" in shown
    assert "first attempt of node" in shown
    assert "1 passed, 1 rerun" in shown


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    done = run(tmp_path, WRONG, "0")
    assert done.returncode == 1
    assert "1 failed, 1 rerun" in done.stdout


def test_what_only_computes_has_one_attempt(tmp_path: Path) -> None:
    done = run(tmp_path, COMPUTING, "0")
    assert done.returncode == 1
    assert "1 failed in" in done.stdout
