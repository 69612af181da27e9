"""The color maps, and the products made by them."""

from __future__ import annotations

import colorsys
from typing import Tuple

import cv2
import numpy as np
import pytest

from polar_pipeline import Pipeline
from polar_pipeline.backends import reference
from polar_pipeline.pictures.colors import legend
from polar_pipeline.polarimetry.colormaps import AOLP_MAP, COLOR_STYLES, DOLP_MAP, GRAY
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import SENSORS


def lab(rgb: np.ndarray) -> np.ndarray:
    """(n, 3) uint8 sRGB -> CIE L*a*b*."""
    return cv2.cvtColor(rgb[np.newaxis].astype(np.float32) / 255, cv2.COLOR_RGB2LAB)[0]


def test_the_map_of_degrees_is_viridis() -> None:
    want = cv2.applyColorMap(np.arange(256, dtype=np.uint8)[np.newaxis], cv2.COLORMAP_VIRIDIS)[0, :, ::-1]
    assert np.abs(DOLP_MAP.astype(int) - want).max() <= 1  # OpenCV versions may round otherwise
    assert np.all(np.diff(lab(DOLP_MAP)[::4, 0]) > 0), "brighter means more"


def test_the_map_of_angles_is_cyclic_and_even() -> None:
    colors = lab(AOLP_MAP)
    steps = np.linalg.norm(np.diff(colors, axis=0, append=colors[:1]), axis=1)
    assert steps.max() < 3  # nowhere a jump, not from the last color to the first either; 2.3 is just noticeable
    assert np.ptp(colors[:, 0]) < 6, "of about one lightness"
    assert lab(np.full((1, 3), GRAY, np.uint8))[0, 0] == pytest.approx(colors[:, 0].mean(), abs=0.5)
    # what is a right angle apart looks different: the nearest such pair is far beyond the just noticeable
    assert np.linalg.norm(colors - np.roll(colors, 128, 0), axis=1).min() > 40


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
        "faded": 129 + share * (color - 129),
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
    """What is written on white just outside the wheel of a legend, in this direction: its pixels without white rows."""
    middle, turn = len(image) / 2, np.deg2rad(degrees)
    x, y = (round(middle + 96 * part) for part in (np.cos(turn), -np.sin(turn)))
    dark = image[y - 7 : y + 8, x - 12 : x + 13].min(-1) < 255
    return dark[dark.any(1)][:, dark.any(0)].tobytes()


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
    assert np.all(wheel[0, 0] == 255), "outside"
    texts = [text_at(wheel, degrees) for degrees in range(0, 180, 45)]
    assert len(set(texts)) == 4, "numbers"
    assert [text_at(wheel, degrees) for degrees in range(180, 360, 45)] == texts


def test_bars() -> None:
    bar = legend("dolp_color")
    assert bar is not None
    margin = (bar.shape[1] - len(DOLP_MAP)) // 2
    np.testing.assert_array_equal(bar[len(bar) // 2, margin:-margin], DOLP_MAP)
    below = bar[len(bar) // 2 + 13 :].min((0, 2)) < 255
    assert [below[margin + x - 4 : margin + x + 5].any() for x in (0, 64, 128, 192, 256)] == [True] * 5, "numbers"
    assert legend("aolp") is None
