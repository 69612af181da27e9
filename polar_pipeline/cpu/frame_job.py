"""A frame that the CPU backend computes: its mosaic with borders, its outputs, and how it is divided into strips."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import List, NamedTuple, Optional, Tuple

import cv2
import numpy as np

from polar_pipeline.backend import Buffers
from polar_pipeline.cpu.correction import correct
from polar_pipeline.cpu.images import COLOR_HALO, MONO_HALO, reflected
from polar_pipeline.cpu.kernel_products import KERNEL_PRODUCTS, make_noise, make_products
from polar_pipeline.cpu.kernels import Kernels, is_by_superpixel, mosaic_scale
from polar_pipeline.cpu.strips import display, strips
from polar_pipeline.noise import noise_model, uses_noise
from polar_pipeline.options import Options
from polar_pipeline.plan import Plan, expand
from polar_pipeline.products import INVALID_BYTES, PRODUCTS
from polar_pipeline.sensor.frames import RawFrame

#: Operators that make angle images and masks from the mosaic.
_MOSAIC_OPERATORS = {"angles", "saturated"}
#: Float images of a strip's size that exist at once, as measured with ADR in mono and with all methods in colour.
_TEMPORARIES = 24


class Border(NamedTuple):
    """Where the pixels beyond the frame come from."""

    halo: int
    rows: np.ndarray
    columns: np.ndarray

    def strip(self, mosaic: np.ndarray, first: int, end: int) -> np.ndarray:
        """Rows first .. end of the mosaic with `halo` on every side, reflected in phase beyond the frame."""
        halo, width = self.halo, mosaic.shape[1]
        rows = self.rows[first : end + 2 * halo]
        out = np.empty((len(rows), width + 2 * halo), mosaic.dtype)
        inside = out[:, halo:-halo]
        low, high = max(0, halo - first), len(rows) - max(0, end + halo - mosaic.shape[0])
        inside[low:high] = mosaic[rows[low] : rows[high - 1] + 1]
        inside[:low] = mosaic[rows[:low]]
        inside[high:] = mosaic[rows[high:]]
        out[:, :halo] = inside[:, self.columns[:halo]]
        out[:, -halo:] = inside[:, self.columns[-halo:]]
        return out


class FrameJob:
    """One frame being computed: its padded mosaic, its outputs, and what its strips share."""

    def __init__(
        self, frame: RawFrame, plan: Plan, options: Options, buffers: Buffers, kernels: Optional[Kernels]
    ) -> None:
        correction = options.correction(frame.shape)
        if correction is not None:
            frame = correction.replace_defects(frame, buffers.get)
        mosaic = frame.mosaic
        self.frame = frame
        self.correction = correction
        self.kernels = kernels
        self.plan = plan
        self.options = options
        self.full_scale = frame.full_scale
        self.sensor = options.read_out(mosaic.shape)
        self.half = options.resolution == "half"
        self.raw_size: Tuple[int, int] = mosaic.shape
        self.size = options.output_size(self.raw_size)
        self.mono_halo = MONO_HALO[options.interpolation]
        self.color_halo = COLOR_HALO[options.debayer] if self.sensor.is_color else 0
        period = self.sensor.period
        self.halo = -(-(self.mono_halo + self.color_halo) // period) * period
        self.mosaic = mosaic
        height, width = mosaic.shape
        stride = period // 2
        self.border = Border(self.halo, reflected(height, self.halo, stride), reflected(width, self.halo, stride))
        self.out = {
            name: buffers.get(options.shape_of(name, self.size), options.dtype_of(name)) for name in plan.products
        }
        #: How the angles that a pixel lacks are found, of the kernels' `METHODS`.
        self.method = "own_site" if self.half and not options.co_sited else options.interpolation
        #: Whether the compiled kernels start from the mosaic, rather than from angle images.
        self.is_from_mosaic = kernels is not None and not self.sensor.is_color
        #: Operators of the first stage that the compiled kernels compute, and those that `Strip` computes.
        self.kernel_operators, self.strip_operators = self._divide()
        is_corrected = correction is not None
        #: The noise of the frame; None if no product depends on it.
        self.noise = noise_model(options, self.sensor, self.full_scale) if uses_noise(options) else None
        scale = mosaic_scale(self.full_scale, self.method, self.half, is_corrected) if self.is_from_mosaic else 1.0
        pairs = (2 if options.ssim_mode == "consistency" else 1) if plan.window else 0
        has_integers = self.is_from_mosaic and is_by_superpixel(self.method, self.half) and not is_corrected
        # Sums of two angles of an 8-bit frame are integers below 2^13: half the bytes to store and to read.
        is_uint16 = has_integers and pairs == 2 and mosaic.dtype == np.uint8
        self.pair_scale = scale / 2 if is_uint16 else 1.0
        self.pair = [buffers.get(self.size, "uint16" if is_uint16 else "float32") for _ in range(pairs)]
        min_sum = 2 * options.min_intensity / scale if "invalid" in plan.pixel else 0.0
        if has_integers:  # and float32 holds them all
            min_sum = math.ceil(min_sum)
        noise = None if self.noise is None else make_noise(self.noise, options, scale)
        self.target = make_products(self.out, self.kernel_operators, self.pair, self.size[1], scale, min_sum, noise)
        #: What strips interpolate, and what one unit of it is of full scale; `correct` changes both.
        self.values, self.scale = mosaic, 1 / frame.full_scale

    def correct(self) -> None:
        """Correct the frame by its calibration, if it has one; before any strip is computed."""
        if self.correction is not None:
            compute = self.kernels.correct if self.kernels else correct
            self.values, self.scale = compute(self.frame, self.sensor, self.correction), 1.0

    @property
    def correction_bytes(self) -> int:
        """Memory that `correct` takes: the result, and without compiled kernels one image for each parameter."""
        if self.correction is None or not self.strip_operators:
            return 0
        return 4 * self.mosaic.size * (1 if self.kernels else 8)

    @property
    def strip_bytes(self) -> int:
        """Memory that a strip takes at most while it is computed; 0 where the compiled kernels do everything."""
        if not self.strip_operators:
            return 0
        first, end = strips(self.size)[0]
        step = 2 if self.half else 1
        height, width = step * (end - first) + 2 * self.halo, self.raw_size[1] + 2 * self.halo
        return _TEMPORARIES * 4 * height * width

    def _divide(self) -> Tuple[List[str], List[str]]:
        """The operators of the first stage that compiled kernels compute, and the others."""
        pixel = self.plan.pixel
        if self.kernels is None:
            has_noise = uses_noise(self.options) and "noise" not in pixel  # only the options ask for it
            places = [(name, "noise") if has_noise and name == "polar" else (name,) for name in pixel]
            return [], [name for place in places for name in place]
        left = {*expand(name for name in pixel if name in PRODUCTS and name not in KERNEL_PRODUCTS)}
        if not self.is_from_mosaic:
            left |= _MOSAIC_OPERATORS
        return [name for name in pixel if name not in left], [name for name in pixel if name in left]

    def store(
        self, name: str, rows: Tuple[int, int], planes: List[np.ndarray], invalid_mask: Optional[np.ndarray] = None
    ) -> None:
        """Write the planes of a product, one per channel, into its rows; `invalid_mask` pixels become NaN or 0."""
        if name not in self.out:
            return
        target = self.out[name][rows[0] : rows[1]]
        if target.dtype == np.uint8:
            display(name, planes[0] if len(planes) == 1 else cv2.merge(planes), target)
        elif len(planes) == 1:
            target[...] = planes[0]
        else:
            cv2.merge(planes, target)
        if invalid_mask is not None:
            byte = INVALID_BYTES.get(name, 0)
            cv2.copyTo(_constant(target.shape, target.dtype.str, byte), invalid_mask, target)


@lru_cache(maxsize=8)
def _constant(shape: Tuple[int, ...], dtype: str, byte: int) -> np.ndarray:
    """What invalid pixels hold: NaN, or `byte` in the display encoding; read-only."""
    image = np.full(shape, np.nan if np.dtype(dtype).kind == "f" else byte, dtype)
    image.flags.writeable = False
    return image
