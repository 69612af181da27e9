"""Brightness and white balance of pictures for people, against answers made by hand."""

from __future__ import annotations

import colorsys
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from polar_pipeline.options.display import (
    AUTO_GAIN,
    GRAY_LEVELS,
    MAX_GAIN,
    SAMPLES,
    SMOOTHING,
    Display,
    Viewer,
    automatic_gain,
    brighten,
    gray_world,
    sample_pixels,
    scale,
)


@pytest.mark.parametrize(
    ("gain", "balance", "expected"),
    [
        (1.0, "none", (1.0, (1.0, 1.0, 1.0))),
        ("auto", "auto", (None, None)),
        (2, [2.0, 1, 1.5], (2.0, (2.0, 1.0, 1.5))),
        ("2.5", "2 1 1.5", (2.5, (2.0, 1.0, 1.5))),
    ],
)
def test_settings(gain: Any, balance: Any, expected: Any) -> None:
    settings = Display(gain, balance)
    assert (settings.gain, settings.balance) == expected


@pytest.mark.parametrize(
    "gain", ["bright", 0, -1.0, float("nan"), 2 * MAX_GAIN, None, [1.0, 2.0], True, Decimal(1), 10**400, "9" * 5000]
)
def test_wrong_gain(gain: Any) -> None:
    with pytest.raises(ValueError, match=r"display\.gain must be 'auto' or a number above 0"):
        Display(gain)


@pytest.mark.parametrize(
    "balance", ["gray", "1 1", [1.0, 1.0, 0.0], [1.0] * 4, False, None, "1 1 inf", 1.0, [1.0, True, 1.0]]
)
def test_wrong_balance(balance: Any) -> None:
    with pytest.raises(ValueError, match=r"display\.white_balance must be 'none', 'auto' or "):
        Display(1.0, balance)


