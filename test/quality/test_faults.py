"""Injected faults and wrong layouts: which figures of docs/image_quality.md change, and what a frame contradicts."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product
from typing import Any, Callable, NamedTuple, Optional, Tuple

import cv2
import numpy as np
import pytest
from scenes import SCENES, synthetic
from support import REAL_FRAMES, pairs_of, real_frame

from polar_pipeline import SENSORS, Pipeline, RawFrame, Sensor
from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.options import Options, make_options
from polar_pipeline.quality.layout import LayoutCheck, check_layout, misfit, offsets_of_polarizer, usable_regions
from polar_pipeline.quality.sample import take_sample
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.frames import FORMATS, Frame, PackedFrame, pack

MONO, COLOR = SENSORS["IMX250MZR"], SENSORS["IMX250MYR"]
SHAPE = (516, 612)


def frame(scene: str, sensor: Sensor, seed: int = 0) -> RawFrame:
    return RawFrame(expose(synthetic(scene, SHAPE, seed, is_color=sensor.is_color), sensor), 255)


def options(sensor: Any = "IMX250MYR", **values: Any) -> Options:
    return make_options(sensor, **values)


def sheet(degrees: float, degree: float, sensor: Sensor) -> RawFrame:
    """What a sensor sees of even gray light of this polarization."""
    angle = np.deg2rad(2 * degrees)
    stokes = np.array([1, degree * np.cos(angle), degree * np.sin(angle)], np.float32)
    return RawFrame(expose(np.broadcast_to(stokes, (*SHAPE, 3, 3) if sensor.is_color else (*SHAPE, 3)), sensor), 255)


def tile_means(frame: Frame) -> np.ndarray:
    return usable_regions(take_sample(frame))[1]


def test_tile_means_by_hand() -> None:
    tile = np.arange(16).reshape(4, 4) * 10 + 20
    raw = np.tile(tile, (32, 48)).astype(np.uint8)
    raw[:64, :64] = 3  # a dark region
    raw[64:, 64:128] = 255  # a saturated one
    means = tile_means(RawFrame(raw, 255))
    assert len(means) == 4
    np.testing.assert_allclose(means, np.broadcast_to(tile / 255, (4, 4, 4)), rtol=1e-6)
    assert misfit(means, None) > 0.1


def test_numbers_above_full_scale_count_as_full_scale() -> None:
    raw = np.random.default_rng(0).integers(0, 3000, (128, 128)).astype(np.uint16)
    raw[::4, 1::4] = 65535  # one place of the tile
    means = tile_means(RawFrame(raw, 5000))
    assert len(means) == 0  # it is saturated everywhere
    raw[:, 2::8] = 9000
    raw[::4, 1::4] = 3000
    means = tile_means(RawFrame(raw, 5000))
    np.testing.assert_array_equal(means, tile_means(RawFrame(np.minimum(raw, 5000).astype(np.uint16), 5000)))
    assert len(means) == 4


def test_packed_frames_are_unpacked() -> None:
    raw = np.tile((np.arange(16).reshape(4, 4) * 100 + 200), (32, 32)).astype(np.uint16)
    rows = np.frombuffer(pack(raw, FORMATS["12p"]), np.uint8).reshape(128, -1)
    np.testing.assert_array_equal(tile_means(PackedFrame(rows, FORMATS["12p"], 128)), tile_means(RawFrame(raw, 4095)))


@pytest.mark.parametrize("shape", [(48, 64), (64, 48), (16, 16)])
@pytest.mark.parametrize("name", ["12p", "10p", "8"])
def test_a_small_frame_is_no_verdict(shape: Tuple[int, int], name: str) -> None:
    raw = np.full(shape, 100, np.uint8)
    rows = np.zeros((shape[0], FORMATS[name].row_bytes(shape[1])), np.uint8)
    frame = RawFrame(raw, 255) if name == "8" else PackedFrame(rows, FORMATS[name], shape[1])
    assert tile_means(frame).shape == (0, 4, 4)
    assert check_layout(frame, options()).fits is None


def test_factors_of_polarizers_and_colors_are_no_misfit() -> None:
    tile = np.outer([1, 2, 1, 2], [3, 4, 3, 4]).astype(float) / 100  # a factor per polarizer
    color = np.array([0.5, 1, 0.7])[np.array(COLOR.colors)]
    assert misfit(tile[np.newaxis], None) == pytest.approx(0, abs=1e-12)
    assert misfit((tile * color)[np.newaxis], COLOR.colors) == pytest.approx(0, abs=1e-12)
    assert misfit((tile * color)[np.newaxis], COLOR.as_read_out((1, 0)).colors) > 0.1


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("seed", range(2))
def test_colors_tell_offsets_apart(scene: str, seed: int) -> None:
    raw = frame(scene, COLOR, seed)
    for offset in product(range(4), repeat=2):
        found = check_layout(raw, options(roi_offset=offset))
        # shifted by (2, 2), red and blue change places, which no color contradicts
        assert found.fits is (offset in ((0, 0), (2, 2))), offset
        if not found.fits:
            assert "raw.roi_offset [0, 0]" in found.text or "raw.roi_offset [2, 2]" in found.text


def test_the_offset_that_would_fit_is_named() -> None:
    stokes = synthetic("spheres", SHAPE, is_color=True)
    raw = RawFrame(expose(stokes, COLOR.as_read_out((5, 2))), 255)
    assert check_layout(raw, options(roi_offset=(5, 2))).fits
    found = check_layout(raw, options(roi_offset=(4, 0)))
    assert found.text.endswith("as set; raw.roi_offset [5, 2] or raw.roi_offset [7, 0] would")


def test_a_forgotten_flip_shows_in_the_colors() -> None:
    stokes = synthetic("spheres", SHAPE, is_color=True)
    raw = RawFrame(expose(stokes, COLOR.as_read_out((0, 0), (True, False), SHAPE)), 255)
    assert check_layout(raw, options(flip=(True, False))).fits
    found = check_layout(raw, options())
    assert found.fits is False
    assert "raw.flip [true, false]" in found.text


def test_a_color_sensor_taken_for_a_mono_one() -> None:
    for scene in SCENES:
        assert "IMX250MYR would fit" in check_layout(frame(scene, COLOR), options("IMX250MZR")).text
        assert check_layout(frame(scene, MONO), options("IMX250MZR")).fits is None
        assert check_layout(frame(scene, MONO), options("IMX250MYR")).fits is None  # a scene may be gray


@pytest.mark.parametrize(("angles", "named"), [(((0, 90), (45, 135)), "rows"), (((0, 45), (90, 135)), "columns")])
def test_a_sensor_with_other_pairs(angles: Tuple[Tuple[int, ...], ...], named: str) -> None:
    other = Sensor("other", angles)
    found = check_layout(RawFrame(expose(synthetic("plastic", SHAPE), other), 255), options("IMX250MZR"))
    assert found.fits is False
    assert found.text.startswith(named)


@pytest.mark.parametrize("place", [(0, 0), (2, 0), (0, 2)])  # red and blue may be exchanged
def test_bayer_images_of_another_lattice_name_the_tile(place: Tuple[int, int]) -> None:
    """The option that is named is right; an offset would be refused for angle images."""
    true = COLOR.as_read_out(place)
    mosaic = frame("plastic", true).mosaic
    angles = np.stack([mosaic[row::2, column::2] for row, column in map(COLOR.position, (0, 45, 90, 135))], -1)
    check = check_layout(RawFrame.of_angles(angles, COLOR, bayer=None), options())
    assert (check.fits, "roi_offset" in check.text) == (place == (0, 0), False)
    if not check.fits:
        tiles = re.findall("--sensor '([^']*)'", check.text)
        assert true.tile() in tiles
        for fitting in map(options, tiles):
            assert check_layout(RawFrame.of_angles(angles, fitting.sensor, bayer=None), fitting).fits


def test_nothing_in_view_is_no_verdict() -> None:
    small = check_layout(RawFrame(np.full((128, 128), 100, np.uint8), 255), options())
    assert small.text == "the frame is smaller than 8 regions of 64x64 pixels"
    for value in (0, 255):
        assert check_layout(RawFrame(np.full((256, 256), value, np.uint8), 255), options()).fits is None
    assert check_layout(RawFrame(np.full((32, 32), 100, np.uint8), 255), options()).fits is None  # no whole region
    assert check_layout(RawFrame(np.full((512, 512), 100, np.uint8), 255), options()).fits is None


@pytest.mark.parametrize("name", REAL_FRAMES)
def test_a_frame_of_a_real_mono_camera(name: str) -> None:
    raw = RawFrame(real_frame(name), 255)
    for offset in product(range(2), repeat=2):
        mono = check_layout(raw, options(MONO, roi_offset=offset))
        assert (mono.fits, mono.text.split(";")[0]) == (None, "no contradiction")
        assert check_layout(raw, options(COLOR, roi_offset=offset)).fits is None  # a scene may be gray


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=lambda sensor: sensor.name)
@pytest.mark.parametrize("degrees", [0.0, 10.0, 90.0, 177.0])
def test_a_known_polarizer_tells_offsets_apart(sensor: Sensor, degrees: float) -> None:
    for true in product(range(2), repeat=2):
        raw = sheet(degrees, 0.9, sensor.as_read_out(true))
        readings = offsets_of_polarizer(raw, options(sensor), degrees)
        assert [row.offset for row in readings if row.fits] == [true]
        wanted = {(0, 0): degrees, (1, 0): -45 - degrees, (0, 1): 45 - degrees, (1, 1): degrees + 90}[true]
        # raw numbers are whole levels of some 100
        assert abs((readings[0].angle - wanted + 90) % 180 - 90) < 1
        if not sensor.is_color:
            aolp = np.rad2deg(Pipeline(sensor, "aolp", "cpu")(raw)["aolp"])[10, 10]
            assert abs((aolp - readings[0].angle + 90) % 180 - 90) < 1


def test_no_polarizer_in_view() -> None:
    with pytest.raises(ValueError, match="no polarizer in view: the degree of polarization is 0"):
        offsets_of_polarizer(sheet(20, 0.1, MONO), options(MONO), 20)
    with pytest.raises(ValueError, match="too little in view"):
        offsets_of_polarizer(RawFrame(np.zeros((512, 512), np.uint8), 255), options(MONO), 20)


#: (height, width) of a calibrated region; offset and shape of the frames, which hold 30 regions of 64x64 pixels.
CALIBRATED, PLACE, WITHIN = (440, 580), (64, 40), (336, 400)


def camera(sensor: Sensor, seed: int, deviation: float = 0.01) -> Tuple[np.ndarray, np.ndarray, Calibration]:
    """Gains and black levels of the frames' pixels, and the calibration of the region."""
    rng = np.random.default_rng(seed)
    gain, black, none = rng.normal(1, deviation, CALIBRATED), rng.normal(0.06, 0.0015, CALIBRATED), np.zeros(CALIBRATED)
    calibration = Calibration.from_parameters(PixelParameters(black, 1 / gain, none, none), sensor)
    seen = (slice(PLACE[1], PLACE[1] + WITHIN[0]), slice(PLACE[0], PLACE[0] + WITHIN[1]))
    return gain[seen], black[seen], calibration


