"""The configurations that `model.py` predicts and measures: launches on frames of several sensors, sizes and formats.

A configuration is in one of two lists. Constants of the cost model are fitted to `FITTED`, and its form was chosen with
those times known; `HELD_OUT` is predicted before it is measured, and no constant is fitted to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Tuple

from polar_pipeline.cuda.model.launch_model import KernelWork
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.ssim_work import SsimWork
from polar_pipeline.cuda.model.work import make_work
from polar_pipeline.options import make_options
from polar_pipeline.plan import MOSAIC, make_plan
from polar_pipeline.sensor.frames import FULL_FRAME

#: Frames of a launch, unless a configuration says otherwise.
FRAMES = 64
MONO, COLOR = "IMX250MZR", "IMX250MYR"
POLAR = "intensity,dolp,aolp"
LIVE = f"{POLAR},preview"
ANGLES = "angle_0,angle_45,angle_90,angle_135"
#: Every product of version 0.1; a later one would change what configurations of the result files mean.
ALL = f"intensity,{ANGLES},stokes,dolp,aolp,preview,ssim_map,ssim"
#: (height, width) of frames.
SMALL, LARGE, THREE, HD = (1024, 1232), (3000, 4096), (1536, 2048), (1080, 1920)
_FULL_SCALE = {"u8": 255, "u16": 4095, "12p": 4095, "12packed": 4095}


@dataclass(frozen=True)
class Configuration:
    """One launch to predict and to measure.

    Attributes:
        name: Its name in result files.
        work: What the launch does.
        schedules: The schedules to measure it with; empty: the one that the package chooses.
        frames: Frames per launch.
    """

    name: str
    work: KernelWork
    schedules: Tuple[Schedule, ...] = ()
    frames: int = FRAMES


def first(
    name: str,
    sensor: str,
    products: str,
    raw_format: str = "u8",
    shape: Tuple[int, int] = FULL_FRAME,
    dtype: str = "uint8",
    schedules: Tuple[Schedule, ...] = (),
    frames: int = FRAMES,
    **options: Any,
) -> Configuration:
    """A polarization launch, the first of a frame; `options` are the pipeline's."""
    made = make_options(sensor, tuple(products.split(",")), dtype, **options)
    work = make_work(make_plan(made.products), made, raw_format, _FULL_SCALE[raw_format], shape)
    return Configuration(name, work, schedules, frames)


def second(
    name: str,
    source: str = "uint16",
    window: int = 11,
    stride: int = 1,
    map_dtype: str = "float32",
    shape: Tuple[int, int] = (1024, 1224),
    schedules: Tuple[Schedule, ...] = (),
    frames: int = FRAMES,
) -> Configuration:
    """An SSIM launch, the second of a frame, on images of `shape` (height, width)."""
    return Configuration(name, SsimWork(*shape, stride, window, 1.5, source, map_dtype), schedules, frames)


def _tiles(*sizes: Tuple[int, int, int, int]) -> Tuple[Schedule, ...]:
    return tuple(Schedule("tile", "tile", *size) for size in sizes)


