"""Demosaicking of one strip: the twins of the methods in `reference/` on float32 images that carry their halo.

Which source a pixel takes follows from its place in the tile: cached masks and OpenCV's masked copy, which runs at the
speed of memory where NumPy's boolean indexing takes forty times as long (`docs/optimization_log.md`).
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Dict, List, NamedTuple, Sequence, Tuple

import cv2
import numpy as np

from polar_pipeline.coefficients import ADR_BIAS, ADR_LIMIT, BETA, EPSILON
from polar_pipeline.sensor.mosaic import ANGLES, Sensor

#: Raw pixels that a method reads beyond its own, rounded up to a multiple of two.
MONO_HALO = {"bilinear": 2, "gradient": 2, "adaptive": 4}
COLOR_HALO = {"bilinear": 2, "mhc": 4, "weighted": 6}

_F = np.float32
_BILINEAR = np.array([0.5, 1, 0.5], _F)
#: Taps that move a sample of an even or odd row (column) of the tile to the superpixel's centre.
_CENTRE = (np.array([0, 0.75, 0.25], _F), np.array([0.25, 0.75, 0], _F))
_BINOMIAL = np.array([0.25, 0.5, 0.25], _F)
#: `BETA` of the pixel less the mean of the four nearest of its own angle.
_DETAIL = np.zeros((5, 5), _F)
_DETAIL[2, 2] = BETA
_DETAIL[2, ::4] = _DETAIL[::4, 2] = -BETA / 4
_SAME_PHASE = np.array([4, 0, 8, 0, 4], _F) / _F(16)
_OTHER_PHASE = np.array([1, 0, 7, 0, 7, 0, 1], _F) / _F(16)
_NOISE = _F(4 * EPSILON**2)

Image = np.ndarray


def at(image: Image, dy: int, dx: int, halo: int) -> Image:
    """`image` without `halo` pixels on each side, seen at an offset; a view."""
    height, width = image.shape[0] - 2 * halo, image.shape[1] - 2 * halo
    return image[halo + dy : halo + dy + height, halo + dx : halo + dx + width]


def inner(image: Image, halo: int) -> Image:
    """`image` without `halo` pixels on each side; a view."""
    return at(image, 0, 0, halo)


@lru_cache(maxsize=64)
def site_mask(sites: Tuple[Tuple[bool, ...], ...], shape: Tuple[int, int], dtype: str) -> Image:
    """(H, W) of `dtype`, read-only: all bits set at the chosen sites of a tile, none elsewhere."""
    period = len(sites)
    mask = np.zeros(shape, f"u{np.dtype(dtype).itemsize}")
    for row in range(period):
        for column in range(period):
            if sites[row][column]:
                mask[row::period, column::period] = np.iinfo(mask.dtype).max
    mask.flags.writeable = False
    return mask.view(dtype)


def angle_mask(sensor: Sensor, angle: int, shape: Tuple[int, int], dtype: str) -> Image:
    """The mask of the pixels behind one polarizer, in degrees."""
    return site_mask(tuple(tuple(cell == angle for cell in row) for row in sensor.angles), shape, dtype)


def select(sources: Sequence[Sequence[Image]]) -> Image:
    """One (H, W) float32 image whose pixel (y, x) comes from `sources[y % n][x % n]`, each (H, W)."""
    distinct = list({id(source): source for row in sources for source in row}.values())
    out: Image = distinct[0].copy()
    for source in distinct[1:]:
        sites = tuple(tuple(cell is source for cell in row) for row in sources)
        cv2.copyTo(source, site_mask(sites, out.shape, "u1"), out)
    return out


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
    sources: List[List[List[Image]]] = [[], [], []]
    for r in range(n, n + 4):
        for channel in sources:
            channel.append([])
        for c in range(n, n + 4):
            own = sensor.color_index(r, c)
            of_row = own if own != 1 else sensor.color_index(r, c + 2)
            sources[1][-1].append(centre if own == 1 else green)
            for color in (0, 2):
                source = centre if own == color else across if own != 1 else row if of_row == color else column
                sources[color][-1].append(source)
    out = []
    for channel in sources:
        image = select(channel)
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


def demosaic(method: str, z: Image, sensor: Sensor, scale: float = 1.0) -> List[Image]:
    """(H + 2n, W + 2n) mosaic of one colour, n = `MONO_HALO[method]` -> four (H, W) float32 angle images.

    `z` starts at the sensor's tile (0, 0), so the result starts at (n, n), again the tile's (0, 0). `bilinear` takes
    numbers of any type and multiplies them by `scale`; the others take float32 of full scale 1.
    """
    if method == "adaptive":
        return _adaptive(z, sensor)
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


def _pair_mean(c: Image, z: Image, dy: int, dx: int) -> Image:
    """Mean of z(d) and z(-d) weighted by 1/g: with two terms it needs one division, (z(d) g(-d) + z(-d) g(d)) / sum."""
    one, two = at(z, -dy, -dx, 3), at(z, dy, dx, 3)
    edge = cv2.absdiff(one, two)
    edge += _F(EPSILON)
    g_one = cv2.absdiff(c, at(z, -2 * dy, -2 * dx, 3))
    g_two = cv2.absdiff(c, at(z, 2 * dy, 2 * dx, 3))
    g_one += edge
    g_two += edge
    mean = one * g_two
    mean += two * g_one
    g_one += g_two
    mean /= g_one
    return mean


def _diagonal_mean(c: Image, z: Image) -> Image:
    """Mean of the four diagonal neighbours weighted by 1/g."""
    total, weights = np.zeros_like(c), np.zeros_like(c)
    for dx in (-1, 1):
        one, two = at(z, -1, -dx, 3), at(z, 1, dx, 3)
        edge = cv2.absdiff(one, two)
        edge += _F(EPSILON)
        for near, sign in ((one, -1), (two, 1)):
            weight = cv2.absdiff(c, at(z, 2 * sign, 2 * sign * dx, 3))
            weight += edge
            np.reciprocal(weight, out=weight)
            weights += weight
            weight *= near
            total += weight
    total /= weights
    return total


#: Where in the tile, from the pixel's own place, the angles of `_neighbour_means` lie.
_MISSING = ((0, 1), (1, 0), (1, 1))


def _neighbour_means(image: Image) -> List[Image]:
    """(H + 2, W + 2) -> three (H, W): mean of left and right, of up and down, of the four diagonals."""
    sides = image[:, :-2] + image[:, 2:]
    across = sides[:-2] + sides[2:]
    across *= _F(0.25)
    poles = image[:-2, 1:-1] + image[2:, 1:-1]
    poles *= _F(0.5)
    sides = sides[1:-1] * _F(0.5)
    return [sides, poles, across]


def _adaptive(z: Image, sensor: Sensor) -> List[Image]:
    """Adaptive detail restoration (ADR); the names are those of `docs/adaptive_demosaic.md`."""
    stage_a = _adaptive_stage_a(z)
    candidates = _adaptive_stage_b(z, stage_a)
    images = []
    for angle in ANGLES:
        i, j = sensor.position(angle)
        images.append(select([[candidates[r ^ i, column ^ j] for column in range(2)] for r in range(2)]))
    return images


class _StageA(NamedTuple):
    """What ADR's first stage makes, one pixel more on every side than the result has: c, g and e; and 2 P2 inside."""

    c: Image
    g: Image
    e: Image
    phase: Image