def recorded(light: np.ndarray, sensor: Sensor, bits: int) -> RawFrame:
    """What the camera of seed 0 makes of light, a share of full scale: at most 10 000 electrons, and levels."""
    gain, black, _ = camera(sensor, 0)
    electrons = np.random.default_rng(1).poisson(10_000 * light * gain)
    top = (1 << bits) - 1
    levels = np.clip(np.rint((electrons / 10_000 + black) * top), 0, top)
    return RawFrame(levels.astype(np.uint8 if bits == 8 else np.uint16), top)


@lru_cache(maxsize=None)
def light_of(sensor: Sensor, scene: str) -> np.ndarray:
    if scene in REAL_FRAMES:
        return real_frame(scene)[800 : 800 + WITHIN[0], 600 : 600 + WITHIN[1]] + 0.5
    return expose(synthetic(scene, WITHIN, is_color=sensor.is_color), sensor, 16) + 0.5


@pytest.mark.parametrize(
    ("seen", "brightness", "bits"),
    pairs_of(
        [*product([MONO], [*REAL_FRAMES, *SCENES]), *product([COLOR], SCENES)],
        [(50, 0.05), (50, 0.2), (95, 0.8)],
        [8, 12],
    ),
)
def test_a_calibration_that_does_not_fit(seen: Tuple[Sensor, str], brightness: Tuple[float, float], bits: int) -> None:
    """Brightness: a percentile of the light, and the share of full scale that it has."""
    (sensor, _), light, (percentile, level) = seen, light_of(*seen), brightness
    raw = recorded(np.minimum(light * level / np.percentile(light, percentile), 2), sensor, bits)
    _, _, right = camera(sensor, 0)
    _, _, other = camera(sensor, 1)

    def check(calibration: Calibration, dx: int = 0, dy: int = 0, **more: Any) -> LayoutCheck:
        return check_layout(
            raw, options(sensor, calibration=calibration, roi_offset=(PLACE[0] + dx, PLACE[1] + dy), **more)
        )

    assert check(right).fits is not False
    assert "of the differences between pixels that the calibration corrects: raw.roi_offset" in check(other).text
    assert check(right, flip=(True, True)).fits is False
    for wrong in ((2, 2), (4, 0), (100, 50), (-64, -40), (1, 0), (0, 1)):
        assert check(right, *wrong).fits is False, wrong


