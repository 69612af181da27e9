"""A rig in step: what becomes of the frames of its cameras, and which exposures are written to them."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import pytest
from stand_in import StandIn

from polar_pipeline.camera.facts import CameraFacts, read_facts
from polar_pipeline.camera.sets import DOUBTFUL, Arrival
from polar_pipeline.camera.settings import CameraSettings
from polar_pipeline.live.rig import RigSync, Sync
from polar_pipeline.recordings.messages import Status

FACTS = replace(read_facts(StandIn()), exposure_us=4000.0, gain_db=3.0)
MS = 1_000_000
PERIOD = 100 * MS


class Camera:
    """What a rig uses of a node's `CameraInput`; `follow` is answered by the test."""

    def __init__(self, exposure_us: float) -> None:
        self.source = self
        self.lost: Dict[str, int] = {}
        self.asked: List[Dict[str, Any]] = []
        self.answer: Any = Future()
        self.refusals: List[Tuple[str, str]] = []
        self.connection: Any = SimpleNamespace(settings=None, ranges={"exposure_us": (30, 1e6), "gain_db": (0, 48)})
        self.set(exposure_us=exposure_us, gain_db=3.0)

    def set(self, **values: Any) -> None:
        self.connection.settings = replace(self.connection.settings or CameraSettings(), **values)

    def dropped(self, cause: str, count: int) -> None:
        self.lost[cause] = self.lost.get(cause, 0) + count

    def follow(self, values: Dict[str, Any]) -> Any:
        self.asked.append(values)
        self.answer = Future()
        return self.answer

    def refuse(self, cause: str, reason: str) -> None:
        self.refusals.append((cause, reason))


class Rig:
    """A rig of the nodes `front`, which leads, and `rear`, with a quarter of its exposure, after its first sets."""

    def __init__(self, is_strict: bool = False) -> None:
        self.sync = RigSync(Sync(1.0, "front", is_strict, {"front": 1.0, "rear": 0.25}))
        self.statuses: List[Tuple[int, Status]] = []
        self.sync.publish = lambda stamp_ns, status: self.statuses.append((stamp_ns, status))
        self.cameras = {"front": Camera(4000.0), "rear": Camera(1000.0)}
        self.delivered: List[Tuple[str, int]] = []
        for name, camera in self.cameras.items():
            self.sync.join(name, camera)
        for moment in range(-DOUBTFUL, 0):
            self.take("front", moment)
            self.take("rear", moment)
        assert self.texts == ["late"] * DOUBTFUL
        self.statuses.clear()
        self.delivered.clear()
        for camera in self.cameras.values():
            camera.lost.clear()

    def take(self, name: str, moment: int, offset_ns: int = 0, **facts: Any) -> None:
        state: CameraFacts = replace(FACTS, exposure_us=1000.0 if name == "rear" else 4000.0)
        state = replace(state, **facts)
        start = moment * PERIOD + offset_ns
        length = int(1000 * state.exposure_us)
        end = start + length
        arrival = Arrival(end + MS, moment)
        self.sync.take(name, (start + end) // 2, start, arrival, state, lambda: self.delivered.append((name, moment)))

    @property
    def texts(self) -> List[str]:
        return [status.message for _, status in self.statuses]


def test_the_status_of_a_set_names_its_frames() -> None:
    rig = Rig()
    rig.take("front", 1)
    rig.take("rear", 1, MS // 4)
    ((stamp_ns, status),) = rig.statuses
    assert stamp_ns == PERIOD + MS // 4 + MS // 2, "the earlier stamp"
    assert (status.level, status.name, status.message) == (0, "front: matched", "matched")
    assert status.values == {
        "complete": "1",
        "late": str(DOUBTFUL),
        "missing": "0",
        "unequal": "0",
        "front [ns]": str(PERIOD + 2 * MS),
        "rear [ns]": str(PERIOD + MS // 4 + MS // 2),
        "spread [ms]": "0.250",
    }
    rig.take("front", 2)
    rig.take("front", 3)
    rig.take("rear", 3)
    assert [(status.level, status.message) for _, status in rig.statuses[1:]] == [(1, "missing: rear"), (0, "matched")]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "matched"),
        ({"exposure_us": 1015.0}, "matched"),
        ({"exposure_us": 4000.0}, "unequal"),
        ({"exposure_us": 500.0, "gain_db": 3.0 + 6.0206}, "matched"),
        ({"gain_db": 6.0}, "unequal"),
        ({"exposure_us": 0.0}, "unequal"),
    ],
)
def test_exposures_count_with_gain_and_factor(changes: Dict[str, float], text: str) -> None:
    rig = Rig()
    rig.take("front", 1)
    rig.take("rear", 1, **changes)
    assert rig.texts == [text]


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_strict_rig_delivers_complete_sets_only(is_strict: bool) -> None:
    rig = Rig(is_strict)
    rig.take("front", 1)
    assert rig.delivered == ([] if is_strict else [("front", 1)])
    rig.take("rear", 1)
    rig.take("front", 2)  # its partner is lost
    rig.take("front", 3)
    rig.take("rear", 3, exposure_us=3000.0)  # not the exposure of the leader
    rig.take("rear", 4)
    rig.take("front", 4)
    sent = {(name, moment) for name in ("front", "rear") for moment in (1, 2, 3, 4)} - {("rear", 2)}
    assert set(rig.delivered) == {row for row in sent if not is_strict or row[1] in (1, 4)}
    assert len(set(rig.delivered)) == len(rig.delivered)
    lost = [rig.cameras[name].lost for name in ("front", "rear")]
    assert lost == ([{"unmatched": 2}, {"unmatched": 1}] if is_strict else [{}, {}])
    assert rig.texts == ["matched", "missing: rear", "unequal", "matched"]


