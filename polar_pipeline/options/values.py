"""The options of one pipeline, validated in one place for the library, the command line and the node."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Tuple, TypeVar, Union

from polar_pipeline._util.text import quoted
from polar_pipeline._util.values import choice, number, real, sequence, truth, whole_number
from polar_pipeline.calibration import Calibration, Correction
from polar_pipeline.calibration.correction import correction_for
from polar_pipeline.calibration.file import load_calibration_once
from polar_pipeline.colormaps import COLOR_STYLES
from polar_pipeline.geometry import Geometry, LensCalibration
from polar_pipeline.geometry.file import load_lens
from polar_pipeline.options.option import Value
from polar_pipeline.options.table import OPTIONS
from polar_pipeline.products import NOISE_PRODUCTS, PRODUCTS, SSIM_PRODUCTS, get_products
from polar_pipeline.sensor.frames import MAX_SIDE, MIN_SIDE, Frame, FrameError
from polar_pipeline.sensor.mosaic import Sensor, get_sensor

#: Demosaic method -> the colour-lattice method that goes with it.
_DEBAYER = {"bilinear": "bilinear", "gradient": "mhc", "adaptive": "weighted"}
_T = TypeVar("_T")
#: Value of `rectify` for the lens calibration that comes with the frames.
FROM_FRAMES = "camera_info"


@dataclass(frozen=True)
class Options:
    """What to compute and how: a checked value for each option of the same name in `OPTIONS`.

    Build it with `make_options`, which validates, and change it with `dataclasses.replace`, which does not. There is no
    `threads`, which does not change results. These fields differ from the option:

    Attributes:
        sensor: The mosaic in the sensor's own readout.
        products: Product names, in the table's order.
        dtypes: Element type of each product: `float32`, `uint8` or `uint16`.
        calibration: Of the sensor; None if its pixels are taken for ideal.
        rectify: Of the lens; `FROM_FRAMES` as long as it is to come with the frames, "" for none.
    """

    sensor: Sensor
    products: Tuple[str, ...]
    dtypes: Tuple[str, ...]
    backend: str
    resolution: str
    precision: str
    demosaic: str
    co_sited: bool
    ssim_mode: str
    ssim_stride: int
    ssim_window: int
    ssim_sigma: float
    min_intensity: float
    camera_gain: float
    debias: bool
    max_aolp_sigma: float
    polarizer_angle: float
    color_style: str
    bit_depth: int
    alignment: str
    roi_offset: Tuple[int, int]
    flip: Tuple[bool, bool]
    calibration: Optional[Calibration]
    scale: int
    rotate: int
    roi: Tuple[int, int, int, int]
    rectify: Union[str, LensCalibration]

    def dtype_of(self, product: str) -> str:
        """Element type of a product: `float32`, `uint8` or `uint16`."""
        return self.dtypes[self.products.index(product)]

    def stokes_size(self, shape: Tuple[int, int]) -> Tuple[int, int]:
        """(height, width) of the Stokes image of a frame of (height, width)."""
        return (shape[0] // 2, shape[1] // 2) if self.resolution == "half" else (shape[0], shape[1])

    def output_size(self, shape: Tuple[int, int]) -> Tuple[int, int]:
        """(height, width) of the products of a frame of (height, width).

        Raises:
            FrameError: Nothing is left by `scale` or, for SSIM, by `ssim_stride`, `roi` reaches beyond it, or the lens
                calibration is missing or of frames of another size (cause `output`).
        """
        size, stride = self._output_size(shape), self.ssim_stride
        if min(size) < stride and set(self.products) & set(SSIM_PRODUCTS):
            raise FrameError(
                "output",
                f"SSIM with ssim_stride {stride} needs outputs of {stride}x{stride} pixels, got {size[1]}x{size[0]}",
            )
        return size

    def _output_size(self, shape: Tuple[int, int]) -> Tuple[int, int]:
        size, geometry = self.stokes_size(shape), self.geometry
        if geometry is None:
            return size
        if self.rectify == FROM_FRAMES:
            raise FrameError(
                "output", f"rectify {FROM_FRAMES!r} needs a lens calibration, and none came with the frames"
            )
        lens = geometry.lens
        if lens is not None and (lens.height, lens.width) not in ((0, 0), tuple(shape)):
            raise FrameError(
                "output",
                f"the lens calibration is of {lens.width}x{lens.height} pixels, the frame has {shape[1]}x{shape[0]}",
            )
        return geometry.output_size(size)

    @property
    def geometry(self) -> Optional[Geometry]:
        """How the products lie over the Stokes image; None where they are the same pixels."""
        if (self.scale, self.rotate, self.roi, self.rectify) == (1, 0, (0, 0, 0, 0), ""):
            return None
        lens = None if isinstance(self.rectify, str) else self.rectify
        step = 2 if self.resolution == "half" else 1
        return Geometry(self.scale, self.rotate, self.roi, lens, step, is_mirrored=self.flip[0] != self.flip[1])

    def shape_of(self, product: str, size: Tuple[int, int]) -> Tuple[int, ...]:
        """Shape of a product's array where the output is `size` = (height, width)."""
        return PRODUCTS[product].shape(size, self.sensor.is_color, self.ssim_stride)

    def arguments(self) -> Dict[str, Union[Value, Sensor, Calibration]]:
        """Arguments that make these options again, for `make_options` and `Pipeline`; `dtype` is not among them."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "dtypes"}
        return {**values, "calibration": self.calibration or ""}

    def largest_frame(self) -> Tuple[int, int]:
        """(height, width) of the sensor's frame; of what the calibration has from the ROI's offset on, if less."""
        if self.calibration is None:
            return self.sensor.size
        height, width = _left(self.calibration, self.roi_offset)
        return min(self.sensor.size[0], height), min(self.sensor.size[1], width)

    def for_frame(self, frame: Frame) -> Options:
        """Options for a frame: ready angles (`RawFrame.of_angles`) stay where they are.

        Raises:
            FrameError: An option wants more than ready angles have (cause `encoding`).
        """
        if not frame.is_split:
            return self
        excluded = {
            "resolution": self.resolution != "half",
            "roi_offset": self.roi_offset != (0, 0),
            "flip": self.flip != (False, False),
            "calibration": self.calibration is not None,
        }
        wanted = [name for name, is_set in excluded.items() if is_set]
        if wanted:
            raise FrameError(
                "encoding",
                "frames of four ready angles a pixel need resolution='half', and roi_offset, flip and calibration left "
                f"at their defaults, as these are of the sensor's mosaic; set: {', '.join(wanted)}",
            )
        return replace(self, co_sited=False)

    def read_out(self, shape: Tuple[int, int]) -> Sensor:
        """The mosaic as a frame of (height, width) shows it."""
        return self.sensor.as_read_out(self.roi_offset, self.flip, shape)

    def correction(self, shape: Tuple[int, int]) -> Optional[Correction]:
        """What a frame of (height, width) needs of the calibration; None without one.

        Raises:
            FrameError: The frame has pixels that the calibration lacks (cause `calibration`).
        """
        if self.calibration is None:
            return None
        return correction_for(self.calibration, self.roi_offset, self.flip, shape)

    @property
    def interpolation(self) -> str:
        """The method on the polarizer mosaic, with `auto` resolved: bilinear at half resolution, else adaptive."""
        if self.demosaic != "auto":
            return self.demosaic
        return "bilinear" if self.resolution == "half" else "adaptive"

    @property
    def debayer(self) -> str:
        """The method on the colour lattice, with `auto` resolved: MHC at half resolution, else ADR's weighted one."""
        if self.demosaic == "auto" and self.resolution == "half":
            return "mhc"
        return _DEBAYER[self.interpolation]

    @property
    def polarizer(self) -> Tuple[float, float]:
        """By what the polarizer of `polarizer` multiplies S1 and S2: cosine and sine of its angle, doubled."""
        turn = 2 * math.radians(self.polarizer_angle)
        return math.cos(turn), math.sin(turn)

    @property
    def fading(self) -> Tuple[float, float]:
        """The grey level that `aolp_color` fades to, and the least share of colour; else DoLP is the share."""
        return COLOR_STYLES[self.color_style]

    @property
    def full_scale(self) -> int:
        """Value of a saturated pixel in a 16-bit array; larger ones mean this one."""
        bits = self.bit_depth or 16
        return ((1 << bits) - 1) << (16 - bits if self.alignment == "msb" else 0)


