"""The node's parameters: the pipeline's options and the node's own in one table, and how their values become settings.

Imports no ROS. `ros2 param describe` shows this table; the launch and YAML files are tested against it.
"""

from __future__ import annotations

import json
import re
from array import array
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Dict, FrozenSet, Iterable, Mapping, Optional, Tuple, cast

import yaml

from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.text import quoted
from polar_pipeline._util.values import MAX_TEXT, is_text, matching, text_value
from polar_pipeline.camera.facts import CameraFacts
from polar_pipeline.camera.settings import CAMERA_OPTIONS, CameraSettings
from polar_pipeline.geometry import LensCalibration
from polar_pipeline.options import OPTIONS, Option, Options, Value, declare, declared, make_options
from polar_pipeline.options.display import DISPLAY_OPTIONS, Display
from polar_pipeline.options.option import CheckedValues, validate
from polar_pipeline.options.options import GEOMETRY_OPTIONS, combine_options
from polar_pipeline.options.products import NOISE_PRODUCTS, PRODUCTS, SSIM_PRODUCTS
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.quality.statistics import LIMITS, QualityLimits
from polar_pipeline.recordings.messages import CameraInfo, has_mosaic, stated_offset
from polar_pipeline.sensor.mosaic import Sensor

#: Longest frame_id in characters.
MAX_FRAME_ID = 255
#: Most values in a list; the longest list of this package has four.
MAX_LIST = 1000
#: Parameters that name a sensor or a file. ROS stores the name; the object is loaded where `Settings` are made.
_NAMES_OF_OBJECTS = ("sensor", "calibration", "output.rectify")


def is_ros_value(value: object) -> bool:
    """Return whether a ROS parameter and a parameter file can hold a value: a single one, or a tuple of one type."""
    if isinstance(value, tuple):
        is_uniform = len({type(item) for item in value}) == 1 and not isinstance(value[0], tuple)
        return is_uniform and len(value) <= MAX_LIST and all(map(is_ros_value, value))
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, float) or is_text(value)


def _undo_yaml_reading(row: Option, value: object) -> object:
    """Return the value that a user meant: `ros2 param` reads values as YAML again, so '8' becomes 8, and 1e-05 text.

    Raises:
        ValueError: A list has items of several types, which ROS cannot store.
    """
    if isinstance(row.default, str) and not (row.choices or row.dynamic):
        return str(value) if type(value) is int and is_ros_value(value) else value
    if isinstance(value, str) and len(value) <= MAX_TEXT:
        with suppress(ValueError, RecursionError):
            number = json.loads(value)
            value = number if isinstance(number, (int, float, list)) else value
    if row.dynamic and isinstance(value, (list, array)):
        value = tuple(value)
        if not is_ros_value(value):
            raise ValueError(f"{row.parameter} must be a number, text, or a list of either, got {quoted(value)}")
    return value


_check_frame_id = matching(
    rf"[A-Za-z0-9_./-]{{0,{MAX_FRAME_ID}}}", f"text of letters, digits and _ - . /, at most {MAX_FRAME_ID} characters"
)
#: Text that `ros2 param load` makes of a whole number again, and text that ROS's parser takes for something else.
_WHOLE_NUMBER, _WORDS = r"|0|[1-9]\d{0,17}", r"(?i)y|n|nan|inf(inity)?|[-\d.]+e-?\d+"


def _frame_id(name: str, value: object) -> str:
    """Check a frame_id, which must stay the same text when ROS's parser and `ros2 param` read it as YAML."""
    text = _check_frame_id(name, value)
    with suppress(yaml.YAMLError, ValueError):  # a date of month 13
        stays_text = yaml.safe_load(text) == text and not re.fullmatch(_WORDS, text)
        if stays_text or re.fullmatch(_WHOLE_NUMBER, text):
            return text
    raise ValueError(f"{name} must not be what YAML reads as a number, a date or a truth value, got {quoted(text)}")


