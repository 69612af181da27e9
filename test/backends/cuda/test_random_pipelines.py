"""Random pipelines on random frames: the CPU and the GPU against the float64 reference, within the documented bounds.

`POLAR_RANDOM_PIPELINES=1000 POLAR_RANDOM_SEED=1 pytest -m gpu test/backends/cuda/test_random_pipelines.py` tries
as many others.
"""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from typing import Any, Dict, Optional, Tuple

import numpy as np
import pytest
from calibrations import realistic_calibration
from comparison import GEOMETRY_BOUND, as_floats, problems_of, run_floats, run_reference
from harness import gpu_driver
from scenes import SCENES, synthetic
from support import examples, first_of, real_frame
from test_backend import COPIED, MAPPED, STAND_INS, real_driver, stand_in

from polar_pipeline import Pipeline
from polar_pipeline.backends.cuda import program
from polar_pipeline.backends.cuda.backend import CudaBackend
from polar_pipeline.backends.cuda.device import Device
from polar_pipeline.geometry import LensCalibration, make_lens
from polar_pipeline.options import Options, make_options
from polar_pipeline.options.methods import METHODS
from polar_pipeline.options.products import NOISE_PRODUCTS, PRODUCTS
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.frames import FORMATS, RawFrame, frame_from_buffer, pack
from polar_pipeline.sensor.mosaic import Sensor, get_sensor

COUNT = int(os.environ.get("POLAR_RANDOM_PIPELINES", "60"))
SEED = int(os.environ.get("POLAR_RANDOM_SEED", "0"))
#: Pipelines of a test: the GPU tests are spread over processes by number.
EACH = 20
HOST_COUNT = examples(12)
#: More than one tile, strip or piece of a row, with a last one of few rows or columns, which every ninth pipeline gets.
LARGE_SHAPES = ((150, 1030), (34, 2049), (66, 515), (660, 1100))
SENSORS = ("IMX250MZR", "IMX250MYR")


