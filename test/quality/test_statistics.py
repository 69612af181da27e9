"""What makes image quality good or bad: figures made by hand, and limits that do not flutter."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.quality.statistics import (
    FrameQuality,
    Level,
    Quality,
    QualityLimits,
    Spot,
    fingerprint,
    level_with_hysteresis,
    lowest_block,
    mean_value,
    measure,
    place,
)
from polar_pipeline.sensor.frames import FORMATS, PackedFrame


def sample(
    ssim: Optional[float] = None, saturated: float = 0.0, dark: Optional[float] = 0.0, mark: int = 0
) -> FrameQuality:
    spot = None if ssim is None else Spot(ssim, 32, 992, "lower left")
    return FrameQuality(ssim, spot, saturated, dark, mark or None)


def watch(samples: List[FrameQuality], mode: str = "reference", **limits: Any) -> Tuple[Level, str]:
    quality = Quality(QualityLimits(**limits))
    for row in samples:
        quality.add(row, mode)
    return quality.report()[0]


# ------------------------------------------------------------------------------------------------------------- figures


def test_lowest_block_by_hand() -> None:
    # a map of 150 rows and 100 columns: blocks of 64, 64, 22 rows and 64, 36 columns
    blocks = np.array([[0.9, 0.8], [0.7, 0.95], [0.99, 0.62]], np.float32)
    # rows 128 to 150 have their center at 139, columns 64 to 100 at 82; one pixel of the map is two of the output
    assert lowest_block(blocks, (150, 100), 2) == Spot(pytest.approx(0.62), 164, 278, "lower right")
    blocks[2, 1] = 1
    assert lowest_block(blocks, (150, 100)) == Spot(pytest.approx(0.7), 32, 96, "middle left")


def test_places_have_names() -> None:
    names = [place((x + 0.5) / 3, (y + 0.5) / 3) for y in range(3) for x in range(3)]
    assert names[:3] == ["upper left", "upper middle", "upper right"]
    assert names[3:6] == ["middle left", "center", "middle right"]
    assert names[6:] == ["lower left", "lower middle", "lower right"]


def test_a_frames_figures() -> None:
    raw = np.random.default_rng(0).integers(40, 60, (200, 300)).astype(np.uint8)
    raw[160:164, 20:24] = 255  # four superpixels of 15000
    raw[0:20, 0:20] = 0  # a hundred
    pipeline = Pipeline(products=("dolp", "ssim"), backend="cpu", co_sited=False)
    out = pipeline(raw)
    figures = measure(pipeline, RawFrame(raw, 255), out)
    assert (figures.saturated, figures.dark) == (4 / 15000, 100 / 15000)
    assert figures.ssim == pytest.approx(float(out["ssim"]), abs=1e-6)  # float32
    assert figures.lowest.ssim == pytest.approx(out.blocks.min())
    assert figures.values()["saturated [%]"] == "0.027"
    bare = Pipeline(products=("intensity",), backend="cpu")
    figures = measure(bare, RawFrame(raw, 255), bare(raw))
    assert (figures.ssim, figures.lowest, figures.dark) == (None, None, None)
    assert figures.values()["lowest x"] == figures.values()["dark [%]"] == "n/a"


def test_the_lowest_place_is_in_pixels_of_the_output_whatever_the_stride() -> None:
    raw = np.tile(np.array([[100, 120], [120, 100]], np.uint8), (256, 512))  # output of 256x512, map of 128x256
    raw[20:24, 900:904] = np.random.default_rng(0).integers(0, 255, (4, 4))
    pipeline = Pipeline(products=("ssim",), backend="cpu", co_sited=False, ssim_stride=2)
    spot = measure(pipeline, RawFrame(raw, 255), pipeline(raw)).lowest
    assert (spot.x, spot.y, spot.place) == (448, 64, "upper right")  # columns 192 to 256 and rows 0 to 64 of the map


def test_nothing_to_compare_with_is_no_figure() -> None:
    pipeline = Pipeline(products=("ssim",), backend="cpu", ssim_mode="temporal")
    raw = np.random.default_rng(0).integers(40, 60, (64, 64)).astype(np.uint8)
    assert measure(pipeline, RawFrame(raw, 255), pipeline(raw)).lowest is None
    assert measure(pipeline, RawFrame(raw, 255), pipeline(raw)).lowest.ssim == 1  # exactly: both are the same numbers


def test_means_are_those_of_floats_whatever_the_type() -> None:
    raw = np.random.default_rng(0).integers(0, 256, (64, 64)).astype(np.uint8)
    raw[:8] = 0
    results = {
        dtype: Pipeline(products="intensity,dolp", dtype=dtype, backend="cpu")(raw)
        for dtype in ("float32", "uint8", "uint16")
    }
    for name in ("intensity", "dolp"):
        exact = float(np.nanmean(results["float32"][name].astype(float)))
        for dtype, level in (("float32", 1e-6), ("uint8", 0.5 / 255), ("uint16", 0.5 / 65535)):
            assert mean_value(results[dtype], name) == pytest.approx(exact, abs=level), (name, dtype)


def test_fingerprints_tell_frames_apart() -> None:
    raw = np.random.default_rng(0).integers(0, 255, (64, 64)).astype(np.uint8)
    other = raw.copy()
    other[0, 5] ^= 1
    assert fingerprint(RawFrame(raw, 255)) == fingerprint(RawFrame(raw.copy(), 255))
    assert fingerprint(RawFrame(raw, 255)) != fingerprint(RawFrame(other, 255))
    assert fingerprint(RawFrame(raw, 255)) == fingerprint(PackedFrame(raw, FORMATS["12p"], 42))
    assert fingerprint(RawFrame(np.zeros_like(raw), 255)) is None  # a covered lens is not a frozen camera


# -------------------------------------------------------------------------------------------------------------- levels


def test_levels_by_hand() -> None:
    values = [0.9, 0.79, 0.81, 0.83, 0.49, 0.51, 0.53, 0.81, 0.9]
    level, levels = Level.OK, []
    for value in values:
        level = level_with_hysteresis(level, value, warn=0.8, error=0.5, hysteresis=0.02)
        levels.append(level)
    #            0.9 0.79 0.81 0.83 0.49 0.51 0.53 0.81 0.9
    assert levels == [0, 1, 1, 0, 2, 2, 1, 1, 0]


VALUES = st.floats(0, 1)


@given(st.lists(VALUES, min_size=1), VALUES, VALUES, st.floats(0, 0.5))
def test_hysteresis_delays_only_the_way_back(values: List[float], one: float, two: float, hysteresis: float) -> None:
    error, warn = sorted((one, two))
    level = Level.OK
    for value in values:
        before, level = level, level_with_hysteresis(level, value, warn, error, hysteresis)
        bare = level_with_hysteresis(Level.OK, value, warn, error, 0)
        assert level >= bare  # never later than without
        assert level <= max(bare, before)  # never higher than what was seen
        if value >= warn + hysteresis:
            assert level == Level.OK


def test_limits_of_never_end_what_was_found() -> None:
    """A lens cap, or night: the band around a limit must not hold a level that nothing can leave any more."""
    watched = Quality(QualityLimits())
    watched.add(sample(-1.0, dark=1.0, saturated=1.0), "reference")
    assert watched.report()[0].level == Level.ERROR
    never = {f"{name}_{level}": 1.0 for name in ("dark", "saturated") for level in ("warn", "error")}
    watched.limits = QualityLimits(**never, ssim_warn=-1.0, ssim_error=-1.0)
    watched.add(sample(-1.0, dark=1.0, saturated=1.0), "reference")
    assert watched.report()[0] == (Level.OK, "good")


def test_findings_say_what_and_where() -> None:
    assert watch([sample(0.62)]) == (
        Level.WARN,
        "image quality low: SSIM 0.62 in the lower left: dirt, fog, focus or motion",
    )
    assert watch([sample(0.3)], "consistency").text.endswith("noise, defective pixels or too fine detail")
    assert watch([sample(0.3)]).level == Level.ERROR
    assert watch([sample(0.3)], ssim_warn=-1.0, ssim_error=-1.0) == (Level.OK, "good")
    assert watch([sample(saturated=0.25)]) == (Level.WARN, "25.0 % of the pixels are saturated")
    assert watch([sample(saturated=0.2, dark=0.95)]) == (
        Level.ERROR,
        "95.0 % of the pixels are dark; 20.0 % of the pixels are saturated",
    )
    assert watch([sample(dark=None)]) == (Level.OK, "no similarity is computed")
    assert watch([]) == (Level.OK, "no frame was looked at")


def test_frozen_camera() -> None:
    frames = [sample(1.0, mark=7)] * 9
    assert watch(frames) == (Level.OK, "good")
    assert watch([*frames, frames[0]]) == (Level.ERROR, "camera frozen: 10 identical frames")
    assert watch([*frames, sample(1.0, mark=8), frames[0]]).level == Level.OK
    assert watch([sample(1.0)] * 20).level == Level.OK  # nothing to tell frames by
    assert watch(frames * 5, frozen_frames=0).level == Level.OK
    quality = Quality(QualityLimits())
    for row in frames:
        quality.add(row, "temporal")
    quality.restart()
    quality.add(frames[0], "temporal")
    assert quality.report()[0].level == Level.OK


def test_a_report_tells_the_worst_since_the_last() -> None:
    quality = Quality(QualityLimits())
    for value in (0.9, 0.4, 0.7, 0.95):
        quality.add(sample(value), "reference")
    found, figures = quality.report()
    assert (found.level, found.text[:28]) == (Level.ERROR, "image quality low: SSIM 0.40")
    assert figures["ssim"] == "0.9500"  # of the newest
    quality.add(sample(0.95), "reference")
    assert quality.report()[0] == (Level.OK, "good")
    quality.add(sample(0.79), "reference")
    quality.report()
    quality.add(sample(0.81), "reference")  # within the band
    assert quality.report()[0].level == Level.WARN
    quality.add(sample(), "reference")  # nobody asks any more: unknown is not bad
    assert quality.report()[0].level == Level.OK
    for ratio in (0.2, 0.3, 0.0):  # of equal levels the newest
        quality.add(sample(saturated=ratio), "reference")
    assert quality.report()[0].text == "30.0 % of the pixels are saturated"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"ssim_warn": 1.5}, r"\[-1.0, 1.0\].*1.5"),
        ({"dark_warn": float("nan")}, "nan"),
        ({"ssim_warn": 0.4}, "at most quality.ssim_warn, got 0.5 > 0.4"),
        ({"saturated_error": 0.05}, "at least quality.saturated_warn, got 0.05 < 0.1"),
        ({"dark_error": 0.4}, "at least quality.dark_warn"),
        ({"frozen_frames": 1}, "at least 2"),
    ],
)
def test_impossible_limits_say_what_is_allowed(values: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        QualityLimits(**values)
