"""The operators of the plan on one strip of rows."""

from __future__ import annotations

from functools import partial
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import cv2
import numpy as np

from polar_pipeline.coefficients import LUMA
from polar_pipeline.cpu import demosaic as dm
from polar_pipeline.cpu.adaptive import polarization_switch
from polar_pipeline.cpu.display_colors import aolp_colors, dolp_colors
from polar_pipeline.cpu.frame_job import FrameJob
from polar_pipeline.cpu.images import inner
from polar_pipeline.cpu.kernel_transform import DARK, SATURATED
from polar_pipeline.cpu.noise import debiased, deviations
from polar_pipeline.plan import make_plan
from polar_pipeline.products import PRODUCTS
from polar_pipeline.sensor.mosaic import ANGLES

_F = np.float32
_BELOW_PI = float(np.nextafter(_F(np.pi), _F(0)))


def luma(colors: Sequence[np.ndarray]) -> np.ndarray:
    """Red, green and blue -> luma."""
    red, green, blue = colors
    return cv2.scaleAdd(blue, LUMA[2], cv2.addWeighted(red, LUMA[0], green, LUMA[1], 0))


def _length(s1: np.ndarray, s2: np.ndarray) -> np.ndarray:
    """sqrt(S1^2 + S2^2)."""
    length: np.ndarray = np.sqrt(s1 * s1 + s2 * s2)
    return length


def _union(*masks: Optional[np.ndarray]) -> Optional[np.ndarray]:
    """Where one of the masks is set; None if there is none."""
    given = [mask for mask in masks if mask is not None]
    return cv2.bitwise_or(*given) if len(given) == 2 else given[0] if given else None


def _reflect(image: np.ndarray, halo: int, raw_size: Tuple[int, int], first_row: int) -> None:
    """Overwrite what lies beyond the frame by reflect-101 of what lies within; `image` carries `halo`."""
    height, width = raw_size
    for view, first, size in ((image, first_row - halo, height), (image.T, -halo, width)):
        for k in (*range(-first), *range(size - first, len(view))):
            place = k + first
            view[k] = view[(-place if place < 0 else 2 * (size - 1) - place) - first]


