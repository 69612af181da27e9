"""The second stage of a frame with a geometry: from its linear planes to the products of the transformed image."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import List, Optional, Tuple

import cv2
import numpy as np

from polar_pipeline.backend import Buffers
from polar_pipeline.cpu.frame_job import FrameJob, OutputArrays, compared_images
from polar_pipeline.cpu.kernel_products import KERNEL_PRODUCTS, make_products
from polar_pipeline.cpu.kernel_transform import DARK, OUTSIDE, SATURATED, InvalidPixels, LinearPlanes
from polar_pipeline.cpu.kernels import Kernels
from polar_pipeline.cpu.strip import Strip, run_operators
from polar_pipeline.cpu.strips import strips
from polar_pipeline.geometry import SamplingMap
from polar_pipeline.options import Options
from polar_pipeline.plan import Plan
from polar_pipeline.products import LIGHT_PRODUCTS, PRODUCTS

#: Operators that the linear planes stand for.
_DONE = ("angles", "saturated", "invalid")
#: Smallest sum of four angles of the second stage: the first has found dark pixels.
_ANY_SUM = -1e30


class TransformJob(OutputArrays):
    """The products of a transformed frame.

    Args:
        plan: What to compute.
        options: How.
        first: The frame's first stage.
        sampling: The map of the output.
        buffers: Where the arrays come from.
        kernels: The compiled ones; None to use OpenCV.
    """

    def __init__(
        self,
        plan: Plan,
        options: Options,
        first: FrameJob,
        sampling: SamplingMap,
        buffers: Buffers,
        kernels: Optional[Kernels],
    ) -> None:
        size = sampling.size
        super().__init__(plan.products, size, options, buffers)
        assert first.linear is not None
        self.planes: LinearPlanes = first.linear
        self.sensor, self.is_mono_kernel = first.sensor, first.is_from_mosaic
        self.plan, self.options, self.sampling, self.kernels = plan, options, sampling, kernels
        self.invalid: Optional[InvalidPixels] = None
        #: What a strip of the first stage has too.
        self.noise, self.size = None, size
        self.pair = [buffers.get(size, "float32") for _ in range(compared_images(plan, options))]
        self.pair_scale = 1.0
        pixel = [name for name in plan.pixel if name not in _DONE]
        of_kernels = [name for name in pixel if kernels and (name not in PRODUCTS or name in KERNEL_PRODUCTS)]
        self.target = make_products(self.out, of_kernels, self.pair, size[1], self.planes.scale, _ANY_SUM, options)
        #: Operators that OpenCV computes: all without compiled kernels, otherwise products that these do not know.
        left = [name for name in pixel if name in PRODUCTS and name not in of_kernels]
        self.strip_operators = (
            pixel if not kernels else [*(n for n in pixel if n not in PRODUCTS), *left] if left else []
        )

    def run(self, pool: ThreadPoolExecutor, has_invalid: bool) -> Tuple[int, int]:
        """Compute everything but the similarity; returns output pixels that are (saturated, dark).

        Args:
            pool: Threads to work on.
            has_invalid: Whether a pixel of the planes is invalid.
        """
        if has_invalid:
            flags = self.planes.flags
            self.invalid = InvalidPixels(flags, np.max(flags, axis=1))
        counts = []
        if self.strip_operators or not self.is_mono_kernel:
            counts = list(pool.map(partial(_compute_strip, self), strips(self.size)))
        if self.kernels and self.is_mono_kernel:
            counts = [self.kernels.transformed(self.planes, self.invalid, self.sampling, self.target)]
        self._erase_outside()
        return sum(saturated for saturated, _ in counts), sum(dark for _, dark in counts)

    def _erase_outside(self) -> None:
        """Make float images of intensities NaN outside the input, where they are 0; polarization is invalid already."""
        outside = self.sampling.outside
        if outside is None:
            return
        for name, image in self.out.items():
            if image.dtype == np.float32 and name in LIGHT_PRODUCTS:
                image[outside != 0] = np.nan


class _TransformedStrip(Strip):
    """The values of one strip of rows of a transformed image, from the planes instead of the mosaic."""

    def __init__(self, job: TransformJob, top: int, bottom: int) -> None:
        self.job = job  # type: ignore[assignment]
        self.rows = (top, bottom)
        self.uncertain_mask = None
        self.images: List[List[np.ndarray]] = []
        for index, channel in enumerate(job.planes.channels):
            if job.kernels:
                images, flags, counts = job.kernels.transform_angles(channel, job.invalid, job.sampling, self.rows)
                scale = job.planes.scale
                images = images if scale == 1 else [image * np.float32(scale) for image in images]
            else:
                images, flags, counts = transform_angles(channel, job.invalid, job.sampling, self.rows)
            self.images.append(images)
            if index == 0:
                self.counts = counts
                self.invalid_mask = np.where(flags, np.uint8(255), np.uint8(0)) if flags.any() else None
        self.saturation_mask = self.invalid_mask


def _compute_strip(job: TransformJob, rows: Tuple[int, int]) -> Tuple[int, int]:
    """The products of one strip of rows, but for those that a compiled kernel computes from the planes of mono frames.

    Returns:
        Pixels that are (saturated, dark).
    """
    strip = _TransformedStrip(job, *rows)
    run_operators(strip, job.strip_operators)
    if job.kernels and not job.is_mono_kernel:
        job.kernels.planes(
            [image for channel in strip.images for image in channel], strip.invalid_mask, rows, job.target
        )
    return strip.counts


# --------------------------------------------------------------------------------------------------- without a compiler


def transform_angles(
    channel: np.ndarray, invalid: Optional[InvalidPixels], sampling: SamplingMap, rows: Tuple[int, int]
) -> Tuple[List[np.ndarray], np.ndarray, Tuple[int, int]]:
    """The four angle images of one colour in another geometry: as `Kernels.transform_angles`, in NumPy and OpenCV."""
    flags = np.zeros(sampling.source, np.uint8) if invalid is None else invalid.flags
    values, found = (_squares if sampling.positions is None else _between)(channel, flags, sampling, rows)
    if sampling.scale > 1:
        size = (sampling.size[1], rows[1] - rows[0])
        values = cv2.resize(values, size, interpolation=cv2.INTER_AREA)
        found = _any_of(found, sampling.scale)
    straight, diagonal, s1, s2 = cv2.split(values)
    if sampling.turns is None:
        s1, s2 = s1 * np.float32(sampling.turn), s2 * np.float32(sampling.turn)
    else:
        cosine, sine = cv2.split(sampling.turns[rows[0] : rows[1]])
        s1, s2 = cosine * s1 - sine * s2, sine * s1 + cosine * s2
    half = np.float32(0.5)
    images = [half * (straight + s1), half * (diagonal + s2), half * (straight - s1), half * (diagonal - s2)]
    outside = found & OUTSIDE
    if outside.any():
        for image in images:
            image[outside != 0] = 0
    inside = outside == 0
    saturated = inside & (found & SATURATED != 0)
    dark = inside & ~saturated & (found & DARK != 0)
    return images, found, (int(np.count_nonzero(saturated)), int(np.count_nonzero(dark)))


def _squares(
    channel: np.ndarray, flags: np.ndarray, sampling: SamplingMap, rows: Tuple[int, int]
) -> Tuple[np.ndarray, np.ndarray]:
    """The pixels of the planes behind some rows of the output, as seen there: `scale` times its size."""
    (first, end), last = rows, sampling.size[1] - 1
    corners = [sampling.corner @ (x, y, 1) for x in (0, last) for y in (first, end - 1)]
    (left, top), (right, bottom) = np.min(corners, axis=0), np.max(corners, axis=0) + sampling.scale
    turns = sampling.rotate // 90
    cut = (np.ascontiguousarray(np.rot90(image[top:bottom, left:right], turns)) for image in (channel, flags))
    return next(cut), next(cut)


def _between(
    channel: np.ndarray, flags: np.ndarray, sampling: SamplingMap, rows: Tuple[int, int]
) -> Tuple[np.ndarray, np.ndarray]:
    """The samples of some rows of the output: `scale` times its size."""
    assert sampling.positions is not None
    positions = sampling.positions[rows[0] * sampling.scale : rows[1] * sampling.scale]
    is_outside = positions[..., 0] < 0
    positions = np.maximum(positions, 0)
    whole = positions.astype(np.int64)
    u, v = cv2.split(positions - whole)
    width = sampling.source[1]
    place = whole[..., 1] * width + whole[..., 0]
    right, below = (u > 0).astype(np.int64), np.where(v > 0, width, 0)
    pixels, marks = channel.reshape(-1, 4), flags.reshape(-1)
    found = np.where(is_outside, np.uint8(OUTSIDE), np.uint8(0))
    values = np.zeros((*place.shape, 4), np.float32)
    for taps, weight in (
        (place, (1 - u) * (1 - v)),
        (place + right, u * (1 - v)),
        (place + below, (1 - u) * v),
        (place + right + below, u * v),
    ):
        values += pixels[taps] * weight[..., np.newaxis]
        found |= np.where(is_outside, np.uint8(0), marks[taps])
    values[is_outside] = 0
    return values, found


def _any_of(flags: np.ndarray, scale: int) -> np.ndarray:
    """All flags of squares of scale x scale pixels."""
    height, width = flags.shape
    squares = flags.reshape(height // scale, scale, width // scale, scale)
    found: np.ndarray = np.bitwise_or.reduce(np.bitwise_or.reduce(squares, 3), 1)
    return np.ascontiguousarray(found)
