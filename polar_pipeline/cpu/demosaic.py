"""Demosaicking of one strip: the twins of the methods in `reference/` on float32 images that carry their halo.

Which source a pixel takes follows from its place in the tile: cached masks and OpenCV's masked copy, which runs at the
speed of memory where NumPy's boolean indexing takes forty times as long (`docs/optimization_log.md`).
"""

from __future__ import annotations

import threading
from typing import List, Optional, Sequence, Tuple

import cv2
import numpy as np

from polar_pipeline.coefficients import BETA, EPSILON
from polar_pipeline.cpu.adaptive import adaptive
from polar_pipeline.cpu.images import COLOR_HALO, Image, angle_mask, at, color_sources, inner, select
from polar_pipeline.sensor.mosaic import ANGLES, Sensor

_F = np.float32
_BILINEAR = np.array([0.5, 1, 0.5], _F)
#: Taps that move a sample of an even or odd row (column) of the tile to the superpixel's centre.
_CENTRE = (np.array([0, 0.75, 0.25], _F), np.array([0.25, 0.75, 0], _F))
#: `BETA` of the pixel less the mean of the four nearest of its own angle.
_DETAIL = np.zeros((5, 5), _F)
_DETAIL[2, 2] = BETA
_DETAIL[2, ::4] = _DETAIL[::4, 2] = -BETA / 4


# ------------------------------------------------------------------------------------------------------ colour lattice


def debayer(method: str, z: Image, sensor: Sensor) -> List[Image]:
    """(H + 2n, W + 2n) float32 colour mosaic, n = `COLOR_HALO[method]` -> three (H, W) images, R, G, B, in [0, 1].

    `z` starts at the sensor's tile (0, 0), so the result starts at (n, n).
    """
    n = COLOR_HALO[method]
    centre = inner(z, n)
    if method == "weighted":
        green, row, column, across = _lattice_weighted(z, sensor)
    else:
        green, row, column, across = (inner(image, n) for image in _filter_lattice(z, _LATTICE_KERNELS[method]))
    planes = (centre, green, row, column, across)
    out = []
    for channel in color_sources(sensor, n):
        image = select([[planes[source] for source in sources] for sources in channel])
        out.append(np.clip(image, 0, 1, out=image))
    return out


def _filter_lattice(z: Image, kernels: Sequence[Image]) -> List[Image]:
    """(H, W) float32, kernels of `_lattice_kernel` -> an (H, W) image each, of which 4 pixels at the borders are void.

    The images are good until the thread's next call. Columns of one parity are a channel, so that no zeros stand
    between the taps of a row. Kernels of 50 taps and more, zeros included, OpenCV takes through a Fourier transform of
    the whole strip where it does not see SSE3, as on arm64: that is ten times as slow as these (9, 5), and its
    rounding errors depend on where the strip ends.
    """
    height, width = z.shape
    if width % 2:
        z = cv2.copyMakeBorder(z, 0, 0, 0, 1, cv2.BORDER_REPLICATE)
    pairs = z.reshape(height, -1, 2)
    images = _scratch((len(kernels), *pairs.shape))
    for kernel, image in zip(kernels, images):
        cv2.filter2D(pairs, -1, kernel, dst=image)
    return [image.reshape(z.shape)[:, :width] for image in images]


_OWN = threading.local()


def _scratch(shape: Tuple[int, ...]) -> Image:
    """Float32 memory, the same at every call of a thread: fresh memory is a page fault every 4 KB."""
    size = int(np.prod(shape))
    if getattr(_OWN, "memory", np.empty(0)).size < size:
        _OWN.memory = np.empty(size, _F)
    memory: Image = _OWN.memory[:size].reshape(shape)
    return memory


def _lattice_kernel(centre: float, h1: float, v1: float, diagonal: float, h2: float, v2: float) -> Image:
    """Taps on a lattice of stride 2: own pixel, next along row and column, diagonals, second next.

    (9, 5): of pixels down the columns, of pairs of pixels along the rows.
    """
    kernel = np.zeros((9, 5), _F)
    kernel[4, 2] = centre
    kernel[4, 1::2], kernel[2::4, 2] = h1, v1
    kernel[2::4, 1::2] = diagonal
    kernel[4, ::4], kernel[::8, 2] = h2, v2
    return kernel