def _adaptive_stage_a(z: Image) -> _StageA:
    """ADR's first stage: the total intensity, its low-pass, and the detail that the low-pass lost."""
    c = np.ascontiguousarray(inner(z, 3))
    g = _pair_mean(c, z, 0, 1)
    g += _pair_mean(c, z, 1, 0)
    g += _diagonal_mean(c, z)
    g += c
    g *= _F(0.25)

    def low_pass(horizontal: Image, vertical: Image) -> Image:
        return inner(cv2.sepFilter2D(z, cv2.CV_32F, horizontal, vertical), 3)

    d0, dd = low_pass(_SAME_PHASE, _SAME_PHASE), low_pass(_OTHER_PHASE, _OTHER_PHASE)
    dr, dc = low_pass(_OTHER_PHASE, _SAME_PHASE), low_pass(_SAME_PHASE, _OTHER_PHASE)
    mean = d0 + dr
    mean += dc
    mean += dd
    mean *= _F(0.25)
    np.clip(mean, EPSILON / 4, 1, out=mean)
    # e = mean / max(d0, mean/4) * (c - d0 g / mean)
    e = d0 * g
    e /= mean
    np.subtract(c, e, out=e)
    e *= mean
    mean *= _F(0.25)
    np.maximum(mean, d0, out=mean)
    e /= mean
    phase = inner(d0, 1) - inner(dd, 1)
    phase *= phase
    cross = inner(dr, 1) - inner(dc, 1)
    cross *= cross
    phase += cross
    phase *= _F(0.5)
    return _StageA(c, g, e, phase)


def _adaptive_stage_b(z: Image, stage_a: _StageA) -> Dict[Tuple[int, int], Image]:
    """ADR's second stage: by (row, column) in the tile relative to the own angle, the value of that angle."""
    c, g, e, phase = stage_a
    r0 = inner(cv2.sepFilter2D(cv2.multiply(e, e), cv2.CV_32F, _BINOMIAL, _BINOMIAL), 1)
    e_sides, e_poles, e_across = _neighbour_means(e)
    centre_e = np.ascontiguousarray(inner(e, 1))
    r1 = centre_e * e_across  # means, not sums: e * corners/4 and sides/2 * poles/2, so R1 is half their sum
    r1 += e_sides * e_poles
    r1 *= _F(0.5)
    noisy = r0 + _NOISE
    r1 /= noisy
    r1 += _F(ADR_BIAS)
    np.clip(r1, -ADR_LIMIT, ADR_LIMIT, out=r1)
    noisy += phase
    w = r0 / noisy
    alpha = r1 - w * r1
    alpha += w
    restored = alpha * centre_e
    restored += inner(g, 1)
    candidates = {(0, 0): np.ascontiguousarray(inner(z, 4))}
    means_e = (e_sides, e_poles, e_across)
    for k, (x, bg) in enumerate(zip(_neighbour_means(c), _neighbour_means(g))):
        lost = alpha * means_e[k]
        lost += bg
        np.subtract(restored, lost, out=lost)
        np.clip(bg, EPSILON / 4, 1, out=bg)
        gain = np.divide(x, bg, out=bg)
        np.clip(gain, 0, 2, out=gain)
        lost *= gain
        lost += x
        candidates[_MISSING[k]] = np.clip(lost, 0, 1, out=lost)
    return candidates
