"""Preprocessor definitions of the kernels, and the structures of their arguments.

The counterpart of `kernels/frame.cuh`, `kernels/transform.cuh` and `kernels/ssim.cu`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Dict, Mapping, NamedTuple, Tuple, Union

import numpy as np

from polar_pipeline.backends.cuda.work import (
    CAMERA_FORMATS,
    OUTPUTS,
    PLANES,
    PolarizationWork,
    SsimWork,
    TransformWork,
    Work,
    red_sites,
)
from polar_pipeline.backends.noise.gains import stokes_gains
from polar_pipeline.backends.noise.model import method_constants, raw_noise
from polar_pipeline.calibration.quantization import FIELDS
from polar_pipeline.options import Options
from polar_pipeline.options.methods import LATTICE_METHODS, METHODS
from polar_pipeline.polarimetry.coefficients import (
    SSIM_C2,
    SSIM_DITHER,
    SSIM_FULL,
    c_float,
    gaussian,
    literals,
    ssim_literals,
)
from polar_pipeline.polarimetry.colormaps import AOLP_MAP, DOLP_MAP

Defines = Dict[str, Union[int, str]]

#: `struct FrameArguments` of `kernels/frame.cuh`.
FRAME_ARGUMENT = np.dtype(
    [
        ("raw", np.uint64),
        ("counts", np.uint64),
        ("out", np.uint64, (len(OUTPUTS),)),
        ("raw_stride", np.uint64),
        *((name, np.int32) for name in ("width", "height", "step", "full_scale")),
        ("min_intensity", np.float32),
        ("phase_y", np.int32),
        ("phase_x", np.int32),
        ("codes", np.uint64),
        ("slope", np.float32, (len(FIELDS),)),
        ("base", np.float32, (len(FIELDS),)),
        *((name, np.float32) for name in ("one", "shot", "dark", "max_aolp_sigma")),
        ("half_slope", np.uint32, (len(FIELDS),)),
        ("half_base", np.uint32, (len(FIELDS),)),
        ("polarizer", np.float32, (2,)),
        ("fading", np.float32, (2,)),
    ],
    align=True,
)
#: `struct TransformArguments` of `kernels/transform.cuh`.
TRANSFORM_ARGUMENT = np.dtype(
    [
        ("frame", FRAME_ARGUMENT),
        *((name, np.uint64) for name in PLANES),
        *((name, np.uint64) for name in ("positions", "origins", "turns")),
        *((name, np.int32) for name in ("origin", "right", "down")),
        ("turn", np.float32),
    ],
    align=True,
)
#: `struct Comparison` of `kernels/ssim.cu`.
SSIM_ARGUMENT = np.dtype(
    [
        *((name, np.uint64) for name in ("first", "second", "first_stride", "second_stride")),
        *((name, np.uint64) for name in ("map", "pieces", "done", "blocks", "mean", "mask", "inside")),
    ],
    align=True,
)

#: Numbers by which kernels know raw formats and element types; methods have those of their rows.
_RAW_FORMATS = {"u8": 0, "u16": 1, "12p": 2, "12packed": 3}
_TYPES = {"": 0, "uint8": 1, "float32": 2, "uint16": 3, "float16": 3}
_SSIM_SOURCES = {"uint16": 0, "float32": 1}


def fill_options(argument: np.ndarray, options: Options, full_scale: int) -> None:
    """Fill in the options that a kernel is not compiled for, and that can change between two frames.

    Args:
        argument: A `FRAME_ARGUMENT`.
        options: Options of the pipeline.
        full_scale: Raw number of a saturated pixel.
    """
    argument["full_scale"], argument["min_intensity"] = full_scale, options.min_intensity
    argument["polarizer"], argument["fading"] = options.polarizer, options.fading
    argument["shot"], argument["dark"] = raw_noise(options, full_scale)
    argument["max_aolp_sigma"] = np.deg2rad(options.max_aolp_sigma)


def work_defines(work: Work) -> Defines:
    """Return the preprocessor definitions that make a kernel do a work, with literal coefficients."""
    if isinstance(work, SsimWork):
        return _ssim_defines(work)
    return _transform_defines(work) if isinstance(work, TransformWork) else _polarization_defines(work)


def output_defines(dtypes: Mapping[str, str]) -> Defines:
    """Return the definitions of every output, of the stored ones by their element types, and of their color maps."""
    found: Defines = {"OUTPUT_NAMES": ",".join(name.upper() for name in OUTPUTS)}
    for name in OUTPUTS:
        found[f"OUT_{name.upper()}"] = _TYPES[dtypes.get(name, "")]
    for name, colors in (("aolp_color", AOLP_MAP), ("dolp_color", DOLP_MAP)):
        if name in dtypes:
            packed = colors.astype(np.uint32) @ np.array([1, 1 << 8, 1 << 16], np.uint32)
            found[f"{name.upper()}_MAP"] = "{" + ",".join(map(str, packed)) + "}"
    return found


def _polarization_defines(work: PolarizationWork) -> Defines:
    mosaic_reach, lattice_reach = work.halos
    found: Defines = {
        **literals(),
        **output_defines(work.dtypes),
        "COLOR": int(work.sensor.is_color),
        "HALF_RESOLUTION": int(work.half),
        "CO_SITED": int(work.co_sited),
        **{f"METHOD_{name.upper()}": number for number, name in enumerate(METHODS)},
        **{f"LATTICE_{name.upper()}": number for number, name in enumerate(LATTICE_METHODS)},
        "DEMOSAIC": list(METHODS).index(work.demosaic),
        "DEBAYER": list(LATTICE_METHODS).index(work.debayer),
        "REACH": mosaic_reach,
        "LATTICE_REACH": lattice_reach,
        "RAW_FORMAT": _RAW_FORMATS[work.raw_format],
        "EXCEEDS": int(work.full_scale < CAMERA_FORMATS[work.raw_format].full_scale),
        "HALF_PRECISION": int(work.half_precision),
        "CALIBRATED": int(work.calibrated),
    }
    if work.uses_noise:
        found.update(_noise_defines(work))
    for i, j in product(range(2), range(2)):
        found[f"ANGLE_AT_{i}{j}"] = work.sensor.angle_index(i, j)
    for (i, j), (row, column) in red_sites(work.sensor).items():
        found[f"RED_ROW_{i}{j}"], found[f"RED_COLUMN_{i}{j}"] = row, column
    return found


def _noise_defines(work: PolarizationWork) -> Defines:
    """Return the definitions that depend on the noise."""
    method = (work.sensor, work.half, work.co_sited, work.demosaic, work.debayer)
    gains = stokes_gains(*method)
    constants = zip(("MOST", "LESS", "SHARE", "STEEP"), method_constants(*method))
    return {
        "NOISE": 1,
        "NOISE_PERIOD": len(gains),
        "NOISE_GAINS": "{" + ",".join(c_float(float(gain)) for gain in gains.reshape(-1)) + "}",
        **{f"NOISE_{name}": c_float(value) for name, value in constants},
        "DEBIAS": int(work.debias),
        "LIMITS_AOLP": int(work.limits_aolp),
    }


def _transform_defines(work: TransformWork) -> Defines:
    return {
        **literals(),
        **output_defines(work.dtypes),
        "COLOR": int(work.color),
        "HALF_RESOLUTION": 0,
        "HALF_PRECISION": int(work.half_precision),
        "SOURCE_WIDTH": work.source[1],
        "SOURCE_HEIGHT": work.source[0],
        "WIDTH": work.width,
        "HEIGHT": work.height,
        "SCALE": work.scale,
        "POSITIONS": int(work.positions),
        "FRACTION": work.fraction,
        "BY_COLUMNS": int(work.by_columns),
        "PLANES": _TYPES[work.planes],
    }


def _ssim_defines(work: SsimWork) -> Defines:
    found = ssim_literals(work.window, work.sigma)
    halves = np.array(half_taps(work.window, work.sigma).taps, np.float16).view(np.uint16)
    return {
        **found,
        "SSIM_TAPS": ",".join(found[f"SSIM_TAP_{k}"] for k in range(len(halves))),
        "SSIM_HALF_TAPS": ",".join(f"{bits:#x}u" for bits in halves),
        "WIDTH": work.width,
        "HEIGHT": work.height,
        "STRIDE": work.stride,
        "INPUT": _SSIM_SOURCES[work.source],
        "OUT_MAP": _TYPES[work.map_dtype],
        "MASKED": int(work.masked),
    }


def as_compared(image: np.ndarray, dtype: str) -> np.ndarray:
    """Convert (..., h, w) images in [0, 1] for the SSIM launch, as kernels store theirs.

    They are `uint16` of full scale `SSIM_FULL`, limited and dithered; or `float32`.
    """
    if dtype == "uint16":
        rows, columns = (np.arange(size) for size in image.shape[-2:])
        dither = np.array(SSIM_DITHER, np.float32)[rows[:, None] % 4, columns % 2] / 16
        return np.floor(np.clip(image, 0, 1) * np.float32(SSIM_FULL) + dither).astype(np.uint16)
    return image.astype(dtype)


class HalfTaps(NamedTuple):
    """A window as halves.

    Attributes:
        error: How far the similarity of black and white is off at most, where a line or an edge lies within the window.
        taps: From the center outwards; the window sums to exactly 1.
    """

    error: float
    taps: Tuple[float, ...]


@lru_cache(maxsize=None)
def half_taps(window: int, sigma: float) -> HalfTaps:
    """Return the window for tensor cores.

    The sum of the taps from k outwards is rounded, up or down, to what the next inner tap is a multiple of: then each
    tap is a half, and so is the center, which takes the rest. Of all ways to round, the one is taken that moves the
    similarity least where a line or an edge lies k pixels away. There the variance is about as large as the tap or the
    sum, and the similarity of that to nothing is C2 / (variance + C2).
    """
    exact = np.array(gaussian(window, sigma)[window // 2 :])
    tails = np.append(np.cumsum(exact[::-1])[::-1][1:], 0.0)  # from k + 1 outwards
    grids = [float(np.spacing(np.float16(tap))) for tap in exact]
    grids[0] /= 2  # both sides of the window are in the center's rest
    found = []
    for ups in product((np.floor, np.ceil), repeat=window // 2):
        rounded = np.array([up(tail / grid) * grid for up, tail, grid in zip(ups, tails, grids)] + [0.0])
        taps = np.append(1 - 2 * rounded[0], rounded[:-1] - rounded[1:])
        if np.array_equal(taps, taps.astype(np.float16)) and (taps >= 0).all():
            line, edge = np.abs(taps - exact) / (exact + SSIM_C2) ** 2, np.abs(rounded - tails) / (tails + SSIM_C2) ** 2
            found.append(HalfTaps(SSIM_C2 * float(max(line.max(), edge.max())), tuple(taps.tolist())))
    return min(found)
