"""DoLP and AoLP as colours of a map, on a strip of rows."""

from __future__ import annotations

from typing import List, Tuple

import numpy as np

from polar_pipeline.colormaps import AOLP_MAP, DOLP_MAP
from polar_pipeline.cpu.strips import display

_F = np.float32


def aolp_colors(angle: np.ndarray, degree: np.ndarray, fading: Tuple[float, float]) -> List[np.ndarray]:
    """Red, green and blue in [0, 1].

    Args:
        angle: (h, w) float32 AoLP in rad.
        degree: (h, w) float32 DoLP.
        fading: `Options.fading`.
    """
    grey, share = _F(fading[0] / 255), np.maximum(degree, _F(fading[1]))
    return [(color - grey) * share + grey for color in _mapped("aolp", angle, AOLP_MAP)]


def dolp_colors(degree: np.ndarray) -> List[np.ndarray]:
    """(h, w) float32 DoLP -> red, green and blue in [0, 1]."""
    return _mapped("dolp", degree, DOLP_MAP)


def _mapped(name: str, image: np.ndarray, colors: np.ndarray) -> List[np.ndarray]:
    """The colours of a product's display encoding."""
    index = np.empty(image.shape, np.uint8)
    display(name, image, index)
    return [(channel / _F(255))[index] for channel in colors.T]
