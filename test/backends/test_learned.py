"""`demosaic: learned`: the CPU backend against the reference, symmetries, limits, and what is refused."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import cv2
import numpy as np
import pytest
from calibrations import lens, some_calibration
from comparison import compare, random_frame, sigma_ratios
from scenes import SCENES, behind_polarizers, sample_mosaic, synthetic
from support import REAL_FRAMES, pairs_of, real_frame

from polar_pipeline import FrameError, Pipeline, RawFrame, merge_exposures
from polar_pipeline.backends import reference
from polar_pipeline.backends.cpu.arguments import network_weights
from polar_pipeline.backends.network import LAYERS, alignment, weights
from polar_pipeline.backends.reference.learned import convolve, correct_by_network, stated_covariance
from polar_pipeline.backends.reference.noise import plane_gains, raw_variances
from polar_pipeline.options import ContradictionError, make_options
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.polarimetry.coefficients import LEARNED_LIMIT
from polar_pipeline.sensor.forward import digitize, expose
from polar_pipeline.sensor.frames import FORMATS, PackedFrame
from polar_pipeline.sensor.mosaic import SENSORS

MONO, COLOR = "IMX250MZR", "IMX250MYR"
#: In the tile of the IMX250 45 degrees lie beside 90; in this tile 135 degrees do.
EXCHANGED = "90 135 / 45 0"
OFFSETS = ((0, 0), (1, 0), (0, 1), (1, 1))
#: The smallest; superpixels that the border cuts; several tiles and several batches of superpixels.
SHAPES = ((16, 16), (17, 16), (16, 23), (25, 31), (67, 53), (18, 1030), (150, 259))
LEARNED: Dict[str, Any] = {"demosaic": "learned", "resolution": "full", "backend": "cpu"}
DENOISED: Dict[str, Any] = {"demosaic": "adaptive", "denoise": "on", "resolution": "full", "backend": "cpu"}


def compare_learned(frame: RawFrame, **options: Any) -> None:
    """Compare every product with the reference's (`compare`)."""
    compare(frame, demosaic="learned", resolution="full", **options)


def dim_frame(name: str, share: float = 0.05, size: Tuple[int, int] = (192, 224)) -> RawFrame:
    """Simulate a 12-bit mosaic of a scene at an exposure, with the noise of the sensor."""
    light = behind_polarizers(synthetic(name, size))
    light = share * np.clip(light / np.percentile(light, 99.9), 0, 1)
    return recorded(light, 7)


def recorded(light: np.ndarray, seed: int) -> RawFrame:
    """Record (4, H, W) angle images in 12 bits, with the noise of the sensor."""
    sensor, chance = SENSORS[MONO], np.random.default_rng(seed)
    return RawFrame(digitize(sample_mosaic(light, sensor), 12, sensor.full_well, sensor.read_noise, chance), 4095)


def stokes(frame: Any, **options: Any) -> np.ndarray:
    """Compute (H, W, 3) Stokes vectors on the CPU."""
    with Pipeline(products="stokes", min_intensity=0.0, **options) as pipeline:
        return np.asarray(pipeline(frame)["stokes"], float)


# ------------------------------------------------------------------------------------------------ against the reference


@pytest.mark.parametrize(
    ("sensor", "offset", "shape", "bits", "shift", "dtype"),
    pairs_of((MONO, EXCHANGED), OFFSETS, SHAPES, (8, 10, 12, 16), (0, 3), ("float32", "uint8")),
)
def test_cpu_is_the_reference(
    sensor: str, offset: Any, shape: Tuple[int, int], bits: int, shift: int, dtype: str
) -> None:
    """Complete range of light, or an eighth of it; every way in which a frame can cut superpixels."""
    frame = random_frame(shape, bits, sigma=2.0)
    frame = RawFrame(frame.mosaic >> shift, frame.full_scale)
    options: Dict[str, Any] = {"sensor": sensor, "roi_offset": offset, "dtype": dtype}
    compare_learned(frame, **options, debias=True, max_aolp_sigma=10.0)
    compare_learned(frame, **options, camera_gain=24.0, min_intensity=0.0)
    if min(shape) > 16:
        compare_learned(frame, **options, rotate=90, scale=2)


