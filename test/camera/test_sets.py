"""Frames of several cameras, grouped into sets: hand-made cases, and random streams against a brute-force search."""

from __future__ import annotations

import math
from typing import Any, Dict, FrozenSet, List, Tuple

import pytest

pytest.importorskip("hypothesis")
from hypothesis import given
from hypothesis import strategies as st

from polar_pipeline.camera.sets import (
    DOUBTFUL,
    MAX_WAIT_NS,
    MAX_WAITING_FRAMES,
    STATUSES,
    Arrival,
    FrameSet,
    SetMatcher,
    Shot,
)

MS = 1_000_000
#: Period of the cameras in the cases made by hand, delay from the end of an exposure to the arrival, and tolerance.
PERIOD, DELAY, TOLERANCE = 40 * MS, 5 * MS, MS
#: (camera, number of its frame) of the frames of a set.
Members = FrozenSet[Tuple[str, int]]


def shot(
    start_ns: int, arrival_ns: int, exposure: float = 1.0, frame: Any = None, length_ns: int = 0, number: int = 0
) -> Shot:
    return Shot(start_ns, start_ns + length_ns, Arrival(arrival_ns, number), exposure, frame)


class Cameras:
    """Cameras that expose at multiples of a period, by a clock that `jump` sets; the truth of each frame is known.

    Args:
        names: Their names, a letter each.
        is_new: Whether moment 0 is the first one; else there were so many sets before that others are not late.
        counted: Numbers of frames before moment 0, other than usual, by name.
    """

    def __init__(self, names: str, is_new: bool = False, **counted: int) -> None:
        self.matcher = SetMatcher(names, TOLERANCE)
        self.jump = dict.fromkeys(names, 0)
        self.exposure = dict.fromkeys(names, 1.0)
        self.counted = {**{name: 7 * place for place, name in enumerate(names)}, **counted}
        self.sets: List[FrameSet] = []
        if not is_new:
            for moment in range(-DOUBTFUL, 0):
                self.expose(moment, names)
            self.sets.clear()

    def expose(self, moment: int, names: str, late_ns: int = 0) -> None:
        """Have some cameras send their frames of a moment; each frame states the moment."""
        for name in names:
            true_ns = moment * PERIOD
            start, arrival = true_ns + self.jump[name], true_ns + DELAY + late_ns
            number = (moment + self.counted[name]) % 0xFFFF + 1  # as older cameras count
            self.sets += self.matcher.add(name, shot(start, arrival, self.exposure[name], moment, number=number))

    @property
    def statuses(self) -> List[Tuple[str, str, List[int]]]:
        """Status, cameras and moments of each set."""
        return [
            (row.status, "".join(sorted(row.shots)), sorted(each.frame for each in row.shots.values()))
            for row in self.sets
        ]


def test_cameras_in_step() -> None:
    cameras = Cameras("abc")
    for moment, order in enumerate(["abc", "cab", "bca"]):
        cameras.expose(moment, order)
    assert cameras.statuses == [("complete", "abc", [k] * 3) for k in range(3)]
    assert cameras.matcher.counts == {"complete": 3, "late": DOUBTFUL, "missing": 0, "unequal": 0}


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("periods", [0, 1, -1, 2, -2])
def test_nothing_is_known_of_the_clocks_at_the_start(periods: int, lost: int) -> None:
    """The second camera loses its first frames and has a clock that is wrong by whole periods: no set is mixed."""
    cameras = Cameras("ab", is_new=True)
    cameras.jump["b"] = periods * PERIOD
    for moment in range(30):
        cameras.expose(moment, "ab" if moment >= lost else "a")
    complete = [moments for status, _, moments in cameras.statuses if status == "complete"]
    assert complete == ([] if periods else [[k, k] for k in range(lost + DOUBTFUL, 30)])


def test_the_first_frames_of_two_cameras_are_of_different_moments() -> None:
    cameras = Cameras("ab", is_new=True)
    cameras.jump["b"] = -PERIOD
    cameras.expose(0, "a")
    for moment in range(1, 4):
        cameras.expose(moment, "ba")
    assert cameras.statuses == [("late", "ab", [k, k + 1]) for k in range(3)]


def test_a_lost_frame_is_known_by_the_next_one() -> None:
    cameras = Cameras("abc")
    cameras.expose(0, "ac")
    assert not cameras.sets
    cameras.expose(1, "abc")
    assert cameras.statuses == [("missing", "ac", [0, 0]), ("complete", "abc", [1, 1, 1])]


def test_an_unplugged_camera_is_waited_for() -> None:
    cameras = Cameras("ab")
    cameras.expose(0, "ab")
    periods = MAX_WAIT_NS // PERIOD
    for moment in range(1, periods + 2):
        cameras.expose(moment, "a")
    assert len(cameras.sets) == 1
    cameras.expose(periods + 2, "a")
    cameras.expose(periods + 3, "a")
    assert cameras.statuses[1:] == [("missing", "a", [1]), ("missing", "a", [2])]
    cameras.expose(periods + 4, "ab")
    assert cameras.statuses[3:-1] == [("missing", "a", [k]) for k in range(3, periods + 4)]
    assert cameras.statuses[-1] == ("complete", "ab", [periods + 4] * 2)