def test_frames_that_do_not_show_whether_a_calibration_fits() -> None:
    """Gains are hidden by rounding without noise, by clipping, and by noise if they hardly differ."""

    def fits(light: np.ndarray, calibration: Calibration) -> Optional[bool]:
        return check_layout(recorded(light, MONO, 12), options(MONO, calibration=calibration, roi_offset=PLACE)).fits

    _, _, right = camera(MONO, 0)
    _, _, other = camera(MONO, 1)
    _, _, alike = camera(MONO, 1, 0.001)
    light = np.full(WITHIN, 0.4)
    assert [fits(light, calibration) for calibration in (other, alike)] == [False, None]
    even = RawFrame(np.full(WITHIN, 100, np.uint8), 255)
    assert check_layout(even, options(MONO, calibration=other)).fits is None
    for value in (0.0, 0.96):  # dark, or so bright that most pixels are clipped
        light[:, np.arange(WITHIN[1]) % 64 > 20] = value
        assert [fits(light, calibration) for calibration in (other, right)] == [False, None], value


def test_a_calibration_that_lacks_pixels_of_the_frame() -> None:
    found = check_layout(
        recorded(np.full(WITHIN, 0.4), MONO, 8), options(MONO, calibration=camera(MONO, 0)[2], roi_offset=(200, 0))
    )
    assert (found.fits, found.text.split(",")[0]) == (False, "the calibration is of 580x440 pixels from (0")