#: Per method: green at red and blue; at green, the colour of the row and of the column; at red and blue, the other one.
#: OpenCV reads only the taps that are not 0.
_LATTICE_KERNELS = {
    "bilinear": (
        _lattice_kernel(0, 1 / 4, 1 / 4, 0, 0, 0),
        _lattice_kernel(0, 1 / 2, 0, 0, 0, 0),
        _lattice_kernel(0, 0, 1 / 2, 0, 0, 0),
        _lattice_kernel(0, 0, 0, 1 / 4, 0, 0),
    ),
    "mhc": (
        _lattice_kernel(8, 4, 4, 0, -2, -2) / _F(16),
        _lattice_kernel(10, 8, 0, -2, -2, 1) / _F(16),
        _lattice_kernel(10, 0, 8, -2, 1, -2) / _F(16),
        _lattice_kernel(12, 0, 0, 4, -3, -3) / _F(16),
    ),
}


def _lattice_weighted(z: Image, sensor: Sensor) -> Tuple[Image, Image, Image, Image]:
    centre = inner(z, 4)
    total = np.zeros_like(centre)
    weights = np.zeros_like(centre)
    for dy, dx in ((2, 0), (0, 2)):
        near = (at(z, -dy, -dx, 4), at(z, dy, dx, 4))
        edge = cv2.absdiff(near[0], near[1])
        edge += _F(EPSILON)
        for k, sign in enumerate((-1, 1)):
            detail = centre - at(z, 2 * sign * dy, 2 * sign * dx, 4)
            weight = np.abs(detail)
            weight += edge
            np.reciprocal(weight, out=weight)
            detail *= _F(0.5)
            detail += near[k]
            detail *= weight
            total += detail
            weights += weight
    total /= weights
    green = select([[centre if sensor.color_index(r, c) == 1 else total for c in range(4)] for r in range(4)])
    difference = centre - green
    rows = at(difference, 0, -2, 2) + at(difference, 0, 2, 2)
    sums = difference[:, :-4] + difference[:, 4:]
    across = sums[:-4] + sums[4:]
    columns = at(difference, -2, 0, 2) + at(difference, 2, 0, 2)
    green = np.ascontiguousarray(inner(green, 2))
    means = (rows * _F(0.5), columns * _F(0.5), across * _F(0.25))
    return (green, means[0] + green, means[1] + green, means[2] + green)


# --------------------------------------------------------------------------------------------------- polarizer mosaic


def even(image: Image) -> Image:
    """`image` without a last odd row or column; a view."""
    return image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2]


def superpixels(z: Image, sensor: Sensor, halo: int, scale: float, co_sited: bool) -> List[Image]:
    """(2h + 2 halo, 2w + 2 halo) mosaic of one colour and any type -> four (h, w) float32 angle images times `scale`.

    Co-sited, each angle is the mean over its superpixel of the bilinear interpolation: 3/4 and 1/4 of the two nearest
    samples along x and along y.
    """
    cropped = even(z)
    lattices = []
    for row in range(2):
        part = cropped[row::2]
        lattices.append(cv2.split(part.reshape(part.shape[0], -1, 2)))
    root = np.sqrt(scale)
    images = []
    for angle in ANGLES:
        row, column = sensor.position(angle)
        lattice = lattices[row][column]
        if co_sited:
            vertical, horizontal = ((_F(root) * _CENTRE[place]) for place in (row, column))
            image = cv2.sepFilter2D(lattice, cv2.CV_32F, horizontal, vertical)
        else:
            image = cv2.multiply(lattice, scale, dtype=cv2.CV_32F)
        images.append(inner(image, halo // 2))
    return images


def demosaic(method: str, z: Image, sensor: Sensor, scale: float = 1.0, switch: Optional[Image] = None) -> List[Image]:
    """(H + 2n, W + 2n) mosaic of one colour, n = `MONO_HALO[method]` -> four (H, W) float32 angle images.

    `z` starts at the sensor's tile (0, 0), so the result starts at (n, n), again the tile's (0, 0). `bilinear` takes
    numbers of any type and multiplies them by `scale`; the others take float32 of full scale 1. `switch` is for
    `adaptive`.
    """
    if method == "adaptive":
        return adaptive(z, sensor, switch)
    taps = _BILINEAR * _F(np.sqrt(scale))
    images = []
    for angle in ANGLES:
        own = cv2.bitwise_and(z, angle_mask(sensor, angle, z.shape, z.dtype.str))
        images.append(inner(cv2.sepFilter2D(own, cv2.CV_32F, taps, taps), 2))
    if method == "bilinear":
        return images
    centre = inner(z, 2)
    detail = inner(cv2.filter2D(z, -1, _DETAIL), 2)
    out = []
    for angle, image in zip(ANGLES, images):
        restored = cv2.add(image, detail)
        np.clip(restored, 0, 1, out=restored)
        cv2.copyTo(centre, angle_mask(sensor, angle, restored.shape, "u1"), restored)
        out.append(restored)
    return out
