"""The option `denoise`: the reference against filters of OpenCV, the CPU backend against the reference, and errors."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Tuple

import cv2
import numpy as np
import pytest
from calibrations import some_calibration
from comparison import compare, random_frame, sigma_ratios
from scenes import SCENES, behind_polarizers, sample_mosaic, synthetic
from support import pairs_of

from polar_pipeline import FrameError, Pipeline, RawFrame
from polar_pipeline.backends import reference
from polar_pipeline.backends.noise.gains import plane_gains
from polar_pipeline.backends.noise.model import raw_noise
from polar_pipeline.backends.reference import noise as noise_module
from polar_pipeline.backends.reference.denoising import box, denoise
from polar_pipeline.backends.reference.noise import covariance_left, impulse_gains
from polar_pipeline.options import make_options
from polar_pipeline.options.methods import METHODS
from polar_pipeline.polarimetry.coefficients import DENOISE_MEANS, DENOISE_SLOPES
from polar_pipeline.sensor.forward import digitize, expose
from polar_pipeline.sensor.frames import Light
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS

MONO, COLOR = "IMX250MZR", "IMX250MYR"
FULL: Dict[str, Any] = {"resolution": "full", "demosaic": "adaptive", "backend": "cpu"}
WAYS = tuple(itertools.product(("half", "full"), METHODS))
#: Angles alone: what a benchmark of demosaicking compares.
IMAGES = tuple(f"angle_{angle}" for angle in ANGLES)


def filtered(image: np.ndarray, side: int) -> np.ndarray:
    """Means over squares, by OpenCV."""
    means: np.ndarray = cv2.blur(image, (side, side), borderType=cv2.BORDER_REFLECT_101)
    return means


def test_reference_is_what_filters_of_opencv_make() -> None:
    """The formulas once more, written for OpenCV's filters in double precision: equal but for rounding."""
    options = make_options(products="stokes", resolution="full", demosaic="bilinear", denoise="on")
    sensor = SENSORS[MONO]
    frame = random_frame((90, 110), 12, sigma=4.0)
    angles = reference.demosaic(frame.mosaic / frame.full_scale, sensor, options)
    s0, s1, s2 = np.moveaxis(reference.stokes(angles), -1, 0)
    (shot, dark), gains = raw_noise(options, frame.full_scale), plane_gains(*options.method_on(sensor))
    mean, mean_of_squares = filtered(s0, 7), filtered(s0 * s0, 7)
    noise = (shot * mean / 2 + dark) * gains.s0[0, 0]
    divisor = np.maximum(mean_of_squares - mean**2 - noise, 0) + noise
    near, squares = filtered(s0, 5), filtered(s0 * s0, 5)
    raw = shot * near / 2 + dark
    explained, slopes = [], []
    for part in (s1, s2):
        slope = (filtered(s0 * part, 7) - mean * filtered(part, 7)) / divisor
        slopes.append(filtered(slope, 7))
        explained.append(slopes[-1] * s0 + filtered(filtered(part, 7) - slope * mean, 7))
    rest = s1 - explained[0], s2 - explained[1]
    energy = cv2.GaussianBlur(rest[0] ** 2 + rest[1] ** 2, (5, 5), 1.2, borderType=cv2.BORDER_REFLECT_101)
    kept = np.maximum(1 - 2 * options.denoise_strength * raw * gains.polarization[0] / energy, 0)
    kept_s0 = np.maximum(1 - raw * gains.s0[0, 0] / (squares - near**2), 0)
    expected = near + kept_s0 * (s0 - near), *(part + kept * left for part, left in zip(explained, rest))
    result = denoise(angles, sensor, options, frame.full_scale)
    assert 0.05 < np.mean(kept > 0) < 0.95
    np.testing.assert_allclose(reference.stokes(result.angles), np.stack(expected, -1), atol=1e-9)
    left = kept, kept_s0, *((1 - kept) * slope for slope in slopes)
    np.testing.assert_allclose(result.left, left, atol=1e-9)


