"""A frame as the CPU kernels take it: the structures of `kernels/cpu/frame.hpp`, field by field, and their content."""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache
from typing import Dict, List, Optional, Tuple

import numpy as np

from polar_pipeline.backends.backend import Buffers, block_pixels
from polar_pipeline.backends.cpu.correction_words import WORD_FULL_SCALE, correction_words
from polar_pipeline.backends.network import CHANNELS, LAYERS, alignment, grid_size, weights
from polar_pipeline.backends.noise.gains import exposure_shares, plane_gains, stokes_gains
from polar_pipeline.backends.noise.model import exposure_noise, method_constants, raw_noise, uses_noise
from polar_pipeline.calibration import Correction
from polar_pipeline.geometry import SamplingMap
from polar_pipeline.options import Options
from polar_pipeline.options.methods import LATTICE_METHODS, METHODS
from polar_pipeline.options.products import (
    COMPONENT_PRODUCTS,
    LIGHT_PRODUCTS,
    SSIM_PRODUCTS,
    VALUE_PRODUCTS,
    invalid_level,
)
from polar_pipeline.polarimetry.coefficients import NOISE_LINEAR, gaussian
from polar_pipeline.polarimetry.colormaps import AOLP_MAP, DOLP_MAP
from polar_pipeline.sensor.frames import MAX_EXPOSURES, RawFrame
from polar_pipeline.sensor.mosaic import ANGLES, Sensor

#: How the angles that a pixel lacks are interpolated, in the order of `enum Method` in `kernels/cpu/mosaic.hpp`.
DEMOSAICS = ("own_site", *METHODS)
#: Methods on the color lattice, in the order of `enum Debayer` in `kernels/cpu/debayer.hpp`.
DEBAYERS = tuple(LATTICE_METHODS)
#: Where a channel of a pixel comes from, in the order of `enum Source` in `kernels/cpu/debayer.hpp`: its own sample,
#: green at red or blue, at green the color of its row and that of its column, red at blue and blue at red.
OWN, GREEN, ROW, COLUMN, ACROSS = range(5)
#: Products that the kernels compute, SSIM's aside, in the order of `struct Products`.
KERNEL_PRODUCTS = (
    *(f"angle_{angle}" for angle in ANGLES),
    *COMPONENT_PRODUCTS,
    *VALUE_PRODUCTS,
    *("intensity", "stokes", "aolp", "preview", "aolp_color", "dolp_color"),
)
#: Products whose floats are exact to some 1e-5 of full scale, which a correction in 16-bit integers is not.
_EXACT = {*LIGHT_PRODUCTS, "stokes"}
#: Smallest sum of four angles after a geometry: dark pixels were found before it.
_ANY_SUM = -1e30

_POINTER, _INT, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_float


class _Count(ctypes.Structure):
    _fields_ = [("saturated", _LONG), ("dark", _LONG)]


class _Mosaic(ctypes.Structure):
    _fields_ = [
        *(("raw", _POINTER), ("step", _LONG), ("is_wide", _INT), ("height", _INT), ("width", _INT)),
        *(("method", _INT), ("half", _INT), ("place", _INT * 4), ("full_scale", _INT), ("next", _INT)),
        *(("is_color", _INT), ("phase", _INT * 2), ("codes", _POINTER), ("lowest", _FLOAT * 4)),
        *(("steps", _FLOAT * 4), ("words", _POINTER)),
    ]


class _Color(ctypes.Structure):
    _fields_ = [("debayer", _INT), ("source", _INT * 48), ("corrected", _POINTER)]


class _Noise(ctypes.Structure):
    _fields_ = [
        *(("gains", _POINTER), ("period", _INT), ("channels", _INT), ("shot", _FLOAT), ("floor", _FLOAT)),
        *(("method", _FLOAT * 4), ("debiases", _INT), ("max_aolp_sigma", _FLOAT), ("left", _POINTER * 4)),
        ("means", _FLOAT * 11),
        *(("stated", _POINTER), ("stated_gains", _FLOAT * 2)),
        *(("exposures", _POINTER), ("shares", _POINTER), ("rows", _INT), ("columns", _INT), ("is_half", _INT)),
        *(("shots", _FLOAT * MAX_EXPOSURES), ("floors", _FLOAT * MAX_EXPOSURES)),
    ]


class _Image(ctypes.Structure):
    _fields_ = [("data", _POINTER), ("itemsize", _LONG)]


