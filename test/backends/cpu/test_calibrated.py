"""The correction by a calibration in the CPU backend, against the float64 reference."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Tuple

import numpy as np
import pytest
from calibrations import REGION, mild_calibration
from comparison import compare
from scenes import SCENES, synthetic
from support import representative

from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.backends.cpu.correction_words import correction_words
from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.options.products import LIGHT_PRODUCTS
from polar_pipeline.sensor.forward import expose, nominal_angles
from polar_pipeline.sensor.mosaic import SENSORS


def scene(sensor: str, shape: Tuple[int, int], bits: int) -> RawFrame:
    """A synthetic scene with noise, some of it saturated and some dark."""
    rng = np.random.default_rng(3)
    stokes = synthetic(SCENES[0], shape, is_color=SENSORS[sensor].is_color)
    raw = expose(1.4 * stokes, SENSORS[sensor], bits, 10_000, 2.0, rng)
    raw[: shape[0] // 4, : shape[1] // 4] //= 64
    return RawFrame(raw, (1 << bits) - 1)


#: What the correction in 16-bit integers computes, with the types that it serves.
_BYTES = (*LIGHT_PRODUCTS, "dolp", "aolp", "preview", "aolp_color", "dolp_color", "ssim_map", "ssim")


def words_of(calibration: Calibration, shape: Tuple[int, int], **options: Any) -> Any:
    """The words of frames of a size; None where they are not used."""
    with Pipeline(products="dolp", calibration=calibration, backend="cpu", **options) as pipeline:
        return correction_words(pipeline.options.correction(shape))


_BYTE_CASES = list(
    itertools.product(
        (True, False),
        ((0, 0), (1, 0), (2, 3), (5, 5)),
        ((False, False), (True, False), (False, True), (True, True)),
        ((64, 48), (67, 53), (20, 515)),
    )
)


@pytest.mark.parametrize(
    ("co_sited", "offset", "flip", "shape"),
    representative(_BYTE_CASES, lambda case: ((case[0], case[3]), (case[1], case[2]))),
)
def test_correction_in_16_bit_integers(
    co_sited: bool, offset: Tuple[int, int], flip: Tuple[bool, bool], shape: Tuple[int, int]
) -> None:
    """Two bytes a number, in the bounds of the other products; 515 columns are two blocks of superpixels and a part."""
    calibration = mild_calibration((96, 560))
    options: Dict[str, Any] = {"co_sited": co_sited, "roi_offset": offset, "flip": flip}
    assert words_of(calibration, shape, **options) is not None
    for dtype in ("uint8", dict.fromkeys(LIGHT_PRODUCTS, "uint8")):
        # A rounding of 1/128 level in S1 is more than a level of DoLP where S0 is below 2 levels.
        compare(scene("IMX250MZR", shape, 8), _BYTES, calibration=calibration, dtype=dtype, **options)


def test_what_16_bit_integers_do_not_hold_is_corrected_in_floats() -> None:
    """Deviations of one pixel, too large for them; the result is within the same bounds."""
    for k, value in enumerate((0.05, 1.5, 0.4, -0.4)):
        numbers = [np.full(REGION, number) for number in (0.01, 1.0, 0.0, 0.0)]
        numbers[k][10, 10] = value
        calibration = Calibration.from_parameters(PixelParameters(*numbers), SENSORS["IMX250MZR"])
        assert words_of(calibration, (64, 48)) is None, k
        compare(scene("IMX250MZR", (64, 48), 8), _BYTES, calibration=calibration, dtype="uint8")


@pytest.mark.parametrize(("offset", "flip"), [((0, 0), (False, False)), ((1, 2), (False, True))])
def test_a_rotated_sensor_is_corrected_in_16_bit_integers(offset: Tuple[int, int], flip: Tuple[bool, bool]) -> None:
    """By 8 degrees: e1 and e2 of the four angles, up to sin(16 degrees)/2 to both sides, exceed the widest range."""
    angle = 2 * nominal_angles(SENSORS["IMX250MZR"], REGION)
    mild, turn = mild_calibration().parameters(), np.deg2rad(16)
    terms = [(f(angle) - f(angle + turn)) / 2 for f in (np.cos, np.sin)]
    rotated = PixelParameters(mild.black, mild.gain, mild.e1 + terms[0], mild.e2 + terms[1])
    calibration = Calibration.from_parameters(rotated, SENSORS["IMX250MZR"])
    options: Dict[str, Any] = {"roi_offset": offset, "flip": flip}
    assert words_of(calibration, (64, 48), **options) is not None
    compare(scene("IMX250MZR", (64, 48), 8), _BYTES, calibration=calibration, dtype="uint8", **options)


def test_precision_fp32_asks_for_floats() -> None:
    """Then the bounds of floats hold for 8-bit frames too: DoLP as where Stokes vectors are computed with it."""

    def degree(products: str, **more: Any) -> np.ndarray:
        options: Dict[str, Any] = {"calibration": mild_calibration(), "min_intensity": 0.05, **more}
        return Pipeline(products=products, backend="cpu", **options)(scene("IMX250MZR", (64, 48), 8))["dolp"]

    exact = degree("dolp,stokes")
    np.testing.assert_allclose(degree("dolp", precision="fp32"), exact, rtol=0, atol=1e-6)
    assert np.nanmax(np.abs(degree("dolp") - exact)) > 1e-6, "else this test compares nothing"


def test_ranges_are_those_of_a_block() -> None:
    """An outlier in one block of superpixels does not make the steps of another one coarser."""
    clean = mild_calibration((32, 560), defects=0)
    parameters = clean.parameters()
    parameters.gain[5, 5] = 1.11  # row 2 of superpixels, block 0
    outlier = Calibration.from_parameters(parameters, clean.sensor)
    words = [words_of(found, (32, 560)) for found in (clean, outlier)]
    before, after = (found["gain_step"].astype(float) * found["share"] for found in words)
    assert after[2, 0] > 1.25 * before[2, 0]
    # All codes were rounded in a range that is wider by the outlier, which moves the ends of others by some percent.
    before[2, 0] = after[2, 0]
    np.testing.assert_allclose(after, before, rtol=0.05)