def special_frame(name: str) -> RawFrame:
    """A frame whose pixels are special in some places."""
    frame = random_frame((72, 90), 12, sigma=2.0)
    raw = frame.mosaic // 16
    if name == "black":
        raw[:] = 0
    elif name == "saturated":
        raw[:] = frame.full_scale
    elif name == "hot pixels":
        raw[np.random.default_rng(1).random(raw.shape) < 0.01] = frame.full_scale
    elif name == "half dark":
        raw[:, 45:] = 0
    elif name == "bright beside dark":
        raw[30:] = np.random.default_rng(1).normal(1200, 20, raw[30:].shape)  # with noise, as light has it
    return RawFrame(raw, frame.full_scale)


@pytest.mark.parametrize("offset", OFFSETS[1:3])
@pytest.mark.parametrize("name", ["black", "saturated", "hot pixels", "half dark", "bright beside dark"])
def test_special_frames(name: str, offset: Tuple[int, int]) -> None:
    compare_learned(special_frame(name), roi_offset=offset)


@pytest.mark.parametrize("bits", [8, 12])
def test_calibrated_frames(bits: int) -> None:
    frame = random_frame((64, 80), bits)
    frame = RawFrame(frame.mosaic >> 2, frame.full_scale)
    compare_learned(frame, calibration=some_calibration(SENSORS[MONO], (64, 80)))


