"""Products of light against Malus' law; angles of 16 bits."""

from __future__ import annotations

from typing import Tuple

import numpy as np
import pytest

from polar_pipeline import Pipeline
from polar_pipeline.backends.cuda.launch import Schedule
from polar_pipeline.backends.cuda.program import requested_launches
from polar_pipeline.options import make_options
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import SENSORS

PRODUCTS = ("unpolarized", "polarized", "polarizer")
#: Three numbers of 16 bits that are rounded by half a unit each, times their weights, and float32.
TOLERANCE = 4e-5
#: A sensor of each kind.
KINDS = ("IMX250MZR", "IMX250MYR")


@pytest.mark.parametrize("sensor", KINDS)
@pytest.mark.parametrize(
    "way",
    [("half", "bilinear"), ("half", "adaptive"), ("full", "bilinear"), ("full", "gradient"), ("full", "adaptive")],
)
def test_light_behind_a_polarizer(backend: str, sensor: str, way: Tuple[str, str]) -> None:
    """Flat fields: an ideal polarizer lets through half of what is unpolarized, and the rest by Malus' law."""
    rng = np.random.default_rng(3)
    mosaic = SENSORS[sensor]
    colors = (3,) if mosaic.is_color else ()
    for degrees in (0.0, 22.5, 45.0, 90.0, 101.0, 180.0):
        unpolarized, polarized = rng.uniform(0, 0.45, (2, *colors))
        angle = rng.uniform(0, np.pi, colors)
        malus = polarized * np.cos(np.deg2rad(degrees) - angle) ** 2
        stokes = [2 * unpolarized + polarized, polarized * np.cos(2 * angle), polarized * np.sin(2 * angle)]
        raw = expose(np.broadcast_to(np.stack(stokes, -1), (32, 32, *colors, 3)), mosaic, 16)
        options = {"polarizer_angle": degrees, "resolution": way[0], "demosaic": way[1], "precision": "fp32"}
        with Pipeline(sensor, PRODUCTS, backend, **options) as pipeline:  # type: ignore[arg-type]
            out = pipeline(raw)
        expected = {"unpolarized": unpolarized, "polarized": polarized, "polarizer": unpolarized + malus}
        for name, light in expected.items():
            np.testing.assert_allclose(out[name], np.broadcast_to(light, out[name].shape), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("sensor", KINDS)
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
    launches = []
    for degrees in (0.0, 30.0):
        options = make_options(products="polarizer", polarizer_angle=degrees)
        launches.append(requested_launches(options, "u8", (64, 48))[0])
        argument = np.zeros((), launches[-1].argument_type)
        launches[-1].set_up(argument, options, Schedule("tile", 128, 32, 16))
        np.testing.assert_allclose(argument["polarizer"], [np.cos(np.pi * degrees / 90), np.sin(np.pi * degrees / 90)])
    assert launches[0] == launches[1]


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