_FULL: Dict[str, Any] = {"resolution": "full"}
_OWN: Dict[str, Any] = {"co_sited": False}
_BY_REGISTERS = (Schedule("ssim", "registers", 320, 308, rows=256), Schedule("ssim", "registers", 224, 204, rows=128))
_WARPS = (Schedule("color_half", "registers", 32, 4, rows=2),)
#: The constants of the cost model are fitted to these.
FITTED = (
    first("mono half", MONO, POLAR),
    first("mono half, one frame", MONO, POLAR, frames=1),
    first("mono full bilinear", MONO, POLAR, demosaic="bilinear", **_FULL),
    first("colour own site, angles", COLOR, ANGLES, **_OWN),
    first("colour own site, angles, blocks of a warp", COLOR, ANGLES, schedules=_WARPS, **_OWN),
    first("colour own site, angles and polar", COLOR, f"{ANGLES},{POLAR}", **_OWN),
    first("colour half", COLOR, LIVE, schedules=_tiles((128, 32, 16, 0), (128, 16, 16, 0), (256, 32, 32, 0))),
    first("mono full gradient", MONO, POLAR, demosaic="gradient", **_FULL),
    first("mono full ADR", MONO, POLAR, schedules=_tiles((128, 64, 60, 9), (192, 64, 28, 6)), **_FULL),
    first(
        "colour full ADR",
        COLOR,
        POLAR,
        schedules=_tiles(
            (256, 64, 40, 6),
        ),
        **_FULL,
    ),
    first("mono half, 12 bit in 16, float", MONO, POLAR, "u16", dtype="float32"),
    first("mono half, 12p, float", MONO, POLAR, "12p"),
    first("mono half, everything", MONO, ALL),
    first("colour half, 12 bit in 16", COLOR, LIVE, "u16"),
    first("mono full ADR, 12 bit in 16", MONO, POLAR, "u16", **_FULL),
    first("colour half ADR", COLOR, POLAR, demosaic="adaptive"),
    second("SSIM on tensor cores"),
    second("SSIM on tensor cores, one frame", frames=1),
    second("SSIM in registers", schedules=_BY_REGISTERS),
    second("SSIM in registers, float", "float32"),
    second("SSIM from the mosaic", MOSAIC),
    first("mono half, small", MONO, POLAR, shape=SMALL),
    first("mono half, large", MONO, POLAR, shape=LARGE),
    first("mono half, small, one frame", MONO, POLAR, shape=SMALL, frames=1),
    first("mono half, live", MONO, LIVE),
    first("mono half, live, one frame", MONO, LIVE, frames=1),
    first("mono half, Stokes", MONO, "stokes", dtype="float32"),
    first("mono half, what SSIM compares too", MONO, f"{POLAR},ssim"),
    first("mono half gradient", MONO, POLAR, demosaic="gradient"),
    first("mono half ADR", MONO, POLAR, demosaic="adaptive"),
    first("mono half ADR, float", MONO, POLAR, demosaic="adaptive", precision="fp32"),
    first("mono half, 12 bit in 16, live", MONO, LIVE, "u16"),
    first("mono half, 12Packed", MONO, LIVE, "12packed"),
    first("mono full bilinear, 12 bit in 16", MONO, POLAR, "u16", demosaic="bilinear", **_FULL),
    first("mono full gradient, everything as float", MONO, ALL, dtype="float32", demosaic="gradient", **_FULL),
    first("mono full gradient, 12Packed", MONO, POLAR, "12packed", demosaic="gradient", **_FULL),
    first("mono full ADR, live, small", MONO, LIVE, shape=SMALL, **_FULL),
    first("mono full ADR, one frame", MONO, POLAR, frames=1, **_FULL),
    first("mono full ADR, float, intensity", MONO, "intensity", precision="fp32", **_FULL),
    first("colour own site, angles, small", COLOR, ANGLES, shape=SMALL, **_OWN),
    first("colour own site, polar", COLOR, POLAR, **_OWN),
    first("colour own site, live, large", COLOR, LIVE, shape=LARGE, **_OWN),
    first("colour half, angles", COLOR, ANGLES),
    first("colour half, live, one frame", COLOR, LIVE, frames=1),
    first("colour half, live, large", COLOR, LIVE, shape=LARGE),
    first("colour half, everything as float", COLOR, ALL, dtype="float32"),
    first("colour half, 12p", COLOR, POLAR, "12p"),
    first("colour full gradient", COLOR, POLAR, demosaic="gradient", **_FULL),
    first("colour full bilinear, live", COLOR, LIVE, demosaic="bilinear", **_FULL),
    first("colour full ADR, intensity, small", COLOR, "intensity", shape=SMALL, **_FULL),
    first("colour full ADR, 12 bit in 16", COLOR, POLAR, "u16", **_FULL),
    first("colour half ADR, 12 bit in 16", COLOR, LIVE, "u16", demosaic="adaptive"),
    second("SSIM, 7 taps", window=7),
    second("SSIM, means only", map_dtype=""),
    second("SSIM, full resolution", shape=FULL_FRAME, map_dtype="uint8"),
    second("SSIM, full resolution, one frame", shape=FULL_FRAME, map_dtype="uint8", frames=1),
    second("SSIM, float, 7 taps", "float32", 7),
    second("SSIM, float, 15 taps", "float32", 15, map_dtype="uint8"),
    second("SSIM, stride 2", stride=2),
    second("SSIM, stride 4, float", "float32", stride=4),
    second("SSIM, float, full resolution", "float32", shape=FULL_FRAME),
    second("SSIM from the mosaic, 7 taps", MOSAIC, 7, map_dtype="uint8"),
    first("mono half, preview", MONO, "preview"),
    first("mono half, angles, small", MONO, ANGLES, shape=SMALL),
    first("mono half, float, DoLP", MONO, "dolp", dtype="float32", precision="fp32"),
    first("mono half, 12p, live, large", MONO, LIVE, "12p", shape=LARGE),
    first("mono half gradient, 12 bit in 16", MONO, POLAR, "u16", demosaic="gradient"),
    first("mono full bilinear, large", MONO, POLAR, shape=LARGE, demosaic="bilinear", **_FULL),
    first("mono full bilinear, live", MONO, LIVE, demosaic="bilinear", **_FULL),
    first("mono full gradient, live, one frame", MONO, LIVE, demosaic="gradient", frames=1, **_FULL),
    first("mono full ADR, DoLP and AoLP, large", MONO, "dolp,aolp", shape=LARGE, **_FULL),
    first("mono full ADR, 12p", MONO, POLAR, "12p", **_FULL),
    first("colour own site, angles, 4 rows, one frame", COLOR, ANGLES, frames=1, **_OWN),
    first("colour half, small", COLOR, LIVE, shape=SMALL),
    first("colour half gradient", COLOR, POLAR, demosaic="gradient"),
    first("colour full gradient, 12Packed", COLOR, POLAR, "12packed", demosaic="gradient", **_FULL),
    first("colour full ADR, live", COLOR, LIVE, **_FULL),
    second("SSIM, 9 taps, small", window=9, shape=(512, 616)),
    second("SSIM, float, 5 taps, large", "float32", 5, shape=(1500, 2048)),
    second("SSIM, float, stride 2", "float32", stride=2),
    second("SSIM, means only, one frame", map_dtype="", frames=1),
    second("SSIM from the mosaic, large", MOSAIC, shape=(1500, 2048)),
    first("mono half, live as float", MONO, LIVE, dtype="float32"),
    first("mono half, what SSIM compares too, small", MONO, f"{POLAR},ssim", shape=SMALL),
    first("mono half ADR, live", MONO, LIVE, demosaic="adaptive"),
    first("mono full gradient, intensity, 12 bit in 16", MONO, "intensity", "u16", demosaic="gradient", **_FULL),
    first("colour own site, angles, large", COLOR, ANGLES, shape=LARGE, **_OWN),
    first("colour half, float, intensity", COLOR, "intensity", precision="fp32"),
    first("colour half, Stokes", COLOR, "stokes", dtype="float32"),
    first("colour full bilinear, AoLP, small", COLOR, "aolp", shape=SMALL, demosaic="bilinear", **_FULL),
    first("colour full ADR, one frame", COLOR, POLAR, frames=1, **_FULL),
    second("SSIM, large", shape=(1500, 2048)),
    second("SSIM, float, 13 taps", "float32", 13),
    first("mono half, 2048x1536", MONO, POLAR, shape=THREE),
    first("mono half, live, 1920x1080", MONO, LIVE, shape=HD),
    first("mono half, angles", MONO, ANGLES),
    first("mono half, DoLP, small", MONO, "dolp", shape=SMALL),
    first("mono half, 12p, AoLP", MONO, "aolp", "12p"),
    first("mono half, float, angles", MONO, ANGLES, precision="fp32"),
    first("mono half gradient, live, 2048x1536", MONO, LIVE, shape=THREE, demosaic="gradient"),
    first("mono half ADR, intensity, 2048x1536", MONO, "intensity", shape=THREE, demosaic="adaptive"),
    first("mono half, 12Packed, live, one frame", MONO, LIVE, "12packed", frames=1),
    first("mono full bilinear, 1920x1080, one frame", MONO, POLAR, shape=HD, demosaic="bilinear", frames=1, **_FULL),
    first("mono full bilinear, angles", MONO, ANGLES, demosaic="bilinear", **_FULL),
    first("mono full gradient, 12p, DoLP", MONO, "dolp", "12p", demosaic="gradient", **_FULL),
    first("mono full gradient, small", MONO, POLAR, shape=SMALL, demosaic="gradient", **_FULL),
    first("mono full ADR, 1920x1080", MONO, POLAR, shape=HD, **_FULL),
    first("mono full ADR, angles", MONO, ANGLES, **_FULL),
    first("mono full ADR, 12Packed, one frame", MONO, POLAR, "12packed", frames=1, **_FULL),
    first("colour own site, angles, 2048x1536", COLOR, ANGLES, shape=THREE, **_OWN),
    first("colour own site, live", COLOR, LIVE, **_OWN),
    first("colour own site, angles and polar, one frame", COLOR, f"{ANGLES},{POLAR}", frames=1, **_OWN),
    first("colour half, polar, 2048x1536", COLOR, POLAR, shape=THREE),
    first("colour half, preview", COLOR, "preview"),
    first("colour half, 12Packed, angles", COLOR, ANGLES, "12packed"),
    first("colour half gradient, 12 bit in 16, live", COLOR, LIVE, "u16", demosaic="gradient"),
    first("colour half ADR, small", COLOR, POLAR, shape=SMALL, demosaic="adaptive"),
    first("colour full bilinear, DoLP", COLOR, "dolp", demosaic="bilinear", **_FULL),
    first("colour full gradient, live, 2048x1536", COLOR, LIVE, shape=THREE, demosaic="gradient", **_FULL),
    first("colour full ADR, angles", COLOR, ANGLES, **_FULL),
    first("colour full ADR, 12p, small", COLOR, POLAR, "12p", shape=SMALL, **_FULL),
    second("SSIM, 5 taps", window=5),
    second("SSIM, 15 taps", window=15),
    second("SSIM, 768x512, one frame", shape=(512, 768), frames=1),
    second("SSIM, 7 taps, large", window=7, shape=(1500, 2048)),
    second("SSIM, float, 3 taps", "float32", 3),
    second("SSIM, float, one frame", "float32", frames=1),
    second("SSIM, float, 9 taps, 1024x768", "float32", 9, map_dtype="uint8", shape=(768, 1024)),
    second("SSIM, float, 7 taps, stride 2, full resolution", "float32", 7, 2, shape=FULL_FRAME),
    second("SSIM, float, stride 3", "float32", stride=3),
    second("SSIM, stride 4", stride=4),
    second("SSIM from the mosaic, 5 taps", MOSAIC, 5),
    second("SSIM from the mosaic, 7 taps, large", MOSAIC, 7, shape=(1500, 2048)),
    second("SSIM from the mosaic, 15 taps, means only, large", MOSAIC, 15, map_dtype="", shape=(1500, 2048)),
    first("mono half, AoLP, 2048x1536", MONO, "aolp", shape=THREE),
    first("mono half, live, 12p, 1920x1080", MONO, LIVE, "12p", shape=HD),
    first("mono half, angles and polar", MONO, f"{ANGLES},{POLAR}"),
    first("mono half, intensity as float", MONO, "intensity", dtype="float32"),
    first("mono half, 12Packed, DoLP, large", MONO, "dolp", "12packed", shape=LARGE),
    first("mono half, preview, small", MONO, "preview", shape=SMALL),
    first("mono half gradient, angles", MONO, ANGLES, demosaic="gradient"),
    first("mono half gradient, float, large", MONO, POLAR, shape=LARGE, demosaic="gradient", precision="fp32"),
    first("mono half ADR, angles, 1920x1080", MONO, ANGLES, shape=HD, demosaic="adaptive"),
    first("mono half ADR, 12p", MONO, POLAR, "12p", demosaic="adaptive"),
    first("mono half, live, 2048x1536, one frame", MONO, LIVE, shape=THREE, frames=1),
    first("mono full bilinear, 2048x1536", MONO, POLAR, shape=THREE, demosaic="bilinear", **_FULL),
    first("mono full bilinear, preview", MONO, "preview", demosaic="bilinear", **_FULL),
    first("mono full bilinear, 12p, angles", MONO, ANGLES, "12p", demosaic="bilinear", **_FULL),
    first("mono full gradient, angles, 2048x1536", MONO, ANGLES, shape=THREE, demosaic="gradient", **_FULL),
    first("mono full gradient, float, large", MONO, POLAR, shape=LARGE, demosaic="gradient", precision="fp32", **_FULL),
    first("mono full ADR, preview", MONO, "preview", **_FULL),
    first("mono full ADR, angles and polar, small", MONO, f"{ANGLES},{POLAR}", shape=SMALL, **_FULL),
    first("mono full ADR, float, live", MONO, LIVE, precision="fp32", **_FULL),
    first("colour own site, live, 1920x1080", COLOR, LIVE, shape=HD, **_OWN),
    first("colour own site, preview", COLOR, "preview", **_OWN),
    first("colour half, DoLP and AoLP", COLOR, "dolp,aolp"),
    first("colour half, intensity, large", COLOR, "intensity", shape=LARGE),
    first("colour half, 12p, live, small", COLOR, LIVE, "12p", shape=SMALL),
    first("colour half gradient, angles, large", COLOR, ANGLES, shape=LARGE, demosaic="gradient"),
    first("colour half ADR, live", COLOR, LIVE, demosaic="adaptive"),
    first("colour full bilinear, 2048x1536", COLOR, POLAR, shape=THREE, demosaic="bilinear", **_FULL),
    first("colour full gradient, 12 bit in 16, angles", COLOR, ANGLES, "u16", demosaic="gradient", **_FULL),
    first("colour full ADR, live, 1920x1080", COLOR, LIVE, shape=HD, **_FULL),
    first("colour full ADR, float, small", COLOR, POLAR, shape=SMALL, precision="fp32", **_FULL),
    first("colour full gradient, one frame", COLOR, POLAR, demosaic="gradient", frames=1, **_FULL),
    second("SSIM, 13 taps, means only", window=13, map_dtype=""),
    second("SSIM, 3 taps, 1024x768", window=3, shape=(768, 1024)),
    second("SSIM, float, 11 taps, large", "float32", shape=(1500, 2048)),
    second("SSIM, float, 5 taps, means only, one frame", "float32", 5, map_dtype="", frames=1),
    second("SSIM, 7 taps, stride 2", window=7, stride=2),
    second("SSIM, float, 11 taps, stride 2, full resolution", "float32", stride=2, shape=FULL_FRAME),
    second("SSIM from the mosaic, 9 taps", MOSAIC, 9),
    second("SSIM from the mosaic, one frame", MOSAIC, frames=1),
    second("SSIM, full resolution, 7 taps", window=7, shape=FULL_FRAME, map_dtype="uint8"),
    first("mono half, DoLP and AoLP, 1920x1080", MONO, "dolp,aolp", shape=HD),
    first("mono half, 12 bit in 16, preview", MONO, "preview", "u16"),
    first("mono half, intensity and preview, large", MONO, "intensity,preview", shape=LARGE),
    first("mono half, AoLP as float, 2048x1536", MONO, "aolp", shape=THREE, dtype="float32"),
    first("mono half gradient, 12Packed, small", MONO, POLAR, "12packed", shape=SMALL, demosaic="gradient"),
    first("mono half gradient, DoLP, large", MONO, "dolp", shape=LARGE, demosaic="gradient"),
    first("mono half, live, large, one frame", MONO, LIVE, shape=LARGE, frames=1),
    first("mono full bilinear, DoLP, small", MONO, "dolp", shape=SMALL, demosaic="bilinear", **_FULL),
    first("mono full bilinear, live, 1920x1080", MONO, LIVE, shape=HD, demosaic="bilinear", **_FULL),
    first("mono full gradient, 12 bit in 16, live", MONO, LIVE, "u16", demosaic="gradient", **_FULL),
    first("mono full gradient, angles and polar", MONO, f"{ANGLES},{POLAR}", demosaic="gradient", **_FULL),
    first("colour own site, polar, 2048x1536", COLOR, POLAR, shape=THREE, **_OWN),
    first("colour own site, angles, 1920x1080", COLOR, ANGLES, shape=HD, **_OWN),
    first("colour half, AoLP, small", COLOR, "aolp", shape=SMALL),
    first("colour half, live, 1920x1080", COLOR, LIVE, shape=HD),
    first("colour half, 12 bit in 16, DoLP, 2048x1536", COLOR, "dolp", "u16", shape=THREE),
    first("colour half gradient, polar, small", COLOR, POLAR, shape=SMALL, demosaic="gradient"),
    first("colour full bilinear, 12p", COLOR, POLAR, "12p", demosaic="bilinear", **_FULL),
    first("colour full gradient, preview, large", COLOR, "preview", shape=LARGE, demosaic="gradient", **_FULL),
    second("SSIM, 9 taps", window=9),
    second("SSIM, 11 taps, 1920x1080", shape=(1080, 1920)),
    second("SSIM, float, 9 taps, full resolution", "float32", 9, shape=FULL_FRAME),
    second("SSIM, float, 5 taps, 1024x768", "float32", 5, shape=(768, 1024)),
    second("SSIM from the mosaic, 13 taps", MOSAIC, 13),
    second("SSIM from the mosaic, 1024x768, one frame", MOSAIC, shape=(768, 1024), frames=1),
    first("mono half ADR, 12 bit in 16, live", MONO, LIVE, "u16", demosaic="adaptive"),
    first("mono full ADR, intensity, large", MONO, "intensity", shape=LARGE, **_FULL),
    first("mono full ADR, 12p, angles, 2048x1536", MONO, ANGLES, "12p", shape=THREE, **_FULL),
    first("colour half ADR, intensity", COLOR, "intensity", demosaic="adaptive"),
    first("colour full ADR, DoLP and AoLP, 2048x1536", COLOR, "dolp,aolp", shape=THREE, **_FULL),
    first("mono half, DoLP, 1920x1080", MONO, "dolp", shape=HD),
    first("mono half, 12Packed, angles, 2048x1536", MONO, ANGLES, "12packed", shape=THREE),
    first("mono half, 12 bit in 16, intensity, small", MONO, "intensity", "u16", shape=SMALL),
    first("mono half, preview, 2048x1536, one frame", MONO, "preview", shape=THREE, frames=1),
    first("mono half, Stokes, large", MONO, "stokes", shape=LARGE, dtype="float32"),
    first("mono half gradient, 12p, AoLP", MONO, "aolp", "12p", demosaic="gradient"),
    first("mono half ADR, DoLP, small", MONO, "dolp", shape=SMALL, demosaic="adaptive"),
    first("mono full bilinear, 12Packed, live, 2048x1536", MONO, LIVE, "12packed", THREE, demosaic="bilinear", **_FULL),
    first("mono full bilinear, intensity, large", MONO, "intensity", shape=LARGE, demosaic="bilinear", **_FULL),
    first("mono full gradient, preview, 1920x1080", MONO, "preview", shape=HD, demosaic="gradient", **_FULL),
    first("mono full gradient, float, AoLP", MONO, "aolp", demosaic="gradient", precision="fp32", **_FULL),
    first("mono full ADR, AoLP, 2048x1536, one frame", MONO, "aolp", shape=THREE, frames=1, **_FULL),
    first("colour own site, live, small", COLOR, LIVE, shape=SMALL, **_OWN),
    first("colour own site, DoLP and AoLP", COLOR, "dolp,aolp", **_OWN),
    first("colour half, preview, large", COLOR, "preview", shape=LARGE),
    first("colour half, angles, 1920x1080, one frame", COLOR, ANGLES, shape=HD, frames=1),
    first("colour half, 12Packed, live", COLOR, LIVE, "12packed"),
    first("colour half gradient, AoLP, 2048x1536", COLOR, "aolp", shape=THREE, demosaic="gradient"),
    first("colour full bilinear, intensity, 1920x1080", COLOR, "intensity", shape=HD, demosaic="bilinear", **_FULL),
    first("colour full gradient, live, small", COLOR, LIVE, shape=SMALL, demosaic="gradient", **_FULL),
    second("SSIM, 13 taps, 2048x1500", window=13, shape=(1500, 2048)),
    second("SSIM, 5 taps, 768x512", window=5, shape=(512, 768)),
    second("SSIM, float, 7 taps, 1920x1080", "float32", 7, shape=(1080, 1920)),
    second("SSIM, float, 15 taps, one frame", "float32", 15, frames=1),
    second("SSIM from the mosaic, 5 taps, 1024x768", MOSAIC, 5, shape=(768, 1024)),
    first("mono half, live as float, 2048x1536", MONO, LIVE, shape=THREE, dtype="float32"),
    first("mono half, 12 bit in 16, live, 1920x1080", MONO, LIVE, "u16", shape=HD),
    first("mono half, what SSIM compares too, 12p", MONO, f"{POLAR},ssim", "12p"),
    first("mono half own site, live, large", MONO, LIVE, shape=LARGE, **_OWN),
    first("mono half gradient, preview, 1920x1080", MONO, "preview", shape=HD, demosaic="gradient"),
    first("mono full bilinear, AoLP, 2048x1536", MONO, "aolp", shape=THREE, demosaic="bilinear", **_FULL),
    first("mono full gradient, DoLP, large", MONO, "dolp", shape=LARGE, demosaic="gradient", **_FULL),
    first("mono full gradient, live as float", MONO, LIVE, dtype="float32", demosaic="gradient", **_FULL),
    first("mono full ADR, live, 2048x1536", MONO, LIVE, shape=THREE, **_FULL),
    first("mono full ADR, 12 bit in 16, AoLP, small", MONO, "aolp", "u16", shape=SMALL, precision="fp16", **_FULL),
    first("colour own site, 12p, live", COLOR, LIVE, "12p", **_OWN),
    first("colour half, live, 2048x1536", COLOR, LIVE, shape=THREE),
    first("colour half, angles, large", COLOR, ANGLES, shape=LARGE),
    first("colour half, 12 bit in 16, AoLP, large", COLOR, "aolp", "u16", shape=LARGE),
    first("colour full gradient, AoLP, 1920x1080", COLOR, "aolp", shape=HD, demosaic="gradient", **_FULL),
    first("colour full ADR, preview, 2048x1536", COLOR, "preview", shape=THREE, **_FULL),
    second("SSIM, 7 taps, 1920x1080", window=7, shape=(1080, 1920)),
    second("SSIM, float, 13 taps, 1920x1080", "float32", 13, shape=(1080, 1920)),
    second("SSIM from the mosaic, 7 taps, 1920x1080", MOSAIC, 7, shape=(540, 960)),
    first("mono half, AoLP and preview, small", MONO, "aolp,preview", shape=SMALL),
    first("mono half, 12Packed, Stokes", MONO, "stokes", "12packed", dtype="float32"),
    first("mono half ADR, preview, 2048x1536", MONO, "preview", shape=THREE, demosaic="adaptive"),
    first("mono full bilinear, 12p, live, small", MONO, LIVE, "12p", SMALL, demosaic="bilinear", **_FULL),
    first("colour own site, intensity, 2048x1536", COLOR, "intensity", shape=THREE, **_OWN),
    first("colour half, DoLP, large", COLOR, "dolp", shape=LARGE),
    first("colour half gradient, 12p, angles", COLOR, ANGLES, "12p", demosaic="gradient"),
    first("colour half ADR, AoLP, 1920x1080", COLOR, "aolp", shape=HD, demosaic="adaptive"),
    first("colour full bilinear, preview, 2048x1536", COLOR, "preview", shape=THREE, demosaic="bilinear", **_FULL),
    first("colour full ADR, intensity, large", COLOR, "intensity", shape=LARGE, **_FULL),
    second("SSIM, 9 taps, full resolution", window=9, shape=FULL_FRAME),
)
#: These differ from all of the above in size, format, products, method, window or stride.
HELD_OUT = (
    first("mono half, angles, large", MONO, ANGLES, shape=LARGE),
    first("mono half, 12p, live", MONO, LIVE, "12p"),
    first("mono half, 12 bit in 16, one frame", MONO, POLAR, "u16", frames=1),
    first("mono half, as float, 1920x1080", MONO, POLAR, shape=HD, dtype="float32"),
    first("mono half, what SSIM compares too, 2048x1536", MONO, f"{POLAR},ssim", shape=THREE),
    first("mono half own site, 12 bit in 16", MONO, POLAR, "u16", **_OWN),
    first("mono half gradient, live, large", MONO, LIVE, shape=LARGE, demosaic="gradient"),
    first("mono half ADR, AoLP, large", MONO, "aolp", shape=LARGE, demosaic="adaptive"),
    first("mono full bilinear, 12 bit in 16, live, 1920x1080", MONO, LIVE, "u16", HD, demosaic="bilinear", **_FULL),
    first("mono full gradient, 2048x1536", MONO, POLAR, shape=THREE, demosaic="gradient", **_FULL),
    first("mono full gradient, 12p, live", MONO, LIVE, "12p", demosaic="gradient", **_FULL),
    first("mono full gradient, intensity as float", MONO, "intensity", dtype="float32", demosaic="gradient", **_FULL),
    first("mono full ADR, 12p, live, 1920x1080", MONO, LIVE, "12p", HD, **_FULL),
    first("mono full ADR, DoLP", MONO, "dolp", **_FULL),
    first("colour own site, angles and polar, 2048x1536", COLOR, f"{ANGLES},{POLAR}", shape=THREE, **_OWN),
    first("colour own site, 12 bit in 16, angles", COLOR, ANGLES, "u16", **_OWN),
    first("colour half, polar, large", COLOR, POLAR, shape=LARGE),
    first("colour half, angles, small", COLOR, ANGLES, shape=SMALL),
    first("colour half, 12Packed, polar, 1920x1080", COLOR, POLAR, "12packed", shape=HD),
    first("colour half, live as float", COLOR, LIVE, dtype="float32"),
    first("colour half gradient, preview", COLOR, "preview", demosaic="gradient"),
    first("colour half ADR, live, 2048x1536", COLOR, LIVE, shape=THREE, demosaic="adaptive"),
    first("colour full bilinear, 1920x1080, one frame", COLOR, POLAR, shape=HD, demosaic="bilinear", frames=1, **_FULL),
    first("colour full gradient, polar, large", COLOR, POLAR, shape=LARGE, demosaic="gradient", **_FULL),
    first("colour full ADR, AoLP, small", COLOR, "aolp", shape=SMALL, **_FULL),
    first("colour full ADR, 12Packed, live", COLOR, LIVE, "12packed", **_FULL),
    second("SSIM, stride 2, large", stride=2, shape=(1500, 2048)),
    second("SSIM, float, 11 taps, 1920x1080", "float32", shape=(1080, 1920)),
    second("SSIM from the mosaic, 1024x768", MOSAIC, shape=(768, 1024)),
    second("SSIM, 11 taps, small, one frame", shape=(512, 616), frames=1),
)
#: The lists by the name that result files give them.
LISTS = {"fitted": FITTED, "held out": HELD_OUT}
#: All configurations by name.
KNOWN = {configuration.name: configuration for configurations in LISTS.values() for configuration in configurations}
