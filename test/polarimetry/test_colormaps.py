"""The color maps, and the products made by them."""

from __future__ import annotations

import colorsys
import hashlib
from typing import Tuple

import cv2
import numpy as np
import pytest

from polar_pipeline import Pipeline
from polar_pipeline.backends import reference
from polar_pipeline.pictures.colors import legend
from polar_pipeline.pictures.text import BACK
from polar_pipeline.polarimetry.colormaps import AOLP_MAP, COLOR_STYLES, DIVERGING_MAP, DOLP_MAP, GRAY
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import SENSORS

#: Linear RGB as people see it who have all kinds of cones, or lack the first, second or third (Machado et al., 2009).
VISIONS = {
    "all": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
GRAYS = np.repeat(np.arange(256, dtype=np.uint8)[:, np.newaxis], 3, 1)
HUES = np.array([[round(255 * level) for level in colorsys.hsv_to_rgb(k / 256, 1, 1)] for k in range(256)], np.uint8)


def seen(rgb: np.ndarray, vision: str) -> np.ndarray:
    """(n, 3) uint8 sRGB -> CIE L*a*b* of the colors that are seen."""
    levels = rgb / 255
    linear = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear @ np.transpose(VISIONS[vision]), 0, 1).astype(np.float32)
    return cv2.cvtColor(linear[np.newaxis], cv2.COLOR_LRGB2LAB)[0].astype(float)


def distances(colors: np.ndarray, steps: int) -> np.ndarray:
    """CIELAB distances of colors of a cyclic map that are so many 256ths apart."""
    return np.linalg.norm(colors - np.roll(colors, steps, 0), axis=1)


@pytest.mark.parametrize("vision", VISIONS)
def test_color_maps_work_without_a_kind_of_cones(vision: str) -> None:
    """The check in docs/interpreting_images.md."""
    for colors in (seen(DOLP_MAP, vision), seen(GRAYS, vision)):
        assert np.all(np.diff(colors[::4, 0]) > 0), "brighter means more"
        assert np.linalg.norm(colors[16:] - colors[:-16], axis=1).min() >= 4, "a sixteenth of the range is visible"
    colors = seen(DIVERGING_MAP[1:], vision)
    assert np.all(np.diff(colors[127::4, 0]) < 0), "darker means farther from 0"
    assert np.all(np.diff(colors[127::-4, 0]) < 0)
    assert np.linalg.norm(colors[16:] - colors[:-16], axis=1).min() >= 4
    assert np.linalg.norm(colors[: 127 - 31] - colors[:-97:-1], axis=1).min() >= 20, (
        "signs, from a quarter of the range"
    )
    colors = seen(AOLP_MAP, vision)
    assert distances(colors, 128).min() >= 25, "perpendicular angles"
    assert distances(colors, 64).min() >= 15, "angles 45 degrees apart"
    hues = seen(HUES, vision)  # of the preview: what the document says of it
    assert distances(hues, 128).min() >= 25
    assert (distances(hues, 64).min() >= 15) == (vision == "all")


def test_the_map_of_degrees_is_viridis() -> None:
    """That of Matplotlib, whatever OpenCV's version: its ends, its middle, and every byte."""
    assert DOLP_MAP[[0, 128, 255]].tolist() == [[68, 1, 84], [33, 145, 140], [253, 231, 37]]
    digest = hashlib.sha256(DOLP_MAP.tobytes()).hexdigest()
    assert digest == "18545f7c72a02f02a54f2e3f6ff9dcf357e0190ab9117a1f8fae44c6eaf179e0"


def test_the_map_of_angles_is_cyclic_and_even() -> None:
    colors = seen(AOLP_MAP, "all")
    assert distances(colors, 1).max() < 3  # nowhere a jump, not from the last color to the first either
    lightness = 58 + 16 * np.cos(2 * np.pi * (np.arange(256) / 256 - 0.75))
    assert np.abs(colors[:, 0] - lightness).max() < 0.3, "levels of 8 bits"
    gray = seen(np.full((1, 3), GRAY, np.uint8), "all")
    assert gray[0, 0] == pytest.approx(colors[:, 0].mean(), abs=0.5)
    assert distances(colors, 128).min() > 90, "perpendicular angles"


def test_the_diverging_map_is_straight_and_white_at_0() -> None:
    colors = seen(DIVERGING_MAP, "all")
    ends = (40, 19, -58), (96, 0, 0), (40, 42.5, 49)
    np.testing.assert_allclose(colors[[1, 128, 255]], ends, atol=0.8)
    for half in (colors[1:129], colors[128:]):
        straight = np.linspace(half[0], half[-1], len(half))
        assert np.abs(half - straight).max() < 0.8, "levels of 8 bits"


