"""Frames of several cameras, grouped into sets: hand-made cases, and random streams against a brute-force search."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, Sequence, Tuple

import pytest

pytest.importorskip("hypothesis")
from hypothesis import given
from hypothesis import strategies as st

from polar_pipeline.camera.sets import MAX_WAITING, PATIENCE, STATUSES, FrameSet, SetMatcher, Shot, spread_ns

MS = 1_000_000
#: Period of the cameras in the cases made by hand, delay from the end of an exposure to the arrival, and tolerance.
PERIOD, DELAY, TOLERANCE = 40 * MS, 5 * MS, MS
#: (camera, number of its frame) of the frames of a set.
Members = FrozenSet[Tuple[int, int]]


def shot(start_ns: int, arrival_ns: int, exposure: float = 1.0, frame: Any = None, length_ns: int = 0) -> Shot:
    return Shot(start_ns, start_ns + length_ns, arrival_ns, exposure, frame)


class Cameras:
    """Cameras that expose at multiples of a period, by a clock that `jump` sets; the truth of each frame is known."""

    def __init__(self, count: int, tolerance_ns: int = TOLERANCE) -> None:
        self.matcher = SetMatcher(count, tolerance_ns)
        self.jump = [0] * count
        self.exposure = [1.0] * count
        self.sets: List[FrameSet] = []

    def expose(self, moment: int, cameras: Sequence[int], late_ns: int = 0) -> None:
        """Have some cameras send their frames of a moment; each frame states the moment."""
        for camera in cameras:
            true_ns = moment * PERIOD
            start, arrival = true_ns + self.jump[camera], true_ns + DELAY + late_ns
            self.sets += self.matcher.add(camera, shot(start, arrival, self.exposure[camera], moment))

    @property
    def statuses(self) -> List[Tuple[str, List[int], List[int]]]:
        """Status, cameras and moments of each set."""
        return [(row.status, sorted(row.shots), sorted(s.frame for s in row.shots.values())) for row in self.sets]


def test_cameras_in_step() -> None:
    cameras = Cameras(3)
    for moment, order in enumerate([(0, 1, 2), (2, 0, 1), (1, 2, 0)]):
        cameras.expose(moment, order)
    assert cameras.statuses == [("complete", [0, 1, 2], [k] * 3) for k in range(3)]
    assert cameras.matcher.counts == {"complete": 3, "late": 0, "missing": 0, "unequal": 0}


def test_a_lost_frame_is_known_by_the_next_one() -> None:
    cameras = Cameras(3)
    cameras.expose(0, (0, 2))
    assert not cameras.sets
    cameras.expose(1, (0, 1, 2))
    assert cameras.statuses == [("missing", [0, 2], [0, 0]), ("complete", [0, 1, 2], [1, 1, 1])]


def test_an_unplugged_camera_is_waited_for() -> None:
    cameras = Cameras(2)
    cameras.expose(0, (0, 1))
    periods = PATIENCE // PERIOD
    for moment in range(1, periods + 2):
        cameras.expose(moment, (0,))
    assert len(cameras.sets) == 1
    cameras.expose(periods + 2, (0,))
    assert cameras.statuses[1:] == [("missing", [0], [1])]
    cameras.sets += cameras.matcher.expire((periods + 2) * PERIOD + DELAY + PATIENCE + 1)
    assert cameras.statuses[1:] == [("missing", [0], [k]) for k in range(1, periods + 3)]


def test_frames_that_wait_are_few() -> None:
    matcher = SetMatcher(2, 0)
    ended = [row for k in range(MAX_WAITING + 5) for row in matcher.add(0, shot(k, k))]
    assert [row.shots[0].start_ns for row in ended] == list(range(5))


@pytest.mark.parametrize("periods", [1, -1, 2, -3])
def test_a_clock_that_jumps_by_whole_periods_matches_nothing(periods: int) -> None:
    """Stamps of different moments agree then, and none of these sets counts as complete."""
    cameras = Cameras(3)
    for moment in range(10):
        cameras.expose(moment, (0, 1, 2))
    cameras.jump[1] = periods * PERIOD
    for moment in range(10, 40):
        cameras.expose(moment, (0, 1, 2))
    cameras.jump[1] = 0
    for moment in range(40, 80):
        cameras.expose(moment, (0, 1, 2))
    for status, _, moments in cameras.statuses:
        assert status != "complete" or len(set(moments)) == 1
    good = [moments[0] for status, _, moments in cameras.statuses if status == "complete"]
    assert good[:10] == list(range(10))
    assert not set(good) & set(range(10, 40))
    assert good[-20:] == list(range(60, 80)), "it recovers"


@pytest.mark.parametrize("jump_ns", [3 * MS, -3 * MS, 700 * MS, -700 * MS, 37_000 * MS])
def test_a_clock_that_jumps_away_leaves_its_camera_out(jump_ns: int) -> None:
    cameras = Cameras(2)
    cameras.expose(0, (0, 1))
    cameras.jump[1] = jump_ns
    for moment in range(1, 30):
        cameras.expose(moment, (0, 1))
    cameras.sets += cameras.matcher.expire(10**18)
    assert {status for status, *_ in cameras.statuses[1:]} <= {"missing", "late"}
    assert sum(len(row.shots) for row in cameras.sets) == 60


def test_a_frame_after_its_set_was_given_up_is_late() -> None:
    cameras = Cameras(2)
    cameras.expose(0, (0,))
    cameras.sets += cameras.matcher.expire(DELAY + PATIENCE + 1)
    cameras.expose(0, (1,), late_ns=PATIENCE + 2)
    cameras.expose(20, (0, 1))
    assert cameras.statuses == [("missing", [0], [0]), ("late", [1], [0]), ("complete", [0, 1], [20, 20])]


@pytest.mark.parametrize(
    ("exposures", "status"),
    [
        ((1.0, 1.0), "complete"),
        ((1.0, 1.019), "complete"),
        ((1.021, 1.0), "unequal"),
        ((0.0, 0.0), "unequal"),
        ((1.0, 0.0), "unequal"),
    ],
)
def test_exposures(exposures: Tuple[float, float], status: str) -> None:
    cameras = Cameras(2)
    cameras.exposure = list(exposures)
    cameras.expose(0, (0, 1))
    assert cameras.statuses == [(status, [0, 1], [0, 0])]


def test_a_long_exposure_arrives_later_and_is_not_late() -> None:
    matcher = SetMatcher(2, TOLERANCE)
    for k in range(3):
        start = k * PERIOD
        matcher.add(0, shot(start, start + DELAY, length_ns=0))
        matcher.add(1, shot(start, start + DELAY + 30 * MS, length_ns=30 * MS))
    assert matcher.counts["complete"] == 3


def test_the_spread_is_that_of_the_starts() -> None:
    assert spread_ns({0: shot(5, 0), 3: shot(2, 9), 1: shot(4, 1)}) == 3


# -------------------------------------------------------------------------------------------- against a brute force

#: Starts of the frames of some cameras, each increasing.
STREAMS = st.lists(st.sets(st.integers(0, 60), max_size=8).map(sorted), min_size=2, max_size=4)


def brute_force(streams: List[List[int]], tolerance: int) -> List[Members]:
    """Sets by their definition, from all frames at once: the earliest frame left, with the first one of each camera."""
    left = {(camera, number) for camera, starts in enumerate(streams) for number in range(len(starts))}
    sets: List[Members] = []
    while left:
        first = min(streams[camera][number] for camera, number in left)
        fitting = [row for row in left if first <= streams[row[0]][row[1]] <= first + tolerance]
        earliest: Dict[int, Tuple[int, int]] = {}
        for row in sorted(fitting, key=lambda row: streams[row[0]][row[1]]):
            earliest.setdefault(row[0], row)
        sets.append(frozenset(earliest.values()))
        left -= sets[-1]
    return sets


def interleaved(streams: List[List[int]], data: st.DataObject) -> List[Tuple[int, int]]:
    """(camera, number of its frame) in some order that keeps each camera's own."""
    labels = [camera for camera, starts in enumerate(streams) for _ in starts]
    seen = [0] * len(streams)
    order = []
    for camera in data.draw(st.permutations(labels)):
        order.append((camera, seen[camera]))
        seen[camera] += 1
    return order


