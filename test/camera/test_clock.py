"""The clock of a camera against simulated truth: stamps, offset and drift, jumps, PTP."""

from __future__ import annotations

import random
from typing import Callable, Dict, List, NamedTuple, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polar_pipeline.camera.clock import START, DeviceClock, ptp_stamp

SECOND = 10**9
EPOCH = 1_790_000_000 * SECOND
MS = 1e6

Delay = Callable[[random.Random], float]
#: Delays in seconds.
DELAYS: Dict[str, Delay] = {
    "exponential": lambda source: source.expovariate(1 / 5e-3),
    "uniform": lambda source: source.uniform(0, 10e-3),
    "heavy tail": lambda source: min(2e-3 * (source.paretovariate(1.5) - 1), 80e-3),
    "none": lambda _: 0.0,
}


def observed_stamp(clock: DeviceClock, device_ns: int, arrival_ns: int) -> int:
    """Show a frame to the clock, and return its stamp."""
    clock.observe(device_ns, arrival_ns)
    return clock.convert(device_ns, arrival_ns)


class Frame(NamedTuple):
    """A stamped frame; `time` is the simulated truth in seconds, the others are nanoseconds."""

    time: float
    device: int
    delay: int
    error: int  # of the stamp
    offset_error: int  # of the model
    stamp: int
    jumps: int


class Simulation:
    """A camera and a computer, whose clocks can be set while frames are exposed."""

    def __init__(self, rate: float = 24, drift: float = 0, delay: str = "exponential", seed: int = 0) -> None:
        self.clock = DeviceClock()
        self.frames: List[Frame] = []
        self.rate, self.drift, self.delay = rate, drift, DELAYS[delay]
        self.source = random.Random(seed)
        self.time = 0.0
        self.device = self.source.uniform(0, 1000) * SECOND
        self.computer = EPOCH

    def pause(self, seconds: float) -> None:
        """Let time pass; `drift` is how much faster, in ppm, the computer's clock is than the device's."""
        self.time += seconds
        self.device += seconds * (1 - self.drift * 1e-6) * SECOND

    def expose(self, seconds: float, late: Optional[Callable[[float], float]] = None) -> List[Frame]:
        """Stamp frames for this time; `late` is an additional delay by the time since the call, in seconds."""
        count = len(self.frames)
        start = self.time
        for _ in range(round(seconds * self.rate)):
            delay = self.delay(self.source) + (late(self.time - start) if late else 0)
            truth = self.computer + round(self.time * SECOND)
            device, delay_ns = round(self.device), round(delay * SECOND)
            stamp = observed_stamp(self.clock, device, truth + delay_ns)
            assert self.clock.offset_ns is not None
            offset_error = device + self.clock.offset_ns - truth
            assert offset_error <= delay_ns + 1  # the line is below every frame
            jumps = self.clock.jumps
            self.frames.append(Frame(self.time, device, delay_ns, stamp - truth, offset_error, stamp, jumps))
            self.pause(1 / self.rate)
        return self.frames[count:]


def worst(frames: List[Frame]) -> float:
    """Largest error of a stamp in milliseconds."""
    return max(abs(frame.error) for frame in frames) / MS


def assert_even(frames: List[Frame]) -> None:
    """Stamps increase with the device's time and keep its intervals to 1 %, 10 % in the first second of a model."""
    start = frames[0]
    for last, frame in zip(frames, frames[1:]):
        if frame.jumps != last.jumps:
            start = frame
            continue
        interval, stamps = frame.device - last.device, frame.stamp - last.stamp
        assert stamps > 0
        assert abs(stamps - interval) <= interval // (10 if frame.device - start.device < START else 100)


@pytest.mark.parametrize("drift", [100, -100, 0])
@pytest.mark.parametrize("seed", range(5))
def test_the_error_is_small_after_30_seconds(drift: float, seed: int) -> None:
    simulation = Simulation(24, drift, "exponential", seed)
    simulation.expose(30)
    assert worst(simulation.expose(40)) < 0.3
    assert simulation.clock.drift_ppm == pytest.approx(drift, abs=5)
    assert simulation.clock.jumps == 0
    assert_even(simulation.frames)


