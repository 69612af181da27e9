"""The similarity that noise alone leaves, against simulated frames; and what is judged by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List

import numpy as np
import pytest

from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.noise import pair_gains
from polar_pipeline.options import make_options
from polar_pipeline.quality.expected import expected_similarity
from polar_pipeline.quality.statistics import FrameQuality, Level, Quality, Spot, make_quality_limits, measure
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.frames import FORMATS, PackedFrame, pack
from polar_pipeline.sensor.mosaic import SENSORS

MONO, COLOR = "IMX250MZR", "IMX250MYR"


def noisy(sensor: str, electrons: float, level: float = 0.5) -> np.ndarray:
    """256x256 raw pixels of 12 bit of unpolarized light."""
    shape = (256, 256, 3, 3) if SENSORS[sensor].is_color else (256, 256, 3)
    rng = np.random.default_rng(int(electrons))
    return expose(np.broadcast_to(np.array([2 * level, 0, 0]), shape), SENSORS[sensor], 12, electrons, 2.4, rng)


@pytest.mark.parametrize("sensor", [MONO, COLOR])
@pytest.mark.parametrize(
    ("options", "below"),
    [
        ({"co_sited": False}, 0.015),
        ({}, 0.015),
        ({"demosaic": "gradient"}, 0.015),
        ({"ssim_stride": 3}, 0.015),
        ({"ssim_window": 7, "ssim_sigma": 2.0}, 0.02),
        ({"resolution": "full", "demosaic": "gradient"}, 0.04),  # neighbours share noise: a window sees less of it
        ({"demosaic": "adaptive"}, 0.08),  # it averages more where it sees no polarization
    ],
    ids=str,
)
def test_what_noise_leaves(sensor: str, options: Dict[str, Any], below: float) -> None:
    """The mean of a flat field; its own standard error is below 0.003."""
    for electrons in (1000.0, 4000.0):
        known = replace(SENSORS[sensor], full_well=electrons, read_noise=2.4)
        with Pipeline(known, "ssim", "cpu", bit_depth=12, **options) as pipeline:
            raw = RawFrame(noisy(sensor, electrons), 4095)
            figures = measure(pipeline, raw, pipeline(raw))
        assert figures.ssim is not None
        assert -0.005 - below <= figures.expected - figures.ssim <= 0.015
        assert figures.expected < 0.995


def test_gains_of_the_pair_by_hand() -> None:
    """Each angle at its own site: (I0 + I90)/2 has half the variance of a pixel, and shares none."""
    assert pair_gains(SENSORS[MONO], True, False, "bilinear", "mhc") == pytest.approx((0.5, 0))
    assert pair_gains(SENSORS[MONO], True, True, "bilinear", "mhc") == pytest.approx((0.5 * 0.390625, 0))
    assert pair_gains(SENSORS[MONO], True, False, "bilinear", "mhc", 2) == pytest.approx((0.125, 0))
    assert pair_gains(SENSORS[MONO], False, True, "gradient", "mhc")[1] > 0  # the detail that both take


def test_brightness_is_that_of_the_block() -> None:
    raw = np.full((512, 512), 400, np.uint16)
    raw[:256] = 3000
    options = make_options(MONO, "ssim", bit_depth=12, camera_gain=20.0)
    bright, dim = (expected_similarity(options, RawFrame(raw, 4095), 64, y) for y in (32, 224))
    assert bright < dim - 0.05
    packed = PackedFrame(np.frombuffer(pack(raw, FORMATS["12p"]), np.uint8).reshape(512, -1), FORMATS["12p"], 512)
    assert expected_similarity(options, packed, 64, 32) == pytest.approx(bright)
    assert expected_similarity(options, packed, 64, 224) == pytest.approx(dim)


def test_a_frame_is_judged_relative_to_noise() -> None:
    def judged(similarity: float, expected: float) -> List[object]:
        quality = Quality(make_quality_limits(ssim_warn=0.8, ssim_error=0.5))
        sample = FrameQuality(similarity, Spot(similarity, 1, 2, "centre"), 0.0, 0.0, None, expected)
        quality.add(sample, "consistency")
        finding, values = quality.report()
        return [finding.level, finding.text, values["lowest with noise alone"]]

    assert judged(0.62, 0.65) == [Level.OK, "good", "0.6500"]
    cause = "noise, defective pixels or too fine detail"
    low = f"image quality low: SSIM 0.45 in the centre, with noise alone 0.65: {cause}"
    assert judged(0.45, 0.65) == [Level.WARN, low, "0.6500"]
    assert judged(0.3, 0.65)[0] == Level.ERROR
    assert judged(0.62, 1.0) == [Level.WARN, f"image quality low: SSIM 0.62 in the centre: {cause}", "1.0000"]


def test_other_modes_know_no_noise() -> None:
    raw = RawFrame(noisy(MONO, 1000.0), 4095)
    with Pipeline(MONO, "ssim", "cpu", ssim_mode="temporal", bit_depth=12) as pipeline:
        pipeline(raw)
        assert measure(pipeline, raw, pipeline(raw)).expected == 1.0
