"""The demosaicking methods of the reference: color lattice, polarizer mosaic, and common parts."""

from __future__ import annotations

from functools import partial, reduce
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline.options import Options
from polar_pipeline.polarimetry.coefficients import (
    ADR_BIAS,
    ADR_CURVED,
    ADR_GAIN,
    ADR_GRADIENT_NOISE,
    ADR_LIMIT,
    ADR_OTHER,
    ADR_SAME,
    ADR_STEP,
    ADR_UNCORRELATED,
    ADR_WEIGHTED,
    BETA,
    EPSILON,
    LUMA,
    MHC_ACROSS,
    MHC_GREEN,
    MHC_ROW,
)
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import ANGLES, Sensor

# ------------------------------------------------------------------------------------------------------------- helpers


def shifted(image: np.ndarray, dy: int, dx: int, halo: int) -> np.ndarray:
    """Return `image`, padded by `halo`, as seen at an offset."""
    height, width = image.shape[0] - 2 * halo, image.shape[1] - 2 * halo
    return image[halo + dy : halo + dy + height, halo + dx : halo + dx + width]


def add_up(images: Iterable[np.ndarray]) -> np.ndarray:
    """Sum images of one shape."""
    return reduce(np.add, images)


def reflect(image: np.ndarray, halo: int) -> np.ndarray:
    """Pad the first two axes by reflect-101, which keeps the parity of a 2x2 tile."""
    return np.pad(image, ((halo, halo), (halo, halo)) + ((0, 0),) * (image.ndim - 2), "reflect")


