"""The options of a pipeline: each is declared once, as a field of `Options`, and `make_options` checks its values.

`Pipeline`'s arguments, the command line, the node's parameters and the tables of the documentation follow from here.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Literal, Mapping, Optional, Tuple, Union

import numpy as np

from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.paths import as_path
from polar_pipeline._util.text import did_you_mean, quoted
from polar_pipeline._util.values import choice, real, several, truth
from polar_pipeline.calibration import Calibration, Correction
from polar_pipeline.calibration.correction import correction_for
from polar_pipeline.calibration.file import load_calibration_once
from polar_pipeline.geometry import Geometry, LensCalibration
from polar_pipeline.geometry.lens import load_lens
from polar_pipeline.options.methods import METHODS
from polar_pipeline.options.option import Accepts, CheckedValues, Option, declare, declared, pixels, validate
from polar_pipeline.options.products import (
    DARK_PRODUCTS,
    NOISE_PRODUCTS,
    PRODUCTS,
    SSIM_PRODUCTS,
    get_products,
    listed_products,
)
from polar_pipeline.polarimetry.coefficients import SSIM_SIGMA, SSIM_WINDOW
from polar_pipeline.polarimetry.colormaps import COLOR_STYLES
from polar_pipeline.sensor.frames import (
    MIN_SIDE,
    SIXTEEN_BITS,
    Frame,
    FrameError,
    Light,
    RawFrame,
    full_scale_of_bits,
    full_scale_of_depth,
    used_bits,
)
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS, Sensor, get_sensor

#: Element type of a product.
ElementType = Literal["float32", "uint8", "uint16"]
#: Value of `rectify` for the lens calibration that comes with the frames.
FROM_FRAMES = "camera_info"


#: Options by which outputs have other pixels than the Stokes image.
GEOMETRY_OPTIONS = ("scale", "rotate", "roi", "rectify")


class ContradictionError(ValueError):
    """Values that do not fit each other, each of which is allowed by itself."""


def _min_intensity(name: str, value: object) -> float:
    intensity = real(name, value)
    if not 0 <= intensity < 2:
        raise ValueError(f"{name} must be in [0, 2), the range of S0, got {quoted(value)}")
    return intensity


def _from_file(
    kind: type, load: Callable[[Path], object], words: str, others: Mapping[Optional[str], object]
) -> Callable[[str, Any], object]:
    """Return a check that accepts a path, which `load` reads, or an object; `others` maps further values to objects."""

    def check(name: str, value: object) -> object:
        if isinstance(value, kind):
            return value
        if isinstance(value, (str, type(None))) and value in others:
            return others[value]
        if not isinstance(value, (str, Path)):
            raise ValueError(f"{name} must be {words} or a {kind.__name__}, got {quoted(value)}")
        with errors_as(lambda text: ValueError(f"{name}: {text}")):
            return load(as_path(value))

    return check


def _only_as(dtype: str) -> str:
    """Name the products that have no other element type."""
    *names, last = (f"`{row.name}`" for row in PRODUCTS.values() if row.types == (dtype,))
    return f"{', '.join(names)} and {last}"


@dataclass(frozen=True)
class Options:
    """Values of all options of a pipeline. Build it with `make_options`, which checks them."""

    sensor: Accepts[Union[str, Sensor], Sensor] = declare(
        "IMX250MZR",
        f"Mosaic of the sensor: {', '.join(SENSORS)}, the model of a camera such as TRI050S-P, or a tile such as "
        "'90 45 / 135 0'.",
        note="Or a `Sensor`.",
        group="frame",
        check=lambda _, value: get_sensor(value),
    )
    products: Accepts[Union[str, Iterable[str]], Tuple[str, ...]] = declare(
        ("intensity", "dolp", "aolp"),
        "Names of the products to compute, separated by commas or spaces, or 'all' for every image.",
        note="Or a sequence of names; `polar_pipeline.PRODUCTS` holds them all. With a geometry (scale, rotate, roi, "
        "rectify), 'all' is without the products of noise, which is not known there.",
        parameter="",
        check=lambda _, value: listed_products(value),  # `combine_options` replaces 'all'
    )
    backend: Literal["auto", "cpu", "cuda"] = declare(
        "auto",
        "Backend: 'cpu', 'cuda', or 'auto' for CUDA where it works and the CPU elsewhere; nothing is measured.",
        note="A GPU that is full or lost for the moment counts as one that works: frames then raise a `RuntimeError` "
        "that says so.",
        group="machine",
    )
    resolution: Literal["half", "full"] = declare(
        "half",
        "'half': one output pixel per 2x2 superpixel. 'full': one per raw pixel.",
    )
    precision: Literal["auto", "fp32", "fp16"] = declare(
        "auto",
        "Arithmetic: 'fp32' (single precision), 'fp16' (half precision, CUDA backend only), or 'auto': half precision "
        "for 8-bit frames on a GPU unless SSIM needs single precision, 16-bit integers where a CPU corrects 8-bit "
        "frames by a calibration at half resolution, and single precision otherwise.",
    )
    dtype: Accepts[
        Union[ElementType, Mapping[str, ElementType], Tuple[Tuple[str, str], ...]], Tuple[Tuple[str, str], ...]
    ] = declare(
        "float32",
        "Element type of the products that offer a choice: 'float32' (physical values), 'uint8' (display encoding) or "
        "'uint16' (like 'uint8' with 256 times finer levels).",
        note=f"Or a mapping product -> type. {_only_as('float32')} are always float32; {_only_as('uint8')} "
        "always uint8.",
        parameter="",
        check=lambda _, value: value,  # together with the products, in `_dtypes`
    )
    demosaic: Literal["auto", "bilinear", "gradient", "adaptive", "learned"] = declare(
        "auto",
        f"Interpolation: {', '.join(map(repr, METHODS))}, or 'auto', which is bilinear (with Malvar-He-Cutler on a "
        "color lattice) at half resolution and adaptive at full. On two CPU cores adaptive takes most of the frame "
        "period of a 24 Hz camera at full size; gradient is 2.6 times as fast. 'learned' is adaptive with `denoise`, "
        "and then a network for dim light; mono sensors at full resolution only.",
    )
    co_sited: bool = declare(
        True,
        "At half resolution, interpolate the four angles to the superpixel's center; otherwise take each at its own "
        "pixel.",
    )
    ssim_mode: Literal["consistency", "temporal", "reference"] = declare(
        "consistency",
        "What SSIM compares. 'consistency': I0+I90 with I45+I135. 'temporal': S0 with the previous frame. 'reference': "
        "S0/2 with a reference image (the node's topic 'reference', replay's --reference, or the argument of a call).",
        group="ssim",
    )
    ssim_stride: int = declare(
        1,
        "Average images over this many pixels in each direction before SSIM, 1 to 8: larger is cheaper and coarser.",
        limits=(1, 8),
        unit="pixels",
        group="ssim",
    )
    ssim_window: Literal[3, 5, 7, 9, 11, 13, 15] = declare(
        SSIM_WINDOW,
        "Taps of SSIM's Gaussian window in each direction, odd, 3 to 15.",
        unit="taps",
        group="ssim",
    )
    ssim_sigma: float = declare(
        SSIM_SIGMA,
        "Standard deviation of SSIM's Gaussian window in (averaged) pixels, 0.5 to 5.",
        limits=(0.5, 5.0),
        unit="pixels",
        group="ssim",
    )
    min_intensity: float = declare(
        0.01,
        "Smallest S0 whose polarization is computed, 0 to 2 (full scale, excluded); darker pixels are invalid.",
        limits=(0.0, 2.0),
        unit="S0",
        check=_min_intensity,
    )
    denoise: Literal["off", "auto", "on"] = declare(
        "off",
        "Denoise S0, S1 and S2 by the known noise of raw pixels, at the cost of fine detail: 'on', 'off', or 'auto', "
        "which sets in where the standard deviation of DoLP exceeds 0.005. SSIM and the counts of pixels look at what "
        "was not denoised.",
    )
    denoise_strength: float = declare(
        1.3,
        "Noise that `denoise` expects, over the noise model's, 0.1 to 4: more smooths more.",
        limits=(0.1, 4.0),
    )
    camera_gain: float = declare(
        0.0,
        "Camera gain in dB, -48 to 48, relative to the gain for which full well and read noise are given; affects only "
        "the noise model.",
        limits=(-48.0, 48.0),
        unit="dB",
    )
    debias: bool = declare(
        False,
        "Subtract from DoLP its mean bias by noise (Plaszczynski et al., 2014).",
    )
    max_aolp_sigma: float = declare(
        0.0,
        "Largest standard deviation of AoLP by noise, 0 to 90 degrees; above it AoLP is invalid and the preview is "
        "gray. 0 shows every AoLP.",
        limits=(0.0, 90.0),
        unit="degrees",
    )
    polarizer_angle: float = declare(
        90.0,
        "Angle of the light that the polarizer of the product `polarizer` transmits, 0 to 180 degrees, measured as "
        "AoLP. With an upright camera, 90 removes reflections off level ground.",
        limits=(0.0, 180.0),
        unit="degrees",
    )
    color_style: Literal["plain", "light", "dark", "faded"] = declare(
        "plain",
        "Colors of the product `aolp_color`: 'plain', or fading as DoLP decreases to white ('light'), to black "
        "('dark'), or to gray of the colors' brightness ('faded').",
    )
    bit_depth: Literal[0, 8, 9, 10, 11, 12, 13, 14, 15, 16] = declare(
        0,
        "Significant bits of 16-bit pixels, 8 to 16; 0 takes the number that the encoding or the calibration states, "
        "or 16. Larger values are limited to full scale.",
        unit="bits",
        note="A `RawFrame` brings its own scale.",
        parameter="raw.bit_depth",
        group="frame",
    )
    alignment: Literal["lsb", "msb"] = declare(
        "lsb",
        "Position of the significant bits in 16-bit pixels: 'lsb' or 'msb'.",
        parameter="raw.alignment",
        group="frame",
    )
    roi_offset: Tuple[int, int] = declare(
        (0, 0),
        "(x, y) of the frame's first pixel on the sensor, before any flip; unless set, that of camera_info.",
        unit="pixels",
        parameter="raw.roi_offset",
        group="frame",
        check=several(pixels, 2, "a pair (x, y)"),
    )
    flip: Tuple[bool, bool] = declare(
        (False, False),
        "Mirrored readout: (ReverseX, ReverseY) as set in the camera.",
        parameter="raw.flip",
        group="frame",
        check=several(truth, 2, "a pair (x, y)"),
    )
    calibration: Accepts[Union[str, Path, Calibration, None], Optional[Calibration]] = declare(
        "",
        "Calibration file of this individual sensor (`polar-pipeline calibrate`), with which every pixel is corrected "
        "first; '' for none.",
        note="Or a `Calibration`.",
        check=_from_file(Calibration, load_calibration_once, "a path", {"": None, None: None}),
    )
    scale: Literal[1, 2, 4, 8] = declare(
        1,
        "Average the Stokes vector over this many pixels in each direction: 1, 2, 4 or 8.",
        unit="pixels",
        parameter="output.scale",
        group="geometry",
    )
    rotate: Literal[0, 90, 180, 270] = declare(
        0,
        "Rotate outputs counter-clockwise by 0, 90, 180 or 270 degrees, after scale; AoLP turns with the image.",
        unit="degrees",
        parameter="output.rotate",
        group="geometry",
    )
    roi: Tuple[int, int, int, int] = declare(
        (0, 0, 0, 0),
        "Part of the outputs to compute, as (x, y, width, height) after scale and rotate; a width or height of 0 "
        "extends to the border.",
        unit="pixels",
        parameter="output.roi",
        check=several(pixels, 4, "(x, y, width, height)"),
        group="geometry",
    )
    rectify: Accepts[Union[str, Path, LensCalibration], Union[str, LensCalibration]] = declare(
        "",
        "Lens calibration that rectifies outputs, before scale: a file of ROS's camera_calibration or OpenCV, "
        "'camera_info' for the calibration that is sent or recorded with the frames, or '' for none.",
        note="Or a `LensCalibration`.",
        parameter="output.rectify",
        check=_from_file(LensCalibration, load_lens, f"a path, {FROM_FRAMES!r}", {"": "", FROM_FRAMES: FROM_FRAMES}),
        group="geometry",
    )
    output: Literal["host", "device"] = declare(
        "host",
        "Where results are: 'host' (NumPy arrays) or 'device' (CuPy arrays in a ring of the pipeline's, CUDA backend "
        "only).",
        note="See `polar_pipeline.DeviceResult`.",
        parameter="",
        group="library",
    )
    threads: int = declare(
        0,
        "CPU threads, at most 256; 0 for one per core.",
        limits=(0, 256),
        unit="threads",
        read_only=True,
        group="machine",
    )

    @property
    def has_ssim(self) -> bool:
        """Whether a product compares images."""
        return not {*SSIM_PRODUCTS}.isdisjoint(self.products)

    @property
    def counts_dark(self) -> bool:
        """Whether a product depends on dark pixels, which are counted then."""
        return not {*DARK_PRODUCTS}.isdisjoint(self.products)

    def dtype_of(self, product: str) -> str:
        """Return the element type of a product: `float32`, `uint8` or `uint16`."""
        return dict(self.dtype)[product]

    def stokes_size(self, shape: Tuple[int, int]) -> Tuple[int, int]:
        """Return (height, width) of the Stokes image of a frame of (height, width)."""
        return (shape[0] // 2, shape[1] // 2) if self.resolution == "half" else (shape[0], shape[1])

    def output_size(self, shape: Tuple[int, int]) -> Tuple[int, int]:
        """Return (height, width) of the products of a frame of (height, width).

        Raises:
            FrameError: Nothing is left by `scale` or, for SSIM, by `ssim_stride`, `roi` reaches beyond it, or the lens
                calibration is missing or of frames of another size (cause `output`).
        """
        size, geometry, stride = self.stokes_size(shape), self.geometry, self.ssim_stride
        if geometry is not None:
            if self.rectify == FROM_FRAMES:
                raise FrameError(
                    "output", f"rectify {FROM_FRAMES!r} needs a lens calibration, and none came with the frames"
                )
            lens = geometry.lens
            if lens is not None and (lens.height, lens.width) not in ((0, 0), tuple(shape)):
                of = f"{lens.width}x{lens.height}"
                raise FrameError(
                    "output", f"the lens calibration is of {of} pixels, the frame has {shape[1]}x{shape[0]}"
                )
            size = geometry.output_size(size)
        if min(size) < stride and self.has_ssim:
            raise FrameError(
                "output",
                f"SSIM with ssim_stride {stride} needs outputs of {stride}x{stride} pixels, got {size[1]}x{size[0]}",
            )
        return size

    @property
    def geometry(self) -> Optional[Geometry]:
        """Geometry of the products over the Stokes image, or None if they have its pixels."""
        if all(getattr(self, name) == OPTIONS[name].default for name in GEOMETRY_OPTIONS):
            return None
        lens = None if isinstance(self.rectify, str) else self.rectify
        step = 2 if self.resolution == "half" else 1
        return Geometry(self.scale, self.rotate, self.roi, lens, step, is_mirrored=self.flip[0] != self.flip[1])

    def shape_of(self, product: str, size: Tuple[int, int]) -> Tuple[int, ...]:
        """Return the shape of a product's array where the output is `size` = (height, width)."""
        return PRODUCTS[product].shape(size, self.sensor.is_color, self.ssim_stride)

    def arguments(self) -> Dict[str, object]:
        """Return the arguments of `Pipeline` that give these options."""
        return dict(vars(self))

    def changed(self, **values: object) -> Options:
        """Return these options with other values for some, checked; `dataclasses.replace` is for checked values."""
        return make_options(**{**vars(self), **values})

    def largest_frame(self) -> Tuple[int, int]:
        """Return (height, width) of the sensor's frame, or of the calibration from the ROI's offset on if less."""
        if self.calibration is None:
            return self.sensor.size
        height, width = _calibrated_size(self.calibration, self.roi_offset)
        return min(self.sensor.size[0], height), min(self.sensor.size[1], width)

    def for_frame(self, frame: Frame) -> Options:
        """Return options for a frame: angle images (`RawFrame.of_angles`) are not interpolated.

        In a merged frame, `min_intensity` is a share of the full scale of its longest exposure.

        Raises:
            FrameError: An option wants more than angle images (cause `encoding`) or merged frames (`exposures`) have.
        """
        options = self
        if frame.exposures is not None:
            if self.denoising != "off":
                name = "demosaic 'learned'" if self.is_learned else "denoise"
                raise FrameError("exposures", f"{name} needs frames of one exposure: leave it out for merged ones")
            options = replace(self, min_intensity=self.min_intensity / frame.exposures.largest_ratio)
        if not frame.is_split:
            return options
        excluded = {
            "resolution": self.resolution != "half",
            "roi_offset": self.roi_offset != (0, 0),
            "flip": self.flip != (False, False),
            "calibration": self.calibration is not None,
        }
        conflicts = [name for name, is_set in excluded.items() if is_set]
        if conflicts:
            raise FrameError(
                "encoding",
                "frames of four angle images need resolution='half', and roi_offset, flip and calibration left "
                f"at their defaults, as these are of the sensor's mosaic; set: {', '.join(conflicts)}",
            )
        if isinstance(frame, RawFrame) and frame.light is not None:
            self._check_light(frame.light)
        return replace(options, co_sited=False)

    def _check_light(self, light: Light) -> None:
        """Refuse products that angle images in color, or Stokes vectors, do not tell.

        Raises:
            FrameError: There are some (cause `encoding`).
        """
        conflicts = _of_noise(self)
        conflicts += ["denoise"] if self.denoise != "off" else []
        if conflicts:
            text = "the noise of raw pixels is unknown where they were interpolated before"
            raise FrameError("encoding", f"{', '.join(conflicts)}: {text}: leave out")
        if not light.is_measured:
            unknown = {
                *(f"angle_{angle}" for angle in ANGLES),
                *(SSIM_PRODUCTS if self.ssim_mode == "consistency" else ()),
            }
            conflicts = [name for name in self.products if name in unknown]
        if conflicts:
            raise FrameError("encoding", f"{', '.join(conflicts)}: Stokes vectors do not tell: leave out")

    def read_out(self, shape: Tuple[int, int]) -> Sensor:
        """Return the mosaic as a frame of (height, width) shows it."""
        return self.sensor.as_read_out(self.roi_offset, self.flip, shape)

    def correction(self, shape: Tuple[int, int]) -> Optional[Correction]:
        """Return the correction of a frame of (height, width), or None without a calibration.

        Raises:
            FrameError: The frame has pixels that the calibration lacks (cause `calibration`).
        """
        if self.calibration is None:
            return None
        return correction_for(self.calibration, self.roi_offset, self.flip, shape)

    @property
    def is_learned(self) -> bool:
        """Whether a network corrects what was denoised."""
        return self.demosaic == "learned"

    @property
    def denoising(self) -> str:
        """The option `denoise`, which is `on` where a network corrects what was denoised."""
        return "on" if self.is_learned else self.denoise

    @property
    def interpolation(self) -> str:
        """The method on the polarizer mosaic, with `auto` resolved: bilinear at half resolution, else adaptive."""
        if self.is_learned:
            return "adaptive"
        if self.demosaic != "auto":
            return self.demosaic
        return "bilinear" if self.resolution == "half" else "adaptive"

    @property
    def debayer(self) -> str:
        """The method on the color lattice, with `auto` resolved: MHC at half resolution, else ADR's weighted one."""
        if self.demosaic == "auto" and self.resolution == "half":
            return "mhc"
        return METHODS[self.interpolation].lattice

    def method_on(self, sensor: Sensor) -> Tuple[Sensor, bool, bool, str, str]:
        """Return a mosaic and how angle images come from it, as the gains of noise take them (`backends/noise`)."""
        return sensor, self.resolution == "half", self.co_sited, self.interpolation, self.debayer

    @property
    def polarizer(self) -> Tuple[float, float]:
        """Factors of S1 and S2 in the product `polarizer`: cosine and sine of twice its angle."""
        turn = 2 * math.radians(self.polarizer_angle)
        return math.cos(turn), math.sin(turn)

    @property
    def fading(self) -> Tuple[float, float]:
        """The gray level that `aolp_color` fades to, and the least share of color; else DoLP is the share."""
        return COLOR_STYLES[self.color_style]

    @property
    def full_scale(self) -> int:
        """Value of a saturated pixel in a 16-bit array; larger ones mean this one."""
        bits = self.bit_depth or 16
        return ((1 << bits) - 1) << (16 - bits if self.alignment == "msb" else 0)

    @property
    def calibrated_bits(self) -> int:
        """Bits of 16-bit numbers as the calibration states them; 0 without one, or of one of 8 or all 16 bits."""
        bits = self.calibration.bit_depth if self.calibration else 0
        return bits if 8 < bits < 16 else 0

    def full_scale_of(self, numbers: np.ndarray) -> int:
        """Return the value of a saturated pixel in a frame of 16-bit numbers whose encoding states no depth.

        Raises:
            FrameError: The option `bit_depth` contradicts the calibration (cause `calibration`).
        """
        calibrated = self.calibrated_bits
        if self.bit_depth and calibrated not in (0, self.bit_depth):
            own = f"raw.bit_depth (--bit-depth) is {self.bit_depth}"
            raise FrameError("calibration", f"the calibration is of frames of {calibrated} bits, and {own}")
        if self.bit_depth not in (0, 16):
            return self.full_scale
        used = used_bits(numbers)
        if not calibrated or (used >> calibrated and used & (SIXTEEN_BITS >> calibrated)):  # it uses other bits too
            return full_scale_of_bits(used)
        return full_scale_of_depth(used, calibrated, self.alignment)


