"""What every backend gives back, and the arrays it comes in."""

from __future__ import annotations

import sys
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline.coefficients import SSIM_BLOCK

#: Arrays kept per shape and type: some products share both, and a consumer may hold a few frames.
_KEPT = 16


class Output(NamedTuple):
    """What a backend gives back.

    Attributes:
        products: Arrays by product.
        timings: Seconds per stage.
        invalid: Pixels that are (saturated, dark).
        blocks: (ceil(h / SSIM_BLOCK), ceil(w / SSIM_BLOCK)) float32, mean of the similarity map over blocks, those at
            the right and at the bottom partial; NaN with nothing to compare with; None where SSIM is not computed.
    """

    products: Dict[str, np.ndarray]
    timings: Dict[str, float]
    invalid: Tuple[int, int]
    blocks: Optional[np.ndarray] = None


def block_pixels(height: int, width: int) -> np.ndarray:
    """Pixels of each block of an (H, W) map: those right and below are partial."""
    rows, columns = (np.minimum(SSIM_BLOCK, size - np.arange(0, size, SSIM_BLOCK)) for size in (height, width))
    return rows[:, np.newaxis] * columns


class Buffers:
    """Output arrays, handed out again once their former holders have dropped them: fresh pages cost more than the work.

    An array that is referenced from anywhere else, directly or through a view, is left alone.

    Args:
        make: Makes an array of a shape and type with arbitrary content.
    """

    def __init__(self, make: Callable[[Tuple[int, ...], str], np.ndarray] = np.empty) -> None:
        self._make = make
        self._arrays: Dict[Tuple[Tuple[int, ...], str], List[np.ndarray]] = {}

    def get(self, shape: Tuple[int, ...], dtype: str) -> np.ndarray:
        """An array of this shape and type with arbitrary content."""
        known = self._arrays.setdefault((shape, dtype), [])
        for k in range(len(known)):
            if sys.getrefcount(known[k]) == _UNSHARED:
                return known[k]
        if len(known) < _KEPT:
            known.append(self._make(shape, dtype))
            return known[-1]
        return self._make(shape, dtype)


def _unshared_count() -> int:
    """What `sys.getrefcount` says of a list's element that nobody else holds; it differs between Python versions."""
    lone = [np.empty(1)]
    return sys.getrefcount(lone[0])


_UNSHARED = _unshared_count()
