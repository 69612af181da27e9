"""The light on the sensor: its smooth part, which a calibration keeps, and how it changes from setting to setting."""

from __future__ import annotations

from typing import List, NamedTuple, Tuple

import cv2
import numpy as np

from polar_pipeline.sensor.forward import color_indices
from polar_pipeline.sensor.mosaic import CHANNELS, Sensor
from polar_pipeline.tools.calibrate.polarizer import Polarizer
from polar_pipeline.tools.calibrate.reductions import Surface, block_places, block_side, fit_surface, reduce_blocks
from polar_pipeline.tools.calibrate.sums import FrameSums

#: Blocks along the longer side, of which the polynomial fits the means.
_BLOCKS = 64
#: Blocks along the longer side in which the light of each setting is measured, and minimum number of tiles along one.
_COARSE, _MIN_TILES = 32, 4
#: Blocks along an area that should have no common deviation.
_JOINED = 4
#: Standard deviation of a block's light from setting to setting that is expected, relative; and fits of it, since
#: the light and the pixels' responses multiply.
_CHANGE, _CHANGE_ROUNDS = 0.02, 3
#: Signal of a pixel relative to its mean below which its noise does not decrease.
_DARKEST = 0.02


class LightMaps(NamedTuple):
    """How the light differs from setting to setting over the sensor, relative to the lamp factors.

    A lamp that is polarized unevenly, a gradient that turns with the polarizer, and dust on it do so.
    """

    surfaces: List[Surface]  # smooth part, by setting
    blocks: np.ndarray  # (K, h, w) float32, the light of blocks minus the smooth part
    side: int  # pixels along a block
    spread: np.ndarray  # (K,), root mean square of each map over the sensor
    #: Mean square of the relative residuals of blocks, which neither light nor the pixels' responses explain.
    left: float
    chance: float  # the part of `left` that the noise of pixels explains

    def factor(self, setting: int, rows: slice) -> np.ndarray:
        """Return (h, W) float32: the light of a setting in some rows, 1 on average."""
        surface = self.surfaces[setting]
        light = surface.values(rows) + 1
        places = [(np.arange(length, dtype=np.float32) + 0.5) / self.side - 0.5 for length in surface.shape]
        columns, lines = np.meshgrid(places[1], places[0][rows])
        light += cv2.remap(self.blocks[setting], columns, lines, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        return light


def light_maps(
    settings: List[FrameSums], black: np.ndarray, used: np.ndarray, polarizer: Polarizer, variance: np.ndarray
) -> LightMaps:
    """Measure the light of each setting over the sensor, by the means of blocks.

    The pixels of a superpixel see the same light behind four polarizers. Light that follows the polarizer's angle a as
    cos 2a adds cos 4a to what they measure, with another sign behind each second polarizer, and light that changes in
    any other way is even less like the response of a pixel: so their own responses and the light can be told apart.

    `variance` is the relative variance of a pixel of each site at each setting by noise, (J, K).
    """
    period = round(np.sqrt(len(variance)))
    side = block_side(used.shape, period, _COARSE, _MIN_TILES)
    height, width = (length // period * period for length in used.shape)  # complete tiles
    tiles = [(slice(r, height, period), slice(c, width, period)) for r in range(period) for c in range(period)]
    counts = np.stack([reduce_blocks(np.add, used[at].astype(np.float32), side // period) for at in tiles])
    sums = np.zeros((len(tiles), len(settings), *counts.shape[1:]))
    for k, setting in enumerate(settings):
        signal = np.where(used, setting.mean() - black, 0)
        sums[:, k] = [reduce_blocks(np.add, signal[at], side // period) for at in tiles]
    basis = polarizer.basis
    weights = 1 / np.sqrt(np.maximum(polarizer.terms @ basis.T / polarizer.terms[:, :1], _DARKEST))
    light, _ = _changes(sums, counts, weights, basis)
    keep = (counts > 0).all(0)
    places = block_places(used.shape, side)[: keep.shape[0], : keep.shape[1]]
    surfaces = [fit_surface(values, counts[:, keep].sum(0), places[keep], used.shape) for values in light]
    smooth = np.stack([surface.at(places[keep]) for surface in surfaces])
    blocks = np.zeros((len(settings), *keep.shape), np.float32)
    blocks[:, keep] = light - smooth
    # what remains of larger areas, in which noise is smaller
    sums, counts = (reduce_blocks(np.add, values, _JOINED) for values in (sums, counts))
    _, left = _changes(sums, counts, weights, basis)
    chance = float(np.mean(weights**2 * variance) * np.mean(1 / counts[:, (counts > 0).all(0)]))
    spread = np.sqrt(np.mean(light**2, 1))
    return LightMaps(surfaces, blocks, side, spread, left, chance)


def _changes(sums: np.ndarray, counts: np.ndarray, weights: np.ndarray, basis: np.ndarray) -> Tuple[np.ndarray, float]:
    """Fit the light of each setting in the n blocks in which every site has pixels.

    Sums, (J, K, h, w), and counts, (J, h, w), are over the pixels of the sites in each block; weights are (J, K).

    Returns:
        (K, n) relative light, and the mean square of the relative residuals.
    """
    keep, settings = (counts > 0).all(0), len(basis)
    means = sums[:, :, keep] / counts[:, np.newaxis, keep]
    means /= means.mean((0, 1))
    light = np.zeros(means.shape[1:])
    for _ in range(_CHANGE_ROUNDS):
        normal, right, squares = np.zeros((settings, settings)), np.zeros(light.shape), 0.0
        for values, weight in zip(means, weights):
            rows = basis * weight[:, np.newaxis]
            free = np.eye(settings) - rows @ np.linalg.pinv(rows)  # removes what a pixel's response explains
            measured = values / (1 + light) * weight[:, np.newaxis]
            remaining = free @ measured
            slope = free * np.mean(measured - remaining, 1)
            normal += slope.T @ slope
            right += slope.T @ remaining
            remaining -= remaining.mean(1, keepdims=True)  # what all blocks have in common is not the light's
            squares += float(np.mean(np.sum(remaining**2, 0)))
        ridge = squares / (len(means) * settings) / _CHANGE**2
        change = np.linalg.solve(normal + max(ridge, 1e-9) * np.eye(settings), right)
        light = (1 + light) * (1 + change - change.mean(0)) - 1
    unexplained = squares - float(np.mean(np.sum(change * right, 0)))
    return light, unexplained / (len(means) * (settings - 3) - (settings - 1))


def smooth_light(level: np.ndarray, used: np.ndarray, sensor: Sensor) -> np.ndarray:
    """Fit a polynomial of degree 4 in x and y to the mean signal `level`, (H, W), separately for each color."""
    colors = color_indices(sensor, level.shape)
    light = np.zeros(level.shape, np.float32)
    # Every block holds complete superpixels, since the levels of the four angles need not be equal.
    side = block_side(level.shape, sensor.period, _BLOCKS)
    y, x = (np.linspace(-1, 1, side, dtype=np.float32) for side in level.shape)
    for color in range(len(CHANNELS) if sensor.is_color else 1):
        channel = colors == color
        own = channel & used
        counts = reduce_blocks(np.add, own.astype(np.float32), side)
        keep = counts > 0
        if not keep.any():
            light[channel] = 1
            continue
        means = reduce_blocks(np.add, np.where(own, level, 0), side)[keep] / counts[keep]
        # the pixels of a color are not in the middle of a block
        centers = [reduce_blocks(np.add, own * along, side)[keep] / counts[keep] for along in (x, y[:, np.newaxis])]
        surface = fit_surface(means, counts[keep], np.stack(centers, -1), level.shape)
        light[channel] = np.maximum(surface.values(), np.float32(1e-6 * means.max()))[channel]
    return light
