"""Adaptive detail restoration (ADR) of one strip; the names are those of `docs/adaptive_demosaic.md`.

No running sums: results must not depend on where a strip begins.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

import cv2
import numpy as np

from polar_pipeline.coefficients import (
    ADR_BIAS,
    ADR_CURVED,
    ADR_GAIN,
    ADR_GRADIENT_NOISE,
    ADR_LIMIT,
    ADR_STEP,
    ADR_UNCORRELATED,
    ADR_WEIGHTED,
    EPSILON,
)
from polar_pipeline.cpu.images import Image, at, inner, select
from polar_pipeline.sensor.mosaic import ANGLES, Sensor

_F = np.float32
_BINOMIAL = np.array([0.25, 0.5, 0.25], _F)
_BOX = np.full(5, 0.2, _F)
_SAME_PHASE = np.array([4, 0, 8, 0, 4], _F) / _F(16)
_OTHER_PHASE = np.array([1, 0, 7, 0, 7, 0, 1], _F) / _F(16)
_NOISE = _F(4 * EPSILON**2)
_GRADIENT_NOISE = _F(ADR_GRADIENT_NOISE)


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


def adaptive(z: Image, sensor: Sensor, switch: Optional[Image] = None) -> List[Image]:
    """(H + 8, W + 8) float32 mosaic of full scale 1 -> four (H, W) angle images.

    Args:
        z: Of one colour.
        sensor: Its tile of polarizers.
        switch: (H, W) `polarization_switch`, by default that of the mosaic; in colour, all channels share that of their
            luma.
    """
    stage_a = _adaptive_stage_a(z)
    candidates = _adaptive_stage_b(z, stage_a, *_edges(z, switch))
    images = []
    for angle in ANGLES:
        i, j = sensor.position(angle)
        images.append(select([[candidates[r ^ i, column ^ j] for column in range(2)] for r in range(2)]))
    return images


class _StageA(NamedTuple):
    """What ADR's first stage makes.

    c, g, e and the weighted means of the missing angles have one pixel more on every side than the result; `phase`,
    2 P2, is as large.
    """

    c: Image
    g: Image
    e: Image
    phase: Image
    weighted: List[Image]


def _adaptive_stage_a(z: Image) -> _StageA:
    """ADR's first stage: the total intensity, its low-pass, and the detail that the low-pass lost."""
    c = np.ascontiguousarray(inner(z, 3))
    weighted = [_pair_mean(c, z, 0, 1), _pair_mean(c, z, 1, 0), _diagonal_mean(c, z)]
    g = weighted[0] + weighted[1]
    g += weighted[2]
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
    return _StageA(c, g, e, phase, weighted)


def _vertical_mean(image: Image) -> Image:
    """(H + 2, W) -> (H, W): mean of the pixels above and below."""
    mean = image[:-2] + image[2:]
    mean *= _F(0.5)
    return mean


class _Gradients(NamedTuple):
    """Differences along x of the angles of a pixel's row (own and row) and of the rows beside it (column and diagonal).

    Attributes:
        own: Of the own angle, over two pixels: half of that over four.
        column: Of the column's angle, likewise.
        row: Of the row's angle, over two pixels.
        diagonal: Of the orthogonal angle, likewise.
        own_second: Second difference of the own angle.
        column_second: Of the column's angle.
    """

    own: Image
    column: Image
    row: Image
    diagonal: Image
    own_second: Image
    column_second: Image


def _gradients(z: Image) -> _Gradients:
    """(H + 4, W + 4) -> (H, W) differences along x; along y they are those of the transposed mosaic."""
    first = z[1:-1, 2:] - z[1:-1, :-2]
    own = first[:, :-2] + first[:, 2:]
    own *= _F(0.5)
    second = z[1:-1, :-4] + z[1:-1, 4:]
    second *= _F(-0.5)
    second += z[1:-1, 2:-2]
    first = first[:, 1:-1]
    return _Gradients(
        own[1:-1], _vertical_mean(own), first[1:-1], _vertical_mean(first), second[1:-1], _vertical_mean(second)
    )


def _secant_step(g: _Gradients) -> Image:
    """How far the pixel lies from the middle of its neighbours along one axis, in distances of two pixels."""
    square = g.own * g.own
    square += g.column * g.column
    square += _GRADIENT_NOISE
    step = g.own * g.own_second
    step += g.column * g.column_second
    step *= _F(0.5)
    step /= square
    return np.clip(step, -ADR_STEP, ADR_STEP, out=step)


def _gradients_of_both_axes(z: Image) -> Tuple[_Gradients, _Gradients]:
    """Along x and along y, two pixels beyond the result on every side; `z` has four."""
    return _gradients(z), _Gradients(*(image.T for image in _gradients(z.T)))


def _edges(z: Image, switch: Optional[Image]) -> Tuple[Image, List[Image]]:
    """The given switch or the mosaic's own, and the secant steps.

    A function, so that the gradients are freed before stage B needs the cache.
    """
    gradients = _gradients_of_both_axes(z)
    if switch is None:
        switch = _switch(*gradients)
    return switch, _secant_steps(*gradients)


def polarization_switch(z: Image) -> Image:
    """(H + 8, W + 8) mosaic of one colour, or luma -> (H, W): 1 where edges are of polarization, 0 elsewhere."""
    return _switch(*_gradients_of_both_axes(z))


def _switch(along_x: _Gradients, along_y: _Gradients) -> Image:
    energy, correlation, bends = (np.zeros_like(along_x.own) for _ in range(3))
    for g in (along_x, along_y):
        for gradient in (g.own, g.column, g.row, g.diagonal):
            cv2.accumulateSquare(gradient, energy)
        cv2.accumulateProduct(g.own, g.diagonal, correlation)
        cv2.accumulateProduct(g.row, g.column, correlation)
        cv2.accumulateSquare(g.own_second, bends)
        cv2.accumulateSquare(g.column_second, bends)
    energy *= _F(0.5)
    difference = energy * _F(ADR_UNCORRELATED)
    difference -= correlation
    bends *= _F(ADR_CURVED)
    difference -= bends
    noisy = inner(cv2.sepFilter2D(energy, cv2.CV_32F, _BOX, _BOX), 2)
    noisy += _GRADIENT_NOISE
    switch = inner(cv2.sepFilter2D(difference, cv2.CV_32F, _BOX, _BOX), 2) * _F(ADR_GAIN)
    switch /= noisy
    return np.clip(switch, 0, 1, out=switch)


def _secant_steps(along_x: _Gradients, along_y: _Gradients) -> List[Image]:
    """What a secant step adds to the bilinear value of each missing angle."""
    along_x, along_y = (_Gradients(*(inner(image, 2) for image in g)) for g in (along_x, along_y))
    tx, ty = _secant_step(along_x), _secant_step(along_y)
    across = along_x.diagonal * tx
    across += along_y.diagonal * ty
    tx *= along_x.row
    ty *= along_y.row
    return [tx, ty, across]


def _adaptive_stage_b(z: Image, stage_a: _StageA, switch: Image, steps: List[Image]) -> Dict[Tuple[int, int], Image]:
    """ADR's second stage: by (row, column) in the tile relative to the own angle, the value of that angle."""
    c, g, e, phase, weighted = stage_a
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
        nearby = inner(weighted[k], 1) - x
        nearby *= _F(ADR_WEIGHTED)
        lost += nearby
        # moves from the detail to the secant step by the switch
        step = steps[k]
        step -= lost
        step *= switch
        lost += step
        lost += x
        candidates[_MISSING[k]] = np.clip(lost, 0, 1, out=lost)
    return candidates
