"""What the node reports about itself, on a clock made by hand."""

from __future__ import annotations

from typing import List

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_processor import Log

from polar_pipeline.live.diagnostics import LOG_PERIOD, MAX_FRAMES, WINDOW, Diagnostics, Level, RecentTimes, describe


class HandClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def diagnostics(clock: HandClock, log: Log) -> Diagnostics:
    return Diagnostics("robot/polar_pipeline", log, clock)


def frames(diagnostics: Diagnostics):
    return diagnostics.statuses("IMX250MZR", "nothing arrives on /image_raw")[0]


def judged(diagnostics: Diagnostics):
    """Level and message of the frames."""
    status = frames(diagnostics)
    return status.level, status.message


def test_idle_is_ok(diagnostics: Diagnostics) -> None:
    status = frames(diagnostics)
    assert (status.level, status.message) == (Level.OK, "idle: nothing arrives on /image_raw")
    assert status.name == "robot/polar_pipeline: frames"
    assert status.hardware_id == "IMX250MZR"
    assert status.values["rate [Hz]"] == "0.00"
    diagnostics.received()
    diagnostics.count_unwanted()
    assert judged(diagnostics) == (Level.OK, "idle: no subscribers")


def test_silence_is_a_warning_for_those_who_listen(diagnostics: Diagnostics, clock: HandClock) -> None:
    """And is logged when it begins, then once a minute; a node without subscribers is idle."""
    clock.now += 100
    assert diagnostics.note_subscribers(False) is None
    assert frames(diagnostics).level == Level.OK
    assert diagnostics.note_subscribers(True) is None
    assert frames(diagnostics).level == Level.OK  # a subscriber has just come
    clock.now += 5
    assert diagnostics.note_subscribers(True) == "no frame has come yet, although there are subscribers"
    assert judged(diagnostics) == (Level.WARN, "nothing arrives on /image_raw, although there are subscribers")
    diagnostics.received()
    diagnostics.published({})
    assert frames(diagnostics).level == Level.OK
    lines = []
    for _ in range(70):
        clock.now += 1
        lines.append(diagnostics.note_subscribers(True))
    assert [line for line in lines if line] == [
        f"no frame has come for {seconds} s, although there are subscribers" for seconds in (5, 65)
    ]
    assert frames(diagnostics).level == Level.WARN
    diagnostics.note_subscribers(False)
    assert frames(diagnostics).level == Level.OK


def test_a_slow_camera_is_not_silent(diagnostics: Diagnostics, clock: HandClock) -> None:
    for k in range(20):
        diagnostics.received(10_000_000_000 * k)
    diagnostics.note_subscribers(True)
    clock.now += 29
    assert diagnostics.note_subscribers(True) is None
    clock.now += 2
    assert diagnostics.note_subscribers(True) is not None


def test_what_is_refused_beside_frames_is_no_drop(diagnostics: Diagnostics) -> None:
    diagnostics.refuse("parameter", "threads is read-only")
    status = frames(diagnostics)
    assert (status.level, status.message) == (Level.WARN, "refused: parameter 1")
    assert status.values["refused: parameter"] == "1"
    assert not any(name.startswith("dropped") for name in status.values)
    diagnostics.dropped("overload")
    diagnostics.refuse("camera_info", "")
    diagnostics.published({})
    assert judged(diagnostics) == (Level.WARN, "dropped: overload 1; refused: camera_info 1")


def test_rate_is_that_of_the_last_seconds(diagnostics: Diagnostics, clock: HandClock) -> None:
    for _ in range(50):
        clock.now += 1.0
        diagnostics.received()
    for _ in range(100):  # 5 s at 20 Hz push the slow frames out of the period
        clock.now += 0.05
        diagnostics.received()
        diagnostics.published({"total": 0.01})
    assert judged(diagnostics) == (Level.OK, "20.0 Hz")
    clock.now += 10
    assert frames(diagnostics).values["rate [Hz]"] == "0.00"


def test_drops_warn_until_they_stop(diagnostics: Diagnostics) -> None:
    for _ in range(3):
        diagnostics.received()
        diagnostics.published({})
    diagnostics.dropped("overload")
    diagnostics.dropped("transport", 4)
    diagnostics.refuse("encoding", "got ''")
    assert judged(diagnostics) == (Level.WARN, "dropped: encoding 1, overload 1, transport 4")
    diagnostics.received()
    diagnostics.published({})
    status = frames(diagnostics)
    assert status.level == Level.OK
    assert status.values["dropped: transport"] == "4"  # the count since the start stays
    assert status.values["last error"] == "encoding: got ''"


