"""Configurations to fit to that were drawn at random, by shares in which they may be used; a name says all of one."""

from __future__ import annotations

from pathlib import Path
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
from polar_pipeline.sensor.mosaic import FULL_FRAME

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


#: Those whose names `drawn_configurations.txt` lists, in the order in which they were drawn.
DRAWN = tuple(map(named, Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()))
