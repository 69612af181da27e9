"""The node's parameters: the pipeline's options and the node's own in one table, and how their values become settings.

Imports no ROS. `ros2 param describe` shows this table; the launch and YAML files are tested against it.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, Mapping, Tuple, cast

from polar_pipeline._util.text import quoted
from polar_pipeline.display import MAX_GAIN, Display, make_display
from polar_pipeline.geometry import LensCalibration
from polar_pipeline.options import OPTIONS, Option, Options, Value, make_options
from polar_pipeline.products import NOISE_PRODUCTS, PRODUCTS, SSIM_PRODUCTS
from polar_pipeline.quality.statistics import RANGES, QualityLimits, make_quality_limits
from polar_pipeline.topics import PRODUCT_TOPICS

#: Longest text in characters, as long as a path can be.
MAX_TEXT = 4096
#: Longest frame_id in characters.
MAX_FRAME_ID = 255
#: Most values in a list; the longest list of this package has three.
MAX_LIST = 1000
#: Type of a value, or of each value of a list -> its name in error messages, singular and plural.
_WORDS = {
    bool: ("true or false", "truth values"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: (f"text of at most {MAX_TEXT} characters, without NUL", "texts"),
}


def is_ros_value(value: object) -> bool:
    """Whether a ROS parameter and a parameter file can hold a value: a single one, or a tuple of one type."""
    if isinstance(value, tuple):
        is_uniform = len({type(item) for item in value}) == 1 and not isinstance(value[0], tuple)
        return is_uniform and len(value) <= MAX_LIST and all(map(is_ros_value, value))
    if isinstance(value, str):
        return len(value) <= MAX_TEXT and "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
    return isinstance(value, (bool, float)) or (isinstance(value, int) and -(2**63) <= value < 2**63)


@dataclass(frozen=True)
class Parameter(Option):
    """One parameter of the node: an option of the pipeline under its ROS name, or one that only the node has.

    Attributes:
        option: The option of the pipeline that it sets; "" for none.
        dynamic: Whether values of other types are allowed too.
        is_name: Whether its text is the name of a coordinate frame, or empty.
    """

    option: str = ""
    dynamic: bool = False
    is_name: bool = False

    @property
    def allowed(self) -> str:
        """The values allowed, in words."""
        if self.dynamic:
            return "a number, text, or a list of either"
        if self.choices or self.numbers:
            return f"one of {', '.join(map(str, self.choices or self.numbers))}"
        if self.is_name:
            return f"text of letters, digits and _ - . /, at most {MAX_FRAME_ID} characters"
        if isinstance(self.default, tuple):
            count = {2: "a pair of"}.get(len(self.default), f"a list of {len(self.default)}")
            return f"{count} {_WORDS[type(self.default[0])][1]}"
        words = _WORDS[type(self.default)][0]
        return words if self.limits is None else f"{words} in [{self.limits[0]}, {self.limits[1]}]"

    def checked(self, value: object) -> Value:
        """The value, a list as a tuple and a whole number as a float where one is meant, if it is allowed by itself.

        Args:
            value: Of any type. ROS hands arrays over as `array.array` or list, and None for what is not set.

        Raises:
            ValueError: It is not allowed; the message says what is.
        """
        found = tuple(value) if isinstance(value, (list, array)) else value
        if not (is_ros_value(found) and self._allows(found)):
            raise ValueError(f"{self.name} must be {self.allowed}, got {quoted(value)}")
        if isinstance(self.default, float) and isinstance(found, int) and not self.dynamic:
            return float(found)
        return cast(Value, found)

    def _allows(self, value: Any) -> bool:
        items, defaults = (each if isinstance(each, tuple) else (each,) for each in (value, self.default))
        kind = type(defaults[0])
        kinds = (int, float, str) if self.dynamic else (int, float) if kind is float else (kind,)
        # bool is a subclass of int
        if not all(isinstance(item, kinds) and isinstance(item, bool) == (kind is bool) for item in items):
            return False
        if not self.dynamic and (isinstance(value, tuple), len(items)) != (
            isinstance(self.default, tuple),
            len(defaults),
        ):
            return False
        if self.choices or self.numbers:
            return value in (self.choices or self.numbers)
        if self.is_name:
            return re.fullmatch(rf"[A-Za-z0-9_./-]{{0,{MAX_FRAME_ID}}}", value) is not None
        return self.limits is None or bool(self.limits[0] <= value <= self.limits[1])  # NaN is refused too


def _quality_limit(name: str, text: str, unit: str = "") -> Parameter:
    """A parameter that sets a limit of quality."""
    return Parameter(getattr(QualityLimits(), name), text, limits=RANGES[name], unit=unit)


#: Parameters that only the node has.
_OF_THE_NODE = {
    "on_device_error": Parameter(
        "cpu",
        "What follows when the GPU fails. 'cpu': the CPU takes over, and every 10 s the GPU is tried again. 'retry': "
        "the next frame tries again. 'stop': the node ends with exit code 1, for a launch file that respawns it.",
        ("cpu", "retry", "stop"),
    ),
    "queue_size": Parameter(
        2,
        "Frames that can wait while one is processed; the newest replaces the oldest. 1: freshest frames under "
        "overload; more: longer interruptions lose nothing.",
        limits=(1, 16),
        unit="frames",
        read_only=True,
    ),
    "output_depth": Parameter(
        "float32",
        "Pixels of DoLP, AoLP, their deviations and the SSIM map: physical values (32FC1), the display encoding "
        "(mono8), or 16 bits (16UC1), which intensity, angle images and components of light then have too.",
        OPTIONS["dtype"].choices,
    ),
    "quality.always": Parameter(
        False,
        "Compute SSIM, and DoLP for its count of dark pixels, for /diagnostics, even without any subscriber.",
    ),
    "quality.ssim_warn": _quality_limit(
        "ssim_warn", "Warn in /diagnostics if the SSIM of the lowest block is below this; -1: never."
    ),
    "quality.ssim_error": _quality_limit(
        "ssim_error",
        "Report an error in /diagnostics if the SSIM of the lowest block is below this; at most quality.ssim_warn.",
    ),
    "quality.saturated_warn": _quality_limit(
        "saturated_warn", "Warn if more than this fraction of the pixels is saturated; 1: never."
    ),
    "quality.saturated_error": _quality_limit(
        "saturated_error",
        "Report an error if more than this fraction of the pixels is saturated; at least quality.saturated_warn.",
    ),
    "quality.dark_warn": _quality_limit(
        "dark_warn", "Warn if more than this fraction of the pixels is below min_intensity; 1: never."
    ),
    "quality.dark_error": _quality_limit(
        "dark_error",
        "Report an error if more than this fraction of the pixels is below min_intensity; at least quality.dark_warn.",
    ),
    "quality.hysteresis": _quality_limit(
        "hysteresis", "How far a value must be back on the good side of a limit before the level in /diagnostics falls."
    ),
    "quality.frozen_frames": _quality_limit(
        "frozen_frames", "Identical raw frames in a row that are an error, at least 2; 0: never.", "frames"
    ),
    "frame_id": Parameter(
        "",
        "frame_id of every output, of letters, digits and _ - . /; '' takes the input's, control characters escaped.",
        is_name=True,
    ),
    "jpeg_quality": Parameter(90, "JPEG quality of the compressed topics.", limits=(1, 100)),
    "display.gain": Parameter(
        1.0,
        f"Brightness of the preview and of compressed light: a factor above 0, at most {MAX_GAIN:g}, or 'auto'.",
        dynamic=True,
    ),
    "display.white_balance": Parameter(
        "none",
        "White balance of compressed light of a colour sensor: 'none', 'auto', or the factors [red, green, blue].",
        dynamic=True,
    ),
    "snapshot.folder": Parameter(
        "",
        "Where ~/snapshot writes; '' for $ROS_HOME/polar_pipeline or ~/.ros/polar_pipeline.",
        read_only=True,
    ),
    "snapshot.quota_mb": Parameter(
        1024,
        "Megabytes that snapshots may take in their folder; the oldest are removed.",
        limits=(1, 1048576),
        unit="MB",
        read_only=True,
    ),
}

#: Every parameter by name.
PARAMETERS: Dict[str, Parameter] = {
    **{
        row.parameter: Parameter(**{**vars(row), "name": row.parameter}, option=row.name)
        for row in OPTIONS.values()
        if row.parameter
    },
    **{name: replace(row, name=name) for name, row in _OF_THE_NODE.items()},
}


@dataclass(frozen=True)
class Settings:
    """The values of all parameters, checked against each other. Build it with `make_settings`.

    Attributes:
        options: Options with which any product that they allow would be computed.
        queue_size: Frames that can wait while one is processed.
        output_depth: `float32`, `uint8` or `uint16`, for the products that are published as such.
        always: Whether quality is judged without any subscriber.
        limits: Where quality becomes bad.
        frame_id: frame_id of every output; "" for the input's.
        jpeg_quality: Quality of the compressed topics, 1 to 100.
        display: Gain and white balance of the preview and of compressed light.
        snapshot_folder: Folder of the snapshots; "" for ROS's own.
        snapshot_quota_mb: Megabytes that they may take.
        on_device_error: `cpu`, `retry` or `stop`: what follows when the GPU fails.
    """

    options: Options
    queue_size: int
    output_depth: str
    always: bool
    limits: QualityLimits
    frame_id: str
    jpeg_quality: int
    display: Display
    snapshot_folder: str
    snapshot_quota_mb: int
    on_device_error: str

    def computable(self, products: Iterable[str]) -> Tuple[str, ...]:
        """Those of the products that these settings can make."""
        return tuple(name for name in products if name in self.options.products)

    def rectified_by(self, lens: LensCalibration) -> Settings:
        """The same settings with the lens calibration that came with the frames."""
        return replace(self, options=self.options.with_held(rectify=lens))

    def on_cpu(self) -> Settings:
        """The same settings for the CPU backend."""
        precision = "auto" if self.options.precision == "fp16" else self.options.precision
        return replace(self, options=self.options.with_held(backend="cpu", precision=precision))

    def arguments(self, products: Tuple[str, ...]) -> Dict[str, Any]:
        """Arguments of a `Pipeline` that makes these products."""
        arguments = self.options.arguments()
        if not set(products) & set(SSIM_PRODUCTS):
            del arguments["ssim_mode"]  # without SSIM no reference is needed
        dtype = {name: PRODUCT_TOPICS[name].dtype(self.output_depth) for name in products}
        return {**arguments, "products": products, "dtype": dtype}


def _make_options(chosen: Mapping[str, Any]) -> Options:
    """Options for all products that can be computed: with a geometry those of the noise cannot.

    Raises:
        ValueError: An option is not allowed, alone or beside the others.
    """
    products = tuple(name for name in PRODUCTS if name not in NOISE_PRODUCTS)
    names = {row.option: row.name for row in PARAMETERS.values()}
    options = make_options(products=products, names=names, **chosen)
    return options if options.geometry is not None else replace(options, products=tuple(PRODUCTS))


def make_settings(values: Mapping[str, object]) -> Settings:
    """Settings from the values of all parameters.

    Args:
        values: Parameter name -> value, for every name in `PARAMETERS`.

    Raises:
        ValueError: A value is not allowed, alone or beside the others; the message says what is.
    """
    missing = [name for name in PARAMETERS if name not in values]
    if missing:
        raise ValueError(f"no value for {', '.join(missing)}")
    found: Dict[str, Any] = {name: row.checked(values[name]) for name, row in PARAMETERS.items()}
    chosen = {row.option: found[name] for name, row in PARAMETERS.items() if row.option}
    limits = make_quality_limits(**{name: found[f"quality.{name}"] for name in RANGES})
    return Settings(
        options=_make_options(chosen),
        queue_size=found["queue_size"],
        output_depth=found["output_depth"],
        always=found["quality.always"],
        limits=limits,
        frame_id=found["frame_id"],
        jpeg_quality=found["jpeg_quality"],
        display=make_display(found["display.gain"], found["display.white_balance"]),
        snapshot_folder=found["snapshot.folder"],
        snapshot_quota_mb=found["snapshot.quota_mb"],
        on_device_error=found["on_device_error"],
    )
