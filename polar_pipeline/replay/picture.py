"""Products as pictures to look at: colour maps for DoLP, AoLP and similarity."""

from __future__ import annotations

import io
from typing import Optional

import cv2
import numpy as np

from polar_pipeline.coefficients import AOLP_SIGMA_MAX
from polar_pipeline.colormaps import AOLP_MAP, COLOR_STYLES, DOLP_MAP
from polar_pipeline.products import invalid_level, level_scale

#: Standard deviations that have the map's last colour, as do higher ones.
SIGMA_TOP = {"dolp_sigma": 0.1, "aolp_sigma": AOLP_SIGMA_MAX}
#: Width and height of the wheel of AoLP's colours.
LEGEND_SIDE = 160
#: Similarity that is black in the picture, as are lower ones.
SSIM_BLACK = 0.8


def picture(name: str, array: np.ndarray, longest: int = 0) -> np.ndarray:
    """A product as (h, w, 3) uint8 RGB.

    DoLP takes the map viridis, and so do standard deviations up to `SIGMA_TOP`; AoLP the circle of hues, similarity
    greys from `SSIM_BLACK` to 1, Stokes vectors the three colour channels. Invalid pixels are black; but for standard
    deviations, level 0 is.

    Args:
        name: Product.
        array: As `Pipeline` returns it, float32, uint8 or uint16.
        longest: Side in pixels to which larger pictures shrink; 0 for no limit.
    """
    shrink = longest / max(array.shape) if longest and max(array.shape) > longest else 1.0
    size = (max(1, round(array.shape[1] * shrink)), max(1, round(array.shape[0] * shrink)))
    if shrink < 1:
        # angles must not be averaged, so pixels are picked
        array = cv2.resize(array, size, interpolation=cv2.INTER_NEAREST if name == "aolp" else cv2.INTER_AREA)
    dtype = str(array.dtype)
    has_levels = name in SIGMA_TOP and dtype != "float32"
    invalid = array == invalid_level(name, dtype) if has_levels else np.isnan(array)
    values = np.nan_to_num(array / level_scale(name, dtype)).astype(np.float32)
    if name == "aolp":
        turn = values / np.pi
        hsv = np.stack([turn * 360 % 360, np.ones_like(turn), np.ones_like(turn)], -1).astype(np.float32)
        rgb = _bytes(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB))
    elif name == "dolp":
        rgb = viridis(values)
    elif name in SIGMA_TOP:
        rgb = viridis(values / np.float32(SIGMA_TOP[name]))
    elif name == "ssim_map":
        rgb = cv2.cvtColor(_bytes((values - SSIM_BLACK) / (1 - SSIM_BLACK)), cv2.COLOR_GRAY2RGB)
    elif name == "stokes":
        rgb = _bytes(values / 2 + np.array([0, 0.5, 0.5], np.float32))
    else:
        rgb = _bytes(values) if values.ndim == 3 else cv2.cvtColor(_bytes(values), cv2.COLOR_GRAY2RGB)
    rgb[invalid if invalid.ndim == 2 else invalid.any(-1)] = 0
    return rgb


def legend(name: str, style: str = "plain") -> Optional[np.ndarray]:
    """What the colours of a product mean, (h, w, 3) uint8 RGB; None for a product without a colour map of its own.

    `aolp_color`: a wheel with AoLP as its direction, 0 to the right and counter-clockwise, and DoLP as the distance
    from its centre, 1 at the rim. `dolp_color`: a bar from 0 at the left to 1 at the right.

    Args:
        name: Product.
        style: The option `color_style`.
    """
    if name == "dolp_color":
        return np.repeat(DOLP_MAP[np.newaxis], 24, 0)
    if name != "aolp_color":
        return None
    x = np.linspace(-1, 1, LEGEND_SIDE)[np.newaxis]
    radius, angle = np.hypot(x, x.T), np.arctan2(-x.T, x) % np.pi
    grey, least = COLOR_STYLES[style]
    colors = AOLP_MAP[(np.rint(256 * angle / np.pi) % 256).astype(int)]
    wheel = grey + np.maximum(np.minimum(radius, 1), least)[..., np.newaxis] * (colors - grey)
    return np.where(radius[..., np.newaxis] <= 1, np.rint(wheel), 255).astype(np.uint8)


def viridis(values: np.ndarray) -> np.ndarray:
    """(h, w) numbers as (h, w, 3) uint8 RGB by the map viridis: from 0 to 1, others as the nearer of these."""
    return DOLP_MAP[_bytes(values)]


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)


def encode_picture(rgb: np.ndarray, suffix: str = ".jpg") -> bytes:
    """(h, w, 3) RGB or (h, w) grey uint8 -> the bytes of a picture file; any array as `.npy`.

    Raises:
        ValueError: OpenCV cannot write that format.
    """
    if suffix == ".npy":
        stream = io.BytesIO()  # into a file, NumPy hides the reason of an error
        np.save(stream, rgb)
        return stream.getvalue()
    lossless = [cv2.IMWRITE_TIFF_COMPRESSION, 1] if suffix == ".tiff" else []  # OpenCV 4.2 rounds float TIFF otherwise
    done, data = cv2.imencode(suffix, cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR) if rgb.ndim == 3 else rgb, lossless)
    if not done:
        raise ValueError(f"OpenCV cannot write {rgb.shape} as {suffix}")
    return bytes(data)