@pytest.mark.parametrize("delay", ["uniform", "heavy tail", "none"])
@pytest.mark.parametrize(("rate", "limit"), [(5, 1.5), (24, 0.3), (200, 0.1)])
@pytest.mark.parametrize("drift", [200, -200])
def test_rates_and_delays(delay: str, rate: float, limit: float, drift: float) -> None:
    simulation = Simulation(rate, drift, delay, seed=1)
    simulation.expose(30)
    assert worst(simulation.expose(30)) < limit
    assert simulation.clock.drift_ppm == pytest.approx(drift, abs=20)
    assert simulation.clock.jumps == 0
    assert_even(simulation.frames)


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("drift", [200, -200])
def test_the_first_second_has_at_most_the_smallest_delay_as_error(delay: str, drift: float) -> None:
    for seed in range(20):
        simulation = Simulation(24, drift, delay, seed)
        smallest = SECOND
        for frame in simulation.expose(1):
            smallest = min(smallest, frame.delay)
            drifted = round(abs(drift) * 1e-6 * frame.time * SECOND) + 2
            assert -drifted <= frame.offset_error <= smallest + drifted
        # The stamps follow at 10 %: from the largest delay of the first frame, 80 ms, within the second.
        assert worst(simulation.frames[-1:]) <= (smallest + drifted) / MS


def test_a_late_first_frame_is_slewed() -> None:
    simulation = Simulation(delay="none")
    first, *others = simulation.expose(2, lambda time: 0.05 if time == 0 else 0)
    assert first.error == 50 * MS
    assert [frame.error > 0 for frame in others[:5]] == [True] * 5
    assert worst(others[-24:]) < 0.001
    assert simulation.clock.jumps == 0
    assert_even(simulation.frames)


@pytest.mark.parametrize("bend", [0.02, -0.02, 0.1, -0.1])
def test_the_drift_may_change(bend: float) -> None:
    """By ppm per second: 6 ppm a minute is a camera that warms up fast."""
    simulation = Simulation(24, 20)
    for second in range(180):
        simulation.drift += bend
        frames = simulation.expose(1)
        assert second < 30 or worst(frames) < 0.3
    assert simulation.clock.jumps == 0


@pytest.mark.parametrize("seconds", [0.15, 0.9, 1.1, 37, 1e6])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("which", ["device", "computer"])
@pytest.mark.parametrize("rate", [5, 24, 200])
def test_steps_of_a_clock_are_jumps(seconds: float, sign: int, which: str, rate: float) -> None:
    """A step of up to a second that makes frames late looks like a burst until 10 s have passed."""
    simulation = Simulation(rate, 50, seed=2)
    simulation.expose(20)
    setattr(simulation, which, getattr(simulation, which) + sign * round(seconds * SECOND))
    is_early = (which == "device") == (sign > 0)
    is_backward = which == "device" and sign < 0 and seconds > 1 / rate
    after = simulation.expose(31)
    jumped = next(index for index, frame in enumerate(after) if frame.jumps)
    if is_early or is_backward:
        assert jumped == 0
    elif seconds > 1:
        assert jumped <= max(4, 0.3 * rate)
    else:
        assert jumped <= 10.3 * rate
    assert simulation.clock.jumps == 1
    assert worst(after[-round(rate) :]) < (1.5 if rate == 5 else 0.5)
    assert_even(simulation.frames)


@pytest.mark.parametrize("rate", [5, 24, 200])
def test_a_step_is_seen_among_later_frames(rate: float) -> None:
    simulation = Simulation(rate)
    simulation.expose(20)
    simulation.computer += 2 * SECOND
    after = simulation.expose(4, lambda time: 0.4 if time * 977 % 1 < 0.2 else 0)
    assert simulation.clock.jumps == 1
    assert worst(after[-1:]) < 10


