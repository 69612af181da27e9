"""How to compute: the options of a pipeline, validated in one place for the library, the tool and the node."""

from __future__ import annotations

from numbers import Real
from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple, Tuple, TypeVar, Union

from polar_pipeline.coefficients import SSIM_SIGMA, SSIM_WINDOW
from polar_pipeline.products import PRODUCTS, get_products
from polar_pipeline.sensor import Sensor, get_sensor

#: Allowed values of every option that is a choice.
CHOICES: Dict[str, Tuple[str, ...]] = {
    "backend": ("auto", "cpu", "cuda"),
    "resolution": ("half", "full"),
    "precision": ("auto", "fp32", "fp16"),
    "demosaic": ("auto", "bilinear", "gradient", "adaptive"),
    "ssim_mode": ("consistency", "temporal", "reference"),
    "dtype": ("float32", "uint8"),
    "alignment": ("lsb", "msb"),
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
        """Value of a saturated pixel in a 16-bit array."""
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
    get_products(per_product or names)
    fallback = "float32" if isinstance(dtype, Mapping) else dtype
    types = []
    for name in names:
        wanted = per_product.get(name, fallback)
        if wanted not in CHOICES["dtype"]:
            raise ValueError(f"dtype of {name} must be one of {', '.join(CHOICES['dtype'])}, got {wanted!r}")
        types.append(PRODUCTS[name].dtype(wanted))
    unknown = [key for key in values if key not in Options._fields]
    if unknown:
        raise ValueError(f"unknown option {', '.join(unknown)}; options are {', '.join(Options._fields)}")
    options = Options(get_sensor(sensor), names, tuple(types))._replace(**values)
    for key, allowed in CHOICES.items():
        if key in values and values[key] not in allowed:
            raise ValueError(f"{key} must be one of {', '.join(allowed)}, got {values[key]!r}")
    for key, (low, high) in LIMITS.items():
        if not low <= _number(key, getattr(options, key)) <= high:  # NaN is refused too
            raise ValueError(f"{key} must be in [{low}, {high}], got {getattr(options, key)}")
    options = options._replace(
        ssim_stride=whole_number("ssim_stride", options.ssim_stride),
        ssim_window=whole_number("ssim_window", options.ssim_window),
        bit_depth=whole_number("bit_depth", options.bit_depth),
        co_sited=_truth("co_sited", options.co_sited),
    )
    if options.ssim_window % 2 == 0:
        raise ValueError(f"ssim_window must be odd, got {options.ssim_window}")
    if not 0 <= _number("min_intensity", options.min_intensity) < 2:
        raise ValueError(f"min_intensity must be in [0, 2), the range of S0, got {options.min_intensity}")
    if options.bit_depth != 0 and not 8 <= options.bit_depth <= 16:
        raise ValueError(f"bit_depth must be 0 (all 16 bits) or 8 to 16, got {options.bit_depth}")
    offset = _pair("roi_offset", options.roi_offset, whole_number)
    if min(offset) < 0:
        raise ValueError(f"roi_offset must be >= 0, got {offset}")
    return options._replace(roi_offset=offset, flip=_pair("flip", options.flip, _truth))


def _number(name: str, value: Any) -> float:
    if not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return float(value)


def whole_number(name: str, value: Any) -> int:
    """The value of an option that counts something, given as an integer or as a float such as 2.0.

    Raises:
        ValueError: It is no whole number.
    """
    if _number(name, value) % 1 != 0:  # of NaN and infinity too
        raise ValueError(f"{name} must be a whole number, got {value}")
    return int(value)


def _truth(name: str, value: Any) -> bool:
    if value not in (False, True):
        raise ValueError(f"{name} must be true or false, got {value!r}")
    return bool(value)


def _pair(name: str, value: Any, item: Callable[[str, Any], _T]) -> Tuple[_T, _T]:
    try:
        x, y = value
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a pair (x, y), got {value!r}") from None
    return item(name, x), item(name, y)