def test_a_node_that_has_left_gets_nothing() -> None:
    rig = Rig(is_strict=True)
    rig.take("front", 1)
    rig.sync.join("front", None)
    rig.take("front", 2)
    rig.take("rear", 1)
    assert rig.delivered == [("rear", 1)]
    rig.take("rear", 2)
    rig.sync.join("front", rig.cameras["front"])
    rig.take("front", 3)
    rig.take("rear", 3)
    assert rig.texts == ["matched", "missing: front", "matched"]
    assert rig.delivered[-2:] == [("front", 3), ("rear", 3)]


def test_a_long_exposure_is_not_late() -> None:
    rig = Rig()
    for moment in range(3):
        rig.take("front", moment, exposure_us=80_000.0)
        rig.take("rear", moment, exposure_us=20_000.0)
    assert rig.texts == ["matched"] * 3


def test_followers_take_the_settings_of_the_leader() -> None:
    rig = Rig()
    front, rear = rig.cameras.values()
    rig.take("front", 0)
    assert rear.asked == [], "they have them"
    front.set(trigger="Line2", ptp=True, frame_rate=10.0, exposure_auto="polarization")
    rig.take("front", 1, exposure_us=8000.0, gain_db=6.0)
    shared = {"exposure_auto": "off", "trigger": "Line2", "ptp": True, "frame_rate": 10.0}
    assert rear.asked == [{"exposure_us": 2000.0, "gain_db": 6.0, **shared}]
    rig.take("front", 2, exposure_us=16000.0, gain_db=6.0)
    assert len(rear.asked) == 1, "the camera has not answered yet"
    rear.set(exposure_us=2000.0, gain_db=6.0, **shared)
    rear.answer.set_result(None)
    rig.take("front", 3, exposure_us=16000.0, gain_db=6.0)
    assert rear.asked[1:] == [{"exposure_us": 4000.0, "gain_db": 6.0, **shared}]
    rear.set(exposure_us=4015.0, gain_db=6.04)  # as the camera rounds
    rear.answer.set_result(None)
    rig.take("front", 4, exposure_us=16000.0, gain_db=6.0)
    assert len(rear.asked) == 2
    for change in ({"trigger": "free"}, {"frame_rate": 11.0}, {"gain_db": 5.9}, {"exposure_us": 4050.0}):
        before = rear.connection.settings
        rear.set(**change)
        rig.take("front", 5, exposure_us=16000.0, gain_db=6.0)
        assert rear.asked[2:] == [rear.asked[1]], change
        rear.connection.settings = before
        rear.asked.pop()
        rear.answer.set_exception(ValueError("refused"))
    assert set(rear.refusals) == {("parameter", "settings of the rig's leader: refused")}
    assert front.asked == []


@pytest.mark.parametrize("is_known", [True, False])
def test_an_unknown_gain_is_not_written(is_known: bool) -> None:
    rig = Rig()
    if is_known:
        del rig.cameras["rear"].connection.ranges["gain_db"]
    rig.take("front", 1, gain_db=9.0 if is_known else None)
    assert rig.cameras["rear"].asked == []
    rig.take("front", 2, exposure_us=400.0, gain_db=9.0 if is_known else None)
    (values,) = rig.cameras["rear"].asked
    assert (values["exposure_us"], "gain_db" in values) == (100.0, False)


def test_who_is_not_there_neither_leads_nor_follows() -> None:
    rig = Rig()
    front, rear = rig.cameras.values()
    rig.take("front", 1, exposure_us=0.0)
    connection, rear.connection = rear.connection, None
    rig.take("front", 2, exposure_us=400.0)
    rear.connection, front.connection = connection, None
    rig.take("front", 3, exposure_us=400.0)
    assert (rear.asked, front.asked) == ([], [])