class _Products(ctypes.Structure):
    _fields_ = [
        *((name, _Image) for name in KERNEL_PRODUCTS),
        *(("first", _POINTER), ("second", _POINTER), ("is_uint16", _LONG), ("width", _LONG), ("scale", _FLOAT)),
        *(("min_total", _FLOAT), ("noise", ctypes.POINTER(_Noise)), ("polarizer_shares", _FLOAT * 2)),
        *(("fading", _FLOAT * 2), ("maps", _POINTER * 2), ("linear", _POINTER), ("flags", _POINTER)),
    ]


class _Transform(ctypes.Structure):
    _fields_ = [
        *((name, _POINTER) for name in ("linear", "flags", "rows", "positions", "turns")),
        *((name, _LONG) for name in ("source_height", "source_width", "origin", "right", "down")),
        *((name, _INT) for name in ("channels", "scale", "height", "width")),
        *(("turn", _FLOAT), ("next", _INT)),
    ]


class _Denoising(ctypes.Structure):
    _fields_ = [
        *((name, _POINTER) for name in ("linear", "denoised", "products", "flags")),
        *(("height", _LONG), ("width", _LONG), ("channels", _INT), ("shot", _FLOAT), ("floor", _FLOAT)),
        *(("s0_gains", _FLOAT * 3 * 3), ("polarization_gains", _FLOAT * 3), ("strength", _FLOAT)),
        *(("is_auto", _INT), ("next", _INT)),
    ]


class _Learned(ctypes.Structure):
    _fields_ = [
        *(("images", _POINTER * 2 * len(CHANNELS)), ("means", _POINTER), ("weights", _POINTER * len(LAYERS))),
        ("noise", _POINTER),
        *((name, _INT) for name in ("rows", "columns", "top", "left")),
        *(("sign", _FLOAT), ("next", _INT)),
    ]


class _Similarity(ctypes.Structure):
    _fields_ = [
        *(("first", _POINTER), ("second", _POINTER), ("outside", _POINTER), ("map", _Image), ("sums", _POINTER)),
        *(("pixels", _POINTER), ("is_uint16", _INT), ("scale", _FLOAT), ("step", _INT), ("height", _INT)),
        *(("width", _INT), ("stride", _INT), ("radius", _INT), ("next", _INT), ("taps", _FLOAT * 8)),
    ]


class Bracket(ctypes.Structure):
    """Exposures that are merged (`polar_pipeline/exposures.py`)."""

    _fields_ = [
        *(("raw", _POINTER * MAX_EXPOSURES), ("steps", _LONG * MAX_EXPOSURES)),
        *((name, _FLOAT * MAX_EXPOSURES) for name in ("lights", "shots", "floors")),
        *((name, _POINTER) for name in ("codes", "mosaic", "exposures", "moved", "differ", "deviations")),
        *((name, _INT) for name in ("count", "is_wide", "height", "width", "full_scale", "next")),
        *((name, _FLOAT) for name in ("black", "black_step", "tolerance", "offset", "limit")),
    ]


class Frame(ctypes.Structure):
    """A frame that is computed. `FrameArguments` builds it."""

    _fields_ = [
        *(("mosaic", _Mosaic), ("color", _Color), ("products", _Products), ("has_geometry", _INT)),
        *(("is_denoised", _INT), ("is_learned", _INT), ("is_compared", _INT), ("denoising", _Denoising)),
        *(("learned", _Learned), ("transform", _Transform)),
        *(("of_planes", _Products), ("compared", _Products), ("similarity", _Similarity), ("invalid", _Count)),
        ("seconds", ctypes.c_double * 3),
    ]