class Strip:
    """The values of one strip of output rows, one method per operator of the plan."""

    def __init__(self, job: FrameJob, top: int, bottom: int) -> None:
        self.job = job
        self.rows = (top, bottom)
        step = 2 if job.half else 1
        self.raw_rows = (step * top, step * bottom)
        self.raw = job.border.strip(job.mosaic, *self.raw_rows)
        self.has_saturated = int(self.raw.max()) >= job.full_scale
        if self.has_saturated and job.full_scale < np.iinfo(self.raw.dtype).max:
            np.minimum(self.raw, self.raw.dtype.type(job.full_scale), out=self.raw)  # numbers above it mean full scale
        self.values = self.raw if job.correction is None else job.border.strip(job.values, *self.raw_rows)
        self.counts = (0, 0)
        self.saturation_mask: Optional[np.ndarray] = None
        self.invalid_mask: Optional[np.ndarray] = None
        self.uncertain_mask: Optional[np.ndarray] = None

    def _store(self, name: str, planes: List[np.ndarray], bad: Optional[np.ndarray] = None) -> None:
        self.job.store(name, self.rows, planes, bad)

    # -- demosaicking ----------------------------------------------------------------------------------------------

    def angles(self) -> None:
        """`images[channel][angle]`."""
        job = self.job
        if not job.sensor.is_color:
            z = inner(self.values, job.halo - job.mono_halo)
            self.images = [self._four(z, job.scale)]
            return
        channels = self.mosaics()
        switch = None
        if job.method == "adaptive":
            switch = (job.kernels.polarization_switch if job.kernels else polarization_switch)(luma(channels))
        self.images = [self._four(channel, 1.0, switch) for channel in channels]

    def mosaics(self) -> List[np.ndarray]:
        """The mosaic of each colour, with `mono_halo`: float32, full scale 1."""
        job = self.job
        z = self.values.astype(_F)
        z *= _F(job.scale)
        if not job.sensor.is_color:
            return [inner(z, job.halo - job.mono_halo)]
        debayer = job.kernels.debayer if job.kernels else dm.debayer
        channels = debayer(job.options.debayer, z, job.sensor)
        halo = job.halo - job.color_halo
        for channel in channels:
            _reflect(channel, halo, self.job.raw_size, self.raw_rows[0])
        return [inner(channel, halo - job.mono_halo) for channel in channels]

    def _four(self, z: np.ndarray, scale: float, switch: Optional[np.ndarray] = None) -> List[np.ndarray]:
        """One colour's mosaic with `mono_halo` -> its four angle images at the output's resolution."""
        job = self.job
        method = job.method
        if method == "own_site" or (method == "bilinear" and job.half and not job.kernels):
            return dm.superpixels(z, job.sensor, job.mono_halo, scale, job.options.co_sited)
        if (job.kernels or method != "bilinear") and z.dtype != np.float32:
            z = z.astype(_F)
            z *= _F(scale)
            scale = 1.0
        if job.kernels:
            return job.kernels.color(z, job.sensor, method, job.half, switch)
        images = dm.demosaic(method, z, job.sensor, scale, switch)
        if not job.half:
            return images
        size = (job.size[1], self.rows[1] - self.rows[0])
        return [cv2.resize(dm.even(image), size, interpolation=cv2.INTER_AREA) for image in images]

    def grey(self) -> None:
        """Luma of each angle: `luma[angle]`."""
        if len(self.images) == 1:
            self.luma = self.images[0]
            return
        self.luma = [luma(colors) for colors in zip(*self.images)]

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
        """Where one of the four samples behind a pixel is saturated: 255 in `saturation_mask`; None if nowhere."""
        job = self.job
        if not self.has_saturated:
            return
        if job.half:
            raw = dm.even(inner(self.raw, job.halo))
            peak = np.maximum(raw[0::2], raw[1::2])
            peak = np.maximum(peak[:, 0::2], peak[:, 1::2])
        else:
            around = inner(self.raw, job.halo - 1).copy()
            _reflect(around, 1, self.job.raw_size, self.raw_rows[0])
            peak = inner(cv2.dilate(around, np.ones((3, 3), np.uint8)), 1)
        self.saturation_mask = cv2.compare(peak, float(job.full_scale), cv2.CMP_GE)
        self.counts = (cv2.countNonZero(self.saturation_mask), 0)

    def invalid(self) -> None:
        """Saturated and dark pixels: 255 in `invalid_mask`, which is None where there are none."""
        dark = cv2.compare(self.s0, self.job.options.min_intensity, cv2.CMP_LT)
        bad = dark if self.saturation_mask is None else cv2.bitwise_or(dark, self.saturation_mask)
        count = cv2.countNonZero(bad)
        self.counts = (self.counts[0], count - self.counts[0])
        self.invalid_mask = bad if count else None

    def polar(self) -> None:
        """DoLP, and the direction of (S1, S2) in degrees."""
        length, self.direction = cv2.cartToPolar(self.s1, self.s2, angleInDegrees=True)
        limit = np.clip(self.s0, 1e-9, 4)
        length /= limit
        self.degree = np.clip(length, 0, 1, out=length)

    def noise(self) -> None:
        """Standard deviations of DoLP and AoLP; DoLP without its bias, and pixels without an AoLP, if asked for."""
        model, options = self.job.noise, self.job.options
        if model is None:
            return
        self.deviations = deviations(self.images, (self.s0, self.s1, self.s2), self.degree, model)
        if options.debias:
            self.degree = debiased(self.degree, self.deviations.component)
        if options.max_aolp_sigma:
            self.uncertain_mask = cv2.compare(
                self.deviations.aolp, float(np.deg2rad(options.max_aolp_sigma)), cv2.CMP_GT
            )

    # -- geometry --------------------------------------------------------------------------------------------------

    def linear(self) -> None:
        """The planes that geometry interpolates, and which pixels are invalid."""
        top, bottom = self.rows
        linear = self.job.linear
        assert linear is not None
        for (i0, i45, i90, i135), channel in zip(self.images, linear.channels):
            planes = [cv2.add(i0, i90), cv2.add(i45, i135), cv2.subtract(i0, i90), cv2.subtract(i45, i135)]
            cv2.merge(planes, channel[top:bottom])
        flags = linear.flags[top:bottom]
        flags[...] = 0
        for mask, flag in ((self.invalid_mask, DARK), (self.saturation_mask, SATURATED)):
            if mask is not None:
                flags[mask != 0] = flag

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

    def _store_component(
        self, name: str, component: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    ) -> None:
        """A value of 2 S0, S1 and S2 per channel, at least 0."""
        planes = [component(i0 + i90 + (i45 + i135), i0 - i90, i45 - i135) for i0, i45, i90, i135 in self.images]
        self._store(name, [np.maximum(plane, 0, out=plane) for plane in planes])

    def unpolarized(self) -> None:
        """What a polarizer leaves at the angle that lets least through, per channel."""
        self._store_component("unpolarized", lambda total, s1, s2: _F(0.25) * total - _F(0.5) * _length(s1, s2))

    def polarized(self) -> None:
        """The polarized light, per channel."""
        self._store_component("polarized", lambda _, s1, s2: _length(s1, s2))

    def polarizer(self) -> None:
        """The image behind a polarizer, per channel."""
        cosine, sine = (_F(0.5 * share) for share in self.job.options.polarizer)
        self._store_component("polarizer", lambda total, s1, s2: _F(0.25) * total + (cosine * s1 + sine * s2))

    def stokes(self) -> None:
        """The Stokes vector."""
        self._store("stokes", [self.s0, self.s1, self.s2], self.invalid_mask)

    def dolp(self) -> None:
        """Degree of linear polarization."""
        self._store("dolp", [self.degree], self.invalid_mask)

    def _aolp(self) -> np.ndarray:
        """AoLP in [0, pi)."""
        angle = self.direction * _F(np.pi / 360)
        return cv2.threshold(angle, _BELOW_PI, 0, cv2.THRESH_TOZERO_INV)[1]  # a full turn is 0

    def aolp(self) -> None:
        """Angle of linear polarization in [0, pi)."""
        self._store("aolp", [self._aolp()], _union(self.invalid_mask, self.uncertain_mask))

    def aolp_color(self) -> None:
        """AoLP on its colour map, faded by DoLP."""
        planes = aolp_colors(self._aolp(), self.degree, self.job.options.fading)
        self._store("aolp_color", planes, _union(self.invalid_mask, self.uncertain_mask))

    def dolp_color(self) -> None:
        """DoLP on its colour map."""
        self._store("dolp_color", dolp_colors(self.degree), self.invalid_mask)

    def dolp_sigma(self) -> None:
        """Standard deviation of DoLP."""
        self._store("dolp_sigma", [self.deviations.dolp], self.invalid_mask)

    def aolp_sigma(self) -> None:
        """Standard deviation of AoLP."""
        self._store("aolp_sigma", [self.deviations.aolp], self.invalid_mask)

    def preview(self) -> None:
        """Hue AoLP, saturation DoLP, value S0/2."""
        saturation = self.degree
        grey = _union(self.invalid_mask, self.uncertain_mask)
        if grey is not None:
            saturation = cv2.copyTo(saturation, cv2.bitwise_not(grey))
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


#: Operator of the plan's first stage -> the method of `Strip` that computes it.
_METHODS: Dict[str, Callable[[Strip], None]] = {
    **{name: getattr(Strip, name) for name in make_plan(PRODUCTS).pixel if not name.startswith("angle_")},
    **{f"angle_{angle}": partial(Strip.angle, index=index) for index, angle in enumerate(ANGLES)},
    "linear": Strip.linear,
}


def run_operators(strip: Strip, names: Iterable[str]) -> None:
    """Run operators on a strip, in order."""
    for name in names:
        _METHODS[name](strip)


def compute_strip(job: FrameJob, rows: Tuple[int, int]) -> Tuple[int, int]:
    """Run the operators of the first stage on one strip, but for those that a compiled kernel computes from the mosaic.

    Args:
        job: The frame.
        rows: (first, end) output row of the strip.

    Returns:
        Pixels that are (saturated, dark).
    """
    strip = Strip(job, *rows)
    run_operators(strip, job.strip_operators)
    if job.kernels and job.kernel_operators and not job.is_from_mosaic:
        angles = [image for channel in strip.images for image in channel]
        return job.kernels.planes(angles, strip.saturation_mask, rows, job.target)
    return strip.counts
