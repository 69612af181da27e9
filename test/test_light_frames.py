"""Frames of light without a mosaic, angle images in color and Stokes vectors, against formulas in float64."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np
import pytest

from polar_pipeline import FrameError, Pipeline, RawFrame
from polar_pipeline.sensor.frames import Light
from polar_pipeline.sensor.mosaic import get_sensor

HEIGHT, WIDTH = 24, 40
ANGLES = np.deg2rad([0, 45, 90, 135])
MONO, COLOR = get_sensor("IMX250MZR"), get_sensor("IMX250MYR")


def stokes_in_color(seed: int = 0) -> np.ndarray:
    """(H, W, 3 colors, 3) of light without saturation, S0 from 0.2 to 1.2."""
    rng = np.random.default_rng(seed)
    s0, degree, angle = rng.uniform(0.2, 1.2, (3, HEIGHT, WIDTH, 3))
    degree, angle = 0.6 * degree, np.pi * angle
    return np.stack([s0, s0 * degree * np.cos(2 * angle), s0 * degree * np.sin(2 * angle)], -1)


def behind_polarizers(stokes: np.ndarray) -> np.ndarray:
    """Convert (..., 3) to (4, ...) by Malus' law."""
    s0, s1, s2 = np.moveaxis(stokes, -1, 0)
    return np.stack([(s0 + s1 * np.cos(2 * a) + s2 * np.sin(2 * a)) / 2 for a in ANGLES])


@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
def test_angle_images_in_color(sensor: str) -> None:
    """Light in its colors, polarization of their luma (1/4, 1/2, 1/4); the option `sensor` does not matter."""
    stokes = stokes_in_color()
    angles = behind_polarizers(stokes)
    frame = RawFrame.of_light(Light(angles.astype(np.float32)), get_sensor(sensor))
    products = ("intensity", "angle_45", "polarized", "stokes", "dolp", "aolp", "ssim")
    with Pipeline(sensor, products, backend="cpu") as pipeline:
        result = pipeline(frame)
        assert pipeline.output_size(frame.shape) == (HEIGHT, WIDTH)
    gray = stokes.transpose(0, 1, 3, 2) @ [0.25, 0.5, 0.25]
    expected: Dict[str, Any] = {
        "intensity": stokes[..., 0] / 2,
        "angle_45": angles[1],
        "polarized": np.hypot(stokes[..., 1], stokes[..., 2]),
        "stokes": gray,
        "dolp": np.hypot(gray[..., 1], gray[..., 2]) / gray[..., 0],
        "aolp": np.arctan2(gray[..., 2], gray[..., 1]) / 2 % np.pi,
        "ssim": 1.0,
    }
    for name, image in expected.items():  # rounding of float32; AoLP has its noise over a DoLP of 0.01 or more
        np.testing.assert_allclose(result[name], image, atol=1e-4 if name == "aolp" else 2e-6, err_msg=name)
    assert result.invalid == (0, 0)


@pytest.mark.parametrize("is_color", [False, True])
def test_stokes_vectors_come_back(is_color: bool) -> None:
    """Also above full scale and where polarization exceeds S0; NaN stays invalid."""
    stokes = stokes_in_color() if is_color else stokes_in_color()[..., 1, :]
    stokes[0, 0] = 0.1, 0.11, 0.02
    stokes[1, 1] = np.nan
    light = Light(behind_polarizers(stokes).astype(np.float32), is_measured=False)
    with Pipeline(MONO, ("stokes", "dolp", "preview", "intensity"), backend="cpu") as pipeline:
        result = pipeline(RawFrame.of_light(light, MONO))
    gray = stokes.transpose(0, 1, 3, 2) @ [0.25, 0.5, 0.25] if is_color else stokes
    np.testing.assert_allclose(result["stokes"], gray, atol=2e-6)
    assert result["dolp"][0, 0] == 1.0
    assert np.isnan(result["dolp"][1, 1])
    assert result.invalid == (0, 1)
    assert result["intensity"].shape == (HEIGHT, WIDTH, 3)[: 2 + is_color]


def test_saturated_and_dark_pixels() -> None:
    """A pixel is saturated where any color behind any polarizer is."""
    angles = np.full((4, HEIGHT, WIDTH, 3), 0.25, np.float32)
    angles[2, 3, 4, 1] = 1.0
    angles[:, 5, 6] = 0.001
    with Pipeline(COLOR, ("dolp", "intensity"), backend="cpu") as pipeline:
        result = pipeline(RawFrame.of_light(Light(angles), COLOR))
    assert result.invalid == (1, 1)
    assert list(zip(*np.nonzero(np.isnan(result["dolp"])))) == [(3, 4), (5, 6)]


@pytest.mark.parametrize(
    ("options", "is_measured", "message"),
    [
        ({"products": "dolp_sigma"}, True, "dolp_sigma: the noise of raw pixels is unknown"),
        ({"products": "dolp", "debias": True}, True, "debias: the noise"),
        ({"products": "angle_0,intensity"}, False, "angle_0: Stokes vectors do not tell"),
        ({"products": "ssim"}, False, "ssim: Stokes vectors do not tell"),
        ({"products": "dolp", "resolution": "full"}, True, "resolution"),
        ({"products": "dolp", "roi_offset": (1, 0)}, True, "roi_offset"),
    ],
)
def test_what_such_light_does_not_tell_is_refused(options: Dict[str, Any], is_measured: bool, message: str) -> None:
    frame = RawFrame.of_light(Light(np.full((4, HEIGHT, WIDTH), 0.25, np.float32), is_measured), MONO)
    with Pipeline(MONO, backend="cpu", **options) as pipeline, pytest.raises(FrameError, match=message):
        pipeline(frame)


def test_geometry() -> None:
    """Rotated by 90 degrees, AoLP turns with the image."""
    stokes = stokes_in_color()
    frame = RawFrame.of_light(Light(behind_polarizers(stokes).astype(np.float32)), COLOR)
    with Pipeline(COLOR, ("intensity", "stokes"), rotate=90, backend="cpu") as pipeline:
        result = pipeline(frame)
    np.testing.assert_allclose(result["intensity"], np.rot90(stokes[..., 0] / 2), atol=2e-6)
    gray = np.rot90(stokes.transpose(0, 1, 3, 2) @ [0.25, 0.5, 0.25])
    np.testing.assert_allclose(result["stokes"], gray * [1, -1, -1], atol=2e-6)


@pytest.mark.parametrize("shape", [(3, 24, 40), (4, 24, 40, 2), (4, 24), (4, 4, 4)])
def test_other_shapes_are_refused(shape: Any) -> None:
    with pytest.raises(FrameError, match=r"light must be|at least 16x16"):
        RawFrame.of_light(Light(np.zeros(shape, np.float32)), MONO)
