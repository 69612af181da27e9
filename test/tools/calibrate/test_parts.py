"""Parts of the estimator on their own: sums over frames, the smooth light, limits of outliers; simulated sensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional, Tuple

import cv2
import numpy as np
import pytest

from polar_pipeline.options import make_options
from polar_pipeline.sensor.forward import color_indices
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import SENSORS, Sensor
from polar_pipeline.tools.calibrate.advice import about_frames, about_place
from polar_pipeline.tools.calibrate.captured import captured_state
from polar_pipeline.tools.calibrate.defects import CAUSES, find_defects, limits
from polar_pipeline.tools.calibrate.errors import sample_superpixels
from polar_pipeline.tools.calibrate.illumination import smooth_light
from polar_pipeline.tools.calibrate.pixels import PixelFits
from polar_pipeline.tools.calibrate.polarizer import distinct_angles
from polar_pipeline.tools.calibrate.session import add_frames
from polar_pipeline.tools.calibrate.simulation import DEAD, LEAKY, STUCK, Deviations, simulate_sensor
from polar_pipeline.tools.calibrate.sums import DARK, SessionSums
from polar_pipeline.tools.calibrate.texture import measure_texture

MONO, COLOR = SENSORS["IMX250MZR"], SENSORS["IMX250MYR"]


def test_sums_are_those_of_numpy() -> None:
    """Of 12 bits, 17 frames are the first whose sum may exceed 16 bits."""
    frames = np.random.default_rng(0).integers(3900, 4095, (20, 16, 20)).astype(np.uint16)
    frames[3, 5, 19] = frames[7, 0, 0] = 4095
    sums = SessionSums(MONO)
    for count, frame in enumerate(frames, 1):
        sums.add(DARK, RawFrame(frame, 4095))
        np.testing.assert_allclose(sums.dark.mean(), frames[:count].mean(0) / 4095, rtol=1e-12)
    np.testing.assert_allclose(sums.dark.mean(slice(4, 6)), frames.mean(0)[4:6] / 4095, rtol=1e-12)
    np.testing.assert_allclose(sums.dark.variance(), frames.var(0, ddof=1) / 4095**2, rtol=1e-9)
    np.testing.assert_array_equal(np.argwhere(sums.dark.saturated), [[0, 0], [5, 19]])


def test_sums_of_the_brightest_frames_do_not_overflow() -> None:
    sums = SessionSums(MONO)
    for _ in range(300):
        sums.add(DARK, RawFrame(np.full((16, 16), 65535, np.uint16), 65535))
    np.testing.assert_array_equal(sums.dark.mean(), 1)
    np.testing.assert_array_equal(sums.dark.variance(), 0)
    assert sums.dark.saturated.all()


@pytest.mark.parametrize(
    ("value", "full_scale", "dtype", "message"),
    [
        (3000, 1023, np.uint16, "a pixel reads 3000, above full scale 1023: give the camera's --bit-depth, 12 or more"),
        (256, 255, np.uint16, "a pixel reads 256, above full scale 255: give the camera's --bit-depth, 10 or more"),
        (65520, 4095, np.uint16, "a pixel reads 65520, above full scale 4095: give --alignment msb"),
        (255, 255, np.uint8, None),
        (4095, 4095, np.uint16, None),
        (65535, 65520, np.uint16, None),  # low bits that the camera fills
        (65521, 65520, np.uint16, None),
    ],
)
def test_numbers_above_full_scale(value: int, full_scale: int, dtype: Any, message: Optional[str]) -> None:
    frame = np.full((16, 16), 16, dtype)
    frame[3, 5] = value
    sums = SessionSums(MONO)
    if message is None:
        sums.add("0", RawFrame(frame, full_scale))
        assert sums.settings["0"].mean()[3, 5] == 1
        np.testing.assert_array_equal(np.argwhere(sums.settings["0"].saturated), [[3, 5]])
        return
    with pytest.raises(ValueError, match=f"^{message}$"):
        sums.add("0", RawFrame(frame, full_scale))


def test_high_bits_read_as_16_bits_are_refused() -> None:
    """Frames of 12 bits; the first alone has only multiples of 64."""
    sums = SessionSums(MONO)
    for value in (64, 48):
        sums.add("0", RawFrame(np.full((16, 16), value, np.uint16), 65535))
    with pytest.raises(ValueError, match=r"multiples of 16: .* seems to be 12, .*--bit-depth 12 --alignment msb"):
        sums.check_alignment()
    sums.add("0", RawFrame(np.full((16, 16), 49, np.uint16), 65535))
    sums.check_alignment()


def test_noise_of_a_pair_is_not_what_the_lamp_changes() -> None:
    """Two frames with a variance of 100 squares of a level, the second brighter by 50; 4096 pixels, so to 10 %."""
    rng = np.random.default_rng(1)
    sums = SessionSums(MONO)
    for level in (1000, 1050):
        sums.add("0", RawFrame(np.rint(rng.normal(level, 10, (128, 128))).astype(np.uint16), 4095))
    assert len(sums.settings["0"].points) == 4
    for point in sums.settings["0"].points:
        assert point.signal * 4095 == pytest.approx(1025, abs=1)
        assert point.variance * 4095**2 == pytest.approx(100, rel=0.1)


def test_pairs_are_frames_of_one_setting_that_follow_each_other() -> None:
    sums = SessionSums(MONO)
    for setting in ("0", "10", "10", "10", "0", "10", "0", "0"):
        sums.add(setting, RawFrame(np.full((16, 16), 9, np.uint16), 4095))
    assert {name: len(one.points) for name, one in sums.settings.items()} == {"0": 4, "10": 4}  # of 4 sites each


def test_settings_by_kind() -> None:
    sums = SessionSums(MONO)
    for setting in (DARK, "0.0", "flat/1", "2/0.0", "2/Flat low", "reflat"):
        sums.add(setting, RawFrame(np.zeros((16, 16), np.uint16), 4095))
    assert (list(sums.light), list(sums.flat)) == (["0.0", "2/0.0", "reflat"], ["flat/1", "2/Flat low"])
    assert sums.dark.count == 1


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=lambda sensor: sensor.name)
def test_the_smooth_light_is_a_polynomial_without_its_spots(sensor: Sensor) -> None:
    """Of the fourth degree, for each color its own, with a dark spot that it must leave out.

    Block means of the terms differ from the terms at the block's center by the square of half its size, of 1/50 in x.
    """
    y, x = np.meshgrid(np.linspace(-1, 1, 160), np.linspace(-1, 1, 200), indexing="ij")
    shapes = [1 - 0.2 * x**2 + 0.1 * x * y**3 + 0.05 * y, 0.6 + 0.1 * y**2 - 0.05 * x, 0.4 + 0.1 * x**4]
    rows, columns = np.indices(x.shape)
    colors = np.array(sensor.colors)[rows % 4, columns % 4] if sensor.is_color else np.zeros(x.shape, int)
    expected = np.choose(colors, shapes)
    level = expected * (1 + 0.001 * np.random.default_rng(0).standard_normal(x.shape))
    level[60:76, 80:96] *= 0.5
    used = np.ones(x.shape, bool)
    used[10:14, 10:14] = False
    level[10:14, 10:14] = 100
    np.testing.assert_allclose(smooth_light(level, used, sensor), expected, rtol=2e-3)


@pytest.mark.parametrize(
    ("degrees", "count"),
    [((10.0, 190.0, -170.4), 1), ((0.4, 60.0, 179.9), 2), (tuple(0.9 * k for k in range(200)), 100)],
)
def test_angles_that_differ_by_more_than_a_degree_are_distinct(degrees: Tuple[float, ...], count: int) -> None:
    """Of many angles close to each other every second one is counted."""
    assert distinct_angles(np.array(degrees)) == count


def test_texture_is_told_from_columns_rows_and_slopes() -> None:
    """Blurred noise, whose error of DoLP follows from the difference between diagonal neighbors, by hand.

    (I0 - I90)/S0 of unpolarized light is half the difference of their gains; DoLP has the error of one direction.
    """
    rng = np.random.default_rng(0)
    white = 1 + 0.01 * rng.standard_normal((160, 200))
    every = np.ones(white.shape, bool)
    y, x = np.meshgrid(np.linspace(-1, 1, 160), np.linspace(-1, 1, 200), indexing="ij")
    lines = 1 + 0.03 * rng.standard_normal((160, 1)) + 0.03 * rng.standard_normal(200)
    for gain in (white, white * lines, white * (1 - 0.1 * (x**2 + y**2) ** 2)):
        texture = measure_texture(gain, every)
        assert not texture.is_visible
        assert texture.error == 0
    for grain in (1.5, 4.0):
        grains = cv2.GaussianBlur(rng.standard_normal(white.shape), (0, 0), grain)
        grains *= 0.03 / grains.std()
        texture = measure_texture(white + grains, every)
        assert texture.is_visible
        differences = grains[1:, 1:] - grains[:-1, :-1]
        assert texture.error == pytest.approx(differences.std() / 2, rel=0.2)
    unused = rng.random(white.shape) < 0.01
    assert not measure_texture(np.where(unused, np.nan, white), ~unused).is_visible


@pytest.mark.parametrize("side", [64, 600, 1200])
def test_the_sample_has_superpixels_of_every_color(side: int) -> None:
    """At most 65536 of them, about as many of green as of red and blue."""
    color = color_indices(COLOR, (side, side)).astype(np.float32)
    gain, *_ = sample_superpixels(COLOR, color, PixelFits(color, color, color, color), np.ones(color.shape, bool))
    assert gain.shape[1] <= 1 << 16
    np.testing.assert_allclose([np.mean(gain == k) for k in range(3)], [0.25, 0.5, 0.25], atol=0.01)


@pytest.mark.parametrize(
    ("shape", "is_part"),
    [((2048, 2448), False), ((1024, 2448), True), ((2048, 1224), True), ((96, 112), True), ((3000, 4096), False)],
)
def test_the_place_of_a_part_of_the_sensor_must_be_given(shape: Tuple[int, int], is_part: bool) -> None:
    """Strips as wide or as high as the sensor are parts, too; larger frames are those of another sensor."""
    assert [advice.is_problem for advice in about_place(shape, MONO, None)] == [True] * is_part
    assert not list(about_place(shape, MONO, (0, 0)))


def test_limits_are_eight_standard_deviations() -> None:
    """Of a normal distribution, by the median absolute deviation, whose standard error here is 1 %."""
    values = np.random.default_rng(0).normal(5, 0.1, 20_000)
    values[:100] = 1000
    assert limits(values, 0.0) == pytest.approx((4.2, 5.8), abs=0.04)
    assert limits(values, 3.0) == pytest.approx((2, 8), abs=0.01)


def test_every_cause_is_told_apart() -> None:
    shape = (16, 16)
    rng = np.random.default_rng(0)
    middles = {"black level": 0.01, "dark noise": 1e-3, "gain": 1.0, "angle": 0.0, "extinction": 300.0, "fit": 1.0}
    images = {name: middle + 1e-5 * rng.standard_normal(shape) for name, middle in middles.items()}
    wrong = {"black level": 0.1, "dark noise": 0.1, "gain": 0.9, "angle": -5.0, "extinction": 9.0, "fit": 5.0}
    for k, (name, value) in enumerate(wrong.items()):
        images[name][k, k] = value
    images["gain"][9, 9] = np.nan
    unusable = {name: np.zeros(shape, bool) for name in ("saturated", "no reaction")}
    unusable["saturated"][12, 12] = unusable["no reaction"][13, 13] = True
    images["gain"][12, 12] = 0.0
    found = find_defects(images, unusable, 1 / 4095)
    expected = np.zeros(shape, np.uint8)
    for k, name in enumerate(wrong):
        expected[k, k] = 1 << CAUSES.index(name)
    expected[9, 9] = 1 << CAUSES.index("gain")
    expected[12, 12], expected[13, 13] = 1, 2
    np.testing.assert_array_equal(found, expected)


# ---------------------------------------------------------------------------------------------------- simulated sensors


def light(is_color: bool, shape: Tuple[int, int]) -> np.ndarray:
    """Any scene with S0 up to 1, polarized by up to 0.7."""
    rng = np.random.default_rng(3)
    s0 = rng.uniform(0.2, 1, (*shape, 3, 1) if is_color else (*shape, 1))
    return np.concatenate([s0, s0 * rng.uniform(-0.5, 0.5, (*s0.shape[:-1], 2))], -1)


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=lambda sensor: sensor.name)
def test_pixels_follow_the_formula(sensor: Sensor) -> None:
    """I = d + g/2 (S0 + c S1 + s S2), pixel by pixel, by the tile as it is printed; rounding allows half a level."""
    camera = simulate_sensor(sensor, (16, 20), 5, Deviations(shading=0.4))
    scene = light(sensor.is_color, (16, 20))
    raw = camera.expose(scene, 16) / 65535
    for y in range(16):
        for x in range(20):
            angle = 2 * np.deg2rad(sensor.angles[y % 2][x % 2] + camera.deviation[y, x])
            m = (camera.extinction[y, x] - 1) / (camera.extinction[y, x] + 1)
            s0, s1, s2 = scene[y, x, sensor.colors[y % 4][x % 4]] if sensor.is_color else scene[y, x]
            seen = camera.gain[y, x] / 2 * (s0 + m * np.cos(angle) * s1 + m * np.sin(angle) * s2)
            assert abs(raw[y, x] - camera.black[y, x] - camera.shade[y, x] * seen) <= 0.51 / 65535


def test_statistics_are_those_asked_for() -> None:
    """Means and deviations of 24576 pixels; their own standard errors are 0.6 % and below of the deviations."""
    camera = simulate_sensor(MONO, (128, 192), 1, Deviations(defects=0.03))
    good = camera.defects == 0
    assert camera.gain[good].std() == pytest.approx(0.01, rel=0.03)
    assert camera.deviation.std() == pytest.approx(0.8, rel=0.03)
    assert abs(camera.deviation.mean()) < 0.03
    assert camera.extinction.mean() == pytest.approx(300, rel=0.02)
    assert camera.extinction.std() == pytest.approx(80, rel=0.03)
    assert camera.extinction.min() >= 50
    assert camera.black.mean() == pytest.approx(0.008, rel=0.01)
    assert camera.black.std() == pytest.approx(0.0015, rel=0.03)
    # 0.03 of 24576 are 737, with a standard deviation of 27; a third of each kind
    assert 737 - 5 * 27 < (~good).sum() < 737 + 5 * 27
    for kind in (LEAKY, DEAD, STUCK):
        assert 246 - 5 * 16 < (camera.defects == kind).sum() < 246 + 5 * 16


def test_defective_pixels() -> None:
    camera = simulate_sensor(MONO, (64, 96), 0, Deviations(defects=0.05))
    dark, bright = (camera.expose(np.array([s0, 0.0, 0.0]), 16) / 65535.0 for s0 in (0.0, 0.5))
    dead, stuck, leaky = (camera.defects == kind for kind in (DEAD, STUCK, LEAKY))
    np.testing.assert_array_equal(dark[dead | stuck], bright[dead | stuck])
    assert (bright - dark)[leaky].min() > 0.2
    assert (dark - camera.black)[leaky].min() > 0.04
    assert np.abs((dark - camera.black)[camera.defects == 0]).max() <= 0.51 / 65535


def test_shares_shapes_and_depths_out_of_range_are_refused() -> None:
    for deviations in (Deviations(defects=1.0), Deviations(shading=-0.1), Deviations(shading=1.0)):
        with pytest.raises(ValueError, match="must be in"):
            simulate_sensor(MONO, (16, 16), 0, deviations)
    camera = simulate_sensor(MONO, (16, 16))
    with pytest.raises(ValueError, match="bit_depth must be 8 to 16, got 7"):
        camera.expose(np.zeros(3), 7)
    with pytest.raises(ValueError, match="broadcast"):
        camera.expose(np.zeros((5, 5, 3)))


# ------------------------------------------------------------------------------------------------ what a session states


def test_advice_names_the_setting_with_the_fewest_frames() -> None:
    sums = SessionSums(MONO)
    for setting in (DARK, *("020", "040", "060") * 4, "040", "080", "020", "080", "100", "100", "100"):
        sums.add(setting, RawFrame(np.full((16, 16), 900, np.uint16), 4095))
    texts = [row.text for row in about_frames(sums, 0.0, 0.7, None)]
    assert texts == [
        "only 1 dark frames: take 64, black levels are as noisy as their mean",
        "only 5 settings of the polarizer: take 18, every 10 degrees, for smaller errors",
        "only 2 frames of setting 080: take 16 of each, which halves the noise of 4",
        "full well and read noise are unknown: take two or more frames of each setting",
    ]


def test_a_session_without_frames_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^the session holds no frames$"):
        add_frames([], make_options())


@pytest.mark.parametrize(
    ("temperatures", "mean"), [((None, 30.0, 42.0), 36.0), ((30.0, None, 42.0), 36.0), ((None, None, None), None)]
)
def test_a_camera_that_states_no_temperature_at_times(temperatures: Any, mean: Optional[float], tmp_path: Path) -> None:
    for number, warmth in enumerate(temperatures):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "camera.yaml").write_text(
            "{vendor: LUCID, model: TRI050S-P, serial: P1, sensor: IMX250MZR, pixel_format: Mono12p, bit_depth: 12, "
            "size: [160, 128], roi_offset: [0, 0], flip: [false, false], gain_db: 0.0, exposure_us: 5000.0, "
            f"temperature: {'null' if warmth is None else warmth}}}"
        )
    state = captured_state([tmp_path])
    assert state is not None
    assert (state.facts.temperature, state.file) == (mean, tmp_path / "0" / "camera.yaml")
