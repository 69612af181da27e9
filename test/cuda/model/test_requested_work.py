"""In which precision a launch computes, and which kernels it may take for it."""

from __future__ import annotations

from typing import Any, Dict

import pytest
from calibrations import ideal_calibration

from polar_pipeline.cuda.model.requested_work import work_of
from polar_pipeline.cuda.model.specs import usable_kernels
from polar_pipeline.cuda.model.work import PolarizationWork
from polar_pipeline.options import make_options
from polar_pipeline.sensor.mosaic import get_sensor

SIZE = (128, 64)
MONO, COLOR = "IMX250MZR", "IMX250MYR"


def work(sensor: str, raw_format: str = "u8", **options: Any) -> PolarizationWork:
    products = options.pop("products", ("intensity", "dolp", "ssim"))
    return work_of(make_options(sensor=sensor, products=products, **options), raw_format, SIZE)


FULL = {"resolution": "full"}
#: Options, and whether half precision is enough for SSIM to compare two 8-bit frames.
PRECISE: Dict[str, Any] = {
    "co-sited": ({}, True),
    "own site": ({"co_sited": False}, True),
    "bilinear": ({**FULL, "demosaic": "bilinear"}, True),
    "ADR": (FULL, True),  # it is not, but float takes too long
    "ADR at half resolution": ({"demosaic": "adaptive"}, True),
    "gradient": ({**FULL, "demosaic": "gradient"}, False),
    "gradient at half resolution": ({"demosaic": "gradient"}, False),
    "colours by a map": ({"products": ("dolp_color", "ssim")}, False),
    "turned": ({"rotate": 90}, False),
}


@pytest.mark.parametrize("mode", ["temporal", "reference"])
@pytest.mark.parametrize("sensor", [MONO, COLOR])
@pytest.mark.parametrize("name", PRECISE)
def test_images_of_two_frames_are_precise(name: str, sensor: str, mode: str) -> None:
    options, is_enough = PRECISE[name]
    assert work(sensor, ssim_mode=mode, **options).half_precision == is_enough
    # whether or not it is
    assert work(sensor, ssim_mode=mode, precision="fp16", **options).half_precision
    assert not work(sensor, ssim_mode=mode, precision="fp32", **options).half_precision
    assert work(sensor, **options).half_precision, "of one frame"
    assert not work(sensor, "12p", ssim_mode=mode, **options).half_precision


@pytest.mark.parametrize("sensor", [MONO, COLOR])
def test_corrected_pixels_are_not_exact_in_half(sensor: str) -> None:
    calibration = ideal_calibration(get_sensor(sensor), SIZE[::-1])
    assert work(sensor, calibration=calibration, products=("intensity",)).half_precision
    assert not work(sensor, calibration=calibration, ssim_mode="temporal").half_precision
    # within a frame, where float takes as long
    assert work(sensor, calibration=calibration).half_precision == (sensor == COLOR)
    assert work(sensor, calibration=calibration, demosaic="bilinear", **FULL).half_precision == (sensor == COLOR)
    assert work(sensor, calibration=calibration, **FULL).half_precision, "ADR takes longer"
    assert work(sensor, calibration=calibration, precision="fp16").half_precision


def test_bytes_in_words_of_16_bit_are_not_added_up_in_integers_in_colour() -> None:
    options = {"ssim_mode": "temporal", "bit_depth": 8}
    assert work(MONO, "u16", **options).half_precision
    assert not work(COLOR, "u16", **options).half_precision
    assert work(COLOR, "u16", bit_depth=8).half_precision


def test_planes_of_a_geometry() -> None:
    assert set(work(MONO, rotate=90).dtypes.values()) == {"float16"}
    assert set(work(MONO, rotate=90, ssim_mode="temporal").dtypes.values()) == {"float32"}
    assert set(work(MONO, rotate=90, ssim_mode="temporal", precision="fp16").dtypes.values()) == {"float16"}
    assert set(work(MONO, rotate=90, precision="fp32").dtypes.values()) == {"float32"}


def test_in_half_only_kernels_that_add_in_integers_compare_two_frames() -> None:
    bytes_out = {"products": ("intensity", "ssim"), "dtype": "uint8"}
    assert usable_kernels(work(MONO, ssim_mode="temporal", **bytes_out)) == ["mono_half", "mono_half_bytes"]
    assert usable_kernels(work(MONO, **bytes_out)) == ["mono_half", "mono_half_bytes", "tile"]
    assert usable_kernels(work(COLOR, ssim_mode="temporal", **bytes_out)) == ["color_strip"]
    assert usable_kernels(work(COLOR, ssim_mode="temporal", co_sited=False, **bytes_out)) == ["color_strip"]
    assert usable_kernels(work(COLOR, co_sited=False, **bytes_out)) == ["color_half", "color_strip", "tile"]
    assert usable_kernels(work(COLOR, ssim_mode="temporal", **bytes_out, resolution="full")) == ["tile"]
