"""`demosaic: learned` on the CUDA backend: against the float64 reference, and what its launches are."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Tuple

import numpy as np
import pytest
from calibrations import lens, some_calibration
from comparison import problems_of, random_frame, run_floats
from support import pairs_of
from test_backend import STAND_INS, HostDriver, compute_both, make, make_driver, on_gpus, run
from test_device_results import DeviceDriver, on_host

from polar_pipeline import RawFrame
from polar_pipeline.backends.backend import Buffers
from polar_pipeline.backends.cuda.device import DEVICES
from polar_pipeline.backends.cuda.learned import PARTS, matrix_of, order_of_tile, pack_network
from polar_pipeline.backends.cuda.memory import Constants
from polar_pipeline.backends.cuda.program import DeviceProgram, requested_launches
from polar_pipeline.backends.cuda.report import make_plan, plan_text
from polar_pipeline.backends.network import LAYERS, weights
from polar_pipeline.backends.reference.learned import alignment
from polar_pipeline.backends.reference.noise import raw_variances
from polar_pipeline.options import Options, make_options
from polar_pipeline.options.products import NOISE_PRODUCTS, PRODUCTS

POLAR = ("intensity", "dolp", "aolp")
IMAGES = tuple(name for name in PRODUCTS if not name.startswith("ssim"))
OF_GEOMETRY = tuple(name for name in IMAGES if name not in NOISE_PRODUCTS)
#: By the place of the polarizer of 90 degrees, and by the sign of S2.
TILES = ("90 45 / 135 0", "45 90 / 0 135", "135 0 / 90 45", "0 135 / 45 90", "90 135 / 45 0", "0 45 / 135 90")
#: Fewer superpixels than a window; several tiles with few rows or columns in the last one; odd sizes.
SHAPES = ((16, 16), (67, 53), (34, 198), (50, 140))
#: Largest error of S0, S1 and S2 in standard deviations of a raw pixel, and its mean: of planes in float, in half.
BOUNDS, MEAN_BOUNDS = (0.012, 0.05), (5e-4, 4e-3)


def learned(**options: Any) -> Dict[str, Any]:
    return {"sensor": "IMX250MZR", "demosaic": "learned", "resolution": "full", "dtype": "float32", **options}


def compare(driver: Any, frame: RawFrame, products: Tuple[str, ...], **options: Any) -> None:
    """Every product lies within its bound around the reference's; the same pixels are invalid."""
    chosen, found, truth = compute_both(driver, frame, products, **options)
    assert problems_of(chosen, frame, found, truth, strays=0) == []


def deviations(light: np.ndarray, options: Options, full_scale: int) -> np.ndarray:
    """Standard deviations of raw pixels by noise, from S0."""
    return np.sqrt(raw_variances(light / 2, options.sensor, options, full_scale))[..., np.newaxis]


@pytest.mark.parametrize("name", [STAND_INS[1], *on_gpus])
@pytest.mark.parametrize(("sensor", "shape", "noise"), pairs_of(TILES, SHAPES, ((8, 36.0), (12, 24.0), (16, 0.0))))
def test_matches_reference(name: str, sensor: str, shape: Tuple[int, int], noise: Tuple[int, float]) -> None:
    """What the network adds to the Stokes image is that of the reference to a small share of the noise."""
    bits, gain = noise
    options = learned(sensor=sensor, camera_gain=gain, bit_depth=bits if bits > 8 else 0)
    options["min_intensity"] = 0.0
    frame = random_frame(shape, bits, sigma=2.0)
    made = make(make_driver(name), ("stokes",), **options)
    found = run(made, frame)["stokes"]
    made.close()
    chosen = make_options(products="stokes", **options)
    truth = run_floats(frame, chosen)["stokes"]
    plain = run_floats(frame, make_options(products="stokes", **{**options, "demosaic": "adaptive", "denoise": "on"}))
    deviation = deviations(truth[..., 0], chosen, frame.full_scale)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(truth))
    error = np.abs(found - truth) / deviation
    assert np.nanmax(error) < BOUNDS[bits == 8]
    assert np.nanmean(error) < MEAN_BOUNDS[bits == 8]
    assert np.nanmax(np.abs(truth - plain["stokes"]) / deviation) > 0.1  # more than both bounds


def test_tiles_have_every_alignment() -> None:
    cases = {alignment(make_options(products="dolp", **learned(sensor=tile)).sensor) for tile in TILES}
    assert {place for place, _ in cases} == {*itertools.product((0, 1), repeat=2)}
    assert {sign for _, sign in cases} == {1, -1}


@pytest.mark.parametrize("name", [STAND_INS[1], *on_gpus])
@pytest.mark.parametrize("noise", [(8, 6.0), (12, 24.0)])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_every_product(name: str, noise: Tuple[int, float], dtype: str) -> None:
    bits, gain = noise
    options = learned(dtype=dtype, camera_gain=gain, bit_depth=bits if bits > 8 else 0, flip=(True, False))
    frame = random_frame((67, 53), bits, sigma=2.0)
    compare(make_driver(name), frame, IMAGES, **options)
    compare(make_driver(name), frame, ("dolp", "aolp"), **options, debias=True, max_aolp_sigma=10.0)


