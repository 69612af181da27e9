"""Pools of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from polar_pipeline._util.memory_limit import without_limit


def thread_pool(count: int) -> ThreadPoolExecutor:
    """Return a pool of `count` threads, which all run already.

    They start without `limited_memory`: a thread that finds no memory before its first line never tells that it has
    started, and Python waits for it forever.
    """
    pool = ThreadPoolExecutor(count)
    all_run = Barrier(count + 1)
    with without_limit():
        for _ in range(count):
            pool.submit(all_run.wait)
        all_run.wait()
    return pool
