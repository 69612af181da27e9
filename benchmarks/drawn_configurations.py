"""Configurations to fit to that were drawn at random, by shares in which they may be used; a name says all of one."""

from __future__ import annotations

from typing import Any, Dict

from configuration import (
    ALL,
    ANGLES,
    COLOR,
    FULL,
    HD,
    LARGE,
    LIVE,
    MONO,
    OWN,
    POLAR,
    SMALL,
    THREE,
    Configuration,
    first,
    second,
)

from polar_pipeline.plan import MOSAIC
from polar_pipeline.sensor.frames import FULL_FRAME

_METHODS: Dict[str, Dict[str, Any]] = {
    "half": {},
    "half own site": OWN,
    "own site": OWN,
    "half gradient": {"demosaic": "gradient"},
    "half ADR": {"demosaic": "adaptive"},
    "full bilinear": {"demosaic": "bilinear", **FULL},
    "full gradient": {"demosaic": "gradient", **FULL},
    "full ADR": FULL,
}
_PRODUCTS = {
    "polar": POLAR,
    "live": LIVE,
    "angles": ANGLES,
    "angles and polar": f"{ANGLES},{POLAR}",
    "what SSIM compares too": f"{POLAR},ssim",
    "intensity": "intensity",
    "DoLP": "dolp",
    "AoLP": "aolp",
    "DoLP and AoLP": "dolp,aolp",
    "preview": "preview",
    "intensity and preview": "intensity,preview",
    "everything": ALL,
}
#: What else the parts of a name say: keywords of `first` and of `second`.
_PARTS: Dict[str, Dict[str, Any]] = {
    "12 bit in 16": {"raw_format": "u16"},
    "12p": {"raw_format": "12p"},
    "12Packed": {"raw_format": "12packed"},
    "in float": {"precision": "fp32"},
    "small": {"shape": SMALL},
    "1920x1080": {"shape": HD},
    "2048x1536": {"shape": THREE},
    "large": {"shape": LARGE},
    "one frame": {"frames": 1},
}
_PARTS_OF_SSIM: Dict[str, Dict[str, Any]] = {
    "float": {"source": "float32"},
    "map of bytes": {"map_dtype": "uint8"},
    "means only": {"map_dtype": ""},
    "616x512": {"shape": (512, 616)},
    "960x540": {"shape": (540, 960)},
    "1024x768": {"shape": (768, 1024)},
    "2048x1500": {"shape": (1500, 2048)},
    "full resolution": {"shape": FULL_FRAME},
    "one frame": {"frames": 1},
}


def named(name: str) -> Configuration:
    """The configuration that a name describes: what of, then the parts in any order."""
    start, *parts = name.split(", ")
    keywords: Dict[str, Any] = {}
    if start.startswith("SSIM"):
        keywords = {"source": MOSAIC} if "mosaic" in start else {}
        for part in parts:
            word, _, last = part.rpartition(" ")
            number = {"window": int(word)} if last == "taps" else {"stride": int(last)} if word == "stride" else None
            keywords.update(_PARTS_OF_SSIM[part] if number is None else number)
        return second(name, **keywords)
    sensor, _, method = start.partition(" ")
    keywords, products = dict(_METHODS[method]), ""
    for part in parts:
        text = part[: -len(" as float")] if part.endswith(" as float") else part
        if text in _PRODUCTS:
            products = _PRODUCTS[text]
            keywords["dtype"] = "uint8" if text == part else "float32"
        else:
            keywords.update(_PARTS[part])
    return first(name, {"mono": MONO, "colour": COLOR}[sensor], products, **keywords)