SOURCES = (*REAL_FRAMES, "spheres", pytest.param("window", marks=pytest.mark.exhaustive))


@pytest.fixture(scope="module", params=SOURCES)
def good(request: pytest.FixtureRequest) -> np.ndarray:
    """A good raw frame."""
    if request.param in REAL_FRAMES:
        return real_frame(request.param)
    stokes = synthetic(request.param, (1024, 1224))
    return expose(stokes, MONO, full_well=10_000, read_noise=4, rng=np.random.default_rng(0))


def digital(raw: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(raw), 0, 255).astype(np.uint8)


def noise(raw: np.ndarray, levels: float) -> np.ndarray:
    return digital(raw + np.random.default_rng(1).normal(0, levels, raw.shape))


def defocus(raw: np.ndarray, sigma: float = 2.0) -> np.ndarray:
    """Each polarizer's picture blurred by `sigma` of its pixels; the noise of the sensor stays, so it is added anew."""
    plane = raw[::2, ::2].astype(float)
    curvature = plane[:, :-2] - 2 * plane[:, 1:-1] + plane[:, 2:]
    levels = np.median(np.abs(curvature)) / 0.6745 / np.sqrt(6)  # Gaussian noise: deviation from the median
    out = raw.astype(np.float32)
    for i in range(2):
        for j in range(2):
            out[i::2, j::2] = cv2.GaussianBlur(np.ascontiguousarray(out[i::2, j::2]), (0, 0), sigma)
    return noise(out, levels)