def test_only_bad_frames_is_an_error(diagnostics: Diagnostics) -> None:
    diagnostics.received()
    diagnostics.refuse("truncated", "")
    assert frames(diagnostics).level == Level.ERROR


def test_log_is_throttled_by_cause(diagnostics: Diagnostics, clock: HandClock, log: Log) -> None:
    for cause, reason in (("step", "a"), ("step", "b"), ("size", "c\x1b")):
        diagnostics.refuse(cause, reason)
    clock.now += LOG_PERIOD
    diagnostics.refuse("step", "d", "more\nlines")
    lines = ["step, 1 so far: a", r"size, 1 so far: c\x1b", "step, 3 so far: d\nmore\nlines"]
    assert log.lines == [("warning", line) for line in lines]


def test_percentiles() -> None:
    assert describe((0.0505, 0.09505, 0.09901, 0.1)) == "50.50 / 95.05 / 99.01 / 100.00"


def test_frames_that_end_after_the_next_one_is_due_are_late(diagnostics: Diagnostics) -> None:
    assert not diagnostics.published({"total": 9.0})  # nobody knows the camera's period yet
    for k in range(20):  # 25 Hz by the stamps, however they arrive
        diagnostics.received(40_000_000 * k)
    assert not diagnostics.published({"total": 0.039})
    assert diagnostics.published({"total": 0.041})
    values = frames(diagnostics).values
    assert (values["late"], values["period [ms]"]) == ("1", "40.00")


def test_age(diagnostics: Diagnostics) -> None:
    assert diagnostics.record_age(0.004) == 0.004
    ages = [float(part) for part in frames(diagnostics).values["age [ms]"].split(" / ")]
    assert ages == pytest.approx([4.0] * 4)
    assert diagnostics.record_age(1e9) is None
    assert frames(diagnostics).values["age [ms]"] == "n/a (device clock)"
    diagnostics.restarted()
    assert frames(diagnostics).values["age [ms]"] == "n/a"
    assert diagnostics.record_age(-5.0) is None
    assert frames(diagnostics).values["age [ms]"] == "n/a (device clock)"
    assert frames(diagnostics).values["restarts"] == "1"


@given(st.lists(st.floats(-0.1, 1e3), min_size=1, max_size=300))
def test_percentiles_are_times_of_frames(samples: List[float]) -> None:
    times = RecentTimes()
    for sample in samples:
        times.add(0.0, {"total": sample})
    ordered = np.sort(np.float32(samples))
    exact = [ordered[int(rank * (len(samples) - 1))] for rank in (0.5, 0.95, 0.99, 1)]  # no interpolation
    np.testing.assert_array_equal(times.percentiles(0.0)["total"], exact)


def test_old_frames_are_forgotten() -> None:
    times = RecentTimes()
    assert times.percentiles(0.0) == {}
    times.add(0.0, {"total": 5.0, "ssim": 1.0})
    times.add(WINDOW, {"total": 0.5})
    assert times.percentiles(WINDOW) == {"total": (0.5, 0.5, 0.5, 5.0), "ssim": (1.0,) * 4}
    assert times.percentiles(WINDOW + 0.1) == {"total": (0.5,) * 4}, "nothing computed SSIM within the window"
    for _ in range(MAX_FRAMES):
        times.add(WINDOW, {"total": 0.25})
    assert times.percentiles(WINDOW) == {"total": (0.25,) * 4}, "the ring has no more frames"


def test_an_old_frame_shows_for_a_minute(diagnostics: Diagnostics) -> None:
    """However many have come since."""
    diagnostics.record_age(2.0)
    for _ in range(2000):
        diagnostics.record_age(0.001)
    p50, *_, largest = (float(part) for part in frames(diagnostics).values["age [ms]"].split(" / "))
    assert p50 == 1.0
    assert largest == 2000.0


def test_latency_by_stage(diagnostics: Diagnostics) -> None:
    diagnostics.published({"decode": 0.001, "total": 0.010})
    diagnostics.published({"decode": 0.001, "ssim": 0.005, "total": 0.010})
    latency = diagnostics.statuses("", "")[1]
    assert latency.name == "robot/polar_pipeline: latency"
    assert list(latency.values) == ["decode [ms]", "total [ms]", "ssim [ms]"]
    assert latency.values["ssim [ms]"] == "5.00 / 5.00 / 5.00 / 5.00"
