"""Random pipelines on random frames: the CPU and the GPU against the float64 reference, within the documented bounds.

`POLAR_RANDOM_PIPELINES=1000 POLAR_RANDOM_SEED=1 pytest -m gpu test/cuda/test_random_pipelines.py` tries as many
others. The bounds are those of `docs/performance.md`, "Errors", and of `docs/geometry.md`, "On a GPU".
"""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import pytest
from calibrations import realistic_calibration
from harness import gpu_driver
from support import real_frame
from test_backend import COPIED, MAPPED, STAND_INS, real_driver, stand_in

from polar_pipeline import Pipeline, reference
from polar_pipeline.cuda.backend import CudaBackend
from polar_pipeline.cuda.device import Device
from polar_pipeline.geometry import LensCalibration, make_lens
from polar_pipeline.options import Options, make_options
from polar_pipeline.plan import make_plan
from polar_pipeline.products import NOISE_PRODUCTS, PRODUCTS, invalid_level, level_scale
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.frames import FORMATS, RawFrame, frame_from_buffer, pack
from polar_pipeline.sensor.mosaic import get_sensor
from polar_pipeline.sensor.scene import SCENES, synthetic

COUNT = int(os.environ.get("POLAR_RANDOM_PIPELINES", "60"))
SEED = int(os.environ.get("POLAR_RANDOM_SEED", "0"))
#: Pipelines of a test: the GPU tests are spread over processes by number.
EACH = 20
HOST_COUNT = 3
SENSORS = ("IMX250MZR", "IMX250MYR")
#: Where S0 is this close to `min_intensity`, pixels may count as dark or not: in half, in float.
DARK_BAND = {True: 1e-3, False: 1e-5}
#: What is off by at most this much, by half precision; with a geometry; planes of half are interpolated there.
LIGHT_BOUND, GEOMETRY_BOUND = {True: 1 / 255, False: 2e-5}, 1.5e-3
DOLP_BOUND, AOLP_BOUND = 2e-3, np.deg2rad(0.5)
#: From the raw frame to the map, and with a geometry; with `precision: fp16`, which rounds what is compared.
SSIM_BOUND, SSIM_GEOMETRY_BOUND, SSIM_HALF_BOUND = 1e-3, 2e-3, 6e-3
#: By ADR at full resolution in half, a part of the pixels may exceed a bound by a factor; an angle by this over DoLP.
ADAPTIVE_SHARE, ADAPTIVE_FACTOR, ADAPTIVE_ANGLE = 0.04, 4.0, 0.01
#: Levels of 8 bit: two steps of the map of angles, one of degrees, and rounding.
COLOR_LEVELS = {"aolp_color": 9, "dolp_color": 5}


class Case:
    """A random pipeline and its frame; the same for the same number."""

    def __init__(self, number: int) -> None:
        self._rng = np.random.default_rng((SEED, number))
        self.sensor = str(self._rng.choice(SENSORS))
        self.shape = tuple(int(side) for side in self._rng.integers(40, 140, 2))
        self.bits = int(self._rng.choice([8, 8, 8, 10, 12, 16]))
        self.has_geometry = False
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
            "demosaic": str(rng.choice(["auto", "auto", "bilinear", "gradient", "adaptive"])),
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
            found["calibration"] = realistic_calibration(get_sensor(self.sensor), (160, 160))
        if self._maybe(0.5):
            found["roi_offset"] = tuple(int(k) for k in rng.integers(0, 5, 2))
        self.has_geometry = self._maybe()
        if self.has_geometry:
            found.update(self._geometry())
        elif self._maybe():
            found.update(debias=self._maybe(0.5), max_aolp_sigma=float(rng.choice([0.0, 5.0])), camera_gain=3.0)
        usable = [name for name in PRODUCTS if not (self.has_geometry and name in NOISE_PRODUCTS)]
        number = int(rng.integers(1, len(usable) + 1)) if self._maybe() else int(rng.integers(1, 6))
        found["products"] = tuple(str(name) for name in rng.choice(usable, number, replace=False))
        found["dtype"] = {name: str(rng.choice(PRODUCTS[name].types)) for name in found["products"]}
        return found

    def _geometry(self) -> Dict[str, Any]:
        found: Dict[str, Any] = {"rotate": int(self._rng.choice([0, 90, 180, 270]))}
        if self._maybe(0.5):
            found["scale"] = 2
        if self._maybe(0.5):
            found["rectify"] = self._lens()
        if set(found) == {"rotate"} and not found["rotate"]:
            found["rotate"] = 90
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
        """A crop of a real frame or a synthetic scene, as numbers or as a camera packs them."""
        rng, sensor = self._rng, self.options.read_out(self.shape)
        if self._maybe(0.5):
            name = str(rng.choice(["fruits", "camera"]))
            top, left = (int(rng.integers(0, limit - size)) for limit, size in zip((2048, 2448), self.shape))
            crop = real_frame(f"imx250mzr_{name}.png")[top : top + self.shape[0], left : left + self.shape[1]]
            low = rng.integers(0, 1 << (self.bits - 8), self.shape) if self.bits > 8 else 0
            mosaic = (crop.astype(np.int64) << (self.bits - 8)) + low
        else:
            scene = synthetic(str(rng.choice(SCENES)), self.shape, int(rng.integers(100)), is_color=sensor.is_color)
            mosaic = expose(scene * rng.uniform(0.3, 1.2), sensor, self.bits, 10_000.0, 2.4, rng)
        if self.bits == 8:
            return RawFrame(mosaic.astype(np.uint8), 255)
        if self._packing:
            fmt = FORMATS[self._packing]
            return frame_from_buffer(pack(mosaic.astype(np.uint16), fmt), fmt, *self.shape)
        return RawFrame(mosaic.astype(np.uint16), (1 << self.bits) - 1)

    def compared_with(self) -> Optional[np.ndarray]:
        """What SSIM compares with, beside the frame: S0/2 of the one before, or an image."""
        if self.options.ssim_mode == "consistency":
            return None
        asked = replace(
            self.options, products=("intensity",), dtype=(("intensity", "float32"),), ssim_mode="consistency"
        )
        image = np.nan_to_num(run_reference(self.before, asked)["intensity"])
        return (image @ [0.25, 0.5, 0.25] if image.ndim == 3 else image).astype(np.float32)


