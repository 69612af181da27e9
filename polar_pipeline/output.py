"""What every backend gives back, and the arrays it comes in."""

from __future__ import annotations

import sys
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

#: Arrays kept per shape and type: some products share both, and a consumer may hold a few frames.
_KEPT = 16


class Output(NamedTuple):
    """What a backend gives back: products by name, seconds per stage, (saturated, dark) counts, and S0/2 (luma)."""

    products: Dict[str, np.ndarray]
    timings: Dict[str, float]
    invalid: Tuple[int, int]
    value: Optional[np.ndarray]


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
