"""The float64 reference against independent answers: other libraries, arithmetic, and loops written from the text."""

from __future__ import annotations

import colorsys
import itertools
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest
from scenes import sample_mosaic
from scipy import ndimage

from polar_pipeline.backends import reference
from polar_pipeline.options import make_options
from polar_pipeline.options.methods import METHODS
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS, Sensor, parse_tile

MONO, COLOR = SENSORS["IMX250MZR"], SENSORS["IMX250MYR"]
#: Sums of a few dozen float64 terms of size 1.
EXACT = 1e-13


def random_mosaic(shape: Tuple[int, int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape)


def run(frame: RawFrame, sensor: Sensor = MONO, other: Any = None, **options: Any) -> Dict[str, Any]:
    return reference.run(frame, make_options(sensor, **options), other)


# ------------------------------------------------------------------------------------------------------ color lattice

#: Every place that a region of interest can give to the first pixel: all four Bayer phases of every angle.
OFFSETS = list(itertools.product(range(4), range(4)))


def lattices(sensor: Sensor) -> Any:
    """(row, column, Bayer pattern) of the four stride-2 lattices."""
    for i, j in itertools.product(range(2), range(2)):
        pattern = "".join("RGB"[sensor.color_index(i + 2 * r, j + 2 * c)] for r in range(2) for c in range(2))
        yield i, j, pattern


def padded(method: Callable[[np.ndarray, str], np.ndarray], lattice: np.ndarray, pattern: str) -> np.ndarray:
    """A debayer on a mirrored border: its own repeats the outermost sample, which breaks the phase."""
    return method(np.pad(lattice, 4, "reflect"), pattern)[4:-4, 4:-4]


@pytest.mark.parametrize("offset", OFFSETS)
def test_mhc_is_that_of_colour_demosaicing(offset: Tuple[int, int]) -> None:
    bayer = pytest.importorskip("colour_demosaicing")
    sensor, mosaic = COLOR.as_read_out(offset), random_mosaic((24, 32))
    rgb = reference.debayer_mhc(mosaic, sensor)
    for i, j, pattern in lattices(sensor):
        expected = padded(bayer.demosaicing_CFA_Bayer_Malvar2004, mosaic[i::2, j::2], pattern)
        np.testing.assert_allclose(rgb[i::2, j::2], np.clip(expected, 0, 1), rtol=0, atol=EXACT)


@pytest.mark.parametrize("offset", OFFSETS)
def test_bilinear_debayer_by_normalized_convolution(offset: Tuple[int, int]) -> None:
    sensor, mosaic = COLOR.as_read_out(offset), random_mosaic((21, 27), 2)
    rgb = reference.debayer_bilinear(mosaic, sensor)
    kernels = ([[1, 2, 1], [2, 4, 2], [1, 2, 1]], [[0, 1, 0], [1, 4, 1], [0, 1, 0]], [[1, 2, 1], [2, 4, 2], [1, 2, 1]])
    for (i, j, pattern), (k, kernel) in itertools.product(lattices(sensor), enumerate(kernels)):
        lattice = mosaic[i::2, j::2]
        tile = np.array(list(pattern)).reshape(2, 2) == "RGB"[k]
        mask = np.tile(tile, (7, 8))[: lattice.shape[0], : lattice.shape[1]]
        expected = ndimage.convolve(lattice * mask, np.array(kernel) / 4, mode="mirror")
        np.testing.assert_allclose(rgb[i::2, j::2, k], expected, rtol=0, atol=EXACT)


# --------------------------------------------------------------------------------------------------- polarizer mosaic


@pytest.mark.parametrize("tile", ["90 45 / 135 0", "45 90 / 0 135", "135 0 / 90 45", "0 45 / 135 90"])
@pytest.mark.parametrize("shape", [(16, 16), (17, 22), (18, 25)])
def test_bilinear_demosaic_by_normalized_convolution(tile: str, shape: Tuple[int, int]) -> None:
    sensor, mosaic = parse_tile(tile), random_mosaic(shape)
    angles = reference.demosaic_bilinear(mosaic, sensor)
    cells = [[int(cell) for cell in row.split()] for row in tile.split("/")]
    kernel = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 4
    for k, angle in enumerate(ANGLES):
        mask = np.tile(np.array(cells) == angle, (9, 13))[: shape[0], : shape[1]]
        expected = ndimage.convolve(mosaic * mask, kernel, mode="mirror")
        np.testing.assert_allclose(angles[k], expected, rtol=0, atol=EXACT)


def test_gradient_demosaic_of_a_hand_made_detail() -> None:
    mosaic = np.full((16, 16), 0.25)
    mosaic[8, 8] = 0.65  # A 90 degree pixel, 0.4 above its surroundings.
    angles = reference.demosaic_gradient(mosaic, MONO)
    # Its own angle keeps it; the others gain a quarter of the detail that its four neighbors of one kind lack.
    assert angles[:, 8, 8] == pytest.approx([0.35, 0.35, 0.65, 0.35], abs=EXACT)
    # Two pixels to the right the detail is -0.4/4, of which a quarter is taken away from the other angles.
    assert angles[:, 8, 10] == pytest.approx([0.225, 0.225, 0.25, 0.225], abs=EXACT)
    # The pixel to the right measures 45; the 90 lies half way to the spot.
    assert angles[:, 8, 9] == pytest.approx([0.25, 0.25, 0.45, 0.25], abs=EXACT)


@pytest.mark.parametrize(
    ("tile", "darkness", "means"),
    [
        ("90 45 / 135 0", 1.0, [0.456411066419, 0.478778324461, 0.522791941263, 0.482003136068]),
        ("135 0 / 90 45", 0.02, [0.078415693879, 0.056741512913, 0.065886312685, 0.086998703658]),
    ],
)
def test_adaptive_demosaic_by_numbers(tile: str, darkness: float, means: List[float]) -> None:
    """What a program of loops, written from the description of the method and nothing else, made of a mosaic."""
    # Noise is the hardest content: every weight and clip is at work; the dark one reaches the epsilons.
    mosaic = darkness * random_mosaic((16, 19), 3)
    mosaic[4:8, 5:11] = 0
    mosaic[10:13, 2:9] = 1
    result = reference.demosaic_adaptive(mosaic, parse_tile(tile))
    np.testing.assert_allclose(result.mean((1, 2)), means, rtol=0, atol=1e-11)


def test_weighted_debayer_by_numbers() -> None:
    """Of such a program, too."""
    rgb = reference.debayer_weighted(random_mosaic((22, 18), 4), COLOR)
    np.testing.assert_allclose(rgb[9, 7], [0.782005139044, 0.874565498504, 0.553351811719], rtol=0, atol=1e-10)
    np.testing.assert_allclose(rgb[10, 12], [0.489931508244, 0.622569622236, 0.746134993499], rtol=0, atol=1e-10)
    np.testing.assert_allclose(rgb[21, 17], [0.744404093693, 0.81884291346, 1.0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_turned_mosaic_gives_turned_angles(method: str, turns: int) -> None:
    mosaic, text = random_mosaic((20, 26), 4), "90 45 / 135 0"
    tile = np.rot90(np.array([row.split() for row in text.split("/")]), turns)
    turned = parse_tile(" / ".join(" ".join(row) for row in tile))
    demosaic = reference.DEMOSAIC[method]
    expected = np.rot90(demosaic(mosaic, parse_tile(text)), turns, (1, 2))
    np.testing.assert_allclose(demosaic(np.rot90(mosaic, turns), turned), expected, rtol=0, atol=EXACT)


# --------------------------------------------------------------------------------------------- flat fields, full chain


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("resolution", ["half", "full"])
@pytest.mark.parametrize("sensor", [MONO, COLOR, COLOR.as_read_out((3, 1))], ids=["mono", "color", "shifted"])
def test_flat_polarized_fields_are_exact_up_to_the_border(method: str, resolution: str, sensor: Sensor) -> None:
    options = make_options(sensor, demosaic=method, resolution=resolution)
    light = np.array([0.6, 0.4, 0.25]) if sensor.is_color else np.array(0.4)
    for degree, direction in itertools.product((0.0, 0.05, 0.5, 0.8), np.deg2rad(np.arange(0, 180, 15))):
        # Malus: behind a polarizer at theta, S0/2 (1 + DoLP cos 2(theta - AoLP)).
        passed = [light * (1 + degree * np.cos(2 * (np.deg2rad(theta) - direction))) for theta in ANGLES]
        truth = np.stack([np.broadcast_to(value, (18, 21, *light.shape)) for value in passed])
        angles = reference.demosaic(sample_mosaic(np.clip(truth, 0, 1), sensor), sensor, options)
        size = (9, 10) if resolution == "half" else (18, 21)
        assert angles.shape[1:3] == size
        expected = np.broadcast_to(np.clip(truth[:, :1, :1], 0, 1), angles.shape)
        np.testing.assert_allclose(angles, expected, rtol=0, atol=EXACT)
        if degree == 0 or truth.max() > 1:
            continue
        vector = reference.stokes(angles)
        np.testing.assert_allclose(reference.dolp(vector), degree, rtol=0, atol=1e-11)
        wrong = (reference.aolp(vector) - direction + np.pi / 2) % np.pi - np.pi / 2
        np.testing.assert_allclose(wrong, 0, rtol=0, atol=1e-11)


def test_sites_of_half_resolution() -> None:
    mosaic = random_mosaic((17, 19))
    own = reference.demosaic(mosaic, MONO, make_options(MONO, co_sited=False))
    assert [angle.tolist() for angle in own] == [
        mosaic[i:16:2, j:18:2].tolist() for i, j in ((1, 1), (0, 1), (0, 0), (1, 0))
    ]
    # Co-sited: what a linear ramp has at the superpixels' centers, everywhere but at the border, which mirrors it.
    ramp = np.add.outer(np.arange(18) / 100, np.arange(20) / 50)
    angles = reference.demosaic(ramp, MONO, make_options(MONO))
    centers = ((ramp[:-1, :-1] + ramp[1:, 1:]) / 2)[::2, ::2]
    for angle in angles:
        np.testing.assert_allclose(angle[1:-1, 1:-1], centers[1:-1, 1:-1], rtol=0, atol=EXACT)


def test_luma_and_intensity() -> None:
    angles = np.array([[0.4, 0.8, 0.0], [0.0, 0.4, 0.8], [0.8, 0.0, 0.4], [0.4, 0.4, 0.4]]).reshape(4, 1, 1, 3)
    assert reference.luma(angles).ravel() == pytest.approx([0.5, 0.4, 0.3, 0.4], abs=EXACT)
    assert reference.intensity(angles).ravel() == pytest.approx([0.4, 0.4, 0.4], abs=EXACT)
    vector = reference.stokes(reference.luma(angles))
    assert vector.ravel() == pytest.approx([0.8, 0.2, 0.0], abs=EXACT)


@pytest.mark.parametrize(
    ("vector", "degree", "direction"),
    [
        ((1, 0.5, 0), 0.5, 0),
        ((1, -0.5, 0), 0.5, np.pi / 2),
        ((1, 0, 0.5), 0.5, np.pi / 4),
        ((1, 0, -0.5), 0.5, 3 * np.pi / 4),
        ((2, 0.6, 0.8), 0.5, np.arctan2(4, 3) / 2),
        ((0.5, 0.6, 0.8), 1, np.arctan2(4, 3) / 2),  # More polarized than light can be: noise.
        ((0, 0, 0), 0, 0),
        ((1, 0.5, -1e-20), 0.5, 0),  # A hair below pi belongs to [0, pi), not to pi itself.
    ],
)
def test_degree_and_angle(vector: Tuple[float, ...], degree: float, direction: float) -> None:
    assert reference.dolp(np.array(vector, float)) == pytest.approx(degree, abs=EXACT)
    assert reference.aolp(np.array(vector, float)) == pytest.approx(direction, abs=EXACT)


# ------------------------------------------------------------------------------------------------------ invalid pixels


def test_saturated_and_dark_pixels_are_invalid_and_counted() -> None:
    raw = np.full((16, 16), 100, np.uint8)
    raw[5, 6] = 255  # One sample of superpixel (2, 3).
    raw[10:14, 0:4] = 1  # S0 = 2/255 = 0.0078: four superpixels, in the dark.
    half = run(RawFrame(raw, 255), products=("intensity", "stokes", "dolp", "aolp"), co_sited=False)
    hot, dark = np.zeros((8, 8), bool), np.zeros((8, 8), bool)
    hot[2, 3] = True
    dark[5:7, 0:2] = True
    assert half["invalid"] == (1, 4)
    for name in ("dolp", "aolp"):
        assert np.array_equal(np.isnan(half[name]), hot | dark)
    assert np.array_equal(np.isnan(half["stokes"]), np.repeat((hot | dark)[..., np.newaxis], 3, -1))
    assert half["intensity"][2, 3] == pytest.approx((3 * 100 + 255) / 4 / 255, abs=EXACT)

    full = run(RawFrame(raw, 255), products=("dolp",), resolution="full", demosaic="bilinear")
    assert full["invalid"][0] == 9  # All that interpolates from the hot pixel.
    assert np.isnan(full["dolp"][4:7, 5:8]).all()
    assert not np.isnan(full["dolp"][3, 5:8]).any()


def test_invalid_pixels_are_zero_in_bytes() -> None:
    raw = np.tile(np.array([[200, 120], [90, 30]], np.uint8), (8, 8))
    raw[5, 6] = 255
    out = run(RawFrame(raw, 255), products=("dolp", "aolp", "preview"), dtype="uint8", co_sited=False)
    assert out["dolp"][2, 3] == out["aolp"][2, 3] == 0
    assert np.ptp(out["preview"][2, 3]) == 0  # Gray: no saturation.
    assert out["dolp"][0, 0] > 0


def test_full_scale_and_threshold_decide_what_is_invalid() -> None:
    raw = np.full((16, 16), 4000, np.uint16)
    assert run(RawFrame(raw, 4095), products="dolp")["invalid"] == (0, 0)
    assert run(RawFrame(raw, 4000), products="dolp")["invalid"] == (64, 0)
    assert run(RawFrame(raw, 65535), products="dolp", min_intensity=0.2)["invalid"] == (0, 64)


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=["mono", "color"])
@pytest.mark.parametrize("resolution", ["half", "full"])
@pytest.mark.parametrize("demosaic", METHODS)
@pytest.mark.parametrize("full_scale", [0xFF, 0xFFF, 0xFFF0])
def test_numbers_above_full_scale_mean_full_scale(
    sensor: Sensor, resolution: str, demosaic: str, full_scale: int
) -> None:
    options = make_options(sensor, PRODUCTS, resolution=resolution, demosaic=demosaic)
    raw = np.random.default_rng(full_scale).integers(0, 65536, (16, 18)).astype(np.uint16)
    raw[::3] %= full_scale  # some of them in range
    got = reference.run(RawFrame(raw, full_scale), options)
    want = reference.run(RawFrame(np.minimum(raw, full_scale).astype(np.uint16), full_scale), options)
    want.pop("seconds")
    for name, values in want.items():
        # older NumPy rounds the last place of some functions by where an array lies in memory
        np.testing.assert_allclose(got[name], values, rtol=1e-14, atol=1e-14, err_msg=name)
    assert 0 <= got["intensity"].min() <= got["intensity"].max() <= 1


# --------------------------------------------------------------------------------------------------------------- SSIM

IMAGE, NOISE = np.random.default_rng(5).random((2, 23, 31))
PAIRS = {
    "noise": (IMAGE, NOISE),
    "similar": (IMAGE, np.clip(IMAGE + 0.2 * (NOISE - 0.5), 0, 1)),
    "negative": (IMAGE[:16, :16], 1 - IMAGE[:16, :16]),
    "constant": (np.full((20, 20), 0.3), np.full((20, 20), 0.7)),
    "black": (np.zeros_like(IMAGE), IMAGE),
}


@pytest.mark.parametrize(
    ("name", "window", "sigma"),
    [*((name, 11, 1.5) for name in PAIRS), ("similar", 5, 0.5), ("similar", 9, 1.0), ("similar", 15, 2.0)],
)
def test_ssim_is_that_of_scikit_image_borders_included(name: str, window: int, sigma: float) -> None:
    """Whose windows end at 3.5 sigma, rounded."""
    metrics = pytest.importorskip("skimage.metrics")
    x, y = PAIRS[name]
    expected = metrics.structural_similarity(
        x, y, gaussian_weights=True, sigma=sigma, use_sample_covariance=False, data_range=1, full=True
    )[1]
    # E[x^2] - E[x]^2 cancels to 1e-16; the smallest denominator is C1 C2 = 9e-8.
    np.testing.assert_allclose(reference.ssim_map(x, y, 1, window, sigma), expected, rtol=0, atol=1e-8)


def test_stride_averages_and_drops_the_remainder() -> None:
    image = np.arange(7 * 5, dtype=float).reshape(7, 5)
    # rows 0-1, columns 0-1: (0 + 1 + 5 + 6) / 4 = 3; the next blocks lie 2 to the right, 10 = 2 x 5 below
    assert reference.shrink(image, 2).tolist() == [[3, 5], [13, 15], [23, 25]]
    assert reference.shrink(image, 1).tolist() == image.tolist()
    x, y = PAIRS["similar"]
    np.testing.assert_array_equal(
        reference.ssim_map(x, y, 3), reference.ssim_map(reference.shrink(x, 3), reference.shrink(y, 3))
    )


def test_block_means_by_hand() -> None:
    similarity = np.zeros((65, 130))
    similarity[:64, :64] = 1
    similarity[0, 64] = 64  # one of 64 x 64 pixels
    similarity[64, 128:] = (1, 2)
    assert reference.block_means(similarity).tolist() == [[1, 1 / 64, 0], [0, 0, 1.5]]


def test_ssim_modes() -> None:
    flat = RawFrame(np.tile(np.array([[80, 60], [40, 20]], np.uint8), (8, 8)), 255)
    noisy = RawFrame(np.random.default_rng(0).integers(0, 200, (16, 16), np.uint8), 255)
    wanted = {"products": ("ssim", "ssim_map", "intensity"), "co_sited": False}
    # Both pairs of orthogonal polarizers of a flat field carry its S0: 80 + 20 = 60 + 40.
    assert run(flat, **wanted)["ssim"] == pytest.approx(1, abs=EXACT)
    noise = run(noisy, **wanted)
    assert noise["ssim"] < 0.9
    assert noise["ssim"] == pytest.approx(noise["ssim_map"].mean(), abs=EXACT)
    for mode in ("temporal", "reference"):
        assert np.isnan(run(flat, **wanted, ssim_mode=mode)["ssim"])
        other = noise["intensity"]
        assert run(noisy, other=other, **wanted, ssim_mode=mode)["ssim"] == pytest.approx(1, abs=EXACT)
        assert run(flat, other=other, **wanted, ssim_mode=mode)["ssim"] < 0.9


# ------------------------------------------------------------------------------------------------------------ display


def test_display_of_aolp_wraps() -> None:
    degrees = np.array([0, 45, 90, 135, 179, 179.6, 179.7, np.nan])
    # One level is 180/256 = 0.703 degrees; from 179.65 on, the nearest is 180 = 0.
    assert reference.display("aolp", np.deg2rad(degrees)).tolist() == [0, 64, 128, 192, 255, 255, 0, 0]
    # one level of 65536 is 0.00275 degrees; from 179.99863 on, the nearest is 180
    degrees = np.array([0, 45, 90, 135, 179.9986, 179.9987, 180, np.nan])
    want = [0, 16384, 32768, 49152, 65535, 0, 0, 0]
    assert reference.display("aolp", np.deg2rad(degrees), "uint16").tolist() == want


def test_display_of_everything_else_is_a_percentage() -> None:
    values = np.array([-0.1, 0, 0.2, 0.4999, 1, 1.5, np.nan])
    for name in ("intensity", "angle_0", "dolp", "ssim_map"):
        assert reference.display(name, values).tolist() == [0, 0, 51, 127, 255, 255, 0]
        assert reference.display(name, values, "uint16").tolist() == [0, 0, 13107, 32761, 65535, 65535, 0]


def test_display_of_deviations_is_highest_where_invalid() -> None:
    values = np.array([0, 0.5, np.nan])
    for dtype, top in (("uint8", 255), ("uint16", 65535)):
        assert reference.display("dolp_sigma", values, dtype).tolist() == [0, top // 2 + 1, top]
        half = round((top + 1) * 0.5 / np.pi)
        assert reference.display("aolp_sigma", values, dtype).tolist() == [0, half, top]


def test_preview_is_the_hsv_of_colorsys() -> None:
    rng = np.random.default_rng(6)
    value, degree, angle = rng.random((3, 300))
    degree[:3], value[3:6], angle[6:9] = (0, 0.5, 1), (0, 0.5, 1), (0, 1 / 3, 0.9999)
    rgb = reference.preview(value, degree, angle * np.pi)
    expected = [colorsys.hsv_to_rgb(h, s, v) for h, s, v in zip(angle, degree, value)]
    # The same formula in another order: a tie may round the other way, hence half a level and a little.
    assert np.abs(rgb - 255 * np.array(expected)).max() <= 0.5 + 1e-9
    invalid = reference.preview(np.array([0.4]), np.array([np.nan]), np.array([np.nan]))
    assert invalid.tolist() == [[102, 102, 102]]
