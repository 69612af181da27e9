"""Brightness and white balance of images for viewing: the preview and JPEGs of light. Imports no ROS.

Measurement products are never changed. `auto` looks at some of the pixels and moves by a tenth of the difference per
frame, so that pictures do not flicker; a sequence that starts with a reset always gives the same pictures.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Dict, Optional, Sequence, Tuple, Union

import cv2
import numpy as np

from polar_pipeline._util.text import quoted
from polar_pipeline._util.values import real, sequence
from polar_pipeline.options.option import Accepts, declare, declared, validate
from polar_pipeline.options.products import PRODUCTS

#: Largest gain for brightness, and the range of `auto`, which never darkens, since saturated pixels would turn gray.
MAX_GAIN = 64.0
AUTO_GAIN = (1.0, 16.0)
#: `auto` brings this fraction of the pixels to this level of 255 or below.
AUTO_SHARE = 0.99
AUTO_LEVEL = 230.0
#: Largest ratio of two channels' gains that `auto` chooses.
AUTO_RATIO = 4.0
#: Pixels count for the white balance if all channels are in this range: neither noise nor clipped.
GRAY_LEVELS = (16, 250)
#: With a smaller fraction of such pixels, the white balance stays as it is.
GRAY_SHARE = 0.01
#: Minimum number of pixels that `auto` looks at, if the image has as many: enough for a percentile, in under 1 ms.
SAMPLES = 4096
#: Weight of a frame's own factors in the moving average.
SMOOTHING = 0.1


def _gain(name: str, value: object) -> Optional[float]:
    """Check `auto`, or a factor above 0 as a number or as text."""
    if isinstance(value, str) and value == "auto":
        return None
    (factor,) = _factors(f"{name} must be 'auto' or a number", [value], value)
    return factor


def _balance(name: str, value: object) -> Optional[Tuple[float, ...]]:
    """Check `auto`, `none`, or three factors above 0 of red, green and blue, as numbers or as text."""
    if isinstance(value, str) and value in ("auto", "none"):
        return None if value == "auto" else (1.0, 1.0, 1.0)
    channels = sequence(value.split() if isinstance(value, str) else value, 3)
    return _factors(f"{name} must be 'none', 'auto' or [red, green, blue], each", channels or [None], value)


def _factors(allowed: str, items: Sequence[object], value: object) -> Tuple[float, ...]:
    """Return numbers, or texts of some, as factors; an error says what is `allowed`, and shows the complete value."""
    factors = []
    for item in items:
        factor = 0.0
        with suppress(ValueError):
            factor = float(item) if isinstance(item, str) else real("factor", item)
        if not 0 < factor <= MAX_GAIN:
            text = quoted(list(value) if isinstance(value, tuple) else value)
            raise ValueError(f"{allowed} above 0, at most {MAX_GAIN:g}, got {text}")
        factors.append(factor)
    return tuple(factors)


@dataclass(frozen=True)
class Display:
    """Settings of images for viewing; ValueError if one is not allowed. `auto` is stored as None."""

    gain: Accepts[Union[float, str], Optional[float]] = declare(
        1.0,
        f"Brightness of the preview and of JPEGs of light: a factor above 0, at most {MAX_GAIN:g}, or 'auto'.",
        dynamic=True,
        check=_gain,
    )
    balance: Accepts[Union[str, Sequence[float]], Optional[Tuple[float, ...]]] = declare(
        "none",
        "White balance of JPEGs of light of a color sensor: 'none', 'auto', or the factors [red, green, blue].",
        dynamic=True,
        check=_balance,
        parameter="display.white_balance",
    )

    def __post_init__(self) -> None:
        for name, value in validate(DISPLAY_OPTIONS, vars(self), attrgetter("parameter")).items():
            object.__setattr__(self, name, value)


#: Declarations by the name of the field of `Display`.
DISPLAY_OPTIONS = declared(Display, "display.")
#: Settings with which pictures are shown as they are.
_NEUTRAL = Display()


def sample_pixels(image: np.ndarray) -> np.ndarray:
    """Sample (n, channels) uint8 pixels of an (h, w) or (h, w, 3) image on a regular grid, for `auto`."""
    height, width = image.shape[:2]
    step = max(1, math.isqrt(height * width // SAMPLES))
    return image[::step, ::step].reshape(-1, image.shape[2] if image.ndim == 3 else 1)


def automatic_gain(pixels: np.ndarray) -> float:
    """Compute the gain that brings `AUTO_SHARE` of the pixels to `AUTO_LEVEL` or below, in the range `AUTO_GAIN`.

    Args:
        pixels: (n, channels) of 0 to 255; the brightest channel counts, so that colors keep their hue.
    """
    level = float(np.percentile(pixels.max(axis=1), 100 * AUTO_SHARE))
    low, high = AUTO_GAIN
    return high if level * high <= AUTO_LEVEL else max(low, AUTO_LEVEL / level)


def gray_world(pixels: np.ndarray) -> Optional[Tuple[float, ...]]:
    """Compute the gains of red, green and blue, at least 1, that make the mean pixel gray (Buchsbaum, 1980).

    As no gain is below 1, pixels that are saturated in all channels stay white.

    Args:
        pixels: (n, 3) uint8.

    Returns:
        (red, green, blue), the smallest of them 1; None if too few pixels lie within `GRAY_LEVELS`.
    """
    low, high = GRAY_LEVELS
    usable = pixels[(pixels.min(axis=1) >= low) & (pixels.max(axis=1) <= high)]
    if len(usable) < GRAY_SHARE * len(pixels):
        return None
    means = usable.mean(axis=0)
    return tuple(float(gain) for gain in np.minimum(np.max(means) / means, AUTO_RATIO))


def brighten(rgb: np.ndarray, gain: float) -> np.ndarray:
    """Multiply (h, w, 3) uint8 by a gain, limited per pixel so that no channel clips: hue and saturation stay.

    For a preview, this multiplies the value in HSV by the gain, up to 1.
    """
    levels = np.arange(256, dtype=np.float32)
    factors = np.minimum(gain, 255 / np.maximum(levels, 1)).astype(np.float32)
    channels = cv2.split(rgb)
    value = cv2.max(cv2.max(channels[0], channels[1]), channels[2])
    factor = cv2.LUT(value, factors)
    return cv2.merge([cv2.multiply(channel, factor, dtype=cv2.CV_8U) for channel in channels])


def scale(image: np.ndarray, gains: Sequence[float]) -> np.ndarray:
    """Multiply each channel of (h, w) or (h, w, 3) uint8 by its gain, at most to 255."""
    levels = np.arange(256)[:, np.newaxis] * np.asarray(gains)
    table = np.rint(np.minimum(levels, 255)).astype(np.uint8)[np.newaxis]
    return cv2.LUT(image, table if len(gains) > 1 else table[..., 0])


class Viewer:
    """Brightness and white balance of one stream of 8-bit products."""

    def __init__(self) -> None:
        self._logs: Dict[Tuple[str, int], np.ndarray] = {}  # of smoothed factors, by product and number of factors

    def show(self, name: str, image: np.ndarray, display: Display) -> np.ndarray:
        """Apply brightness and white balance to a product.

        Args:
            name: A product of light, or one that takes the gain alone, since its colors are angles. `auto` looks at
                each product by itself.
            image: (h, w) or (h, w, 3) RGB uint8.
            display: The settings.
        """
        if display == _NEUTRAL:
            return image
        pixels = sample_pixels(image)
        balance: Sequence[float] = (1.0,)
        is_light = PRODUCTS[name].is_light
        if is_light and image.ndim == 3:
            balance = display.balance or self._smoothed(name, gray_world(pixels), 3)
        gain = display.gain
        if gain is None:
            (gain,) = self._smoothed(name, [automatic_gain(pixels * np.asarray(balance))], 1)
        return scale(image, [factor * gain for factor in balance]) if is_light else brighten(image, gain)

    def _smoothed(self, name: str, factors: Optional[Sequence[float]], count: int) -> Sequence[float]:
        """Return the moving average of a product's factors by their logarithms, which treats steps up and down alike.

        `None` keeps the factors, which begin with `count` times 1.
        """
        before = self._logs.get((name, count))
        if factors is not None:
            logs = np.log(factors)
            before = logs if before is None else before + SMOOTHING * (logs - before)
            self._logs[name, count] = before
        return (1.0,) * count if before is None else tuple(math.exp(value) for value in before)

    def reset(self) -> None:
        """Forget the previous frames, as after a jump in time."""
        self._logs.clear()