def patches(sensor: str) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A 16-bit frame of flat patches of 32x32 pixels; their DoLP and AoLP."""
    mosaic = SENSORS[sensor]
    degree, angle = np.meshgrid([0.1, 0.5, 0.95], np.deg2rad([10.0, 55.0, 100.0, 170.0]))
    stokes = 0.9 * np.stack([np.ones(degree.shape), degree * np.cos(2 * angle), degree * np.sin(2 * angle)], -1)
    field = stokes.repeat(32, 0).repeat(32, 1)
    if mosaic.is_color:
        field = field[:, :, np.newaxis].repeat(3, 2)
    return expose(field, mosaic, 16), degree, angle


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("style", COLOR_STYLES)
def test_styles(sensor: str, style: str) -> None:
    raw, degree, angle = patches(sensor)
    with Pipeline(sensor, ("aolp_color", "dolp_color"), "cpu", color_style=style) as pipeline:
        out = pipeline(raw)
    color = AOLP_MAP[np.rint(256 * angle / np.pi).astype(int)].astype(float)
    share = degree[..., np.newaxis]
    want = {
        "plain": color,
        "light": 255 - share * (255 - color),
        "dark": share * color,
        "faded": 139 + share * (color - 139),
    }[style]
    # one step of a map, 3 or 4 levels, where a rounded angle or degree is the next one
    middle = (slice(8, None, 16), slice(8, None, 16))
    assert np.abs(out["aolp_color"][middle] - want).max() <= 4.5
    assert np.abs(out["dolp_color"][middle] - DOLP_MAP[np.rint(255 * degree).astype(int)].astype(float)).max() <= 4


@pytest.mark.parametrize("way", ["half", "full"])
def test_invalid_pixels_are_black(way: str) -> None:
    raw = np.full((64, 64), 100, np.uint8)
    raw[:, :20], raw[:, 44:] = 255, 0
    with Pipeline(products="aolp_color,dolp_color", backend="cpu", resolution=way, color_style="light") as pipeline:
        out = pipeline(raw)
    assert out.invalid[0] > 0
    assert out.invalid[1] > 0
    for image in out.values():
        columns = image.shape[1] // 4
        assert not image[:, :columns].any()
        assert not image[:, -columns:].any()
        assert image[:, image.shape[1] // 2].any(-1).all()


def text_at(image: np.ndarray, degrees: int) -> bytes:
    """What is written just outside the wheel of a legend, in this direction: its pixels without rows of background."""
    middle, turn = len(image) / 2, np.deg2rad(degrees)
    x, y = (round(middle + 96 * part) for part in (np.cos(turn), -np.sin(turn)))
    text = (image[y - 7 : y + 8, x - 12 : x + 13] != BACK).any(-1)
    return text[text.any(1)][:, text.any(0)].tobytes()


@pytest.mark.parametrize(("name", "style"), [("preview", "plain"), *(("aolp_color", style) for style in COLOR_STYLES)])
def test_wheels(name: str, style: str) -> None:
    wheel = legend(name, style)
    assert wheel is not None
    middle = (len(wheel) - 1) / 2
    for angle, degree in ((0.3, 0.9), (1.2, 0.5), (2.5, 0.2)):  # both ends of a line have the same angle
        for end in (1, -1):
            x = round(middle + 80 * end * degree * np.cos(angle))
            y = round(middle - 80 * end * degree * np.sin(angle))
            if name == "preview":  # hue 0 to 1 is 0 to 180 degrees
                want = 255 * np.array(colorsys.hsv_to_rgb(angle / np.pi, degree, 1))
            else:
                want = reference.aolp_color(np.array([angle]), np.array([degree]), style)[0].astype(int)
            assert np.abs(wheel[y, x] - want).max() <= 12, "rounded to the next pixel: 3 steps of the map"
    assert tuple(wheel[0, 0]) == BACK, "outside"
    texts = [text_at(wheel, degrees) for degrees in range(0, 180, 45)]
    assert len(set(texts)) == 4, "numbers"
    assert [text_at(wheel, degrees) for degrees in range(180, 360, 45)] == texts


def test_bars() -> None:
    bar = legend("dolp_color")
    assert bar is not None
    margin = (bar.shape[1] - len(DOLP_MAP)) // 2
    np.testing.assert_array_equal(bar[len(bar) // 2, margin:-margin], DOLP_MAP)
    below = (bar[len(bar) // 2 + 13 :] != BACK).any((0, 2))
    assert [below[margin + x - 4 : margin + x + 5].any() for x in (0, 64, 128, 192, 256)] == [True] * 5, "numbers"
    assert legend("aolp") is None
