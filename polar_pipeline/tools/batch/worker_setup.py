"""First actions of a worker process of `polar-pipeline batch`; Dask loads this module by its name (`preload`)."""

from __future__ import annotations

import logging
import os
import signal

import cv2
from distributed import Worker

from polar_pipeline._util.malloc import RETAINED_BYTES, keep_freed_memory
from polar_pipeline.quality import frame_checks

#: Environment variables with the number of CPU threads of a worker, and the names of the GPUs that all workers share.
THREADS_VARIABLE, GPUS_VARIABLE = "OMP_NUM_THREADS", "POLAR_PIPELINE_GPUS"
#: glibc's malloc: one heap for all threads, of which `keep_freed_memory` retains what is freed. By Dask's own setting
#: (64 KiB are retained) the memory of each frame is mapped again, and a recording takes twice as long.
MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": str(RETAINED_BYTES)}


def dask_setup(worker: Worker) -> None:
    """Leave Ctrl-C, which a terminal sends to all processes, to the one that runs the batch; set memory, threads, GPU.

    Nothing has used CUDA before, so that it sees this worker's GPU alone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger(frame_checks.__name__).setLevel(logging.ERROR)  # outcomes have the warnings
    keep_freed_memory()
    cv2.setNumThreads(int(os.environ.get(THREADS_VARIABLE, "1")))
    gpus = [name for name in os.environ.get(GPUS_VARIABLE, "").split(",") if name]
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[int(worker.name) % len(gpus)]