@pytest.mark.parametrize("uptime", [1, 20.1, 1000])
def test_a_restarted_camera_starts_at_zero(uptime: float) -> None:
    simulation = Simulation(24, -50)
    simulation.device = (uptime - 20) * SECOND if uptime > 20 else 0
    simulation.expose(20)
    simulation.pause(7)
    simulation.device = 0
    first, *others = simulation.expose(20)
    assert first.jumps == 1
    assert first.error == first.delay
    assert simulation.clock.jumps == 1
    assert worst(others[-24:]) < 0.5
    assert simulation.clock.drift_ppm == pytest.approx(-50, abs=20)


@pytest.mark.parametrize("seconds", [1, 30, 300, 3000])
@pytest.mark.parametrize("before", [2, 40])
@pytest.mark.parametrize("drift", [30, -30])
def test_a_pause_is_not_a_jump(seconds: float, before: float, drift: float) -> None:
    simulation = Simulation(24, drift, seed=3)
    simulation.expose(before)
    simulation.pause(seconds)
    after = simulation.expose(40)
    assert simulation.clock.jumps == 0
    assert before < 40 or seconds > 300 or worst(after[:24]) < 10
    assert worst(after[-24:]) < 0.3
    assert_even(simulation.frames)


@pytest.mark.parametrize("drift", [150, -150])
def test_a_pause_before_the_drift_is_known(drift: float) -> None:
    simulation = Simulation(24, drift)
    simulation.expose(2)
    simulation.pause(900)
    after = simulation.expose(20)
    assert simulation.clock.jumps == 0
    assert worst(after[48:]) < 1
    assert_even(simulation.frames)


def test_rare_triggers_follow_a_changing_drift() -> None:
    """By 18 ppm in an hour, with a frame a minute."""
    simulation = Simulation(1 / 60, delay="none")
    for minute in range(60):
        simulation.drift += 0.3
        (frame,) = simulation.expose(60)
        assert minute < 20 or worst([frame]) < 1.5


def test_rare_triggers() -> None:
    """One frame in 20 s: the window covers minutes."""
    simulation = Simulation(0.05, 80, "uniform")
    simulation.expose(1200)
    assert worst(simulation.expose(1200)) < 10
    assert simulation.clock.drift_ppm == pytest.approx(80, abs=15)
    assert simulation.clock.jumps == 0


@pytest.mark.parametrize("rate", [5, 24, 200])
@pytest.mark.parametrize(
    "late",
    [
        lambda _: 0.05,
        lambda _: 0.5,
        lambda time: max(3 - time, 0),  # frames wait for 3 s and then come at once
        lambda time: max(2 - 0.5 * time, 0),
        lambda time: 0.3 + 0.2 * (time * 977 % 1),
        lambda time: 1.2 + 3 * (time * 977 % 1),
    ],
    ids=["little", "constant", "stop", "slow", "random", "random, large"],
)
def test_a_late_burst_is_not_a_jump(rate: float, late: Callable[[float], float]) -> None:
    simulation = Simulation(rate, 40, seed=4)
    simulation.expose(40)
    burst = simulation.expose(4, late)
    after = simulation.expose(20)
    assert simulation.clock.jumps == 0
    assert worst(burst + after) < (1.5 if rate == 5 else 0.3)
    assert_even(simulation.frames)


def test_a_late_burst_of_few_frames_is_not_a_jump() -> None:
    simulation = Simulation(2)
    simulation.expose(20)
    for _ in range(3):
        simulation.expose(2, lambda _: 1.5)
        simulation.expose(10)
    assert simulation.clock.jumps == 0


def test_a_late_burst_at_the_beginning_bends_the_line_little() -> None:
    simulation = Simulation(24)
    simulation.expose(3)
    assert worst(simulation.expose(6, lambda _: 0.05)) < 6
    assert simulation.clock.jumps == 0


def test_a_step_in_a_late_burst_is_a_jump() -> None:
    simulation = Simulation(24)
    simulation.expose(20)
    simulation.expose(0.5, lambda _: 0.4)
    simulation.computer += 2 * SECOND
    after = simulation.expose(3)
    assert simulation.clock.jumps == 1
    assert worst(after[-24:]) < 10


