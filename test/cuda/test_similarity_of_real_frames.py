"""From a raw frame of a real camera to the similarity map: within 1e-3 of what the float64 reference makes of it.

Without a GPU, the kernels run on the CPU, on crops. The float CPU backend is within 1e-4 of the reference on them.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, Dict, List, Optional

import numpy as np
import pytest
from calibrations import realistic_calibration
from harness import GPUS
from support import IS_EXHAUSTIVE, real_frame, representative
from test_backend import COPIED, MAPPED, STAND_INS, by_turns, real_driver, stand_in

from polar_pipeline import Pipeline, reference
from polar_pipeline.cuda import backend
from polar_pipeline.cuda.backend import CudaBackend
from polar_pipeline.cuda.model.partition import Partition, partitions
from polar_pipeline.options import Options, make_options
from polar_pipeline.plan import make_plan
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import get_sensor

pytestmark = pytest.mark.scaled
PRODUCTS = ("intensity", "dolp", "aolp", "ssim_map")
DTYPES = {"intensity": "uint8", "dolp": "uint8", "aolp": "uint8", "ssim_map": "float32"}
#: Frame, top and left of a crop: bright detail, where halves are coarsest; shade.
PLACES = (("fruits", 1188, 912), ("camera", 312, 1024), ("fruits", 820, 592))
SIZE = (64, 128)
#: Name -> options.
WAYS: Dict[str, Dict[str, Any]] = {
    "half": {},
    "half, own site": {"co_sited": False},
    "full, bilinear": {"resolution": "full", "demosaic": "bilinear"},
    "full, gradient": {"resolution": "full", "demosaic": "gradient"},
    "full, adaptive": {"resolution": "full"},
}
SENSORS = {"mono": "IMX250MZR", "colour": "IMX250MYR"}
#: From the raw frame to the map.
BOUND = 1e-3
#: The same, where colours are interpolated in half and then stay as they are: off by up to 1/16 level.
BOUNDS = {("colour", "half, own site"): 1.5e-3, ("colour", "full, gradient"): 1.5e-3}
#: Where angles are summed in integers: what tensor cores lose. Of images of one frame, that hardly shows.
IN_INTEGERS, BETWEEN_FRAMES = BOUND / 4, 0.8 * BOUND


def crops(bits: int = 8) -> List[RawFrame]:
    """Parts of real frames; of more than 8 bit with noise below the real levels."""
    found = []
    for name, top, left in PLACES if IS_EXHAUSTIVE else PLACES[:2]:
        raw = real_frame(f"imx250mzr_{name}.png")[top : top + SIZE[0], left : left + SIZE[1]]
        if bits > 8:
            below = np.random.default_rng(0).integers(0, 1 << (bits - 8), raw.shape)
            raw = (raw.astype(np.uint16) << (bits - 8)) + below.astype(np.uint16)
        found.append(RawFrame(np.ascontiguousarray(raw), (1 << bits) - 1))
    return found


def options_of(sensor: str, way: str, **more: Any) -> Options:
    return make_options(sensor=SENSORS[sensor], products=PRODUCTS, dtype=DTYPES, **WAYS[way], **more)


def choose(monkeypatch: pytest.MonkeyPatch, from_mosaic: bool, kernel: str = "") -> None:
    """Have SSIM's images stored by a kernel (by default the fastest), or made from the mosaic."""

    def chosen(*arguments: Any) -> List[Partition]:
        (found,) = (row for row in partitions(*arguments) if row.ssim_from_mosaic == from_mosaic)
        launch = found.polarization
        schedules = [row for row in launch.model.candidates() if row.kernel == (kernel or launch.schedule.kernel)]
        return [replace(found, polarization=replace(launch, schedule=schedules[0]))]

    monkeypatch.setattr(backend, "partitions", chosen)


def errors(driver: Any, options: Options, frames: List[RawFrame]) -> List[float]:
    """The largest distance of the map to the reference's, frame by frame."""
    plan = make_plan(options.products)
    made = CudaBackend(plan, options, driver)
    found = []
    for frame in frames:
        image = made.result(made.submit(frame)).products["ssim_map"]
        found.append(float(np.abs(image - reference.run(frame, options.sensor, plan, options)["ssim_map"]).max()))
    made.close()
    return found


on_gpus = [pytest.param(name, marks=pytest.mark.gpu) for name in GPUS]


#: The stand-ins by their implementation of SSIM.
REGISTERS, TENSOR = STAND_INS


