"""How to compute: the options of a pipeline, validated in one place for the library, the tool and the node."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple, Tuple, TypeVar, Union

from polar_pipeline._util.text import quoted
from polar_pipeline._util.values import choice, number, real, sequence, truth, whole_number
from polar_pipeline.coefficients import SSIM_SIGMA, SSIM_WINDOW
from polar_pipeline.products import PRODUCTS, get_products
from polar_pipeline.sensor.frames import ALIGNMENTS, MAX_SIDE, check_bit_depth
from polar_pipeline.sensor.mosaic import Sensor, get_sensor

#: Allowed values of every option that is a choice.
CHOICES: Dict[str, Tuple[str, ...]] = {
    "backend": ("auto", "cpu", "cuda"),
    "resolution": ("half", "full"),
    "precision": ("auto", "fp32", "fp16"),
    "demosaic": ("auto", "bilinear", "gradient", "adaptive"),
    "ssim_mode": ("consistency", "temporal", "reference"),
    "dtype": ("float32", "uint8"),
    "alignment": ALIGNMENTS,
}
#: Allowed values of options that are numbers: the lowest and the highest.
LIMITS: Dict[str, Tuple[float, float]] = {"ssim_stride": (1, 8), "ssim_window": (3, 15), "ssim_sigma": (0.5, 5.0)}
#: Demosaic method -> the colour-lattice method that goes with it.
_DEBAYER = {"bilinear": "bilinear", "gradient": "mhc", "adaptive": "weighted"}
_T = TypeVar("_T")


class Options(NamedTuple):
    """What to compute and how. Build it with `make_options`, which validates.

    Attributes:
        sensor: The mosaic in the sensor's own readout.
        products: Product names, in the table's order.
        dtypes: Element type per product.
        backend: `cpu` or `cuda`.
        resolution: `half` (one output pixel per superpixel) or `full`.
        precision: `auto`, `fp32` or `fp16`.
        demosaic: `auto`, `bilinear`, `gradient` or `adaptive`.
        co_sited: At half resolution, interpolate the four angles to the superpixel's centre.
        ssim_mode: What SSIM compares: I0+I90 with I45+I135 (`consistency`), with the frame before (`temporal`), with an
            image given (`reference`).
        ssim_stride: SSIM compares images averaged over this many pixels each way, 1 to 8.
        ssim_window: Taps of SSIM's Gaussian window each way, odd, 3 to 15.
        ssim_sigma: Its standard deviation in (averaged) pixels, 0.5 to 5.
        min_intensity: Smallest S0 (full scale 2) with a meaning; darker pixels are invalid.
        bit_depth: Significant bits of a 16-bit array (0: all 16).
        alignment: Where they lie: `lsb` or `msb`.
        roi_offset: (x, y) of the frame in the sensor's readout.
        flip: (ReverseX, ReverseY).
    """

    sensor: Sensor
    products: Tuple[str, ...]
    dtypes: Tuple[str, ...]
    backend: str = "auto"
    resolution: str = "half"
    precision: str = "auto"
    demosaic: str = "auto"
    co_sited: bool = True
    ssim_mode: str = "consistency"
    ssim_stride: int = 1
    ssim_window: int = SSIM_WINDOW
    ssim_sigma: float = SSIM_SIGMA
    min_intensity: float = 0.01
    bit_depth: int = 0
    alignment: str = "lsb"
    roi_offset: Tuple[int, int] = (0, 0)
    flip: Tuple[bool, bool] = (False, False)

    def dtype_of(self, product: str) -> str:
        """Element type of a product: `float32` or `uint8`."""
        return self.dtypes[self.products.index(product)]

    def output_size(self, shape: Tuple[int, int]) -> Tuple[int, int]:
        """(height, width) of the products of a frame of (height, width)."""
        return (shape[0] // 2, shape[1] // 2) if self.resolution == "half" else (shape[0], shape[1])

    def shape_of(self, product: str, size: Tuple[int, int]) -> Tuple[int, ...]:
        """Shape of a product's array where the output is `size` = (height, width)."""
        return PRODUCTS[product].shape(size, self.sensor.is_color, self.ssim_stride)

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
    def full_scale(self) -> int:
        """Value of a saturated pixel in a 16-bit array; larger ones mean this one."""
        bits = self.bit_depth or 16
        return ((1 << bits) - 1) << (16 - bits if self.alignment == "msb" else 0)


