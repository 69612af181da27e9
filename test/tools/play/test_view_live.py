"""`polar-pipeline view --topic NAME`: a live topic, written to a file until Ctrl-C."""
# ruff: noqa: E402 - rclpy and Rerun may be missing

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")

import drill
from rrd import image, read
from support import wait_for

from polar_pipeline.cli import main

pytestmark = pytest.mark.ros


def test_ctrl_c_ends_and_keeps_what_came(start: Any, peer: drill.Peer, tmp_path: Path) -> None:
    """Every frame of the file is one that was sent, in order, with its own products."""
    folder = tmp_path / "out"
    folder.mkdir()
    command = ("view", "--topic", "/image_raw", "--backend", "cpu", "--products", "dolp,ssim")
    process = start("-m", "polar_pipeline", *command, "--save", str(folder / "out.rrd"))

    def has_frames() -> bool:
        peer.send()
        time.sleep(0.05)
        return any(path.stat().st_size > 200_000 for path in folder.glob(".out.rrd.*"))

    wait_for(has_frames, "frames in the file")
    peer.send(cdr=b"\x00\x01\x00\x00broken")  # costs nothing but itself
    for _ in range(10):
        has_frames()
    process.assert_end(0, signal.SIGINT)
    assert "waits for images on /image_raw; Ctrl-C ends" in process.text
    assert "not usable: 1 x cdr" in process.text
    rows = read(folder / "out.rrd")
    stamps = [row["stamp"] for row in rows["/polarization/dolp"]]
    assert stamps == sorted(set(stamps))
    for row, similarity in zip(rows["/polarization/dolp"], rows["/quality/ssim"]):
        np.testing.assert_array_equal(image(row), drill.product_of(row["stamp"], "dolp"))
        assert similarity["scalars"] == float(drill.product_of(row["stamp"], "ssim"))
    assert f"{len(stamps)} frames on cpu" in process.text
    assert [path.name for path in folder.iterdir()] == ["out.rrd"]


def test_a_name_that_is_none(tmp_path: Path, capsys: Any) -> None:
    assert main(["view", "--topic", "no topic", "--save", str(tmp_path / "out.rrd")]) == 1
    assert "'no topic' is not a topic's name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
