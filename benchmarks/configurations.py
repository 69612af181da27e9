"""The configurations that `model.py` predicts and measures: launches on frames of several sensors, sizes and formats.

A configuration is in one of two lists. Constants of the cost model are fitted to `FITTED`, and its form was chosen with
those times known; `HELD_OUT` is predicted before it is measured, and no constant is fitted to it.
"""

from __future__ import annotations

from drawn_configurations import named
from fitted_configurations import FITTED

_NAMES = """
mono half, 12p, polar, small
mono half, 12Packed, intensity and preview, one frame
mono half, 12p, intensity, 2048x1536
mono half, 12p, polar as float, small
mono half, 12p, what SSIM compares too, 2048x1536
mono half own site, 12Packed, angles, 2048x1536
mono half gradient, 12Packed, DoLP, 1920x1080
mono half ADR, polar, 2048x1536, one frame
mono full bilinear, polar, small
mono full gradient, 12Packed, intensity as float
mono full gradient, angles and polar, 1920x1080
mono full gradient, 12 bit in 16, polar as float, small
mono full ADR, 12Packed, polar, 2048x1536
mono full ADR, live, large, one frame
colour own site, intensity as float, one frame
colour own site, in float, angles and polar, 2048x1536
colour half, 12p, what SSIM compares too, large
colour half, 12p, what SSIM compares too, small, one frame
colour half, 12Packed, preview, 1920x1080
colour half, 12 bit in 16, angles, 1920x1080
colour half gradient, intensity, one frame
colour half ADR, angles, large
colour full bilinear, 12Packed, AoLP, small
colour full gradient, what SSIM compares too as float, 2048x1536
colour full ADR, polar, large, one frame
colour full ADR, 12 bit in 16, preview, large
SSIM, 3 taps, 616x512
SSIM, float, 7 taps, map of bytes, 616x512, one frame
SSIM from the mosaic, 15 taps, means only, 616x512
SSIM, 9 taps, 960x540
"""
#: For each sensor and method as many as stand here, with formats, sizes and products drawn at random; `FITTED` has
#: none of them.
HELD_OUT = tuple(map(named, _NAMES.strip().splitlines()))
#: The lists by the name that result files give them.
LISTS = {"fitted": FITTED, "held out": HELD_OUT}
#: All configurations by name.
KNOWN = {configuration.name: configuration for configurations in LISTS.values() for configuration in configurations}