def make_options(
    sensor: Union[str, Sensor] = "IMX250MZR",
    products: Union[str, Iterable[str]] = ("intensity", "dolp", "aolp"),
    dtype: Union[str, Mapping[str, str]] = "float32",
    prefixes: Mapping[str, str] = MappingProxyType({}),
    **values: object,
) -> Options:
    """Validated options.

    Args:
        sensor: A name in `SENSORS`, a tile (see `parse_tile`) or a `Sensor`.
        products: Names in `PRODUCTS`.
        dtype: `float32`, `uint8` or `uint16` for all products that offer it, or a mapping product -> type.
        prefixes: What error messages put in front of an option's name, by name.
        values: Other options in `OPTIONS`, except `threads`; those left out have the table's defaults.

    Raises:
        ValueError: An option does not exist or its value is not allowed; the message says what is.
    """
    names = get_products(products)
    per_product = dtype if isinstance(dtype, Mapping) else {}
    foreign = [name for name in per_product if name not in PRODUCTS]
    if foreign:
        raise ValueError(f"dtype must be for products among {', '.join(PRODUCTS)}; got {quoted(foreign)}")
    fallback = "float32" if isinstance(dtype, Mapping) else dtype
    allowed = OPTIONS["dtype"].choices
    types = [
        PRODUCTS[name].dtype(choice(f"dtype of {name}", per_product.get(name, fallback), allowed)) for name in names
    ]
    unknown = [name for name in values if name not in _OTHERS]
    if unknown:
        known = ("sensor", "products", "dtype", *_OTHERS)
        raise ValueError(f"unknown option {quoted(unknown)}; options are {', '.join(known)}")
    shown = {name: f"{prefixes.get(name, '')}{name}" for name in OPTIONS}
    checked = {**_OTHERS, **{name: _check(name, value, shown[name]) for name, value in values.items()}}
    mosaic = get_sensor(sensor)
    _check_calibration(checked["calibration"], mosaic, checked["roi_offset"], shown["roi_offset"])
    options = Options(sensor=mosaic, products=names, dtypes=tuple(types), **checked)
    _check_geometry(options, shown)
    return options


