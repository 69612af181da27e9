"""The CPU backend: strips of rows that stay in cache, one thread per core; one method per operator of the plan."""

from __future__ import annotations

import math
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import cv2
import numpy as np

from polar_pipeline.backend import Buffers, Output, Ticket
from polar_pipeline.coefficients import LUMA
from polar_pipeline.cpu import demosaic as dm
from polar_pipeline.cpu.native import Kernels, NativeError, find_library, make_products, mosaic_scale
from polar_pipeline.cpu.ssim import Window
from polar_pipeline.cpu.strips import compare, cores, display, strips
from polar_pipeline.options import Options
from polar_pipeline.plan import Plan
from polar_pipeline.sensor.frames import Frame, RawFrame
from polar_pipeline.sensor.mosaic import ANGLES

_F = np.float32
#: Operators that make the angle images and masks from the mosaic, and those that need more than luma.
_DEMOSAICKING = {"angles", "grey", "saturated"}
_OF_COLORS = {"intensity", *(f"angle_{angle}" for angle in ANGLES)}
_BELOW_PI = float(np.nextafter(_F(np.pi), _F(0)))


class CpuBackend:
    """Runs a plan on frames.

    Args:
        plan: What to compute.
        options: How.
        threads: Threads to use; 0 for one per core.
    """

    def __init__(self, plan: Plan, options: Options, threads: int = 0) -> None:
        self._plan = plan
        self._options = options
        self._threads = threads or cores()
        self._window = Window(options.ssim_stride, options.ssim_window, options.ssim_sigma)
        self._buffers = Buffers()
        self._pool = ThreadPoolExecutor(self._threads, "polar_pipeline")
        try:
            self._kernels: Optional[Kernels] = Kernels(find_library(), self._pool, self._threads)
        except NativeError:  # `polar-pipeline doctor` says why
            self._kernels = None
        self._previous: Optional[np.ndarray] = None

    #: Frames that can be under way.
    depth = 1

    @property
    def device(self) -> str:
        """What it runs on, for people."""
        way = "compiled" if self._kernels else "OpenCV"
        return f"cpu ({platform.machine()}, {self._threads} threads, {way})"

    def is_ready(self, _: Frame) -> bool:
        """Whether nothing has to be compiled for frames like this one: always."""
        return True

    def prepare(self, _: Frame) -> None:
        """Get ready for frames like this one: nothing to do."""

    def submit(self, frame: Frame, reference: Optional[np.ndarray] = None) -> Ticket:
        """Accept a frame, which is computed when its result is asked for.

        Args:
            frame: The mosaic.
            reference: (h, w) float32 that SSIM compares S0/2 with, in mode `reference`.
        """
        return Ticket(partial(self._compute, frame, reference))

    def result(self, ticket: Ticket) -> Output:
        """Compute every product of a frame."""
        return ticket.finish()

    def _compute(self, frame: Frame, reference: Optional[np.ndarray]) -> Output:
        plan, mode = self._plan, self._options.ssim_mode
        marks = [("", time.perf_counter())]
        job = _FrameJob(frame.unpack(), plan, self._options, self._buffers, self._kernels)
        invalid = self._pixel_pass(job)
        marks.append(("polarization", time.perf_counter()))
        blocks = None
        if plan.window:
            one, others = job.pair[0], {"reference": reference, "temporal": self._previous}
            other = job.pair[1] if mode == "consistency" else others[mode]
            comparable = other is not None and other.shape == one.shape
            other = other if comparable else None
            blocks = compare(self._pool, one, other, job.out, self._window, self._kernels, job.pair_scale)
            marks.append(("ssim", time.perf_counter()))
            self._previous = one if mode == "temporal" else None
        timings = {name: now - before for (_, before), (name, now) in zip(marks, marks[1:])}
        return Output({name: job.out[name] for name in plan.products}, timings, invalid, blocks)

    def _pixel_pass(self, job: _FrameJob) -> Tuple[int, int]:
        """The first pass; gives (saturated, dark) counts."""
        if self._kernels and job.is_plain:
            return self._kernels.mosaic(job.frame, job.sensor, self._options.co_sited, job.target)
        counts = list(self._pool.map(job.pixel_pass, strips(job.size)))
        return sum(saturated for saturated, _ in counts), sum(dark for _, dark in counts)

    def reset(self) -> None:
        """Forget the frame before (SSIM mode `temporal`)."""
        self._previous = None

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


