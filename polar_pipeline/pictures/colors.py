"""Products as pictures to look at: color maps for DoLP, AoLP and similarity."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

import cv2
import numpy as np

from polar_pipeline.options.products import PRODUCTS, invalid_level, level_scale
from polar_pipeline.pictures.text import BACK, draw_text
from polar_pipeline.polarimetry.colormaps import AOLP_MAP, COLOR_STYLES, DIVERGING_MAP, DOLP_MAP

#: Diameter of the wheel of AoLP's colors, width of the bar of DoLP's, and space for numbers around them, in pixels.
WHEEL_SIDE, BAR_WIDTH, LEGEND_MARGIN = 160, 256, 44


def picture(name: str, array: np.ndarray, max_side: int = 0, plane: int = 0) -> np.ndarray:
    """Color a product, as `Pipeline` returns it, by the color map and the range of its row as (h, w, 3) uint8 RGB.

    Invalid pixels are black where they are not a valid level too.

    Args:
        name: The product.
        array: Its image.
        max_side: Larger pictures shrink to this longest side in pixels, unless it is 0.
        plane: Which channel is pictured of a product whose channels are quantities of their own (`planes`), such as the
            Stokes vector; one with values of both signs is white at 0, blue below and orange above.
    """
    row = PRODUCTS[name]
    dtype = str(array.dtype)
    array = shrunk(name, array, max_side)
    if array.dtype == np.uint8 and array.ndim == 3:
        return array.copy()  # colors of 8 bit are a picture already
    has_levels = row.is_invalid_high and dtype != "float32"
    invalid = array == invalid_level(name, dtype) if has_levels else np.isnan(array)
    values = np.nan_to_num(array / level_scale(name, dtype)).astype(np.float32)
    low, high = pictured_range(name, plane)
    if row.planes:
        values, invalid = values[..., plane], invalid.any(-1)
    if low == -high:
        rgb = diverging(values / np.float32(high))
    elif values.ndim == 3:
        rgb = _bytes(values)
    elif row.wraps:
        rgb = AOLP_MAP[aolp_indices(values)]
    else:
        shares = (values - low) / np.float32(high - low)
        rgb = viridis(shares) if row.colors == "viridis" else cv2.cvtColor(_bytes(shares), cv2.COLOR_GRAY2RGB)
    rgb[invalid if invalid.ndim == 2 else invalid.any(-1)] = 0
    return rgb


def shrunk(name: str, array: np.ndarray, max_side: int) -> np.ndarray:
    """Shrink a product to a longest side of `max_side` pixels, unless it is 0 or the product is not larger.

    Angles must not be averaged: a pixel of them is picked. Means are those of the valid pixels, and invalid where less
    than half of the pixels are valid. An element type in which 0 is both a value and invalid is averaged with its 0.
    """
    if not max_side or max(array.shape[:2]) <= max_side:
        return array
    shrink = max_side / max(array.shape[:2])
    size = (max(1, round(array.shape[1] * shrink)), max(1, round(array.shape[0] * shrink)))
    if PRODUCTS[name].wraps:
        return cv2.resize(array, size, interpolation=cv2.INTER_NEAREST)
    dtype, is_high = str(array.dtype), PRODUCTS[name].is_invalid_high
    if dtype != "float32" and not is_high:
        return cv2.resize(array, size, interpolation=cv2.INTER_AREA)
    invalid = np.isnan(array) if dtype == "float32" else array == invalid_level(name, dtype)
    sums = cv2.resize(np.where(invalid, 0, array).astype(np.float32), size, interpolation=cv2.INTER_AREA)
    shares = cv2.resize((~invalid).astype(np.float32), size, interpolation=cv2.INTER_AREA)
    means = np.where(shares < 0.5, invalid_level(name, dtype), sums / np.maximum(shares, 0.5))
    return means.astype(array.dtype) if dtype == "float32" else np.rint(means).astype(array.dtype)


def aolp_indices(angles: np.ndarray) -> np.ndarray:
    """Convert AoLP in rad to indices into `AOLP_MAP`; angles that differ by pi have equal indices."""
    return np.rint(angles * (256 / np.pi)).astype(int) % 256


def legend(name: str, style: str = "plain") -> Optional[np.ndarray]:
    """Draw the legend of a product's colors, (h, w, 3) uint8 RGB; None for a product of numbers or of light.

    A wheel has AoLP as its direction, labeled in degrees, and DoLP as the distance from its center, 1 at the rim; a bar
    goes from 0 at the left to 1 at the right. `style` is the option `color_style`.
    """
    row = PRODUCTS[name]
    if row.unit or not row.legend:
        return None
    if row.legend == "bar":
        bar = np.repeat(DOLP_MAP[np.newaxis], 24, 0)
        texts = [(f"{k / 4:g}", k * BAR_WIDTH / 4, len(bar) + 14) for k in range(5)]
        return _labeled(bar, [*texts, ("DoLP", BAR_WIDTH / 2, -14)])
    rgb, inside = wheel(name, style, WHEEL_SIDE)
    rgb[~inside] = BACK
    middle, reach = WHEEL_SIDE / 2, WHEEL_SIDE / 2 + 16
    texts = [
        (str(degrees % 180), middle + reach * np.cos(np.deg2rad(degrees)), middle - reach * np.sin(np.deg2rad(degrees)))
        for degrees in range(0, 360, 45)
    ]
    texts.append(("AoLP in degrees", middle, -34))
    if fades(name, style):
        texts.append(("DoLP: 0 at center, 1 at rim", middle, WHEEL_SIDE + 34))
    return _labeled(rgb, texts)


def bar_colors(name: str, plane: int = 0) -> np.ndarray:
    """Return the (n, 3) uint8 colors of a product's bar, from the lowest to the highest value; none without a bar."""
    row = PRODUCTS[name]
    if row.planes and pictured_range(name, plane)[0] < 0:
        return DIVERGING_MAP[1:]
    if row.wraps:
        return np.vstack([AOLP_MAP, AOLP_MAP[:1]])
    if row.legend != "bar" and not row.is_light and not row.planes:
        return np.zeros((0, 3), np.uint8)
    return DOLP_MAP if row.colors == "viridis" else np.repeat(np.arange(256, dtype=np.uint8)[:, np.newaxis], 3, 1)


