"""Deadlines by the camera's stamps."""

from __future__ import annotations

import pytest

from polar_pipeline.quality.latency import GAPS, Deadline


def test_period_is_the_cameras() -> None:
    """Lost frames, a restart of the camera and a pause leave the period as it is."""
    deadline = Deadline()
    stamps = [40_000_000 * k for k in range(30) if k % 7]
    stamps += [1_000_000 + 40_000_000 * k for k in range(5)]  # started again
    stamps += [stamps[-1] + 60_000_000_000]  # a minute's pause
    for stamp in stamps:
        deadline.arrived(stamp)
    assert deadline.period == 0.04
    assert not deadline.missed(0.04)
    assert deadline.missed(0.0401)


def test_equal_stamps_are_no_period() -> None:
    """A camera whose clock is coarser than its frames."""
    deadline = Deadline()
    for k in range(60):
        deadline.arrived(k // 3 * 30_000_000)
    assert deadline.period == 0.03


def test_no_deadline_before_the_period_is_known() -> None:
    deadline = Deadline()
    for k in range(GAPS[0]):
        deadline.arrived(k * 10_000_000)
        assert not deadline.missed(1e6)
    deadline.arrived(GAPS[0] * 10_000_000)
    assert deadline.missed(0.011)


@pytest.mark.parametrize("rate", [24.0, 100.0])
def test_period_follows_the_camera(rate: float) -> None:
    deadline = Deadline()
    for k in range(100):
        deadline.arrived(round(k * 1e9 / 5))
    start = round(100 * 1e9 / 5)
    for k in range(GAPS[1]):
        deadline.arrived(start + round(k * 1e9 / rate))
    assert deadline.period == pytest.approx(1 / rate, abs=1e-9)  # stamps are whole nanoseconds
