"""Two exposures by turns: pairs by what frames state, and the camera on loopback as their source."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Callable, Iterator, List, Optional, Tuple

import numpy as np
import pytest
from chunk_camera import ChunkCamera
from support import wait_for

from polar_pipeline.camera.aravis import CameraError
from polar_pipeline.camera.hdr import CapturedFrame, Pairs
from polar_pipeline.camera.settings import CAMERA_OPTIONS, CameraSettings
from polar_pipeline.camera.source import CameraSource
from polar_pipeline.recordings import messages

PICTURE = np.random.default_rng(3).integers(0, 256, (64, 96)).astype(np.uint8)


class Client:
    """Takes pairs, and what is said."""

    def __init__(self) -> None:
        self.pairs: List[Tuple[CapturedFrame, Any, Any]] = []
        self.single = 0
        self.refused: List[str] = []
        self.lines: List[str] = []

    def memory(self) -> None:
        return None

    def take(self, cdr: Any, facts: Any, _: int, before: Optional[CapturedFrame] = None) -> None:
        if before is None:
            self.single += 1
        else:
            self.pairs.append((before, cdr, facts))

    def check(self, _: Any) -> None:
        pass

    def dropped(self, cause: str, count: int) -> None:
        pass

    def refuse(self, cause: str, _: str) -> None:
        self.refused.append(cause)

    def info(self, text: str) -> None:
        self.lines.append(text)

    warning = info


@pytest.fixture
def connect() -> Iterator[Callable[..., Tuple[CameraSource, Client]]]:
    with ExitStack() as stack:

        def start(**settings: Any) -> Tuple[CameraSource, Client]:
            client = Client()
            source = CameraSource(CameraSettings(**{"source": "aravis:127.0.0.1", **settings}), "camera", client)
            stack.callback(source.close)
            source.start()
            return source, client

        yield start


# ----------------------------------------------------------------------------------------------------- without a camera


def pairs_of(exposures: List[float], numbers: Optional[List[int]] = None, ratio: float = 16) -> Tuple[List[Any], int]:
    """The numbers of the frames of each pair, and how many were left out."""
    pairs, found = Pairs(), []
    for number, exposure_us in zip(numbers or range(100), exposures):
        facts: Any = SimpleNamespace(exposure_us=exposure_us)
        before = pairs.take(CapturedFrame(b"", facts, number), ratio)
        if before is not None:
            found.append((before.number, number))
    return found, pairs.incomplete


def test_neighbors_of_the_other_exposure_are_pairs() -> None:
    assert pairs_of([160, 10, 160, 10, 160]) == ([(0, 1), (2, 3)], 0)
    assert pairs_of([10, 160, 10, 160]) == ([(0, 1), (2, 3)], 0)
    # an exposure that came twice: the second one waits for the next
    assert pairs_of([160, 160, 10, 160, 10]) == ([(1, 2), (3, 4)], 1)
    assert pairs_of([160, 10, 10, 10, 160]) == ([(0, 1), (3, 4)], 1)
    # one that is between both, by at least the root of the ratio: with the other one, or with none
    assert pairs_of([160, 45, 10, 160]) == ([(1, 2)], 1)
    assert pairs_of([160, 35, 160, 10]) == ([(0, 1), (2, 3)], 0)
    assert pairs_of([160, 60, 10], ratio=4) == ([(0, 1)], 0)
    assert pairs_of([160, 90, 40], ratio=4) == ([(1, 2)], 1)


def test_frames_that_are_lost_in_between_make_no_pairs() -> None:
    assert pairs_of([160, 10, 160, 10], [1, 4, 5, 6]) == ([(4, 5)], 1)
    assert pairs_of([160, 10], [65535, 1]) == ([(65535, 1)], 0)
    assert pairs_of([160, 10], [65534, 1]) == ([], 1)
    assert pairs_of([0, 10, 160], [1, 2, 3]) == ([(2, 3)], 1)  # an exposure that is unknown


def test_ratios() -> None:
    row = CAMERA_OPTIONS["hdr_ratio"]
    assert [row.validate(value) for value in (1, 4, 7.5, 16)] == [1, 4, 7.5, 16]
    for value in (0, 2, 3.9, 17, "4:1"):
        with pytest.raises(ValueError, match="hdr_ratio must be"):
            row.validate(value)


# -------------------------------------------------------------------------------------------------------- with a camera


@pytest.mark.camera
def test_exposures_alternate_and_pairs_have_both(connect: Any) -> None:
    """40 frames a second, 16 to 1: pairs by the exposures that frames state, which are those that were taken."""
    with ChunkCamera(PICTURE, rate=40) as camera:
        source, client = connect(exposure_us=4000.0, hdr_ratio=16.0)
        wait_for(lambda: len(client.pairs) >= 30, "pairs")
        values = source.status()[2]
        assert source.connection.settings.exposure_us == 4000
        source.close()
        sent = list(camera.sent.values())
    assert client.single == 0
    for before, cdr, facts in client.pairs:
        assert sorted((before.facts.exposure_us, facts.exposure_us)) == [250, 4000]
        first, second = (messages.decode_image(each) for each in (before.cdr, cdr))
        assert first.stamp_ns < second.stamp_ns < first.stamp_ns + 1e9 / 40 * 1.6
        np.testing.assert_array_equal(messages.to_array(second), PICTURE)
    # nothing is lost without a count: of what was sent, two in each pair, and the others
    assert int(values["incomplete pairs"]) == client.refused.count("exposures") < 0.2 * len(sent)
    assert abs(2 * len(client.pairs) + len(client.refused) - len(sent)) <= 3
    assert {row.exposure_us for row in sent[2:]} == {250, 4000}


@pytest.mark.camera
def test_exposures_that_come_by_chance(connect: Any) -> None:
    """A camera that ignores what is written: pairs are by the stated exposures alone, and others are counted."""
    with ChunkCamera(PICTURE, rate=60, steps=(250.0, 4000.0)) as camera:
        source, client = connect(exposure_us=4000.0, hdr_ratio=16.0)
        wait_for(lambda: len(client.pairs) >= 20, "pairs")
        source.close()
    assert all({before.facts.exposure_us, facts.exposure_us} == {250, 4000} for before, _, facts in client.pairs)
    assert client.refused.count("exposures") >= 5
    assert len(camera.sent) >= 2 * len(client.pairs) + len(client.refused)


@pytest.mark.camera
def test_the_ratio_can_change(connect: Any) -> None:
    with ChunkCamera(PICTURE, rate=60) as camera:
        source, client = connect(exposure_us=3200.0)
        wait_for(lambda: client.single >= 5, "frames")
        settings = source.connection.settings
        assert source.apply(replace(settings, hdr_ratio=8.0), lambda _: None).hdr_ratio == 8
        wait_for(lambda: len(client.pairs) >= 5, "pairs")
        assert {before.facts.exposure_us / facts.exposure_us for before, _, facts in client.pairs} <= {8, 1 / 8}
        actual = source.apply(replace(source.connection.settings, exposure_us=1600.0), lambda _: None)
        assert actual.exposure_us == 1600
        client.pairs.clear()
        wait_for(lambda: len(client.pairs) >= 5, "pairs")
        before, _, facts = client.pairs[-1]
        assert sorted((before.facts.exposure_us, facts.exposure_us)) == [200, 1600]
        # off: the longer one stays
        source.apply(replace(source.connection.settings, hdr_ratio=1.0), lambda _: None)
        client.single = 0
        wait_for(lambda: client.single >= 5, "frames")
        assert camera.get("ExposureTime") == 1600


@pytest.mark.camera
def test_what_a_camera_cannot_do(connect: Any) -> None:
    """Automatic exposure, an exposure below the camera's, and frames that do not state theirs."""
    with ChunkCamera(PICTURE):
        source, client = connect(exposure_us=3000.0)
        wait_for(lambda: client.single >= 3, "frames")
        settings = source.connection.settings
        for changes, text in (
            ({"hdr_ratio": 8.0, "exposure_auto": "polarization"}, "camera.hdr_ratio needs camera.exposure_auto off"),
            ({"hdr_ratio": 16.0, "exposure_us": 200.0}, r"camera.exposure_us of this camera must be in .*, got 12.5"),
        ):
            with pytest.raises(CameraError, match=text):
                source.apply(replace(settings, **changes), lambda _: None)
        assert source.connection.settings == settings
        source.close()
    with ChunkCamera(PICTURE, has_chunks=False):
        source, client = connect(exposure_us=3000.0, hdr_ratio=8.0)
        wait_for(lambda: "chunk" in source.problem.lower(), "the problem")
        assert not client.pairs
