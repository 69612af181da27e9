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
#: Options, and whether a kernel adds up in integers what SSIM compares; else half precision is not enough.
PRECISE: Dict[str, Any] = {
    "co-sited": ({}, True),
    "own site": ({"co_sited": False}, True),
    "own site, with images of angles": ({"co_sited": False, "products": ("angle_0", "ssim"), "dtype": "uint8"}, True),
    "bilinear": ({**FULL, "demosaic": "bilinear"}, False),
    "ADR": (FULL, False),
    "ADR at half resolution": ({"demosaic": "adaptive"}, False),
    "gradient": ({**FULL, "demosaic": "gradient"}, False),
    "gradient at half resolution": ({"demosaic": "gradient"}, False),
    "colours by a map": ({"products": ("dolp_color", "ssim")}, False),
    "turned": ({"rotate": 90}, False),
}


@pytest.mark.parametrize("mode", ["consistency", "temporal", "reference"])
@pytest.mark.parametrize("sensor", [MONO, COLOR])
@pytest.mark.parametrize("name", PRECISE)
def test_half_precision_with_ssim_takes_sums_in_integers(name: str, sensor: str, mode: str) -> None:
    options, is_enough = PRECISE[name]
    assert work(sensor, ssim_mode=mode, **options).half_precision == is_enough
    # whether or not it is
    assert work(sensor, ssim_mode=mode, precision="fp16", **options).half_precision
    assert not work(sensor, ssim_mode=mode, precision="fp32", **options).half_precision
    without = {**options, "products": ("intensity", "dolp", "dolp_color")}
    assert work(sensor, **without).half_precision, "without SSIM"
    assert not work(sensor, "12p", ssim_mode=mode, **options).half_precision


@pytest.mark.parametrize("options", [{}, FULL, {**FULL, "demosaic": "bilinear"}])
@pytest.mark.parametrize("sensor", [MONO, COLOR])
def test_corrected_pixels_are_not_exact_in_half(sensor: str, options: Dict[str, Any]) -> None:
    calibration = ideal_calibration(get_sensor(sensor), SIZE[::-1])
    assert work(sensor, calibration=calibration, products=("intensity",), **options).half_precision
    for mode in ("consistency", "temporal"):
        assert not work(sensor, calibration=calibration, ssim_mode=mode, **options).half_precision
    assert work(sensor, calibration=calibration, precision="fp16", **options).half_precision


def test_bytes_in_words_of_16_bit_are_not_added_up_in_integers_in_colour() -> None:
    assert work(MONO, "u16", bit_depth=8).half_precision
    assert not work(COLOR, "u16", bit_depth=8).half_precision


def test_planes_of_a_geometry() -> None:
    light = {"rotate": 90, "products": ("intensity", "dolp")}
    assert set(work(MONO, **light).dtypes.values()) == {"float16"}
    assert set(work(MONO, rotate=90).dtypes.values()) == {"float32"}
    assert set(work(MONO, rotate=90, ssim_mode="temporal").dtypes.values()) == {"float32"}
    assert set(work(MONO, rotate=90, ssim_mode="temporal", precision="fp16").dtypes.values()) == {"float16"}
    assert set(work(MONO, **light, precision="fp32").dtypes.values()) == {"float32"}


@pytest.mark.parametrize("mode", ["consistency", "temporal"])
def test_in_half_only_kernels_that_add_in_integers_compare_frames(mode: str) -> None:
    bytes_out = {"products": ("intensity", "ssim"), "dtype": "uint8", "ssim_mode": mode}
    assert usable_kernels(work(MONO, **bytes_out)) == ["mono_half"]
    assert usable_kernels(work(COLOR, **bytes_out)) == ["color_strip"]
    assert usable_kernels(work(COLOR, co_sited=False, **bytes_out)) == ["color_strip"]
    of_angles = {**bytes_out, "products": ("angle_0", "ssim")}
    assert usable_kernels(work(COLOR, co_sited=False, **of_angles)) == ["color_strip"]
    assert usable_kernels(work(COLOR, **bytes_out, precision="fp16", resolution="full")) == ["tile"]
