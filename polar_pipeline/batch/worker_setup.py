"""First actions of a worker process of `polar-pipeline batch`; Dask loads this module by its name (`preload`)."""

from __future__ import annotations

import os
import signal

import cv2

from polar_pipeline._util.malloc import RETAINED_BYTES, keep_freed_memory

#: Environment variable with the number of CPU threads of a worker.
THREADS_VARIABLE = "OMP_NUM_THREADS"
#: glibc's malloc: one heap for all threads, of which `keep_freed_memory` retains what is freed. By Dask's own setting
#: (64 KiB are retained) the memory of each frame is mapped again, and a recording takes twice as long.
MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": str(RETAINED_BYTES)}


def dask_setup(_: object) -> None:
    """Leave Ctrl-C, which a terminal sends to all processes, to the one that runs the batch; set threads and memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    cv2.setNumThreads(int(os.environ.get(THREADS_VARIABLE, "1")))
