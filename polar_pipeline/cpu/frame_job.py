"""A frame that the CPU backend computes: its mosaic with borders, its outputs, and how it is divided into strips."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

import cv2
import numpy as np

from polar_pipeline.backend import Buffers
from polar_pipeline.cpu.correction import correct
from polar_pipeline.cpu.correction_words import correction_words
from polar_pipeline.cpu.images import COLOR_HALO, MONO_HALO, reflected
from polar_pipeline.cpu.kernel_products import KERNEL_PRODUCTS, make_noise, make_products
from polar_pipeline.cpu.kernel_transform import LinearPlanes
from polar_pipeline.cpu.kernels import Kernels, is_by_superpixel, mosaic_scale
from polar_pipeline.cpu.strips import display, strips
from polar_pipeline.noise import noise_model, uses_noise
from polar_pipeline.options import Options
from polar_pipeline.plan import Plan, expand
from polar_pipeline.products import LIGHT_PRODUCTS, PRODUCTS, invalid_level
from polar_pipeline.sensor.frames import RawFrame

#: Operators that make angle images and masks from the mosaic.
_MOSAIC_OPERATORS = {"angles", "saturated"}
#: Products whose floats are exact to some 1e-5 of full scale, which a correction in 16-bit integers is not.
_EXACT = {*LIGHT_PRODUCTS, "stokes"}
#: Operators that make the linear planes, and find invalid pixels.
_LINEAR_OPERATORS = ("angles", "grey", "sums", "stokes_planes", "saturated", "invalid")
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


def make_border(shape: Tuple[int, int], reach: int, period: int) -> Border:
    """The border of a frame whose pixels need others up to `reach` away, in complete tiles of `period` pixels."""
    halo = -(-reach // period) * period
    rows, columns = (reflected(size, halo, period // 2) for size in shape)
    return Border(halo, rows, columns)


class OutputArrays:
    """The arrays that products are written to.

    Args:
        products: What to compute.
        size: Output pixels (height, width).
        options: Those of the products.
        buffers: Where the arrays come from.

    Attributes:
        out: Arrays by product.
    """

    def __init__(self, products: Iterable[str], size: Tuple[int, int], options: Options, buffers: Buffers) -> None:
        self.out: Dict[str, np.ndarray] = {
            name: buffers.get(options.shape_of(name, size), options.dtype_of(name)) for name in products
        }

    def store(
        self, name: str, rows: Tuple[int, int], planes: List[np.ndarray], invalid_mask: Optional[np.ndarray] = None
    ) -> None:
        """Write the planes of a product, one per channel, into its rows; `invalid_mask` pixels hold `invalid_level`."""
        if name not in self.out:
            return
        target = self.out[name][rows[0] : rows[1]]
        if target.dtype != np.float32:
            display(name, planes[0] if len(planes) == 1 else cv2.merge(planes), target)
        elif len(planes) == 1:
            target[...] = planes[0]
        else:
            cv2.merge(planes, target)
        if invalid_mask is not None:
            dtype = str(target.dtype)
            cv2.copyTo(_constant(target.shape, dtype, invalid_level(name, dtype)), invalid_mask, target)


def compared_images(plan: Plan, options: Options) -> int:
    """The number of images that SSIM needs of a frame: none, S0/2, or both estimates of it."""
    return (2 if options.ssim_mode == "consistency" else 1) if plan.window else 0


class FrameJob(OutputArrays):
    """One frame being computed: its padded mosaic, its outputs, and what its strips share.

    Args:
        frame: The mosaic.
        plan: What to compute.
        options: How.
        buffers: Where its arrays come from.
        kernels: The compiled ones; None to use OpenCV.
        is_linear: Whether to compute `linear`, the planes that geometry interpolates, in place of the plan's products
            and of what SSIM compares.
    """

    def __init__(
        self,
        frame: RawFrame,
        plan: Plan,
        options: Options,
        buffers: Buffers,
        kernels: Optional[Kernels],
        is_linear: bool = False,
    ) -> None:
        correction = options.correction(frame.shape)
        if correction is not None:
            frame = correction.replace_defects(frame, buffers.get)
        mosaic = frame.mosaic
        self.frame, self.correction = frame, correction
        self.kernels = kernels
        self.plan = plan
        self.options = options
        self.full_scale = frame.full_scale
        self.sensor = options.read_out(mosaic.shape)
        self.half = options.resolution == "half"
        self.raw_size: Tuple[int, int] = mosaic.shape
        self.size = options.stokes_size(self.raw_size)
        self.mono_halo = MONO_HALO[options.interpolation]
        self.color_halo = COLOR_HALO[options.debayer] if self.sensor.is_color else 0
        self.mosaic = mosaic
        self.border = make_border(mosaic.shape, self.mono_halo + self.color_halo, self.sensor.period)
        self.halo = self.border.halo
        super().__init__(() if is_linear else plan.products, self.size, options, buffers)
        #: How the angles that a pixel lacks are found, of the kernels' `METHODS`.
        self.method = "own_site" if self.half and not options.co_sited else options.interpolation
        #: Whether the compiled kernels start from the mosaic, rather than from angle images.
        self.is_from_mosaic = kernels is not None and not self.sensor.is_color
        #: Operators of the first stage that the compiled kernels compute, and those that `Strip` computes.
        self.kernel_operators, self.strip_operators = self._divide_linear() if is_linear else self._divide()
        #: The noise of the frame; None if no product depends on it.
        self.noise = noise_model(options, self.sensor, self.full_scale) if uses_noise(options) else None
        #: The correction for frames of one byte a pixel; None where it does not suit.
        self.words = self._find_words()
        scale = self._find_scale()
        pairs = 0 if is_linear else compared_images(plan, options)
        has_integers = self.is_from_mosaic and is_by_superpixel(self.method, self.half) and correction is None
        # Sums of two angles of an 8-bit frame are integers below 2^13: half the bytes to store and to read.
        is_uint16 = has_integers and pairs == 2 and mosaic.dtype == np.uint8
        self.pair_scale = scale / 2 if is_uint16 else 1.0
        self.pair = [buffers.get(self.size, "uint16" if is_uint16 else "float32") for _ in range(pairs)]
        min_sum = 2 * options.min_intensity / scale if "invalid" in plan.pixel else 0.0
        if has_integers:  # and float32 holds them all
            min_sum = math.ceil(min_sum)
        noise = None if self.noise is None else make_noise(self.noise, options, scale)
        self.target = make_products(
            self.out, self.kernel_operators, self.pair, self.size[1], scale, min_sum, options, noise
        )
        #: What geometry interpolates; None where the products are computed directly.
        self.linear = self._make_linear(buffers, scale) if is_linear else None
        #: What strips interpolate, and what one unit of it is of full scale; `correct` changes both.
        self.values, self.scale = mosaic, 1 / frame.full_scale

    def _make_linear(self, buffers: Buffers, scale: float) -> LinearPlanes:
        """Arrays for the linear planes, which become the kernels' target."""
        count = 3 if self.sensor.is_color else 1
        channels = [buffers.get((*self.size, 4), "float32") for _ in range(count)]
        linear = LinearPlanes(channels, buffers.get(self.size, "uint8"), scale)
        self.target.linear, self.target.flags = channels[0].ctypes.data, linear.flags.ctypes.data
        return linear

    def _divide_linear(self) -> Tuple[List[str], List[str]]:
        """The operators of the linear planes that compiled kernels compute, and the others."""
        pixel = [name for name in self.plan.pixel if name in _LINEAR_OPERATORS]
        return ([], []) if self.is_from_mosaic else ([], [*pixel, "linear"])

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

    def _find_scale(self) -> float:
        """What one unit of an angle's intensity is of full scale, where the compiled kernels start."""
        if not self.is_from_mosaic:
            return 1.0
        is_corrected, by_words = self.correction is not None, self.words is not None
        return mosaic_scale(self.full_scale, self.method, self.half, is_corrected, by_words)

    def _find_words(self) -> Optional[np.ndarray]:
        """The correction in 16-bit integers, where its rounding is within the error bounds of every product."""
        if self.correction is None or not self.is_from_mosaic or not is_by_superpixel(self.method, self.half):
            return None
        if self.options.precision == "fp32":
            return None
        is_exact = any(name in _EXACT and self.options.dtype_of(name) != "uint8" for name in self.plan.products)
        if self.mosaic.dtype != np.uint8 or self.full_scale != 255 or self.noise is not None or is_exact:
            return None
        return correction_words(self.correction, self.sensor)

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


@lru_cache(maxsize=8)
def _constant(shape: Tuple[int, ...], dtype: str, value: float) -> np.ndarray:
    """An image of one value; read-only."""
    image = np.full(shape, value, dtype)
    image.flags.writeable = False
    return image
