"""`polar-pipeline view --topic NAME`: a live topic, written to a file until Ctrl-C."""
# ruff: noqa: E402 - rclpy and Rerun may be missing

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")

import drill
from rrd import image, read
from support import ROOT, TIMEOUT, wait_for

from polar_pipeline.cli import main

pytestmark = pytest.mark.ros


def start(out: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command, in a process of its own."""
    command = [sys.executable, "-m", "polar_pipeline", "view", "--topic", "/image_raw", "--backend", "cpu"]
    command += ["--products", "dolp,ssim", "--save", str(out), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=str(out.parent)
    )


def test_ctrl_c_ends_and_keeps_what_came(peer: drill.Peer, tmp_path: Path) -> None:
    """Every frame of the file is one that was sent, in order, with its own products."""
    process = start(tmp_path / "out.rrd")

    def has_frames() -> bool:
        peer.send()
        time.sleep(0.05)
        return any(path.stat().st_size > 200_000 for path in tmp_path.glob(".out.rrd.*"))

    wait_for(has_frames, "frames in the file")
    peer.send(cdr=b"\x00\x01\x00\x00broken")  # costs nothing but itself
    for _ in range(10):
        has_frames()
    process.send_signal(signal.SIGINT)
    said, warned = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, warned
    assert "waits for images on /image_raw; Ctrl-C ends" in warned
    assert "not usable: 1 x cdr" in warned
    rows = read(tmp_path / "out.rrd")
    stamps = [row["stamp"] for row in rows["/polarization/dolp"]]
    assert stamps == sorted(set(stamps))
    for row, similarity in zip(rows["/polarization/dolp"], rows["/quality/ssim"]):
        np.testing.assert_array_equal(image(row), drill.product_of(row["stamp"], "dolp"))
        assert similarity["scalars"] == float(drill.product_of(row["stamp"], "ssim"))
    assert f"{len(stamps)} frames on cpu" in said
    assert [path.name for path in tmp_path.iterdir()] == ["out.rrd"]


def test_a_name_that_is_none(tmp_path: Path, capsys: Any) -> None:
    assert main(["view", "--topic", "no topic", "--save", str(tmp_path / "out.rrd")]) == 1
    assert "'no topic' is not a topic's name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