@pytest.mark.parametrize("name", [*STAND_INS, *on_gpus])
def test_before_a_geometry_and_with_a_calibration(name: str) -> None:
    """Corrected planes are scaled, turned and rectified."""
    shape, driver = (64, 80), make_driver(name)
    options = learned(min_intensity=0.05, camera_gain=6.0)
    calibration = some_calibration(make_options(products="dolp", **options).sensor, shape)
    frame = random_frame(shape, sigma=2.0)
    compare(driver, frame, OF_GEOMETRY, **options, rotate=90, scale=2, calibration=calibration)
    compare(driver, frame, POLAR, **options, rectify=lens(shape, zoom=0.9), precision="fp32")


@pytest.mark.parametrize("name", [*STAND_INS, *on_gpus])
@pytest.mark.parametrize("geometry", [{}, {"rotate": 90, "scale": 2}])
def test_similarity_and_counts_are_of_what_was_measured(name: str, geometry: Dict[str, Any]) -> None:
    driver, results = make_driver(name), {}
    frames = [random_frame((64, 96), seed=seed, sigma=1.0) for seed in (1, 2)]
    for demosaic in ("adaptive", "learned"):
        options = learned(demosaic=demosaic, min_intensity=0.3, ssim_window=7, ssim_mode="temporal", **geometry)
        made = make(driver, ("dolp", "ssim_map", "ssim"), **options)
        results[demosaic] = [run(made, frame) for frame in frames]
        made.close()
    for before, after in zip(results["adaptive"], results["learned"]):
        np.testing.assert_array_equal(after["ssim_map"], before["ssim_map"])
        assert after.invalid == before.invalid
        assert min(after.invalid) > 0
        np.testing.assert_array_equal(np.isnan(after["dolp"]), np.isnan(before["dolp"]))
        assert np.nanmax(np.abs(after["dolp"] - before["dolp"])) > 1e-3
        stages = ["upload", "polarization", "denoise", "learned", *["geometry"] * bool(geometry), "ssim", "download"]
        assert list(after.timings) == stages


@pytest.mark.parametrize("name", [STAND_INS[1], *on_gpus])
@pytest.mark.parametrize("geometry", [{}, {"scale": 2}])
def test_batches_on_the_device_are_as_single_frames(name: str, geometry: Dict[str, Any]) -> None:
    driver = make_driver(name)
    driver = DeviceDriver(driver.device) if isinstance(driver, HostDriver) else driver
    shape, products = (40, 72), POLAR
    options = learned(camera_gain=12.0, **geometry)
    frames = [random_frame(shape, seed=seed, sigma=2.0) for seed in range(3)]
    chosen = make_options(products=products, output="device", **options)
    launches = requested_launches(chosen, "u8", shape[::-1])
    program = DeviceProgram(driver, launches, chosen, Constants(driver), False, len(frames))
    result = program.submit(np.stack([frame.mosaic for frame in frames]), Buffers(driver.host_array))()
    together = on_host(result)
    made = make(driver, products, **options)
    for k, frame in enumerate(frames):
        one = run(made, frame)
        for product in products:
            np.testing.assert_array_equal(together[product][k], one[product], product)
    made.close()


def test_the_weights_of_a_tile_are_in_the_order_of_lanes() -> None:
    """Each lane has every weight of its outputs and inputs once, in both orders."""
    for is_image in (False, True):
        assert sorted(order_of_tile(is_image)) == [*range(256)]
    packed = pack_network()
    assert packed.weights.shape == (sum(matrix_of(name)[0].size for name in LAYERS) // 256, 2, 16, 16)
    assert pack_network().weights is packed.weights  # uploaded once for all programs
    matrix, bias = matrix_of("leave")
    assert matrix.shape == (16, 16)
    np.testing.assert_array_equal(matrix[:, 3::4].T, weights()["leave"][12:, :, 0, 0])  # the noise
    np.testing.assert_array_equal(bias[3::4], weights()["leave_bias"][12:])


def test_what_only_ssim_needs_is_not_corrected() -> None:
    launches = requested_launches(make_options(products="ssim", **learned(scale=2)), "u8", (640, 480))
    assert [launch.stage for launch in launches] == ["polarization", "geometry", "ssim"]


def test_the_plan_shows_its_launches() -> None:
    options = make_options(products=("dolp", "ssim"), **learned(rotate=90))
    plan = make_plan(options, DEVICES["orin"], "u8", (2448, 2048))
    names = [stage["name"] for stage in plan["launches"]]
    assert names == ["polarization", "denoise", *["learned"] * len(PARTS), "geometry", "geometry", "ssim"]
    text = plan_text(plan)
    assert "learned        S0, S1 and S2 corrected by a network, by less than the noise" in text
    assert "from, to   middle -> merged" in text
    assert "from, to   corrected_differences, corrected_means -> dolp" in text
