"""Percentiles, counts and deadlines over a sliding window, by a clock that the test turns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polar_pipeline.quality.latency import ACCURACY, GAPS, PARTS, Deadline, SlidingWindow


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=300), st.integers(1, PARTS))
def test_percentiles_are_those_of_all_samples(samples: list, pieces: int) -> None:
    """Spread over several pieces of the window, each percentile is within the accuracy of a sample's."""
    clock = Clock()
    window = SlidingWindow(60.0, clock)
    for k, sample in enumerate(samples):
        clock.now = 1000.0 + 60.0 * (k * pieces // len(samples)) / PARTS
        window.add({"total": sample})
    found = window.percentiles()["total"]
    exact = [sorted(samples)[int(rank * (len(samples) - 1))] for rank in (0.5, 0.95, 0.99)]  # no interpolation
    # 1e-9 for the rounding of the logarithm where a sample lies on a bin's border
    np.testing.assert_allclose(found[:3], exact, rtol=ACCURACY + 1e-9)
    assert found.max == max(samples)
    assert found.p50 <= found.p95 <= found.p99 <= found.max


def test_zero_and_negative_times() -> None:
    """A stage may take no time at all by the clock, and an age may be below 0."""
    window = SlidingWindow(clock=Clock())
    for seconds in (0.0, 0.0, -0.01):
        window.add({"age": seconds})
    assert window.percentiles()["age"] == (0.0, 0.0, 0.0, 0.0)


def test_old_frames_are_forgotten() -> None:
    clock = Clock()
    window = SlidingWindow(60.0, clock)
    window.add({"total": 5.0, "ssim": 1.0})
    window.count("overload", 3)
    clock.now += 60.0
    window.add({"total": 0.1})
    assert window.percentiles()["total"].max == 5.0, "a frame within the window is missing"
    assert window.counts() == {"overload": 3}
    clock.now += 60.0 / PARTS + 1e-6
    assert window.percentiles().keys() == {"total"}, "nothing computed SSIM within the window"
    assert window.percentiles()["total"].max == 0.1
    assert not window.counts()
    clock.now += 1e6
    assert not window.percentiles()


def test_memory_does_not_grow() -> None:
    clock = Clock()
    window = SlidingWindow(60.0, clock)
    for _ in range(1000):
        clock.now += 5.0
        window.add({"total": 0.01})
        window.count("deadline")
    assert len(window._parts) <= PARTS + 1


def test_stages_keep_their_order() -> None:
    window = SlidingWindow(clock=Clock())
    window.add({"queue": 0.1, "decode": 0.1, "total": 0.2})
    window.add({"ssim": 0.1, "queue": 0.1})
    assert list(window.percentiles()) == ["queue", "decode", "total", "ssim"]


# ------------------------------------------------------------------------------------------------------------ deadlines


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