def test_a_start_in_a_late_burst_recovers() -> None:
    simulation = Simulation(24)
    simulation.expose(2, lambda _: 0.8)
    after = simulation.expose(5)
    assert simulation.clock.jumps == 1
    assert worst(after[-24:]) < 1


@pytest.mark.parametrize("milliseconds", [-50, -5, 50])
def test_stamps_follow_a_step_too_small_for_a_jump(milliseconds: int) -> None:
    simulation = Simulation(24)
    simulation.expose(70)
    simulation.computer += milliseconds * 10**6
    after = simulation.expose(80)
    assert simulation.clock.jumps == 0
    followed = 6 if milliseconds < 0 else 65  # seconds
    assert worst(after[followed * 24 :]) < 0.3
    assert_even(simulation.frames)


PARTS = st.lists(
    st.one_of(
        st.tuples(st.just("expose"), st.floats(0.1, 15)),
        st.tuples(st.just("pause"), st.floats(0, 400)),
        st.tuples(st.just("burst"), st.floats(0, 3)),
        st.tuples(st.just("computer"), st.floats(-5, 5)),
        st.tuples(st.just("device"), st.floats(-5, 5)),
        st.tuples(st.just("drift"), st.floats(-200, 200)),
    ),
    max_size=8,
)


@given(st.sampled_from([5, 24, 60]), st.sampled_from(sorted(DELAYS)), st.integers(0, 99), PARTS)
def test_stamps_are_even_between_jumps(rate: int, delay: str, seed: int, parts: List[tuple]) -> None:
    simulation = Simulation(rate, 0, delay, seed)
    simulation.expose(1)
    for part, value in parts:
        if part == "expose":
            simulation.expose(value)
        elif part == "pause":
            simulation.pause(value)
        elif part == "burst":
            simulation.expose(2, lambda _, late=value: late)
        elif part == "drift":
            simulation.drift = value
        else:
            setattr(simulation, part, getattr(simulation, part) + round(value * SECOND))
    simulation.expose(1)
    assert_even(simulation.frames)


@given(st.lists(st.tuples(st.integers(-5, 2**62), st.integers(0, 2**62)), min_size=1, max_size=40))
def test_any_integers_are_stamped(times: List[tuple]) -> None:
    clock = DeviceClock()
    last = None
    for device, arrival in times:
        stamp, jumps = observed_stamp(clock, device, arrival), clock.jumps
        if last is not None and device > last[0] and jumps == last[2]:
            assert stamp > last[1]
        last = device, stamp, jumps


def test_diagnostics() -> None:
    simulation = Simulation(24, 60, "uniform")
    clock = simulation.clock
    assert (clock.offset_ns, clock.drift_ppm, clock.jitter_ns, clock.jumps) == (None, None, None, 0)
    (frame,) = simulation.expose(1 / 24)
    assert (clock.offset_ns, clock.drift_ppm, clock.jitter_ns) == (frame.stamp - frame.device, None, 0)
    simulation.expose(40)
    frame = simulation.frames[-1]
    assert clock.offset_ns == pytest.approx(frame.stamp - frame.device, abs=1)
    assert clock.drift_ppm == pytest.approx(60, abs=5)
    assert clock.jitter_ns == pytest.approx(9.5 * MS, abs=0.4 * MS)
    simulation.device += SECOND
    simulation.expose(1 / 24)
    assert (clock.drift_ppm, clock.jitter_ns, clock.jumps) == (None, 0, 1)


@pytest.mark.parametrize("ahead", [0, 37])
@pytest.mark.parametrize("difference", [0, 0.499, -0.499])
def test_ptp_in_utc_and_tai(ahead: int, difference: float) -> None:
    device = EPOCH + ahead * SECOND + 123
    assert ptp_stamp(device, EPOCH + round(difference * SECOND)) == EPOCH + 123


@pytest.mark.parametrize("ahead", [-37, -0.6, 0.6, 1, 36, 38, -1e9])
def test_ptp_of_another_time(ahead: float) -> None:
    assert ptp_stamp(EPOCH + round(ahead * SECOND), EPOCH) is None