class FrameArguments:
    """Argument of the kernels for one frame, and the arrays that they write to.

    Args:
        raw: The mosaic.
        options: Options of the pipeline.
        sampling: The map of the output; None where outputs have the pixels of the Stokes image.
        buffers: Source of reused arrays.

    Attributes:
        frame: For `Kernels.compute`, which reads and writes arrays that this object keeps.
        out: Arrays by product.
        compared: (h, w) arrays for what SSIM compares: none, S0/2, or both estimates of it, float32 or, as sums of two
            raw numbers, uint16.
        sums, pixels: Similarity of each block added up, and the pixels of which.
    """

    def __init__(self, raw: RawFrame, options: Options, sampling: Optional[SamplingMap], buffers: Buffers) -> None:
        correction = options.correction(raw.shape)
        if correction is not None:
            raw = correction.replace_defects(raw, buffers.get)
        sensor = options.read_out(raw.shape)
        self.frame, self._options, self._buffers = Frame(), options, buffers
        self._kept: List[Optional[np.ndarray]] = []
        size = options.stokes_size(raw.shape)
        output_size = size if sampling is None else sampling.size
        self.out = {
            name: buffers.get(options.shape_of(name, output_size), options.dtype_of(name)) for name in options.products
        }
        self._fill_mosaic(raw, sensor, correction)
        scale = self._scale(raw.full_scale, correction)
        # sums of two angles of an 8-bit frame are integers below 2^13: half the bytes to store and to read
        has_integers = not sensor.is_color and correction is None and self._is_by_superpixel
        pairs = (2 if options.ssim_mode == "consistency" else 1) if options.has_ssim else 0
        is_uint16 = has_integers and pairs == 2 and raw.mosaic.dtype == np.uint8 and options.geometry is None
        self.compared = [buffers.get(output_size, "uint16" if is_uint16 else "float32") for _ in range(pairs)]
        self._compared_scale = scale / 2 if is_uint16 else 1.0
        min_total = 2 * options.min_intensity / scale if options.counts_dark else 0.0
        if has_integers:  # and float32 holds them all
            min_total = math.ceil(min_total)
        is_denoised = options.denoising != "off"
        products = compared = self.frame.products
        if sampling is not None or is_denoised:  # products of linear planes; where pixels are dark was found before
            self._fill_planes(size, 3 if sensor.is_color else 1, scale, min_total)
            products, min_total = self.frame.of_planes, _ANY_SUM
        if sampling is not None:
            self._fill_transform(sampling)
            compared = self.frame.compared if is_denoised else products
        products.width = output_size[1]
        self._fill_products(products, scale, min_total)
        if uses_noise(options):
            self._fill_noise(products, scale, sensor, raw)
        if is_denoised:
            self._fill_denoising(scale, sensor, raw.full_scale)
        if options.is_learned:
            self._fill_learned(sensor)
        self._fill_compared(compared, output_size[1], scale)

    def _keep(self, array: Optional[np.ndarray]) -> Optional[int]:
        """Keep an array, if there is one, and return its address."""
        self._kept.append(array)
        return None if array is None else array.ctypes.data

    def _fill_mosaic(self, raw: RawFrame, sensor: Sensor, correction: Optional[Correction]) -> None:
        options, mosaic = self._options, raw.mosaic
        if mosaic.strides[1] != mosaic.itemsize or not mosaic.flags.aligned:
            mosaic = mosaic.copy()
        half = options.resolution == "half"
        method = "own_site" if half and not options.co_sited else options.interpolation
        # the samples of a superpixel and beside it suffice, so that nothing is computed at full resolution
        self._is_by_superpixel = half and method in ("own_site", "bilinear")
        to = self.frame.mosaic
        to.raw, to.step, to.is_wide = self._keep(mosaic), mosaic.strides[0], mosaic.itemsize == 2
        (to.height, to.width), to.method, to.half = mosaic.shape, DEMOSAICS.index(method), half
        to.place = tuple(2 * row + column for row, column in map(sensor.position, ANGLES))
        to.full_scale, to.is_color = raw.full_scale, sensor.is_color
        if correction is not None:
            to.phase, to.codes = correction.phase, self._keep(correction.codes)
            to.lowest, to.steps = zip(*correction.diagonal_scales)
            to.words = self._keep(self._words(raw, correction))
        if sensor.is_color:
            color = self.frame.color
            color.debayer, color.source = DEBAYERS.index(options.debayer), color_sources(sensor)
            if correction is not None:
                color.corrected = self._keep(self._buffers.get(raw.shape, "float32"))

    def _words(self, raw: RawFrame, correction: Correction) -> Optional[np.ndarray]:
        """Return the correction in 16-bit integers, or None if its rounding exceeds the error bound of a product."""
        options = self._options
        if (
            options.denoising != "off"
            or correction.sensor.is_color
            or not self._is_by_superpixel
            or options.precision == "fp32"
            or uses_noise(options)
        ):
            return None
        is_exact = any(name in _EXACT and options.dtype_of(name) != "uint8" for name in options.products)
        if raw.mosaic.dtype != np.uint8 or raw.full_scale != 255 or is_exact:
            return None
        return correction_words(correction)

    def _scale(self, full_scale: int, correction: Optional[Correction]) -> float:
        """Return one unit of an angle's intensity as a share of full scale, in mono frames.

        A raw number at its own site, and a sixteenth of it in means over superpixels; elsewhere, and of corrected
        pixels, one level of 255 in its place, or a unit of `correction_words`.
        """
        mosaic = self.frame.mosaic
        if mosaic.is_color:
            return 1.0
        if not self._is_by_superpixel:
            return 1 / 255
        if correction is not None:
            full_scale = WORD_FULL_SCALE if mosaic.words else 255
        return 1 / (full_scale * (16 if DEMOSAICS[mosaic.method] == "bilinear" else 1))

    def _fill_products(self, to: _Products, scale: float, min_total: float) -> None:
        """Fill in the memory of the products.

        Args:
            to: Structure to fill.
            scale: One unit of an angle's intensity as a share of full scale.
            min_total: Smallest sum of the four angles, in such units, that has a polarization.
        """
        options = self._options
        to.scale, to.min_total, to.polarizer_shares, to.fading = scale, min_total, options.polarizer, options.fading
        to.maps[:] = AOLP_MAP.ctypes.data, DOLP_MAP.ctypes.data
        for name, array in self.out.items():
            if name in KERNEL_PRODUCTS:
                setattr(to, name, _Image(array.ctypes.data, array.itemsize))

    def _fill_noise(self, to: _Products, scale: float, sensor: Sensor, raw: RawFrame) -> None:
        """Fill in the noise of the frame, on which a product depends."""
        options = self._options
        method = options.method_on(sensor)
        gains, (shots, floors) = stokes_gains(*method), zip(*exposure_noise(options, raw))
        period, _, channels, *_ = gains.shape
        constants = NOISE_LINEAR if options.is_learned else method_constants(*method)
        limit = np.deg2rad(options.max_aolp_sigma) if options.max_aolp_sigma else np.pi
        floors = tuple(floor / scale**2 for floor in floors)
        numbers = (shots[0] / scale, min(floors), (_FLOAT * 4)(*constants), options.debias, limit)
        noise = _Noise(self._keep(gains), period, channels, *numbers)
        if raw.exposures is not None:
            index = np.ascontiguousarray(raw.exposures.index)
            noise.exposures, noise.shares = self._keep(index), self._keep(exposure_shares(*method))
            (noise.rows, noise.columns), noise.is_half = index.shape, options.resolution == "half"
            noise.shots[: len(shots)], noise.floors[: len(shots)] = [shot / scale for shot in shots], floors
        to.noise = ctypes.pointer(noise)

    def _fill_planes(self, size: Tuple[int, int], channels: int, scale: float, min_total: float) -> None:
        """Fill in the linear planes that the mosaic gives, and that later stages read."""
        planes, transform, denoising = self.frame.products, self.frame.transform, self.frame.denoising
        planes.linear = self._keep(self._buffers.get((channels, *size, 4), "float32"))
        planes.flags = self._keep(self._buffers.get(size, "uint8"))
        planes.width, planes.scale, planes.min_total = size[1], scale, min_total
        for to in (transform, denoising):
            to.linear, to.channels = planes.linear, channels
        (transform.source_height, transform.source_width) = (denoising.height, denoising.width) = size

    def _fill_transform(self, sampling: SamplingMap) -> None:
        """Fill in a geometry."""
        height, width = sampling.source
        to = self.frame.transform
        self.frame.has_geometry = True
        to.rows = self._keep(np.empty(height, np.uint8))
        to.positions, to.turns = self._keep(sampling.positions), self._keep(sampling.turns)
        to.right, to.down, to.origin = (int(column + width * row) for column, row in sampling.corner.T)
        to.scale, (to.height, to.width), to.turn = sampling.scale, sampling.size, sampling.turn

    def _fill_compared(self, to: _Products, width: int, scale: float) -> None:
        """Fill in the images that SSIM compares, which are not denoised; `width` pixels are in a row of them."""
        if not self.compared:
            return
        if not to.width:  # nothing else is computed there
            to.width, to.scale, to.min_total = width, scale, _ANY_SUM
        for field, image in zip(("first", "second"), self.compared):
            setattr(to, field, image.ctypes.data)
            to.is_uint16 = image.dtype == np.uint16

    def _fill_denoising(self, scale: float, sensor: Sensor, full_scale: int) -> None:
        """Fill in the denoising of the linear planes."""
        options, to = self._options, self.frame.denoising
        size = to.height, to.width
        if self.frame.has_geometry or options.is_learned:
            to.denoised = self._keep(self._buffers.get((to.channels, *size, 4), "float32"))
        gains, (shot, floor) = plane_gains(*options.method_on(sensor)), raw_noise(options, full_scale)
        to.shot, to.floor = shot / scale, floor / scale**2
        for channel, row in enumerate(gains.s0):
            to.s0_gains[channel][: len(row)] = row
        to.polarization_gains[: len(gains.polarization)] = gains.polarization
        to.strength, to.is_auto = options.denoise_strength, options.denoising == "auto"
        if self.frame.of_planes.noise:
            self.frame.of_planes.noise.contents.means[:] = gains.of_means
        self.frame.is_denoised = True

    def _fill_learned(self, sensor: Sensor) -> None:
        """Fill in the network that corrects the denoised planes."""
        planes, to = self.frame.denoising, self.frame.learned
        (to.top, to.left), to.sign = alignment(sensor)
        to.rows, to.columns = grid_size(sensor, (planes.height, planes.width))
        for level, channels in enumerate(CHANNELS):
            for k in range(2):
                image = self._buffers.get(((to.rows >> level) + 2, (to.columns >> level) + 2, channels), "float32")
                image[[0, -1]] = image[:, [0, -1]] = 0
                to.images[level][k] = self._keep(image)
        to.means = self._keep(self._buffers.get((to.rows, to.columns, 4), "float32"))
        to.weights = tuple(array.ctypes.data for array in network_weights())
        if self.frame.of_planes.noise:
            noise, gains = self.frame.of_planes.noise.contents, plane_gains(*self._options.method_on(sensor))
            to.noise = noise.stated = self._keep(self._buffers.get((planes.height, planes.width, 4), "float32"))
            noise.stated_gains[:] = gains.s0[0, 0], gains.polarization[0]
        self.frame.is_learned = True

    def compare(self, other: np.ndarray, outside: Optional[np.ndarray]) -> None:
        """Compare the first of `compared` with another image.

        Args:
            other: Array of the same shape and type.
            outside: (h, w) uint8, not 0 where the images have no values; None if there are none.
        """
        options, to = self._options, self.frame.similarity
        height, width = other.shape
        stride, radius = options.ssim_stride, options.ssim_window // 2
        to.height, to.width, to.step, to.stride, to.radius = height // stride, width // stride, width, stride, radius
        self.sums, self.pixels = (np.empty(block_pixels(to.height, to.width).shape) for _ in range(2))
        to.sums, to.pixels = self.sums.ctypes.data, self.pixels.ctypes.data
        to.first, to.second = self.compared[0].ctypes.data, self._keep(other)
        to.outside = self._keep(outside)
        to.is_uint16, to.scale = other.dtype == np.uint16, self._compared_scale
        to.taps[: radius + 1] = gaussian(options.ssim_window, options.ssim_sigma)[radius:]
        if "ssim_map" in self.out:
            to.map = _Image(self.out["ssim_map"].ctypes.data, self.out["ssim_map"].itemsize)
        self.frame.is_compared = True

    def similarity(self) -> np.ndarray:
        """Complete SSIM's products of a computed frame: NaN, or 0 in levels, if there was nothing to compare with.

        Returns:
            The mean of each block (`Result.blocks`).
        """
        if not self.frame.is_compared:
            for name in SSIM_PRODUCTS:
                if name in self.out:
                    self.out[name].fill(invalid_level(name, str(self.out[name].dtype)))
            stride = self._options.ssim_stride
            height, width = (side // stride for side in self.compared[0].shape)
            return np.full(block_pixels(height, width).shape, np.nan, np.float32)
        with np.errstate(invalid="ignore"):  # of blocks that lie outside
            if "ssim" in self.out:
                self.out["ssim"][...] = np.sum(self.sums) / np.sum(self.pixels)  # in a fixed order
            return np.asarray((self.sums / self.pixels).astype(np.float32))


@lru_cache(maxsize=1)
def network_weights() -> Tuple[np.ndarray, ...]:
    """Return the weights of the network as `kernels/cpu/learned.cpp` takes them.

    Returns:
        Of each layer (outputs * (1 + size * size * inputs),) float32: the biases, then (size, size, inputs, outputs).
        The outputs of `up` layers are sorted by pixel.
    """
    layers = []
    for name, layer in LAYERS.items():
        rows = np.vstack([weights()[f"{name}_bias"], weights()[name].transpose(2, 3, 1, 0).reshape(-1, layer.outputs)])
        if name.startswith("up"):
            rows = rows.reshape(len(rows), -1, 4).swapaxes(1, 2).reshape(rows.shape)
        layers.append(np.ascontiguousarray(rows, np.float32).ravel())
    return tuple(layers)


def color_sources(sensor: Sensor) -> Tuple[int, ...]:
    """Return the sources of red, green and blue of a pixel, by channel, row and column modulo 4."""
    sources: Dict[int, List[int]] = {0: [], 1: [], 2: []}
    for row in range(4):
        for column in range(4):
            own = sensor.color_index(row, column)
            of_row = own if own != 1 else sensor.color_index(row, column + 2)
            sources[1].append(OWN if own == 1 else GREEN)
            for color in (0, 2):
                missing = ACROSS if own != 1 else ROW if of_row == color else COLUMN
                sources[color].append(OWN if own == color else missing)
    return (*sources[0], *sources[1], *sources[2])
