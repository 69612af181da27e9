"""The configurations that `model.py` predicts and measures: launches on frames of several sensors, sizes and formats.

A configuration is in one of two lists. Constants of the cost model are fitted to `FITTED`, and its form was chosen with
those times known; `HELD_OUT` is predicted before it is measured, and no constant is fitted to it.
"""

from __future__ import annotations

from drawn_configurations import named
from fitted_configurations import FITTED

_NAMES = """
mono half, 12p, angles
mono half, what SSIM compares too as float, large
mono half, in float, polar
mono half, what SSIM compares too as float, 2048x1536
mono half, 12 bit in 16, DoLP and AoLP, 2048x1536
mono half own site, preview, 2048x1536
mono half gradient, 12p, live, large
mono half ADR, everything, 2048x1536
mono full bilinear, 12p, live, 1920x1080
mono full gradient, angles as float, large
mono full gradient, 12 bit in 16, angles and polar as float
mono full gradient, 12 bit in 16, DoLP, small
mono full ADR, 12p, DoLP, 1920x1080
mono full ADR, 12Packed, DoLP, small
colour own site, 12p, everything, large
colour own site, 12p, polar, small
colour half, 12 bit in 16, DoLP and AoLP, 1920x1080
colour half, 12 bit in 16, angles, large
colour half, 12Packed, DoLP, large, one frame
colour half, 12 bit in 16, live, small
colour half gradient, 12p, preview, large
colour half ADR, 12p, DoLP as float
colour full bilinear, polar, 1920x1080
colour full gradient, DoLP as float, 2048x1536
colour full ADR, angles and polar, large
colour full ADR, 12Packed, preview
SSIM, 7 taps, stride 2, map of bytes, 1024x768, one frame
SSIM, float, 5 taps, map of bytes, 960x540, one frame
SSIM from the mosaic, 3 taps, means only, 616x512
SSIM, 11 taps, stride 4, map of bytes, full resolution
"""
#: For each sensor and method as many as stand here, with formats, sizes and products drawn at random; `FITTED` has
#: none of them.
HELD_OUT = tuple(map(named, _NAMES.strip().splitlines()))
#: The lists by the name that result files give them.
LISTS = {"fitted": FITTED, "held out": HELD_OUT}
#: All configurations by name.
KNOWN = {configuration.name: configuration for configurations in LISTS.values() for configuration in configurations}
