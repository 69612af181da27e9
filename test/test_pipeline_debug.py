"""`Pipeline.debug`: the polarization switch as an image, and what refuses it."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np
import pytest

from polar_pipeline import FrameError, Pipeline, reference
from polar_pipeline.sensor.edges import edge_pattern
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import SENSORS

SHAPE = (96, 112)
#: The switch in float32: twice a ratio of sums of 25 squares, each right to a few parts in 10^7, where one sum is a
#: difference.
ROUNDING = 2e-5


def pattern(name: str, sensor: str = "IMX250MZR") -> np.ndarray:
    """What a sensor records of a pattern; grey for a colour sensor."""
    stokes = edge_pattern(name, SHAPE, 0.6)
    if SENSORS[sensor].is_color:
        stokes = np.repeat(stokes[:, :, np.newaxis], 3, 2)
    return expose(stokes, SENSORS[sensor])


def switch(raw: Any, **options: Any) -> np.ndarray:
    with Pipeline(**{"resolution": "full", "backend": "cpu", **options}) as pipeline:
        found = pipeline.debug(raw)
    assert list(found) == ["polarization_switch"]
    return found["polarization_switch"]


def on_edges(name: str, image: np.ndarray) -> np.ndarray:
    """The pixels of an image at the edges of a pattern."""
    stokes = edge_pattern(name, SHAPE, 0.6).astype(float)
    slope = sum(np.abs(np.gradient(stokes, axis=axis)).sum(-1) for axis in (0, 1))
    return image[slope > 0.3]


@pytest.mark.parametrize(
    "options", [{}, {"demosaic": "adaptive"}, {"demosaic": "adaptive", "resolution": "half"}], ids=str
)
def test_switch_of_a_mono_frame(options: Dict[str, Any]) -> None:
    """At the mosaic's resolution, also where the products have half of it."""
    raw = pattern("discs")
    found = switch(raw, **options)
    assert (found.dtype, found.shape) == (np.float32, SHAPE)
    assert (found.min(), found.max()) == (0, 1)
    np.testing.assert_allclose(found, reference.polarization_switch(raw / 255), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(
    "layout",
    [{}, {"roi_offset": (1, 2), "flip": (False, True)}, {"resolution": "half", "demosaic": "adaptive"}],
    ids=str,
)
def test_switch_of_a_colour_frame(layout: Dict[str, Any]) -> None:
    """That of luma, of the mosaic as the frame shows it."""
    raw = pattern("discs", "IMX250MYR")
    sensor = SENSORS["IMX250MYR"].as_read_out(
        layout.get("roi_offset", (0, 0)), layout.get("flip", (False, False)), SHAPE
    )
    luma = reference.debayer_weighted(raw / 255, sensor) @ [0.25, 0.5, 0.25]
    expected = reference.polarization_switch(luma)
    np.testing.assert_allclose(switch(raw, sensor="IMX250MYR", **layout), expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
def test_switch_tells_edges_apart(sensor: str) -> None:
    for name in ("lcd text", "tape", "polarization star"):
        assert np.mean(on_edges(name, switch(pattern(name, sensor), sensor=sensor))) > 0.9, name
    for name in ("intensity star", "intensity stripes, 8 px"):
        assert np.mean(on_edges(name, switch(pattern(name, sensor), sensor=sensor))) < 0.05, name


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resolution": "half"}, "uses 'bilinear', here demosaic='auto': set demosaic='adaptive'"),
        ({"demosaic": "bilinear"}, "uses 'bilinear': set demosaic='adaptive'"),
        ({"demosaic": "gradient"}, "uses 'gradient': set demosaic='adaptive'"),
        (
            {"demosaic": "adaptive", "resolution": "half", "co_sited": False},
            "co_sited=False at half resolution .* set co_sited=True and demosaic='adaptive'",
        ),
    ],
)
def test_options_without_a_switch(options: Dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        switch(pattern("tape"), **options)


def test_debug_after_the_end() -> None:
    raw = pattern("tape")
    with Pipeline(resolution="full", backend="cpu") as pipeline:
        before = pipeline(raw)["dolp"]
        pipeline.debug(raw)
        np.testing.assert_array_equal(pipeline(raw)["dolp"], before)
        with pytest.raises(FrameError, match=r"uint8 or uint16.*float32"):
            pipeline.debug(raw.astype(np.float32))
    with pytest.raises(RuntimeError, match="this pipeline is closed"):
        pipeline.debug(raw)