@lru_cache(maxsize=8)
def _reflected(size: int, halo: int, stride: int) -> np.ndarray:
    """Index of the pixel shown at -halo .. size + halo - 1: reflect-101 on each lattice of `stride`."""
    index = np.arange(-halo, size + halo)
    phase = index % stride
    count = (size - phase + stride - 1) // stride
    period = 2 * (count - 1)
    step = (index // stride) % period
    return np.minimum(step, period - step) * stride + phase


class _Border(NamedTuple):
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


class _FrameJob:
    """One frame on its way: its padded mosaic, the outputs, and what the passes share."""

    def __init__(
        self, frame: RawFrame, plan: Plan, options: Options, buffers: Buffers, kernels: Optional[Kernels]
    ) -> None:
        mosaic = frame.mosaic
        self.frame = frame
        self.kernels = kernels
        self.plan = plan
        self.options = options
        self.full_scale = frame.full_scale
        self.scale = 1 / frame.full_scale
        self.sensor = options.sensor.as_read_out(options.roi_offset, options.flip, mosaic.shape)
        self.half = options.resolution == "half"
        self.raw_size: Tuple[int, int] = mosaic.shape
        self.size = options.output_size(self.raw_size)
        self.mono_halo = dm.MONO_HALO[options.interpolation]
        self.color_halo = dm.COLOR_HALO[options.debayer] if self.sensor.is_color else 0
        period = self.sensor.period
        self.halo = -(-(self.mono_halo + self.color_halo) // period) * period
        self.mosaic = mosaic
        height, width = mosaic.shape
        stride = period // 2
        self.border = _Border(self.halo, _reflected(height, self.halo, stride), _reflected(width, self.halo, stride))
        self.out = {
            name: buffers.get(options.shape_of(name, self.size), options.dtype_of(name)) for name in plan.products
        }
        own = _DEMOSAICKING | (_OF_COLORS if self.sensor.is_color else set())
        #: Operators of the first pass that the compiled kernels do.
        self.by_kernel = [name for name in plan.pixel if name not in own] if kernels else []
        #: Whether they do all of it, from the mosaic.
        self.is_plain = (
            kernels is not None
            and self.half
            and not self.sensor.is_color
            and (options.interpolation == "bilinear" or not options.co_sited)
        )
        scale = mosaic_scale(self.full_scale, options.co_sited) if self.is_plain else 1.0
        pairs = (2 if options.ssim_mode == "consistency" else 1) if plan.window else 0
        # Sums of two angles of an 8-bit frame are whole numbers below 2^13: half the bytes to store and to read.
        whole = self.is_plain and pairs == 2 and mosaic.dtype == np.uint8
        self.pair_scale = scale / 2 if whole else 1.0
        self.pair = [buffers.get(self.size, "uint16" if whole else "float32") for _ in range(pairs)]
        least = 2 * options.min_intensity / scale if "invalid" in plan.pixel else 0.0
        if self.is_plain:  # sums are whole there, and float32 holds them all
            least = math.ceil(least)
        self.target = make_products(self.out, self.by_kernel, self.pair, self.size[1], scale, least)

    def pixel_pass(self, rows: Tuple[int, int]) -> Tuple[int, int]:
        """Every operator of the first pass on one strip; gives (saturated, dark) counts."""
        strip = _Strip(self, *rows)
        for name in self.plan.pixel:
            if name not in self.by_kernel:
                _STAGES[name](strip)
        if self.kernels and self.by_kernel:
            planes = strip.luma if self.sensor.is_color else strip.images[0]
            return self.kernels.planes(planes, strip.hot, rows, self.target)
        return strip.counts

    def store(
        self, name: str, rows: Tuple[int, int], planes: List[np.ndarray], bad: Optional[np.ndarray] = None
    ) -> None:
        """Write the planes of a product, one per channel, into its rows; `bad` pixels become NaN or 0."""
        if name not in self.out:
            return
        target = self.out[name][rows[0] : rows[1]]
        if target.dtype == np.uint8:
            display(name, planes[0] if len(planes) == 1 else cv2.merge(planes), target)
        elif len(planes) == 1:
            target[...] = planes[0]
        else:
            cv2.merge(planes, target)
        if bad is not None:
            cv2.copyTo(_constant(target.shape, target.dtype.str), bad, target)


@lru_cache(maxsize=8)
def _constant(shape: Tuple[int, ...], dtype: str) -> np.ndarray:
    """What invalid pixels hold: NaN, or 0 in the display encoding; read-only."""
    image = np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 0, dtype)
    image.flags.writeable = False
    return image


class _Strip:
    """The values of one strip of output rows, one method per operator of the plan."""

    def __init__(self, job: _FrameJob, top: int, bottom: int) -> None:
        self.job = job
        self.rows = (top, bottom)
        step = 2 if job.half else 1
        self.raw_rows = (step * top, step * bottom)
        self.raw = job.border.strip(job.mosaic, *self.raw_rows)
        self.has_saturated = int(self.raw.max()) >= job.full_scale
        if self.has_saturated and job.full_scale < np.iinfo(self.raw.dtype).max:
            np.minimum(self.raw, self.raw.dtype.type(job.full_scale), out=self.raw)  # numbers above it mean full scale
        self.counts = (0, 0)
        self.hot: Optional[np.ndarray] = None
        self.bad: Optional[np.ndarray] = None

    def _store(self, name: str, planes: List[np.ndarray], bad: Optional[np.ndarray] = None) -> None:
        self.job.store(name, self.rows, planes, bad)

    # -- demosaicking ----------------------------------------------------------------------------------------------

    def angles(self) -> None:
        """`images[channel][angle]`."""
        job = self.job
        if not job.sensor.is_color:
            z = dm.inner(self.raw, job.halo - job.mono_halo)
            self.images = [self._four(z, job.scale)]
            return
        z = self.raw.astype(_F)
        z *= _F(job.scale)
        channels = dm.debayer(job.options.debayer, z, job.sensor)
        halo = job.halo - job.color_halo
        for channel in channels:
            self._reflect(channel, halo)
        self.images = [self._four(dm.inner(channel, halo - job.mono_halo), 1.0) for channel in channels]

    def _reflect(self, image: np.ndarray, halo: int) -> None:
        """Overwrite what lies beyond the frame by reflect-101 of what lies within; `image` carries `halo`."""
        height, width = self.job.raw_size
        for view, first, size in ((image, self.raw_rows[0] - halo, height), (image.T, -halo, width)):
            for k in (*range(-first), *range(size - first, len(view))):
                place = k + first
                view[k] = view[(-place if place < 0 else 2 * (size - 1) - place) - first]

    def _four(self, z: np.ndarray, scale: float) -> List[np.ndarray]:
        """One colour's mosaic with `mono_halo` -> its four angle images at the output's resolution."""
        job = self.job
        method = job.options.interpolation
        if job.half and (method == "bilinear" or not job.options.co_sited):
            return dm.superpixels(z, job.sensor, job.mono_halo, scale, job.options.co_sited)
        if method != "bilinear" and z.dtype != np.float32:
            z = z.astype(_F)
            z *= _F(scale)
            scale = 1.0
        images = dm.demosaic(method, z, job.sensor, scale)
        if not job.half:
            return images
        size = (job.size[1], self.rows[1] - self.rows[0])
        return [cv2.resize(dm.even(image), size, interpolation=cv2.INTER_AREA) for image in images]

    def grey(self) -> None:
        """Luma of each angle: `luma[angle]`."""
        if len(self.images) == 1:
            self.luma = self.images[0]
            return
        self.luma = []
        for red, green, blue in zip(*self.images):
            plane = cv2.addWeighted(red, LUMA[0], green, LUMA[1], 0)
            self.luma.append(cv2.scaleAdd(blue, LUMA[2], plane))

    # -- polarimetry -----------------------------------------------------------------------------------------------

    def sums(self) -> None:
        """I0 + I90 and I45 + I135."""
        i0, i45, i90, i135 = self.luma
        self.straight, self.diagonal = cv2.add(i0, i90), cv2.add(i45, i135)

    def stokes_planes(self) -> None:
        """S0, S1, S2."""
        i0, i45, i90, i135 = self.luma
        self.s0 = cv2.addWeighted(self.straight, 0.5, self.diagonal, 0.5, 0)
        self.s1, self.s2 = cv2.subtract(i0, i90), cv2.subtract(i45, i135)

    def saturated(self) -> None:
        """Where one of the four samples behind a pixel is saturated: 255 in `hot`; None if nowhere."""
        job = self.job
        if not self.has_saturated:
            return
        if job.half:
            raw = dm.even(dm.inner(self.raw, job.halo))
            peak = np.maximum(raw[0::2], raw[1::2])
            peak = np.maximum(peak[:, 0::2], peak[:, 1::2])
        else:
            around = dm.inner(self.raw, job.halo - 1).copy()
            self._reflect(around, 1)
            peak = dm.inner(cv2.dilate(around, np.ones((3, 3), np.uint8)), 1)
        self.hot = cv2.compare(peak, float(job.full_scale), cv2.CMP_GE)
        self.counts = (cv2.countNonZero(self.hot), 0)

    def invalid(self) -> None:
        """Saturated and dark pixels: 255 in `bad`, which is None where there are none."""
        dark = cv2.compare(self.s0, self.job.options.min_intensity, cv2.CMP_LT)
        bad = dark if self.hot is None else cv2.bitwise_or(dark, self.hot)
        count = cv2.countNonZero(bad)
        self.counts = (self.counts[0], count - self.counts[0])
        self.bad = bad if count else None

    def polar(self) -> None:
        """DoLP, and the direction of (S1, S2) in degrees."""
        length, self.direction = cv2.cartToPolar(self.s1, self.s2, angleInDegrees=True)
        limit = np.clip(self.s0, 1e-9, 4)
        length /= limit
        self.degree = np.clip(length, 0, 1, out=length)

    # -- products --------------------------------------------------------------------------------------------------

    def angle(self, index: int) -> None:
        """One angle image."""
        self._store(f"angle_{ANGLES[index]}", [channel[index] for channel in self.images])

    def intensity(self) -> None:
        """S0/2, per channel."""
        planes = []
        for i0, i45, i90, i135 in self.images:
            total = i0 + i45
            total += i90
            total += i135
            total *= _F(0.25)
            planes.append(total)
        self._store("intensity", planes)

    def stokes(self) -> None:
        """The Stokes vector."""
        self._store("stokes", [self.s0, self.s1, self.s2], self.bad)

    def dolp(self) -> None:
        """Degree of linear polarization."""
        self._store("dolp", [self.degree], self.bad)

    def aolp(self) -> None:
        """Angle of linear polarization in [0, pi)."""
        angle = self.direction * _F(np.pi / 360)
        angle = cv2.threshold(angle, _BELOW_PI, 0, cv2.THRESH_TOZERO_INV)[1]  # a full turn is none
        self._store("aolp", [angle], self.bad)

    def preview(self) -> None:
        """Hue AoLP, saturation DoLP, value S0/2."""
        saturation = self.degree
        if self.bad is not None:
            saturation = cv2.copyTo(saturation, cv2.bitwise_not(self.bad))
        value = self.s0 * _F(0.5)
        color = value * saturation
        white = value - color
        sixths = self.direction * _F(1 / 60)
        planes = []
        # The pure hues of HSV's hexagon: red falls off around cyan, green and blue rise around their own corners.
        for corner, sign, level in ((3, 1, -1), (2, -1, 2), (4, -1, 2)):
            plane = np.abs(sixths - _F(corner))
            plane *= _F(sign)
            plane += _F(level)
            np.clip(plane, 0, 1, out=plane)
            plane *= color
            plane += white
            planes.append(plane)
        self._store("preview", planes)

    def ssim_pair(self) -> None:
        """What SSIM compares: the two estimates of S0/2, or S0/2 alone."""
        top, bottom = self.rows
        if len(self.job.pair) == 2:
            np.multiply(self.straight, _F(0.5), out=self.job.pair[0][top:bottom])
            np.multiply(self.diagonal, _F(0.5), out=self.job.pair[1][top:bottom])
        else:
            np.multiply(self.s0, _F(0.5), out=self.job.pair[0][top:bottom])


_STAGES: Dict[str, Callable[[_Strip], None]] = {
    **{
        name: getattr(_Strip, name)
        for name in (
            "angles",
            "grey",
            "sums",
            "stokes_planes",
            "saturated",
            "invalid",
            "intensity",
            "stokes",
            "polar",
            "dolp",
            "aolp",
            "preview",
            "ssim_pair",
        )
    },
    **{f"angle_{angle}": partial(_Strip.angle, index=index) for index, angle in enumerate(ANGLES)},
}
