"""From a raw frame of 8 bit to the similarity map: as scikit-image compares the float64 reference's images.

`precision: auto` decides how the images are computed. On a GPU random crops of real and synthetic frames are compared;
without one the kernels run on the CPU, on a few of these crops.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import pytest
from calibrations import realistic_calibration
from harness import GPUS
from skimage.metrics import structural_similarity
from support import real_frame, representative
from test_backend import COPIED, MAPPED, STAND_INS, real_driver, stand_in

from polar_pipeline import Pipeline, reference
from polar_pipeline.cuda.backend import CudaBackend
from polar_pipeline.cuda.driver import Driver
from polar_pipeline.geometry import make_lens
from polar_pipeline.options import Options, make_options
from polar_pipeline.plan import make_plan
from polar_pipeline.products import PRODUCTS
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import ANGLES, get_sensor
from polar_pipeline.sensor.scene import SCENES, synthetic

pytestmark = pytest.mark.scaled
SENSORS = {"mono": "IMX250MZR", "color": "IMX250MYR"}
SIZE = (64, 128)
#: Crops of a test on a GPU; on the CPU.
CROPS, HOST_CROPS = 60, 2
#: From the raw frame to the map.
BOUND = 1e-3
#: The same with a geometry, whose positions are rounded to 1/1024 pixel.
GEOMETRY_BOUND = 2e-3
LIVE = ("intensity", "dolp", "aolp", "ssim_map")
#: Options of the demosaic.
WAYS: Dict[str, Dict[str, Any]] = {
    "half": {},
    "half, own site": {"co_sited": False},
    "half, gradient": {"demosaic": "gradient"},
    "full, bilinear": {"resolution": "full", "demosaic": "bilinear"},
    "full, gradient": {"resolution": "full", "demosaic": "gradient"},
    "full, adaptive": {"resolution": "full"},
}
ALL = [name for name in PRODUCTS if name != "ssim"]
#: What is computed beside the map, which decides the kernel: what a live node shows, also as bytes; every product.
REQUESTS: Dict[str, Dict[str, Any]] = {
    "live": {"products": LIVE},
    "bytes": {"products": LIVE, "dtype": dict.fromkeys(LIVE[:-1], "uint8")},
    "everything": {"products": ALL},
}
MODES = ("consistency", "temporal")
ANGLE_IMAGES = tuple(f"angle_{angle}" for angle in ANGLES)


def random_frames(sensor: str, count: int, seed: int = 0) -> Iterator[Tuple[RawFrame, RawFrame]]:
    """Random crops of frames of 8 bit, each with a frame that may have come before it."""
    rng = np.random.default_rng((seed, *sensor.encode()))
    for k in range(count):
        noise = float(rng.choice([0.0, 500.0, 10_000.0]))  # electrons at full scale
        if k % 2:
            name = ("fruits", "camera")[k // 2 % 2]
            top, left = (2 * int(rng.integers(0, (limit - size) // 2)) for limit, size in zip((2048, 2448), SIZE))
            raw = real_frame(f"imx250mzr_{name}.png")[top : top + SIZE[0], left : left + SIZE[1]]
        else:
            scene = synthetic(SCENES[k // 2 % len(SCENES)], SIZE, seed + k, is_color=sensor == "color")
            raw = expose(scene * rng.uniform(0.3, 1.5), get_sensor(SENSORS[sensor]), 8, noise, 2.0 * bool(noise), rng)
        moved = np.roll(raw, int(rng.integers(-1, 2)) * 4, 1).astype(int) + rng.integers(-2, 3, SIZE)
        before = np.clip(moved, 0, 255).astype(np.uint8)
        yield RawFrame(np.ascontiguousarray(raw), 255), RawFrame(before, 255)


def exact_images(frame: RawFrame, options: Options) -> np.ndarray:
    """(4, h, w) float64: what is behind each polarizer, by the reference; of a color sensor its luma."""
    asked = replace(options, products=ANGLE_IMAGES, dtype=tuple((name, "float32") for name in ANGLE_IMAGES))
    images = reference.run(frame, options.sensor, make_plan(ANGLE_IMAGES), asked)
    found = np.stack([images[name] for name in ANGLE_IMAGES]).astype(np.float64)
    return found @ [0.25, 0.5, 0.25] if found.ndim == 4 else found


def exact_map(frame: RawFrame, before: RawFrame, options: Options) -> np.ndarray:
    """The similarity map by scikit-image."""
    own = exact_images(frame, options)
    if options.ssim_mode == "consistency":
        first, second = own[::2].mean(0), own[1::2].mean(0)
    else:
        first, second = own.mean(0), exact_images(before, options).mean(0)
    window = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    found: np.ndarray = structural_similarity(first, second, data_range=1.0, full=True, **window)[1]
    return found


def largest_error(driver: Any, sensor: str, count: int = 0, **chosen: Any) -> float:
    """The largest distance of maps to scikit-image's, of random frames."""
    options = make_options(sensor=SENSORS[sensor], **chosen)
    made, worst = CudaBackend(options, driver), 0.0
    for frame, before in random_frames(sensor, count or (CROPS if isinstance(driver, Driver) else HOST_CROPS)):
        if options.ssim_mode == "temporal":
            made.reset()
            made.result(made.submit(before))
        found = made.result(made.submit(frame)).products["ssim_map"]
        worst = max(worst, float(np.abs(found - exact_map(frame, before, options)).max()))
    made.close()
    return worst