class Case:
    """A random pipeline and its frame; the same for the same number."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._rng = np.random.default_rng((SEED, number))
        self.sensor = str(self._rng.choice(SENSORS))
        self.shape = tuple(int(side) for side in self._rng.integers(40, 140, 2))
        if number % 9 == 8:
            self.shape = LARGE_SHAPES[number // 9 % len(LARGE_SHAPES)]
        self.bits = int(self._rng.choice([8, 8, 8, 10, 12, 16]))
        self.arguments = self._arguments()
        self.options = make_options(self.sensor, **self.arguments)
        #: How both frames are packed; "" as numbers. On a GPU, mode `temporal` compares frames of one type.
        self._packing = {10: "10p", 12: str(self._rng.choice(["12p", "12Packed"]))}.get(self.bits, "")
        self._packing *= self._maybe(0.5)
        self.frame, self.before = self._frame(), self._frame()

    def _maybe(self, share: float = 0.3) -> bool:
        return bool(self._rng.random() < share)

    def _arguments(self) -> Dict[str, Any]:
        rng = self._rng
        found: Dict[str, Any] = {
            "resolution": str(rng.choice(["half", "half", "full"])),
            "precision": str(rng.choice(["auto", "auto", "auto", "fp32", "fp16"])),
            "demosaic": str(rng.choice(["auto", "auto", *METHODS])),
            "co_sited": not self._maybe(),
            "ssim_mode": str(rng.choice(["consistency", "temporal", "reference"])),
            "min_intensity": float(rng.choice([0.0, 0.01, 0.05])),
            "polarizer_angle": float(rng.uniform(0, 180)),
            "color_style": str(rng.choice(["plain", "light", "dark", "faded"])),
            "flip": (self._maybe(), self._maybe()),
            "bit_depth": self.bits if self.bits > 8 else 0,
        }
        if self._maybe():
            found.update(ssim_stride=int(rng.integers(1, 5)), ssim_window=int(2 * rng.integers(2, 7) + 1))
        if self._maybe():
            found["calibration"] = realistic_calibration(
                get_sensor(self.sensor), tuple(side + 20 for side in self.shape)
            )
        if self._maybe(0.5):
            found["roi_offset"] = tuple(int(k) for k in rng.integers(0, 5, 2))
        has_geometry = self._maybe()
        if has_geometry:
            found.update(self._geometry())
        elif self._maybe():
            found.update(debias=self._maybe(0.5), max_aolp_sigma=float(rng.choice([0.0, 5.0])), camera_gain=3.0)
        if self._maybe():
            found.update(denoise=str(rng.choice(["auto", "on"])), denoise_strength=float(rng.uniform(0.5, 4)))
        usable = [name for name in PRODUCTS if not (has_geometry and name in NOISE_PRODUCTS)]
        number = int(rng.integers(1, len(usable) + 1)) if self._maybe() else int(rng.integers(1, 6))
        found["products"] = tuple(str(name) for name in rng.choice(usable, number, replace=False))
        found["dtype"] = {name: str(rng.choice(PRODUCTS[name].types)) for name in found["products"]}
        if found["resolution"] == "full" and not get_sensor(self.sensor).is_color and "denoise" not in found:
            found["demosaic"] = "learned" if self._maybe(0.5) else found["demosaic"]
        return found

    def _geometry(self) -> Dict[str, Any]:
        found: Dict[str, Any] = {"rotate": int(self._rng.choice([0, 90, 180, 270]))}
        if self._maybe(0.5):
            found["scale"] = 2
        if self._maybe(0.5):
            found["rectify"] = self._lens()
        if set(found) == {"rotate"} and not found["rotate"]:
            found["rotate"] = 90
        if self._number % 2:
            found["roi"] = (self._number % 5, self._number % 7, 0, 0)
        return found

    def _lens(self) -> LensCalibration:
        (height, width), rng = self.shape, self._rng
        focal, zoom = rng.uniform(0.8, 1.5) * width, rng.uniform(0.8, 1.3)
        center = (width / 2 + rng.uniform(-3, 3), height / 2 + rng.uniform(-3, 3))
        matrix = (focal, 0.0, center[0], 0.0, focal, center[1], 0.0, 0.0, 1.0)
        projection = (focal * zoom, 0.0, center[0], 0.0, 0.0, focal * zoom, center[1], 0.0, 0.0, 0.0, 1.0, 0.0)
        distortion = (*rng.uniform(-0.1, 0.1, 2), *rng.uniform(-0.002, 0.002, 2), 0.0)
        return make_lens((height, width), "plumb_bob", distortion, matrix, (0.0,) * 9, projection)

    def _frame(self) -> Any:
        """A random frame, as numbers or as a camera packs them."""
        mosaic = random_mosaic(self._rng, self.options.read_out(self.shape), self.shape, self.bits)
        if self._packing:
            fmt = FORMATS[self._packing]
            return frame_from_buffer(pack(mosaic, fmt), fmt, *self.shape)
        return RawFrame(mosaic, (1 << self.bits) - 1)

    def compared_with(self) -> Optional[np.ndarray]:
        """What SSIM compares with, beside the frame: S0/2 of the one before, or an image."""
        return None if self.options.ssim_mode == "consistency" else intensity_of(self.before, self.options)


def random_mosaic(rng: np.random.Generator, sensor: Sensor, shape: Tuple[int, int], bits: int) -> np.ndarray:
    """Raw numbers: a crop of a real frame with random lower bits, or a synthetic scene with noise."""
    if rng.random() < 0.5:
        name = str(rng.choice(["fruits", "camera"]))
        top, left = (int(rng.integers(0, limit - size)) for limit, size in zip((2048, 2448), shape))
        crop = real_frame(f"imx250mzr_{name}.png")[top : top + shape[0], left : left + shape[1]]
        low = rng.integers(0, 1 << (bits - 8), shape) if bits > 8 else 0
        mosaic = (crop.astype(np.int64) << (bits - 8)) + low
    else:
        scene = synthetic(str(rng.choice(SCENES)), shape, int(rng.integers(100)), is_color=sensor.is_color)
        mosaic = expose(scene * rng.uniform(0.3, 1.2), sensor, bits, 10_000.0, 2.4, rng)
    return mosaic.astype(np.uint8 if bits == 8 else np.uint16)


def intensity_of(frame: Any, options: Options) -> np.ndarray:
    """S0/2 of a frame, which is not denoised."""
    plain = as_floats(options, "intensity", ssim_mode="consistency", denoise="off")
    image = np.nan_to_num(run_reference(frame, plain)["intensity"])
    return (image @ [0.25, 0.5, 0.25] if image.ndim == 3 else image).astype(np.float32)


def run_backend(case: Case, driver: Any) -> Any:
    """What a GPU, or a stand-in, makes of a case's frame."""
    options = case.options
    made = CudaBackend(options, driver)
    other = case.compared_with()
    if options.ssim_mode == "temporal":
        made.submit(case.before)()
    found = made.submit(case.frame, other if options.ssim_mode == "reference" else None)()
    made.close()
    return found


