"""Brightness and white balance of images of light, for looking at one: measured values never change.

`auto` means what it means for the images of the live node (`options/display.py`).
"""

from __future__ import annotations

from typing import Sequence, Tuple

import numpy as np

from polar_pipeline.options.display import automatic_gain, gray_world, sample_pixels
from polar_pipeline.options.products import full_level


def display_gain(intensity: np.ndarray, balance: Sequence[float] = (1.0,)) -> float:
    """Compute the gain that brings 99 % of the pixels to 90 % of full scale or below, from 1 to 16.

    The largest gain also applies to a black frame, whose noise would otherwise become an image. It is never below 1,
    since saturated pixels would turn gray.

    Args:
        intensity: (h, w) or (h, w, 3) image of light, float32 or levels.
        balance: The gains of red, green and blue, as `white_balance` returns them.
    """
    pixels = _sampled_levels(intensity)
    return automatic_gain(pixels * np.asarray(balance)) if len(pixels) else 1.0


def white_balance(intensity: np.ndarray) -> Tuple[float, ...]:
    """Compute gains of red, green and blue, from 1 to 4, that make the mean of neither dark nor saturated pixels gray.

    Dark and saturated mean here: after the display gain. With too few other pixels, all gains are 1.

    Args:
        intensity: (h, w, 3) RGB image of light, float32 or levels; one of (h, w) has the gain 1 alone.
    """
    pixels = _sampled_levels(intensity)
    if intensity.ndim == 2 or not len(pixels):
        return (1.0,) * (1 if intensity.ndim == 2 else 3)
    return gray_world(np.minimum(pixels * automatic_gain(pixels), 255)) or (1.0, 1.0, 1.0)


def for_display(intensity: np.ndarray, gain: float = 1.0, balance: Sequence[float] = (1.0,)) -> np.ndarray:
    """Convert an image of light to (h, w, 3) uint8 RGB; full scale is 255 before the gains, NaN is black.

    Args:
        intensity: (h, w) or (h, w, 3) image of light, float32 or levels.
        gain: Factor of brightness.
        balance: Factors of red, green and blue, or one for all.
    """
    values = intensity if intensity.ndim == 3 else intensity[..., np.newaxis]
    factors = (gain * 255 / full_level(str(intensity.dtype)) * np.asarray(balance)).astype(np.float32)
    levels = np.rint(np.clip(np.nan_to_num(values * factors), 0, 255)).astype(np.uint8)
    return np.broadcast_to(levels, (*levels.shape[:2], 3)).copy()


def _sampled_levels(image: np.ndarray) -> np.ndarray:
    """Sample the finite pixels of an image as (n, channels) float32; full scale is 255."""
    pixels = sample_pixels(image) * np.float32(255 / full_level(str(image.dtype)))
    return pixels[np.isfinite(pixels).all(axis=1)]