def on_every_gpu(names: str, rows: List[Any]) -> Any:
    """Parametrizes a test: every row on GPUs, a part of them on stand-ins, which take turns."""
    every = [pytest.param(name, *row, marks=pytest.mark.gpu) for name in GPUS for row in rows]
    for turn, param in zip(itertools.cycle(STAND_INS), representative(rows, lambda row: row)):
        every.append(pytest.param(turn, *param.values, marks=param.marks))
    return pytest.mark.parametrize(f"driver, {names}", every, indirect=["driver"])


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> Any:
    """A GPU as itself and as Jetsons, or a stand-in of a device with either implementation of SSIM."""
    if request.param in GPUS:
        return real_driver(request.param)
    return stand_in(MAPPED if request.param == STAND_INS[0] else COPIED)


@on_every_gpu("sensor, way, request_name, mode", list(itertools.product(SENSORS, WAYS, REQUESTS, MODES)))
def test_map(driver: Any, sensor: str, way: str, request_name: str, mode: str) -> None:
    assert largest_error(driver, sensor, ssim_mode=mode, **REQUESTS[request_name], **WAYS[way]) <= BOUND


@on_every_gpu("sensor, way, mode", list(itertools.product(SENSORS, WAYS, MODES)))
def test_map_of_corrected_frames(driver: Any, sensor: str, way: str, mode: str) -> None:
    calibration = realistic_calibration(get_sensor(SENSORS[sensor]), SIZE)
    options = {"products": LIVE, "ssim_mode": mode, **WAYS[way]}
    assert largest_error(driver, sensor, calibration=calibration, **options) <= BOUND


#: A lens whose rectified image lies within the frame.
INNER_LENS = make_lens(
    SIZE,
    "plumb_bob",
    (-0.1, 0.02, 0.001, -0.001, 0.0),
    (100.0, 0.0, 63.5, 0.0, 100.0, 31.5, 0.0, 0.0, 1.0),
    (0.0,) * 9,
    (150.0, 0.0, 63.5, 0.0, 0.0, 150.0, 31.5, 0.0, 0.0, 0.0, 1.0, 0.0),
)
GEOMETRIES: Dict[str, Dict[str, Any]] = {
    "rotated": {"rotate": 90},
    "scaled": {"scale": 2},
    "rectified": {"rectify": INNER_LENS},
}


@on_every_gpu("sensor, geometry, mode", list(itertools.product(SENSORS, GEOMETRIES, MODES)))
def test_map_of_another_geometry(driver: Any, sensor: str, geometry: str, mode: str) -> None:
    options = {"products": LIVE, "ssim_mode": mode, **GEOMETRIES[geometry]}
    assert largest_error(driver, sensor, **options) <= GEOMETRY_BOUND


@on_every_gpu("sensor", [("mono",), ("color",)])
def test_kernels_that_sum_in_integers(driver: Any, sensor: str) -> None:
    """`mono_half` and `color_strip`: nothing is rounded before SSIM, off only by what SSIM itself rounds."""
    assert largest_error(driver, sensor, **REQUESTS["bytes"]) <= BOUND / 2


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["fruits", "camera"])
@pytest.mark.parametrize("sensor", SENSORS)
def test_map_of_a_complete_frame_on_a_gpu(sensor: str, name: str) -> None:
    """As the node computes it, against the float CPU backend."""
    real_driver("gpu")
    raw = real_frame(f"imx250mzr_{name}.png")
    maps = []
    for device in ("cuda", "cpu"):
        with Pipeline(SENSORS[sensor], LIVE, device) as pipeline:
            maps.append(pipeline(raw)["ssim_map"].copy())
    assert np.abs(maps[0] - maps[1]).max() <= BOUND