def _check_geometry(options: Options, shown: Mapping[str, str]) -> None:
    """Refuse what is computed from the noise of raw pixels where outputs are not pixels of the mosaic.

    Raises:
        ValueError: It is asked for.
    """
    if options.geometry is None:
        return
    wanted = [name for name in options.products if name in NOISE_PRODUCTS]
    wanted += [name for name in ("debias", "max_aolp_sigma") if getattr(options, name)]
    if wanted:
        raise ValueError(
            f"{', '.join(wanted)}: the noise of a pixel is known in the mosaic's own geometry only; set "
            f"{shown['scale']}=1, {shown['rotate']}=0, {shown['roi']}=[0, 0, 0, 0] and {shown['rectify']}='', or leave "
            "them out"
        )


def _check_calibration(
    calibration: Optional[Calibration], sensor: Sensor, offset: Tuple[int, int], shown_offset: str
) -> None:
    """Refuse the calibration of another sensor, and one that has no pixels of the region of interest.

    Raises:
        ValueError: It is one.
    """
    if calibration is None:
        return
    if calibration.sensor.tile() != sensor.tile():
        raise ValueError(
            f"calibration is of a {calibration.sensor.name} ({calibration.sensor.tile()}), sensor is {sensor.name} "
            f"({sensor.tile()})"
        )
    try:
        _ = calibration.noise
    except ValueError as err:
        raise ValueError(f"calibration: {err}") from None
    if min(offset[0] - calibration.offset[0], offset[1] - calibration.offset[1]) < 0 or (
        min(_left(calibration, offset)) < MIN_SIDE
    ):
        height, width = calibration.shape
        raise ValueError(
            f"{shown_offset} {offset} lies outside the calibration, which is of {width}x{height} pixels from "
            f"{calibration.offset}"
        )