#: Every option of `Pipeline` by name, in the order of its arguments.
OPTIONS = declared(Options)


def make_options(*first: object, **values: object) -> Options:
    """Check values of options, and build the options of a pipeline.

    Args:
        first: Values of the first options, in their order.
        values: Other options by name; those left out have their defaults.

    Raises:
        ValueError: An option does not exist or its value is not allowed; the message says what is.
    """
    unknown = [name for name in values if name not in OPTIONS]
    if unknown:
        hint = did_you_mean(unknown[0], OPTIONS)
        raise ValueError(f"unknown option {quoted(unknown)}; options are {', '.join(OPTIONS)}{hint}")
    unchecked = vars(Options(*first, **values))  # type: ignore[arg-type]
    return combine_options(validate(OPTIONS, unchecked, attrgetter("name")))


def combine_options(checked: CheckedValues, name_of: Callable[[Option], str] = attrgetter("name")) -> Options:
    """Build options from the values of all, which `validate` returned; see there for `name_of`.

    Raises:
        ContradictionError: Values do not fit each other.
        ValueError: The element type of a product is not allowed.
    """
    products = get_products(checked["products"], has_geometry=Options(**checked).geometry is not None)
    options = Options(**{**checked, "products": products, "dtype": _dtypes(products, checked["dtype"])})
    _check_calibration(options, name_of(OPTIONS["roi_offset"]))
    _check_learned(options, name_of)
    _check_geometry(options, *(name_of(OPTIONS[name]) for name in GEOMETRY_OPTIONS))
    return options


