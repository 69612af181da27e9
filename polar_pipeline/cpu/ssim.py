"""Structural similarity on the CPU (Wang et al., 2004), the twin of `reference.ssim_map`."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np

from polar_pipeline.coefficients import SSIM_BLOCK, SSIM_C1, SSIM_C2, SSIM_SIGMA, SSIM_WINDOW, gaussian

_F = np.float32
_C1, _C2 = _F(SSIM_C1), _F(SSIM_C2)


class SsimWindow(NamedTuple):
    """What similarity is taken over: options `ssim_stride`, `ssim_window` and `ssim_sigma`."""

    stride: int = 1
    size: int = SSIM_WINDOW
    sigma: float = SSIM_SIGMA

    @property
    def radius(self) -> int:
        """Rows and columns that it reads beyond its centre."""
        return self.size // 2


#: Wang's own.
WANG = SsimWindow()


@lru_cache(maxsize=8)
def _taps(size: int, sigma: float) -> np.ndarray:
    return np.array(gaussian(size, sigma), _F)


def ssim_rows(x: np.ndarray, y: np.ndarray, window: SsimWindow) -> np.ndarray:
    """(H + 2 radius, W) twice, float32 in [0, 1] -> (H, W) similarity; columns beyond the border are mirrored.

    Works on the sum p and difference q of the images, whose four moments suffice and whose small difference loses the
    least: with a, b the means and v, u the variances of p and q, 2xy = (p^2 - q^2)/2 and x^2 + y^2 = (p^2 + q^2)/2.
    """
    radius, taps = window.radius, _taps(window.size, window.sigma)

    def blur(image: np.ndarray) -> np.ndarray:
        out: np.ndarray = cv2.sepFilter2D(image, cv2.CV_32F, taps, taps, borderType=cv2.BORDER_REFLECT)
        return out[radius:-radius]

    p, q = cv2.add(x, y), cv2.subtract(x, y)
    a, b = blur(p), blur(q)
    v, u = blur(np.multiply(p, p, out=p)), blur(np.multiply(q, q, out=q))
    a = a * a
    b = b * b
    v = v - a
    u = u - b
    # Numerator and denominator, both times 4: (a - b + 2 C1) (v - u + 2 C2) / ((a + b + 2 C1) (v + u + 2 C2)).
    top: np.ndarray = a - b
    bottom = a + b
    top += 2 * _C1
    bottom += 2 * _C1
    np.subtract(v, u, out=a)
    a += 2 * _C2
    v += u
    v += 2 * _C2
    top *= a
    bottom *= v
    top /= bottom
    return top


def ssim_strip(x: np.ndarray, y: np.ndarray, top: int, bottom: int, window: SsimWindow = WANG) -> np.ndarray:
    """Rows top .. bottom of the similarity of two (H, W) float32 images in [0, 1]; borders are mirrored."""
    radius, stride = window.radius, window.stride
    height, width = x.shape[0] // stride, x.shape[1] // stride
    first, end = max(0, top - radius), min(height, bottom + radius)
    above, below = first - (top - radius), bottom + radius - end
    images = [image[first * stride : end * stride, : width * stride] for image in (x, y)]
    if stride > 1:
        images = [cv2.resize(image, (width, end - first), interpolation=cv2.INTER_AREA) for image in images]
    if above or below:
        images = [cv2.copyMakeBorder(image, above, below, 0, 0, cv2.BORDER_REFLECT) for image in images]
    return ssim_rows(images[0], images[1], window)


def block_sums(similarity: np.ndarray) -> np.ndarray:
    """(H, W) -> (ceil(H / SSIM_BLOCK), ceil(W / SSIM_BLOCK)) float64: sums of blocks."""
    rows = [
        cv2.reduce(similarity[top : top + SSIM_BLOCK], 0, cv2.REDUCE_SUM, dtype=cv2.CV_64F)
        for top in range(0, len(similarity), SSIM_BLOCK)
    ]
    return np.add.reduceat(np.concatenate(rows), np.arange(0, similarity.shape[1], SSIM_BLOCK), axis=1)
