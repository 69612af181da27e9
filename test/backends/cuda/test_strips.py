"""Frames that are uploaded, computed and downloaded in strips: the same bytes as in one piece."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
from calibrations import realistic_calibration
from test_backend import COPIED, STAND_INS, HostDriver, make, make_driver, on_gpus

from polar_pipeline.backends.backend import DeviceLostError
from polar_pipeline.backends.cuda import program
from polar_pipeline.backends.cuda.polarization import PolarizationLaunch
from polar_pipeline.backends.cuda.program import make_launches
from polar_pipeline.options import make_options
from polar_pipeline.sensor.frames import FORMATS, RawFrame, frame_from_buffer, pack
from polar_pipeline.sensor.mosaic import get_sensor

#: More than a strip, each of several blocks; the last strip is lower than the others.
SHAPE = (330, 96)
PRODUCTS = ("intensity", "dolp", "aolp")
#: The kernel of the first launch -> bits and options.
CASES: Dict[str, Tuple[int, Dict[str, Any]]] = {
    "mono_half": (8, {"products": (*PRODUCTS, "preview"), "dtype": "uint8"}),
    "mono_half of packed pixels": (12, {"products": PRODUCTS, "dtype": "float32", "bit_depth": 12}),
    "mono_half and ssim": (8, {"products": (*PRODUCTS, "ssim", "ssim_map"), "dtype": "float32"}),
    "mono_half and the frame before": (8, {"products": ("dolp", "ssim"), "ssim_mode": "temporal"}),
    "mono_half_calibrated": (8, {"products": PRODUCTS, "calibration": "mono"}),
    "mono_full": (8, {"products": PRODUCTS, "resolution": "full", "demosaic": "gradient", "dtype": "uint8"}),
    "color_strip": (8, {"products": (*PRODUCTS, "angle_0"), "sensor": "IMX250MYR", "dtype": "uint8"}),
    "tile": (8, {"products": PRODUCTS, "resolution": "full", "demosaic": "adaptive", "dtype": "float32"}),
    "tile and denoise": (8, {"products": PRODUCTS, "demosaic": "gradient", "denoise": "on"}),
    "tile of colors": (8, {"products": PRODUCTS, "sensor": "IMX250MYR", "resolution": "full", "dtype": "uint8"}),
    "mono_half and a rotation": (8, {"products": PRODUCTS, "rotate": 90}),
}


@pytest.fixture(params=[STAND_INS[1], *on_gpus])
def driver(request: pytest.FixtureRequest) -> Any:
    """A stand-in for a GPU that copies host memory; a real GPU as itself and as Jetsons."""
    return make_driver(request.param)


def options_of(case: str) -> Dict[str, Any]:
    options = dict(CASES[case][1])
    if options.get("calibration"):
        options["calibration"] = realistic_calibration(get_sensor("IMX250MZR"), SHAPE)
    return options


def frames_of(case: str, count: int) -> List[Any]:
    """Noise with saturated and black pixels, at the borders of strips too; packed where the case says so."""
    bits = CASES[case][0]
    rng = np.random.default_rng(sum(map(ord, case)))
    frames: List[Any] = []
    for _ in range(count):
        raw = rng.integers(0, 1 << bits, SHAPE).astype(np.uint8 if bits == 8 else np.uint16)
        raw[60:100, 10:30], raw[150:180, 40:60] = (1 << bits) - 1, 0
        if bits == 12:
            frames.append(frame_from_buffer(pack(raw, FORMATS["12p"]), FORMATS["12p"], *SHAPE))
        else:
            frames.append(RawFrame(np.pad(raw, ((0, 0), (0, 6)))[:, :-6], (1 << bits) - 1))  # rows with padding
    return frames


def results(driver: Any, case: str, min_bytes: int, monkeypatch: pytest.MonkeyPatch) -> Tuple[int, List[Any]]:
    """The strips of a frame, and what comes of frames in flight together, and of one after them."""
    monkeypatch.setattr(program, "MIN_DIVIDED_BYTES", min_bytes)
    made, frames = make(driver, **options_of(case)), frames_of(case, program.SLOTS + 1)
    found: List[Any] = []
    for first in range(0, len(frames), program.SLOTS):
        tickets = [made.submit(frame) for frame in frames[first : first + program.SLOTS]]
        found += [ticket() for ticket in tickets]
    (compiled,) = made._programs.values()
    strips, kernel = compiled._strips, compiled._launches[0].schedule.kernel
    assert kernel == case.split()[0] or not isinstance(driver, HostDriver)  # on a Jetson another one may do it
    made.close()
    return len(strips), found


@pytest.mark.parametrize(
    ("case", "others_first"),
    [*((case, False) for case in CASES), ("mono_half", True), ("mono_half and ssim", True)],
)
def test_a_frame_in_strips_is_the_frame(
    driver: Any, case: str, others_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.others_first = others_first
    whole_count, whole = results(driver, case, 1 << 20, monkeypatch)
    strip_count, in_strips = results(driver, case, 1 << 11, monkeypatch)
    assert whole_count == 1
    assert strip_count > 1 or driver.device.maps_host
    for found, wanted in zip(in_strips, whole):
        assert found.invalid == wanted.invalid
        assert set(found.timings) == set(wanted.timings)
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array, f"{case}: {name}")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ends", [(165,), (29,), (82, 165, 247), tuple(range(6, 330, 6))])
def test_strips_are_the_frame_without_gaps(case: str, ends: Tuple[int, ...]) -> None:
    """Of every schedule: rows and blocks follow each other, and no block reads a row that comes later."""
    options = make_options(**options_of(case))
    bits = CASES[case][0]
    launch = make_launches(options, "12p" if bits == 12 else "u8", (1 << bits) - 1, SHAPE)[0]
    assert isinstance(launch, PolarizationLaunch)
    for kernel in launch.kernels:
        for schedule in kernel.schedules(launch, COPIED):
            strips = launch.strips(schedule, (*ends, launch.height), 2)
            grid = kernel.grid(launch, schedule, 2)
            axis = 1 if kernel.name == "tile" else 0
            for before, strip in zip(strips, strips[1:]):
                assert strip.raw.start == before.raw.stop
                assert strip.rows.start == before.rows.stop
                assert strip.first_block == before.first_block + before.grid[axis]
            assert (strips[0].raw.start, strips[0].rows.start, strips[0].first_block) == (0, 0, 0)
            assert (strips[-1].raw.stop, strips[-1].rows.stop) == (launch.height, launch.output_size[0])
            assert sum(strip.grid[axis] for strip in strips) == grid[axis]
            for strip in strips:
                assert strip.grid[axis] > 0
                assert (strip.grid[1 - axis], strip.grid[2]) == (grid[1 - axis], grid[2])
                assert launch.step * strip.rows.stop + sum(launch.halos) <= strip.raw.stop or strip is strips[-1]


def test_a_device_that_is_lost_between_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was started ends before the slot is free; then frames work again."""
    driver = make_driver(STAND_INS[1])
    monkeypatch.setattr(program, "MIN_DIVIDED_BYTES", 1 << 11)
    made, (frame, *_) = make(driver, PRODUCTS), frames_of("mono_half", 1)
    wanted = made.submit(frame)()
    launch, launched = driver.launch, []

    def fail(*call: int) -> None:
        launched.append(call)
        if len(launched) == 2:
            raise DeviceLostError("the GPU was lost (unplugged)")
        launch(*call)

    monkeypatch.setattr(driver, "launch", fail)
    with pytest.raises(DeviceLostError):
        made.submit(frame)
    assert not any(driver._queues.values()), "copies into the caller's arrays have ended"
    monkeypatch.setattr(driver, "launch", launch)
    found = made.submit(frame)()
    np.testing.assert_array_equal(found["dolp"], wanted["dolp"])