def test_frames_that_wait_are_few() -> None:
    matcher = SetMatcher("ab", 0)
    ended = [row for k in range(MAX_WAITING_FRAMES + 5) for row in matcher.add("a", shot(k, k))]
    assert [row.shots["a"].start_ns for row in ended] == list(range(5))


@pytest.mark.parametrize("periods", [1, -1, 2, -3])
def test_a_clock_that_jumps_by_whole_periods_matches_nothing(periods: int) -> None:
    """Stamps of different moments agree then, and none of these sets counts as complete."""
    cameras = Cameras("abc")
    for moment in range(10):
        cameras.expose(moment, "abc")
    cameras.jump["b"] = periods * PERIOD
    for moment in range(10, 40):
        cameras.expose(moment, "abc")
    cameras.jump["b"] = 0
    for moment in range(40, 80):
        cameras.expose(moment, "abc")
    for status, _, moments in cameras.statuses:
        assert status != "complete" or len(set(moments)) == 1
    good = [moments[0] for status, _, moments in cameras.statuses if status == "complete"]
    assert good[:10] == list(range(10))
    assert not set(good) & set(range(10, 40))
    assert good[-20:] == list(range(60, 80)), "it recovers"


@pytest.mark.parametrize("jump_ns", [3 * MS, -3 * MS, 700 * MS, -700 * MS, 37_000 * MS])
def test_a_clock_that_jumps_away_leaves_its_camera_out(jump_ns: int) -> None:
    cameras = Cameras("ab")
    cameras.expose(0, "ab")
    cameras.jump["b"] = jump_ns
    for moment in range(1, 30):
        cameras.expose(moment, "ab")
    cameras.jump["b"] = 0
    cameras.expose(30, "ab")
    cameras.expose(31, "ab")
    assert cameras.statuses[0] == ("complete", "ab", [0, 0])
    assert cameras.statuses[-1] == ("complete", "ab", [31, 31]), "it recovers at once"
    jumped = [status for status, _, moments in cameras.statuses if set(moments) & set(range(1, 30))]
    assert set(jumped) == {"missing"}
    assert sum(len(row.shots) for row in cameras.sets) == 64


