"""Noise: gains by hand, simulated errors of products, and the similarity that noise leaves."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Dict, List, Mapping, Tuple

import numpy as np
import pytest
from comparison import run_floats
from edges import edge_pattern

from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.backends.noise.gains import TERMS, pair_gains, stokes_gains
from polar_pipeline.backends.noise.model import raw_noise, uses_noise
from polar_pipeline.backends.reference import noise as reference
from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.options import make_options
from polar_pipeline.options.methods import METHODS
from polar_pipeline.quality.statistics import (
    FrameQuality,
    Level,
    Quality,
    QualityLimits,
    Spot,
    expected_similarity,
    measure,
)
from polar_pipeline.sensor.forward import analyzed, digitize, expose
from polar_pipeline.sensor.frames import FORMATS, PackedFrame, pack
from polar_pipeline.sensor.mosaic import SENSORS, Sensor

MONO, COLOR = "IMX250MZR", "IMX250MYR"
#: Every method of every sensor: sensor and options.
CASES: Tuple[Tuple[str, Dict[str, Any]], ...] = (
    (MONO, {"co_sited": False, "demosaic": "auto"}),
    *((COLOR, {"co_sited": False, "demosaic": method}) for method in ("auto", "bilinear", "adaptive")),
    (COLOR, {"resolution": "half", "demosaic": "auto"}),  # on a mono sensor that is bilinear
    *(
        (sensor, {"resolution": resolution, "demosaic": method})
        for sensor in (MONO, COLOR)
        for resolution in ("half", "full")
        for method in METHODS
    ),
)
IDS = [" ".join([sensor, *map(str, options.values())]) for sensor, options in CASES]
#: One standard deviation of a normal distribution.
SIGMA = 0.6827
#: Read noise in electrons.
READ_NOISE = 2.4


@lru_cache(maxsize=64)
def flat_field(sensor: str, full_well: float, degree: float, angle: float, bits: int = 12) -> np.ndarray:
    """384x384 raw pixels of light of one polarization, with noise; at a DoLP of 0.95 none is saturated."""
    s0 = 1.0 if degree < 0.9 else 0.9
    vector = s0 * np.array([1, degree * np.cos(2 * angle), degree * np.sin(2 * angle)])
    shape = (384, 384, 3, 3) if SENSORS[sensor].is_color else (384, 384, 3)
    rng = np.random.default_rng(round(1000 * degree + full_well))
    raw = expose(np.broadcast_to(vector, shape), SENSORS[sensor], bits, full_well, READ_NOISE, rng)
    raw.flags.writeable = False
    return raw


def with_noise(sensor: str, full_well: float) -> Sensor:
    """A sensor with other figures of noise."""
    return replace(SENSORS[sensor], full_well=full_well, read_noise=READ_NOISE)


def inside(image: np.ndarray) -> np.ndarray:
    """Without the border, where mirrored pixels count twice."""
    return image[8:-8, 8:-8]


class Errors:
    """Simulated errors of a method on a flat field, and what it says of them.

    Attributes:
        sigma: Median of what it says of DoLP.
        ratio: The DoLP over that.
        dolp: Share of the pixels whose DoLP lies within its standard deviation of the true one.
        aolp: Likewise of AoLP.
        debiased: Likewise of DoLP with the option `debias`.
        bias: Mean error of DoLP with the option `debias`, over `sigma`.
    """

    def __init__(
        self, sensor: str, options: Dict[str, Any], full_well: float, degree: float, angle: float, bits: int = 12
    ) -> None:
        raw = RawFrame(flat_field(sensor, full_well, degree, angle, bits), (1 << bits) - 1)
        products = ("dolp", "aolp", "dolp_sigma", "aolp_sigma")
        with Pipeline(with_noise(sensor, full_well), products, "cpu", **options) as pipeline:
            out = {name: inside(image).astype(float) for name, image in pipeline(raw).items()}
        with Pipeline(with_noise(sensor, full_well), "dolp", "cpu", debias=True, **options) as pipeline:
            debiased = inside(pipeline(raw)["dolp"]).astype(float) - degree
        assert not np.isnan(out["dolp"]).any()
        error = out["dolp"] - degree
        turn = np.abs(out["aolp"] - angle)
        self.sigma = float(np.median(out["dolp_sigma"]))
        self.dolp = float(np.mean(np.abs(error) <= out["dolp_sigma"]))
        self.aolp = float(np.mean(np.minimum(turn, np.pi - turn) <= out["aolp_sigma"]))
        self.debiased = float(np.mean(np.abs(debiased) <= out["dolp_sigma"]))
        self.bias = float(debiased.mean()) / self.sigma
        self.ratio = degree / self.sigma


# ---------------------------------------------------------------------------------------------------------------- gains


def test_gains_by_hand() -> None:
    """Each angle at its own site: S1 = I0 - I90, S2 = I45 - I135, S0 is half of their sum; by color and polarizer."""
    gains = stokes_gains(SENSORS[MONO], True, False, "bilinear", "bilinear")
    assert TERMS == ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))
    expected = [[1, 0, 0, 0.5, 0, 0.25], [0, 0, 1, 0, 0.5, 0.25], [1, 0, 0, -0.5, 0, 0.25], [0, 0, 1, 0, -0.5, 0.25]]
    np.testing.assert_array_equal(gains, [[[expected]]])
    # superpixels of green next to red ones: four reds around make a quarter each, of which luma takes a quarter
    color = stokes_gains(SENSORS[COLOR], True, False, "bilinear", "bilinear")
    assert color.shape == (2, 2, 3, 4, 6)
    # at a red pixel: red itself, the means of four greens and of four blues
    np.testing.assert_array_equal(color[0, 0, :, 0, 0], [0.25**2, 0.5**2 / 4, 0.25**2 / 4])


@pytest.mark.parametrize(("sensor", "options"), CASES, ids=IDS)
def test_gains_are_those_of_the_kernels(sensor: str, options: Dict[str, Any]) -> None:
    """The covariances of (S1, S2, S0) that noise of one color and polarizer leaves in what the CPU's kernels compute.

    The gains come from the reference's impulse responses, so the reference cannot test them. The noise is so small that
    adaptive methods keep their choices; 1,500 pixels or more at each place: five deviations of a variance are 18 %.
    """
    mosaic, chance = SENSORS[sensor], np.random.default_rng(0)
    used = make_options(sensor, backend="cpu", **options)
    gains = stokes_gains(mosaic, used.resolution == "half", used.co_sited, used.interpolation, used.debayer)
    n, period = gains.shape[0], mosaic.period
    with Pipeline(sensor, "stokes", "cpu", **options) as pipeline:
        for color, polarizer in {(0, 0), (gains.shape[2] - 1, 3), (gains.shape[2] // 2, 1)}:
            noise = np.zeros((224, 224))
            for row, column in np.ndindex(period, period):
                if (mosaic.color_index(row, column), mosaic.angle_index(row, column)) == (color, polarizer):
                    noise[row::period, column::period] = chance.normal(0, 30, (224 // period, 224 // period))
            raw = np.rint(20_000 + noise).astype(np.uint16)
            image = inside(pipeline(RawFrame(raw, 65535))["stokes"]).astype(float)
            for row, column in np.ndindex(n, n):
                s0, s1, s2 = image[row::n, column::n].reshape(-1, 3).T
                covariance = np.cov([s1, s2, s0]) / ((900 + 1 / 12) / 65535**2)
                wanted = np.zeros((3, 3))
                for (first, second), gain in zip(TERMS, gains[row, column, color, polarizer]):
                    wanted[first, second] = wanted[second, first] = gain
                np.testing.assert_allclose(covariance, wanted, atol=0.18 * wanted.max() + 1e-4)


# ----------------------------------------------------------------------------------------------------------- simulation


@pytest.mark.parametrize("full_well", [10_000.0, 1000.0])
@pytest.mark.parametrize(("sensor", "options"), CASES, ids=IDS)
def test_two_thirds_of_the_errors_lie_within_a_standard_deviation(
    sensor: str, options: Dict[str, Any], full_well: float
) -> None:
    """68 +- 2 %, from a DoLP of 0.02 to 0.95.

    The share of a single field has a standard error of up to 0.5 %, as neighbors share raw pixels: so 3 % for each,
    and 2 % for their mean. Angles that are mostly noise have less (docs/noise.md has the shares).
    """
    every = [Errors(sensor, options, full_well, degree, 0.3 + degree) for degree in (0.02, 0.05, 0.1, 0.3, 0.6, 0.95)]
    assert min(errors.ratio for errors in every) > 0.6
    shares = {
        "dolp": [errors.dolp for errors in every],
        "aolp": [errors.aolp for errors in every if errors.ratio > 1.4],
        "debiased": [errors.debiased for errors in every if errors.ratio > 1.4],
    }
    for name, found in shares.items():
        assert abs(np.mean(found) - SIGMA) <= 0.02, (name, found)
        assert np.abs(np.array(found) - SIGMA).max() <= 0.03, (name, found)
    assert all(errors.aolp > 0.56 for errors in every)
    assert all(0.65 < errors.debiased < 0.79 for errors in every)  # a length that is mostly noise becomes half of it
    assert all(abs(errors.bias) < 0.1 for errors in every if errors.ratio >= 2)


@pytest.mark.parametrize(("sensor", "options"), CASES[::4], ids=IDS[::4])
def test_rounding_to_8_bits_is_noise(sensor: str, options: Dict[str, Any]) -> None:
    """At 10 000 electrons a level is 39 of them, and rounding has 11: a seventh of the variance of a dark pixel."""
    errors = Errors(sensor, options, 10_000.0, 0.3, 0.7, bits=8)
    assert abs(errors.dolp - SIGMA) <= 0.03
    assert abs(errors.aolp - SIGMA) <= 0.03


#: True DoLP over the standard deviation of a component -> `dolp_sigma` over the error of debiased DoLP, and over the
#: scatter of DoLP as measured (Rice's distribution), both root mean squares.
STATED = {0.0: (0.75, 1.36), 0.5: (1.00, 1.30), 1.0: (1.09, 1.19), 2.0: (1.01, 1.07), 4.0: (0.98, 1.02)}


@pytest.mark.parametrize("ratio", STATED)
def test_sigma_of_dolp_is_the_error_of_debiased_dolp(ratio: float) -> None:
    """To 9 % from a ratio of 0.5 on; +-0.02 are five standard errors of 36,000 independent pixels."""
    sensor, options = with_noise(MONO, 1000.0), {"co_sited": False, "bit_depth": 12, "resolution": "half"}
    component = np.sqrt(2 * (0.5 / 1000 + (READ_NOISE / 1000) ** 2))  # of S1 = I0 - I90, where S0 is 1
    raw = flat_field(MONO, 1000.0, ratio * component, 0.4)
    with Pipeline(sensor, ("dolp", "dolp_sigma"), "cpu", **options) as pipeline:
        out = {name: image.astype(float) for name, image in pipeline(raw).items()}
    with Pipeline(sensor, "dolp", "cpu", debias=True, **options) as pipeline:
        error = pipeline(raw)["dolp"].astype(float) - ratio * component
    stated = root_mean_square(out["dolp_sigma"])
    found = stated / root_mean_square(error), stated / out["dolp"].std()
    assert found == pytest.approx(STATED[ratio], abs=0.02)


# --------------------------------------------------------------------------------------------------------- significance


def distance_from_uniform(values: np.ndarray) -> float:
    """The statistic of the test of Kolmogorov and Smirnov, against the uniform distribution from 0 to 1."""
    ordered = np.sort(values.ravel())
    return float(np.abs(ordered - (np.arange(ordered.size) + 0.5) / ordered.size).max())


@pytest.mark.parametrize(("sensor", "options"), CASES, ids=IDS)
def test_the_significance_of_unpolarized_light_is_uniform(sensor: str, options: Dict[str, Any]) -> None:
    """A significance below any level has that chance, whatever the noise.

    0.0102 is the 99.9th percentile of the distance for 36,000 independent pixels, and neighbors share raw pixels. ADR's
    noise depends on the light in ways that its constants do not know: shares below a level differ by up to 35 %.
    """
    adaptive = "adaptive" in (options["demosaic"], make_options(sensor, **options).interpolation)
    for full_well in (10_000.0, 1000.0):
        raw = flat_field(sensor, full_well, 0.0, 0.0)
        with Pipeline(with_noise(sensor, full_well), "significance", "cpu", bit_depth=12, **options) as pipeline:
            image = inside(pipeline(raw)["significance"]).astype(float)
        assert distance_from_uniform(image) < (0.12 if adaptive else 0.015)
        assert np.mean(image < 0.05) == pytest.approx(0.05, abs=0.018 if adaptive else 0.006)


def test_the_significance_is_the_share_of_noise_that_is_as_large() -> None:
    """Counted among 100,000 lengths of noise, for which 0.008 are five standard errors."""
    lengths = np.hypot(*np.random.default_rng(0).normal(0, 0.02, (2, 100_000)))
    degrees = np.linspace(0, 0.1, 11)
    counted = [np.mean(lengths >= degree) for degree in degrees]
    found = reference.significance(degrees, np.full(11, 0.02))
    np.testing.assert_allclose(found, counted, atol=0.008)
    np.testing.assert_array_equal(reference.significance(np.array([0.0, 0.5]), np.zeros(2)), [1, 0])


def test_the_significance_of_polarized_light_is_small() -> None:
    raw = flat_field(MONO, 10_000.0, 0.3, 0.6)  # 30 standard deviations
    with Pipeline(with_noise(MONO, 10_000.0), "significance", "cpu", bit_depth=12) as pipeline:
        assert pipeline(raw)["significance"].max() < 1e-30


@pytest.mark.parametrize("debias", [False, True])
def test_the_significance_is_that_of_dolp_as_measured(debias: bool) -> None:
    """With `debias` as without, by the CPU and the reference; also in levels."""
    raw = flat_field(MONO, 1000.0, 0.05, 0.4)[:64, :64]
    sensor, options = with_noise(MONO, 1000.0), {"co_sited": False, "bit_depth": 12}
    with Pipeline(sensor, ("dolp", "dolp_sigma", "significance"), "cpu", **options) as pipeline:
        out = pipeline(raw)
    with Pipeline(sensor, "significance", "cpu", debias=debias, **options) as pipeline:
        image = pipeline(raw)["significance"]
        truth = run_floats(RawFrame(raw, 4095), pipeline.options)["significance"]
    np.testing.assert_array_equal(image, out["significance"])
    np.testing.assert_allclose(image, truth, atol=1e-5)
    ratio = out["dolp"] / out["dolp_sigma"]
    clear = ratio > 2  # there the two deviations differ by less than 0.2 %
    assert clear.mean() > 0.1
    np.testing.assert_allclose(image[clear], np.exp(-(ratio[clear] ** 2) / 2), atol=2e-3)
    with Pipeline(sensor, "significance", "cpu", debias=debias, dtype="uint8", **options) as pipeline:
        np.testing.assert_allclose(pipeline(raw)["significance"], 255 * image, atol=0.501)


# --------------------------------------------------------------------------------------------------------------- limits


def deviations(out: Mapping[str, np.ndarray], degree: float) -> np.ndarray:
    """Errors of DoLP over the stated standard deviation."""
    return (out["dolp"].astype(float) - degree) / out["dolp_sigma"]


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.nanmean(values**2)))


@pytest.mark.parametrize(("sensor", "options"), CASES, ids=IDS)
def test_the_two_outermost_pixels_differ(sensor: str, options: Dict[str, Any]) -> None:
    """1.0 to 1.2 times the stated deviation in the outermost row, 0.87 to 1.1 in the next; +-0.06 are two errors."""
    raw = RawFrame(flat_field(sensor, 10_000.0, 0.3, 0.6), 4095)
    with Pipeline(with_noise(sensor, 10_000.0), ("dolp", "dolp_sigma"), "cpu", **options) as pipeline:
        ratio = deviations(pipeline(raw), 0.3)
    y, x = (np.minimum(np.arange(side), np.arange(side)[::-1]) for side in ratio.shape)
    ring = np.minimum(y[:, np.newaxis], x)
    assert 0.95 < root_mean_square(ratio[ring == 0]) < 1.28
    assert 0.82 < root_mean_square(ratio[ring == 1]) < 1.16
    assert 0.96 < root_mean_square(ratio[ring >= 8]) < 1.04


@pytest.mark.parametrize(("black", "light"), [(0.008, 0.008), (0.008, 0.04), (0.015, 0.3)])
def test_without_a_calibration_the_black_level_counts_as_light(black: float, light: float) -> None:
    """By sqrt(1 + black/light) too large a deviation, for DoLP that is too low by 1 + black/light."""
    stokes = np.broadcast_to(2 * light * np.array([1, 0.3, 0]), (256, 256, 3))
    rng = np.random.default_rng(0)
    raw = digitize(analyzed(stokes, SENSORS[MONO]), 12, 10_000.0, READ_NOISE, rng, black)
    with Pipeline(with_noise(MONO, 10_000.0), ("dolp", "dolp_sigma"), "cpu", co_sited=False, bit_depth=12) as pipeline:
        out = {name: inside(image).astype(float) for name, image in pipeline(raw).items()}
    excess = 1 + black / light
    assert out["dolp"].mean() == pytest.approx(0.3 / excess, rel=0.05)  # noise raises it where it is low
    stated, found = np.sqrt(np.mean(out["dolp_sigma"] ** 2)), out["dolp"].std()
    assert stated / found == pytest.approx(np.sqrt(excess), rel=0.04)  # the larger DoLP is, the more; at 0.6 by 0.03


@pytest.mark.parametrize(("level", "low", "high"), [(1.0, 0.5, 3.0), (5.0, 0.7, 1.4), (12.0, 0.85, 1.15)])
def test_frames_of_8_bits_whose_noise_is_below_half_a_level(level: float, low: float, high: float) -> None:
    """With 10,000 electrons the noise of these levels is 0.17, 0.36 and 0.56 levels: only the last dithers rounding."""
    ratios = []
    for offset, angle in [(0.0, 0.1), (0.25, 0.5), (-0.25, 1.0), (0.0, 1.9)]:
        s0 = 2 * (level + offset) / 255
        stokes = s0 * np.array([1, 0.3 * np.cos(2 * angle), 0.3 * np.sin(2 * angle)])
        rng = np.random.default_rng(1)
        raw = expose(np.broadcast_to(stokes, (128, 128, 3)), SENSORS[MONO], 8, 10_000.0, READ_NOISE, rng)
        sensor, products = with_noise(MONO, 10_000.0), ("dolp", "dolp_sigma")
        with Pipeline(sensor, products, "cpu", min_intensity=0.0, resolution="half") as pipeline:
            ratios.append(root_mean_square(inside(deviations(pipeline(raw), 0.3))))
    assert low < min(ratios)
    assert max(ratios) < high
    assert level > 2 or max(ratios) > 1.8  # else the document says too little of it


@pytest.mark.parametrize(("electrons", "level", "share"), [(30_000.0, 0.05, 0.195), (1000.0, 0.7, 0.35)])
def test_coverage_of_adr_in_unpolarized_light_follows_the_noise(electrons: float, level: float, share: float) -> None:
    """27 % by linear methods; 0.02 are five standard errors."""
    raw = RawFrame(noisy(MONO, electrons, level), 4095)
    with Pipeline(with_noise(MONO, electrons), ("dolp", "dolp_sigma"), "cpu", resolution="full") as pipeline:
        ratio = inside(deviations(pipeline(raw), 0.0))
    assert np.mean(ratio <= 1) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(("pattern", "low", "high"), [("tape", 0.8, 2.3), ("intensity star", 0.6, 1.3)])
def test_adr_beside_edges(pattern: str, low: float, high: float) -> None:
    """Scatter of DoLP over 60 frames relative to the stated deviation: 5 to 95 % of the pixels.

    Scatter itself has a standard error of 9 %, which widens the range by some hundredths.
    """
    stokes = edge_pattern(pattern, (96, 96), 0.4).astype(float)
    rng = np.random.default_rng(2)
    with Pipeline(with_noise(MONO, 10_000.0), ("dolp", "dolp_sigma"), "cpu", resolution="full") as pipeline:
        frames = [RawFrame(expose(stokes, SENSORS[MONO], 12, 10_000.0, READ_NOISE, rng), 4095) for _ in range(60)]
        found = [{name: inside(image).astype(float) for name, image in pipeline(raw).items()} for raw in frames]
    stated = np.sqrt(np.mean([out["dolp_sigma"] ** 2 for out in found], 0))
    ratio = np.std([out["dolp"] for out in found], 0) / stated
    steps = np.max([np.ptp(np.stack([image, np.roll(image, 1, 0), np.roll(image, 1, 1)]), 0) for image in stokes.T], 0)
    beside = inside(steps.T > 0.1)
    assert beside.mean() > 0.1
    least, most = np.nanpercentile(ratio[beside], [5, 95])
    assert low < least < 0.95
    assert 1.1 < most < high


# -------------------------------------------------------------------------------------------------------------- figures


def with_facts(**facts: object) -> Calibration:
    zero, one = np.zeros((16, 16)), np.ones((16, 16))
    return Calibration.from_parameters(PixelParameters(zero, one, zero, zero), SENSORS[MONO], facts=facts)


def test_the_figures_of_a_calibration_take_precedence() -> None:
    measured = with_facts(noise={"full_well": 2500.0, "read_noise": 5.0})
    shot, floor = raw_noise(make_options(MONO, "dolp_sigma", calibration=measured), 4095)
    assert shot == pytest.approx(1 / 2500)
    assert floor == pytest.approx((5 / 2500) ** 2 + 1 / 4095**2 / 12)
    assert raw_noise(make_options(MONO, calibration=with_facts()), 4095)[0] == pytest.approx(1 / 10_500)


def test_gain_of_the_camera_and_lowest_bits() -> None:
    (shot, floor), (more_shot, more_floor) = (
        raw_noise(make_options(MONO, camera_gain=gain), 255) for gain in (0, 20.0)
    )
    assert more_shot == pytest.approx(10 * shot)
    assert more_floor - 1 / 255**2 / 12 == pytest.approx(100 * (floor - 1 / 255**2 / 12))
    assert raw_noise(make_options(MONO), 4095 << 4) == pytest.approx(raw_noise(make_options(MONO), 4095))


def test_what_depends_on_noise() -> None:
    def uses(products: str, **options: Any) -> bool:
        return uses_noise(make_options(MONO, products, **options))

    assert uses("dolp_sigma")
    assert uses("aolp_sigma,intensity")
    assert uses("significance")
    assert not uses("dolp,aolp,preview,stokes")
    assert uses("dolp", debias=True)
    assert not uses("aolp", debias=True)
    assert uses("preview", max_aolp_sigma=5.0)
    assert not uses("dolp", max_aolp_sigma=5.0)


# ------------------------------------------------------------------------------------------------------------- products


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_invalid_pixels_have_no_standard_deviation(dtype: str) -> None:
    raw = np.tile(np.array([[60, 100], [100, 140]], np.uint8), (8, 8))
    raw[4, 4], raw[8:12, 8:12] = 255, 0
    products = ("dolp_sigma", "aolp_sigma", "significance")
    with Pipeline(MONO, products, "cpu", dtype=dtype, co_sited=False) as pipeline:
        out = pipeline(raw)
    assert out.invalid == (1, 4)
    for image in out.values():
        bad = np.isnan(image) if dtype == "float32" else image == 255
        assert bad[2, 2]
        assert bad[4:6, 4:6].all()
        assert bad.sum() == 5


def test_uncertain_angles_are_masked_and_gray() -> None:
    raw = flat_field(MONO, 1000.0, 0.1, 0.4)
    sensor, products = with_noise(MONO, 1000.0), ("aolp", "aolp_sigma", "dolp", "preview")
    with Pipeline(sensor, products, "cpu", bit_depth=12) as pipeline:
        plain = pipeline(raw)
    limit = float(np.rad2deg(np.median(plain["aolp_sigma"])))
    with Pipeline(sensor, products, "cpu", bit_depth=12, max_aolp_sigma=limit) as pipeline:
        out = pipeline(raw)
    masked = np.isnan(out["aolp"])
    np.testing.assert_array_equal(masked, np.rad2deg(out["aolp_sigma"]) > np.float32(limit))
    assert 0.4 < masked.mean() < 0.6
    np.testing.assert_array_equal(out["dolp"], plain["dolp"])
    assert (np.ptp(out["preview"][masked], axis=-1) == 0).all()
    np.testing.assert_array_equal(out["preview"][~masked], plain["preview"][~masked])
    assert out.invalid == plain.invalid == (0, 0)


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
        ({"resolution": "full", "demosaic": "gradient"}, 0.04),  # neighbors share noise: a window sees less of it
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
        quality = Quality(QualityLimits(ssim_warn=0.8, ssim_error=0.5))
        sample = FrameQuality(similarity, Spot(similarity, 1, 2, "center"), 0.0, 0.0, None, expected)
        quality.add(sample, "consistency")
        finding, values = quality.report()
        return [finding.level, finding.text, values["lowest with noise alone"]]

    assert judged(0.62, 0.65) == [Level.OK, "good", "0.6500"]
    cause = "noise, defective pixels or too fine detail"
    low = f"image quality low: SSIM 0.45 in the center, with noise alone 0.65: {cause}"
    assert judged(0.45, 0.65) == [Level.WARN, low, "0.6500"]
    assert judged(0.3, 0.65)[0] == Level.ERROR
    assert judged(0.62, 1.0) == [Level.WARN, f"image quality low: SSIM 0.62 in the center: {cause}", "1.0000"]


def test_other_modes_know_no_noise() -> None:
    raw = RawFrame(noisy(MONO, 1000.0), 4095)
    with Pipeline(MONO, "ssim", "cpu", ssim_mode="temporal", bit_depth=12) as pipeline:
        pipeline(raw)
        assert measure(pipeline, raw, pipeline(raw)).expected == 1.0