def _left(calibration: Calibration, offset: Tuple[int, int]) -> Tuple[int, int]:
    """(rows, columns) of a calibration from an (x, y) of the sensor's own readout on."""
    height, width = calibration.shape
    return height + calibration.offset[1] - offset[1], width + calibration.offset[0] - offset[0]


def _check(name: str, value: object, shown: str) -> Any:
    """The value of an option as Python's own type, by the table; errors call the option `shown`."""
    row = OPTIONS[name]
    if name in _SPECIAL:
        return _SPECIAL[name](shown, value)
    if row.choices:
        return choice(shown, value, row.choices)
    if row.numbers:
        return _one_of(shown, value, row.numbers)
    if row.limits is None:
        return truth(shown, value)
    return (number if isinstance(row.default, float) else whole_number)(shown, value, *row.limits)


def _min_intensity(name: str, value: object) -> float:
    smallest = real(name, value)
    if not 0 <= smallest < 2:
        raise ValueError(f"{name} must be in [0, 2), the range of S0, got {quoted(value)}")
    return smallest


def _pair(name: str, value: object, item: Callable[[str, Any], _T]) -> Tuple[_T, _T]:
    pair = sequence(value, 2)
    if not pair:
        raise ValueError(f"{name} must be a pair (x, y), got {quoted(value)}")
    return item(name, pair[0]), item(name, pair[1])


def _offset(name: str, value: object) -> int:
    pixels = whole_number(name, value)
    if not 0 <= pixels <= MAX_SIDE:
        raise ValueError(f"{name} must be >= 0 and at most {MAX_SIDE} each way, got {quoted(value)}")
    return pixels


def _one_of(name: str, value: object, allowed: Tuple[int, ...]) -> int:
    found = whole_number(name, value)
    if found not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, got {quoted(value)}")
    return found


def _roi(name: str, value: object) -> Tuple[int, int, int, int]:
    sides = tuple(_offset(name, side) for side in sequence(value, 4))
    if len(sides) != 4:
        raise ValueError(f"{name} must be (x, y, width, height), got {quoted(value)}")
    return sides


def _lens(name: str, value: Any) -> Union[str, LensCalibration]:
    """A lens calibration as it is, or from a file; "" and `FROM_FRAMES` stay."""
    if isinstance(value, LensCalibration):
        return value
    if not isinstance(value, (str, Path)):
        raise ValueError(f"{name} must be a path, {FROM_FRAMES!r} or a LensCalibration, got {quoted(value)}")
    if value in ("", FROM_FRAMES):
        return str(value)
    try:
        return load_lens(Path(value))
    except ValueError as err:
        raise ValueError(f"{name}: {err}") from None


def _calibration(name: str, value: object) -> Optional[Calibration]:
    """A calibration as it is, or from a file; None for ""."""
    if isinstance(value, Calibration):
        return value
    if not isinstance(value, (str, Path)):
        raise ValueError(f"{name} must be a path or a Calibration, got {quoted(value)}")
    if value == "":
        return None
    try:
        return load_calibration_once(Path(value))
    except ValueError as err:
        raise ValueError(f"{name}: {err}") from None


#: Checks of options that have other rules than a range or a choice.
_SPECIAL: Dict[str, Callable[[str, Any], Any]] = {
    "min_intensity": _min_intensity,
    "roi_offset": lambda name, value: _pair(name, value, _offset),
    "flip": lambda name, value: _pair(name, value, truth),
    "calibration": _calibration,
    "roi": _roi,
    "rectify": _lens,
}
#: Defaults of the options that `make_options` has no argument for.
_OTHERS: Dict[str, Any] = {
    name: _check(name, row.default, name)
    for name, row in OPTIONS.items()
    if name not in ("sensor", "products", "dtype", "threads")
}