_NAMES = """
colour half ADR, 12 bit in 16, DoLP, small
colour half, 12 bit in 16, what SSIM compares too, large
mono half, 12p, intensity, large
mono half, 12 bit in 16, polar, large
colour half gradient, 12 bit in 16, angles, 1920x1080
mono half, what SSIM compares too, large
mono full bilinear, 12 bit in 16, live
colour full bilinear, 12Packed, polar as float, 1920x1080
mono full gradient, 12p, polar, large
mono full gradient, 12 bit in 16, angles and polar, large, one frame
colour full bilinear, DoLP, large, one frame
mono full ADR, intensity
mono half, angles and polar, 1920x1080
mono half gradient, 12p, angles, 1920x1080
mono full bilinear, intensity, 2048x1536, one frame
colour own site, 12 bit in 16, intensity as float, 1920x1080
colour own site, 12p, polar
colour own site, 12Packed, intensity and preview as float, 1920x1080
mono half, 12p, angles, 2048x1536
mono full gradient, preview, large
colour half ADR, 12Packed, angles, small
colour half, preview, 2048x1536
mono half ADR, 12 bit in 16, angles, small
colour half ADR, 12p, what SSIM compares too, large
colour half, 12Packed, angles and polar, small
mono full bilinear, 12 bit in 16, angles, 1920x1080, one frame
colour full gradient, AoLP, small
mono half own site, 12 bit in 16, angles and polar, 1920x1080
mono full bilinear, 12 bit in 16, intensity, small
colour half, polar, 1920x1080
colour half, 12 bit in 16, angles, 2048x1536
mono full bilinear, 12Packed, polar, 2048x1536
colour half ADR, 12 bit in 16, angles, 2048x1536
mono half ADR, live, small
colour full bilinear, live, 2048x1536
mono full bilinear, AoLP
colour full bilinear, AoLP, 1920x1080
colour half, everything, large
mono full bilinear, angles, 1920x1080
colour half gradient, 12Packed, live, 1920x1080
colour half, polar, large, one frame
mono full gradient, 12 bit in 16, preview, 1920x1080
mono full ADR, polar, large, one frame
mono full gradient, 12 bit in 16, intensity, 1920x1080, one frame
colour full ADR, in float, what SSIM compares too, large
mono half, 12Packed, angles and polar, large, one frame
mono half own site, DoLP as float
mono full gradient, polar, large
mono half own site, 12Packed, angles, 1920x1080
colour half, 12 bit in 16, angles, 2048x1536, one frame
mono half, 12Packed, DoLP, 1920x1080
colour half gradient, polar, 1920x1080
colour full gradient, 12 bit in 16, what SSIM compares too, one frame
mono half ADR, intensity
mono half gradient, 12p, polar as float
mono half gradient, polar, small
mono full bilinear, polar, 1920x1080
mono half own site, 12 bit in 16, DoLP, 2048x1536
colour half, 12 bit in 16, intensity, large, one frame
mono full gradient, angles, 1920x1080
colour half, angles and polar as float, large
mono full ADR, 12Packed, live
colour half gradient, angles and polar as float, small
colour full gradient, 12Packed, preview, 1920x1080
colour full ADR, 12p, intensity, small
colour own site, 12p, DoLP, large
mono half gradient, AoLP, small
mono full gradient, 12 bit in 16, angles, large
colour own site, 12Packed, polar, large
colour full gradient, 12Packed, angles
colour full gradient, 12 bit in 16, angles, small
colour half ADR, 12Packed, live, 2048x1536
colour full bilinear, live, large
mono full ADR, DoLP, large
colour full ADR, 12Packed, DoLP
colour full gradient, 12 bit in 16, AoLP, 1920x1080
mono half, 12 bit in 16, AoLP, large
mono full bilinear, 12 bit in 16, what SSIM compares too, 1920x1080, one frame
mono full ADR, 12Packed, AoLP, 1920x1080
mono full gradient, 12p, AoLP, large
SSIM, float, 5 taps, map of bytes, 2048x1500
SSIM, 11 taps, map of bytes, 960x540
SSIM, float, 7 taps, map of bytes, 1024x768
SSIM, float, 5 taps, stride 4, means only, 616x512
SSIM, 7 taps, stride 4, map of bytes, 616x512
SSIM, 11 taps, 1024x768
SSIM, 7 taps, map of bytes, 2048x1500
SSIM, float, 7 taps, 616x512
SSIM, float, 11 taps, 960x540
SSIM, float, 11 taps, stride 2, map of bytes, 2048x1500
SSIM, 7 taps, stride 4, full resolution
SSIM from the mosaic, 5 taps, map of bytes, full resolution, one frame
SSIM from the mosaic, 3 taps, full resolution
SSIM, 11 taps, means only, 960x540, one frame
SSIM from the mosaic, 5 taps, full resolution
SSIM, float, 13 taps, stride 2, map of bytes, 1024x768, one frame
SSIM, 11 taps, 616x512
SSIM, 5 taps, map of bytes, 960x540
SSIM, 11 taps, stride 2, map of bytes, full resolution
SSIM from the mosaic, 7 taps, map of bytes, 2048x1500
mono half, in float, preview, 1920x1080
mono half, 12Packed, DoLP, 2048x1536, one frame
mono half, 12 bit in 16, AoLP, 1920x1080
mono half, DoLP, 2048x1536, one frame
mono half, 12Packed, DoLP
mono half own site, 12p, angles, small
mono half gradient, AoLP
mono half ADR, polar, large
mono full bilinear, 12 bit in 16, DoLP and AoLP, 1920x1080
mono full gradient, everything, small
mono full gradient, 12Packed, polar as float, 1920x1080
mono full gradient, 12p, live, small
mono full ADR, 12 bit in 16, preview, one frame
mono full ADR, live
colour own site, 12 bit in 16, live as float, small
colour own site, intensity, one frame
colour half, 12 bit in 16, intensity and preview, 2048x1536
colour half, what SSIM compares too, small, one frame
colour half, 12 bit in 16, angles as float, 2048x1536
colour half, AoLP, 2048x1536
colour half gradient, angles
colour half ADR, 12p, intensity and preview, large
colour full bilinear, 12Packed, DoLP as float, small
colour full gradient, intensity, 2048x1536
colour full ADR, 12 bit in 16, live, 2048x1536
colour full ADR, 12p, preview, 2048x1536
SSIM, 9 taps, stride 2, 616x512
SSIM, float, 7 taps, stride 4, 616x512
SSIM from the mosaic, 7 taps, map of bytes, 1024x768
SSIM, 5 taps, map of bytes, 960x540, one frame
mono half, angles as float
mono half, DoLP, 2048x1536
mono half, 12p, polar, 1920x1080
mono half, intensity, small
mono half, 12Packed, angles, 1920x1080
mono half own site, DoLP and AoLP, large
mono half gradient, 12p, preview, small
mono half ADR, polar, small, one frame
mono full bilinear, 12p, DoLP, small
mono full gradient, 12 bit in 16, DoLP
mono full gradient, 12p, polar, 1920x1080
mono full gradient, 12Packed, intensity, 1920x1080
mono full ADR, intensity, 1920x1080
mono full ADR, preview, 1920x1080
colour own site, 12 bit in 16, intensity and preview, large
colour own site, angles and polar as float, small
colour half, 12p, polar, small
colour half, 12Packed, DoLP, small
colour half, 12 bit in 16, polar, 2048x1536
colour half, angles and polar as float, small
colour half gradient, live, large
colour half ADR, 12p, AoLP, 1920x1080, one frame
colour full bilinear, angles and polar, small
colour full gradient, 12Packed, DoLP, 2048x1536
colour full ADR, angles, large
colour full ADR, 12 bit in 16, intensity, large
SSIM, 11 taps, means only, full resolution
SSIM, float, 11 taps, 960x540, one frame
SSIM from the mosaic, 5 taps, 960x540, one frame
SSIM, 15 taps, 2048x1500
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
DRAWN = tuple(map(named, _NAMES.strip().splitlines()))
