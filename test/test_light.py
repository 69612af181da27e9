"""Products of light against scenes that are rendered behind a polarizer, angle by angle; angles of 16 bits."""

from __future__ import annotations

from typing import Tuple, Union

import numpy as np
import pytest

from polar_pipeline import Pipeline
from polar_pipeline.cuda.arguments import FRAME_ARGUMENT, fill_options, work_defines
from polar_pipeline.cuda.solver import requested_works
from polar_pipeline.options import make_options
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import SENSORS
from polar_pipeline.sensor.scene import synthetic

PRODUCTS = ("unpolarized", "polarized", "polarizer")
#: Side of a flat patch in raw pixels, and of its middle, in which no method and no color filter sees another patch.
PATCH, MIDDLE = 32, 8
#: Three numbers of 16 bits that are rounded by half a unit each, times their weights, and float32.
TOLERANCE = 4e-5


def patches(name: str, is_color: bool) -> Tuple[np.ndarray, np.ndarray]:
    """(4, 5[, 3], 3) Stokes vectors from a scene, at most 95 % of full scale, and the same as flat patches."""
    stokes = synthetic(name, (64, 80), 3, is_color=is_color)[8::16, 8::16]
    stokes = stokes * 0.95 / behind(stokes, np.rad2deg(np.arctan2(stokes[..., 2], stokes[..., 1]) / 2)).max()
    return stokes, stokes.repeat(PATCH, 0).repeat(PATCH, 1)


def behind(stokes: np.ndarray, degrees: Union[float, np.ndarray]) -> np.ndarray:
    """What an ideal polarizer at an angle lets through: half of what is unpolarized, and Malus' law."""
    polarized = np.sqrt(stokes[..., 1] ** 2 + stokes[..., 2] ** 2)
    angle = np.arctan2(stokes[..., 2], stokes[..., 1]) / 2
    malus: np.ndarray = (stokes[..., 0] - polarized) / 2 + polarized * np.cos(np.deg2rad(degrees) - angle) ** 2
    return malus


def middles(image: np.ndarray, resolution: str) -> np.ndarray:
    """The middle of every patch: (rows, columns, pixels[, 3])."""
    side, part = (PATCH // 2, MIDDLE // 2) if resolution == "half" else (PATCH, MIDDLE)
    first = (side - part) // 2
    rows, columns = image.shape[0] // side, image.shape[1] // side
    split = image.reshape(rows, side, columns, side, -1)[:, first : first + part, :, first : first + part]
    return split.transpose(0, 2, 1, 3, 4).reshape(rows, columns, part * part, -1)


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("scene", ["window", "spheres", "plastic"])
@pytest.mark.parametrize(
    "way",
    [("half", "bilinear"), ("half", "adaptive"), ("full", "bilinear"), ("full", "gradient"), ("full", "adaptive")],
)
def test_scenes_behind_a_polarizer(backend: str, sensor: str, scene: str, way: Tuple[str, str]) -> None:
    resolution, demosaic = way
    mosaic = SENSORS[sensor]
    stokes, field = patches(scene, mosaic.is_color)
    raw = expose(field, mosaic, 16)
    turned = np.stack([behind(stokes, degrees) for degrees in np.arange(0, 180, 0.1)])
    # least and most of the light over all angles; between two of these angles it changes by at most 8e-7 there
    truth = {"unpolarized": turned.min(0), "polarized": turned.max(0) - turned.min(0)}
    for degrees in (0.0, 22.5, 45.0, 90.0, 101.0, 180.0):
        made = {"polarizer_angle": degrees, "resolution": resolution, "demosaic": demosaic, "precision": "fp32"}
        with Pipeline(sensor, PRODUCTS, backend, **made) as pipeline:  # type: ignore[arg-type]
            out = pipeline(raw)
        for name in PRODUCTS:
            want = behind(stokes, degrees) if name == "polarizer" else truth[name]
            want = want.reshape(*want.shape[:2], 1, -1)
            assert np.abs(middles(out[name], resolution) - want).max() < TOLERANCE, (name, degrees)


@pytest.mark.parametrize("sensor", SENSORS)
def test_what_was_measured_is_shown_everywhere(backend: str, sensor: str) -> None:
    """Saturated and dark pixels keep their light, as in the intensity, and dark ones are not counted."""
    raw = np.full((32, 32), 255, np.uint8)
    raw[:, 16:] = 0
    for dtype, full in (("float32", 1.0), ("uint8", 255)):
        with Pipeline(sensor, PRODUCTS, backend, dtype=dtype) as pipeline:
            out = pipeline(raw)
        assert out.invalid == (16 * 8, 0)
        for name, light in (("unpolarized", full), ("polarized", 0), ("polarizer", full)):
            np.testing.assert_allclose(out[name][:, :5], light, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(out[name][:, -5:], 0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_no_light_is_below_0_nor_wraps(backend: str, dtype: str) -> None:
    """Angles that contradict each other, as noise makes them: more polarized light than light."""
    mosaic = SENSORS["IMX250MZR"]
    raw = np.zeros((32, 32), np.uint8)
    for angle in (0, 45):
        row, column = mosaic.position(angle)
        raw[row::2, column::2] = 250
    with Pipeline(mosaic, PRODUCTS, backend, dtype=dtype, co_sited=False, polarizer_angle=112.5) as pipeline:
        out = pipeline(raw)
    top = 250 if dtype == "uint8" else 250 / 255
    assert np.all(out["unpolarized"] == 0)  # half of 250 - 354
    assert np.all(out["polarizer"] == 0)  # at right angles to the light's: the same
    expected = 255 if dtype == "uint8" else np.sqrt(2) * top
    np.testing.assert_allclose(out["polarized"], expected, rtol=2e-3)  # half precision on a GPU


def test_an_angle_can_change_between_frames() -> None:
    """The angle is an argument of the CUDA kernels, not compiled in: it changes without another kernel."""
    found = []
    for degrees in (0.0, 30.0):
        options = make_options(products="polarizer", polarizer_angle=degrees)
        argument = np.zeros((), FRAME_ARGUMENT)
        fill_options(argument, options, 255)
        found.append(work_defines(requested_works(options, "u8", (64, 48))[0]))
        np.testing.assert_allclose(argument["polarizer"], [np.cos(np.pi * degrees / 90), np.sin(np.pi * degrees / 90)])
    assert found[0] == found[1]


def test_aolp_wraps_at_pi(backend: str) -> None:
    """Angles within half a level of pi are 0, others the highest level."""
    # with S1 = 60000, an S2 of 2.88 is half a level
    for s2, level in ((0, 0), (2, 0), (-2, 0), (4, 1), (-4, 65535), (-9, 65534)):
        raw = np.zeros((32, 32), np.uint16)
        mosaic = SENSORS["IMX250MZR"]
        for angle, value in ((0, 60000), (45, 500 + max(s2, 0)), (90, 0), (135, 500 - min(s2, 0))):
            row, column = mosaic.position(angle)
            raw[row::2, column::2] = value
        with Pipeline(mosaic, "aolp", backend, dtype="uint16", co_sited=False) as pipeline:
            out = pipeline(raw)["aolp"]
        exact = round(np.arctan2(s2, 60000) / 2 / np.pi * 65536) % 65536
        assert exact == level
        assert np.all(out == level), s2
