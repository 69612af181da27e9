"""The options of a pipeline: one table of names, defaults, ranges and help texts for every interface."""

from __future__ import annotations

from polar_pipeline.options.option import Option, Value
from polar_pipeline.options.table import CHOICES, OPTIONS, THREADS
from polar_pipeline.options.values import FROM_FRAMES, Options, make_options

__all__ = ["CHOICES", "FROM_FRAMES", "OPTIONS", "THREADS", "Option", "Options", "Value", "make_options"]
