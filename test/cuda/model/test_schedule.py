"""Devices and schedules: limits, occupancy, what the solver may choose, and what it predicts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import pytest
from calibrations import ideal_calibration
from hypothesis import given, settings
from hypothesis import strategies as st
from support import IS_EXHAUSTIVE, representative

from polar_pipeline.cuda.compile import CompileError, compile_kernel
from polar_pipeline.cuda.model import cost as launch_cost
from polar_pipeline.cuda.model import polarization_cost, ssim_cost, ssim_search, tile_cost
from polar_pipeline.cuda.model.cost import Cost, LaunchFootprint, predict_launch, roofline
from polar_pipeline.cuda.model.device import (
    DEVICES,
    Device,
    Slots,
    board_model,
    clocks,
    from_properties,
    get_device,
    occupancy,
    resident_blocks,
)
from polar_pipeline.cuda.model.executed_counts import CONFLICTS, COUNTS
from polar_pipeline.cuda.model.geometry import grid, halos, output_bytes, schedule_defines, shared_bytes
from polar_pipeline.cuda.model.instructions import SHARES
from polar_pipeline.cuda.model.launch_model import launch_model
from polar_pipeline.cuda.model.polarization_cost import COUNTED, cost, predict
from polar_pipeline.cuda.model.registers import registers, spills_to_keep_warps
from polar_pipeline.cuda.model.requested_work import make_work, work_of
from polar_pipeline.cuda.model.schedule import Schedule, ScheduleError
from polar_pipeline.cuda.model.search import MIN_OCCUPANCY, candidates, check, expected_occupancy
from polar_pipeline.cuda.model.specs import COMPONENTS, KERNELS, supports
from polar_pipeline.cuda.model.ssim_search import piece_count
from polar_pipeline.cuda.model.ssim_work import SsimWork, ssim_defines
from polar_pipeline.cuda.model.tile_cost import IDLE_SHARE, tile_stage
from polar_pipeline.cuda.model.tuned import _AS_FAST, choose
from polar_pipeline.cuda.model.work import (
    OUTPUTS,
    PAIRS,
    PLANES,
    RAW_FORMATS,
    PolarizationWork,
    polarization_defines,
    polarization_key,
)
from polar_pipeline.cuda.resource_usage import KernelResources, kernel_resources
from polar_pipeline.cuda.tools import usage as kernels
from polar_pipeline.options import CHOICES, make_options
from polar_pipeline.plan import make_plan
from polar_pipeline.products import PRODUCTS
from polar_pipeline.sensor.mosaic import SENSORS

XAVIER, ORIN, H200 = (get_device(name) for name in ("xavier", "orin", "h200"))
IDEAL = ideal_calibration(SENSORS["IMX250MZR"], (32, 32))
SHAPE = (2048, 2448)
FOUR = "angle_0,angle_45,angle_90,angle_135"
LIVE = "intensity,dolp,aolp,preview"


def make(
    products: str = "intensity,dolp,aolp",
    raw_format: str = "u8",
    full_scale: int = 255,
    shape: Tuple[int, int] = SHAPE,
    dtype: str = "uint8",
    **options: Any,
) -> PolarizationWork:
    made = make_options(products=products, dtype=dtype, **options)
    return make_work(make_plan(made.products), made, raw_format, full_scale, shape)


def compiled(kernel: str, flags: Dict[str, Any], arch: str) -> KernelResources:
    """What a compiled kernel takes of an architecture; skips the test where the compiler is missing."""
    try:
        return kernel_resources(compile_kernel(kernel, flags, arch))
    except CompileError as err:
        pytest.skip(str(err))


@st.composite
def works(draw: Any) -> PolarizationWork:
    raw_format = draw(st.sampled_from(list(RAW_FORMATS)))
    work = make(
        draw(st.lists(st.sampled_from(list(PRODUCTS)), min_size=1, unique=True).map(",".join)),
        raw_format,
        draw(st.sampled_from({"u8": (255, 100), "u16": (4095, 1023, 0xC000, 0xFFFF)}.get(raw_format, (4095,)))),
        (draw(st.integers(16, 3000)), draw(st.integers(16, 3000))),
        draw(st.sampled_from(CHOICES["dtype"])),
        sensor=draw(st.sampled_from(list(SENSORS))),
        resolution=draw(st.sampled_from(CHOICES["resolution"])),
        demosaic=draw(st.sampled_from(CHOICES["demosaic"])),
        precision=draw(st.sampled_from(CHOICES["precision"])),
        co_sited=draw(st.booleans()),
        roi_offset=(draw(st.integers(0, 3)), draw(st.integers(0, 3))),
    )
    return replace(work, calibrated=draw(st.booleans()))


# -------------------------------------------------------------------------------------------------------------- device


def test_devices_have_the_limits_of_their_data_sheets() -> None:
    assert XAVIER.shared_per_block == 49152
    assert ORIN.shared_per_block == 166912
    assert H200.capability == 90
    for device, lanes, teraflops in ((XAVIER, 64, 1.4), (ORIN, 128, 5.3), (H200, 128, 67)):
        assert 2e-6 * device.multiprocessors * lanes * device.clock_mhz == pytest.approx(teraflops, rel=0.01)


def test_unknown_device_names_those_known() -> None:
    with pytest.raises(ValueError, match=r"xavier, .*h200, got 'tx2'"):
        get_device("tx2")


# Hand-made: registers of a warp are rounded up to 256; a scheduler has 16384; blocks are whole.
@pytest.mark.parametrize(
    ("device", "threads", "registers", "shared", "blocks", "share"),
    [
        (XAVIER, 128, 32, 0, 16, 1.0),  # 1024 a warp: 16 per scheduler, all 64
        (XAVIER, 128, 72, 0, 7, 28 / 64),  # 2304 a warp: 7 per scheduler, 28 warps
        (XAVIER, 128, 96, 3136, 5, 20 / 64),  # 3072 a warp: 5 per scheduler
        (XAVIER, 128, 97, 0, 4, 16 / 64),  # 3328 after rounding: 4 per scheduler
        (XAVIER, 320, 64, 48128, 2, 20 / 64),  # 96 KiB / 47 KiB; 32 warps of registers hold 3 blocks of 10
        (XAVIER, 320, 64, 49152, 2, 20 / 64),
        (XAVIER, 320, 64, 49153, 1, 10 / 64),  # 49408 after rounding
        (XAVIER, 32, 16, 0, 32, 32 / 64),  # at most 32 blocks
        (ORIN, 256, 40, 0, 6, 1.0),  # 48 warps are all: 1536 threads
        (ORIN, 64, 32, 0, 16, 32 / 48),  # at most 16 blocks
        (ORIN, 128, 32, 54 * 1024, 2, 8 / 48),  # 55 KiB with the driver's own: 164 / 55
        (ORIN, 256, 32, 163 * 1024, 1, 8 / 48),
        (H200, 1024, 65, 0, 0, 0.0),  # 2304 a warp: 28 warps, and the block has 32
    ],
)
def test_occupancy(device: Device, threads: int, registers: int, shared: int, blocks: int, share: float) -> None:
    assert resident_blocks(device, threads, registers, shared) == blocks
    assert occupancy(device, threads, registers, shared) == pytest.approx(share)


PROPERTIES: Dict[str, Any] = {
    "name": b"NVIDIA A100-SXM4-80GB",
    "major": 8,
    "minor": 0,
    "multiProcessorCount": 108,
    "sharedMemPerBlockOptin": 166912,
    "sharedMemPerMultiprocessor": 167936,
    "regsPerMultiprocessor": 65536,
    "maxThreadsPerMultiProcessor": 2048,
    "maxBlocksPerMultiProcessor": 32,
    "clockRate": 1410000,
    "memoryClockRate": 1593000,
    "memoryBusWidth": 5120,
    "integrated": 0,
}


def test_a_device_that_has_no_row_is_made_from_its_properties() -> None:
    found = from_properties(PROPERTIES)
    assert found == Device(
        *("nvidia-a100-sxm4-80gb-108", "sm_80", 108, 166912, 167936, 65536, 2048, 32, 1410),
        pytest.approx(2039, abs=1),  # GB/s in its data sheet
        False,
        False,
    )


def test_a_device_is_found_by_its_properties() -> None:
    h200 = {**PROPERTIES, "name": b"NVIDIA H200", "major": 9, "minor": 0, "multiProcessorCount": 132}
    assert from_properties(h200) == H200
    assert from_properties({**h200, "name": b"NVIDIA H100 80GB HBM3"}).name == "nvidia-h100-80gb-hbm3-132"


#: What drivers say of a Jetson: the name of its family, and a memory clock that is not its memory's.
JETSON = {**PROPERTIES, "name": b"Orin", "minor": 7, "integrated": 1, "memoryClockRate": 1300000, "memoryBusWidth": 128}
GB = 1 << 30


@pytest.mark.parametrize(
    ("minor", "multiprocessors", "name", "bandwidth"),
    [
        (2, 8, "xavier", 137),
        (2, 6, "xavier-nx", 60),
        (7, 16, "orin", 205),
        (7, 14, "orin-32gb", 205),
        (7, 4, "orin-nano-4gb", 34),
    ],
)
def test_a_jetson_is_found_by_its_multiprocessors(minor: int, multiprocessors: int, name: str, bandwidth: int) -> None:
    major = 7 if minor == 2 else 8
    found = from_properties({**JETSON, "major": major, "minor": minor, "multiProcessorCount": multiprocessors})
    assert (found.name, found.bandwidth_gbs) == (name, pytest.approx(bandwidth, abs=0.5))
    assert found == get_device(name)


# Orin NX 16GB, Orin NX 8GB and Orin Nano 8GB have 8 multiprocessors each; their clocks are those of the power modes.
@pytest.mark.parametrize(
    ("model", "memory", "mhz", "name"),
    [
        ("NVIDIA Jetson Orin NX Engineering Reference Developer Kit", 7.4, 765, "orin-nx"),
        ("NVIDIA Jetson Orin NX Engineering Reference Developer Kit Super", 7.4, 1173, "orin-nx"),
        ("NVIDIA Orin NX Developer Kit", 15.3, 918, "orin-nx"),
        ("NVIDIA Jetson Orin Nano Developer Kit Super", 7.4, 1020, "orin-nano"),
        ("NVIDIA Orin Nano Developer Kit", 7.4, 624.75, "orin-nano"),
        ("NVIDIA Jetson Orin Nano Developer Kit", 7.4, None, "orin-nano"),  # CUDA 13 tells no clock
        ("", 15.3, 918, "orin-nx"),  # as in a container
        ("", 15.3, 1173, "orin-nx"),
        ("", 7.4, 765, "orin-nx"),
        ("", 7.4, 1173, "orin-nx"),
        ("", 7.4, 624.75, "orin-nano"),
        ("", 7.4, 1020, "orin-nano"),
        ("", 15.3, None, "orin-nx"),
        ("", 7.4, None, "orin-nano"),
        ("A carrier board of somebody else", 7.4, 765, "orin-nx"),
    ],
)
def test_orin_nx_and_nano_are_told_apart(model: str, memory: float, mhz: Any, name: str) -> None:
    told = {**JETSON, "multiProcessorCount": 8, "totalGlobalMem": int(memory * GB), "clockRate": int(1000 * (mhz or 0))}
    if mhz is None:
        told = {key: value for key, value in told.items() if "clock" not in key.lower()}
    assert from_properties(told, model) == get_device(name)


def test_bandwidth_of_an_unknown_integrated_gpu_is_not_taken_from_its_memory_clock() -> None:
    thor = {**JETSON, "name": b"NVIDIA Thor", "major": 11, "minor": 0, "multiProcessorCount": 20}
    found = from_properties(thor)
    assert (found.name, found.arch, found.integrated) == ("nvidia-thor-20", "sm_110", True)
    assert found.bandwidth_gbs == pytest.approx(273, rel=0.1)  # in its data sheet
    assert from_properties({**thor, "memoryClockRate": 1}).bandwidth_gbs == found.bandwidth_gbs


def test_the_model_of_a_board_is_read_without_the_zero_that_ends_it(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_bytes(b"NVIDIA Jetson AGX Orin Developer Kit\0")
    assert board_model(file) == "NVIDIA Jetson AGX Orin Developer Kit"
    assert board_model(tmp_path / "none") == ""


# ------------------------------------------------------------------------------------------------------------- kernels


@pytest.mark.parametrize(
    ("kernel", "options", "reason"),
    [
        ("mono_half", {}, None),
        ("mono_half", {"shape": (2047, 2441), "products": LIVE, "dtype": "float32", "precision": "fp32"}, None),
        ("mono_half", {"raw_format": "u16", "full_scale": 4095}, None),
        ("mono_half", {"raw_format": "12p", "full_scale": 4095, "co_sited": False, "demosaic": "adaptive"}, None),
        ("mono_half", {"shape": (2048, 14)}, "at least 16x2"),
        ("mono_half", {"full_scale": 254}, "255"),
        ("mono_half", {"sensor": "IMX250MYR"}, "mono"),
        ("mono_half", {"demosaic": "gradient"}, "bilinear or every angle at its own site"),
        ("mono_half", {"resolution": "full"}, "half resolution"),
        ("mono_full", {"resolution": "full", "demosaic": "bilinear"}, None),
        ("mono_full", {"resolution": "full", "demosaic": "gradient", "dtype": "float32"}, None),
        ("mono_full", {"resolution": "full", "demosaic": "gradient", "products": "stokes"}, "preview only"),
        ("mono_full", {"resolution": "full", "demosaic": "gradient", "dtype": "uint16"}, None),
        ("mono_half", {"products": f"{FOUR},{LIVE},ssim", "dtype": "uint16"}, None),
        ("color_strip", {"sensor": "IMX250MYR", "products": f"{LIVE},ssim", "dtype": "uint16"}, None),
        ("mono_full", {"resolution": "full"}, "full resolution, bilinear or gradient"),
        ("mono_full", {}, "full resolution"),
        ("color_strip", {"sensor": "IMX250MYR", "products": "angle_0,stokes,ssim", "dtype": "float32"}, None),
        ("color_strip", {"sensor": "IMX250MYR", "raw_format": "12p", "full_scale": 4095, "co_sited": False}, None),
        ("color_strip", {"sensor": "IMX250MYR", "shape": (2047, 2440)}, None),
        ("color_strip", {"sensor": "IMX250MYR", "shape": (2048, 2444)}, "multiple of 8"),
        ("color_strip", {"sensor": "IMX250MYR", "demosaic": "gradient"}, "bilinear or every angle at its own site"),
        ("color_strip", {"sensor": "IMX250MYR", "co_sited": False, "demosaic": "bilinear"}, "Malvar"),
        ("color_strip", {"sensor": "IMX250MYR", "resolution": "full"}, "half resolution"),
        ("color_strip", {}, "colour sensor"),
        ("color_strip", {"sensor": "IMX250MYR", "co_sited": False, "products": "preview"}, None),
        ("tile", {"sensor": "IMX250MYR", "resolution": "full", "precision": "fp32", "products": "stokes,ssim"}, None),
        ("mono_half", {"calibration": IDEAL}, "pixels without a calibration"),
        ("mono_half_calibrated", {"calibration": IDEAL}, None),
        (
            "mono_half_calibrated",
            {"calibration": IDEAL, "co_sited": False, "products": "angle_45,stokes,preview,ssim"},
            None,
        ),
        ("mono_half_calibrated", {"calibration": IDEAL, "raw_format": "12p", "full_scale": 4095}, None),
        ("mono_half_calibrated", {}, "pixels with a calibration"),
        ("mono_half_calibrated", {"calibration": IDEAL, "roi_offset": (2, 4), "flip": (True, True)}, None),
        ("mono_half_calibrated", {"calibration": IDEAL, "roi_offset": (1, 0)}, "even rows and columns"),
        ("mono_half_calibrated", {"calibration": IDEAL, "roi_offset": (0, 3)}, "even rows and columns"),
        ("mono_half_calibrated", {"calibration": IDEAL, "shape": (2048, 2444)}, "multiple of 8"),
        ("mono_half_calibrated", {"calibration": IDEAL, "shape": (2047, 2448)}, "an even height"),
        ("mono_half_calibrated", {"calibration": IDEAL, "debias": True}, "debias"),
        ("mono_half_calibrated", {"calibration": IDEAL, "resolution": "full"}, "half resolution"),
        ("tile", {"calibration": IDEAL}, None),
    ],
)
def test_supports(kernel: str, options: Dict[str, Any], reason: Any) -> None:
    said = supports(kernel, make(**options))
    assert said is None if reason is None else reason in str(said)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (1, 0)),
        ({"demosaic": "gradient"}, (2, 0)),
        ({"demosaic": "adaptive", "sensor": "IMX250MYR"}, (4, 6)),
        ({"sensor": "IMX250MYR"}, (1, 4)),
        ({"sensor": "IMX250MYR", "co_sited": False}, (0, 4)),
        ({"sensor": "IMX250MYR", "co_sited": False, "resolution": "full", "demosaic": "bilinear"}, (1, 2)),
    ],
)
def test_halos(options: Dict[str, Any], expected: Tuple[int, int]) -> None:
    assert halos(make(**options)) == expected


def test_shared_bytes_of_a_tile_by_hand() -> None:
    tile = Schedule("tile", "tile", 128, 32, 16)
    # mono bilinear at half resolution: 64x32 raw pixels, 4 around along x and 1 along y, as halves; an empty union of 4
    # bytes; a byte for every 4 pixels of 72x34; two counters
    assert shared_bytes(make(), tile) == 2 * 72 * 34 + 4 + 18 * 34 + 8
    assert shared_bytes(make(precision="fp32"), tile) == 4 * 72 * 34 + 4 + 18 * 34 + 8
    # colour: three channels of that, and the raw tile with 4 more around; in whole 16 bytes
    exact = 2 * (3 * 72 * 34 + 80 * 42) + 18 * 34 + 8
    assert shared_bytes(make(sensor="IMX250MYR"), tile) == -(-exact // 16) * 16


def test_a_tile_counts_raw_pixels_in_its_kernel() -> None:
    tile = Schedule("tile", "tile", 128, 32, 16)
    half, full = (schedule_defines(make(resolution=name), tile) for name in ("half", "full"))
    assert (half["TILE_X"], half["TILE_Y"], half["THREADS"], half["WINDOW"]) == (64, 32, 128, 2)
    assert (full["TILE_X"], full["TILE_Y"]) == (32, 16)
    assert "LINES" not in full  # only the ring has them
    assert full["SHARED_BYTES"] == shared_bytes(make(resolution="full"), tile)


# --------------------------------------------------------------------------------------------------------- constraints


@settings(deadline=None)
@given(works(), st.sampled_from(list(DEVICES.values())))
def test_every_candidate_holds_the_limits(work: PolarizationWork, device: Device) -> None:
    found = candidates(work, device)
    assert found, "every work has a schedule on every known device"
    height, width = work.output_size
    for schedule in found:
        check(work, schedule, device)
        assert supports(schedule.kernel, work) is None
        assert shared_bytes(work, schedule) <= device.shared_per_block
        assert schedule.threads % 32 == 0
        assert schedule.threads <= 1024
        assert expected_occupancy(work, schedule, device) > 0
        blocks_x, blocks_y, frames = grid(work, schedule, 3)
        assert frames == 3
        if schedule.window == "tile":  # covers the output, without a block to spare
            assert blocks_x * schedule.tile_x >= width > (blocks_x - 1) * schedule.tile_x
            assert blocks_y * schedule.tile_y >= height > (blocks_y - 1) * schedule.tile_y
    best = choose(launch_model(work, device))
    assert predict(work, best, device).us <= (1 + _AS_FAST) * min(
        predict(work, schedule, device).us for schedule in found
    )


@pytest.mark.parametrize("device", [XAVIER, ORIN], ids=lambda device: str(device.name))
@pytest.mark.parametrize("sensor", list(SENSORS))
def test_live_works_keep_enough_warps_resident(sensor: str, device: Device) -> None:
    for products in ("intensity,dolp,aolp,preview", "intensity,dolp,aolp,preview,ssim"):
        work = make(products, sensor=sensor)
        assert expected_occupancy(work, choose(launch_model(work, device)), device) >= MIN_OCCUPANCY


COLOR: Dict[str, Any] = {"sensor": "IMX250MYR", "co_sited": False}


def test_grid_of_a_mono_kernel() -> None:
    # 153 threads a row of 8 pixels each, 512 pairs of rows
    assert grid(make(), Schedule("mono_half", "registers", 128, 8, rows=2)) == (153 * 512 // 128, 1, 1)


def test_grid_and_memory_of_strips_by_hand() -> None:
    # 306 lanes of 4 pixels a row, 64 strips of 16 rows: 30 lanes a warp, two warps a block
    four, two = (Schedule("color_strip", "strip", 64, sites, rows=16) for sites in (4, 2))
    live = make(LIVE, sensor="IMX250MYR")
    assert grid(live, four, 3) == (-(-306 * 64 // 60), 1, 3)
    assert grid(live, two) == (-(-612 * 64 // 56), 1, 1)
    # a warp: 12 lines of 32 lanes, a pair of pairs on either side in 16 bytes each; two images of two rows
    assert shared_bytes(live, four) == 2 * (32 + 12 * 32 * 16 + 2 * 784)
    assert shared_bytes(replace(live, half_precision=False), two) == 2 * (32 + 12 * 32 * 16 + 2 * 384)


def test_strips_leave_a_jetson_enough_registers() -> None:
    live, finer = make(LIVE, sensor="IMX250MYR"), make(LIVE, "u16", 4095, sensor="IMX250MYR")
    sites = {
        (device.name, work.raw_format): {s.tile_x for s in candidates(work, device) if s.window == "strip"}
        for device, work in product((XAVIER, ORIN, H200), (live, finer))
    }
    assert sites == {
        ("xavier", "u8"): {2},
        ("xavier", "u16"): set(),
        ("orin", "u8"): {2},
        ("orin", "u16"): {2},
        ("h200", "u8"): {4, 2},
        ("h200", "u16"): {2},
    }


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule("tile", "tile", 128, 128, 64), r"needs 77\d+ bytes of shared memory, a block has 49152"),
        (Schedule("tile", "tile", 100, 32, 16), "multiple of 32 up to 1024, got 100"),
        (Schedule("tile", "tile", 2048, 32, 16), "multiple of 32 up to 1024, got 2048"),
        (Schedule("tile", "tile", 128, 30, 16), "multiple of 8x4 raw pixels, got 60x32"),
        (Schedule("tile", "ring", 128, 32, 16), "its window can be tile"),
        (Schedule("brick", "tile", 128, 32, 16), "the kernels are mono_half, "),
        (Schedule("mono_full", "registers", 128, 16, rows=4), "mono_full needs full resolution"),
        (Schedule("mono_half", "registers", 128, 6, rows=4), "a thread makes 4 or 8 pixels along x, got 6"),
        (Schedule("mono_half", "registers", 128, 8, rows=3), "rows can be 2, 4, got 3"),
        (Schedule("color_strip", "strip", 64, 4, rows=16), "color_strip needs a colour sensor"),
    ],
)
def test_a_schedule_that_does_not_fit_gives_need_and_limit(schedule: Schedule, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        check(make(), schedule, XAVIER)


def test_more_refusals() -> None:
    colour = make(**COLOR)
    with pytest.raises(ScheduleError, match="a thread makes 4 or 2 pixels along x, got 8"):
        check(colour, Schedule("color_strip", "strip", 64, 8, rows=16), XAVIER)
    with pytest.raises(ScheduleError, match="at least 1 row, got 0"):
        check(make(demosaic="adaptive"), Schedule("tile", "tile", 128, 16, 16), XAVIER)


def test_a_device_that_is_too_small_is_an_error_with_need_and_limit() -> None:
    work = make(sensor="IMX250MYR", demosaic="adaptive", precision="fp32")
    tiny = replace(XAVIER, name="tiny", shared_per_block=4096)
    with pytest.raises(ScheduleError, match=r"needs \d+ bytes of shared memory, a block has 4096"):
        choose(launch_model(work, tiny))


# ----------------------------------------------------------------------------------------------------------- objective


def test_cost_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = ("load u8", "co-site", "products", "thread")
    counts = {"load u8": 11.0, "co-site": 4.0, "pixel": 15.0, "stokes": 7.0, "intensity uint8": 2.0, "dolp uint8": 8.0}
    monkeypatch.setattr(launch_cost, "SHARES", {(name, True, 90): EVEN for name in stages})
    monkeypatch.setitem(COUNTS, "tile", {**counts, "thread": 100.0})
    monkeypatch.setitem(CONFLICTS, "half", {"load": 3.0})
    launch_cost._weight.cache_clear()
    work = make("intensity,dolp", shape=(64, 128))  # one block of 64x32 output pixels
    taken = cost(work, Schedule("tile", "tile", 128, 64, 32), H200)
    launch_cost._weight.cache_clear()
    # 66 * 136 pixels, four to a thread, are 71 warps' work; in the last of 18 rounds, one of four warps has none
    slots = 11 * (71 * 128 + IDLE_SHARE * 128) + 32 * 64 * (4 + 15 + 7 + 2 + 8) + 128 * 100
    at_the_border = 1 + tile_cost._BORDER_SHARE
    clocks = 3 * 71 * 4  # of each warp's four pixels
    lost = polarization_cost._CONFLICT_SHARE["half"] * 128 * clocks
    assert taken.operations == pytest.approx(at_the_border * slots + lost)
    assert taken.read == 64 * 128
    assert taken.reread == 66 * 136
    assert taken.written == output_bytes(work) == 2 * 32 * 64
    assert taken.images == 2


#: (raw format, full scale)
FORMATS = [("u8", 255), ("u16", 4095), ("u16", 0xFFFF), ("12p", 4095), ("12packed", 4095)]


def test_every_work_of_a_streaming_kernel_is_counted() -> None:
    """Whatever a kernel can make, from any format, as any type: also what no measured launch had."""
    counted = set()
    for sensor, half, co_sited, demosaic, (raw_format, full_scale) in product(
        ("IMX250MZR", "IMX250MYR"), (True, False), (True, False), ("bilinear", "gradient"), FORMATS
    ):
        any_work = make("intensity", raw_format, full_scale, sensor=sensor, co_sited=co_sited, demosaic=demosaic)
        for output, dtype in product(OUTPUTS, ("uint8", "uint16", "float32", "float16")):
            work = replace(any_work, half=half, outputs=((output, dtype),))
            for kernel in COUNTED:
                if supports(kernel, work) is None and dtype in _types_of(output):
                    rows = 2 if kernel != "color_strip" else 8
                    schedule = Schedule(kernel, KERNELS[kernel].windows[0], 64, KERNELS[kernel].pixels[0], rows=rows)
                    assert cost(work, schedule, H200).operations > 0, (kernel, work)
                    counted.add((kernel, raw_format, full_scale, output))
    assert {kernel for kernel, *_ in counted} == set(COUNTED)
    assert ("mono_half", "u16", 0xFFFF, "dolp") in counted


def _types_of(output: str) -> Sequence[str]:
    """The element types as which a launch stores an output."""
    if output in PLANES:
        return ("float32", "float16")
    return ("float32", "uint16") if output in PAIRS else PRODUCTS[output].types


#: As much for every pipe as an H200 takes in the time.
EVEN = Slots(1, 0.5, 0.5, 0.5, 0.125, 0.25)


@pytest.mark.parametrize(
    ("capability", "slots", "expected"),
    [
        # lanes a clock: 64 pairs of half, floats and integers each, 16 special, 32 words of shared memory
        (72, Slots(128, 0, 0, 0, 0, 0), 1),
        (72, Slots(128, 128, 64, 0, 0, 0), 2),
        (72, Slots(128, 0, 0, 0, 48, 0), 3),
        (72, Slots(128, 0, 0, 0, 0, 128), 4),
        (72, Slots(128, 64, 64, 64, 16, 32), 1),
        # halves and floats in turn
        (87, Slots(128, 64, 128, 0, 0, 0), 2),
        (90, Slots(128, 64, 64, 64, 16, 32), 1),
        (90, Slots(128, 128, 128, 64, 16, 32), 2),
        # as the next lower one that is known; the lowest for what is older
        (89, Slots(0, 64, 0, 0, 0, 0), 1),
        (61, Slots(0, 64, 0, 0, 0, 0), 1),
        (121, Slots(0, 128, 0, 0, 0, 0), 1),
    ],
)
def test_the_slowest_pipe_counts(capability: int, slots: Slots, expected: float) -> None:
    assert clocks(capability, slots) == pytest.approx(expected)


def test_half_binds_on_a_xavier() -> None:
    """From its code: the first stage of ADR has 1025 instructions of half in 1320, and half takes 64 lanes of 128."""
    assert launch_cost._weight("adaptive slide", True, 72) / SHARES["adaptive slide", True, 72].issue == pytest.approx(
        2 * 1025 / 1320, rel=0.03
    )


def test_every_kernel_was_counted() -> None:
    counted = {name.split()[0] for name, _, _ in SHARES}
    assert set(KERNELS) - {"tile"} <= counted, "run benchmarks/instructions.py"


def test_every_stage_was_counted() -> None:
    families = {capability for _, _, capability in SHARES}
    assert families == {72, 87, 90}
    stages = {name for name in COUNTS["tile"] if tile_stage(name) != "products"}
    assert {"load u8", "color mhc", "adaptive slide", "mono gradient", "co-site", "thread"} <= stages
    for capability, half in product(families, (True, False)):
        assert {(name, half, capability) for name in (*stages, "products")} <= set(SHARES)
    for (stage, half, capability), share in SHARES.items():
        assert share.issue >= sum(share[1:5]) - 0.03, (stage, half, capability)  # rounded
        assert not half or capability != 90 or share.issue == 1


@pytest.mark.parametrize(
    ("source", "stride", "window", "before", "row"),
    [
        ("uint16", 1, 3, 174, 66.5),
        ("uint16", 1, 11, 549, 132.0),
        ("uint16", 1, 15, 846, 161.0),
        ("float32", 1, 5, 226, 77.2),
        ("float32", 1, 13, 633, 143.2),
        ("mosaic", 1, 3, 316, 81.8),
        ("mosaic", 1, 11, 871, 149.5),
        ("uint16", 2, 11, 770, 144.5),
        ("float32", 2, 7, 514, 111.8),
    ],
)
def test_instructions_of_similarity_are_those_of_the_compiled_kernel(
    source: str, stride: int, window: int, before: int, row: float
) -> None:
    """Counted on sm_90 by `benchmarks/instructions.py --ssim`: before the first row of the map, and for one row."""
    work = SsimWork(1024, 1224, stride, window, 1.5, source, "float32")
    assert ssim_cost._row_slots(work) == pytest.approx(row, rel=0.03)
    # the model counts 16 rows at once, and the end of a strip, of some 25 slots
    assert ssim_cost._strip_slots(work, 16) == pytest.approx(before + 25 + 16 * row, rel=0.05)


@pytest.mark.parametrize(
    ("source", "window", "threads", "tile_x", "rows", "measured"),
    [
        ("uint16", 11, 320, 308, 256, 6.69),
        ("uint16", 11, 224, 204, 128, 7.66),
        ("uint16", 7, 320, 308, 16, 6.69),
        ("float32", 7, 320, 308, 16, 6.84),
        ("float32", 11, 320, 308, 16, 8.66),
        ("float32", 13, 128, 104, 16, 10.44),
        ("float32", 15, 128, 104, 16, 11.48),
        ("mosaic", 11, 320, 308, 16, 10.84),
        # not among what the model was fitted to
        ("uint16", 11, 128, 112, 128, 6.64),
        ("uint16", 11, 320, 308, 512, 6.71),
    ],
)
def test_predictions_of_similarity_are_near_what_was_measured(
    source: str, window: int, threads: int, tile_x: int, rows: int, measured: float
) -> None:
    """Microseconds a frame of 1224x1024 on an H200, with 64 frames in one launch, without tensor cores."""
    work = SsimWork(1024, 1224, 1, window, 1.5, source, "float32")
    schedule = Schedule("ssim", "registers", threads, tile_x, rows=rows)
    assert ssim_cost.predict(work, schedule, H200, 64).us / 64 == pytest.approx(measured, rel=0.15)


def test_a_frame_alone_waits_for_its_sums() -> None:
    """As measured: strips of 16 rows have 19584 pieces, which the last block loads with the GPU to itself."""
    work = SsimWork(1024, 1224, 1, 11, 1.5, "uint16", "float32")
    schedule = Schedule("ssim", "registers", 320, 308, rows=16)
    assert piece_count(work, schedule) == 64 * 306
    assert ssim_cost.predict(work, schedule, H200).us == pytest.approx(18.94, rel=0.15)


@pytest.mark.scaled
@pytest.mark.parametrize("arch", ["sm_72", "sm_87", "sm_90"])
def test_registers_are_those_of_the_compiled_kernels(arch: str) -> None:
    """Never fewer than are used; at most 1.3 times as many, unless nine tenths of the warps that count are left."""
    device = next(device for device in DEVICES.values() if device.arch == arch)
    jobs: List[Tuple[str, Any, Any, int, int, int]] = []
    for work in list(dict.fromkeys(kernels.works()))[:: 2 if IS_EXHAUSTIVE else 18]:
        plan = choose(launch_model(work, device))
        flags: Dict[str, Any] = {**polarization_defines(work), **schedule_defines(work, plan)}
        jobs.append((plan.kernel, plan, flags, plan.threads, registers(work, plan, device), shared_bytes(work, plan)))
    windows = ((3, 1, "uint16"), (7, 1, "float32"), (11, 1, "mosaic"), (11, 2, "float32"))
    for index, (window, stride, source) in enumerate(windows):
        if not IS_EXHAUSTIVE and index % 2 != (arch == "sm_87"):  # by turns
            continue
        similarity = SsimWork(1024, 1224, stride, window, 1.5, source, "float32")
        able = [plan for plan in ssim_search.candidates(similarity, device) if plan.window == "registers"]
        plans = list({plan.threads: plan for plan in able if plan.threads in (64, 160, 320, 352)}.values())
        for plan in plans if IS_EXHAUSTIVE else [plans[index % len(plans)]]:
            flags = {**ssim_defines(similarity), **ssim_search.schedule_defines(plan)}
            taken = ssim_search.registers(similarity, plan)
            jobs.append(("ssim", plan, flags, plan.threads, taken, ssim_search.shared_bytes(plan)))
    wrong = []
    for kernel, plan, flags, threads, assumed, shared in jobs:
        used = compiled(kernel, flags, arch).registers
        resident = [resident_blocks(device, threads, number, shared) for number in (assumed, used)]
        enough = resident[0] == resident[1] or resident[0] * threads >= 0.9 * launch_cost.BUSY_WARPS * 32
        if not used <= assumed or not (assumed <= 1.3 * used or enough):
            wrong.append((kernel, plan, assumed, used, resident))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.exhaustive
@pytest.mark.parametrize("co_sited", [True, False])
@pytest.mark.parametrize("products", [f"{FOUR},intensity,dolp,aolp", FOUR, LIVE])
def test_what_color_strip_spills_to_keep_its_warps(products: str, co_sited: bool) -> None:
    """Tens of bytes, which the model counts, or at most a few."""
    work = make(products, "12p", 4095, sensor="IMX250MYR", resolution="half", co_sited=co_sited)
    plan = choose(launch_model(work, H200))
    assert plan.kernel == "color_strip"
    flags: Dict[str, Any] = {**polarization_defines(work), **schedule_defines(work, plan)}
    spilled = compiled(plan.kernel, flags, H200.arch).spill_bytes
    assert (spilled >= 48) == spills_to_keep_warps(work, plan, H200), spilled


@pytest.mark.parametrize(
    ("arch", "options"),
    representative(
        [
            (arch, options)
            for arch in ("sm_72", "sm_87", "sm_90")
            for options in (
                {"resolution": "half"},
                {"resolution": "full", "demosaic": "bilinear"},
                {"sensor": "IMX250MZR"},
            )
        ],
        lambda row: (row[0], str(row[1])),
    ),
)
def test_registers_of_components_are_at_least_those_of_the_compiled_kernels(arch: str, options: Dict[str, Any]) -> None:
    device = next(device for device in DEVICES.values() if device.arch == arch)
    work = work_of(
        make_options(products=COMPONENTS, dtype="uint8", **{"sensor": "IMX250MYR", **options}), "u8", (2448, 2048)
    )
    plan = choose(launch_model(work, device))
    flags: Dict[str, Any] = {**polarization_defines(work), **schedule_defines(work, plan)}
    found = compiled(plan.kernel, flags, arch)
    assert (found.registers <= registers(work, plan, device), found.spill_bytes) == (True, 0), plan


@pytest.mark.parametrize(("raw_format", "bytes_read"), [("u8", 8192), ("u16", 16384), ("12p", 12288)])
def test_bytes_read_follow_the_packing(raw_format: str, bytes_read: int) -> None:
    work = make(raw_format=raw_format, full_scale=255, shape=(64, 128))
    assert cost(work, Schedule("tile", "tile", 128, 64, 32), H200).read == bytes_read


def test_bytes_read_are_those_of_the_calibration_too() -> None:
    """Four a pixel; a block that begins at an odd row loads complete superpixels."""
    work, tile = make(calibration=IDEAL, shape=(64, 128)), Schedule("tile", "tile", 128, 64, 32)
    assert cost(work, tile, H200).read == 5 * 64 * 128
    assert cost(work, tile, H200).reread == 5 * 68 * 136
    assert cost(replace(work, co_sited=False), tile, H200).reread == 5 * 64 * 128
    packed = make(raw_format="12p", full_scale=4095, calibration=IDEAL, shape=(64, 128))
    assert cost(packed, tile, H200).read == 5.5 * 64 * 128


def test_a_calibration_is_part_of_the_key() -> None:
    plain, calibrated = (polarization_key(make(**options)) for options in ({}, {"calibration": IDEAL}))
    assert calibrated == plain.replace("fp16 ", "fp16 calibrated ")
    odd = polarization_key(make(calibration=IDEAL, roi_offset=(0, 1)))  # not every kernel that does the other can do it
    assert odd == polarization_key(make(roi_offset=(0, 1))).replace("fp16 ", "fp16 calibrated-odd ")


def test_output_bytes_count_channels_and_types() -> None:
    pixels = 1024 * 1224
    assert output_bytes(make("intensity,stokes,preview", dtype="float32")) == pixels * (4 + 12 + 3)
    assert output_bytes(make("intensity,dolp,preview", sensor="IMX250MYR", dtype="uint16")) == pixels * (6 + 2 + 3)
    assert output_bytes(make("intensity,ssim", sensor="IMX250MYR")) == pixels * (3 + 4)  # two halves
    assert output_bytes(make("ssim", ssim_mode="temporal")) == pixels * 2
    assert output_bytes(make("ssim", precision="fp32")) == pixels * 8
    assert output_bytes(make("ssim", raw_format="u16", full_scale=4095)) == pixels * 4


def test_roofline_by_hand() -> None:
    slow = replace(XAVIER, bandwidth_gbs=100, clock_mhz=1000)
    taken = Cost(read=1_000_000, reread=1_500_000, written=2_000_000, operations=512_000_000)
    predicted = roofline(taken, slow, frames=2)
    moved = 2 * (3_000_000 + 500_000 * launch_cost.REREAD_SHARE)
    assert predicted.memory_us == pytest.approx(moved / (100e9 * launch_cost.COPY_SHARE) * 1e6)
    assert predicted.arithmetic_us == pytest.approx(1000)  # 128 issue slots a clock, 8 multiprocessors
    assert predicted.us == max(predicted.memory_us, predicted.arithmetic_us) + launch_cost.LAUNCH_US[True]


def test_what_takes_longer_does_so_in_memory_and_arithmetic() -> None:
    taken = Cost(read=1_000_000, reread=1_500_000, written=2_000_000, operations=512_000_000)
    once, twice = roofline(taken, XAVIER), roofline(replace(taken, longer=2.0), XAVIER)
    assert (twice.memory_us, twice.arithmetic_us) == pytest.approx((2 * once.memory_us, 2 * once.arithmetic_us))


@pytest.mark.parametrize(
    ("frames", "megabytes", "share"),
    [(1, 39, launch_cost.CACHED_SHARE), (1, 50, (1 + launch_cost.CACHED_SHARE) / 2), (1, 61, 1.0), (64, 39, 1.0)],
)
def test_what_the_cache_holds_takes_less_time(frames: int, megabytes: int, share: float) -> None:
    """Of 50 MB, filled by what one frame reads and writes, or by 64 of them."""
    device = replace(H200, cache_bytes=50_000_000)
    taken = Cost(read=megabytes * 500_000, reread=0, written=megabytes * 500_000, operations=1.0)
    footprint = LaunchFootprint(blocks=132, threads=1024, registers=32, shared=0, in_flight=1e6, exposed=0)
    found = predict_launch(taken, footprint, device, frames).memory_us
    assert found == pytest.approx(share * roofline(taken, device, frames).memory_us)


@given(works(), st.sampled_from(list(DEVICES.values())), st.data())
def test_time_grows_with_size_and_frames(work: PolarizationWork, device: Device, data: Any) -> None:
    schedule = data.draw(st.sampled_from(candidates(work, device)))
    here = predict(work, schedule, device)
    larger = predict(replace(work, width=2 * work.width, height=2 * work.height), schedule, device)
    assert larger.us >= here.us * (1 - 1e-9)
    assert predict(work, schedule, device, 64).us >= here.us * (1 - 1e-9)


def test_time_grows_from_an_odd_number_of_packed_pixels() -> None:
    """289 pixels of 12 bits end in half a byte; four times as many do not."""
    schedule = Schedule("tile", "tile", 256, 32, 32, 6)
    times = [
        predict(make(resolution="full", raw_format="12p", full_scale=4095, shape=(n, n)), schedule, XAVIER).us
        for n in (17, 34)
    ]
    assert times[1] >= times[0] * (1 - 1e-9)


def test_time_grows_where_more_blocks_are_less_full() -> None:
    """One row of tiles of 8 rows; then three, of which the last has one row in the picture."""
    schedule, small = Schedule("tile", "tile", 128, 16, 8), make("intensity", sensor="IMX250MYR", shape=(17, 32))
    times = [predict(work, schedule, XAVIER).us for work in (small, replace(small, width=64, height=34))]
    assert times[1] >= times[0] * (1 - 1e-9)


def test_best_time_grows_with_size() -> None:
    for device in DEVICES.values():
        times = []
        for scale in (1, 2, 4, 8):
            work = make(sensor="IMX250MYR", shape=(256 * scale, 256 * scale))
            times.append(predict(work, choose(launch_model(work, device)), device).us)
        assert times == sorted(times)


@pytest.mark.parametrize(
    ("options", "schedule", "measured"),
    [
        ({}, Schedule("mono_half", "registers", 64, 8, rows=4), 2.39),
        ({"resolution": "full", "demosaic": "bilinear"}, Schedule("mono_full", "registers", 64, 16, rows=2), 6.67),
        ({"products": LIVE, "sensor": "IMX250MYR"}, Schedule("tile", "tile", 128, 32, 16), 18.2),
        ({"products": LIVE, "sensor": "IMX250MYR"}, Schedule("tile", "tile", 128, 16, 16), 23.5),
        ({"resolution": "full", "demosaic": "gradient"}, Schedule("tile", "tile", 128, 64, 60), 13.5),
        ({"resolution": "full"}, Schedule("tile", "tile", 256, 64, 60, 9), 60.9),
        ({"resolution": "full", "sensor": "IMX250MYR"}, Schedule("tile", "tile", 320, 72, 32, 7), 171.1),
    ],
)
def test_predictions_are_near_what_was_measured(options: Dict[str, Any], schedule: Schedule, measured: float) -> None:
    """Microseconds a frame on an H200, with 64 frames in one launch; what the model's numbers were fitted to."""
    assert predict(make(**options), schedule, H200, 64).us / 64 == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize(
    ("warps", "measured"), [(40, 18.1), (32, 18.5), (24, 20.3), (20, 22.0), (16, 24.9), (12, 30.1)]
)
def test_time_follows_the_resident_warps(warps: int, measured: float) -> None:
    """An H200 whose shared memory was taken up so that fewer blocks fit: what a Xavier's 20 warps cost."""
    work, schedule = make(LIVE, sensor="IMX250MYR"), Schedule("tile", "tile", 128, 32, 16)
    filled = replace(H200, shared_per_multiprocessor=warps // 4 * 23168)
    assert resident_blocks(filled, 128, 72, shared_bytes(work, schedule)) == min(warps // 4, 7)
    assert predict(work, schedule, filled, 64).us / 64 == pytest.approx(measured, rel=0.15)


def test_no_candidate_spills() -> None:
    adaptive = make(resolution="full", sensor="IMX250MYR", precision="fp32")
    assert {plan.threads for plan in candidates(adaptive, ORIN)} == {128, 256}  # 104 registers; others leave 96
    float_half = make(demosaic="adaptive", precision="fp32")  # 96 registers; others leave 80 or 72
    assert {plan.threads for plan in candidates(float_half, XAVIER)} == {128, 160, 320}
    live = make(f"{LIVE},ssim")
    for work, device, sizes in (
        (make(), ORIN, {(4, 2), (4, 4), (8, 2), (8, 4)}),
        (live, XAVIER, {(4, 2), (4, 4), (8, 2)}),
        (replace(live, raw_format="u16", full_scale=65535), XAVIER, {(4, 2)}),
    ):
        plans = candidates(work, device)
        assert {(plan.tile_x, plan.rows) for plan in plans if plan.kernel == "mono_half"} == sizes
