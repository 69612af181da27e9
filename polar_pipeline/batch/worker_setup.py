"""What a worker process of `polar-pipeline batch` does first; Dask loads this module by its name (`preload`)."""

from __future__ import annotations

import os
import signal

import cv2

#: Environment variable with the number of CPU threads of a worker.
THREADS_VARIABLE = "OMP_NUM_THREADS"


def dask_setup(_: object) -> None:
    """Leave Ctrl-C, which a terminal sends to all processes, to the one that runs the batch; bound OpenCV's threads."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(int(os.environ.get(THREADS_VARIABLE, "1")))
