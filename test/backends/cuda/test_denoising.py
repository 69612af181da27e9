"""The option `denoise` on the CUDA backend: against the float64 reference, and in any tile the same bits."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Tuple

import numpy as np
import pytest
from calibrations import lens, some_calibration
from comparison import problems_of, random_frame, run_floats
from support import pairs_of
from test_backend import STAND_INS, compute_both, make, make_driver, on_gpus, run

from polar_pipeline import RawFrame
from polar_pipeline.backends.cuda.device import DEVICES
from polar_pipeline.backends.cuda.program import requested_launches
from polar_pipeline.backends.cuda.report import make_plan, plan_text
from polar_pipeline.options import make_options
from polar_pipeline.options.methods import METHODS
from polar_pipeline.options.products import NOISE_PRODUCTS, PRODUCTS
from polar_pipeline.sensor.mosaic import SENSORS

MONO, COLOR = "IMX250MZR", "IMX250MYR"
WAYS = tuple(itertools.product(("half", "full"), METHODS))
POLAR = ("intensity", "dolp", "aolp")
IMAGES = tuple(name for name in PRODUCTS if not name.startswith("ssim"))
#: Windows that images are smaller than; several tiles, with a last one of few rows or columns.
SHAPES = ((16, 16), (67, 53), (34, 198), (150, 140))


def compare(driver: Any, frame: RawFrame, products: Tuple[str, ...], **options: Any) -> None:
    """Every product lies within its bound around the reference's; the same pixels are invalid."""
    chosen, found, truth = compute_both(driver, frame, products, **options)
    assert problems_of(chosen, frame, found, truth, strays=0) == []


@pytest.mark.parametrize("name", [STAND_INS[1], *on_gpus])
@pytest.mark.parametrize(
    ("sensor", "way", "shape", "bits", "mode", "dtype"),
    pairs_of((MONO, COLOR), WAYS, SHAPES, (8, 12, 16), ("on", "auto"), ("float32", "uint8")),
)
def test_matches_reference(
    name: str, sensor: str, way: Any, shape: Tuple[int, int], bits: int, mode: str, dtype: str
) -> None:
    frame = random_frame(shape, bits, sigma=2.0)
    options: Dict[str, Any] = {"sensor": sensor, "dtype": dtype, "denoise": mode, "denoise_strength": 2.5}
    options.update(resolution=way[0], demosaic=way[1], bit_depth=bits if bits > 8 else 0)
    if bits == 12:  # with everything that depends on noise
        compare(make_driver(name), frame, IMAGES, **options, debias=True, camera_gain=6.0)
    else:
        compare(make_driver(name), frame, POLAR, **options)


@pytest.mark.parametrize("name", [*STAND_INS, *on_gpus])
@pytest.mark.parametrize("sensor", [MONO, COLOR])
def test_before_a_geometry_and_with_a_calibration(name: str, sensor: str) -> None:
    """Denoised planes are scaled, turned and rectified; all products but those of the noise."""
    images = tuple(image for image in IMAGES if image not in NOISE_PRODUCTS)
    shape, driver = (64, 80), make_driver(name)
    calibration = some_calibration(SENSORS[sensor], shape)
    options: Dict[str, Any] = {"sensor": sensor, "denoise": "on", "min_intensity": 0.05}
    compare(driver, random_frame(shape, sigma=2.0), images, **options, rotate=90, scale=2, calibration=calibration)
    compare(driver, random_frame(shape, sigma=2.0), POLAR, **options, rectify=lens(shape, zoom=0.9), precision="fp32")


@pytest.mark.parametrize("name", [*STAND_INS, *on_gpus])
@pytest.mark.parametrize("mode", ["consistency", "temporal"])
@pytest.mark.parametrize("geometry", [{}, {"rotate": 90, "scale": 2}])
def test_similarity_and_counts_are_of_what_was_measured(name: str, mode: str, geometry: Dict[str, Any]) -> None:
    driver, results = make_driver(name), {}
    frames = [random_frame((64, 96), seed=seed, sigma=1.0) for seed in (1, 2)]
    for denoise in ("off", "on"):
        products = ("dolp", "ssim_map", "ssim")
        options = {"ssim_mode": mode, "min_intensity": 0.3, "ssim_window": 7, "denoise": denoise, **geometry}
        made = make(driver, products, **options)
        results[denoise] = [run(made, frame) for frame in frames]
        made.close()
    for off, on in zip(results["off"], results["on"]):
        np.testing.assert_array_equal(on["ssim_map"], off["ssim_map"])
        assert on.invalid == off.invalid
        assert min(on.invalid) > 0
        np.testing.assert_array_equal(np.isnan(on["dolp"]), np.isnan(off["dolp"]))
        assert np.nanmax(np.abs(on["dolp"] - off["dolp"])) > 1e-3
        stages = ["upload", "polarization", "denoise", *["geometry"] * bool(geometry), "ssim", "download"]
        assert list(on.timings) == stages


@pytest.mark.parametrize("name", [STAND_INS[1], *on_gpus])
def test_dark_rows_below_bright_ones(name: str) -> None:
    """No sum keeps the rounding of bright rows: in the dark the noise is 1e-4 of full scale."""
    rng = np.random.default_rng(3)
    light = np.full((128, 96), 0.006)
    light[:48] = 0.9
    noisy = light + np.sqrt(light / 10_000 + 2.4e-4**2) * rng.normal(size=light.shape)
    frame = RawFrame(np.rint(4095 * noisy.clip(0, 1)).astype(np.uint16), 4095)
    options: Dict[str, Any] = {"denoise": "on", "min_intensity": 0.0, "bit_depth": 12, "dtype": "float32"}
    made = make(make_driver(name), ("stokes",), **options)
    found = run(made, frame)["stokes"]
    made.close()
    expected = run_floats(frame, make_options(products="stokes", **options))["stokes"]
    assert np.std(expected[40:, :, 1]) < 3e-4
    np.testing.assert_allclose(found[40:], expected[40:], atol=1e-6)  # float32, of shares of full scale


def test_what_only_ssim_needs_is_not_denoised() -> None:
    launches = requested_launches(make_options(products="ssim", denoise="on", scale=2), "u8", (640, 480))
    assert [launch.stage for launch in launches] == ["polarization", "geometry", "ssim"]


def test_the_plan_shows_its_launches() -> None:
    options = make_options(products=("dolp", "ssim"), denoise="on", denoise_strength=2.0, rotate=90)
    plan = make_plan(options, DEVICES["orin"], "u8", (2448, 2048))
    text = plan_text(plan)
    assert [stage["name"] for stage in plan["launches"]] == ["polarization", "denoise", "geometry", "geometry", "ssim"]
    assert "denoise        S0, S1 and S2 without the noise that the noise model expects, times 2" in text
    assert "from, to   differences, means -> denoised_differences, denoised_means" in text
    assert "from, to   denoised_differences, denoised_means -> dolp" in text
    assert "from, to   differences, means, excesses -> ssim_pair" in text