def members(rows: List[FrameSet]) -> List[Members]:
    return [frozenset((camera, each.frame) for camera, each in row.shots.items()) for row in rows]


@given(STREAMS, st.integers(0, 12), st.data())
def test_sets_are_those_of_the_definition(streams: List[List[int]], tolerance: int, data: st.DataObject) -> None:
    """In whatever order the frames of different cameras come, as long as none is given up."""
    matcher = SetMatcher(len(streams), tolerance)
    sets: List[FrameSet] = []
    for camera, number in interleaved(streams, data):
        sets += matcher.add(camera, shot(streams[camera][number], 0, frame=number))
    expected = brute_force(streams, tolerance)
    got = members(sets)
    assert got == expected[: len(got)]
    starts = [[streams[camera][number] for camera, number in row] for row in expected[len(got) :]]
    ends = [stream[-1] if stream else -1 for stream in streams]
    assert not starts or min(ends) <= max(starts[0]), "a set that no later frame can change is decided"
    complete = [row for row in expected[: len(got)] if len(row) == len(streams)]
    assert matcher.counts["complete"] + matcher.counts["late"] >= len(complete)


@given(
    st.integers(2, 4),
    st.integers(0, 12),
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(-50, 50), st.integers(0, PATIENCE), st.sampled_from([0.0, 1.0, 2.0])),
        max_size=60,
    ),
)
def test_every_frame_is_in_one_set_and_no_set_is_mixed(
    cameras: int, tolerance: int, rows: List[Tuple[int, int, int, float]]
) -> None:
    """Whatever clocks, arrivals and exposures do."""
    matcher = SetMatcher(cameras, tolerance)
    sets: List[FrameSet] = []
    now = 0
    for number, (camera, start, wait, exposure) in enumerate(rows):
        now += wait
        sets += matcher.add(camera % cameras, shot(start, now, exposure, number))
    sets += matcher.expire(now + PATIENCE + 1)
    frames = [each.frame for row in sets for each in row.shots.values()]
    assert sorted(frames) == list(range(len(rows)))
    for row in sets:
        assert spread_ns(row.shots) <= tolerance
        assert row.shots
        assert all(rows[each.frame][0] % cameras == camera for camera, each in row.shots.items())
        if row.status in ("complete", "unequal"):
            assert len(row.shots) == cameras
        if row.status == "complete":
            assert len({each.exposure for each in row.shots.values()}) == 1
            assert row.shots[0].exposure > 0
        if row.status == "missing":
            assert len(row.shots) < cameras
    assert matcher.counts == {status: sum(row.status == status for row in sets) for status in STATUSES}
