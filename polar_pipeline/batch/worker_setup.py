"""What a worker process of `polar-pipeline batch` does first; Dask loads this module by its name (`preload`)."""

from __future__ import annotations

import signal


def dask_setup(_: object) -> None:
    """Leave Ctrl-C, which a terminal sends to all processes, to the process that runs the batch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