def _dtypes(products: Tuple[str, ...], dtype: object) -> Tuple[Tuple[str, str], ...]:
    """Return (product, element type) of every product, from one type, a mapping, or pairs as this function returns."""
    per_product: Mapping[str, object] = dict.fromkeys(products, dtype)
    if isinstance(dtype, (Mapping, tuple)):
        with suppress(TypeError, ValueError):  # no pairs; refused below
            per_product = dict(dtype)
    foreign = [name for name in per_product if name not in PRODUCTS]
    if foreign:
        hint = did_you_mean(foreign[0], PRODUCTS)
        raise ValueError(f"dtype must be for products among {', '.join(PRODUCTS)}; got {quoted(foreign)}{hint}")
    row = OPTIONS["dtype"]
    types = {name: choice(f"dtype of {name}", per_product.get(name, row.default), row.choices) for name in products}
    return tuple((name, PRODUCTS[name].dtype(str(each))) for name, each in types.items())


def _check_learned(options: Options, name_of: Callable[[Option], str]) -> None:
    """Refuse the network where it was not trained."""
    if not options.is_learned:
        return
    demosaic = name_of(OPTIONS["demosaic"])
    if options.sensor.is_color:
        raise ContradictionError(
            f"{demosaic} 'learned' is for mono sensors, sensor is {options.sensor.name}; 'adaptive' with denoise is "
            "for both"
        )
    usual = OPTIONS["denoise_strength"].default
    for name, allowed in (("resolution", ["full"]), ("denoise", ["on", "off"]), ("denoise_strength", [usual])):
        value = getattr(options, name)
        if value not in allowed:
            text = f"{demosaic} 'learned' needs {name_of(OPTIONS[name])} {allowed[0]!r}, got {value!r}"
            raise ContradictionError(text)