def run_reference(frame: Any, options: Options, other: Optional[np.ndarray] = None) -> Dict[str, Any]:
    """What the float64 reference makes of a frame, defects replaced."""
    seen, correction = frame.unpack(), options.correction(frame.shape)
    if correction is not None:
        seen = correction.replace_defects(seen)
    return reference.run(seen, options.read_out(frame.shape), make_plan(options.products), options, other)


def run_backend(case: Case, driver: Any) -> Any:
    """What a GPU, or a stand-in, makes of a case's frame."""
    options = case.options
    made = CudaBackend(options, driver)
    other = case.compared_with()
    if options.ssim_mode == "temporal":
        made.result(made.submit(case.before))
    found = made.result(made.submit(case.frame, other if options.ssim_mode == "reference" else None))
    made.close()
    return found


def run_cpu(case: Case) -> Dict[str, np.ndarray]:
    """The same on the CPU, in float."""
    arguments = {**case.arguments, "precision": "fp32"}
    with Pipeline(case.sensor, backend="cpu", **arguments) as pipeline:
        other = case.compared_with()
        if case.options.ssim_mode == "temporal":
            pipeline(case.before)
        return dict(pipeline(case.frame, reference=other if case.options.ssim_mode == "reference" else None))


def as_float(name: str, image: np.ndarray) -> np.ndarray:
    """A product in the unit of its float image, with NaN where it is invalid or masked."""
    dtype = str(image.dtype)
    if dtype == "float32" or PRODUCTS[name].types == ("uint8",):
        return image.astype(np.float64)
    return image.astype(np.float64) / level_scale(name, dtype)