@dataclass(frozen=True)
class Settings:
    """The values of all parameters, checked against each other. Build it with `make_settings`.

    Attributes:
        options: Options with which any product that they allow would be computed.
        limits: Limits of quality.
        display: Gain and white balance of the preview and of compressed light.
        camera: Settings of the camera that the node reads itself.
        changed_options: Options that do not have their defaults.
        lens: Lens calibration that was received with the frame; None if the option `rectify` is not of frames.
    """

    options: Options
    on_device_error: str = declare(
        "cpu",
        "Reaction to a GPU failure. 'cpu': compute on the CPU and try the GPU every 10 s. 'retry': try the GPU with "
        "the next frame. 'stop': exit with code 1, for a launch file that restarts the node.",
        choices=("cpu", "retry", "stop"),
    )
    queue_size: int = declare(
        2,
        "Frames that can wait while one is processed; the newest replaces the oldest. 1 gives the freshest frames "
        "under overload; larger values bridge longer interruptions without loss.",
        limits=(1, 16),
        unit="frames",
        read_only=True,
    )
    output_depth: str = declare(
        "float32",
        "Pixels of DoLP, AoLP, their standard deviations and the SSIM map: physical values (32FC1), display encoding "
        "(mono8), or 16 bits (16UC1). 'uint16' also applies to intensity, angle images and components of light.",
        choices=OPTIONS["dtype"].choices,
    )
    frame_id: str = declare(
        "",
        "frame_id of every output: letters, digits and _ - . /; '' copies that of the input, with control characters "
        "escaped.",
        check=_frame_id,
    )
    jpeg_quality: int = declare(90, "JPEG quality of the compressed topics.", limits=(1, 100))
    snapshot_folder: str = declare(
        "",
        "Folder of snapshots; '' for $ROS_HOME/polar_pipeline or ~/.ros/polar_pipeline.",
        read_only=True,
        parameter="snapshot.folder",
    )
    snapshot_quota_mb: int = declare(
        1024,
        "Largest total size of all snapshots in MB; the oldest are removed.",
        limits=(1, 1048576),
        unit="MB",
        read_only=True,
        parameter="snapshot.quota_mb",
    )
    record_folder: str = declare(
        "",
        "Folder of recordings; '' for $ROS_HOME/polar_pipeline or ~/.ros/polar_pipeline.",
        read_only=True,
        parameter="record.folder",
    )
    record_quota_mb: int = declare(
        10240,
        "Total size in MB of all recordings in the folder at which a recording ends; none is removed.",
        limits=(1, 1048576),
        unit="MB",
        read_only=True,
        parameter="record.quota_mb",
    )
    record_compress: bool = declare(
        True,
        "Compress recorded frames without loss (polar_zstd), which takes a core up to 35 ms for a full frame.",
        parameter="record.compress",
    )
    always: bool = declare(
        False,
        "Compute SSIM and DoLP (for the count of dark pixels) for /diagnostics even without subscribers.",
        parameter="quality.always",
    )
    limits: QualityLimits = QualityLimits()
    display: Display = Display()
    camera: CameraSettings = CameraSettings()
    changed_options: FrozenSet[str] = frozenset()
    lens: Optional[LensCalibration] = None

    def computable(self, products: Iterable[str]) -> Tuple[str, ...]:
        """Select the products that can be computed with these settings."""
        return tuple(name for name in products if name in self.options.products)

    def without_reference(self, products: Tuple[str, ...]) -> Tuple[str, ...]:
        """Select the products that need no reference image, which may not have been received yet."""
        if self.options.ssim_mode != "reference":
            return products
        return tuple(name for name in products if name not in SSIM_PRODUCTS)

    def rectified_by(self, lens: LensCalibration) -> Settings:
        """Return these settings with the lens calibration that was received with the frames."""
        return replace(self, options=replace(self.options, rectify=lens), lens=lens)

    def of_camera(self, facts: CameraFacts) -> Settings:
        """Return these settings for the frames of a camera: its state replaces options that are not given.

        Raises:
            ValueError: An option is set to something else than the camera has, or does not fit it, such as a
                calibration; the message names both.
        """
        calibration = self.options.calibration
        if calibration and facts.nonlinearity:
            raise ValueError(f"calibration needs linear pixel values: {facts.nonlinearity}")
        values = facts.options()
        if facts.gain_db is not None:
            values["camera_gain"] = round(facts.gain_db - (calibration.gain_db if calibration else 0.0), 3)
        for name in [name for name in values if name in self.changed_options]:
            own, value = getattr(self.options, name), values.pop(name)
            if not OPTIONS[name].is_same(own, value):
                text = own.tile() if isinstance(own, Sensor) else own
                raise ValueError(f"{OPTIONS[name].parameter} is {text}, and the camera {facts.name} has {value}")
        with errors_as(lambda text: ValueError(f"the camera {facts.name} does not fit: {text}")):
            return replace(self, options=self.options.changed(**values))

    def of_region(self, info: Optional[CameraInfo], encoding: str) -> Settings:
        """Return these settings for frames of the region that their lens calibration states, unless an offset is set.

        Args:
            info: The lens calibration; None without one.
            encoding: Encoding of the frames; angle images do not depend on a region.

        Raises:
            ValueError: The offset is not allowed, or the calibration has no pixels there.
        """
        if info is None or "roi_offset" in self.changed_options or not has_mosaic(encoding):
            return self
        offset = stated_offset(info, self.options.flip, self.options.sensor)
        return self if offset is None else replace(self, options=self.options.changed(roi_offset=offset))

    def camera_parameters(self, facts: CameraFacts) -> Dict[str, object]:
        """Return the parameters by which frames of a camera are processed alike without it."""
        values: Dict[str, object] = {**facts.options(), "camera_gain": self.options.camera_gain}
        return {"camera.source": "", **{OPTIONS[name].parameter: value for name, value in values.items()}}

    def on_cpu(self) -> Settings:
        """Return these settings for the CPU backend."""
        precision = "auto" if self.options.precision == "fp16" else self.options.precision
        return replace(self, options=replace(self.options, backend="cpu", precision=precision))

    def arguments(self, products: Tuple[str, ...]) -> Dict[str, Any]:
        """Return the arguments of a `Pipeline` that computes these products."""
        arguments = self.options.arguments()
        if not set(products) & set(SSIM_PRODUCTS):
            del arguments["ssim_mode"]  # without SSIM no reference is needed
        dtype = {name: PRODUCT_TOPICS[name].dtype(self.output_depth) for name in products}
        return {**arguments, "products": products, "dtype": dtype}


