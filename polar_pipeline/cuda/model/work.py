"""What the polarization launch has to do: the contract between Python and `kernels/frame.cuh`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Mapping, Tuple, Union

import numpy as np

from polar_pipeline.calibration.quantization import FIELDS
from polar_pipeline.coefficients import c_float, literals
from polar_pipeline.colormaps import AOLP_MAP, DOLP_MAP
from polar_pipeline.noise import method_constants, raw_noise, stokes_gains
from polar_pipeline.options import Options
from polar_pipeline.plan import Plan, make_plan
from polar_pipeline.products import PRODUCTS
from polar_pipeline.sensor.frames import FORMATS
from polar_pipeline.sensor.mosaic import Sensor

#: What the last launch compares: both sums of two angles, or S0/2.
PAIRS = ("sums", "s0")
#: What the launch of a geometry interpolates: S1 and S2, S0/2, and (I0 + I90 - I45 - I135)/4, of each colour.
PLANES = ("differences", "means", "excesses")
#: What the kernels can store: the products of the plan's first stage, what SSIM compares, and what is interpolated.
OUTPUTS = (*(name for name in PRODUCTS if len(make_plan((name,)).stages) == 1), *PAIRS, *PLANES)
#: Raw formats as the kernels read them; the values are RAW_* in `kernels/frame.cuh`.
RAW_FORMATS = {"u8": 0, "u16": 1, "12p": 2, "12packed": 3}
#: The same -> as cameras call them.
CAMERA_FORMATS = {"u8": FORMATS["8"], "u16": FORMATS["16"], "12p": FORMATS["12p"], "12packed": FORMATS["12Packed"]}
METHODS = {"bilinear": 0, "gradient": 1, "adaptive": 2}
LATTICES = {"bilinear": 0, "mhc": 1, "weighted": 2}

#: Element types of outputs, as the kernels read them.
TYPES = {"uint8": 1, "float32": 2, "uint16": 3, "float16": 3}

#: `struct FrameArguments` of `kernels/frame.cuh`.
POLARIZATION_ARGUMENT = np.dtype(
    [
        ("raw", np.uint64),
        ("counts", np.uint64),
        ("out", np.uint64, (len(OUTPUTS),)),
        ("raw_stride", np.uint64),
        ("width", np.int32),
        ("height", np.int32),
        ("step", np.int32),
        ("full_scale", np.int32),
        ("min_intensity", np.float32),
        ("phase_y", np.int32),
        ("phase_x", np.int32),
        ("codes", np.uint64),
        ("slope", np.float32, (len(FIELDS),)),
        ("base", np.float32, (len(FIELDS),)),
        ("one", np.float32),
        ("shot", np.float32),
        ("dark", np.float32),
        ("max_aolp_sigma", np.float32),
        ("half_slope", np.uint32, (len(FIELDS),)),
        ("half_base", np.uint32, (len(FIELDS),)),
        ("polarizer", np.float32, (2,)),
        ("fading", np.float32, (2,)),
    ],
    align=True,
)


@dataclass(frozen=True)
class PolarizationWork:
    """One launch: mosaic in, products out.

    Attributes:
        sensor: The mosaic as the frame shows it (`Sensor.as_read_out`).
        half: Whether one output pixel stands for a superpixel.
        co_sited: At half resolution, angles interpolated to the superpixel's centre.
        demosaic: Method on the polarizer mosaic: a key of `METHODS`.
        debayer: Method on the colour lattice: a key of `LATTICES`.
        raw_format: A key of `RAW_FORMATS`.
        full_scale: Raw number of a saturated pixel.
        half_precision: Whether the kernel computes in pairs of half.
        outputs: (name in `OUTPUTS`, `uint8` or `float32`) of what is stored; what SSIM reads can be `uint16`, what a
            geometry interpolates `float16`.
        width: Raw pixels along x.
        height: Raw pixels along y.
        calibrated: Whether pixels are corrected by a calibration as they are loaded.
        debias: Whether DoLP gets rid of its bias.
        limits_aolp: Whether AoLP is invalid beyond a standard deviation.
        phase: Where the calibration's superpixels lie (`Correction.phase`).
    """

    sensor: Sensor
    half: bool
    co_sited: bool
    demosaic: str
    debayer: str
    raw_format: str
    full_scale: int
    half_precision: bool
    outputs: Tuple[Tuple[str, str], ...]
    width: int
    height: int
    calibrated: bool = False
    debias: bool = False
    limits_aolp: bool = False
    phase: Tuple[int, int] = (0, 0)

    @property
    def output_size(self) -> Tuple[int, int]:
        """(height, width) of the outputs."""
        return (self.height // 2, self.width // 2) if self.half else (self.height, self.width)

    @property
    def dtypes(self) -> Dict[str, str]:
        """Element type per output."""
        return dict(self.outputs)

    @property
    def uses_noise(self) -> bool:
        """Whether an output depends on the noise."""
        return self.debias or self.limits_aolp or not {"dolp_sigma", "aolp_sigma"}.isdisjoint(self.dtypes)


def image_outputs(plan: Plan, options: Options) -> Tuple[Tuple[str, str], ...]:
    """(name, element type) of every product of a plan but SSIM's, and of what SSIM compares."""
    outputs = [(name, options.dtype_of(name)) for name in plan.products if name in OUTPUTS]
    if plan.window:
        pair = PAIRS[options.ssim_mode != "consistency"]
        outputs.append((pair, "float32" if options.precision == "fp32" else "uint16"))
    return tuple(outputs)