def dust(raw: np.ndarray) -> np.ndarray:
    """Forty soft specks on the lens or its cover: all polarizers behind them get less light."""
    rng, shade = np.random.default_rng(2), np.zeros(raw.shape, np.float32)
    for x, y in zip(rng.integers(0, raw.shape[1], 40), rng.integers(0, raw.shape[0], 40)):
        cv2.circle(shade, (int(x), int(y)), 35, 0.7, -1)
    return digital(raw * (1 - cv2.GaussianBlur(shade, (0, 0), 10)))


def fog(raw: np.ndarray) -> np.ndarray:
    """A veil of 30 %: unpolarized light of 160 levels before everything."""
    return digital(0.7 * raw + 0.3 * 160)


def stuck_line(raw: np.ndarray) -> np.ndarray:
    out = raw.copy()
    out[len(raw) // 3] = 255
    return out


def hot_pixels(raw: np.ndarray) -> np.ndarray:
    """One pixel in a thousand."""
    return np.where(np.random.default_rng(3).random(raw.shape) < 0.001, np.uint8(255), raw)


class Figures(NamedTuple):
    mean: float
    lowest: float


def consistency(raw: np.ndarray, **options: object) -> Figures:
    out = Pipeline(products="ssim", backend="cpu", **options)(raw)
    return Figures(float(out["ssim"]), float(out.blocks.min()))


def against(good: np.ndarray, raw: np.ndarray) -> Figures:
    """Mode `reference`, with the good frame's intensity; `temporal`, with the good frame before, is the same."""
    intensity = Pipeline(products="intensity", backend="cpu")(good)["intensity"]
    out = Pipeline(products="ssim", backend="cpu", ssim_mode="reference")(raw, reference=intensity)
    temporal = Pipeline(products="ssim", backend="cpu", ssim_mode="temporal")
    temporal(good)
    np.testing.assert_allclose(temporal(raw).blocks, out.blocks, atol=1e-5)  # float32, summed in another order
    return Figures(float(out["ssim"]), float(out.blocks.min()))


def test_good_frames_are_good(good: np.ndarray) -> None:
    assert consistency(good).mean > 0.99
    assert consistency(good).lowest > 0.95
    assert against(good, good) == (1, 1)
    assert against(good, noise(good, 1)).lowest > 0.99  # the next frame of a still scene


def test_noise_and_hot_pixels_lower_consistency(good: np.ndarray) -> None:
    for bad, drop in ((noise(good, 5.0), 0.03), (noise(good, 10.0), 0.12), (hot_pixels(good), 0.02)):
        assert consistency(bad).mean < consistency(good).mean - drop


@pytest.mark.parametrize(
    ("fault", "mean", "lowest"),
    [(defocus, 0.01, 0.2), (dust, 0.005, 0.2), (fog, 0.08, 0.2), (stuck_line, 0.005, 0.08)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_all_polarizers_share_lowers_the_comparison_with_a_good_frame_only(
    good: np.ndarray, fault: Callable[[np.ndarray], np.ndarray], mean: float, lowest: float
) -> None:
    bad = fault(good)
    found = against(good, bad)
    assert found.mean < 1 - mean
    assert found.lowest < 1 - lowest
    assert abs(consistency(bad).mean - consistency(good).mean) < 0.04  # what is left of the scene is less beside noise