def _of_noise(options: Options) -> List[str]:
    """Return the products and options that need the noise of output pixels."""
    products = [name for name in options.products if name in NOISE_PRODUCTS]
    return products + [name for name in ("debias", "max_aolp_sigma") if getattr(options, name)]


def _check_geometry(options: Options, scale: str, rotate: str, roi: str, rectify: str) -> None:
    """Refuse what is computed from the noise of raw pixels where outputs are not pixels of the mosaic."""
    conflicts = _of_noise(options)
    if options.geometry is not None and conflicts:
        raise ContradictionError(
            f"{', '.join(conflicts)}: the noise of a pixel is known in the mosaic's own geometry only; set {scale}=1, "
            f"{rotate}=0, {roi}=[0, 0, 0, 0] and {rectify}='', or leave them out"
        )


def _check_calibration(options: Options, offset_name: str) -> None:
    """Refuse the calibration of another sensor, and one that has no pixels of the region of interest."""
    calibration, sensor, offset = options.calibration, options.sensor, options.roi_offset
    if calibration is None:
        return
    if calibration.sensor.tile() != sensor.tile():
        raise ContradictionError(
            f"calibration is of a {calibration.sensor.name} ({calibration.sensor.tile()}), sensor is {sensor.name} "
            f"({sensor.tile()})"
        )
    is_before = offset[0] < calibration.offset[0] or offset[1] < calibration.offset[1]
    if is_before or min(_calibrated_size(calibration, offset)) < MIN_SIDE:
        height, width = calibration.shape
        raise ContradictionError(
            f"{offset_name} {offset} lies outside the calibration, which is of {width}x{height} pixels from "
            f"{calibration.offset}"
        )


def _calibrated_size(calibration: Calibration, offset: Tuple[int, int]) -> Tuple[int, int]:
    """Return the (rows, columns) of a calibration that lie to the right of and below a frame's offset (x, y)."""
    height, width = calibration.shape
    return height + calibration.offset[1] - offset[1], width + calibration.offset[0] - offset[0]
