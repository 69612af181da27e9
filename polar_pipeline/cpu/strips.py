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
from polar_pipeline.products import full_level, invalid_level, level_scale

#: Output pixels per strip: with its temporaries a strip of this size stays within a core's share of the cache.
STRIP_PIXELS = 160_000


def strips(size: Tuple[int, int], unit: int = 4) -> List[Tuple[int, int]]:
    """(first, end) row of the strips of an image of (height, width).

    The first is a multiple of `unit`, by default the largest period of a mosaic.
    """
    height, width = size
    rows = max(unit, STRIP_PIXELS // width // unit * unit)
    return [(top, min(top + rows, height)) for top in range(0, height, rows)]


def display(name: str, image: np.ndarray, out: np.ndarray) -> None:
    """A float image into one of uint8 or uint16: AoLP wraps at pi, everything else spans [0, 1]."""
    dtype = str(out.dtype)
    scale = level_scale(name, dtype)
    if name == "aolp":
        # Added to 2^23, a float32 holds the rounded number in its lowest bits: they are the value modulo 256, or 65536.
        bits = cv2.addWeighted(image, scale, image, 0, 2.0**23).view(out.dtype).reshape(*image.shape, -1)
        cv2.extractChannel(bits, 0 if sys.byteorder == "little" else bits.shape[-1] - 1, out)
        return
    image = np.fmax(image, np.float32(0))  # NaN becomes 0, too
    if dtype == "uint8":
        cv2.convertScaleAbs(image, out, alpha=scale)
    else:
        image *= np.float32(scale)
        np.copyto(out, np.rint(np.minimum(image, np.float32(full_level(dtype)))), casting="unsafe")


def compare(
    pool: ThreadPoolExecutor,
    first: np.ndarray,
    second: Optional[np.ndarray],
    out: Dict[str, np.ndarray],
    window: SsimWindow = WANG,
    kernels: Optional[Kernels] = None,
    scale: float = 1.0,
    outside: Optional[np.ndarray] = None,
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
        outside: (h, w) uint8, not 0 where the images have no values: invalid in the map, and in no mean; None where
            there are none.

    Returns:
        The mean of each block (`Output.blocks`).
    """
    size = (first.shape[0] // window.stride, first.shape[1] // window.stride)
    pixels = block_pixels(*size)
    if second is None:
        for name in ("ssim_map", "ssim"):
            if name in out:
                out[name].fill(invalid_level(name, str(out[name].dtype)))
        return np.full(pixels.shape, np.nan, np.float32)

    if outside is not None:
        return _compare_inside(pool, (first, second), out, window, kernels, scale, outside)

    def strip(rows: Tuple[int, int]) -> np.ndarray:
        similarity = ssim_strip(first, second, *rows, window)
        if "ssim_map" in out:
            _write_map(similarity, out["ssim_map"][rows[0] : rows[1]])
        return block_sums(similarity)

    if kernels:
        sums = kernels.similarity((first, second), scale, out.get("ssim_map"), window)
    else:
        sums = np.concatenate(list(pool.map(strip, strips(size, SSIM_BLOCK))))
    if "ssim" in out:
        out["ssim"][...] = np.sum(sums) / np.sum(pixels)  # in a fixed order
    blocks: np.ndarray = (sums / pixels).astype(np.float32)
    return blocks


def _write_map(similarity: np.ndarray, out: np.ndarray) -> None:
    """Write similarities as float32 or in the display encoding, where NaN is 0."""
    if out.dtype != np.float32:
        display("ssim_map", similarity, out)
    else:
        out[...] = similarity


def _compare_inside(
    pool: ThreadPoolExecutor,
    pair: Tuple[np.ndarray, np.ndarray],
    out: Dict[str, np.ndarray],
    window: SsimWindow,
    kernels: Optional[Kernels],
    scale: float,
    outside: np.ndarray,
) -> np.ndarray:
    """`compare` where some pixels are outside the input; blocks of nothing else are NaN."""
    size = (outside.shape[0] // window.stride, outside.shape[1] // window.stride)
    found = {"ssim_map": np.empty(size, np.float32)}
    compare(pool, *pair, found, window, kernels, scale)
    cut = outside[: size[0] * window.stride, : size[1] * window.stride]
    is_outside = cut.reshape(size[0], window.stride, size[1], window.stride).max((1, 3)) > 0
    similarity: np.ndarray = np.where(is_outside, np.float32(0), found["ssim_map"])
    sums, pixels = block_sums(similarity), block_sums(np.where(is_outside, 0, 1).astype(np.float32))
    if "ssim_map" in out:
        _write_map(np.where(is_outside, np.float32(np.nan), similarity), out["ssim_map"])
    with np.errstate(invalid="ignore"):
        if "ssim" in out:
            out["ssim"][...] = np.sum(sums) / np.sum(pixels)
        blocks: np.ndarray = (sums / pixels).astype(np.float32)
    return blocks