def make_options(
    sensor: Union[str, Sensor] = "IMX250MZR",
    products: Union[str, Iterable[str]] = ("intensity", "dolp", "aolp"),
    dtype: Union[str, Mapping[str, str]] = "float32",
    **values: Any,
) -> Options:
    """Validated options.

    Args:
        sensor: A name in `SENSORS`, a tile (see `parse_tile`) or a `Sensor`.
        products: Names in `PRODUCTS`.
        dtype: `float32` or `uint8` for all products that offer it, or a mapping product -> type.
        values: The other fields of `Options`.

    Raises:
        ValueError: An option does not exist or its value is not allowed; the message says what is.
    """
    names = get_products(products)
    per_product = dtype if isinstance(dtype, Mapping) else {}
    foreign = [name for name in per_product if name not in PRODUCTS]
    if foreign:
        raise ValueError(f"dtype must be for products among {', '.join(PRODUCTS)}; got {quoted(foreign)}")
    fallback = "float32" if isinstance(dtype, Mapping) else dtype
    types = [
        PRODUCTS[name].dtype(choice(f"dtype of {name}", per_product.get(name, fallback), CHOICES["dtype"]))
        for name in names
    ]
    unknown = [key for key in values if key not in _CHECKS]
    if unknown:
        allowed = ("sensor", "products", "dtype", *_CHECKS)
        raise ValueError(f"unknown option {quoted(unknown)}; options are {', '.join(allowed)}")
    checked = {key: _CHECKS[key](key, value) for key, value in values.items()}
    return Options(get_sensor(sensor), names, tuple(types))._replace(**checked)


def _ssim_window(name: str, value: Any) -> int:
    taps = whole_number(name, value, *LIMITS[name])
    if taps % 2 == 0:
        raise ValueError(f"{name} must be odd, got {taps}")
    return taps


def _min_intensity(name: str, value: Any) -> float:
    least = real(name, value)
    if not 0 <= least < 2:
        raise ValueError(f"{name} must be in [0, 2), the range of S0, got {quoted(value)}")
    return least


def _pair(name: str, value: Any, item: Callable[[str, Any], _T]) -> Tuple[_T, _T]:
    pair = sequence(value, 2)
    if not pair:
        raise ValueError(f"{name} must be a pair (x, y), got {quoted(value)}")
    return item(name, pair[0]), item(name, pair[1])


def _offset(name: str, value: Any) -> int:
    pixels = whole_number(name, value)
    if not 0 <= pixels <= MAX_SIDE:
        raise ValueError(f"{name} must be >= 0 and at most {MAX_SIDE} each way, got {quoted(value)}")
    return pixels


#: What makes the value of an option out of the one given, or refuses it, by the option's name.
_CHECKS: Dict[str, Callable[[str, Any], Any]] = {
    **{
        key: lambda name, value: choice(name, value, CHOICES[name])
        for key in ("backend", "resolution", "precision", "demosaic", "ssim_mode", "alignment")
    },
    "co_sited": truth,
    "ssim_stride": lambda name, value: whole_number(name, value, *LIMITS[name]),
    "ssim_window": _ssim_window,
    "ssim_sigma": lambda name, value: number(name, value, *LIMITS[name]),
    "min_intensity": _min_intensity,
    "bit_depth": lambda _, value: check_bit_depth(value),
    "roi_offset": lambda name, value: _pair(name, value, _offset),
    "flip": lambda name, value: _pair(name, value, truth),
}