def fades(name: str, style: str = "plain") -> bool:
    """Whether the colors of a product with a wheel depend on DoLP too."""
    return PRODUCTS[name].colors == "hsv" or COLOR_STYLES[style][1] < 1


def wheel(name: str, style: str, side: int) -> Tuple[np.ndarray, np.ndarray]:
    """Draw the wheel of a product of AoLP: (side, side, 3) uint8 RGB, and the (side, side) pixels that are in it."""
    x = np.linspace(-1, 1, side)[np.newaxis]
    radius, angle = np.hypot(x, x.T), np.arctan2(-x.T, x) % np.pi
    inside, radius = radius < 1, np.minimum(radius, 1)
    if PRODUCTS[name].colors == "hsv":
        hsv = np.stack([angle * (360 / np.pi) % 360, radius, np.ones_like(angle)], -1).astype(np.float32)
        return _bytes(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)), inside
    gray, min_share = COLOR_STYLES[style]
    colors = gray + np.maximum(radius, min_share)[..., np.newaxis] * (AOLP_MAP[aolp_indices(angle)] - gray)
    return np.rint(colors).astype(np.uint8), inside


def _labeled(image: np.ndarray, texts: Sequence[Tuple[str, float, float]]) -> np.ndarray:
    """Add a margin, and texts centered at columns and rows of the image, which may be in the margin."""
    out = np.full((image.shape[0] + 2 * LEGEND_MARGIN, image.shape[1] + 2 * LEGEND_MARGIN, 3), BACK, np.uint8)
    out[LEGEND_MARGIN:-LEGEND_MARGIN, LEGEND_MARGIN:-LEGEND_MARGIN] = image
    for text, column, row in texts:
        draw_text(out, text, (column + LEGEND_MARGIN, row + LEGEND_MARGIN), 12)
    return out


def pictured_range(name: str, plane: int = 0) -> Tuple[float, float]:
    """Return the values with the first and the last color in pictures; beyond them colors stay the same.

    A plane with values of both signs ends at a quarter of its largest value: few scenes are polarized more.
    """
    row = PRODUCTS[name]
    if not row.planes:
        return row.pictured
    _, low, high = row.planes[plane]
    return (low / 4, high / 4) if low == -high else (low, high)


def diverging(values: np.ndarray) -> np.ndarray:
    """Color (h, w) numbers from -1 to 1, others as the nearer end, white at 0; returns (h, w, 3) uint8 RGB."""
    return DIVERGING_MAP[128 + np.rint(np.clip(values, -1, 1) * 127).astype(int)]


def viridis(values: np.ndarray) -> np.ndarray:
    """Color (h, w) numbers from 0 to 1 by the map viridis, others as the nearer end; returns (h, w, 3) uint8 RGB."""
    return DOLP_MAP[_bytes(values)]


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
