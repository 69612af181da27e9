"""Real-time polarization imaging: raw polarizer mosaics in, Stokes, DoLP, AoLP and image quality out."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polar_pipeline.pipeline import Pipeline, Result
    from polar_pipeline.products import PRODUCTS
    from polar_pipeline.sensor import SENSORS, FrameError, RawFrame, Sensor

__version__ = "0.1.0"

__all__ = ["PRODUCTS", "SENSORS", "FrameError", "Pipeline", "RawFrame", "Result", "Sensor"]

_ROOMS = {"Pipeline": "pipeline", "Result": "pipeline", "PRODUCTS": "products"}


def __getattr__(name: str) -> Any:
    """The public names, loaded on first use: the node handles signals before NumPy and OpenCV are there."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ROOMS.get(name, 'sensor')}"), name)
