"""Outputs scaled, rotated and cut by the CPU backend: against the reference, and against what must be equal."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np
import pytest
from comparison import compare, random_frame

from polar_pipeline import FrameError, Pipeline
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import get_sensor


@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
def test_of_more_than_one_strip(sensor: str) -> None:
    """Strips have 160 000 pixels; pieces of rows 512, or 64 where rows become columns."""
    frame = random_frame((660, 1100))
    for options in ({"rotate": 90, "roi": (3, 17, 320, 520)}, {"scale": 2, "rotate": 180}):
        compare(frame, sensor=sensor, demosaic="bilinear", **options)


@pytest.mark.parametrize("products", ["ssim", "ssim_map", "dolp,ssim_map"])
@pytest.mark.parametrize("mode", ["consistency", "temporal"])
def test_similarity_of_nothing_is_refused(products: str, mode: str) -> None:
    """A stride that is longer than the image: the frame is refused, and a larger one works, as do other products."""
    options: Dict[str, Any] = {"backend": "cpu", "scale": 2, "ssim_stride": 8, "ssim_mode": mode}
    pipeline = Pipeline(products=products, **options)
    with pytest.raises(FrameError, match="ssim_stride 8 needs outputs of 8x8 pixels, got 16x7") as caught:
        pipeline(random_frame((28, 64)))
    assert caught.value.cause == "output"
    assert pipeline(random_frame((32, 32)))[products.split(",")[-1]].size == 1
    assert Pipeline(products="dolp", **options)(random_frame((28, 64)))["dolp"].shape == (7, 16)


def test_scaled_outputs_come_from_mean_stokes_vectors() -> None:
    """Two directions at a right angle to each other average to unpolarized light, not to an angle in between."""
    sensor = get_sensor("IMX250MZR")
    scene = np.ones((64, 64, 3))
    scene[..., 1], scene[..., 2] = 0.8, 0
    first = (np.arange(64) // 4) % 2 == 0  # stripes two superpixels wide
    scene[:, first, 1] = -0.8
    out = Pipeline(products="dolp", backend="cpu", co_sited=False, scale=4)(expose(scene, sensor, 16))
    np.testing.assert_allclose(out["dolp"], 0, atol=1e-4)  # of 16 bit


def test_invalid_pixels_stay_invalid() -> None:
    """A square with one saturated pixel is invalid, its intensity a mean of all; likewise one with a dark pixel."""
    raw = np.full((64, 64), 100, np.uint8)
    raw[20, 20] = 255
    raw[40:42, 8:10] = 0
    plain = Pipeline(products="intensity,dolp", backend="cpu", co_sited=False)(raw)
    out = Pipeline(products="intensity,dolp,aolp,stokes", backend="cpu", co_sited=False, scale=4)(raw)
    assert plain.invalid == out.invalid == (1, 1)
    want = np.zeros((8, 8), bool)
    want[2, 2] = want[5, 1] = True
    for name in ("dolp", "aolp"):
        np.testing.assert_array_equal(np.isnan(out[name]), want)
    assert np.isnan(out["stokes"]).all(-1).tolist() == want.tolist()
    np.testing.assert_allclose(out["intensity"], plain["intensity"].reshape(8, 4, 8, 4).mean((1, 3)), atol=1e-6)
    as_bytes = Pipeline(products="dolp", backend="cpu", co_sited=False, scale=4, dtype="uint8")(raw)["dolp"]
    assert as_bytes[2, 2] == as_bytes[5, 1] == 0
    no_dark = Pipeline(products="intensity", backend="cpu", scale=4)(raw)
    assert no_dark.invalid == (1, 0), "dark pixels count with products that depend on them only"


def test_frames_that_the_geometry_does_not_fit() -> None:
    pipeline = Pipeline(products="dolp,ssim", backend="cpu", roi=(10, 0, 20, 16))
    assert pipeline(np.zeros((32, 60), np.uint8))["dolp"].shape == (16, 20)
    with pytest.raises(FrameError, match=r"region of interest \(10, 0, 20, 16\) reaches beyond .* 29x16") as caught:
        pipeline(np.zeros((32, 58), np.uint8))
    assert caught.value.cause == "output"
    assert pipeline(np.zeros((40, 62), np.uint8))["dolp"].shape == (16, 20), "the next good frame works"
    # a region of interest that begins behind the border
    with pytest.raises(FrameError, match="reaches beyond"):
        Pipeline(backend="cpu", roi=(40, 0, 0, 0))(np.zeros((32, 58), np.uint8))
    assert Pipeline(backend="cpu", scale=8)(np.zeros((16, 16), np.uint8))["dolp"].shape == (1, 1)


def test_a_reference_is_of_the_output() -> None:
    frame = random_frame((64, 48))
    intensity = Pipeline(products="intensity", backend="cpu", rotate=90)(frame)["intensity"]
    pipeline = Pipeline(products="ssim", backend="cpu", ssim_mode="reference", rotate=90)
    assert pipeline.output_size((64, 48)) == intensity.shape == (24, 32)
    np.testing.assert_allclose(pipeline(frame, reference=intensity)["ssim"], 1, atol=1e-6)
    with pytest.raises(ValueError, match=r"shape \(24, 32\)"):
        pipeline(frame, reference=np.zeros((32, 24), np.float32))


def test_maps_are_made_before_frames() -> None:
    frame = random_frame((64, 48))
    pipeline = Pipeline(backend="cpu", rotate=90)
    assert not pipeline.is_ready(frame)
    pipeline.prepare(frame)
    assert pipeline.is_ready(frame)
    assert Pipeline(backend="cpu").is_ready(frame)
