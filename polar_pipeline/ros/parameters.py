"""The node's parameters: one table, and how their values become pipeline options. Imports no ROS.

`ros2 param describe` shows this table; the launch and YAML files are tested against it.
"""

from __future__ import annotations

from array import array
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from polar_pipeline._util.text import quoted
from polar_pipeline.display import MAX_GAIN, Display, make_display
from polar_pipeline.options import CHOICES, LIMITS, Options, make_options
from polar_pipeline.plan import expand
from polar_pipeline.products import PRODUCTS
from polar_pipeline.quality.statistics import RANGES, QualityLimits, make_quality_limits

#: Products that compare images, and so may need a reference.
SSIM_PRODUCTS = tuple(name for name in PRODUCTS if "ssim_pair" in expand((name,)))
#: Characters that a text may have, as many as a path.
MAX_TEXT = 4096
#: Values that a list may have; the longest of this package has three.
MAX_LIST = 1000
#: Type of a value, or of each in a list -> it and several of it in words.
_WORDS = {
    bool: ("true or false", "truth values"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: (f"text of at most {MAX_TEXT} characters, without NUL", "texts"),
}


def is_ros_value(value: Any) -> bool:
    """Whether a parameter of ROS, and a file of parameters, can hold a value: one, or a tuple of one type."""
    if isinstance(value, tuple):
        is_uniform = len({type(item) for item in value}) == 1 and not isinstance(value[0], tuple)
        return is_uniform and len(value) <= MAX_LIST and all(map(is_ros_value, value))
    if isinstance(value, str):
        return len(value) <= MAX_TEXT and "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
    return isinstance(value, (bool, float)) or (isinstance(value, int) and -(2**63) <= value < 2**63)


class Parameter(NamedTuple):
    """One parameter of the node.

    Attributes:
        name: ROS name.
        default: Value unless one is given; its type is the parameter's.
        text: What it does, for people.
        option: The field of `Options` that it sets; "" for one that is the node's own.
        choices: The values allowed, if few.
        limits: (lowest, highest) value of a number.
        read_only: Whether it is fixed once the node runs; every other one changes between two frames.
        dynamic: Whether values of other types are allowed too.
    """

    name: str
    default: Any
    text: str
    option: str = ""
    choices: Tuple[str, ...] = ()
    limits: Optional[Tuple[float, float]] = None
    read_only: bool = False
    dynamic: bool = False

    @property
    def allowed(self) -> str:
        """The values allowed, in words."""
        if self.dynamic:
            return "a number, text, or a list of either"
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if isinstance(self.default, tuple):
            return f"a pair of {_WORDS[type(self.default[0])][1]}"
        words = _WORDS[type(self.default)][0]
        return words if self.limits is None else f"{words} in [{self.limits[0]}, {self.limits[1]}]"

    def checked(self, value: Any) -> Any:
        """A value that is allowed by itself; a list as a tuple.

        Args:
            value: Of any type. ROS hands arrays over as `array.array` or list, and None for what is not set.

        Raises:
            ValueError: It is not allowed; the message says what is.
        """
        found = tuple(value) if isinstance(value, (list, array)) else value
        if not (is_ros_value(found) and self._takes(found)):
            raise ValueError(f"{self.name} must be {self.allowed}, got {quoted(value)}")
        return found

    def _takes(self, value: Any) -> bool:
        items, defaults = (each if isinstance(each, tuple) else (each,) for each in (value, self.default))
        kind = type(defaults[0])
        kinds = (int, float, str) if self.dynamic else (int, float) if kind is float else (kind,)
        # a bool is an int for Python
        if not all(isinstance(item, kinds) and isinstance(item, bool) == (kind is bool) for item in items):
            return False
        if not self.dynamic and (isinstance(value, tuple), len(items)) != (
            isinstance(self.default, tuple),
            len(defaults),
        ):
            return False
        if self.choices:
            return value in self.choices
        return self.limits is None or bool(self.limits[0] <= value <= self.limits[1])  # NaN is refused too


def _option(name: str, text: str, limits: Optional[Tuple[float, float]] = None) -> Parameter:
    """A parameter that sets the pipeline option of the same name, with that option's default and choices."""
    option = name.rsplit(".", 1)[-1]
    limits = limits or LIMITS.get(option)
    return Parameter(name, Options._field_defaults[option], text, option, CHOICES.get(option, ()), limits)


def _limit(name: str, text: str) -> Parameter:
    """A parameter that sets a limit of quality."""
    return Parameter(f"quality.{name}", getattr(QualityLimits(), name), text, limits=RANGES[name])


_TABLE = (
    Parameter("sensor", "IMX250MZR", "Mosaic: a sensor's name or its tile, such as '90 45 / 135 0'.", "sensor"),
    _option("backend", "What computes: 'auto' takes the fastest that works here."),
    Parameter(
        "on_device_error",
        "cpu",
        "What follows a GPU that fails. 'cpu': the CPU takes over, and every 10 s the GPU is tried again. 'retry': the "
        "next frame tries again. 'stop': the node ends with exit code 1, for a launch file that respawns it.",
        choices=("cpu", "retry", "stop"),
    ),
    _option("resolution", "'half': one output pixel per 2x2 superpixel. 'full': one per raw pixel."),
    _option("precision", "Arithmetic; 'fp16' needs the CUDA backend."),
    _option(
        "demosaic",
        "Interpolation. 'auto': bilinear at half resolution, adaptive at full. On a CPU adaptive takes longer than a "
        "camera's frame period at full size; 'gradient' is several times faster.",
    ),
    _option("co_sited", "At half resolution, interpolate the four angles to the superpixel's centre."),
    _option(
        "ssim_mode",
        "What SSIM compares: I0+I90 with I45+I135, S0 with the frame before, or S0/2 with topic 'reference'.",
    ),
    _option("ssim_stride", "SSIM compares images averaged over this many pixels each way: cheaper, and coarser."),
    _option("ssim_window", "Taps of SSIM's Gaussian window each way, odd."),
    _option("ssim_sigma", "Standard deviation of SSIM's window in (averaged) pixels."),
    _option(
        "min_intensity", "Smallest S0 (full scale 2, excluded) with a polarization; darker is invalid.", (0.0, 2.0)
    ),
    _option(
        "raw.bit_depth",
        "Significant bits of 16-bit pixels, 8 to 16; 0 takes the encoding's. Larger numbers mean full scale.",
        (0, 16),
    ),
    _option("raw.alignment", "Where the significant bits of 16-bit pixels lie: 'lsb' or 'msb'."),
    _option("raw.roi_offset", "[x, y] of the frame's first pixel in the sensor's own readout, before any flip."),
    _option("raw.flip", "[ReverseX, ReverseY] as set in the camera."),
    Parameter("threads", 0, "CPU threads; 0 for one per core.", limits=(0, 256), read_only=True),
    Parameter(
        "queue_size",
        2,
        "Frames that may wait while one is at work; the newest pushes out the oldest. 1: freshest under overload; "
        "more: longer hiccups lose nothing.",
        limits=(1, 16),
        read_only=True,
    ),
    Parameter(
        "output_depth",
        "float32",
        "Pixels of DoLP, AoLP and the SSIM map: physical values (32FC1) or the display encoding (mono8).",
        choices=CHOICES["dtype"],
    ),
    Parameter(
        "quality.always",
        False,
        "Compute SSIM, and DoLP for its count of dark pixels, even if nobody subscribes, for /diagnostics.",
    ),
    _limit("ssim_warn", "Warn in /diagnostics if the lowest block's SSIM is below; -1: never."),
    _limit("ssim_error", "The same for an error; at most quality.ssim_warn."),
    _limit("saturated_warn", "Warn if a larger ratio of the pixels is saturated; 1: never."),
    _limit("saturated_error", "The same for an error; at least quality.saturated_warn."),
    _limit("dark_warn", "Warn if a larger ratio of the pixels is below min_intensity; 1: never."),
    _limit("dark_error", "The same for an error; at least quality.dark_warn."),
    _limit("hysteresis", "How far a value has to be back on the good side of a limit before the level falls."),
    _limit("frozen_frames", "Identical raw frames in a row that are an error, at least 2; 0: never."),
    Parameter("frame_id", "", "frame_id of every output; '' takes the input's."),
    Parameter("jpeg_quality", 90, "JPEG quality of the compressed topics.", limits=(1, 100)),
    Parameter(
        "display.gain",
        1.0,
        f"Brightness of the preview and of the compressed topics: a factor above 0, at most {MAX_GAIN:g}, or 'auto'.",
        dynamic=True,
    ),
    Parameter(
        "display.white_balance",
        "none",
        "Of intensity/compressed of a colour sensor: 'none', 'auto', or the factors [red, green, blue].",
        dynamic=True,
    ),
    Parameter(
        "snapshot.folder",
        "",
        "Where ~/snapshot writes; '' for $ROS_HOME/polar_pipeline or ~/.ros/polar_pipeline.",
        read_only=True,
    ),
    Parameter(
        "snapshot.quota_mb",
        1024,
        "Megabytes that snapshots may take in their folder; the oldest are removed.",
        limits=(1, 1048576),
        read_only=True,
    ),
)

#: Every parameter by name.
PARAMETERS: Dict[str, Parameter] = {row.name: row for row in _TABLE}


class Settings(NamedTuple):
    """All parameters, valid together. Build it with `make_settings`.

    Attributes:
        options: How every product would be computed.
        threads: CPU threads; 0 for one per core.
        queue_size: Frames that may wait while one is at work.
        output_depth: `float32` or `uint8`, for the products that leave a choice.
        always: Whether quality is judged where nobody subscribes.
        limits: From where on quality is bad.
        frame_id: Replaces the input's unless empty.
        jpeg_quality: 1 to 100.
        display: How images for people are shown.
        snapshot_folder: Where snapshots go; "" for ROS's own folder.
        snapshot_quota_mb: Megabytes that they may take there.
        on_device_error: `cpu`, `retry` or `stop`: what follows a GPU that fails.
    """

    options: Options
    threads: int
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

    def on_cpu(self) -> Settings:
        """The same for the CPU backend."""
        precision = "auto" if self.options.precision == "fp16" else self.options.precision
        return self._replace(options=self.options._replace(backend="cpu", precision=precision))

    def arguments(self, products: Tuple[str, ...]) -> Dict[str, Any]:
        """The arguments of the `Pipeline` that makes these products."""
        arguments = self.options._asdict()
        del arguments["dtypes"]
        if not set(products) & set(SSIM_PRODUCTS):
            del arguments["ssim_mode"]  # nothing compares, so nothing needs a reference
        offered = {name: PRODUCTS[name].ros_types for name in products}
        dtype = {name: self.output_depth if len(types) > 1 else types[0] for name, types in offered.items()}
        return {**arguments, "products": products, "dtype": dtype, "threads": self.threads}


def make_settings(values: Mapping[str, Any]) -> Settings:
    """Settings from the values of all parameters.

    Args:
        values: Parameter name -> value, for every name in `PARAMETERS`.

    Raises:
        ValueError: A value is not allowed, alone or beside the others; the message says what is.
    """
    missing = [name for name in PARAMETERS if name not in values]
    if missing:
        raise ValueError(f"no value for {', '.join(missing)}")
    found = {name: row.checked(values[name]) for name, row in PARAMETERS.items()}
    chosen = {row.option: found[name] for name, row in PARAMETERS.items() if row.option}
    options = make_options(products=tuple(PRODUCTS), **chosen)
    limits = make_quality_limits(**{name: found[f"quality.{name}"] for name in RANGES})
    own = {name: found[name] for name in ("threads", "queue_size", "output_depth", "frame_id", "jpeg_quality")}
    return Settings(
        options=options,
        always=found["quality.always"],
        limits=limits,
        display=make_display(found["display.gain"], found["display.white_balance"]),
        snapshot_folder=found["snapshot.folder"],
        snapshot_quota_mb=found["snapshot.quota_mb"],
        on_device_error=found["on_device_error"],
        **own,
    )
