"""The pipelines that a process keeps between units, one for each thread."""

from __future__ import annotations

import atexit
import threading
from typing import Any, Dict, Mapping, Tuple

from polar_pipeline.pipeline import Pipeline

#: Arguments of `Pipeline`, by name.
Arguments = Mapping[str, Any]
#: Thread -> the arguments of its pipeline, and the pipeline.
_KEPT: Dict[int, Tuple[Dict[str, Any], Pipeline]] = {}
_LOCK = threading.Lock()


def kept_pipeline(arguments: Arguments) -> Pipeline:
    """This thread's pipeline with these arguments: the one of the last call, if it has the same.

    The caller must not close it. It remembers the previous frame: call `reset` before another stream of frames.

    Raises:
        ValueError: An option is not allowed.
        RuntimeError: The backend cannot work on this machine.
    """
    own = threading.get_ident()
    with _LOCK:
        kept = _KEPT.get(own)
    if kept is not None and kept[0] == arguments:
        return kept[1]
    forget_pipeline()
    pipeline = Pipeline(**arguments)
    with _LOCK:
        _KEPT[own] = (dict(arguments), pipeline)
    return pipeline


def forget_pipeline() -> None:
    """Close this thread's pipeline, as after an error that may have broken it."""
    with _LOCK:
        kept = _KEPT.pop(threading.get_ident(), None)
    if kept is not None:
        kept[1].close()


@atexit.register
def _close_all() -> None:
    """Close what is left at the end of the process; pipelines in use end with it."""
    with _LOCK:
        left = [pipeline for _, pipeline in _KEPT.values()]
        _KEPT.clear()
    for pipeline in left:
        try:
            pipeline.close()
        except RuntimeError:  # noqa: PERF203 - its thread still computes
            continue