def run_cpu(case: Case) -> Any:
    """The same on the CPU, in float."""
    arguments = {**case.arguments, "precision": "fp32"}
    with Pipeline(case.sensor, backend="cpu", **arguments) as pipeline:
        other = case.compared_with()
        if case.options.ssim_mode == "temporal":
            pipeline(case.before)
        return pipeline(case.frame, reference=other if case.options.ssim_mode == "reference" else None)


def check(numbers: range, driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for number in numbers:
        monkeypatch.setattr(program, "MIN_DIVIDED_BYTES", 512 if number % 2 else 1 << 20)
        case = Case(number)
        truth = run_floats(case.frame, case.options, case.compared_with())
        lines = problems_of(case.options, case.frame, run_backend(case, driver), truth)
        wrong += [f"{number}: {line}" for line in lines]
    assert not wrong, "\n".join(wrong)


@pytest.mark.scaled
@pytest.mark.parametrize(("device", "first"), [(MAPPED, 0), (COPIED, HOST_COUNT)], ids=STAND_INS)
def test_random_pipelines_on_stand_ins(device: Device, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(range(first, first + HOST_COUNT), stand_in(device), monkeypatch)


@pytest.mark.parametrize("bits", [10, 12, 16])
def test_a_geometry_keeps_the_precision_of_floats(bits: int) -> None:
    """Planes of more than 8 bits are float: products are within 2e-5, not the 7e-4 of planes of half."""
    pixels = np.random.default_rng(bits).integers(0, 1 << bits, (64, 96)).astype(np.uint16)
    frame, products = RawFrame(pixels, (1 << bits) - 1), ("intensity", "stokes")
    options = make_options(products=products, rotate=90, scale=2, min_intensity=0.0, dtype="float32")
    found, exact = CudaBackend(options, stand_in(COPIED)).submit(frame)(), run_reference(frame, options)
    for name in products:
        np.testing.assert_allclose(found[name], exact[name], rtol=0, atol=2e-5)


@pytest.mark.parametrize("first", first_of(range(0, 5 * EACH, EACH), 2))
def test_random_pipelines_on_the_cpu(first: int) -> None:
    """Within the bounds of floats."""
    wrong = []
    for number in range(first, first + EACH):
        case = Case(number)
        options = replace(case.options, precision="fp32")
        out, planes = run_cpu(case), GEOMETRY_BOUND if "rectify" in case.arguments else 0.0
        truth = run_floats(case.frame, options, case.compared_with())
        lines = problems_of(options, case.frame, out, truth, planes, strays=0)
        if out.invalid != truth["invalid"]:
            lines.append(f"{out.invalid} invalid pixels, not {truth['invalid']}")
        wrong += [f"{number}: {line}" for line in lines]
    assert not wrong, "\n".join(wrong)


@pytest.mark.gpu
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(0, COUNT, EACH))
def test_random_pipelines(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real_driver("gpu")
    check(range(first, min(first + EACH, COUNT)), gpu_driver(), monkeypatch)


@pytest.mark.gpu
@pytest.mark.whole_gpu
def test_device_memory_after_pipelines_that_were_dropped() -> None:
    """Without `close`: what 30 pipelines took is free again."""
    driver = real_driver("gpu")
    raw = np.random.default_rng(0).integers(0, 200, (1024, 1024)).astype(np.uint8)

    def free() -> int:
        gc.collect()
        found, _ = driver._call(driver._runtime.memGetInfo)
        return int(found)

    def make_pipeline(k: int) -> Tuple[int, ...]:
        pipeline = Pipeline(products=("intensity", "dolp", "ssim"), backend="cuda", min_intensity=k / 100)
        return pipeline(raw)["intensity"].shape

    make_pipeline(0)
    before = free()
    for k in range(30):
        make_pipeline(k)
    assert free() >= before - (2 << 20), "a pipeline's kernels and frames take 25 MiB"
