"""What the doctor says of a machine that lacks something."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from polar_pipeline import doctor


def states() -> dict:
    return {check.topic: check for check in doctor.run_checks()}


def test_a_working_library_is_ok() -> None:
    found = states()
    for topic in ("polar_pipeline", "python", "numpy", "cv2", "rosbags", "backend cpu"):
        assert found[topic].state == "ok", found[topic]


def test_missing_ros_and_gpu_are_said_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rclpy", "cupy"):
        monkeypatch.setitem(sys.modules, name, None)  # import raises ImportError
    found = states()
    assert found["rclpy"].state == "missing"
    assert "no live node" in found["rclpy"].text
    assert found["gpu"].state == "missing"
    assert "CuPy" in found["gpu"].text


def test_the_transport_profile_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in doctor.PROFILE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert "loses 5 MB frames" in states()["transport"].text
    monkeypatch.setenv(doctor.PROFILE_VARIABLES[0], str(tmp_path / "gone.xml"))
    assert states()["transport"].state == "problem"
    profile = tmp_path / "there.xml"
    profile.write_text("<profiles/>")
    monkeypatch.setenv(doctor.PROFILE_VARIABLES[0], str(profile))
    assert states()["transport"].state == "ok"
