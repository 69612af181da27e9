"""What both stages share: strips of rows and the display encoding; and the SSIM stage itself."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, List, Optional, Tuple

import cv2
import numpy as np

from polar_pipeline.backend import block_pixels
from polar_pipeline.coefficients import SSIM_BLOCK
from polar_pipeline.cpu.kernels import Kernels
from polar_pipeline.cpu.ssim import WANG, SsimWindow, block_sums, ssim_strip

#: Output pixels per strip: with its temporaries a strip of this size stays within a core's share of the cache.
STRIP_PIXELS = 160_000

_LOW_BYTE = 0 if sys.byteorder == "little" else 3


def strips(size: Tuple[int, int], unit: int = 4) -> List[Tuple[int, int]]:
    """(first, end) row of the strips of an image of (height, width).

    The first is a multiple of `unit`, by default the largest period of a mosaic.
    """
    height, width = size
    rows = max(unit, STRIP_PIXELS // width // unit * unit)
    return [(top, min(top + rows, height)) for top in range(0, height, rows)]


def display(name: str, image: np.ndarray, out: np.ndarray) -> None:
    """A float image into a uint8 one: AoLP wraps at 256, everything else spans [0, 1]."""
    if name == "aolp":
        # Added to 2^23, a float32 holds the rounded number in its lowest bits: its low byte is the value modulo 256.
        bits = cv2.addWeighted(image, 256 / np.pi, image, 0, 2.0**23)
        cv2.extractChannel(bits.view(np.uint8).reshape(*image.shape, 4), _LOW_BYTE, out)
        return
    if name == "aolp_sigma":
        cv2.convertScaleAbs(image, out, alpha=256 / np.pi)
        return
    if name == "ssim_map":
        image = np.clip(image, 0, 1)
    cv2.convertScaleAbs(image, out, alpha=255)


def compare(
    pool: ThreadPoolExecutor,
    first: np.ndarray,
    second: Optional[np.ndarray],
    out: Dict[str, np.ndarray],
    window: SsimWindow = WANG,
    kernels: Optional[Kernels] = None,
    scale: float = 1.0,
) -> np.ndarray:
    """The SSIM stage: write the similarity of two images into `ssim_map` and `ssim`, if they are in `out`.

    Args:
        pool: Threads to work on.
        first: (h, w) float32 in [0, 1]; for the compiled kernels also uint16.
        second: The same; None if there is nothing to compare with: NaN, or 0 in the display encoding.
        out: Arrays to fill, by product.
        window: What similarity is taken over.
        kernels: The compiled ones, None to use OpenCV.
        scale: Factor that brings the images to [0, 1].

    Returns:
        The mean of each block (`Output.blocks`).
    """
    size = (first.shape[0] // window.stride, first.shape[1] // window.stride)
    pixels = block_pixels(*size)
    if second is None:
        for name in ("ssim_map", "ssim"):
            if name in out:
                out[name].fill(0 if out[name].dtype == np.uint8 else np.nan)
        return np.full(pixels.shape, np.nan, np.float32)

    def strip(rows: Tuple[int, int]) -> np.ndarray:
        similarity = ssim_strip(first, second, *rows, window)
        if "ssim_map" in out:
            target = out["ssim_map"][rows[0] : rows[1]]
            if target.dtype == np.uint8:
                display("ssim_map", similarity, target)
            else:
                target[...] = similarity
        return block_sums(similarity)

    if kernels:
        sums = kernels.similarity((first, second), scale, out.get("ssim_map"), window)
    else:
        sums = np.concatenate(list(pool.map(strip, strips(size, SSIM_BLOCK))))
    if "ssim" in out:
        out["ssim"][...] = np.sum(sums) / np.sum(pixels)  # in a fixed order
    blocks: np.ndarray = (sums / pixels).astype(np.float32)
    return blocks