def test_frames_that_come_long_after_each_other_are_late() -> None:
    cameras = Cameras("ab")
    for moment in range(3):
        cameras.expose(moment, "ab")
    for moment, late_ns in ((3, PERIOD // 2), (4, PERIOD // 2 + 1), *((k, 0) for k in range(5, 11))):
        cameras.expose(moment, "a")
        cameras.expose(moment, "b", late_ns)
    late = 1 + DOUBTFUL
    assert [status for status, *_ in cameras.statuses] == ["complete"] * 4 + ["late"] * late + ["complete"] * 2


def test_a_delayed_frame_does_not_hide_that_a_clock_has_jumped() -> None:
    """It comes when a frame with its stamp should, but others before and after it do not."""
    cameras = Cameras("ab")
    for moment in range(10):
        cameras.expose(moment, "ab")
    cameras.jump["b"] = PERIOD
    for moment in range(10, 40):
        late_ns = PERIOD * 9 // 10 if moment == 25 else 0
        cameras.expose(moment, "a")
        cameras.expose(moment, "b", late_ns)
    assert not any(status == "complete" for status, _, moments in cameras.statuses if set(moments) & set(range(10, 40)))


@pytest.mark.parametrize("periods", [-2, -1, 1, 2])
def test_the_first_frame_after_a_jump_is_delayed_as_if_nothing_had_happened(periods: int) -> None:
    """Only its number tells that it is another frame; and numbers begin again behind 65535."""
    cameras = Cameras("abc", c=0xFFFF - 20)
    for moment in range(40):
        cameras.jump["b"] = periods * PERIOD if moment >= 30 else 0
        late_ns = periods * PERIOD if moment == 30 else 0
        for name in "abc":
            cameras.expose(moment, name, late_ns if name == "b" else 0)
    assert all(len(set(moments)) == 1 for status, _, moments in cameras.statuses if status == "complete")
    assert cameras.matcher.counts["complete"] >= 28


def test_a_camera_that_has_skipped_a_signal_is_in_doubt_for_some_sets() -> None:
    cameras = Cameras("ab")
    for moment in range(20):
        cameras.counted["b"] = 6 if moment >= 10 else 7
        cameras.expose(moment, "ab" if moment != 9 else "a")
    statuses = [status for status, *_ in cameras.statuses]
    assert statuses == ["complete"] * 9 + ["missing"] + ["late"] * (1 + DOUBTFUL) + ["complete"] * (9 - DOUBTFUL)


@pytest.mark.parametrize(
    ("exposures", "status"),
    [
        ((1.0, 1.0), "complete"),
        ((1.0, 1.019), "complete"),
        ((1.021, 1.0), "unequal"),
        ((0.0, 0.0), "unequal"),
        ((1.0, 0.0), "unequal"),
        ((1.0, math.nan), "unequal"),
        ((math.nan, 1.0), "unequal"),
    ],
)
def test_exposures(exposures: Tuple[float, float], status: str) -> None:
    cameras = Cameras("ab")
    cameras.exposure = dict(zip("ab", exposures))
    cameras.expose(0, "ab")
    assert cameras.statuses == [(status, "ab", [0, 0])]


def test_a_long_exposure_arrives_later_and_is_not_late() -> None:
    matcher = SetMatcher("ab", TOLERANCE)
    for k in range(DOUBTFUL + 3):
        start = k * PERIOD
        matcher.add("a", shot(start, start + DELAY, length_ns=0))
        matcher.add("b", shot(start, start + DELAY + 30 * MS, length_ns=30 * MS))
    assert matcher.counts["complete"] == 3


# -------------------------------------------------------------------------------------------- against a brute force

#: Starts of the frames of some cameras, each increasing.
STREAMS = st.lists(st.sets(st.integers(0, 60), max_size=8).map(sorted), min_size=2, max_size=4).map(
    lambda rows: dict(zip("abcd", rows))
)


def brute_force(streams: Dict[str, List[int]], tolerance: int) -> List[Members]:
    """Sets by their definition, from all frames at once: the earliest frame left, with the first one of each camera."""
    left = {(name, number) for name, starts in streams.items() for number in range(len(starts))}
    sets: List[Members] = []
    while left:
        first = min(streams[name][number] for name, number in left)
        fitting = [row for row in left if first <= streams[row[0]][row[1]] <= first + tolerance]
        earliest: Dict[str, Tuple[str, int]] = {}
        for row in sorted(fitting, key=lambda row: streams[row[0]][row[1]]):
            earliest.setdefault(row[0], row)
        sets.append(frozenset(earliest.values()))
        left -= sets[-1]
    return sets


@given(STREAMS, st.integers(0, 12), st.data())
def test_sets_are_those_of_the_definition(streams: Dict[str, List[int]], tolerance: int, data: st.DataObject) -> None:
    """In whatever order the frames of different cameras come, as long as none is given up."""
    matcher = SetMatcher(list(streams), tolerance)
    sent = dict.fromkeys(streams, 0)
    sets: List[FrameSet] = []
    for name in data.draw(st.permutations([name for name, starts in streams.items() for _ in starts])):
        sets += matcher.add(name, shot(streams[name][sent[name]], 0, frame=sent[name]))
        sent[name] += 1
    expected = brute_force(streams, tolerance)
    got = [frozenset((name, each.frame) for name, each in row.shots.items()) for row in sets]
    assert got == expected[: len(got)]
    waiting = {name for row in expected[len(got) :] for name, _ in row}
    assert waiting < set(streams), "a set for which every camera has a frame is decided"
    for row in sets:
        assert (row.status == "missing") == (len(row.shots) < len(streams))


@given(
    st.integers(2, 4),
    st.integers(0, 12),
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(-50, 50), st.integers(0, MAX_WAIT_NS), st.sampled_from([0.0, 1.0, 2.0])
        ),
        max_size=60,
    ),
)
def test_every_frame_is_in_one_set_and_no_set_is_mixed(
    cameras: int, tolerance: int, rows: List[Tuple[int, int, int, float]]
) -> None:
    """Whatever clocks, arrivals and exposures do."""
    names = "abcd"[:cameras]
    matcher = SetMatcher(names, tolerance)
    sets: List[FrameSet] = []
    now = 0
    for number, (camera, start, wait, exposure) in enumerate(rows):
        now += wait
        sets += matcher.add(names[camera % cameras], shot(start, now, exposure, number))
    sets += matcher.add("a", shot(1000, now + MAX_WAIT_NS + 1, 1.0, len(rows)))
    sets += matcher.add("a", shot(2000, now + 2 * MAX_WAIT_NS + 2, 1.0, len(rows) + 1))
    frames = [each.frame for row in sets for each in row.shots.values()]
    assert sorted(frames) == list(range(len(rows) + 1))
    for row in sets:
        starts = [each.start_ns for each in row.shots.values()]
        assert max(starts) - min(starts) <= tolerance
        for name, each in row.shots.items():
            assert each.frame == len(rows) or name == names[rows[each.frame][0] % cameras]
        if row.status == "complete":
            assert {each.exposure for each in row.shots.values()} < {1.0, 2.0}
        assert (row.status == "missing") == (len(row.shots) < cameras)
    assert matcher.counts == {status: sum(row.status == status for row in sets) for status in STATUSES}
