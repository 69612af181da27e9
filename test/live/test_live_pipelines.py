"""The pipeline in use and the next one, by pipelines that take as long to compile as the tests want."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Callable, ClassVar, Dict, Iterator, List, Optional

import numpy as np
import pytest
from support import TIMEOUT, wait_for

from polar_pipeline import SENSORS
from polar_pipeline.geometry.lens import make_lens
from polar_pipeline.live.parameters import make_settings
from polar_pipeline.live.pipelines import PipelineSwitch
from polar_pipeline.options import OPTIONS, make_options
from polar_pipeline.sensor.frames import FrameError, RawFrame

LENS = make_lens((0, 0), "", (), (60, 0, 31, 0, 60, 24, 0, 0, 1), (0,) * 9, (0,) * 12)


class SlowPipeline:
    """A pipeline that takes as long to compile as the test wants."""

    made: ClassVar[List[SlowPipeline]] = []

    def __init__(self, threads: int, **options: Any) -> None:
        assert threads == 0
        self.options = make_options(**options)
        self.compiled, self.started, self.closed = threading.Event(), threading.Event(), False
        self.error: Optional[Exception] = None
        self.made.append(self)

    def is_ready(self, _: Any) -> bool:
        return self.compiled.is_set() and self.error is None

    def prepare(self, _: Any) -> None:
        self.started.set()
        assert self.compiled.wait(TIMEOUT)
        if self.error is not None:
            raise self.error

    def reset(self) -> None: ...

    def close(self) -> None:
        assert not self.started.is_set() or self.compiled.is_set(), "closed while it is compiled"
        self.closed = True


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """From products to the pipeline that is used for a frame."""
    monkeypatch.setattr("polar_pipeline.live.pipelines.Pipeline", SlowPipeline)
    monkeypatch.setattr(SlowPipeline, "made", [])
    settings = make_settings({})
    background = ThreadPoolExecutor(1)
    held = PipelineSwitch(background)

    def get(*products: str, **changes: Any) -> SlowPipeline:
        options = {name: changes.pop(name) for name in list(changes) if name in OPTIONS}
        wanted = replace(settings, options=replace(settings.options, **options), **changes)
        pipeline, made_for = held.get(wanted, products, np.zeros((48, 64), np.uint8))
        assert made_for.options.resolution == pipeline.options.resolution
        get.frame_id = made_for.frame_id
        return pipeline

    get.switch = held
    yield get
    for pipeline in SlowPipeline.made:
        pipeline.compiled.set()
    held.clear()
    background.shutdown()
    assert all(pipeline.closed for pipeline in SlowPipeline.made)


def serving(cache: Any, products: str = "dolp") -> Any:
    """The first pipeline of a cache, compiled: nothing can stand in for it."""
    first = cache(products)
    first.compiled.set()
    assert cache(products) is first
    return first


def test_a_change_that_is_taken_back_is_given_up(cache: Any) -> None:
    first = serving(cache)
    assert cache("aolp") is first
    assert SlowPipeline.made[1].started.wait(TIMEOUT)
    assert cache("dolp") is first
    assert not SlowPipeline.made[1].closed, "it is being compiled"
    SlowPipeline.made[1].compiled.set()
    wait_for(lambda: SlowPipeline.made[1].closed, "the end of the compilation")
    assert len(SlowPipeline.made) == 2


def test_what_does_not_compile_is_said_and_the_rest_serves(cache: Any) -> None:
    first = serving(cache)
    assert cache("aolp") is first
    SlowPipeline.made[1].error = RuntimeError("tile.cu(3): error")
    SlowPipeline.made[1].compiled.set()

    def says() -> bool:
        try:
            cache("aolp")
        except RuntimeError as err:
            return "tile.cu(3)" in str(err)
        return False

    wait_for(says, "the compiler's message")
    assert cache("dolp") is first


def test_settings_that_do_not_fit_the_frame_leave_the_rest_in_use(cache: Any) -> None:
    first = serving(cache)
    with pytest.raises(FrameError, match="reaches beyond"):
        cache("dolp", products=("dolp",), roi=(500, 0, 8, 8))
    assert cache("dolp", products=("dolp",), roi=(0, 0, 8, 8)) is first, "while the next settings are being prepared"
    assert len(SlowPipeline.made) == 2


def test_the_last_settings_serve_as_a_whole_while_others_are_compiled(cache: Any) -> None:
    first = serving(cache)
    assert cache("dolp", resolution="full", frame_id="front") is first
    assert cache.frame_id == "", "the frame's name changes with its resolution"
    SlowPipeline.made[1].compiled.set()
    wait_for(lambda: cache("dolp", resolution="full", frame_id="front") is SlowPipeline.made[1], "full resolution")
    assert cache.frame_id == "front"
    assert cache("dolp", resolution="full", frame_id="rear") is SlowPipeline.made[1], "nothing to compile"
    assert cache.frame_id == "rear"
    assert cache("dolp", resolution="full", frame_id="rear") is SlowPipeline.made[1]
    assert len(SlowPipeline.made) == 2
    assert not first.closed, "its frames may be in progress"
    cache.switch.release_replaced({first})
    assert not first.closed
    cache.switch.release_replaced()
    assert first.closed


@pytest.mark.parametrize(
    "change",
    [
        {"sensor": SENSORS["IMX250MYR"]},
        {"roi_offset": (1, 0)},
        {"flip": (True, False)},
        {"bit_depth": 12},
        {"ssim_mode": "temporal"},
        {"rectify": LENS, "lens": LENS},
    ],
)
def test_nothing_stands_in_that_reads_frames_otherwise(cache: Any, change: Dict[str, Any]) -> None:
    serving(cache, "ssim")
    assert cache("ssim", **change) is SlowPipeline.made[1]


def test_settings_for_frames_that_the_former_ones_refuse() -> None:
    """With real pipelines: angle images need half resolution, to which the node is set when they come in."""
    background = ThreadPoolExecutor(1)
    switch = PipelineSwitch(background)
    full, half = (make_settings({"backend": "cpu", "resolution": name}) for name in ("full", "half"))
    former, _ = switch.get(full, ("dolp",), np.zeros((32, 48), np.uint8))
    angles = RawFrame.of_angles(np.zeros((32, 48, 4), np.uint8), full.options.sensor)
    with pytest.raises(FrameError, match="resolution"):
        former(angles)
    pipeline, _ = switch.get(half, ("dolp",), angles)
    assert pipeline(angles)["dolp"].shape == (32, 48)
    switch.clear()
    background.shutdown()


def test_many_changes_wait_for_none(cache: Any) -> None:
    first = serving(cache)
    for k in range(1, 20):
        assert cache("dolp", min_intensity=k / 100) is first
    assert not first.closed, "what serves is kept"
    assert SlowPipeline.made[1].started.wait(TIMEOUT)
    assert not SlowPipeline.made[1].closed, "it is being compiled"
    assert all(pipeline.closed for pipeline in SlowPipeline.made[2:-1]), "those in between are given up"
    for pipeline in SlowPipeline.made:
        pipeline.compiled.set()
    newest = SlowPipeline.made[-1]
    wait_for(lambda: cache("dolp", min_intensity=0.19) is newest, "the newest settings")
    wait_for(lambda: SlowPipeline.made[1].closed, "the end of the first compilation")
    assert not any(pipeline.started.is_set() for pipeline in SlowPipeline.made[2:-1])
