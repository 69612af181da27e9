"""Structural similarity on the CPU (Wang et al., 2004), the twin of `reference.ssim_map`."""

from __future__ import annotations

import cv2
import numpy as np

from polar_pipeline.reference import gaussian

#: Rows and columns that the window reads beyond its centre.
RADIUS = 5

_F = np.float32
_TAPS = gaussian().astype(_F)
_C1, _C2 = _F(0.01**2), _F(0.03**2)


def ssim_rows(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(H + 2 RADIUS, W) twice, float32 in [0, 1] -> (H, W) similarity; columns beyond the border are mirrored.

    Works on the sum p and difference q of the images, whose four moments suffice and whose small difference loses the
    least: with a, b the means and v, u the variances of p and q, 2xy = (p^2 - q^2)/2 and x^2 + y^2 = (p^2 + q^2)/2.
    """

    def blur(image: np.ndarray) -> np.ndarray:
        out: np.ndarray = cv2.sepFilter2D(image, cv2.CV_32F, _TAPS, _TAPS, borderType=cv2.BORDER_REFLECT)
        return out[RADIUS:-RADIUS]

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


def ssim_strip(x: np.ndarray, y: np.ndarray, top: int, bottom: int) -> np.ndarray:
    """Rows top .. bottom of the similarity of two (H, W) float32 images in [0, 1]; borders are mirrored."""
    height = len(x)
    first, end = max(0, top - RADIUS), min(height, bottom + RADIUS)
    above, below = first - (top - RADIUS), bottom + RADIUS - end
    images = [image[first:end] for image in (x, y)]
    if above or below:
        images = [cv2.copyMakeBorder(image, above, below, 0, 0, cv2.BORDER_REFLECT) for image in images]
    return ssim_rows(*images)
