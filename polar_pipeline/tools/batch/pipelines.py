"""The pipeline that each thread of a worker keeps between calls."""

from __future__ import annotations

import threading
from typing import Any, Mapping

from polar_pipeline.pipeline import Pipeline

#: Arguments of `Pipeline`, by name.
Arguments = Mapping[str, Any]
_KEPT = threading.local()


def kept_pipeline(arguments: Arguments) -> Pipeline:
    """Return this thread's pipeline with these arguments: the pipeline of the last call if its arguments are equal.

    The caller must not close it. It remembers the previous frame: call `reset` before another stream of frames.

    Raises:
        ValueError: An option is not allowed.
        RuntimeError: The backend cannot work on this machine.
    """
    if getattr(_KEPT, "arguments", None) != arguments:
        forget_pipeline()
        _KEPT.pipeline = Pipeline(**arguments)
        _KEPT.arguments = dict(arguments)
    pipeline: Pipeline = _KEPT.pipeline
    return pipeline


def forget_pipeline() -> None:
    """Close this thread's pipeline, as after an error that may have broken it."""
    if getattr(_KEPT, "arguments", None) is not None:
        _KEPT.arguments = None
        _KEPT.pipeline.close()
