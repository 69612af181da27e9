"""Random pairs of images whose levels differ, for tests of SSIM."""

from __future__ import annotations

from typing import Tuple

import cv2
import numpy as np


def _scene(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A picture of about zero mean and unit deviation: flat, noise, blobs, waves, a ramp or edges."""
    rows, columns = np.mgrid[:height, :width]
    kind = rng.integers(6)
    if kind == 0:
        return np.zeros((height, width))
    if kind == 1:
        return rng.standard_normal((height, width))
    if kind == 2:
        return np.sin(rng.uniform(0, 1.5) * columns + rng.uniform(0, 1.5) * rows + rng.uniform(0, 6))
    if kind == 3:
        return rng.uniform(-3, 3) * (columns / width - 0.5) + rng.uniform(-3, 3) * (rows / height - 0.5)
    blobs = cv2.GaussianBlur(rng.standard_normal((height, width)), (0, 0), float(rng.uniform(0.5, 4)))
    return blobs / blobs.std() if kind == 4 else np.sign(blobs)


def random_pair(rng: np.random.Generator, height: int, width: int) -> Tuple[np.ndarray, np.ndarray]:
    """Two images in [0, 1] whose levels differ by a factor of 0.1 to 10.

    The level of the first is 0.01 to 1, and contrasts are 0.002 to 1. Most pairs show the same scene, some of them
    moved or with another contrast; most have noise.
    """
    level, ratio = np.exp(rng.uniform(np.log(0.01), 0)), np.exp(rng.uniform(np.log(0.1), np.log(10)))
    contrast = np.exp(rng.uniform(np.log(0.002), 0))
    first = _scene(rng, height, width)
    second = np.roll(first, int(rng.integers(-2, 3)), 1) if rng.random() < 0.7 else _scene(rng, height, width)
    noise = np.exp(rng.uniform(np.log(1e-4), np.log(0.05))) * (rng.random() < 0.7)
    other_contrast = contrast * (1 if rng.random() < 0.5 else np.exp(rng.uniform(-2, 2)))
    images = (level * (1 + contrast * first), min(level * ratio, 1.0) * (1 + other_contrast * second))
    x, y = (np.clip(image + noise * rng.standard_normal(image.shape) * image.clip(0) ** 0.5, 0, 1) for image in images)
    return x, y
