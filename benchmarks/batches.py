"""Frames for launches on a GPU, and the check of their products against the float64 reference."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Dict, Mapping, Tuple

import numpy as np
from timing import FRAMES, cupy, moved, scene

from polar_pipeline import RawFrame
from polar_pipeline.backends import reference
from polar_pipeline.backends.cuda.launch import Launch
from polar_pipeline.backends.cuda.polarization import CAMERA_FORMATS, PolarizationLaunch
from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.options import Options, make_options
from polar_pipeline.sensor.frames import pack

#: (height, width) of the corner of a frame that is checked, and pixels at its inner sides that are not: there the
#: reference lacks neighbors.
_CORNER, _MARGIN = (256, 512), 16


@lru_cache(maxsize=2)
def calibration(sensor: str, shape: Tuple[int, int]) -> Calibration:
    """The calibration of a sensor whose pixels deviate as real ones do, without defects."""
    rng = np.random.default_rng(2)
    parameters = PixelParameters(
        rng.normal(0.008, 0.0015, shape), rng.normal(1, 0.01, shape), *rng.normal(0, 0.01, (2, *shape))
    )
    return Calibration.from_parameters(parameters, make_options(sensor).sensor)


def _mosaic(sensor: str, raw_format: str, shape: Tuple[int, int], frame: int = 0) -> np.ndarray:
    """(height, width): a scene, moved from frame to frame; 12 bits a pixel in formats of more than 8."""
    raw = moved(scene(sensor, shape), frame, 16)
    return raw if raw_format == "u8" else raw.astype(np.uint16) * 16 + (raw > 127) * np.uint16(15)


@lru_cache(maxsize=4)
def _packed_frames(sensor: str, raw_format: str, shape: Tuple[int, int]) -> Any:
    pixels, camera, (height, width) = _mosaic(sensor, raw_format, shape), CAMERA_FORMATS[raw_format], shape
    step = camera.row_bytes(width)
    packed = pixels.tobytes() if raw_format in ("u8", "u16") else pack(pixels, camera)
    first = cupy.asarray(np.frombuffer(packed, np.uint8)).reshape(height, step)
    return cupy.stack([moved(first, k, 16 * step // width) for k in range(FRAMES)])


def _format_of(launch: Launch) -> Tuple[str, str, Tuple[int, int]]:
    assert isinstance(launch, PolarizationLaunch)
    sensor = "IMX250MYR" if launch.sensor.is_color else "IMX250MZR"
    return sensor, launch.raw_format, (launch.height, launch.width)


def raw_frames(launch: Launch) -> Any:
    """(FRAMES, height, bytes of a row) uint8 on the GPU, for a first launch: the mosaics as a camera sends them."""
    return _packed_frames(*_format_of(launch))


def check(arrays: Mapping[str, Any], launch: Launch, options: Options) -> Dict[str, float]:
    """Compare the upper left corner of the first and the last frame with the float64 reference.

    Args:
        arrays: Those of `TimedLaunches`, after a launch on all frames.
        launch: What was computed: a first launch that makes products.
        options: Options of the frames, with their calibration.

    Returns:
        Product -> largest error in levels: of 255 to full scale, AoLP of 256 around the circle where DoLP is at least
        0.05, DoLP where S0 is at least 0.1. Pixels whose S0 is within a level of `min_intensity` do not count.

    Raises:
        SystemExit: An error is above one level, or other pixels are masked.
    """
    assert isinstance(launch, PolarizationLaunch)
    worst: Dict[str, float] = {}
    scale = launch.step
    exact_options = options.changed(products=("stokes",), dtype="float32", min_intensity=0.0)
    height, width = (side - _MARGIN for side in _CORNER)
    corner = (slice(0, height // scale), slice(0, width // scale))
    for k in (0, FRAMES - 1):
        corner_of_mosaic = _mosaic(*_format_of(launch), k)[: _CORNER[0], : _CORNER[1]]
        frame = RawFrame(np.ascontiguousarray(corner_of_mosaic), launch.full_scale)
        exact = reference.run(frame, options)
        with np.errstate(invalid="ignore"):
            vector = reference.run(frame, exact_options)["stokes"][corner]
            s0, degree = vector[..., 0], np.hypot(vector[..., 1], vector[..., 2]) / vector[..., 0]
        clear = ~(np.abs(s0 - options.min_intensity) < 1 / 255)
        for name in launch.outputs:
            fair = clear & ~((name == "aolp") & (degree < 0.05)) & ~((name == "dolp") & (s0 < 0.1))
            error = _levels(name, arrays[name][k].get()[corner], exact[name][corner])[fair]
            worst[name] = round(max(worst.get(name, 0.0), float(error.max())), 3)
            if not error.max() <= 1:
                raise SystemExit(f"{name} of frame {k} is {error.max()} levels off, {np.mean(error > 1):.2%} above 1")
    return worst


def _levels(name: str, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Errors in levels, the largest of an RGB pixel or a Stokes vector; infinite where one of both is masked."""
    scale = 1.0 if got.dtype == np.uint8 else 256 / np.pi if name == "aolp" else 255.0
    error = np.abs(got.astype(float) - want) * scale
    error = np.where(np.isnan(got) & np.isnan(want), 0, np.where(np.isnan(error), np.inf, error))
    if name == "aolp":
        error = np.minimum(error, np.abs(256 - error))
    return error.max(-1) if error.ndim == 3 else error