def lattice_reflect(mosaic: np.ndarray, halo: int) -> np.ndarray:
    """Pad by reflect-101 on each stride-2 lattice, which keeps the phase of a 4x4 color tile; `halo` is even."""
    out = np.empty((mosaic.shape[0] + 2 * halo, mosaic.shape[1] + 2 * halo), mosaic.dtype)
    for i in range(2):
        for j in range(2):
            out[i::2, j::2] = np.pad(mosaic[i::2, j::2], halo // 2, "reflect")
    return out


def normalize(frame: RawFrame) -> np.ndarray:
    """Convert raw numbers to (H, W) float64 in [0, 1]; numbers above full scale are full scale."""
    return np.minimum(frame.mosaic.astype(np.float64) / frame.full_scale, 1)


# ------------------------------------------------------------------------------------------------------ color lattice


def _bayer_sites(sensor: Sensor, shape: Tuple[int, ...]) -> Dict[str, np.ndarray]:
    """Return masks of red, blue, and green in a red row, where a row's color is that of its own lattice."""
    color = np.array(sensor.colors)
    row_color = np.where(color == 1, np.roll(color, 2, 1), color)
    repeats = [-(-side // len(color)) for side in shape[:2]]
    masks = {"red": color == 0, "blue": color == 2, "red_row": row_color == 0}
    return {name: np.tile(mask, repeats)[: shape[0], : shape[1]] for name, mask in masks.items()}


def _assemble_rgb(
    sensor: Sensor, mosaic: np.ndarray, green: np.ndarray, row: np.ndarray, column: np.ndarray, across: np.ndarray
) -> np.ndarray:
    """Assemble the three channels at every pixel.

    Args:
        sensor: The mosaic's layout.
        mosaic: (H, W) the pixel's own color.
        green: Green at red and blue pixels.
        row: At green pixels, the color of their row.
        column: At green pixels, the color of their column.
        across: At red and blue pixels, the opposite of the two.
    """
    at = _bayer_sites(sensor, mosaic.shape)
    is_green = ~(at["red"] | at["blue"])
    red = np.where(at["red"], mosaic, np.where(at["blue"], across, np.where(at["red_row"], row, column)))
    blue = np.where(at["blue"], mosaic, np.where(at["red"], across, np.where(at["red_row"], column, row)))
    return np.clip(np.stack([red, np.where(is_green, mosaic, green), blue], -1), 0, 1)


def _lattice_means(image: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Average the nearest samples of one angle: two in the row, two in the column, four on the diagonals."""
    z = lattice_reflect(image, 2)
    row = (shifted(z, 0, -2, 2) + shifted(z, 0, 2, 2)) / 2
    column = (shifted(z, -2, 0, 2) + shifted(z, 2, 0, 2)) / 2
    return row, column, add_up(shifted(z, dy, dx, 2) for dy in (-2, 2) for dx in (-2, 2)) / 4


def debayer_bilinear(mosaic: np.ndarray, sensor: Sensor) -> np.ndarray:
    """Convert an (H, W) color mosaic to (H, W, 3): bilinear on each angle's Bayer lattice."""
    row, column, across = _lattice_means(mosaic)
    return _assemble_rgb(sensor, mosaic, (row + column) / 2, row, column, across)


def debayer_mhc(mosaic: np.ndarray, sensor: Sensor) -> np.ndarray:
    """Convert (H, W) to (H, W, 3) in [0, 1]: Malvar, He and Cutler (ICASSP 2004) on each angle's Bayer lattice."""
    z = lattice_reflect(mosaic, 4)
    h1 = shifted(z, 0, -2, 4) + shifted(z, 0, 2, 4)
    v1 = shifted(z, -2, 0, 4) + shifted(z, 2, 0, 4)
    h2 = shifted(z, 0, -4, 4) + shifted(z, 0, 4, 4)
    v2 = shifted(z, -4, 0, 4) + shifted(z, 4, 0, 4)
    diagonal = add_up(shifted(z, dy, dx, 4) for dy in (-2, 2) for dx in (-2, 2))

    def weigh(taps: Tuple[int, ...], *values: np.ndarray) -> np.ndarray:
        return add_up(tap * value for tap, value in zip(taps, values)) / 16

    green = weigh(MHC_GREEN, mosaic, h1 + v1, h2 + v2)
    row = weigh(MHC_ROW, mosaic, h1, h2, v2, diagonal)
    column = weigh(MHC_ROW, mosaic, v1, v2, h2, diagonal)
    across = weigh(MHC_ACROSS, mosaic, diagonal, h2 + v2)
    return _assemble_rgb(sensor, mosaic, green, row, column, across)


def _edge_weighted(
    z: np.ndarray, c: np.ndarray, halo: int, steps: Iterable[Tuple[int, int]], detail: float = 0.0
) -> np.ndarray:
    """Average the samples one step away, weighted less the more the image changes in their direction.

    Args:
        z: The image with `halo` more pixels on every side than `c`.
        c: The image.
        halo: In pixels; at least two steps.
        steps: (rows, columns) each.
        detail: By what the difference to the sample two steps away is multiplied and added.
    """
    total, weights = np.zeros_like(c), np.zeros_like(c)
    for dy, dx in steps:
        near, opposite, far = (shifted(z, k * dy, k * dx, halo) for k in (1, -1, 2))
        weight = 1 / (np.abs(near - opposite) + np.abs(c - far) + EPSILON)
        total, weights = total + weight * (near + detail * (c - far)), weights + weight
    return total / weights


def debayer_weighted(mosaic: np.ndarray, sensor: Sensor) -> np.ndarray:
    """Convert (H, W) to (H, W, 3): edge-weighted green, then color differences.

    The color step of `demosaic_adaptive` (`docs/adaptive_demosaic.md`).
    """
    z = lattice_reflect(mosaic, 4)
    green = _edge_weighted(z, mosaic, 4, ((-2, 0), (2, 0), (0, -2), (0, 2)), 0.5)
    at = _bayer_sites(sensor, mosaic.shape)
    green = np.where(at["red"] | at["blue"], green, mosaic)
    row, column, across = (green + mean for mean in _lattice_means(mosaic - green))
    return _assemble_rgb(sensor, mosaic, green, row, column, across)


# --------------------------------------------------------------------------------------------------- polarizer mosaic


def _neighbors(di: int, dj: int) -> List[Tuple[int, int]]:
    """List the steps to the nearest pixels whose tile position differs by (di, dj) from the pixel's own."""
    return [(dy, dx) for dy in ((-1, 1) if di else (0,)) for dx in ((-1, 1) if dj else (0,))]


def _neighbor_mean(z: np.ndarray, halo: int, di: int, dj: int) -> np.ndarray:
    """Average over `_neighbors`."""
    steps = _neighbors(di, dj)
    return add_up(shifted(z, dy, dx, halo) for dy, dx in steps) / len(steps)


def _assemble_angles(mosaic: np.ndarray, sensor: Sensor, missing: Dict[Tuple[int, int], np.ndarray]) -> np.ndarray:
    """Assemble (4, H, W): each pixel's own angle is its own sample, the others come from `missing[(di, dj)]`."""
    out = np.empty((4, *mosaic.shape))
    for angle, degrees in enumerate(ANGLES):
        i, j = sensor.position(degrees)
        for r in range(2):
            for c in range(2):
                source = missing.get((r ^ i, c ^ j), mosaic)
                out[angle, r::2, c::2] = source[r::2, c::2]
    return out


_MISSING = ((0, 1), (1, 0), (1, 1))


def demosaic_bilinear(mosaic: np.ndarray, sensor: Sensor) -> np.ndarray:
    """Convert an (H, W) polarizer mosaic of one color to (4, H, W) by bilinear interpolation."""
    z = reflect(mosaic, 1)
    return _assemble_angles(mosaic, sensor, {d: _neighbor_mean(z, 1, *d) for d in _MISSING})


def demosaic_gradient(mosaic: np.ndarray, sensor: Sensor) -> np.ndarray:
    """Convert (H, W) to (4, H, W): bilinear plus `BETA` of the center's detail, without MHC's bias."""
    z = reflect(mosaic, 2)
    axial = shifted(z, 0, -2, 2) + shifted(z, 0, 2, 2) + shifted(z, -2, 0, 2) + shifted(z, 2, 0, 2)
    detail = BETA * (mosaic - axial / 4)
    missing = {d: np.clip(_neighbor_mean(z, 2, *d) + detail, 0, 1) for d in _MISSING}
    return _assemble_angles(mosaic, sensor, missing)


#: Pixels around the frame for which ADR's gradients are computed: half of the switch's window.
_RIM = 2


class _Differences(NamedTuple):
    """Differences between samples of one angle, `_RIM` pixels beyond the mosaic on every side.

    c is the pixel's own angle, r that of its row, v that of its column, d the orthogonal one; x and y are directions.
    """

    cx: np.ndarray
    cy: np.ndarray
    rx: np.ndarray
    ry: np.ndarray
    vx: np.ndarray
    vy: np.ndarray
    dx: np.ndarray
    dy: np.ndarray
    second_cx: np.ndarray
    second_cy: np.ndarray
    second_vx: np.ndarray
    second_ry: np.ndarray


def _gradients(mosaic: np.ndarray) -> _Differences:
    z = reflect(mosaic, 2 * _RIM)

    def at(dy: int, dx: int) -> np.ndarray:
        return shifted(z, dy, dx, _RIM)

    center = at(0, 0)
    left, right, up, down = at(0, -2), at(0, 2), at(-2, 0), at(2, 0)
    v_left, v_right = (at(-1, -2) + at(1, -2)) / 2, (at(-1, 2) + at(1, 2)) / 2
    r_up, r_down = (at(-2, -1) + at(-2, 1)) / 2, (at(2, -1) + at(2, 1)) / 2
    falling, rising = at(1, 1) - at(-1, -1), at(1, -1) - at(-1, 1)
    return _Differences(
        cx=(right - left) / 2,
        cy=(down - up) / 2,
        rx=at(0, 1) - at(0, -1),
        ry=(r_down - r_up) / 2,
        vx=(v_right - v_left) / 2,
        vy=at(1, 0) - at(-1, 0),
        dx=(falling - rising) / 2,
        dy=(falling + rising) / 2,
        second_cx=center - (right + left) / 2,
        second_cy=center - (down + up) / 2,
        second_vx=(at(-1, 0) + at(1, 0)) / 2 - (v_right + v_left) / 2,
        second_ry=(at(0, -1) + at(0, 1)) / 2 - (r_down + r_up) / 2,
    )


def polarization_switch(mosaic: np.ndarray) -> np.ndarray:
    """Find edges of polarization as (H, W) from 0 to 1, the switch of `demosaic_adaptive`.

    At an edge of intensity all angles change alike, at one of polarization orthogonal angles change in opposite
    directions.
    """
    g = _gradients(mosaic)
    energy = add_up(one**2 for one in (g.cx, g.vx, g.cy, g.ry, g.dx, g.dy, g.rx, g.vy)) / 2
    correlation = g.cx * g.dx + g.cy * g.dy + g.rx * g.vx + g.ry * g.vy
    curvature = add_up(second**2 for second in (g.second_cx, g.second_cy, g.second_vx, g.second_ry))
    difference = ADR_UNCORRELATED * energy - correlation - ADR_CURVED * curvature

    def box(image: np.ndarray) -> np.ndarray:
        offsets = range(-_RIM, _RIM + 1)
        return add_up(shifted(image, dy, dx, _RIM) for dy in offsets for dx in offsets) / len(offsets) ** 2

    return np.clip(ADR_GAIN * box(difference) / (box(energy) + ADR_GRADIENT_NOISE), 0, 1)


def _secant_steps(mosaic: np.ndarray) -> Dict[Tuple[int, int], np.ndarray]:
    """Compute (H, W) by missing angle: the addition of a secant step to its bilinear value."""
    g = _gradients(mosaic)

    def step(gradients: Tuple[np.ndarray, np.ndarray], seconds: Tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Return the distance of the pixel from the middle of its neighbors, by the angles known on both sides."""
        share = add_up(one * two for one, two in zip(gradients, seconds)) / 2
        return np.clip(share / (add_up(one**2 for one in gradients) + ADR_GRADIENT_NOISE), -ADR_STEP, ADR_STEP)

    tx, ty = step((g.cx, g.vx), (g.second_cx, g.second_vx)), step((g.cy, g.ry), (g.second_cy, g.second_ry))
    steps = {(0, 1): g.rx * tx, (1, 0): g.vy * ty, (1, 1): g.dx * tx + g.dy * ty}
    return {d: shifted(image, 0, 0, _RIM) for d, image in steps.items()}


def demosaic_adaptive(mosaic: np.ndarray, sensor: Sensor, switch: Optional[np.ndarray] = None) -> np.ndarray:
    """Convert (H, W) to (4, H, W) by adaptive detail restoration (`docs/adaptive_demosaic.md`).

    Args:
        mosaic: Mosaic of one color.
        sensor: Its tile of polarizers.
        switch: (H, W) where edges are of polarization; by default `polarization_switch` of the mosaic. In color, all
            channels share that of their luma.
    """
    if switch is None:
        switch = polarization_switch(mosaic)
    # Stage A over the frame and one pixel around it, which stage B needs; radius 3 (diagonal weights reach 2).
    c = reflect(mosaic, 1)
    z = reflect(mosaic, 4)
    weighted = {d: _edge_weighted(z, c, 3, _neighbors(*d)) for d in _MISSING}
    g = (c + add_up(weighted.values())) / 4
    (center, outer), (inner, rim) = ADR_SAME, ADR_OTHER
    same = np.array([0, outer, 0, center, 0, outer, 0]) / 16
    other = np.array([rim, 0, inner, 0, inner, 0, rim]) / 16

    def low_pass(horizontal: np.ndarray, vertical: np.ndarray) -> np.ndarray:
        return add_up(
            vertical[dy + 3] * horizontal[dx + 3] * shifted(z, dy, dx, 3) for dy in range(-3, 4) for dx in range(-3, 4)
        )

    d0, dr, dc, dd = low_pass(same, same), low_pass(other, same), low_pass(same, other), low_pass(other, other)
    mean = np.maximum((d0 + dr + dc + dd) / 4, EPSILON / 4)
    e = mean / np.maximum(d0, mean / 4) * (c - d0 * g / mean)
    p2 = shifted((d0 - dd) ** 2 + (dr - dc) ** 2, 0, 0, 1) / 4

    # Stage B.
    kernel = ((1, 2, 1), (2, 4, 2), (1, 2, 1))
    r0 = add_up(kernel[dy + 1][dx + 1] * shifted(e, dy, dx, 1) ** 2 for dy in (-1, 0, 1) for dx in (-1, 0, 1)) / 16
    corners = add_up(shifted(e, dy, dx, 1) for dy in (-1, 1) for dx in (-1, 1))
    sides = shifted(e, 0, -1, 1) + shifted(e, 0, 1, 1)
    poles = shifted(e, -1, 0, 1) + shifted(e, 1, 0, 1)
    center_e, center_g = shifted(e, 0, 0, 1), shifted(g, 0, 0, 1)
    r1 = (center_e * corners + sides * poles) / 8
    noise = 4 * EPSILON**2
    w = r0 / (r0 + 2 * p2 + noise)
    alpha = w + (1 - w) * np.clip(ADR_BIAS + r1 / (r0 + noise), -ADR_LIMIT, ADR_LIMIT)
    steps = _secant_steps(mosaic)
    missing = {}
    for d in _MISSING:
        x, bg, be = (_neighbor_mean(image, 1, *d) for image in (c, g, e))
        gain = np.minimum(x / np.maximum(bg, EPSILON / 4), 2)
        detail = gain * (center_g + alpha * center_e - (bg + alpha * be))
        detail = detail + ADR_WEIGHTED * (shifted(weighted[d], 0, 0, 1) - x)
        missing[d] = np.clip(x + detail + switch * (steps[d] - detail), 0, 1)
    return _assemble_angles(mosaic, sensor, missing)


DEBAYER = {"bilinear": debayer_bilinear, "mhc": debayer_mhc, "weighted": debayer_weighted}
DEMOSAIC = {"bilinear": demosaic_bilinear, "gradient": demosaic_gradient, "adaptive": demosaic_adaptive}


def co_site(angles: np.ndarray) -> np.ndarray:
    """Convert (4, H, W[, 3]) to (4, H//2, W//2[, 3]): the mean of each superpixel's four pixels, at its center."""
    even = angles[:, : angles.shape[1] // 2 * 2, : angles.shape[2] // 2 * 2]
    return (even[:, 0::2, 0::2] + even[:, 0::2, 1::2] + even[:, 1::2, 0::2] + even[:, 1::2, 1::2]) / 4


def own_site(mosaic: np.ndarray, sensor: Sensor) -> np.ndarray:
    """Convert (H, W[, 3]) to (4, H//2, W//2[, 3]): every angle at its own pixel."""
    height, width = mosaic.shape[0] // 2, mosaic.shape[1] // 2
    positions = [sensor.position(degrees) for degrees in ANGLES]
    return np.stack([mosaic[i::2, j::2][:height, :width] for i, j in positions])


def demosaic(mosaic: np.ndarray, sensor: Sensor, options: Options) -> np.ndarray:
    """Demosaic an (H, W) mosaic in [0, 1] to the four angle images at the output's resolution."""
    is_half = options.resolution == "half"
    return demosaic_by(mosaic, sensor, is_half, options.co_sited, options.interpolation, options.debayer)


def demosaic_by(
    mosaic: np.ndarray, sensor: Sensor, is_half: bool, co_sited: bool, interpolation: str, debayer: str
) -> np.ndarray:
    """Apply `demosaic` with named methods.

    Args:
        mosaic: (H, W) in [0, 1].
        sensor: Its layout.
        is_half: Whether an output pixel stands for a superpixel.
        co_sited: At half resolution, angles interpolated to the superpixel's center.
        interpolation: Method on the polarizer mosaic, of `DEMOSAIC`.
        debayer: Method on the color lattice, of `DEBAYER`.
    """
    if sensor.is_color:
        mosaic = DEBAYER[debayer](mosaic, sensor)
    if is_half and not co_sited:
        return own_site(mosaic, sensor)
    method = DEMOSAIC[interpolation]
    if sensor.is_color:
        if interpolation == "adaptive":
            method = partial(demosaic_adaptive, switch=polarization_switch(mosaic @ np.array(LUMA)))
        angles = np.stack([method(mosaic[..., k], sensor) for k in range(3)], -1)
    else:
        angles = method(mosaic, sensor)
    return co_site(angles) if is_half else angles
