"""Which launches a frame takes: when SSIM may start from the mosaic, and when it does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Optional, Tuple

import pytest
from calibrations import ideal_calibration
from support import first_of

from polar_pipeline.cuda.compile import CompileError, compile_kernel
from polar_pipeline.cuda.model.device import DEVICES, get_device
from polar_pipeline.cuda.model.partition import Partition, not_from_mosaic, partitions
from polar_pipeline.cuda.model.requested_work import make_work
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.work import PAIRS
from polar_pipeline.cuda.resource_usage import kernel_resources
from polar_pipeline.options import make_options
from polar_pipeline.plan import MOSAIC, STAGES, make_plan
from polar_pipeline.sensor.mosaic import get_sensor

SHAPE = (2048, 2448)
IDEAL = ideal_calibration(get_sensor("IMX250MZR"), (16, 16))
VIEWED = "intensity, dolp, aolp, ssim_map, ssim"


def ways(
    device: str = "xavier",
    products: str = VIEWED,
    raw_format: str = "u8",
    full_scale: int = 255,
    shape: Tuple[int, int] = SHAPE,
    **values: Any,
) -> Tuple[Optional[str], List[Partition]]:
    """Why the mosaic cannot be read again, and every partition."""
    options = make_options(products=products, **{"dtype": "uint8", **values})
    plan = make_plan(options.products)
    work = make_work(plan, options, raw_format, full_scale, shape)
    return not_from_mosaic(work, options), partitions(work, plan, options, get_device(device))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sensor": "IMX250MYR"}, "mono sensor"),
        ({"raw_format": "u16", "full_scale": 4095}, "8-bit pixels of full scale 255"),
        ({"precision": "fp32"}, "half precision"),
        ({"resolution": "full", "precision": "fp16"}, "half resolution"),
        ({"co_sited": False}, "co-sited"),
        ({"demosaic": "gradient", "precision": "fp16"}, "bilinear"),
        ({"shape": (64, 72)}, "multiple of 16"),
        ({"shape": (65, 64)}, "even height"),
        ({"shape": (30, 64)}, "16 rows"),
        ({"ssim_mode": "temporal"}, "ssim_mode consistency"),
        ({"ssim_mode": "reference"}, "ssim_mode consistency"),
        ({"ssim_stride": 2}, "ssim_stride 1"),
        ({"calibration": IDEAL}, "pixels without a calibration"),
    ],
)
def test_what_keeps_ssim_from_the_mosaic_is_said(changes: Any, reason: str) -> None:
    problem, found = ways(**changes)
    assert problem is not None
    assert reason in problem
    assert [way.ssim_from_mosaic for way in found] == [False]


@pytest.mark.parametrize("values", [{}, {"sensor": "45 90 / 0 135"}, {"shape": (34, 64)}, {"ssim_window": 15}])
def test_otherwise_there_are_two_ways(values: Any) -> None:
    problem, found = ways(**values)
    assert problem is None
    assert {way.ssim_from_mosaic for way in found} == {True, False}
    for way in found:
        assert way.ssim is not None
        stores = set(PAIRS) & set(way.polarization.model.work.dtypes)
        assert way.ssim_from_mosaic == (way.ssim.model.work.source == MOSAIC) == (not stores)
        assert way.ssim_from_mosaic == (way.ssim.stage.reads == (MOSAIC,))
        assert [launch.stage.name for launch in way.launches] == list(STAGES)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("maps_host", [False, True])
def test_the_shorter_prediction_is_taken_where_the_mosaic_is_cached(
    device: str, maps_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DEVICES, device, replace(get_device(device), maps_host=maps_host))
    _, found = ways(device)
    shorter = min(found, key=lambda way: way.predicted_us)
    # without tensor cores, what both ways compute along x and y is the same, and fewer bytes win
    assert shorter.ssim_from_mosaic == (get_device(device).capability < 80)
    if maps_host:
        assert [way.ssim_from_mosaic for way in found] == [False, True]
    else:
        assert found[0] == shorter


def test_the_second_launch_is_ranked_as_measured() -> None:
    """(threads, rows) by the time of one frame on an H200, 11.3 to 12.7 us: few small blocks crowd."""
    measured = [(352, 32), (128, 32), (64, 32)]
    _, found = ways("h200")
    assert found[0].ssim is not None
    model, chosen = found[0].ssim.model, found[0].ssim.schedule
    assert (chosen.window, chosen.threads, chosen.rows) == ("tensor", *measured[0])
    plans = [Schedule("ssim", "tensor", threads, 32, rows=rows) for threads, rows in measured]
    predicted = [model.predict(plan).us for plan in plans]
    assert predicted == sorted(predicted)


def test_without_similarity_there_is_one_launch() -> None:
    _, (only,) = ways(products="intensity, dolp")
    assert only.ssim is None
    assert not only.ssim_from_mosaic
    assert only.predicted_us > 0


@pytest.mark.parametrize("window", first_of([3, 11, 15, 5, 7, 9, 13], 3))
def test_the_chosen_kernel_does_not_spill_on_xavier(window: int) -> None:
    _, found = ways(ssim_window=window)
    (fused,) = (way for way in found if way.ssim_from_mosaic)
    assert fused.ssim is not None
    model, schedule = fused.ssim.model, fused.ssim.schedule
    try:
        taken = kernel_resources(compile_kernel("ssim", model.defines(schedule), "sm_72"))
    except CompileError as err:
        pytest.skip(str(err))
    assert taken.spill_bytes == 0
    assert taken.registers <= model.registers(schedule)
