"""The CPU kernels (`kernels/cpu/`) as Python calls: their arguments, field by field, and the threads that run them."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

import numpy as np

from polar_pipeline.backend import block_pixels
from polar_pipeline.calibration import Correction
from polar_pipeline.coefficients import gaussian
from polar_pipeline.cpu.correction_words import WORD_FULL_SCALE
from polar_pipeline.cpu.images import COLOR_HALO, MONO_HALO, color_sources
from polar_pipeline.cpu.kernel_products import KernelImage, Products, kernel_image
from polar_pipeline.cpu.kernel_transform import InvalidPixels, LinearPlanes, kernel_transform
from polar_pipeline.cpu.ssim import SsimWindow
from polar_pipeline.geometry import SamplingMap
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import ANGLES, Sensor

_T = TypeVar("_T")

# --------------------------------------------------------------------------------------------- arguments of the kernels


#: How the angles that a pixel lacks are found, in the order of `enum Method` in `kernels/cpu/mosaic.hpp`.
METHODS = ("own_site", "bilinear", "gradient", "adaptive")
#: Methods on the colour lattice, in the order of `enum Debayer` in `kernels/cpu/debayer.cpp`.
DEBAYERS = ("bilinear", "mhc", "weighted")


class _Mosaic(ctypes.Structure):
    _fields_ = [
        ("raw", ctypes.c_void_p),
        ("step", ctypes.c_int64),
        ("is_wide", ctypes.c_int32),
        ("height", ctypes.c_int32),
        ("width", ctypes.c_int32),
        ("method", ctypes.c_int32),
        ("half", ctypes.c_int32),
        ("place", ctypes.c_int32 * 4),
        ("full_scale", ctypes.c_int32),
        ("next", ctypes.c_int32),
        ("is_color", ctypes.c_int32),
        ("phase", ctypes.c_int32 * 2),
        ("codes", ctypes.c_void_p),
        ("lowest", ctypes.c_float * 4),
        ("steps", ctypes.c_float * 4),
        ("words", ctypes.c_void_p),
    ]


class _Plane(ctypes.Structure):
    _fields_ = [
        ("plane", ctypes.c_void_p),
        ("step", ctypes.c_int64),
        ("height", ctypes.c_int32),
        ("width", ctypes.c_int32),
    ]


class _Color(ctypes.Structure):
    _fields_ = [
        ("plane", _Plane),
        ("method", ctypes.c_int32),
        ("half", ctypes.c_int32),
        ("place", ctypes.c_int32 * 4),
        ("edges", ctypes.c_void_p),
        ("angles", ctypes.c_void_p * 4),
    ]


class _Lattice(ctypes.Structure):
    _fields_ = [
        ("plane", _Plane),
        ("method", ctypes.c_int32),
        ("source", ctypes.c_int32 * 48),
        ("channels", ctypes.c_void_p * 3),
    ]


class _Planes(ctypes.Structure):
    _fields_ = [
        ("angles", ctypes.c_void_p * 12),
        ("steps", ctypes.c_int64 * 12),
        ("saturated", ctypes.c_void_p),
        ("first", ctypes.c_int32),
        ("end", ctypes.c_int32),
    ]


class _Similarity(ctypes.Structure):
    _fields_ = [
        ("first", ctypes.c_void_p),
        ("second", ctypes.c_void_p),
        ("map", KernelImage),
        ("sums", ctypes.c_void_p),
        ("is_uint16", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("step", ctypes.c_int32),
        ("height", ctypes.c_int32),
        ("width", ctypes.c_int32),
        ("stride", ctypes.c_int32),
        ("radius", ctypes.c_int32),
        ("next", ctypes.c_int32),
        ("taps", ctypes.c_float * 8),
    ]


class _Count(ctypes.Structure):
    _fields_ = [("saturated", ctypes.c_int64), ("dark", ctypes.c_int64)]


# -------------------------------------------------------------------------------------------------------------- kernels


class Kernels(NamedTuple):
    """The compiled kernels, and who runs them.

    Attributes:
        library: As loaded.
        pool: Threads to work on.
        threads: How many, the caller's included.
    """

    library: ctypes.CDLL
    pool: ThreadPoolExecutor
    threads: int

    def mosaic(
        self,
        frame: RawFrame,
        sensor: Sensor,
        method: str,
        half: bool,
        to: Products,
        correction: Optional[Correction] = None,
        words: Optional[np.ndarray] = None,
    ) -> Tuple[int, int]:
        """Products of a mono mosaic.

        Args:
            frame: The mosaic.
            sensor: Its layout as seen in the frame.
            method: How the angles are interpolated, of `METHODS`.
            half: Whether the output has half the resolution; at its own site, each angle has.
            to: Where the products go, in units of `mosaic_scale`.
            correction: By which pixels are corrected first; None if they are ideal.
            words: The same as `correction_words`, for frames of one byte a pixel and `is_by_superpixel`.

        Returns:
            (saturated, dark) pixels.
        """
        raw = _rows(frame)
        mosaic = _mosaic(raw, frame.full_scale, sensor, correction)
        mosaic.method, mosaic.half = METHODS.index(method), half
        if words is not None:
            mosaic.words = words.ctypes.data
        compute = self.library.polarization_demosaiced
        if is_by_superpixel(method, half):
            compute = self.library.polarization_superpixels
        return self._count(compute, mosaic, to)

    def correct(self, frame: RawFrame, sensor: Sensor, correction: Correction) -> np.ndarray:
        """What ideal pixels would have measured: (H, W) float32 in [0, 1].

        Args:
            frame: The mosaic, with its defective pixels replaced.
            sensor: Its layout as seen in the frame.
            correction: Of its pixels.
        """
        raw = _rows(frame)
        mosaic = _mosaic(raw, frame.full_scale, sensor, correction)
        out = np.empty(raw.shape, np.float32)
        self._on_all(lambda: self.library.correct_frame(ctypes.byref(mosaic), ctypes.c_void_p(out.ctypes.data)))
        return out

    def color(
        self, z: np.ndarray, sensor: Sensor, method: str, half: bool, switch: Optional[np.ndarray] = None
    ) -> List[np.ndarray]:
        """The four angle images of one colour, by the calling thread.

        Args:
            z: (H + 2n, W + 2n) float32 mosaic of full scale 1, n = `MONO_HALO[method]`; rows without gaps.
            sensor: Its tile of polarizers.
            method: `bilinear`, `gradient` or `adaptive`.
            half: Whether to average the angles over superpixels.
            switch: (H, W) `polarization_switch` for `adaptive`, by default that of `z`.

        Returns:
            (H, W) float32 images, or (H // 2, W // 2), of 0, 45, 90 and 135 degrees.
        """
        color = _Color(_inside(z, MONO_HALO[method]))
        color.method, color.half, color.place = METHODS.index(method), half, _places(sensor)
        step = 2 if half else 1
        images = [np.empty((color.plane.height // step, color.plane.width // step), np.float32) for _ in ANGLES]
        color.angles = (ctypes.c_void_p * 4)(*(image.ctypes.data for image in images))
        if switch is not None:
            switch = np.ascontiguousarray(switch)
            color.edges = switch.ctypes.data
        self.library.demosaic_color(ctypes.byref(color))
        return images

    def debayer(self, method: str, z: np.ndarray, sensor: Sensor) -> List[np.ndarray]:
        """Red, green and blue of a colour mosaic, by the calling thread.

        Args:
            method: Of `DEBAYERS`.
            z: (H + 2n, W + 2n) float32 mosaic of full scale 1, n = `COLOR_HALO[method]`, from the tile's (0, 0) on;
                rows without gaps.
            sensor: Its layout.

        Returns:
            Three (H, W) float32 images in [0, 1].
        """
        halo = COLOR_HALO[method]
        lattice = _Lattice(_inside(z, halo), DEBAYERS.index(method))
        lattice.source[:] = [source for rows in color_sources(sensor, halo) for row in rows for source in row]
        images = [np.empty((lattice.plane.height, lattice.plane.width), np.float32) for _ in range(3)]
        lattice.channels[:] = [image.ctypes.data for image in images]
        self.library.debayer(ctypes.byref(lattice))
        return images

    def polarization_switch(self, z: np.ndarray) -> np.ndarray:
        """(H + 8, W + 8) float32 mosaic of one colour, or luma -> (H, W) `adaptive.polarization_switch`."""
        plane = _inside(z, MONO_HALO["adaptive"])
        out = np.empty((plane.height, plane.width), np.float32)
        self.library.polarization_switch(ctypes.byref(plane), ctypes.c_void_p(out.ctypes.data))
        return out

    def planes(
        self, angles: Sequence[np.ndarray], saturated: Optional[np.ndarray], rows: Tuple[int, int], to: Products
    ) -> Tuple[int, int]:
        """Products of the angle images of three colours, by the calling thread.

        Args:
            angles: Twelve (rows, w) float32: the four of red, then of green and of blue.
            saturated: (rows, w) uint8, not 0 where a pixel is saturated; None if no pixel is.
            rows: (first, end) row of the output that they are.
            to: The arrays that the products are written to.

        Returns:
            (saturated, dark) pixels.
        """
        planes = _Planes(
            tuple(image.ctypes.data for image in angles),
            tuple(image.strides[0] // image.itemsize for image in angles),
            None if saturated is None else saturated.ctypes.data,
            *rows,
        )
        count = _Count()
        self.library.polarization_planes(ctypes.byref(planes), ctypes.byref(to), ctypes.byref(count))
        return count.saturated, count.dark

    def transformed(
        self, planes: LinearPlanes, invalid: Optional[InvalidPixels], sampling: SamplingMap, to: Products
    ) -> Tuple[int, int]:
        """Products of a mono frame in another geometry.

        Args:
            planes: Of the frame.
            invalid: Its invalid pixels; None where there are none.
            sampling: The map of the output.
            to: The arrays that the products are written to.

        Returns:
            (saturated, dark) pixels.
        """
        transform = kernel_transform(planes.channels[0], invalid, sampling)
        return self._count(self.library.polarization_transformed, transform, to)

    def transform_angles(
        self, channel: np.ndarray, invalid: Optional[InvalidPixels], sampling: SamplingMap, rows: Tuple[int, int]
    ) -> Tuple[List[np.ndarray], np.ndarray, Tuple[int, int]]:
        """The four angle images of one colour in another geometry, by the calling thread.

        Args:
            channel: (H, W, 4) float32 of `LinearPlanes`.
            invalid: Its invalid pixels; None where there are none.
            sampling: The map of the output.
            rows: (first, end) row of the output.

        Returns:
            (rows, w) float32 images, (rows, w) uint8 flags, and (saturated, dark) pixels.
        """
        size = (rows[1] - rows[0], sampling.size[1])
        images, found, count = [np.empty(size, np.float32) for _ in ANGLES], np.empty(size, np.uint8), _Count()
        self.library.transform_angles(
            ctypes.byref(kernel_transform(channel, invalid, sampling)),
            (ctypes.c_void_p * 4)(*(image.ctypes.data for image in images)),
            ctypes.c_void_p(found.ctypes.data),
            *rows,
            ctypes.byref(count),
        )
        return images, found, (count.saturated, count.dark)

    def similarity(
        self, pair: Tuple[np.ndarray, np.ndarray], scale: float, out: Optional[np.ndarray], window: SsimWindow
    ) -> np.ndarray:
        """The similarity of two images.

        Args:
            pair: (h, w) float32 or uint16, twice.
            scale: Factor that brings them to [0, 1].
            out: (h // stride, w // stride) float32, uint8 or uint16: the map; None if it is not wanted.
            window: The window of SSIM.

        Returns:
            Float64 sums of the map's blocks.
        """
        first, second = (np.require(image, requirements=["C", "A"]) for image in pair)
        height, width = first.shape
        size = (height // window.stride, width // window.stride)
        sums = np.empty(block_pixels(*size).shape)
        job = _Similarity(
            *(first.ctypes.data, second.ctypes.data, kernel_image(out), sums.ctypes.data),
            *(first.dtype == np.uint16, scale, width, *size, window.stride, window.radius),
            taps=(ctypes.c_float * 8)(*gaussian(window.size, window.sigma)[window.radius :]),
        )
        self._on_all(lambda: self.library.similarity(ctypes.byref(job)))
        return sums

    def _count(self, compute: Callable[..., None], source: ctypes.Structure, to: Products) -> Tuple[int, int]:
        """(saturated, dark) pixels that a kernel finds while every thread computes products with it."""

        def work() -> _Count:
            count = _Count()
            compute(ctypes.byref(source), ctypes.byref(to), ctypes.byref(count))
            return count

        counts = self._on_all(work)
        return sum(count.saturated for count in counts), sum(count.dark for count in counts)

    def _on_all(self, work: Callable[[], _T]) -> List[_T]:
        """The same work by every thread."""
        others = [self.pool.submit(work) for _ in range(self.threads - 1)]
        return [work(), *(other.result() for other in others)]


def _rows(frame: RawFrame) -> np.ndarray:
    """The mosaic as the kernels read it: its pixels side by side, at addresses for their type."""
    raw = frame.mosaic
    return raw.copy() if raw.strides[1] != raw.itemsize or not raw.flags.aligned else raw


def _mosaic(raw: np.ndarray, full_scale: int, sensor: Sensor, correction: Optional[Correction]) -> _Mosaic:
    """A mosaic as the kernels take it, without a method."""
    found = _Mosaic(raw.ctypes.data, raw.strides[0], raw.itemsize == 2, *raw.shape)
    found.place, found.full_scale, found.is_color = _places(sensor), full_scale, sensor.is_color
    if correction is not None:
        found.phase, found.codes = correction.phase, correction.codes.ctypes.data
        found.lowest, found.steps = zip(*correction.scales)
    return found


def _places(sensor: Sensor) -> Tuple[int, ...]:
    """2 row + column in the tile of each angle."""
    return tuple(2 * row + column for row, column in map(sensor.position, ANGLES))


def _inside(z: np.ndarray, halo: int) -> _Plane:
    """What an image that carries `halo` has inside it; rows without gaps."""
    start = z.ctypes.data + halo * (z.strides[0] + z.itemsize)
    return _Plane(start, z.strides[0] // z.itemsize, z.shape[0] - 2 * halo, z.shape[1] - 2 * halo)


def is_by_superpixel(method: str, half: bool) -> bool:
    """Whether the samples of a superpixel and beside it suffice, so that nothing is computed at full resolution."""
    return half and method in ("own_site", "bilinear")


def mosaic_scale(full_scale: int, method: str, half: bool, is_corrected: bool = False, by_words: bool = False) -> float:
    """One unit of an angle's intensity in `Kernels.mosaic`, as a share of full scale.

    A raw number at its own site, and a sixteenth of it in means over superpixels; elsewhere, and of corrected pixels,
    one level of 255 in its place, or a unit of `correction_words`.
    """
    if not is_by_superpixel(method, half):
        return 1 / 255
    full_scale = WORD_FULL_SCALE if by_words else 255 if is_corrected else full_scale
    return 1 / (full_scale * (16 if method == "bilinear" else 1))
