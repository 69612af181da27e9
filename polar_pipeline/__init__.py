"""Real-time polarization imaging: raw polarizer mosaics in, Stokes, DoLP, AoLP and image quality out."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polar_pipeline.cuda.device_arrays import DeviceResult
    from polar_pipeline.pipeline import Pipeline, Result
    from polar_pipeline.products import PRODUCTS
    from polar_pipeline.sensor.frames import FrameError, RawFrame
    from polar_pipeline.sensor.mosaic import SENSORS, Sensor

__version__ = "1.0.0"

__all__ = ["PRODUCTS", "SENSORS", "DeviceResult", "FrameError", "Pipeline", "RawFrame", "Result", "Sensor"]

#: Public name -> the module of this package that defines it.
_MODULE_OF = {
    "PRODUCTS": "products",
    "SENSORS": "sensor.mosaic",
    "DeviceResult": "cuda.device_arrays",
    "FrameError": "sensor.frames",
    "Pipeline": "pipeline",
    "RawFrame": "sensor.frames",
    "Result": "pipeline",
    "Sensor": "sensor.mosaic",
}


def __getattr__(name: str) -> Any:
    """Load the public names on first use: the node must handle signals before NumPy and OpenCV are imported."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