@pytest.mark.parametrize("shape", [(1, 1), (24, 32), (300, 200, 3), (1024, 1224), (2048, 2448, 3)])
def test_sample_is_small_and_from_everywhere(shape: Any) -> None:
    image = np.zeros(shape, np.uint8)
    image[shape[0] // 2 :] = 1
    pixels = sample_pixels(image)
    assert min(SAMPLES, shape[0] * shape[1]) <= len(pixels) <= 4 * SAMPLES
    assert pixels.shape[1] == (shape[2] if len(shape) == 3 else 1)
    assert abs(pixels.mean() - image.mean()) < 0.02  # one row of the grid more or less


@pytest.mark.parametrize(
    ("level", "gain"),
    [(115, 2.0), (23, 10.0), (230, 1.0), (255, 1.0), (0, AUTO_GAIN[1]), (10, AUTO_GAIN[1])],
)
def test_exposure_of_one_level(level: int, gain: float) -> None:
    assert automatic_gain(np.full((1000, 1), level, np.uint8)) == pytest.approx(gain)


def test_exposure_leaves_out_a_few_highlights() -> None:
    pixels = np.full((1000, 3), 23, np.uint8)
    pixels[:5, 0] = 255
    assert automatic_gain(pixels) == pytest.approx(10.0)
    pixels[:20, 0] = 255  # more than one in a hundred, if in one channel only
    assert automatic_gain(pixels) == pytest.approx(1.0)


def test_gray_world() -> None:
    pixels = np.tile(np.array([60, 120, 80], np.uint8), (100, 1))
    assert gray_world(pixels) == pytest.approx((2.0, 1.0, 1.5))
    mixed = np.concatenate([pixels, np.full((50, 3), 255, np.uint8), np.zeros((50, 3), np.uint8)])
    assert gray_world(mixed) == pytest.approx((2.0, 1.0, 1.5)), "clipped and dark pixels show no color of light"
    assert gray_world(np.full((100, 3), 255, np.uint8)) is None
    low, high = GRAY_LEVELS
    ends = np.tile(np.array([high, low, 125], np.uint8), (100, 1))
    assert gray_world(ends) == pytest.approx((1.0, 4.0, 2.0))
    assert gray_world(ends + np.array([1, 0, 0], np.uint8)) is None
    assert gray_world(ends - np.array([0, 1, 0], np.uint8)) is None
    few = np.full((1000, 3), 255, np.uint8)
    few[:10] = (60, 120, 80)
    assert gray_world(few) == pytest.approx((2.0, 1.0, 1.5)), "one pixel in a hundred is enough"
    few[9] = 255
    assert gray_world(few) is None
    assert gray_world(np.tile(np.array([20, 200, 200], np.uint8), (100, 1))) == pytest.approx((4.0, 1.0, 1.0))


def test_brighten_keeps_hue_and_saturation() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    bright = brighten(rgb, 3.0)
    for before, after in zip(rgb.reshape(-1, 3) / 255, bright.reshape(-1, 3) / 255):
        hue, saturation, value = colorsys.rgb_to_hsv(*before)
        expected = colorsys.hsv_to_rgb(hue, saturation, min(1.0, 3 * value))
        np.testing.assert_allclose(after, expected, atol=0.51 / 255)  # rounding to a level
    np.testing.assert_array_equal(brighten(rgb, 1.0), rgb)
    assert brighten(rgb, 0.5).max() == 128  # half of 255, rounded to even


def test_scale() -> None:
    row = np.array([[[10, 100, 200], [255, 255, 255]]], np.uint8)
    np.testing.assert_array_equal(scale(row, [2.0, 1.0, 1.5]), [[[20, 100, 255], [255, 255, 255]]])
    np.testing.assert_array_equal(scale(row[..., 0], [2.0]), [[20, 255]])


def test_smoothing() -> None:
    display, viewer = Display("auto"), Viewer()

    def gain(level: int) -> float:
        return float(viewer.show("intensity", np.full((64, 64), level, np.uint8), display)[0, 0]) / level

    assert gain(20) == 230 / 20  # no fade-in
    expected = 11.5 * (2.3 / 11.5) ** SMOOTHING
    assert gain(100) == min(2.55, expected)
    for _ in range(100):
        found = gain(100)
    assert found == pytest.approx(2.3, abs=0.006)  # a rounded level


def test_the_balance_stays_while_no_pixel_shows_it() -> None:
    viewer, display = Viewer(), Display(1, "auto")
    colored, dark = np.tile(np.array([20, 40, 40], np.uint8), (64, 64, 1)), np.full((64, 64, 3), 10, np.uint8)
    np.testing.assert_array_equal(viewer.show("intensity", dark, display), dark)
    np.testing.assert_array_equal(viewer.show("intensity", colored, display)[0, 0], [40, 40, 40])
    np.testing.assert_array_equal(viewer.show("intensity", dark, display)[0, 0], [20, 10, 10])


def test_view_of_a_color_sensor() -> None:
    image = np.tile(np.array([20, 40, 30], np.uint8), (64, 64, 1))
    picture = Viewer().show("intensity", image, Display("auto", "auto"))
    np.testing.assert_array_equal(picture, np.full_like(image, 230))
    by_hand = Viewer().show("intensity", image, Display(2, [2, 1, 1]))
    np.testing.assert_array_equal(by_hand[0, 0], [80, 80, 60])


def test_each_product_follows_itself() -> None:
    viewer, display = Viewer(), Display("auto", "auto")
    dark, bright = (np.full((64, 64, 3), level, np.uint8) for level in (23, 230))
    for _ in range(2):
        assert np.all(viewer.show("polarized", dark, display) == 230)
        assert np.all(viewer.show("unpolarized", bright, display) == 230)


def test_a_preview_keeps_its_colors_and_has_one_gain_for_all() -> None:
    image = np.tile(np.array([20, 40, 30], np.uint8), (64, 64, 1))
    image[:, ::4] = (60, 10, 30)
    image[0, 2] = (255, 100, 50)  # one highlight
    picture = Viewer().show("preview", image, Display("auto", "auto"))
    assert picture[0, :3].tolist() == [[230, 38, 115], [77, 153, 115], [255, 100, 50]]  # times 230 / 60, or 1


def test_plain_is_untouched() -> None:
    image = np.zeros((64, 64, 3), np.uint8)
    assert Viewer().show("preview", image, Display()) is image


def test_sequence_does_not_flicker_and_repeats_from_a_reset() -> None:
    rng = np.random.default_rng(1)
    display, viewer = Display("auto", "auto"), Viewer()
    images = [np.tile(rng.integers(30, 100, 3).astype(np.uint8), (64, 64, 1)) for _ in range(20)]
    images += [np.full((64, 64, 3), 23, np.uint8)] * 10
    images[-5] = np.full((64, 64, 3), 200, np.uint8)  # a flash
    first = [viewer.show("intensity", image, display) for image in images]
    levels = np.array([shown[0, 0] for image, shown in zip(images, first) if image[0, 0, 0] == 23], float)
    # one frame of gain 1.15 after such of 10 moves the gain by a tenth of the way, in logarithms
    steps = np.abs(np.diff(np.log(levels[-5:, 0])))
    assert steps.max() < SMOOTHING * np.log(10 / 1.15)
    viewer.reset()
    for image, before in zip(images, first):
        np.testing.assert_array_equal(viewer.show("intensity", image, display), before)