@pytest.mark.parametrize("way", [("half", "bilinear"), ("full", "bilinear"), ("full", "gradient")])
@pytest.mark.parametrize(
    ("kept", "kept_s0", "slopes"),
    [(1, 1, (0.5, 0.2)), (0.3, 0.8, (0.6, -0.4)), (0.5, 0.4, (0.0, 0.9)), (0.0, 0.1, (0.8, 0.1)), (0.2, 0.6, (0, 0))],
)
def test_covariances_after_filters(
    way: Tuple[str, str],
    kept: float,
    kept_s0: float,
    slopes: Tuple[float, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Noise of raw pixels in polarized light, through the method and filters of OpenCV with fixed slopes and shares."""
    options = make_options(products="dolp", resolution=way[0], demosaic=way[1])
    sensor = SENSORS[MONO]
    height, width = 1024, 1024
    at = [[sensor.angle_index(y, x) for x in range(2)] for y in range(2)]
    variances = np.tile(np.array([1.6, 0.7, 0.4, 1.3])[at], (height // 2, width // 2))
    noise = np.random.default_rng(5).normal(size=(height, width)) * np.sqrt(variances)
    angles = reference.demosaic(0.5 + noise * 1e-6, sensor, options)
    s0, s1, s2 = 1e6 * (np.moveaxis(reference.stokes(angles), -1, 0) - np.reshape([1, 0, 0], (3, 1, 1)))
    wide = [filtered(filtered(image, 7), 7) for image in (s0, s1, s2)]
    explained = [mean + slope * (s0 - wide[0]) for mean, slope in zip(wide[1:], slopes)]
    parts = [own + kept * (part - own) for part, own in zip((s1, s2), explained)]
    images = (*parts, filtered(s0, 5) + kept_s0 * (s0 - filtered(s0, 5)))
    real = np.cov(np.stack([image[16:-16, 16:-16].ravel() for image in images]))
    gains = plane_gains(*options.method_on(sensor))
    raw = impulse_gains(*options.method_on(sensor)).mean((0, 1))[0]
    before = np.tensordot(np.array([1.6, 0.7, 0.4, 1.3]), raw, 1)[np.newaxis, np.newaxis]
    left = np.reshape([kept, kept_s0, *((1 - kept) * np.array(slopes))], (4, 1, 1))
    # fixed slopes and shares add no noise of their own
    gains = gains._replace(left=gains.left / DENOISE_MEANS / (1 + DENOISE_SLOPES * kept_s0))
    monkeypatch.setattr(noise_module, "DENOISE_OWN", 0.0)
    # variances of so many pixels are known to 1 %; the stated ones leave out what is common to means and the kept rest
    bound = 0.02 * np.diag(real).max() + 2 * kept * (1 - kept) * 0.14 * np.diag(real).max()
    np.testing.assert_allclose(covariance_left(before, left, gains)[0, 0], real, atol=bound)


@pytest.mark.parametrize(
    ("sensor", "way", "shape", "bits", "mode", "dtype"),
    pairs_of(
        *((MONO, COLOR), WAYS, ((16, 16), (67, 53), (34, 1030), (290, 259), (16, 515))),
        *((8, 12, 16), ("on", "auto"), ("float32", "uint8")),
    ),
)
def test_cpu_is_the_reference(sensor: str, way: Any, shape: Tuple[int, int], bits: int, mode: str, dtype: str) -> None:
    """Images smaller than the windows, several tiles, and the last one of few rows or columns."""
    frame = random_frame(shape, bits, sigma=2.0)
    options: Dict[str, Any] = {"sensor": sensor, "dtype": dtype, "denoise": mode, "resolution": way[0]}
    compare(frame, **options, demosaic=way[1], denoise_strength=2.5, debias=True)
    compare(frame, **{**options, "resolution": "half"}, co_sited=False, camera_gain=24.0)
    if min(shape) > 16:
        compare(frame, **options, demosaic=way[1], rotate=90, scale=2)


@pytest.mark.parametrize("sensor", [MONO, COLOR])
def test_calibrated_frames(sensor: str) -> None:
    calibration = some_calibration(SENSORS[sensor], (64, 80))
    for bits in (8, 12):
        compare(random_frame((64, 80), bits), sensor=sensor, calibration=calibration, denoise="on")


def dim_frame(name: str, share: float, bits: int = 12, size: Tuple[int, int] = (192, 224)) -> Tuple[Any, np.ndarray]:
    """A mosaic of a scene at an exposure, with the noise of the sensor; and its true angle images."""
    truth = behind_polarizers(synthetic(name, size))
    truth = np.clip(truth / np.percentile(truth, 99.9), 0, 1)
    sensor = SENSORS[MONO]
    light = share * sample_mosaic(truth, sensor)
    raw = digitize(light, bits, sensor.full_well, sensor.read_noise, np.random.default_rng(7))
    return RawFrame(raw, (1 << bits) - 1), truth * share


def errors(frame: Any, truth: np.ndarray, **options: Any) -> Tuple[float, float]:
    """Root mean square errors of S0 and of (S1, S2), without the border."""
    with Pipeline(products=IMAGES, resolution="full", backend="cpu", **options) as pipeline:
        result = pipeline(frame)
    difference = reference.stokes(np.stack([result[name] for name in IMAGES])) - reference.stokes(truth)
    inner = difference[8:-8, 8:-8]
    return float(np.sqrt(np.mean(inner[..., 0] ** 2))), float(np.sqrt(np.mean(inner[..., 1:] ** 2)))


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("method", METHODS)
def test_dim_scenes_gain(name: str, method: str) -> None:
    """At 5 % exposure noise is much of the error: of S1 and S2 0.51 to 0.85 is left, by scene and method."""
    frame, truth = dim_frame(name, 0.05)
    before, after = (errors(frame, truth, demosaic=method, denoise=mode) for mode in ("off", "on"))
    assert after[1] < 0.9 * before[1]
    assert after[0] < 1.03 * before[0]  # bilinear angles have little noise, and lose 0.2 dB of detail


@pytest.mark.parametrize("name", SCENES)
def test_bright_scenes_do_not_lose(name: str) -> None:
    frame, truth = dim_frame(name, 0.95)
    before, after = (errors(frame, truth, denoise=mode) for mode in ("off", "on"))
    assert after[1] < 1.006 * before[1]  # 0.05 dB
    assert after[0] < 1.006 * before[0]


def test_auto_leaves_frames_without_noise() -> None:
    """With 24 dB less gain the noise of DoLP is below 0.5 %; in dim light `auto` does what `on` does."""
    bright, _ = dim_frame("spheres", 0.9)
    dim, _ = dim_frame("spheres", 0.01)
    options: Dict[str, Any] = {"products": "stokes,dolp_sigma", "min_intensity": 0.2, "backend": "cpu"}
    off, auto = (Pipeline(**options, denoise=mode, camera_gain=-24.0)(bright) for mode in ("off", "auto"))
    for name in off:
        np.testing.assert_allclose(auto[name], off[name], atol=2e-6)  # float32, computed in another way
    options["min_intensity"] = 0.0
    on, auto = (Pipeline(**options, denoise=mode)(dim) for mode in ("on", "auto"))
    np.testing.assert_array_equal(auto["stokes"], on["stokes"])


def test_similarity_and_counts_are_of_what_was_measured() -> None:
    frame, _ = dim_frame("spheres", 0.05)
    frame.mosaic[:20, :30], frame.mosaic[40:60, :30] = frame.full_scale, 0
    for geometry in ({}, {"rotate": 90, "scale": 2}):
        options: Dict[str, Any] = {
            "products": "dolp,ssim,ssim_map",
            "min_intensity": 0.02,
            "backend": "cpu",
            **geometry,
        }
        off, on = (Pipeline(**options, denoise=mode)(frame) for mode in ("off", "on"))
        np.testing.assert_array_equal(on["ssim_map"], off["ssim_map"])
        assert on["ssim"] == off["ssim"]
        assert on.invalid == off.invalid
        np.testing.assert_array_equal(np.isnan(on["dolp"]), np.isnan(off["dolp"]))
        assert "denoise" in on.timings
        assert "denoise" not in off.timings


def test_any_number_of_threads_makes_the_same_bits() -> None:
    frame, _ = dim_frame("spheres", 0.05, size=(512, 640))
    results = [
        Pipeline(products="stokes,dolp_sigma", resolution="full", denoise="on", threads=threads, backend="cpu")(frame)
        for threads in (1, 2, 5)
    ]
    for result in results[1:]:
        for name in result:
            np.testing.assert_array_equal(result[name], results[0][name])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("scene", "degree"), [("flat", 0.06), ("ramp", 0.06), ("waves", 0.06), ("flat", 0.5), ("flat", 0.8)]
)
def test_sigma_is_that_of_what_is_left(way: Tuple[str, str], scene: str, degree: float) -> None:
    """Simulated: root mean squares of errors and of what is stated agree to 10 % for DoLP of some standard deviations.

    Ramps and waves have no detail that a demosaic loses at these methods, as that is no noise. With much polarization,
    S0, S1 and S2 have most of their noise in common; without that, the ratio was 1.26.
    """
    resolution, method = way
    shape = (224, 224)
    y, x = np.mgrid[: shape[0], : shape[1]]
    light = {"flat": 1 + 0 * x, "ramp": 0.6 + 0.8 * x / shape[1], "waves": 1 + 0.2 * np.sin(x / 9) * np.sin(y / 11)}[
        scene
    ]
    sensor = SENSORS[MONO]
    angle = 0.5
    s0 = 0.1 * light
    vector = np.stack([s0, s0 * degree * np.cos(2 * angle), s0 * degree * np.sin(2 * angle)], -1)
    squares = np.zeros(2)
    options: Dict[str, Any] = {"resolution": resolution, "demosaic": method, "denoise": "on", "backend": "cpu"}
    pipeline = Pipeline(products="stokes,dolp_sigma,aolp", **options)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        raw = expose(vector, sensor, 12, sensor.full_well, sensor.read_noise, rng)
        result = pipeline(RawFrame(raw, 4095))
        stokes = result["stokes"].astype(float)[12:-12, 12:-12]
        error = np.hypot(stokes[..., 1], stokes[..., 2]) / stokes[..., 0] - degree
        squares += np.mean(error**2), np.mean(result["dolp_sigma"][12:-12, 12:-12].astype(float) ** 2)
    # 16 independent patches of 7 x 7 pixels, or more, in each row: the root mean square is known to 2 %
    assert np.sqrt(squares[1] / squares[0]) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("share", [0.9, 0.2, 0.05])
@pytest.mark.parametrize("scene", ["flat", "texture", *SCENES])
def test_sigma_follows_what_s0_explains(scene: str, share: float) -> None:
    """Simulated: roots of mean variances over twelve frames and of what is stated, for DoLP of five and more sigmas.

    In texture of one polarization the noise of S0 cancels in DoLP, in flat fields it does not; with a share of the
    noise that is the same for S0, S1 and S2, the ratio was 0.74 in some scenes.
    """
    shape = (192, 224)
    if scene in SCENES:
        vector = synthetic(scene, shape)
        vector = vector / np.percentile(vector[..., 0], 99.9)
    else:
        texture = cv2.GaussianBlur(np.random.default_rng(1).normal(size=shape), (0, 0), 1.5)
        light = np.clip(0.6 + 0.5 * texture * (scene == "texture"), 0.05, 1)
        vector = np.stack([light, 0.5 * light, 0.3 * light], -1)
    sensor = SENSORS[MONO]
    light = share * sample_mosaic(behind_polarizers(vector), sensor)
    pipeline = Pipeline(products="dolp,aolp,dolp_sigma,aolp_sigma", min_intensity=0.0, **FULL, denoise="on")
    results = []
    for seed in range(12):
        raw = digitize(light, 12, sensor.full_well, sensor.read_noise, np.random.default_rng(seed))
        results.append(pipeline(RawFrame(raw, 4095)))
    certain, ratios = sigma_ratios(results)
    assert certain > 0.2
    for name, ratio in ratios.items():
        assert ratio == pytest.approx(1, abs=0.16), name


def test_means_of_squares_are_opencvs() -> None:
    image = np.random.default_rng(0).random((9, 8))
    np.testing.assert_allclose(box(image, 3), filtered(image, 7), atol=1e-12)


def test_what_cannot_be_denoised_is_refused() -> None:
    light = RawFrame.of_light(Light(np.full((4, 16, 16), 0.2, np.float32)), SENSORS[MONO])
    with pytest.raises(FrameError, match="denoise: the noise of raw pixels is unknown"):
        Pipeline(products="dolp", denoise="on", backend="cpu")(light)


def test_less_is_kept_with_more_strength() -> None:
    """The option reaches the kernels: what is left of the noise of a flat field decreases."""
    sensor = SENSORS[MONO]
    vector = np.broadcast_to(np.array([0.1, 0.0, 0.0]), (128, 128, 3))
    raw = expose(vector, sensor, 12, sensor.full_well, sensor.read_noise, np.random.default_rng(1))
    options: Dict[str, Any] = {"products": "stokes", "denoise": "on", "backend": "cpu"}
    results = (Pipeline(**options, denoise_strength=k)(RawFrame(raw, 4095)) for k in (0.1, 0.6, 1.3))
    spread = [float(np.std(result["stokes"][..., 1])) for result in results]
    assert spread[0] > 1.5 * spread[1] > 1.5 * spread[2]


@pytest.mark.parametrize("resolution", ["half", "full"])
def test_dark_rows_below_bright_ones(resolution: str) -> None:
    """What windows add up must not keep the rounding of bright rows: a moving sum was off by half of the noise here."""
    rng = np.random.default_rng(3)
    light = np.full((160, 256), 0.006)
    light[:60] = 0.9 * (1 + 0.05 * rng.normal(size=(60, 256)))
    sensor = SENSORS[MONO]
    raw = digitize(light.clip(0, 1), 12, sensor.full_well, sensor.read_noise, rng)
    options: Dict[str, Any] = {"products": "stokes", "resolution": resolution, "demosaic": "gradient"}
    options.update(denoise="on", min_intensity=0.0)
    result = Pipeline(**options, backend="cpu")(RawFrame(raw, 4095))["stokes"]
    expected = reference.run(RawFrame(raw, 4095), make_options(**options))["stokes"]
    dark = slice(90 if resolution == "full" else 45, None)
    assert np.std(expected[dark, :, 1]) < 3e-4
    np.testing.assert_allclose(result[dark], expected[dark], atol=1e-7)  # of values below 0.02, in float32