def test_rectified_frames() -> None:
    frame = dim_frame("spheres", size=(64, 80))
    for options in ({}, {"scale": 2}):
        compare_learned(frame, rectify=lens((64, 80)), planes=2e-5, **options)


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("name", [*SCENES, REAL_FRAMES[1]])
def test_float32_adds_no_error_that_shows(name: str, offset: Tuple[int, int]) -> None:
    """In dim natural frames the error is up to 6.3e-6 of full scale; the network adds up to 1.7e-6 of it."""
    frame = dim_frame(name, 0.1) if name in SCENES else RawFrame(real_frame(name)[900:1060, 1100:1280] // 8, 255)
    expected = [
        reference.run(frame, make_options(products="stokes", resolution="full", min_intensity=0.0, **options))["stokes"]
        for options in (
            {"demosaic": "learned", "roi_offset": offset},
            {"demosaic": "adaptive", "denoise": "on", "roi_offset": offset},
        )
    ]
    results = [stokes(frame, **options, roi_offset=offset) for options in (LEARNED, DENOISED)]
    np.testing.assert_allclose(results[0], expected[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(results[0] - results[1], expected[0] - expected[1], rtol=0, atol=2e-6)
    assert np.abs(expected[0] - expected[1]).max() > 1e-4


def test_packed_pixels() -> None:
    frame = dim_frame("spheres", size=(40, 52))
    first, second = frame.mosaic[:, ::2], frame.mosaic[:, 1::2]
    rows = np.stack([first & 255, first >> 8 | (second & 15) << 4, second >> 4], -1).astype(np.uint8)
    packed = PackedFrame(rows.reshape(40, -1), FORMATS["12p"], 52)
    np.testing.assert_array_equal(stokes(packed, **LEARNED), stokes(frame, **LEARNED))


# ------------------------------------------------------------------------------------------------------- the definition


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_filters_of_opencv(name: str) -> None:
    """The sum over channels of OpenCV's filters; weights of 2 x 2 begin at the superpixel that they are taken for."""
    layer, kernel, bias = LAYERS[name], weights()[name].astype(float), weights()[f"{name}_bias"].astype(float)
    image = np.random.default_rng(0).normal(size=(layer.inputs, 12, 16))
    anchor = (1, 1) if layer.size == 3 else (0, 0)
    expected = [
        each
        + sum(
            cv2.filter2D(channel, -1, taps, anchor=anchor, borderType=cv2.BORDER_CONSTANT)
            for channel, taps in zip(image, filters)
        )[:: layer.stride, :: layer.stride]
        for filters, each in zip(kernel, bias)
    ]
    np.testing.assert_allclose(convolve(image, name), np.stack(expected), atol=1e-12)


def test_weights_are_those_of_the_layers() -> None:
    names = [name for layer in LAYERS for name in (layer, f"{layer}_bias")]
    assert sorted(weights()) == sorted(names)
    for (name, layer), array in zip(LAYERS.items(), network_weights()):
        kernel, bias = weights()[name], weights()[f"{name}_bias"]
        assert kernel.shape == (layer.outputs, layer.inputs, layer.size, layer.size)
        assert bias.shape == (layer.outputs,)
        assert kernel.dtype == bias.dtype == np.float16
        assert not kernel.flags.writeable
        outputs = -(-layer.outputs // 16) * 16
        assert (array.dtype, array.size) == (np.float32, outputs * (1 + layer.inputs * layer.size**2))
        assert array.sum(dtype=float) == pytest.approx(kernel.sum(dtype=float) + bias.sum(dtype=float), abs=1e-6)


def test_superpixels_lie_where_the_sensor_has_them() -> None:
    """A frame without its first row or column shows the same, away from the border: superpixels begin before it."""
    frame = dim_frame("spheres", size=(192, 224))
    whole = stokes(frame, **LEARNED)
    inside = (slice(72, -72), slice(72, -72))
    for x, y in OFFSETS[1:]:
        part = RawFrame(frame.mosaic[y:, x:], frame.full_scale)
        result = stokes(part, **LEARNED, roi_offset=(x, y))
        np.testing.assert_allclose(result[inside], whole[y:, x:][inside], rtol=0, atol=1e-6)


def test_exchanged_diagonals_negate_s2() -> None:
    """The same numbers behind a tile with 45 and 135 degrees exchanged are the mirrored scene."""
    assert [alignment(make_options(sensor).sensor) for sensor in (MONO, EXCHANGED)] == [((0, 0), 1), ((0, 0), -1)]
    frame = dim_frame("window")
    result, exchanged = (stokes(frame, sensor=sensor, **LEARNED) for sensor in (MONO, EXCHANGED))
    np.testing.assert_allclose(exchanged, result * (1, 1, -1), rtol=0, atol=1e-6)


# --------------------------------------------------------------------------------------------------- limits of changes


@pytest.mark.parametrize("name", SCENES)
def test_changes_stay_below_the_noise(name: str) -> None:
    """The noise is that at the mean S0 of a superpixel, at most that at the largest S0 of a pixel's 3 x 3 pixels."""
    frame = dim_frame(name, 0.02)
    denoised = stokes(frame, **DENOISED)
    change = np.abs(stokes(frame, **LEARNED) - denoised)
    largest = cv2.dilate(denoised[..., 0], np.ones((3, 3)))
    options = make_options(products="stokes", **{**LEARNED, "backend": "auto"})
    limit = LEARNED_LIMIT * np.sqrt(raw_variances(largest / 2, SENSORS[MONO], options, frame.full_scale))
    assert np.all(change <= limit[..., np.newaxis] + 1e-6)
    assert np.all(change.max((0, 1)) > 0.1 * limit.min())


def test_nothing_changes_where_noise_is_invisible() -> None:
    """With 24 dB less gain the noise of DoLP is below 0.8 % in bright light."""
    sensor = SENSORS[MONO]
    vector = np.broadcast_to(np.array([1.2, 0.2, -0.1]), (96, 128, 3))
    bright = RawFrame(expose(vector, sensor, 12, 16 * sensor.full_well, 1.0, np.random.default_rng(0)), 4095)
    options: Dict[str, Any] = {"camera_gain": -24.0}
    np.testing.assert_array_equal(stokes(bright, **LEARNED, **options), stokes(bright, **DENOISED, **options))
    assert np.abs(stokes(bright, **LEARNED, camera_gain=24.0) - stokes(bright, **DENOISED, camera_gain=24.0)).max() > 0


def test_the_reference_changes_nothing_there_either() -> None:
    options = make_options(products="stokes", demosaic="learned", resolution="full", camera_gain=-24.0)
    angles = np.random.default_rng(0).uniform(0.4, 0.6, (4, 32, 32))
    denoised = angles + 1e-3
    np.testing.assert_array_equal(correct_by_network(angles, denoised, SENSORS[MONO], options, 4095).angles, denoised)


def test_denoise_is_on_at_least() -> None:
    frame = dim_frame("spheres", size=(64, 80))
    off, on = (stokes(frame, **LEARNED, denoise=mode) for mode in ("off", "on"))
    np.testing.assert_array_equal(off, on)
    assert np.any(stokes(frame, **DENOISED) != on)


# ---------------------------------------------------------------------------------------------------- the stated noise


@pytest.mark.parametrize("share", [0.9, 0.2, 0.05, 0.02])
@pytest.mark.parametrize("scene", ["flat", "ramp", "waves", "spheres", "window"])
def test_sigma_is_that_of_what_is_left(scene: str, share: float) -> None:
    """Simulated: roots of mean variances over twelve frames and of what is stated, for DoLP of five and more sigmas.

    The network states them within 15 % in scenes, and within 25 % where light varies and polarization does not.
    """
    y, x = np.mgrid[:192, :224]
    if scene in SCENES:
        vector = synthetic(scene, (192, 224))
        vector = vector / np.percentile(vector[..., 0], 99.9)
    else:
        light = {"flat": 1 + 0 * x, "ramp": 0.4 + 0.6 * x / 224, "waves": 0.8 + 0.2 * np.sin(x / 9) * np.sin(y / 11)}
        vector = np.stack([light[scene], 0.3 * light[scene], 0.2 * light[scene]], -1)
    with Pipeline(products="dolp,aolp,dolp_sigma,aolp_sigma", min_intensity=0.0, **LEARNED) as pipeline:
        results = [pipeline(recorded(share * behind_polarizers(vector), seed)) for seed in range(12)]
    certain, ratios = sigma_ratios(results)
    assert certain > 0.3
    for name, ratio in ratios.items():
        assert ratio == pytest.approx(1, abs=0.25 if scene in ("waves", "ramp") else 0.15), name


def test_stated_covariances() -> None:
    """By hand: S1 and S2 share the noise of S0 by their slopes, and each has a rest of its own."""
    options = make_options(products="dolp", **{**LEARNED, "backend": "auto"})
    gains = plane_gains(*options.method_on(SENSORS[MONO]))
    s0 = np.full((1, 1), 0.4)
    (raw,) = raw_variances(s0[0] / 2, SENSORS[MONO], options, 4095)
    numbers = np.array([0.5, 0.25, 0.6, -0.2]).reshape(4, 1, 1)
    light, rest = 0.5 * raw * gains.s0[0, 0], 0.25 * raw * gains.polarization[0]
    expected = [
        [0.36 * light + rest, -0.12 * light, 0.6 * light],
        [-0.12 * light, 0.04 * light + rest, -0.2 * light],
        [0.6 * light, -0.2 * light, light],
    ]
    np.testing.assert_allclose(stated_covariance(numbers, s0, SENSORS[MONO], options, 4095)[0, 0], expected, rtol=1e-12)


# ---------------------------------------------------------------------------------------------- other stages, and bits


def test_similarity_and_counts_are_of_what_was_measured() -> None:
    frame = dim_frame("spheres")
    frame.mosaic[:20, :30], frame.mosaic[40:60, :30] = frame.full_scale, 0
    for geometry in ({}, {"rotate": 90, "scale": 2}):
        options: Dict[str, Any] = {"products": "dolp,ssim,ssim_map", "min_intensity": 0.02, **geometry}
        off, learned = (
            Pipeline(**options, **{**DENOISED, "denoise": "off"})(frame),
            Pipeline(**options, **LEARNED)(frame),
        )
        np.testing.assert_array_equal(learned["ssim_map"], off["ssim_map"])
        assert learned["ssim"] == off["ssim"]
        assert learned.invalid == off.invalid
        assert min(off.invalid) > 0
        np.testing.assert_array_equal(np.isnan(learned["dolp"]), np.isnan(off["dolp"]))
        assert "denoise" in learned.timings


@pytest.mark.parametrize("geometry", [{}, {"rotate": 90, "scale": 2}], ids=str)
def test_any_number_of_threads_makes_the_same_bits(geometry: Dict[str, Any]) -> None:
    frame = dim_frame("spheres", size=(131, 1037))
    products = "stokes,dolp,ssim_map"
    results = [Pipeline(products=products, **LEARNED, **geometry, threads=threads)(frame) for threads in (1, 2, 5)]
    for result in results[1:]:
        for name in result:
            np.testing.assert_array_equal(result[name], results[0][name], err_msg=name)


def test_frames_of_a_batch_and_of_other_sizes_do_not_meet() -> None:
    """Memory is used again: the bits of a frame depend neither on those before it nor on the products beside it."""
    frames = [dim_frame(name, size=(70, 85)) for name in SCENES]
    other = dim_frame("spheres", 0.5, size=(85, 70))
    with Pipeline(products=tuple(PRODUCTS), **LEARNED) as pipeline:
        together = pipeline(RawFrame(np.stack([frame.mosaic for frame in frames]), 4095))
        for k, frame in enumerate(frames):
            pipeline(other)
            alone = Pipeline(products="stokes,dolp,dolp_sigma", **LEARNED)(frame)
            again = pipeline(frame)
            for name in ("stokes", "dolp", "dolp_sigma"):
                np.testing.assert_array_equal(together[name][k], alone[name])
                np.testing.assert_array_equal(again[name], alone[name])


# -------------------------------------------------------------------------------------------------------------- refused


def test_color_and_half_resolution_are_refused() -> None:
    with pytest.raises(ContradictionError, match=r"demosaic 'learned' is for mono sensors, sensor is IMX250MYR"):
        make_options(COLOR, demosaic="learned", resolution="full")
    with pytest.raises(ContradictionError, match=r"demosaic 'learned' needs resolution 'full', got 'half'"):
        make_options(MONO, demosaic="learned", resolution="half")
    assert make_options(MONO, demosaic="learned", resolution="full").is_learned


def test_other_denoising_is_refused() -> None:
    """The network was trained on, and states the noise of, what `denoise: on` leaves."""
    for options, text in (
        ({"denoise": "auto"}, "denoise 'on', got 'auto'"),
        ({"denoise_strength": 2.0}, "1.3, got 2.0"),
    ):
        with pytest.raises(ContradictionError, match=f"demosaic 'learned' needs .*{text}"):
            make_options(MONO, demosaic="learned", resolution="full", **options)


def test_merged_exposures_are_refused() -> None:
    frame = RawFrame(np.full((32, 32), 40, np.uint8), 255)
    merged = merge_exposures([frame, RawFrame(2 * frame.mosaic, 255)], [1, 2])
    with Pipeline(products="stokes", **LEARNED) as pipeline, pytest.raises(
        FrameError, match="demosaic 'learned' needs frames of one exposure"
    ):
        pipeline(merged)


def test_ready_angles_are_refused() -> None:
    frame = RawFrame.of_angles(np.full((16, 16, 4), 40, np.uint8), SENSORS[MONO])
    with Pipeline(products="stokes", **LEARNED) as pipeline, pytest.raises(FrameError, match="set: resolution"):
        pipeline(frame)
