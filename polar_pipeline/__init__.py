"""Real-time polarization imaging: raw polarizer mosaics in, Stokes, DoLP, AoLP and image quality out."""

from __future__ import annotations

from polar_pipeline.pipeline import Pipeline, Result
from polar_pipeline.products import PRODUCTS
from polar_pipeline.sensor import SENSORS, FrameError, RawFrame, Sensor

__version__ = "0.1.0"

__all__ = ["PRODUCTS", "SENSORS", "FrameError", "Pipeline", "RawFrame", "Result", "Sensor"]
