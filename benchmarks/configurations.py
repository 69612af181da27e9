"""The configurations that `model.py` predicts and measures: launches on frames of several sensors, sizes and formats.

A configuration is in one of two lists. Constants of the cost model are fitted to `FITTED`, and its form was chosen with
those times known; `HELD_OUT` is predicted before it is measured, and no constant is fitted to it.
"""

from __future__ import annotations

from drawn_configurations import named
from fitted_configurations import FITTED

_NAMES = """
mono half, 12Packed, angles
mono half, 12p, DoLP and AoLP, large
mono half, angles and polar, small
mono half, in float, polar, small
mono half, angles, 1920x1080
mono half own site, 12Packed, live
mono half gradient, DoLP and AoLP as float, small, one frame
mono half ADR, DoLP and AoLP as float, 1920x1080
mono full bilinear, 12Packed, live, 1920x1080, one frame
mono full gradient, intensity
mono full gradient, 12Packed, preview, 2048x1536
mono full gradient, intensity and preview as float, 2048x1536
mono full ADR, 12p, DoLP, 2048x1536, one frame
mono full ADR, 12Packed, intensity as float, large, one frame
colour own site, 12p, polar, 1920x1080, one frame
colour own site, 12Packed, live
colour half, 12 bit in 16, angles, small, one frame
colour half, 12p, angles and polar, small
colour half, 12p, angles and polar, 2048x1536
colour half, polar as float, 2048x1536
colour half gradient, preview, 2048x1536
colour half ADR, DoLP, small
colour full bilinear, intensity, 2048x1536
colour full gradient, 12p, live
colour full ADR, live, 2048x1536
colour full ADR, live as float
SSIM, 5 taps, map of bytes, 1024x768
SSIM, float, 11 taps, stride 2, means only, 1024x768
SSIM from the mosaic, 5 taps, 960x540
SSIM, 7 taps, means only, 1024x768
"""
#: For each sensor and method as many as stand here, with formats, sizes and products drawn at random; `FITTED` has
#: none of them.
HELD_OUT = tuple(map(named, _NAMES.strip().splitlines()))
#: The lists by the name that result files give them.
LISTS = {"fitted": FITTED, "held out": HELD_OUT}
#: All configurations by name.
KNOWN = {configuration.name: configuration for configurations in LISTS.values() for configuration in configurations}