_OWN = declared(Settings)
#: The option that each parameter sets, by the parameter's name.
PARAMETERS: Dict[str, Option] = {
    row.parameter: row
    for rows in (OPTIONS, _OWN, LIMITS, DISPLAY_OPTIONS, CAMERA_OPTIONS)
    for row in rows.values()
    if row.parameter
}
_DEFAULT_OPTIONS = make_options()


def check_parameter(name: str, value: object) -> Value:
    """Check the value of a parameter by itself, and return it as ROS stores it: a list as a tuple, 2 as 2.0 or '2'.

    The names of a sensor and of files are checked where `Settings` are made of all values.

    Args:
        name: Name of the parameter.
        value: Value of any type. ROS hands arrays over as `array.array` or list, and None for what is not set.

    Raises:
        ValueError: The value is not allowed; the message says what is.
    """
    row = PARAMETERS[name]
    value = _undo_yaml_reading(row, value)
    if name in _NAMES_OF_OBJECTS:
        return text_value(name, value)
    checked = row.validate(value, name)
    return cast(Value, value if row.dynamic else checked)


def make_settings(values: Mapping[str, object]) -> Settings:
    """Build settings from the values of parameters.

    Args:
        values: Parameter name -> value; a parameter that it does not name has its default.

    Raises:
        ContradictionError: Values do not fit each other.
        ValueError: A value is not allowed; the message says what is.
    """

    def values_for(rows: Mapping[str, Option]) -> Dict[str, Any]:
        return {name: _undo_yaml_reading(row, values.get(row.parameter, row.default)) for name, row in rows.items()}

    def checked(rows: Mapping[str, Option]) -> CheckedValues:
        return validate(rows, values_for(rows), attrgetter("parameter"))

    camera, options = CameraSettings(**checked(CAMERA_OPTIONS)), checked(OPTIONS)
    changed_options = frozenset(
        name for name, row in OPTIONS.items() if row.parameter and options[name] != getattr(_DEFAULT_OPTIONS, name)
    )
    calibration = options["calibration"]
    if camera.source and calibration:  # the camera tells the sensor and the offset later
        of_calibration = {"sensor": calibration.sensor, "roi_offset": calibration.offset}
        options.update({name: value for name, value in of_calibration.items() if name not in changed_options})
    has_geometry = not changed_options.isdisjoint(GEOMETRY_OPTIONS)  # which excludes the products of noise
    options["products"] = tuple(name for name in PRODUCTS if not (has_geometry and name in NOISE_PRODUCTS))
    return Settings(
        options=combine_options(options, attrgetter("parameter")),
        changed_options=changed_options,
        limits=QualityLimits(**values_for(LIMITS)),
        display=Display(**values_for(DISPLAY_OPTIONS)),
        camera=camera,
        **checked(_OWN),
    )
