"""One launch that `model.py` predicts and measures: what a configuration is, and what many have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Tuple

from polar_pipeline.cuda.model.launch_model import KernelWork
from polar_pipeline.cuda.model.requested_work import make_work
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.ssim_work import SsimWork
from polar_pipeline.options import make_options
from polar_pipeline.plan import make_plan
from polar_pipeline.sensor.mosaic import FULL_FRAME

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
#: Options of the pipeline: at full resolution; every angle at its own site.
FULL: Dict[str, Any] = {"resolution": "full"}
OWN: Dict[str, Any] = {"co_sited": False}
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