@pytest.fixture(params=[*STAND_INS, *on_gpus])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device of either implementation of SSIM; a real GPU as itself and as Jetsons."""
    if request.param in GPUS:
        return real_driver(request.param)
    return stand_in(monkeypatch, MAPPED if request.param == REGISTERS else COPIED)


@pytest.mark.parametrize("driver", [TENSOR, *on_gpus], indirect=True)
@pytest.mark.parametrize(("sensor", "way"), representative(list(itertools.product(SENSORS, WAYS)), lambda row: row))
def test_stored_images(driver: Any, monkeypatch: pytest.MonkeyPatch, sensor: str, way: str) -> None:
    choose(monkeypatch, from_mosaic=False)
    assert max(errors(driver, options_of(sensor, way), crops())) <= BOUNDS.get((sensor, way), BOUND)


@pytest.mark.parametrize("from_mosaic", [False, True])
def test_mono_integers(driver: Any, monkeypatch: pytest.MonkeyPatch, from_mosaic: bool) -> None:
    """The kernels of the node's default: nothing is rounded before SSIM, unless by tensor cores."""
    choose(monkeypatch, from_mosaic, "mono_half")
    assert max(errors(driver, options_of("mono", "half"), crops())) <= IN_INTEGERS


@pytest.mark.parametrize("driver", [TENSOR, *on_gpus], indirect=True)
@pytest.mark.parametrize("way", ["half", "half, own site"])
def test_colour_in_strips(driver: Any, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """The kernel of a colour camera's whole frames."""
    choose(monkeypatch, False, "color_strip")
    assert max(errors(driver, options_of("colour", way), crops())) <= IN_INTEGERS


@by_turns("sensor", SENSORS)
def test_twelve_bits(driver: Any, sensor: str) -> None:
    # computed in float, stored in units of 1/8 of a number
    assert max(errors(driver, options_of(sensor, "half"), crops(12))) <= BOUND / 4


#: Mode `temporal`, where the map may be off by more: ADR in half, whose rounding is not common to two frames.
BOUNDS_BETWEEN_FRAMES = {("mono", "full, adaptive"): 3e-3, ("colour", "full, adaptive"): 4e-3}


def errors_between_frames(driver: Any, sensor: str, way: str, **more: Any) -> List[float]:
    """`errors` in mode `temporal`, of a picture that moves by a superpixel, with noise: similarities from 0 to 1."""
    options = options_of(sensor, way, ssim_mode="temporal", **more)
    plan = make_plan(options.products)
    made = CudaBackend(plan, options, driver)
    own, found = make_options(sensor=SENSORS[sensor], products="intensity", **WAYS[way], **more), []
    for frame in crops():
        noise = np.random.default_rng(1).integers(-2, 3, SIZE)
        moved = np.clip(np.roll(frame.mosaic, 4, 1).astype(int) + noise, 0, 255).astype(np.uint8)
        before = RawFrame(moved, 255)
        other = reference.run(before, own.sensor, make_plan(("intensity",)), own)["intensity"]
        luma: Optional[np.ndarray] = other if other.ndim == 2 else other @ [0.25, 0.5, 0.25]
        made.reset()
        made.result(made.submit(before))
        image = made.result(made.submit(frame)).products["ssim_map"]
        found.append(float(np.abs(image - reference.run(frame, options.sensor, plan, options, luma)["ssim_map"]).max()))
    made.close()
    return found


@by_turns("sensor, way", [pytest.param(*row) for row in itertools.product(SENSORS, WAYS)])
def test_the_frame_before(driver: Any, sensor: str, way: str) -> None:
    bound = BOUNDS_BETWEEN_FRAMES.get((sensor, way), BETWEEN_FRAMES)
    assert max(errors_between_frames(driver, sensor, way)) <= bound


@by_turns("sensor", SENSORS)
def test_turned_frames(driver: Any, sensor: str) -> None:
    assert max(errors_between_frames(driver, sensor, "half", rotate=90)) <= BETWEEN_FRAMES


#: With a calibration in mode `consistency`; in colour it stays in half, as float takes half as long again.
BOUNDS_OF_CORRECTED = {"mono": IN_INTEGERS, "colour": 3.5e-3}


@by_turns("sensor", SENSORS)
def test_corrected_pixels(driver: Any, sensor: str) -> None:
    calibration = realistic_calibration(get_sensor(SENSORS[sensor]), SIZE)
    found = errors(driver, options_of(sensor, "half", calibration=calibration), crops())
    assert max(found) <= BOUNDS_OF_CORRECTED[sensor]
    assert max(errors_between_frames(driver, sensor, "half", calibration=calibration)) <= BETWEEN_FRAMES


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["fruits", "camera"])
@pytest.mark.parametrize("sensor", SENSORS)
def test_a_complete_frame_on_a_gpu(sensor: str, name: str) -> None:
    """As the node computes it, against the float CPU backend."""
    real_driver("gpu")
    raw = real_frame(f"imx250mzr_{name}.png")
    maps = []
    for device in ("cuda", "cpu"):
        with Pipeline(SENSORS[sensor], PRODUCTS, device, dtype=DTYPES) as pipeline:
            maps.append(pipeline(raw)["ssim_map"].copy())
    assert np.abs(maps[0] - maps[1]).max() <= BOUND
