"""Copies of frames into pinned memory, by several threads: one alone takes longer than the upload."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Iterator, Tuple

import numpy as np

from polar_pipeline._util.cpus import available_cores

#: Threads that copy, the caller among them, at most; and bytes that are worth a thread.
_MAX_THREADS, _MIN_BYTES = 8, 256 << 10


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MAX_THREADS - 1, "polar_pipeline staging")


def stage(target: np.ndarray, rows: np.ndarray) -> Iterator[Tuple[int, int]]:
    """Copy a frame without the padding of its rows, and yield (first, end) of the bytes that are complete, in order.

    Args:
        target: (N,) uint8, the bytes to fill.
        rows: (H, ...) pixels or packed bytes.
    """
    copy = target[: rows.nbytes].view(rows.dtype).reshape(rows.shape)
    count = max(1, min(available_cores(), _MAX_THREADS, rows.nbytes // _MIN_BYTES))
    edges = [len(rows) * k // count for k in range(count + 1)]
    strips = [slice(first, end) for first, end in zip(edges, edges[1:])]
    others = [_pool().submit(np.copyto, copy[strip], rows[strip]) for strip in strips[1:]]
    np.copyto(copy[strips[0]], rows[strips[0]])
    row_bytes = copy.strides[0]
    for strip, done in zip(strips, (None, *others)):
        if done is not None:
            done.result()
        yield row_bytes * strip.start, row_bytes * strip.stop
