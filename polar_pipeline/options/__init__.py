"""The options of a pipeline: one declaration each, for every interface."""

from __future__ import annotations

from polar_pipeline.options.option import Accepts, Option, Value, declare, declared
from polar_pipeline.options.options import FROM_FRAMES, OPTIONS, ContradictionError, Options, make_options

__all__ = [
    "FROM_FRAMES",
    "OPTIONS",
    "Accepts",
    "ContradictionError",
    "Option",
    "Options",
    "Value",
    "declare",
    "declared",
    "make_options",
]
