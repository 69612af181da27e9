"""The configurations that `model.py` predicts and measures: launches on frames of several sensors, sizes and formats.

A configuration is in one of two lists. Constants of the cost model are fitted to `FITTED`, and its form was chosen with
those times known; `HELD_OUT` is predicted before it is measured, and no constant is fitted to it.
"""

from __future__ import annotations

from configuration import ANGLES, COLOR, FULL, HD, LARGE, LIVE, MONO, OWN, POLAR, SMALL, THREE, first, second
from fitted_configurations import FITTED

from polar_pipeline.plan import MOSAIC

#: These differ from all of the above in size, format, products, method, window or stride.
HELD_OUT = (
    first("mono half, angles, large", MONO, ANGLES, shape=LARGE),
    first("mono half, 12p, live", MONO, LIVE, "12p"),
    first("mono half, 12 bit in 16, one frame", MONO, POLAR, "u16", frames=1),
    first("mono half, as float, 1920x1080", MONO, POLAR, shape=HD, dtype="float32"),
    first("mono half, what SSIM compares too, 2048x1536", MONO, f"{POLAR},ssim", shape=THREE),
    first("mono half own site, 12 bit in 16", MONO, POLAR, "u16", **OWN),
    first("mono half gradient, live, large", MONO, LIVE, shape=LARGE, demosaic="gradient"),
    first("mono half ADR, AoLP, large", MONO, "aolp", shape=LARGE, demosaic="adaptive"),
    first("mono full bilinear, 12 bit in 16, live, 1920x1080", MONO, LIVE, "u16", HD, demosaic="bilinear", **FULL),
    first("mono full gradient, 2048x1536", MONO, POLAR, shape=THREE, demosaic="gradient", **FULL),
    first("mono full gradient, 12p, live", MONO, LIVE, "12p", demosaic="gradient", **FULL),
    first("mono full gradient, intensity as float", MONO, "intensity", dtype="float32", demosaic="gradient", **FULL),
    first("mono full ADR, 12p, live, 1920x1080", MONO, LIVE, "12p", HD, **FULL),
    first("mono full ADR, DoLP", MONO, "dolp", **FULL),
    first("colour own site, angles and polar, 2048x1536", COLOR, f"{ANGLES},{POLAR}", shape=THREE, **OWN),
    first("colour own site, 12 bit in 16, angles", COLOR, ANGLES, "u16", **OWN),
    first("colour half, polar, large", COLOR, POLAR, shape=LARGE),
    first("colour half, angles, small", COLOR, ANGLES, shape=SMALL),
    first("colour half, 12Packed, polar, 1920x1080", COLOR, POLAR, "12packed", shape=HD),
    first("colour half, live as float", COLOR, LIVE, dtype="float32"),
    first("colour half gradient, preview", COLOR, "preview", demosaic="gradient"),
    first("colour half ADR, live, 2048x1536", COLOR, LIVE, shape=THREE, demosaic="adaptive"),
    first("colour full bilinear, 1920x1080, one frame", COLOR, POLAR, shape=HD, demosaic="bilinear", frames=1, **FULL),
    first("colour full gradient, polar, large", COLOR, POLAR, shape=LARGE, demosaic="gradient", **FULL),
    first("colour full ADR, AoLP, small", COLOR, "aolp", shape=SMALL, **FULL),
    first("colour full ADR, 12Packed, live", COLOR, LIVE, "12packed", **FULL),
    second("SSIM, stride 2, large", stride=2, shape=(1500, 2048)),
    second("SSIM, float, 11 taps, 1920x1080", "float32", shape=(1080, 1920)),
    second("SSIM from the mosaic, 1024x768", MOSAIC, shape=(768, 1024)),
    second("SSIM, 11 taps, small, one frame", shape=(512, 616), frames=1),
)
#: The lists by the name that result files give them.
LISTS = {"fitted": FITTED, "held out": HELD_OUT}
#: All configurations by name.
KNOWN = {configuration.name: configuration for configurations in LISTS.values() for configuration in configurations}