def noise_frames(work: PolarizationWork, frames: int, seed: int = 0) -> np.ndarray:
    """(frames, height, bytes of a row) uint8: raw frames of noise to measure with.

    16-bit pixels have 5 to 80 % of full scale, bytes 5 to 80 % of 255: saturated pixels are rare, and slower.
    """
    noise, step = np.random.default_rng(seed), CAMERA_FORMATS[work.raw_format].row_bytes(work.width)
    if work.raw_format == "u16":
        low, high = work.full_scale // 20, work.full_scale * 4 // 5
        return noise.integers(low, high, (frames, work.height, work.width), np.uint16).view(np.uint8)
    return noise.integers(13, 204, (frames, work.height, step), np.uint8)


def red_sites(sensor: Sensor) -> Dict[Tuple[int, int], Tuple[int, int]]:
    """Tile position -> (row, column) of red on that position's Bayer lattice; empty for a mono sensor."""
    if sensor.colors is None:
        return {}
    return {
        (i, j): next((r, c) for r in range(2) for c in range(2) if sensor.color_index(2 * r + i, 2 * c + j) == 0)
        for i in range(2)
        for j in range(2)
    }


def output_defines(dtypes: Mapping[str, str]) -> Dict[str, Union[int, str]]:
    """The definitions of every output, for those that are stored by their element types; the colour maps they need."""
    found: Dict[str, Union[int, str]] = {"OUTPUT_NAMES": ",".join(name.upper() for name in OUTPUTS)}
    for name in OUTPUTS:
        found[f"OUT_{name.upper()}"] = TYPES[dtypes[name]] if name in dtypes else 0
    for name, colors in (("aolp_color", AOLP_MAP), ("dolp_color", DOLP_MAP)):
        if name in dtypes:
            packed = colors.astype(np.uint32) @ np.array([1, 1 << 8, 1 << 16], np.uint32)
            found[f"{name.upper()}_MAP"] = "{" + ",".join(map(str, packed)) + "}"
    return found


def polarization_defines(work: PolarizationWork) -> Dict[str, Union[int, str]]:
    """The preprocessor definitions that make a kernel do this work (`kernels/frame.cuh`), coefficients as literals."""
    found: Dict[str, Union[int, str]] = {
        **literals(),
        **output_defines(work.dtypes),
        "COLOR": int(work.sensor.is_color),
        "HALF_RESOLUTION": int(work.half),
        "CO_SITED": int(work.co_sited),
        "DEMOSAIC": METHODS[work.demosaic],
        "DEBAYER": LATTICES[work.debayer],
        "RAW_FORMAT": RAW_FORMATS[work.raw_format],
        "EXCEEDS": int(work.full_scale < CAMERA_FORMATS[work.raw_format].full_scale),
        "HALF_PRECISION": int(work.half_precision),
        "CALIBRATED": int(work.calibrated),
    }
    if work.uses_noise:
        found.update(_noise_defines(work))
    for i in range(2):
        for j in range(2):
            found[f"ANGLE_AT_{i}{j}"] = work.sensor.angle_index(i, j)
    for (i, j), (row, column) in red_sites(work.sensor).items():
        found[f"RED_ROW_{i}{j}"], found[f"RED_COLUMN_{i}{j}"] = row, column
    return found


def _noise_defines(work: PolarizationWork) -> Dict[str, Union[int, str]]:
    """The definitions of what depends on the noise."""
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


def fill_options(argument: np.ndarray, options: Options, full_scale: int) -> None:
    """Tell a kernel what it is not compiled for, so that it can change between two frames.

    Args:
        argument: A `POLARIZATION_ARGUMENT`.
        options: How frames are computed.
        full_scale: Raw number of a saturated pixel.
    """
    argument["full_scale"], argument["min_intensity"] = full_scale, options.min_intensity
    argument["polarizer"], argument["fading"] = options.polarizer, options.fading
    argument["shot"], argument["dark"] = raw_noise(options, full_scale)
    argument["max_aolp_sigma"] = np.deg2rad(options.max_aolp_sigma)


def polarization_key(work: PolarizationWork) -> str:
    """A work as short text without its size: the key of tuned schedules."""
    parts = ["color" if work.sensor.is_color else "mono", "half" if work.half else "full"]
    if work.half and not work.co_sited:
        parts.append("own-site")
    else:
        parts.append(work.demosaic)
    if work.sensor.is_color:
        parts.append(work.debayer)
    parts += [work.raw_format, "fp16" if work.half_precision else "fp32"]
    if work.calibrated:
        parts.append("calibrated" + "-odd" * any(work.phase))
    parts += ["debias"] * work.debias + ["limits-aolp"] * work.limits_aolp
    parts.append("+".join(f"{name}:{dtype}" for name, dtype in work.outputs))
    return " ".join(parts)
