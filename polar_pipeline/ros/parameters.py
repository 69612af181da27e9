"""The node's parameters: one table, and how their values become pipeline options. Imports no ROS.

`ros2 param describe` shows this table; the launch and YAML files are tested against it.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from polar_pipeline.display import MAX_GAIN, Display, make_display
from polar_pipeline.options import CHOICES, LIMITS, Options, make_options
from polar_pipeline.pipeline import backend_problem
from polar_pipeline.plan import expand
from polar_pipeline.products import PRODUCTS
from polar_pipeline.quality import RANGES, Limits, make_limits

#: Products that compare images, and so may need a reference.
SSIM_PRODUCTS = tuple(name for name in PRODUCTS if "ssim_pair" in expand((name,)))


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


def _option(name: str, text: str, limits: Optional[Tuple[float, float]] = None) -> Parameter:
    """A parameter that sets the pipeline option of the same name, with that option's default and choices."""
    option = name.rsplit(".", 1)[-1]
    limits = limits or LIMITS.get(option)
    return Parameter(name, Options._field_defaults[option], text, option, CHOICES.get(option, ()), limits)


def _limit(name: str, text: str) -> Parameter:
    """A parameter that sets a limit of quality."""
    return Parameter(f"quality.{name}", Limits._field_defaults[name], text, limits=RANGES[name])


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
        "demosaic", "Interpolation. 'auto': bilinear at half resolution; at full, gradient on a CPU, else adaptive."
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
    _option("raw.bit_depth", "Significant bits of 16-bit pixels, 8 to 16; 0 takes the encoding's.", (0, 16)),
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
        "snapshot.folder", "", "Where ~/snapshot writes; '' for $ROS_HOME/polar_pipeline or ~/.ros/polar_pipeline."
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
        on_device_error: `cpu`, `retry` or `stop`: what follows a GPU that fails.
    """

    options: Options
    threads: int
    queue_size: int
    output_depth: str
    always: bool
    limits: Limits
    frame_id: str
    jpeg_quality: int
    display: Display
    snapshot_folder: str
    on_device_error: str

    def on_cpu(self) -> Settings:
        """The same for the CPU backend."""
        precision = "auto" if self.options.precision == "fp16" else self.options.precision
        return self._replace(options=_for_cpu(self.options._replace(backend="cpu", precision=precision)))

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
    for row in PARAMETERS.values():
        value = values[row.name]
        if row.choices and value not in row.choices:
            raise ValueError(f"{row.name} must be one of {', '.join(row.choices)}, got {value!r}")
        if row.limits is not None and not row.limits[0] <= value <= row.limits[1]:  # NaN is refused too
            raise ValueError(f"{row.name} must be in [{row.limits[0]}, {row.limits[1]}], got {value}")
    chosen: Dict[str, Any] = {
        # ROS hands arrays over as `array.array` or list
        row.option: tuple(values[row.name]) if isinstance(row.default, tuple) else values[row.name]
        for row in PARAMETERS.values()
        if row.option
    }
    options = make_options(products=tuple(PRODUCTS), **chosen)
    if options.backend == "cpu" or (options.backend == "auto" and backend_problem("cuda") is not None):
        options = _for_cpu(options)
    limits = make_limits(**{name: values[f"quality.{name}"] for name in RANGES})
    display = make_display(values["display.gain"], values["display.white_balance"])
    own = {name: values[name] for name in ("threads", "queue_size", "output_depth", "frame_id", "jpeg_quality")}
    return Settings(
        options=options,
        always=values["quality.always"],
        limits=limits,
        display=display,
        snapshot_folder=values["snapshot.folder"],
        on_device_error=values["on_device_error"],
        **own,
    )


def _for_cpu(options: Options) -> Options:
    """Options with the demosaicing that `auto` is on a CPU in real time."""
    if options.demosaic == "auto" and options.resolution == "full":
        return options._replace(demosaic="gradient")  # adaptive takes longer than a camera's frame period
    return options
