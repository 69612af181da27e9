"""Frames and outputs of polarization launches on a GPU, and their check against the float64 reference."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Dict, Tuple

import numpy as np
from timing import cupy, moved, scene

from polar_pipeline import RawFrame
from polar_pipeline.backends import reference
from polar_pipeline.backends.cuda.arguments import FRAME_ARGUMENT
from polar_pipeline.backends.cuda.correction import fill_argument
from polar_pipeline.backends.cuda.work import CAMERA_FORMATS, OUTPUTS, PolarizationWork
from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.options import Options, make_options
from polar_pipeline.options.products import PRODUCTS
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


def sensor_name(work: PolarizationWork) -> str:
    """The sensor whose frames a launch is measured on."""
    return "IMX250MYR" if work.sensor.is_color else "IMX250MZR"


def mosaic(work: PolarizationWork, frame: int = 0) -> np.ndarray:
    """(height, width): a scene, moved from frame to frame; 12 bits a pixel in formats of more than 8."""
    raw = moved(scene(sensor_name(work), (work.height, work.width)), frame, 16)
    return raw if work.raw_format == "u8" else raw.astype(np.uint16) * 16 + (raw > 127) * np.uint16(15)


def raw_frames(work: PolarizationWork, count: int) -> Any:
    """(count, height, bytes of a row) uint8 on the GPU: the mosaics as a camera sends them."""
    pixels, camera = mosaic(work), CAMERA_FORMATS[work.raw_format]
    step = camera.row_bytes(work.width)
    packed = pixels.tobytes() if work.raw_format in ("u8", "u16") else pack(pixels, camera)
    first = cupy.asarray(np.frombuffer(packed, np.uint8)).reshape(work.height, step)
    return cupy.stack([moved(first, k, 16 * step // work.width) for k in range(count)])


class BatchBuffers:
    """Different frames, outputs and, with a calibration, codes of a work on the GPU.

    Args:
        work: What the launch does.
        count: Frames.
    """

    def __init__(self, work: PolarizationWork, count: int) -> None:
        self.raw = raw_frames(work, count)
        self.counts = cupy.zeros((count, 2), cupy.uint32)
        self.sizes = {name: replace(work, outputs=((name, dtype),)).written_bytes for name, dtype in work.outputs}
        self.out = {name: cupy.zeros((count, size), cupy.uint8) for name, size in self.sizes.items()}
        self._work = work
        self._correction = self._codes = None
        if work.calibrated:
            shape = (work.height, work.width)
            options = make_options(sensor_name(work), calibration=calibration(sensor_name(work), shape))
            self._correction = options.correction(shape)
            self._codes = cupy.asarray(self._correction.codes)

    @property
    def nbytes(self) -> int:
        """Bytes that a launch on all frames has to move; a calibration is read once for each frame."""
        frame = self.raw[0].nbytes + sum(self.sizes.values()) + (self._codes.nbytes if self._correction else 0)
        return int(frame * len(self.raw))

    def argument(self, first: int = 0) -> np.ndarray:
        """The kernel's argument, for the batch that begins at a frame."""
        work, frame = self._work, np.zeros((), FRAME_ARGUMENT)
        frame["raw"] = self.raw.data.ptr + first * self.raw[0].nbytes
        frame["counts"] = self.counts.data.ptr + 8 * first
        for name, array in self.out.items():
            frame["out"][OUTPUTS.index(name)] = array.data.ptr + first * self.sizes[name]
        frame["raw_stride"], frame["step"] = self.raw[0].nbytes, self.raw.shape[2]
        frame["width"], frame["height"] = work.width, work.height
        frame["full_scale"], frame["min_intensity"] = work.full_scale, 0.01
        if self._correction:
            fill_argument(frame, self._correction, self._codes.data.ptr)
        return frame

    def image(self, name: str, frame: int) -> np.ndarray:
        """An output as it was stored."""
        work = self._work
        shape = PRODUCTS[name].shape(work.output_size, work.sensor.is_color)
        return self.out[name][frame].get().view(work.dtypes[name]).reshape(shape)


def check(buffers: BatchBuffers, work: PolarizationWork, options: Options) -> Dict[str, float]:
    """Compare the upper left corner of the first and the last frame with the float64 reference.

    Args:
        buffers: After a launch on all frames.
        work: The launch.
        options: What it computes, with the calibration.

    Returns:
        Product -> largest error in levels: of 255 to full scale, AoLP of 256 around the circle where DoLP is at least
        0.05, DoLP where S0 is at least 0.1. Pixels whose S0 is within a level of `min_intensity` do not count.

    Raises:
        SystemExit: An error is above one level, or other pixels are masked.
    """
    worst: Dict[str, float] = {}
    scale = 2 if work.half else 1
    exact_options = replace(options, products=("stokes",), dtype=(("stokes", "float32"),), min_intensity=0.0)
    height, width = (side - _MARGIN for side in _CORNER)
    corner = (slice(0, height // scale), slice(0, width // scale))
    for k in (0, len(buffers.raw) - 1):
        corner_of_mosaic = mosaic(work, k)[: _CORNER[0], : _CORNER[1]]
        frame = RawFrame(np.ascontiguousarray(corner_of_mosaic), work.full_scale)
        wanted = reference.run(frame, options)
        with np.errstate(invalid="ignore"):
            vector = reference.run(frame, exact_options)["stokes"][corner]
            s0, degree = vector[..., 0], np.hypot(vector[..., 1], vector[..., 2]) / vector[..., 0]
        clear = ~(np.abs(s0 - options.min_intensity) < 1 / 255)
        for name in (name for name in options.products if name in work.dtypes):
            got, want = buffers.image(name, k)[corner], wanted[name][corner]
            fair = clear & ~((name == "aolp") & (degree < 0.05)) & ~((name == "dolp") & (s0 < 0.1))
            error = _levels(name, got, want)[fair]
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