def problems_of(case: Case, found: Dict[str, np.ndarray], source: str) -> List[str]:
    """What lies beyond a bound, in words.

    Args:
        case: The pipeline.
        found: Its products.
        source: What made them, for the text.
    """
    options = case.options
    exact_options = replace(
        options,
        products=("stokes", "dolp"),
        dtype=(("stokes", "float32"), ("dolp", "float32")),
        ssim_mode="consistency",
        debias=False,
    )
    exact = run_reference(case.frame, replace(exact_options, min_intensity=0.0))
    s0, degree = exact["stokes"][..., 0], exact["dolp"]
    # saturated pixels have no polarization whatever their light is
    known = ~np.isnan(s0)
    s0, degree = np.nan_to_num(s0), np.nan_to_num(degree)
    half = (options.precision != "fp32" and case.frame.full_scale <= 255) or options.precision == "fp16"
    floats = replace(options, dtype=tuple((name, PRODUCTS[name].dtype("float32")) for name in options.products))
    wanted = run_reference(case.frame, floats, case.compared_with())
    is_steep = half and options.resolution == "full" and options.interpolation == "adaptive"
    decided = np.abs(s0 - options.min_intensity) > DARK_BAND[half] * (3 if case.has_geometry else 1)
    if options.max_aolp_sigma:
        asked = replace(exact_options, products=("aolp_sigma",), dtype=(("aolp_sigma", "float32"),), max_aolp_sigma=0.0)
        sigma = np.rad2deg(np.nan_to_num(run_reference(case.frame, asked)["aolp_sigma"]))
        # close to the limit, an angle may be hidden or not
        decided &= np.abs(sigma - options.max_aolp_sigma) > (0.4 if half else 0.05)
    light = max(LIGHT_BOUND[half], GEOMETRY_BOUND * case.has_geometry)
    wrong = []
    for name, image in found.items():
        got, want = as_float(name, image), np.asarray(wanted[name], np.float64)
        step = 0.0 if image.dtype == np.float32 else 1 / level_scale(name, str(image.dtype))
        if PRODUCTS[name].types == ("uint8",):
            step = 1.0
        lit, clear = known & decided & (s0 >= 0.1), known & decided & (s0 >= 0.1) & (degree >= 0.05)
        fair = np.ones(want.shape, bool)
        if name in ("ssim", "ssim_map"):
            bound = SSIM_HALF_BOUND if options.precision == "fp16" else SSIM_BOUND
            bound = max(bound, SSIM_GEOMETRY_BOUND * case.has_geometry)
            want = np.clip(want, 0, 1) if step else want
        elif name == "dolp":
            fair, bound = lit, DOLP_BOUND / (s0.clip(0.1) if case.has_geometry else 1)
        elif name in ("aolp", "aolp_sigma"):
            fair, bound = clear, AOLP_BOUND
            if case.has_geometry:
                bound = np.maximum(bound, GEOMETRY_BOUND / degree.clip(0.05) / s0.clip(0.1))
            if name == "aolp_sigma" and half:
                bound = np.deg2rad(0.2) + 0.05 / degree.clip(0.05) * np.nan_to_num(want)
        elif name == "dolp_sigma":
            fair, bound = lit, LIGHT_BOUND[half]
        elif name in ("preview", *COLOR_LEVELS):
            fair, bound = np.broadcast_to((clear if name != "dolp_color" else lit)[..., np.newaxis], want.shape), 0.0
            step = float(COLOR_LEVELS.get(name, 1)) + case.has_geometry
        elif name == "stokes":
            fair, bound = np.broadcast_to((known & decided)[..., np.newaxis], want.shape), 2 * light
        else:
            bound = light
            want = np.clip(want, 0, 1) if step else want
        is_missing = np.isnan(want)
        if image.dtype == np.float32:
            apart = (np.isnan(got) != is_missing) & fair
            if apart.sum() > 0.01 * apart.size * case.has_geometry:
                wrong.append(f"{source} {name}: {apart.sum()} of {apart.size} pixels are invalid on one side only")
        elif name in ("dolp", "aolp", *NOISE_PRODUCTS):
            missed = (image != invalid_level(name, str(image.dtype))) & is_missing & fair
            if missed.sum() > 0.01 * missed.size * case.has_geometry:
                wrong.append(f"{source} {name}: {missed.sum()} of {missed.size} invalid pixels have a value")
        error = np.abs(got - want)
        if name == "aolp":
            error = np.minimum(error, np.pi - error)
        with np.errstate(invalid="ignore"):
            # pixels beyond: sigma decides by a threshold of its own
            beyond = (error > bound + step * 1.001) & fair & ~is_missing & ~np.isnan(got)
        if is_steep and beyond.sum() <= ADAPTIVE_SHARE * error.size and not name.startswith("ssim"):
            is_angle = name in ("aolp", "aolp_sigma")
            widest = ADAPTIVE_ANGLE / degree.clip(0.05) if is_angle else ADAPTIVE_FACTOR * (bound + step)
            with np.errstate(invalid="ignore"):
                beyond &= error > widest
        if case.has_geometry and PRODUCTS[name].types == ("uint8",) and beyond.sum() <= 0.01 * beyond.size:
            continue  # pixels that are invalid on one side only
        if beyond.any():
            worst = float(np.where(beyond, error, 0).max())
            wrong.append(f"{source} {name} {image.dtype}: {beyond.sum()} of {error.size} beyond, up to {worst:.3g}")
    return wrong


def check(numbers: range, driver: Any) -> None:
    wrong = []
    for number in numbers:
        case = Case(number)
        made = run_backend(case, driver)
        lines = problems_of(case, made.products, "gpu") + problems_of(case, run_cpu(case), "cpu")
        if lines:
            shown = {name: value for name, value in case.arguments.items() if name not in ("calibration", "rectify")}
            more = [name for name in ("calibration", "rectify") if name in case.arguments]
            wrong.append("\n  ".join([f"{number}: {case.sensor} {case.shape} {case.bits} bit {shown} {more}", *lines]))
    assert not wrong, f"{len(wrong)} of {len(numbers)} pipelines:\n" + "\n".join(wrong)


@pytest.mark.scaled
@pytest.mark.parametrize(("device", "first"), [(MAPPED, 0), (COPIED, HOST_COUNT)], ids=STAND_INS)
def test_random_pipelines_on_stand_ins(device: Device, first: int) -> None:
    check(range(first, first + HOST_COUNT), stand_in(device))


@pytest.mark.parametrize("first", range(0, 5 * EACH, EACH))
def test_random_pipelines_on_the_cpu(first: int) -> None:
    """Within the bounds of floats."""
    wrong = []
    for number in range(first, first + EACH):
        case = Case(number)
        case.options = replace(case.options, precision="fp32")
        wrong += [f"{number}: {line}" for line in problems_of(case, run_cpu(case), "cpu")]
    assert not wrong, "\n".join(wrong)


@pytest.mark.gpu
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(0, COUNT, EACH))
def test_random_pipelines(first: int) -> None:
    real_driver("gpu")
    check(range(first, min(first + EACH, COUNT)), gpu_driver())


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
